// SPDX-License-Identifier: BSD-3-Clause
// Requests of the standard's RC as they arrive (InfiniBand 9.7.4, 9.7.5.2): taken in the order of
// their PSNs, executed once. What comes ahead of the expected PSN is held until all before it has
// executed, or dropped if there is no room, and answered by one NAK: its sender, which repeats
// everything, sees an acknowledgement that reaches beyond what it has repeated. What comes again is
// acknowledged again; READs are read anew, and atomics answered from the record.
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
#include "dataplane/nic/qp/reorder_buffer.h"
#include "dataplane/nic/qp/reports.h"
#include "dataplane/nic/settings.h"
#include "dataplane/nic/transport/advance_list.h"
#include "dataplane/nic/transport/roce/answers.h"
#include "protocol/wire/packet.h"

namespace hostnic {

class RoceResponder {
 public:
  struct Parts {
    const NicSettings& settings;
    Placement& placement;
    WindowTable& windows;
    ReceiveQueues& receives;
    ReorderPool& reorder;
    Reports& reports;
    RoceAnswers& answers;
    AdvanceList& advance_list;
    Counters& counters;
  };
  explicit RoceResponder(const Parts& parts)
      : settings_(parts.settings),
        placement_(parts.placement),
        windows_(parts.windows),
        receives_(parts.receives),
        reorder_(parts.reorder),
        reports_(parts.reports),
        answers_(parts.answers),
        advance_list_(parts.advance_list),
        counters_(parts.counters) {}

  void receive(QpContext& qp, const wire::Packet& p, rte_mbuf* packet);
  // Executes what is held, in order, up to where a packet is missing.
  void advance(QpContext& qp);
  // Gives back what is held.
  void drop_held(QpContext& qp);

 private:
  // What becomes of the expected request. kNotYet: it is held, and executes in a later turn;
  // kNotReady: its peer is told to wait; kRefused: the connection has ended.
  enum class Outcome : uint8_t { kDone, kNotYet, kNotReady, kRefused };

  void receive_duplicate(QpContext& qp, const wire::Packet& p);
  void receive_ahead(QpContext& qp);
  void hold(QpContext& qp, const wire::Packet& p, rte_mbuf* packet);
  void hold_expected(QpContext& qp, const wire::Packet& p, rte_mbuf* packet);
  void pass(QpContext& qp, uint32_t psns);
  Outcome take_expected(QpContext& qp, const wire::Packet& p, std::span<const std::byte> payload);
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

  const NicSettings& settings_;
  Placement& placement_;
  WindowTable& windows_;
  ReceiveQueues& receives_;
  ReorderPool& reorder_;
  Reports& reports_;
  RoceAnswers& answers_;
  AdvanceList& advance_list_;
  Counters& counters_;
};

}  // namespace hostnic
