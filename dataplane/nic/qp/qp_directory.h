// SPDX-License-Identifier: BSD-3-Clause
// The queue pairs of a NIC by number. A QPN is generation << 16 | index; an index is given out
// again only when all others have been, with another generation. Where both begin is not to be
// guessed: a number of this start should be none of the one before. The NIC's lcore.
//
// With thousands of queue pairs each packet finds another one's context, which is in no cache near:
// a dozen lines, one miss behind the other. So it is asked for (prefetch...) while the packets
// before it are worked on.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "dataplane/nic/qp/qp_context.h"
#include "protocol/prefetch.h"

namespace hostnic {

class QpDirectory {
 public:
  static constexpr uint32_t kFirstIndex = 16;  // keeps QPNs clear of the special QPs 0 and 1

  // `seed` decides at which index and generations numbers begin; 0: at what nobody can guess.
  explicit QpDirectory(uint32_t max_qps, uint64_t seed = 1);

  // The queue pair with this very number; null: none has it.
  QpContext* find(uint32_t qpn) const {
    const uint32_t index = qpn & 0xffff;
    if (index >= qps_.size()) return nullptr;
    QpContext* qp = qps_[index].get();
    return qp != nullptr && qp->qpn == qpn ? qp : nullptr;
  }
  // Adds a queue pair and gives it its number. Returns null if there are max_qps already.
  QpContext* add(std::unique_ptr<QpContext> qp);
  void remove(const QpContext& qp);

  // All queue pairs by position, for those who look at a few at a time; null: there is none.
  uint32_t end_position() const { return static_cast<uint32_t>(qps_.size()); }
  const QpContext* at_position(uint32_t position) const { return qps_[position].get(); }
  // Visits all queue pairs. Costs as much as queue pairs have ever been made, max_qps at most.
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (uint32_t i = 0; i < given_; ++i)
      if (const auto& qp = qps_[index_of(i)]; qp != nullptr) visit(*qp);
  }

  // Prefetches the context that a descriptor, or a packet that has come, will need. Any number may
  // be given: one that is no queue pair's does nothing.
  void prefetch(uint32_t qpn, QpPart part) const {
    const uint32_t index = qpn & 0xffff;
    if (index >= qps_.size() || qps_[index] == nullptr) return;
    const QpContext& qp = *qps_[index];
    prefetch_line(&qp);
    switch (part) {
      case QpPart::kSends:
        return prefetch_lines(&qp.packets, &qp.stamps);
      case QpPart::kReceives:
        return prefetch_lines(&qp.response_flow, &qp.requests);
      case QpPart::kAnswers:
        return prefetch_line(&qp.responses);
    }
  }
  // Prefetches the status that an ACK will change, which the driver has just read on another core.
  // The context should be there already.
  void prefetch_status(uint32_t qpn) const {
    if (const QpContext* const qp = find(qpn)) prefetch_line(qp->status);
  }

 private:
  // The index that was given out as the i-th new one.
  uint32_t index_of(uint32_t i) const { return kFirstIndex + (first_ + i) % max_qps_; }

  uint32_t max_qps_;
  uint32_t first_ = 0, given_ = 0;  // the first index is first_ behind kFirstIndex; how many of the
                                    // indices have been somebody's
  std::vector<std::unique_ptr<QpContext>> qps_;  // indexed by the QPN's index
  std::vector<uint8_t> generations_;
  std::deque<uint32_t> free_indices_;  // oldest first
};

}  // namespace hostnic
