// SPDX-License-Identifier: BSD-3-Clause
// Posted receives: found by number in a queue pair's own queue, taken from a shared one as messages
// arrive, completed in order (docs/transport.md rules 13, 21).
//
// The NIC's lcore.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "dataplane/nic/qp/qp_context.h"
#include "dataplane/nic/qp/reports.h"
#include "protocol/hostif/descriptors.h"
#include "protocol/prefetch.h"

namespace hostnic {

// A receive work request, copied out of shared memory.
struct PostedReceive {
  std::array<Sge, kMaxSge> sges;
  uint32_t sge_count = 0;
  uint64_t capacity_bytes = 0;
  std::span<const Sge> list() const { return {sges.data(), sge_count}; }
};

class ReceiveQueues {
 public:
  explicit ReceiveQueues(Reports& reports) : reports_(reports) {}

  // The absolute number of receives posted, as the driver says; never more than fit behind what has
  // completed. With a shared receive queue it is the end of the completion ring's room.
  static uint32_t posted(const QpContext& qp);
  // Whether receive `sn` has been posted; a receive of a shared queue is bound then. `ahead` says
  // that others before it are still missing.
  bool is_there(QpContext& qp, uint32_t sn, bool ahead);
  // Copies a receive out of its slot; returns false if the slot holds nothing that a driver would
  // have written.
  static bool load(const QpContext& qp, uint32_t sn, PostedReceive& receive);
  // Writes what the receive ended with, which nobody reads before publish().
  static void write(QpContext& qp, uint32_t sn, const ReceiveEnd& end, RecvStatus status);
  void publish(QpContext& qp, uint32_t sn);
  void complete(QpContext& qp, uint32_t sn, const ReceiveEnd& end, RecvStatus status);

  // Prefetches what the driver has just written on another core, so that it is there when the
  // payload in between has been copied: where the message of receive `sn` will say that it is
  // complete, and the receive behind it. The queue pair must have receives.
  static void prefetch(const QpContext& qp, uint32_t sn) {
    const uint32_t mask = qp.recv_entries - 1;
    // The slots of a shared queue are taken in no order, so the next one is not known.
    if (qp.srq != nullptr)
      return prefetch_line(&qp.recv_completions[qp.recv_names[sn & mask] & mask]);
    prefetch_line(&qp.recv_completions[sn & mask]);
    prefetch_line(qp.recv_slots + size_t{(sn + 1) & mask} * recv_slot_bytes(qp.recv_max_sge));
  }

 private:
  bool bind(QpContext& qp, uint32_t sn, bool ahead);

  Reports& reports_;
};

}  // namespace hostnic
