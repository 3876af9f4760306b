// SPDX-License-Identifier: BSD-3-Clause
// UC and UD in both directions (docs/transport.md rule 36): standard opcodes, no acknowledgement,
// no retransmission. A sender is done when the packet has left; what a receiver can't use it drops
// and counts.
//
// The NIC's lcore.
#pragma once

#include <rte_mbuf.h>

#include <array>
#include <cstdint>
#include <span>

#include "dataplane/nic/client/client_state.h"
#include "dataplane/nic/counters.h"
#include "dataplane/nic/egress/egress.h"
#include "dataplane/nic/execute/request_executor.h"
#include "dataplane/nic/qp/multicast_groups.h"
#include "dataplane/nic/qp/qp_context.h"
#include "dataplane/nic/qp/reports.h"
#include "dataplane/nic/settings.h"
#include "dataplane/nic/transport/packetizer.h"
#include "dataplane/nic/transport/transport.h"
#include "dataplane/nic/transport/transport_services.h"
#include "dataplane/nic/transport/unreliable/held_packets.h"
#include "protocol/wire/packet.h"

namespace hostnic {

class UnreliableTransport : public TransportDefaults {
 public:
  explicit UnreliableTransport(const TransportServices& nic)
      : settings_(nic.settings),
        egress_(nic.egress),
        packetizer_(nic.packetizer),
        executor_(nic.executor()),
        reports_(nic.reports),
        counters_(nic.counters),
        groups_(nic.groups),
        messages_(nic.messages),
        held_(nic.egress.pools().copies) {}

  // -- Packets that have arrived. They come in no trains.
  // A datagram may be from anybody.
  static bool is_from_peer(const QpContext& qp, const wire::Packet& p, bool answer) {
    if (qp.type == QpType::kUd) return true;
    return is_from_address(qp, p) && (!qp.tagged || has_connection_tag(qp, p, answer));
  }
  bool receive(QpContext& qp, const wire::Packet& p, rte_mbuf* packet);
  std::array<std::byte, kGrhBytes> network_header(const wire::Packet& p, rte_mbuf* packet) const;

  // -- What leaves.
  // Descriptors come in PSN order and once; after an error those that were under way are discarded.
  bool start(const QpContext& qp, const SendDescriptor& d) const;
  bool send_one(QpContext& qp, SendProgress& progress, bool& blocked);

  // -- The NIC's turn.
  // Tries again what is held. Returns how many packets were done with.
  uint32_t begin_turn();
  bool any_left() const { return !held_.empty(); }

  static void connect(QpContext& qp) {
    qp.message = {};
    qp.message.expected = Psn(qp.rq_psn);
  }
  void quiesce(QpContext& qp) { held_.drop(qp); }
  void restart(QpContext& qp, Psn next);

 private:
  // What became of a packet: done with, or its memory can't be written now.
  enum class Taken : uint8_t { kDone, kNotNow };
  Taken take(QpContext& qp, const wire::Packet& p, rte_mbuf* packet, bool& begun);
  Taken receive_datagram(QpContext& qp, const wire::Packet& p, rte_mbuf* packet);
  Taken receive_in_order(QpContext& qp, const wire::Packet& p, rte_mbuf* packet, bool& begun);
  bool follow_message(QpContext& qp, const wire::Packet& p);
  void lose_message(QpContext& qp, const wire::Packet& p);
  Outcome place_message(QpContext& qp, const wire::Packet& p, std::span<const std::byte> payload);
  Taken judge(QpContext& qp, const wire::Packet& p, const Outcome& outcome);
  static void set_headers(const QpContext& qp, const SendDescriptor& d, uint32_t sent_bytes,
                          wire::Packet& p);
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
  const MulticastGroups& groups_;
  MessageTap* const& messages_;
  HeldPackets held_;
};
static_assert(NicTransport<UnreliableTransport>);

}  // namespace hostnic
