// SPDX-License-Identifier: BSD-3-Clause
// Packets arrive: is one ours, is it whole, which queue pair, which transport. The rest is the
// transports'.
#include <rte_branch_prediction.h>

#include <array>
#include <optional>
#include <span>

#include "dataplane/nic/nic_core.h"
#include "protocol/prefetch.h"
#include "protocol/wire/multicast.h"

namespace hostnic {
namespace {

constexpr uint16_t kQueue = 0;  // a queue of the port: the only shard receives all

// The BTH of a packet from a port that delivers whole ones.
wire::BthView bth_of(rte_mbuf* packet) {
  const auto* bth = rte_pktmbuf_mtod(packet, const std::byte*) + wire::kFlowBytes;
  return wire::BthView(std::span<const std::byte, wire::kBthBytes>(bth, wire::kBthBytes));
}
bool is_ack(wire::BthView bth) { return wire::Opcode{bth.opcode()} == wire::Opcode::kAck; }

[[gnu::always_inline]] inline void prefetch_for(const QpDirectory& qps, wire::BthView bth) {
  const bool answer = wire::Opcode{bth.opcode()} == wire::Opcode::kReadResponse;
  qps.prefetch(raw(bth.dest_qpn()), is_ack(bth) ? QpPart::kSends
                                    : answer    ? QpPart::kAnswers
                                                : QpPart::kReceives);
}

bool passes_icrc(Counters& counters, rte_mbuf* packet, const wire::Packet& headers) {
  if (icrc_valid(packet, headers)) return true;
  counters.add(Counter::rx_icrc_error);
  return false;
}

// The dialect of the queue pair that a packet is for. What is for none is read in the dialect that
// its opcode is of: connection management, multicast, connections that are no more.
[[gnu::always_inline]] inline wire::Dialect dialect_for(const QpDirectory& qps,
                                                        const wire::Packet& p) {
  const QpContext* const qp = qps.find(raw(p.dest_qpn));
  return qp != nullptr ? dialect_of(qp->transport) : wire::dialect_of(p.opcode);
}

// What became of a packet's queue pair, for a capture.
PacketTap::Outcome outcome_of(const NicShard& nic, const wire::Packet& p) {
  const QpContext* const qp = nic.qps.find(raw(p.dest_qpn));
  if (qp == nullptr) return {};
  PacketTap::Outcome outcome{.qp_state = static_cast<uint8_t>(qp->state)};
  const std::optional<Psn> expected =
      nic.transports.with(*qp, [&](auto& transport) { return transport.expected_psn(*qp, p); });
  if (!expected) return outcome;
  outcome.has_expected = true;
  outcome.expected_psn = expected->value();
  return outcome;
}

}  // namespace

uint32_t NicShard::receive_turn() {
  return likely(!is_watched) ? receive_arrived<false>() : receive_arrived<true>();
}

// Takes what has arrived, as much as a turn may. While packets are captured, or messages traced,
// each packet is dispatched by itself, those of bundles, too (egress/packet_tap.h,
// qp/message_tap.h).
template <bool kWatched>
uint32_t NicShard::receive_arrived() {
  uint32_t done = 0;  // buffers; the budget is about packets, of which each buffer may have many
  const uint64_t packets_before = counters.get(Counter::rx_packets);
  std::array<rte_mbuf*, kBurst> burst;
  if constexpr (kWatched)
    if (messages != nullptr) messages->look_again();
  const bool looks_ahead = port.capabilities().delivers_whole_bth;
  while (done < kRxBudget && counters.get(Counter::rx_packets) - packets_before < kRxBudget) {
    const uint16_t count = port.receive(kQueue, burst.data(), kBurst);
    look_at_replacements();
    for (uint16_t i = 0; i < count; ++i) {
      if (i + 1 < count) rte_prefetch0(rte_pktmbuf_mtod(burst[i + 1], void*));
      if (looks_ahead && i + kQpsAhead < count) {
        const wire::BthView ahead = bth_of(burst[i + kQpsAhead]);
        if (ahead.dest_qpn() != received.packet().dest_qpn) prefetch_for(qps, ahead);
        const wire::BthView next = bth_of(burst[i + 1]);
        if (is_ack(next) && next.dest_qpn() != received.packet().dest_qpn)
          qps.prefetch_status(raw(next.dest_qpn()));
      }
      receive_packet<kWatched>(burst[i]);
    }
    done += count;
    if (count < kBurst) break;
  }
  train_qp = nullptr;
  spent.flush();
  references.flush();
  return done;
}

// Parses the packet into `received`. Returns false if this NIC does not know such packets; then it
// has been counted.
[[gnu::always_inline]] inline bool NicShard::begin_train(rte_mbuf* packet, bool has_icrc) {
  const auto dialect = [this](const wire::Packet& p) { return dialect_for(qps, p); };
  switch (received.begin(first_segment_of(packet), packet->pkt_len, has_icrc, dialect)) {
    case wire::ParseError::kNone:
      // On a network of IPv4 no host has an address of those that stand for IPv6 addresses.
      if (likely(!egress.paths().needs_arp() || !is_stand_in(received.packet().src_ip)))
        return true;
      counters.add(Counter::rx_not_ours);
      return false;
    case wire::ParseError::kNotIpv4:
    case wire::ParseError::kNotRoce:
      egress.receive_arp(first_segment_of(packet));
      counters.add(Counter::rx_not_ours);
      return false;
    case wire::ParseError::kUnknownOpcode:
      counters.add(wire::find_opcode(received.packet().opcode) != nullptr
                       ? Counter::rx_wrong_service
                       : Counter::rx_parse_error);
      return false;
    default:
      counters.add(Counter::rx_parse_error);
      return false;
  }
}

// A packet for nobody who is here may be of a connection that is no more.
void NicShard::refuse_stranger(const wire::Packet& p, Counter why) {
  if (!transports.first_of([&](auto& transport) { return transport.answer_stray(p); }))
    counters.add(why);
}

// A packet for a queue pair that there is not (`qp` is null), or that does not listen.
[[gnu::cold, gnu::noinline]] void NicShard::refuse_unheard(QpContext* qp, const wire::Packet& p) {
  refuse_stranger(p, Counter::rx_unknown_qp);
  if (qp != nullptr) {
    if (qp->state < QpState::kRtr) qp->drops.note(SilentDrop::kNotConnected, p, qp->recv_next_sn);
  } else if (wire::service_of(p.opcode) == wire::Service::kDatagram) {
    stray_datagrams = {stray_datagrams.count + 1, raw(p.dest_qpn), p.src_ip};
  }
}

// Looks up the QP of a packet that does not continue the previous one's segment train.
[[gnu::always_inline]] inline void NicShard::dispatch_first(const wire::Packet& p,
                                                            rte_mbuf* packet) {
  QpContext* qp = qps.find(raw(p.dest_qpn));
  const bool answer = !wire::is_request(p.opcode);
  // A QP is silent in RESET and INIT (rule 29); in ERR only a fatal NAK is repeated (rule 28).
  const bool listens = qp != nullptr && qp->state >= QpState::kRtr &&
                       (qp->state != QpState::kErr || (qp->fatal && !answer));
  if (!listens) {
    if (!management.receive(p, packet)) refuse_unheard(qp, p);
  } else if (wire::service_of(p.opcode) != service_of(qp->type)) {
    counters.add(Counter::rx_wrong_service);
  } else {
    transports.with(
        *qp, [&](auto& transport) __attribute__((always_inline)) {
          if (unlikely(!transport.is_from_peer(*qp, p, answer))) {
            qp->drops.note(SilentDrop::kNotOfPeer, p, qp->recv_next_sn);
            refuse_stranger(p, Counter::rx_wrong_tag);
          } else if (transport.receive(*qp, p, packet)) {
            train_qp = qp;
          }
        });
  }
}

// Dispatches a packet by itself.
void NicShard::dispatch_single(const wire::Packet& p, rte_mbuf* packet) {
  dispatch_first(p, packet);
  train_qp = nullptr;
}

// Hands a packet for a group to the group's members here.
void NicShard::dispatch_to_group(std::span<QpContext* const> members, const wire::Packet& p,
                                 rte_mbuf* packet) {
  if (p.dest_qpn != wire::kMulticastQpn) {
    counters.add(Counter::rx_unknown_qp);
  } else if (wire::service_of(p.opcode) != wire::Service::kDatagram) {
    counters.add(Counter::rx_wrong_service);
  } else {
    for (QpContext* qp : members) {
      if (qp->state < QpState::kRtr || qp->state == QpState::kErr) continue;
      if (unlikely(messages != nullptr)) messages->note_received(*qp, p, MessageTap::ticks());
      transports.with(*qp, [&](auto& transport) { transport.receive(*qp, p, packet); });
    }
  }
}

// Checks that a packet is for this NIC, and hands it to the queue pair whose number it has. A
// packet for a group goes to the group's members. Packets of a segment train are alike in all that
// is checked here, so those after the first skip it. Returns whether it was whole, and for this
// NIC.
[[gnu::always_inline]] inline bool NicShard::dispatch_packet(rte_mbuf* packet) {
  const wire::Packet& p = received.packet();
  const bool has_icrc = (packet->ol_flags & icrc_flag()) != 0;
  if (train_qp == nullptr ||
      !received.follow(first_segment_of(packet), packet->pkt_len, has_icrc)) {
    train_qp = nullptr;
    if (!begin_train(packet, has_icrc)) return false;
  }
  if (train_qp == nullptr && unlikely(!is_own(p.dst_ip))) {
    const std::span<QpContext* const> members = groups.members(p.dst_ip);
    if (members.empty()) {
      counters.add(Counter::rx_not_ours);
    } else if (!has_icrc || passes_icrc(counters, packet, p)) {
      dispatch_to_group(members, p, packet);
    }
    return false;
  }
  if (has_icrc && !passes_icrc(counters, packet, p)) return false;
  if (likely(train_qp != nullptr)) {
    transports.with(*train_qp, [&](auto& transport) { transport.follow(*train_qp, p, packet); });
  } else {
    dispatch_first(p, packet);
  }
  return true;
}

// Takes all packets of a bundle at once, or all but the last, where none of them needs more than
// that. Returns false if packets are left, which then are all that is in the buffer.
bool NicShard::receive_bundle(rte_mbuf* bundle) {
  train_qp = nullptr;
  const auto dialect = [this](const wire::Packet& p) { return dialect_for(qps, p); };
  if (received.parse(first_segment_of(bundle), bundle->pkt_len, false, dialect) !=
      wire::ParseError::kNone)
    return false;
  return transports.first_of(
      [&](auto& transport) { return transport.receive_bundle(*this, bundle); });
}

// Nothing else comes of what is lost.
void NicShard::receive_lost(rte_mbuf* packet) {
  const wire::Packet p = valid_headers(packet);
  QpContext* const qp = is_own(p.dst_ip) ? qps.find(raw(p.dest_qpn)) : nullptr;
  if (qp != nullptr)
    transports.with(*qp, [&](auto& transport) { transport.note_lost(*qp, p, packet); });
  release_payload(packet, references);
  spent.add(packet);
}

// A packet whose payload a switch has cut off says only its queue pair and PSN; it has no ICRC that
// could be right.
void NicShard::receive_trimmed(rte_mbuf* packet) {
  if (tap != nullptr) tap->begin_received(packet, counters);
  wire::Packet p;
  const bool is_ours = trimmed_headers(packet, p) && is_own(p.dst_ip);
  QpContext* const qp = is_ours ? qps.find(raw(p.dest_qpn)) : nullptr;
  if (qp != nullptr && qp->state >= QpState::kRtr && qp->state != QpState::kErr)
    transports.with(*qp, [&](auto& transport) {
      if (transport.is_from_peer(*qp, p, /*answer=*/false))
        transport.receive_trimmed(*qp, p, packet);
    });
  if (tap != nullptr)
    tap->end_received(counters, qp != nullptr ? outcome_of(*this, p) : PacketTap::Outcome{});
  release_payload(packet, references);  // of memory here it still has a reference
  spent.add(packet);
}

// A packet that is watched has been dispatched, which began at `ticks`.
void NicShard::end_watched(bool is_for_somebody, uint64_t ticks) {
  if (tap != nullptr) tap->end_received(counters, outcome_of(*this, received.packet()));
  if (messages == nullptr || !is_for_somebody) return;
  const wire::Packet& p = received.packet();
  if (const QpContext* const qp = qps.find(raw(p.dest_qpn))) messages->note_received(*qp, p, ticks);
}

template <bool kWatched>
void NicShard::receive_packet(rte_mbuf* packet) {
  if (unlikely(is_set_aside(packet)))
    return is_lost(packet) ? receive_lost(packet) : receive_trimmed(packet);
  const bool bundle = is_bundle(packet);
  if (kWatched || !bundle || !receive_bundle(packet)) {
    do {
      const uint64_t ticks = kWatched ? MessageTap::ticks() : 0;
      if constexpr (kWatched)
        if (tap != nullptr) tap->begin_received(packet, counters);
      const bool is_for_somebody = dispatch_packet(packet);
      if constexpr (kWatched) end_watched(is_for_somebody, ticks);
    } while (bundle && step_bundle(packet, references));
  }
  release_payload(packet, references);
  spent.add(packet);
}

}  // namespace hostnic
