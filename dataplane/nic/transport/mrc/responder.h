// SPDX-License-Identifier: BSD-3-Clause
// The responder of MRC (docs/mrc.md, "Transport"). A WRITE's packet says itself where its bytes
// belong, and is placed when it comes, in any order; what programs must not see before all else, a
// message's end and immediate data, waits in the reorder buffer. What has come is
// MrcConnection::arrivals, which SACKs tell; what has executed is QpContext::requests, which
// transport ACKs tell. What is wrong with a packet is said when its turn has come.
//
// The NIC's lcore.
#pragma once

#include <rte_mbuf.h>

#include <cstdint>
#include <span>

#include "dataplane/nic/counters.h"
#include "dataplane/nic/execute/request_executor.h"
#include "dataplane/nic/memory/placement.h"
#include "dataplane/nic/qp/qp_context.h"
#include "dataplane/nic/qp/reorder_buffer.h"
#include "dataplane/nic/settings.h"
#include "dataplane/nic/transport/advance_list.h"
#include "dataplane/nic/transport/mrc/acknowledge.h"
#include "dataplane/nic/transport/transport_services.h"
#include "protocol/wire/mrc/packet.h"

namespace hostnic {

class MrcResponder {
 public:
  MrcResponder(const TransportServices& nic, MrcAcks& acks, AdvanceList& advance_list)
      : settings_(nic.settings),
        counters_(nic.counters),
        reports_(nic.reports),
        reorder_(nic.reorder),
        placement_(nic.placement),
        executor_(nic.executor()),
        acks_(acks),
        advance_list_(advance_list) {}

  // Takes a WRITE.
  void receive(QpContext& qp, const wire::Packet& p, const wire::mrc::Packet& headers,
               rte_mbuf* packet);
  // Takes a WRITE without its payload, which a switch has cut off.
  void receive_trimmed(QpContext& qp, const wire::Packet& p, const wire::mrc::Packet& headers);
  // Executes what has come and has its turn, a bounded number of packets.
  void advance(QpContext& qp);
  void quiesce(QpContext& qp);

 private:
  bool execute_expected(QpContext& qp, const wire::Packet& p, const wire::mrc::Packet& headers,
                        rte_mbuf* packet);
  bool accept_ahead(QpContext& qp, const wire::Packet& p, const wire::mrc::Packet& headers,
                    rte_mbuf* packet);
  bool waits_for_its_turn(const wire::Packet& p) const;
  Outcome execute(QpContext& qp, const wire::Packet& p, const wire::mrc::Packet& headers,
                  std::span<const std::byte> payload, bool ahead);
  void note_come(QpContext& qp, const wire::Packet& p);
  void note_executed(QpContext& qp, const wire::Packet& p, const wire::mrc::Packet& headers);
  void refuse(QpContext& qp, const wire::Packet& p, const Outcome& outcome);

  const NicSettings& settings_;
  Counters& counters_;
  Reports& reports_;
  ReorderPool& reorder_;
  Placement& placement_;
  RequestExecutor executor_;
  MrcAcks& acks_;
  AdvanceList& advance_list_;
};

}  // namespace hostnic
