// SPDX-License-Identifier: BSD-3-Clause
// What queue pairs ask the cache for before their turn (see driver.cc).
#include "protocol/prefetch.h"
#include "verbs-shim/driver/qp.h"

namespace hostnic::driver {

void Qp::prefetch_post() const { prefetch_lines(&init, requester_.end_of_posts()); }

void Qp::prefetch_slots() const {
  const uint32_t slot = tail_ & wqe_mask_;
  prefetch_line(&wqes_[slot]);
  if (!sges_.empty()) prefetch_line(&sges_[size_t{slot} * init.caps.max_send_sge]);
  requester_.with([](const auto& requester) { requester.prefetch_next(); });
  for (const void* line : init.read_by_posts) prefetch_line(line);
}

void Qp::prefetch_issue() const {
  prefetch_post();
  prefetch_line(&deadline_ns_);
}

void Qp::prefetch_waiting() const {
  const uint32_t slot = issue_ & wqe_mask_;
  for (uint32_t i = 0; i < 4; ++i) prefetch_line(&wqes_[(slot + i) & wqe_mask_]);
  if (!sges_.empty()) prefetch_line(&sges_[size_t{slot} * init.caps.max_send_sge]);
}

void Qp::prefetch_report() {
  prefetch_lines(&init, requester_.end_of_reports());
  prefetch_lines(&status(), &status().sack);
}

void Qp::prefetch_timer() const { prefetch_line(&deadline_ns_); }

}  // namespace hostnic::driver
