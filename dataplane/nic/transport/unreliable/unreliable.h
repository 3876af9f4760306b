// SPDX-License-Identifier: BSD-3-Clause
// UC and UD in both directions (docs/transport.md rule 36): standard opcodes, no acknowledgement,
// no retransmission. A sender is done when the packet has left; what a receiver can't use it drops
// and counts.
//
// The NIC's lcore.
#pragma once

#include <rte_mbuf.h>

#include <cstdint>
#include <span>

#include "dataplane/nic/client/client_state.h"
#include "dataplane/nic/counters.h"
#include "dataplane/nic/egress/egress.h"
#include "dataplane/nic/execute/request_executor.h"
#include "dataplane/nic/memory/placement.h"
#include "dataplane/nic/qp/qp_context.h"
#include "dataplane/nic/qp/receive_queue.h"
#include "dataplane/nic/qp/reports.h"
#include "dataplane/nic/settings.h"
#include "dataplane/nic/transport/packetizer.h"
#include "dataplane/nic/transport/transport.h"
#include "dataplane/nic/transport/unreliable/held_packets.h"
#include "dataplane/nic/transport/unreliable/multicast_groups.h"
#include "protocol/wire/packet.h"

namespace hostnic {

class UnreliableTransport {
 public:
  struct Parts {
    const NicSettings& settings;
    Egress& egress;
    Placement& placement;
    WindowTable& windows;
    Packetizer& packetizer;
    ReceiveQueues& receives;
    Reports& reports;
    Counters& counters;
    rte_mempool* copies;  // for packets that are held
  };
  explicit UnreliableTransport(const Parts& parts)
      : settings_(parts.settings),
        egress_(parts.egress),
        packetizer_(parts.packetizer),
        executor_({parts.placement, parts.windows, parts.receives, parts.reports, parts.counters}),
        reports_(parts.reports),
        counters_(parts.counters),
        held_(parts.copies) {}

  // -- Packets that have arrived.
  void receive(QpContext& qp, const wire::Packet& p, rte_mbuf* packet);
  // Tries again what is held. Returns how many packets were done with.
  uint32_t retry_held();
  bool holds_any() const { return !held_.empty(); }
  std::array<std::byte, kGrhBytes> network_header(const wire::Packet& p, rte_mbuf* packet) const;
  void receive_from_group(std::span<QpContext* const> members, const wire::Packet& p,
                          rte_mbuf* packet);

  // -- Sending.
  // Descriptors come in PSN order and once; after an error those that were under way are discarded.
  bool start(const QpContext& qp, const SendDescriptor& d) const;
  // Sends nothing: packets leave one by one.
  static uint32_t send_several(const QpContext&, const SendProgress&, const SendBudget&) {
    return 0;
  }
  bool send_one(QpContext& qp, SendProgress& progress, bool& blocked);
  // Nothing of it is ever in line.
  static AnswerStep serve_answers(const QpContext&, uint32_t, const SendBudget&) {
    return {.then = AnswerStep::Then::kOver};
  }
  // Restarts a queue pair from SQE to RTS.
  void restart(QpContext& qp, Psn next);

  static void connect(QpContext& qp) {
    qp.message = {};
    qp.message.expected = Psn(qp.rq_psn);
  }
  void quiesce(QpContext& qp) { held_.drop(qp); }

  MulticastGroups& groups() { return groups_; }
  const MulticastGroups& groups() const { return groups_; }

 private:
  // What became of a packet: done with, or its memory can't be written now.
  enum class Taken : uint8_t { kDone, kNotNow };
  Taken take(QpContext& qp, const wire::Packet& p, rte_mbuf* packet, bool& begun);
  Taken receive_datagram(QpContext& qp, const wire::Packet& p, rte_mbuf* packet);
  Taken receive_in_order(QpContext& qp, const wire::Packet& p, rte_mbuf* packet, bool& begun);
  bool follow_message(QpContext& qp, const wire::Packet& p);
  void lose_message(QpContext& qp);
  Outcome place_message(QpContext& qp, const wire::Packet& p, std::span<const std::byte> payload);
  Taken judge(QpContext& qp, const Outcome& outcome);
  void set_opcode(const QpContext& qp, const SendDescriptor& d, wire::Packet& p) const;
  bool prepare_datagram(QpContext& qp, const SendDescriptor& d);
  bool send_to_group(QpContext& qp, SendProgress& progress, const wire::Packet& p, bool& blocked);
  rte_mbuf* build_packet(QpContext& qp, SendProgress& progress, const wire::Packet& p,
                         bool& blocked);
  void note_transmitted(QpContext& qp, const wire::Packet& p);
  void fail_send(QpContext& qp, Psn psn, LocalError error);
  void settle(QpContext& qp, Psn next);

  const NicSettings& settings_;
  Egress& egress_;
  Packetizer& packetizer_;
  RequestExecutor executor_;
  Reports& reports_;
  Counters& counters_;
  MulticastGroups groups_;
  HeldPackets held_;
};
static_assert(NicTransport<UnreliableTransport>);

}  // namespace hostnic
