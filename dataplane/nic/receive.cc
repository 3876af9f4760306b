// SPDX-License-Identifier: BSD-3-Clause
// Packets arrive: is one ours, is it whole, which queue pair, which transport. The rest is the
// transports'.
#include <rte_branch_prediction.h>

#include "dataplane/nic/nic_core.h"
#include "protocol/prefetch.h"

namespace hostnic {
namespace {

constexpr uint16_t kQueue = 0;  // a queue of the port: the only shard receives all

// The BTH of a packet from a port that delivers whole ones.
wire::BthView bth_of(rte_mbuf* packet) {
  const auto* bth = rte_pktmbuf_mtod(packet, const std::byte*) + wire::kFlowBytes;
  return wire::BthView(std::span<const std::byte, wire::kBthBytes>(bth, wire::kBthBytes));
}
bool is_ack(wire::BthView bth) { return wire::Opcode{bth.opcode()} == wire::Opcode::kAck; }

// Whether a packet names the queue pair that it comes from as the connection's, if it names one: a
// plain WRITE and UC's packets don't.
[[gnu::always_inline]] inline bool names_peer(const QpContext& qp, const wire::Packet& p) {
  return raw(p.src_qpn) == qp.dest_qpn || p.opcode == wire::Opcode::kWriteOnly ||
         qp.transport != Transport::kHostnic || broken(Fault::any_queue_pair_heard);
}

// Whether a packet belongs to the connection that its queue pair has now. The standard has no tag:
// the source port may be any.
[[gnu::always_inline]] inline bool from_peer_of(const QpContext& qp, const wire::Packet& p,
                                                bool answer) {
  const uint16_t tag = answer ? qp.incoming_response_tag : qp.incoming_request_tag;
  if (!qp.tagged) return raw(p.src_ip) == qp.dest_ip;
  return raw(p.src_ip) == qp.dest_ip && ((wire::has_flow_tag(p, tag) && names_peer(qp, p)) ||
                                         broken(Fault::dead_connection_heard));
}

// Whether a packet belongs to the connection of a queue pair of the native transport in a state in
// which nothing else matters.
[[gnu::always_inline]] inline bool accepts_from(const QpContext& qp, const wire::Packet& p,
                                                bool answer) {
  return qp.transport == Transport::kHostnic && qp.state >= QpState::kRtr &&
         qp.state != QpState::kErr && from_peer_of(qp, p, answer);
}

[[gnu::always_inline]] inline void prefetch_for(const QpDirectory& qps, wire::BthView bth) {
  const bool answer = wire::Opcode{bth.opcode()} == wire::Opcode::kReadResponse;
  qps.prefetch(raw(bth.dest_qpn()), is_ack(bth) ? QpPart::kSends
                                    : answer    ? QpPart::kAnswers
                                                : QpPart::kReceives);
}

bool passes_icrc(Counters& counters, rte_mbuf* packet, const wire::Packet& headers) {
  if (icrc_valid(packet, headers) || broken(Fault::icrc_not_checked)) return true;
  counters.add(Counter::rx_icrc_error);
  return false;
}

}  // namespace

uint32_t NicShard::receive_turn() {
  if (unlikely(tap != nullptr)) return receive_turn_captured();
  uint32_t done = 0;  // buffers; the budget is about packets, of which each buffer may have many
  const uint64_t packets_before = shared.counters.get(Counter::rx_packets);
  std::array<rte_mbuf*, kBurst> burst;
  const bool looks_ahead = port.capabilities().delivers_whole_bth;
  while (done < kRxBudget &&
         shared.counters.get(Counter::rx_packets) - packets_before < kRxBudget) {
    const uint16_t count = port.receive(kQueue, burst.data(), kBurst);
    for (uint16_t i = 0; i < count; ++i) {
      if (i + 1 < count) rte_prefetch0(rte_pktmbuf_mtod(burst[i + 1], void*));
      if (looks_ahead && i + kQpsAhead < count) {
        const wire::BthView ahead = bth_of(burst[i + kQpsAhead]);
        if (ahead.dest_qpn() != received.packet().dest_qpn) prefetch_for(qps, ahead);
        const wire::BthView next = bth_of(burst[i + 1]);
        if (is_ack(next) && next.dest_qpn() != received.packet().dest_qpn)
          qps.prefetch_status(raw(next.dest_qpn()));
      }
      receive_packet(burst[i]);
    }
    done += count;
    if (count < kBurst) break;
  }
  train_qp = nullptr;
  spent.flush();
  references.flush();
  return done;
}

// The dialect of the queue pair that a packet is for. What is for none is read in the dialect that
// its opcode is of: connection management, multicast, connections that are no more.
[[gnu::always_inline]] inline wire::Dialect NicShard::dialect_for(const wire::Packet& p) {
  const QpContext* const qp = qps.find(raw(p.dest_qpn));
  return qp != nullptr ? dialect_of(qp->transport) : wire::dialect_of(p.opcode);
}

// Parses the packet into `received`. Returns false if this NIC does not know such packets; then it
// has been counted.
[[gnu::always_inline]] inline bool NicShard::begin_train(rte_mbuf* packet, bool has_icrc) {
  const auto dialect = [this](const wire::Packet& p) { return dialect_for(p); };
  switch (received.begin(first_segment_of(packet), packet->pkt_len, has_icrc, dialect)) {
    case wire::ParseError::kNone:
      // On a network of IPv4 no host has an address of those that stand for IPv6 addresses.
      if (likely(!egress.needs_arp() || !is_stand_in(received.packet().src_ip))) return true;
      shared.counters.add(Counter::rx_not_ours);
      return false;
    case wire::ParseError::kNotIpv4:
    case wire::ParseError::kNotRoce:
      egress.receive_arp(first_segment_of(packet));
      shared.counters.add(Counter::rx_not_ours);
      return false;
    case wire::ParseError::kUnknownOpcode:
      shared.counters.add(wire::find_opcode(received.packet().opcode) != nullptr
                              ? Counter::rx_wrong_service
                              : Counter::rx_parse_error);
      return false;
    default:
      shared.counters.add(Counter::rx_parse_error);
      return false;
  }
}

// Looks up the QP of a packet that does not continue the previous one's segment train.
[[gnu::always_inline]] inline void NicShard::dispatch_first(const wire::Packet& p,
                                                            rte_mbuf* packet) {
  QpContext* qp = qps.find(raw(p.dest_qpn));
  const bool answer = p.opcode == wire::Opcode::kAck || p.opcode == wire::Opcode::kRcAck ||
                      p.opcode == wire::Opcode::kCnp || wire::is_response(p.opcode);
  // A QP is silent in RESET and INIT (rule 29); in ERR only a fatal NAK is repeated (rule 28).
  const bool listens = qp != nullptr && qp->state >= QpState::kRtr &&
                       (qp->state != QpState::kErr || (qp->fatal && !answer));
  if (!listens) {
    if (!management.receive(p, packet) && !hostnic.time_wait.answer(p))
      shared.counters.add(Counter::rx_unknown_qp);
  } else if (wire::service_of(p.opcode) != service_of(qp->type)) {
    shared.counters.add(Counter::rx_wrong_service);
  } else if (qp->type != QpType::kUd && !from_peer_of(*qp, p, answer)) {
    if (!hostnic.time_wait.answer(p)) shared.counters.add(Counter::rx_wrong_tag);
  } else if (qp->transport != Transport::kHostnic) {
    with_transport(*qp, [&](auto& transport) { transport.receive(*qp, p, packet); });
  } else if (p.opcode == wire::Opcode::kAck) {
    hostnic.requester.receive_ack(*qp, p.sack, p.aeth, p.sack_words);
  } else {
    ClientList::state_of(*qp->client).data_arrived = true;
    train_qp = qp;
    hostnic.receive(*qp, p, packet);
  }
}

// Checks that a packet is for this NIC, and hands it to the queue pair whose number it has. A
// packet for a group goes to the group's members. Packets of a segment train are alike in all that
// is checked here, so those after the first skip it.
[[gnu::always_inline]] inline void NicShard::dispatch_packet(rte_mbuf* packet) {
  const wire::Packet& p = received.packet();
  const bool has_icrc = (packet->ol_flags & icrc_flag()) != 0;
  if (!received.follow(first_segment_of(packet), packet->pkt_len, has_icrc)) {
    train_qp = nullptr;
    if (!begin_train(packet, has_icrc)) return;
  }
  if (train_qp == nullptr && unlikely(!is_own(p.dst_ip))) {
    const std::span<QpContext* const> members = unreliable.groups().members(p.dst_ip);
    if (members.empty()) {
      shared.counters.add(Counter::rx_not_ours);
    } else if (!has_icrc || passes_icrc(shared.counters, packet, p)) {
      unreliable.receive_from_group(members, p, packet);
    }
    return;
  }
  if (has_icrc && !passes_icrc(shared.counters, packet, p)) return;
  if (likely(train_qp != nullptr)) {
    hostnic.receive(*train_qp, p, packet);
  } else {
    dispatch_first(p, packet);
  }
}

// Takes all packets of a bundle at once, or all but the last, where none of them needs more than
// that. Returns false if packets are left, which then are all that is in the buffer.
bool NicShard::receive_bundle(rte_mbuf* bundle) {
  train_qp = nullptr;
  const auto dialect = [this](const wire::Packet& p) { return dialect_for(p); };
  if (received.parse(first_segment_of(bundle), bundle->pkt_len, false, dialect) !=
      wire::ParseError::kNone)
    return false;
  const wire::Packet& first = received.packet();
  if (has_bundled_packets(bundle)) {
    if (first.opcode == wire::Opcode::kAck) return receive_acks(bundle);
    return first.opcode == wire::Opcode::kReadRequest
               ? receive_requests(bundle, bundled_in<BundledReads>(bundle))
               : receive_requests(bundle, bundled_requests(bundle));
  }
  QpContext* qp = is_own(first.dst_ip) ? qps.find(raw(first.dest_qpn)) : nullptr;
  const bool answer = first.opcode == wire::Opcode::kReadResponse;
  if (qp == nullptr || !accepts_from(*qp, first, answer)) return false;
  ClientList::state_of(*qp->client).data_arrived = true;
  const ExternalPayload& payload = *external_payload(bundle);
  wire::Packet whole = whole_of(first, payload);
  const std::span<const std::byte> bytes = bytes_of(first, payload);
  const uint32_t packets = 1u + payload.packets_behind;
  uint32_t taken = 0;
  if (answer) {
    taken = hostnic.requester.receive_response_bundle(*qp, first, whole, payload, bytes);
  } else if (first.payload_bytes == qp->mtu_bytes) {
    taken = hostnic.responder.take_in_order(*qp, whole, bytes, packets)
                ? packets
                : hostnic.responder.take_run(*qp, whole, bytes, packets);
  }
  if (taken == 0) return false;
  shared.counters.add(Counter::rx_bundles);
  if (taken == packets) return true;
  cut_bundle(*bundle, taken, packets - taken);
  return false;
}

// Takes one message of a bundle of messages, if it is the next one expected.
[[gnu::always_inline]] inline bool NicShard::receive_bundled_request(
    wire::Packet& p, std::span<const std::byte> payload) {
  QpContext* const qp = qps.find(raw(p.dest_qpn));
  if (qp == nullptr || !accepts_from(*qp, p, /*answer=*/false)) return false;
  ClientList::state_of(*qp->client).data_arrived = true;
  return hostnic.responder.take_in_order(*qp, p, payload, 1);
}

// Takes all requests of a bundle, the first of which is in `received`. A request that is not simply
// next is dispatched as a packet. Returns false if the bundle is not for this NIC, and nothing has
// happened.
template <class Bundled>
bool NicShard::receive_requests(rte_mbuf* bundle, Bundled& bundled) {
  if (!is_own(received.packet().dst_ip)) return false;
  wire::Packet p = received.packet();
  const auto ahead = [&](uint32_t i) {
    if (i < bundled.count) qps.prefetch(raw(bundled.all[i].dest_qpn), QpPart::kReceives);
  };
  for (uint32_t i = 0; i < kQpsAhead; ++i) ahead(i);
  if (!receive_bundled_request(p, payload_of(bundle, p))) {
    dispatch_first(p, bundle);
    train_qp = nullptr;
  }
  while (bundled.waiting() != 0) {
    ahead(bundled.next + kQpsAhead);
    const auto& request = bundled.all[bundled.next];
    request.apply_to(p);
    if (!receive_bundled_request(p, request.contents())) {
      step_bundled(bundle, references);
      dispatch_first(p, bundle);
      train_qp = nullptr;
      continue;
    }
    bundled.pop();
    if constexpr (requires { request.payload(); }) references.release(request.payload());
  }
  shared.counters.add(Counter::rx_bundles);
  return true;
}

// Takes all ACKs of a bundle, the first of which is in `received`. Returns false if the bundle is
// not for this NIC, and nothing has happened.
bool NicShard::receive_acks(rte_mbuf* bundle) {
  if (!is_own(received.packet().dst_ip)) return false;
  wire::Packet ack = received.packet();
  const BundledAcks& bundled = bundled_acks(bundle);
  const auto ahead = [&](uint32_t i) {
    if (i + kQpsAhead < bundled.count)
      qps.prefetch(raw(bundled.all[i + kQpsAhead].dest_qpn), QpPart::kSends);
    if (i + 1 < bundled.count) qps.prefetch_status(raw(bundled.all[i + 1].dest_qpn));
  };
  for (uint32_t i = 0; i < kQpsAhead && i < bundled.count; ++i)
    qps.prefetch(raw(bundled.all[i].dest_qpn), QpPart::kSends);
  dispatch_first(ack, bundle);
  for (uint32_t i = bundled.next; i < bundled.count; ++i) {
    ahead(i);
    const BundledAck& other = bundled.all[i];
    QpContext* const qp = qps.find(raw(other.dest_qpn));
    ack.src_port = other.src_port;
    ack.src_qpn = other.src_qpn;
    if (likely(qp != nullptr && accepts_from(*qp, ack, /*answer=*/true))) {
      hostnic.requester.receive_ack(*qp, other.sack, ack.aeth, nullptr);
    } else {
      other.apply_to(ack);
      dispatch_first(ack, bundle);
    }
  }
  shared.counters.add(Counter::rx_bundles);
  return true;
}

// Has what is lost read in its turn, if it would have been taken for an answer: nothing else comes
// of it (rule 18).
void NicShard::receive_lost(rte_mbuf* packet) {
  const wire::Packet p = valid_headers(packet);
  QpContext* const qp = is_own(p.dst_ip) ? qps.find(raw(p.dest_qpn)) : nullptr;
  if (qp != nullptr && accepts_from(*qp, p, /*answer=*/true))
    hostnic.requester.note_response(*qp, p, *external_payload(packet));
  release_payload(packet, references);
  spent.add(packet);
}

void NicShard::receive_packet(rte_mbuf* packet) {
  if (unlikely(is_lost(packet))) return receive_lost(packet);
  const bool bundle = is_bundle(packet);
  if (!bundle || !receive_bundle(packet)) {
    do {
      dispatch_packet(packet);
    } while (bundle && step_bundle(packet, references));
  }
  if (broken(Fault::resent_packet_leaks) && received.packet().attempt != 0) return;
  release_payload(packet, references);
  spent.add(packet);
}

// ---- while packets are captured (egress/packet_tap.h)

// As receive_turn(); packets are dispatched one by one, those of bundles, too.
uint32_t NicShard::receive_turn_captured() {
  uint32_t done = 0;
  const uint64_t packets_before = shared.counters.get(Counter::rx_packets);
  std::array<rte_mbuf*, kBurst> burst;
  while (done < kRxBudget &&
         shared.counters.get(Counter::rx_packets) - packets_before < kRxBudget) {
    const uint16_t count = port.receive(kQueue, burst.data(), kBurst);
    for (uint16_t i = 0; i < count; ++i) receive_captured(burst[i]);
    done += count;
    if (count < kBurst) break;
  }
  train_qp = nullptr;
  spent.flush();
  references.flush();
  return done;
}

void NicShard::receive_captured(rte_mbuf* packet) {
  if (is_lost(packet)) return receive_lost(packet);
  const bool bundle = is_bundle(packet);
  do {
    tap->begin_received(packet, shared.counters);
    dispatch_packet(packet);
    tap->end_received(shared.counters, outcome());
  } while (bundle && step_bundle(packet, references));
  release_payload(packet, references);
  spent.add(packet);
}

// What became of the queue pair of the packet in `received`.
PacketTap::Outcome NicShard::outcome() const {
  const wire::Packet& p = received.packet();
  const QpContext* const qp = qps.find(raw(p.dest_qpn));
  if (qp == nullptr) return {};
  PacketTap::Outcome outcome{.qp_state = static_cast<uint8_t>(qp->state)};
  if (qp->type != QpType::kRc || p.opcode == wire::Opcode::kAck) return outcome;
  const bool answer =
      p.opcode == wire::Opcode::kReadResponse || p.opcode == wire::Opcode::kAtomicResponse;
  if (!answer && wire::is_response(p.opcode)) return outcome;
  outcome.has_expected = true;
  outcome.expected_psn = (answer ? qp->responses : qp->requests).window.expected().value();
  return outcome;
}

}  // namespace hostnic
