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
#include "dataplane/nic/execute/request_executor.h"
#include "dataplane/nic/memory/placement.h"
#include "dataplane/nic/memory/window_table.h"
#include "dataplane/nic/qp/qp_context.h"
#include "dataplane/nic/qp/receive_queue.h"
#include "dataplane/nic/qp/reorder_buffer.h"
#include "dataplane/nic/qp/reports.h"
#include "dataplane/nic/settings.h"
#include "dataplane/nic/transport/advance_list.h"
#include "dataplane/nic/transport/roce/answers.h"
#include "dataplane/nic/transport/transport_services.h"
#include "protocol/wire/packet.h"

namespace hostnic {

class RoceResponder {
 public:
  RoceResponder(const TransportServices& nic, RoceAnswers& answers, AdvanceList& advance_list)
      : settings_(nic.settings),
        executor_(nic.executor()),
        reorder_(nic.reorder),
        answers_(answers),
        advance_list_(advance_list),
        counters_(nic.counters) {}

  void receive(QpContext& qp, const wire::Packet& p, rte_mbuf* packet);
  // Executes what is held, in order, up to where a packet is missing.
  void advance(QpContext& qp);
  // Gives back what is held.
  void drop_held(QpContext& qp);

 private:
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
  static uint32_t reads_owed(const QpContext& qp);

  const NicSettings& settings_;
  RequestExecutor executor_;
  ReorderPool& reorder_;
  RoceAnswers& answers_;
  AdvanceList& advance_list_;
  Counters& counters_;
};

}  // namespace hostnic
