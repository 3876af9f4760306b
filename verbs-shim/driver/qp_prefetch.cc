// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/driver/qp_prefetch.h"

#include "protocol/prefetch.h"

namespace hostnic::driver {

void QpPrefetch::post(const Qp& qp) { prefetch_lines(&qp.init, qp.requester_.end_of_posts()); }

void QpPrefetch::slots(const Qp& qp) {
  const uint32_t slot = qp.tail_ & qp.wqe_mask_;
  prefetch_line(&qp.wqes_[slot]);
  if (!qp.sges_.empty()) prefetch_line(&qp.sges_[size_t{slot} * qp.init.caps.max_send_sge]);
  qp.requester_.with([](const auto& requester) { requester.prefetch_next(); });
  for (const void* line : qp.init.read_by_posts) prefetch_line(line);
}

void QpPrefetch::issue(const Qp& qp) {
  post(qp);
  prefetch_line(&qp.deadline_ns_);
}

void QpPrefetch::waiting(const Qp& qp) {
  const uint32_t slot = qp.issue_ & qp.wqe_mask_;
  for (uint32_t i = 0; i < 4; ++i) prefetch_line(&qp.wqes_[(slot + i) & qp.wqe_mask_]);
  if (!qp.sges_.empty()) prefetch_line(&qp.sges_[size_t{slot} * qp.init.caps.max_send_sge]);
}

void QpPrefetch::report(const Qp& qp) {
  prefetch_lines(&qp.init, qp.requester_.end_of_reports());
  prefetch_lines(&qp.status(), &qp.status().sack);
}

void QpPrefetch::timer(const Qp& qp) { prefetch_line(&qp.deadline_ns_); }

}  // namespace hostnic::driver
