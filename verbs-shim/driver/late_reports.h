// SPDX-License-Identifier: BSD-3-Clause
// Reports of queue pairs that are looked at later than they come, so that completions of different
// queues are seen in an order that nothing but chance gives: where the NIC's `ordering` is
// adversarial (docs/ordering.md). Completions of one queue pair stay in order, and an event never
// tells of one that can't be polled yet, since none is made before its report is looked at.
//
// Wants the driver lock held.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "protocol/impair/adversary.h"
#include "protocol/types.h"

namespace hostnic::driver {

class Qp;

class LateReports {
 public:
  // Whether a report of the queue pair, which has come now, is for later. `seed` is not 0.
  bool put_off(Qp& qp, uint32_t qpn, uint32_t seed, TimeNs now_ns) {
    constexpr uint32_t kOneIn = 8;
    constexpr TimeNs kMostNs = 100'000;
    if (std::ranges::find(late_, &qp, &Late::qp) != late_.end()) return true;
    const uint64_t name = uint64_t{qpn} << 32 | ++reports_;
    const TimeNs wait_ns =
        impair::draw(seed, impair::AdversaryDraw::kLateReport, name, kOneIn, kMostNs);
    if (wait_ns == 0) return false;
    late_.push_back({&qp, now_ns + wait_ns});
    return true;
  }
  // Calls look(qp) for those whose time has come.
  template <class Look>
  void look_at_due(TimeNs now_ns, Look&& look) {
    for (size_t i = 0; i < late_.size();) {
      if (now_ns < late_[i].due_ns) {
        ++i;
        continue;
      }
      Qp* const qp = late_[i].qp;
      late_.erase(late_.begin() + static_cast<ptrdiff_t>(i));
      look(*qp);
    }
  }
  // When the next of them comes; UINT64_MAX: there is none.
  TimeNs due_ns() const {
    TimeNs due = UINT64_MAX;
    for (const Late& late : late_) due = std::min(due, late.due_ns);
    return due;
  }
  bool empty() const { return late_.empty(); }
  void forget(const Qp& qp) {
    std::erase_if(late_, [&](const Late& late) { return late.qp == &qp; });
  }

 private:
  struct Late {
    Qp* qp;
    TimeNs due_ns;
  };
  std::vector<Late> late_;
  uint32_t reports_ = 0;
};

}  // namespace hostnic::driver
