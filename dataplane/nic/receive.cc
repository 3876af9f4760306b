// A packet arrives: is it ours, is it whole, which queue pair, which kind (rules 5, 29).
#include "dataplane/nic/receive.h"

#include <rte_branch_prediction.h>

#include "dataplane/nic/context_prefetch.h"
#include "dataplane/nic/impl.h"
#include "protocol/wire/arp.h"

namespace hostnic {

namespace {

// Of a packet of the in-process wire, which holds all its headers.
wire::BthView bth_of(rte_mbuf* packet) {
  const auto* bth = rte_pktmbuf_mtod(packet, const std::byte*) + wire::kFlowBytes;
  return wire::BthView(std::span<const std::byte, wire::kBthBytes>(bth, wire::kBthBytes));
}
bool is_ack(wire::BthView bth) { return wire::Opcode{bth.opcode()} == wire::Opcode::kAck; }

}  // namespace

[[gnu::always_inline]] inline void Nic::Impl::prefetch_for(wire::BthView bth) const {
  const bool answer = wire::Opcode{bth.opcode()} == wire::Opcode::kReadResponse;
  prefetch_qp(raw(bth.dest_qpn()), is_ack(bth) ? QpPart::kSends
                                   : answer    ? QpPart::kAnswers
                                               : QpPart::kReceives);
}

uint32_t Nic::Impl::receive_turn() {
  uint32_t done = 0;
  uint64_t bytes = 0;
  std::array<rte_mbuf*, kBurst> burst;
  const bool from_ethernet = !port.is_wire();
  const auto take = [&](rte_mbuf* packet) {
    done += packets_in(packet);
    bytes += wire_bytes_of(packet);
    if (!rx_stage) {
      receive_packet(packet);
    } else {
      receive_apart(packet);
    }
  };
  while (done < kRxBudget) {
    const uint16_t count = port.receive(burst.data(), kBurst);
    for (uint16_t i = 0; i < count; ++i) {
      if (i + 1 < count) rte_prefetch0(rte_pktmbuf_mtod(burst[i + 1], void*));
      if (!from_ethernet && i + kQpsAhead < count) {
        const wire::BthView ahead = bth_of(burst[i + kQpsAhead]);
        if (ahead.dest_qpn() != received.packet().dest_qpn) prefetch_for(ahead);
        const wire::BthView next = bth_of(burst[i + 1]);
        if (is_ack(next) && next.dest_qpn() != received.packet().dest_qpn)
          prefetch_status(raw(next.dest_qpn()));
      }
      if (from_ethernet) burst[i]->ol_flags |= icrc_flag();
      take(burst[i]);
    }
    if (count < kBurst) break;
  }
  // What we send to ourselves waits its turn here (rule 33: never by recursion).
  for (uint32_t n = std::min(loopback_count, kRxBudget); n != 0; --n) {
    rte_mbuf* packet = loopback[loopback_head];
    loopback_head = (loopback_head + 1) % kLoopbackCapacity;
    --loopback_count;
    take(packet);
  }
  counters.add(Counter::rx_packets, done);
  counters.add(Counter::rx_bytes, bytes);
  if (rx_stage) run_rx_stage();
  end_train();
  spent.flush();
  payload_references.flush();
  return done;
}

void Nic::Impl::receive_impaired(rte_mbuf* packet) {
  if (rx_stage->pass(packet, now, [&] { return impairment_info(packet); })) receive_packet(packet);
}

bool Nic::Impl::passes_icrc(rte_mbuf* packet, const wire::Packet& headers) {
  if (icrc_valid(packet, headers) || broken(Fault::icrc_not_checked)) return true;
  counters.add(Counter::rx_icrc_error);
  return false;
}

// Parses it into `received`. False: no packet that this NIC speaks of, and it has been counted.
[[gnu::always_inline]] inline bool Nic::Impl::begin_train(rte_mbuf* packet, bool has_icrc) {
  switch (received.begin(first_segment_of(packet), packet->pkt_len, has_icrc)) {
    case wire::ParseError::kNone:
      return true;
    case wire::ParseError::kNotIpv4:
    case wire::ParseError::kNotRoce:
      receive_arp(first_segment_of(packet));
      counters.add(Counter::rx_not_ours);
      return false;
    default:
      counters.add(Counter::rx_parse_error);
      return false;
  }
}

// Whether the packet is of the queue pair's service.
inline bool Nic::Impl::opcode_fits_service(const QpContext& qp, const wire::Packet& p) const {
  static constexpr QpType kTypes[] = {QpType::kRc, QpType::kUc, QpType::kUd};
  static_assert(static_cast<size_t>(wire::Service::kReliable) == 0 &&
                static_cast<size_t>(wire::Service::kUnreliable) == 1 &&
                static_cast<size_t>(wire::Service::kDatagram) == 2);
  return qp.type == kTypes[static_cast<size_t>(wire::service_of(p.opcode))];
}

// A packet with a PSN, of RC.
inline void Nic::Impl::receive_for(QpContext& qp, const wire::Packet& p, rte_mbuf* packet) {
  if (p.opcode == wire::Opcode::kReadResponse || p.opcode == wire::Opcode::kAtomicResponse) {
    receive_response(qp, p, packet);
  } else {
    receive_request(qp, p, packet);
  }
}

// The first packet of a train, or one that comes in none.
[[gnu::always_inline]] inline void Nic::Impl::dispatch_first(const wire::Packet& p,
                                                             rte_mbuf* packet) {
  QpContext* qp = find_qp(raw(p.dest_qpn));
  const bool answer = p.opcode == wire::Opcode::kAck || p.opcode == wire::Opcode::kReadResponse ||
                      p.opcode == wire::Opcode::kAtomicResponse;
  // Silent in RESET and INIT (rule 29); in ERR only a fatal NAK is repeated (rule 28).
  const bool listens = qp != nullptr && qp->state >= QpState::kRtr &&
                       (qp->state != QpState::kErr || (qp->fatal && !answer));
  if (!listens) {
    if (!receive_management(p, packet) && !answer_in_time_wait(p))
      counters.add(Counter::rx_unknown_qp);
  } else if (!opcode_fits_service(*qp, p)) {
    counters.add(Counter::rx_wrong_service);
  } else if (qp->type == QpType::kUd) {
    receive_datagram(*qp, p, packet);
  } else if (!from_peer_of(*qp, p.src_ip, p.src_port, answer)) {
    if (!answer_in_time_wait(p)) counters.add(Counter::rx_wrong_tag);
  } else if (qp->type == QpType::kUc) {
    receive_unreliable(*qp, p, packet);
  } else if (p.opcode == wire::Opcode::kAck) {
    receive_ack(*qp, p.sack, p.aeth, p.sack_words);
  } else {
    state_of(*qp->client).data_arrived = true;
    train_qp = qp;
    receive_for(*qp, p, packet);
  }
}

// Is it for us, and for the queue pair whose number it has. What is for a group's members they have
// got then. Packets of a train are alike in all that is looked at here.
[[gnu::always_inline]] inline void Nic::Impl::dispatch_packet(rte_mbuf* packet) {
  const wire::Packet& p = received.packet();
  const bool has_icrc = (packet->ol_flags & icrc_flag()) != 0;
  if (!received.follow(first_segment_of(packet), packet->pkt_len, has_icrc)) {
    end_train();
    if (!begin_train(packet, has_icrc)) return;
  }
  if (train_qp == nullptr && p.dst_ip != settings.ip) {
    const std::span<QpContext* const> members = groups.members(p.dst_ip);
    if (members.empty()) {
      counters.add(Counter::rx_not_ours);
    } else if (!has_icrc || passes_icrc(packet, p)) {
      receive_from_group(members, p, packet);
    }
    return;
  }
  if (has_icrc && !passes_icrc(packet, p)) return;
  if (likely(train_qp != nullptr)) {
    receive_for(*train_qp, p, packet);
  } else {
    dispatch_first(p, packet);
  }
}

void Nic::Impl::dispatch_alone(const wire::Packet& p, rte_mbuf* packet) {
  dispatch_first(p, packet);
  end_train();
}

// All ACKs of a bundle, the first of which is in `received`. False: it is not for us, and nothing
// has happened.
bool Nic::Impl::receive_acks(rte_mbuf* bundle) {
  if (received.packet().dst_ip != settings.ip) return false;
  wire::Packet ack = received.packet();
  const BundledAcks& bundled = bundled_acks(bundle);
  const auto ahead = [&](uint32_t i) {
    if (i + kQpsAhead < bundled.count)
      prefetch_qp(raw(bundled.all[i + kQpsAhead].dest_qpn), QpPart::kSends);
    if (i + 1 < bundled.count) prefetch_status(raw(bundled.all[i + 1].dest_qpn));
  };
  for (uint32_t i = 0; i < kQpsAhead && i < bundled.count; ++i)
    prefetch_qp(raw(bundled.all[i].dest_qpn), QpPart::kSends);
  dispatch_first(ack, bundle);
  for (uint32_t i = bundled.next; i < bundled.count; ++i) {
    ahead(i);
    const BundledAck& other = bundled.all[i];
    QpContext* const qp = find_qp(raw(other.dest_qpn));
    if (likely(qp != nullptr && accepts_from(*qp, ack.src_ip, other.src_port, /*answer=*/true))) {
      receive_ack(*qp, other.sack, ack.aeth, nullptr);
    } else {
      other.apply_to(ack);
      dispatch_first(ack, bundle);
    }
  }
  counters.add(Counter::rx_bundles);
  return true;
}

void Nic::Impl::receive_packet(rte_mbuf* packet) {
  const bool bundle = is_bundle(packet);
  if (!bundle || !receive_bundle(packet)) {
    do {
      dispatch_packet(packet);
    } while (bundle && step_bundle(packet, payload_references));
  }
  if (broken(Fault::resent_packet_leaks) && received.packet().attempt != 0) return;
  release_payload(packet, payload_references);
  spent.add(packet);
}

void Nic::Impl::receive_arp(std::span<const std::byte> frame) {
  if (port.is_wire()) return;
  const auto arp = wire::parse_arp(frame);
  if (!arp) return;
  neighbours.learn(arp->sender_ip, arp->sender_mac, now);
  if (arp->operation == wire::ArpOperation::kRequest && arp->target_ip == settings.ip) {
    send_arp(wire::make_arp_reply(settings.mac, *arp));
  }
}

}  // namespace hostnic
