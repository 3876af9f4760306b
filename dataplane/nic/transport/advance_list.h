// SPDX-License-Identifier: BSD-3-Clause
// Queue pairs whose windows can advance further, in the next turn: a turn passes a bounded number
// of PSNs of each (rule 8).
#pragma once

#include <algorithm>
#include <vector>

#include "dataplane/nic/qp/qp_context.h"

namespace hostnic {

class AdvanceList {
 public:
  // Makes lists that have a place for each of a NIC's `nic_qps` queue pairs: turns allocate
  // nothing.
  explicit AdvanceList(uint32_t nic_qps) {
    now_.reserve(nic_qps);
    next_.reserve(nic_qps);
  }

  void add(QpContext& qp) {
    if (qp.on_advance_list) return;
    qp.on_advance_list = true;
    next_.push_back(&qp);
  }
  void forget(QpContext& qp) {
    std::erase(next_, &qp);
    qp.on_advance_list = false;
  }
  // Calls advance(qp) for the queue pairs that were added before this turn. Returns for how many
  // that says that it did anything: what waits for memory leaves the processor to who brings that.
  template <class Advance>
  uint32_t for_each(Advance&& advance) {
    now_.swap(next_);
    uint32_t advanced = 0;
    for (QpContext* qp : now_) {
      qp->on_advance_list = false;
      advanced += advance(*qp) ? 1 : 0;
    }
    now_.clear();
    return advanced;
  }
  // Calls look(qp) for those that are advanced in the next turn.
  template <class Look>
  void look(Look&& look) const {
    for (const QpContext* qp : next_) look(*qp);
  }
  bool empty() const { return next_.empty(); }
  size_t waiting() const { return next_.size(); }

 private:
  std::vector<QpContext*> now_, next_;
};

}  // namespace hostnic
