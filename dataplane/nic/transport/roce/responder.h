// SPDX-License-Identifier: BSD-3-Clause
// Requests of the standard's RC as they arrive (InfiniBand 9.7.4, 9.7.5.2): taken in the order of
// their PSNs, executed once. What comes ahead of the expected PSN is dropped and answered by one
// NAK, what comes again is acknowledged again; READs are read anew, and atomics answered from the
// record.
//
// The NIC's lcore.
#pragma once

#include <rte_mbuf.h>

#include <cstdint>
#include <span>

#include "dataplane/nic/counters.h"
#include "dataplane/nic/memory/placement.h"
#include "dataplane/nic/memory/window_table.h"
#include "dataplane/nic/qp/qp_context.h"
#include "dataplane/nic/qp/receive_queue.h"
#include "dataplane/nic/qp/reports.h"
#include "dataplane/nic/transport/roce/answers.h"
#include "protocol/wire/packet.h"

namespace hostnic {

class RoceResponder {
 public:
  struct Parts {
    Placement& placement;
    WindowTable& windows;
    ReceiveQueues& receives;
    Reports& reports;
    RoceAnswers& answers;
    Counters& counters;
    const TimeNs& now;
  };
  explicit RoceResponder(const Parts& parts)
      : placement_(parts.placement),
        windows_(parts.windows),
        receives_(parts.receives),
        reports_(parts.reports),
        answers_(parts.answers),
        counters_(parts.counters),
        now_(parts.now) {}

  void receive(QpContext& qp, const wire::Packet& p, rte_mbuf* packet);

 private:
  // What becomes of the expected request. kNotYet: it is dropped as if the network had lost it;
  // kNotReady: its peer is told to wait; kRefused: the connection has ended.
  enum class Outcome : uint8_t { kDone, kNotYet, kNotReady, kRefused };

  void receive_duplicate(QpContext& qp, const wire::Packet& p);
  Outcome execute(QpContext& qp, const wire::Packet& p, std::span<const std::byte> payload);
  Outcome execute_message(QpContext& qp, const wire::Packet& p, std::span<const std::byte> payload);
  Outcome place_send(QpContext& qp, const wire::Packet& p, std::span<const std::byte> payload);
  Outcome place_write(QpContext& qp, const wire::Packet& p, std::span<const std::byte> payload);
  Outcome execute_read(QpContext& qp, const wire::Packet& p);
  Outcome execute_atomic(QpContext& qp, const wire::Packet& p);
  static bool has_too_many_reads(const QpContext& qp);
  Outcome refuse(QpContext& qp, const wire::Packet& p, wire::NakCode code, uint32_t event);
  Outcome refuse_receive(QpContext& qp, const wire::Packet& p, wire::NakCode code,
                         RecvStatus status, uint32_t event = 0);
  Outcome refuse_write(QpContext& qp, const wire::Packet& p);
  void note_congestion(QpContext& qp);

  Placement& placement_;
  WindowTable& windows_;
  ReceiveQueues& receives_;
  Reports& reports_;
  RoceAnswers& answers_;
  Counters& counters_;
  const TimeNs& now_;
};

}  // namespace hostnic
