// UC and UD in both directions (docs/transport.md rule 36): standard opcodes, no acknowledgement,
// no retransmission. A sender is done when the packet has left; what a receiver can't use it drops
// and counts.
#include <algorithm>
#include <cstring>

#include "dataplane/nic/flow_tag.h"
#include "dataplane/nic/impl.h"
#include "dataplane/nic/placement.h"
#include "protocol/message_limits.h"
#include "protocol/wire/multicast.h"

namespace hostnic {
namespace {

using wire::Opcode;
using State = UnreliableMessage::State;

bool is_uc_write(Opcode opcode) {
  return opcode >= Opcode::kUcWriteFirst && opcode <= Opcode::kUcWriteOnlyImm;
}

ReceiveEnd end_of_message(const wire::Packet& p, uint64_t message_bytes) {
  ReceiveEnd end;
  end.byte_len = static_cast<uint32_t>(message_bytes);
  if (p.solicited) end.flags |= kRecvSolicited;
  if (wire::opcode_info(p.opcode).has_imm) {
    end.flags |= kRecvHasImm;
    end.imm_data = p.imm_data;
  }
  return end;
}

Opcode uc_opcode(SendOp op, bool cont, bool more) {
  const bool write = op == SendOp::kWrite || op == SendOp::kWriteImm;
  const bool imm = op == SendOp::kWriteImm || op == SendOp::kSendImm;
  if (more) {
    if (write) return cont ? Opcode::kUcWriteMiddle : Opcode::kUcWriteFirst;
    return cont ? Opcode::kUcSendMiddle : Opcode::kUcSendFirst;
  }
  if (write) {
    if (imm) return cont ? Opcode::kUcWriteLastImm : Opcode::kUcWriteOnlyImm;
    return cont ? Opcode::kUcWriteLast : Opcode::kUcWriteOnly;
  }
  if (imm) return cont ? Opcode::kUcSendLastImm : Opcode::kUcSendOnlyImm;
  return cont ? Opcode::kUcSendLast : Opcode::kUcSendOnly;
}

}  // namespace

// ---- receiving

// The receive's own memory is no good: an error of this side, which its program learns.
void Nic::Impl::fail_receive(QpContext& qp, uint32_t sn, RecvStatus status) {
  complete_receive(qp, sn, {}, status);
  qp.fatal = true;
  publish_event(qp, kEventRecvError);
}

// A packet of the message is missing: the rest is of no use. The receive stays.
void Nic::Impl::lose_message(QpContext& qp) {
  if (qp.message.state != State::kTaking) return;
  counters.add(Counter::uc_incomplete);
  qp.message.state = State::kDropping;
}

// UC takes packets in order. False: this one belongs to nothing that is being taken.
bool Nic::Impl::follow_message(QpContext& qp, const wire::Packet& p) {
  UnreliableMessage& message = qp.message;
  const int32_t ahead = distance(message.expected, p.psn);
  // A window's worth of older numbers: repeated, or overtaken. Anything else that is not the
  // expected one is a gap, however wide; the standard's receivers follow their sender, too.
  if (ahead < 0 && ahead >= -static_cast<int32_t>(kWindowLimit)) {
    counters.add(Counter::duplicate_request);
    return false;
  }
  if (ahead != 0) {
    counters.add(Counter::packet_seq_err);
    lose_message(qp);
  }
  message.expected = p.psn + 1;
  if (!p.cont) {
    lose_message(qp);  // its end never came
    message = {.expected = message.expected,
               .state = State::kTaking,
               .is_write = is_uc_write(p.opcode),
               .offset_bytes = 0,
               .va = p.reth.va,
               .key = p.reth.key,
               .length_bytes = p.reth.length_bytes};
    return true;
  }
  if (message.state == State::kNone) {
    counters.add(Counter::uc_incomplete);  // its First did not come
    message.state = State::kDropping;
  }
  if (message.is_write != is_uc_write(p.opcode)) lose_message(qp);
  if (message.state == State::kTaking) return true;
  if (!p.more) message.state = State::kNone;
  return false;
}

void Nic::Impl::receive_unreliable(QpContext& qp, const wire::Packet& p, rte_mbuf* packet) {
  if (qp.fatal) return;
  if (qp.state == QpState::kRtr && !qp.comm_established) {
    qp.comm_established = true;
    publish_event(qp, kEventCommEstablished);
  }
  if (!follow_message(qp, p)) return;
  if (!place_unreliable(qp, p, payload_of(packet, p))) {
    qp.message.state = p.more ? State::kDropping : State::kNone;
    return;
  }
  qp.message.offset_bytes += p.payload_bytes;
  if (!p.more) qp.message.state = State::kNone;
}

// False: the message can't be taken.
bool Nic::Impl::place_unreliable(QpContext& qp, const wire::Packet& p,
                                 std::span<const std::byte> payload) {
  const UnreliableMessage& message = qp.message;
  const uint64_t end = message.offset_bytes + payload.size();
  const bool fits = !message.is_write ? end <= kMaxMessageBytes
                    : p.more          ? end < message.length_bytes
                                      : end == message.length_bytes;
  if (!fits || !fits_path_mtu(qp, p)) {
    counters.add(Counter::rx_too_long);
    return false;
  }
  const bool takes_receive = !message.is_write || wire::opcode_info(p.opcode).has_imm;
  if (takes_receive &&
      check_receive(qp, qp.recv_next_sn, /*ahead=*/false).kind != RequestResult::kDone) {
    counters.add(Counter::rx_no_receive);
    return false;
  }
  if (!(message.is_write ? place_uc_write(qp, p, payload) : place_uc_send(qp, p, payload)))
    return false;
  if (takes_receive && !p.more) {
    ReceiveEnd receive_end = end_of_message(p, end);
    if (message.is_write) receive_end.flags |= kRecvIsWriteImm;
    complete_receive(qp, qp.recv_next_sn, receive_end, RecvStatus::kSuccess);
  }
  return true;
}

bool Nic::Impl::place_uc_send(QpContext& qp, const wire::Packet& p,
                              std::span<const std::byte> payload) {
  const uint32_t sn = qp.recv_next_sn;
  PostedReceive receive;
  if (!load_receive(qp, sn, receive)) {
    fail_receive(qp, sn, RecvStatus::kProtectionError);
    return false;
  }
  if (qp.message.offset_bytes + payload.size() > receive.capacity_bytes) {
    counters.add(Counter::rx_too_long);
    return false;
  }
  LocalError error = LocalError::kNone;
  const PlaceRequest request{qp.requests, p.psn, /*ahead=*/false, /*tail=*/false};
  const PlaceResult result =
      scatter(qp, qp.recv_pd, request, receive.list(), qp.message.offset_bytes, payload, error);
  if (error == LocalError::kNone && result == PlaceResult::kDone) return true;
  if (result == PlaceResult::kNotNow) return false;  // as if the wire had lost it
  fail_receive(qp, sn, RecvStatus::kProtectionError);
  return false;
}

bool Nic::Impl::place_uc_write(QpContext& qp, const wire::Packet& p,
                               std::span<const std::byte> payload) {
  const UnreliableMessage& message = qp.message;
  if (payload.empty()) return true;
  // All of it is checked with the first packet, and each part again: the key may be revoked
  // meanwhile.
  const uint64_t va = message.va + message.offset_bytes;
  const uint64_t checked_bytes = p.cont ? payload.size() : message.length_bytes;
  const RemoteRange range = remote_range(qp, message.key, va, checked_bytes, kAccessRemoteWrite);
  const PlaceRequest request{qp.requests, p.psn, /*ahead=*/false, /*tail=*/!p.more};
  const PlaceResult result = range.region == nullptr
                                 ? PlaceResult::kMemoryGone
                                 : place(request, *range.region, range.iova, payload);
  if (result == PlaceResult::kDone) return true;
  if (result == PlaceResult::kNotNow) return false;
  counters.add(Counter::uc_access_refused);
  return false;
}

void Nic::Impl::receive_datagram(QpContext& qp, const wire::Packet& p, rte_mbuf* packet) {
  if (qp.fatal) return;
  if (p.qkey != qp.qkey) {
    counters.add(Counter::rx_wrong_qkey);
    return;
  }
  const uint32_t sn = qp.recv_next_sn;
  if (check_receive(qp, sn, /*ahead=*/false).kind != RequestResult::kDone) {
    counters.add(Counter::rx_no_receive);
    return;
  }
  PostedReceive receive;
  if (!load_receive(qp, sn, receive)) {
    fail_receive(qp, sn, RecvStatus::kProtectionError);
    return;
  }
  if (kGrhBytes + uint64_t{p.payload_bytes} > receive.capacity_bytes) {
    counters.add(Counter::rx_too_long);
    return;
  }
  std::array<std::byte, kGrhBytes> grh{};
  std::memcpy(grh.data() + kGrhBytes - wire::kIpv4Bytes,
              rte_pktmbuf_mtod_offset(packet, const std::byte*, wire::kEthernetBytes),
              wire::kIpv4Bytes);
  LocalError error = LocalError::kNone;
  const PlaceRequest request{qp.requests, p.psn, /*ahead=*/false, /*tail=*/false};
  PlaceResult result = scatter(qp, qp.recv_pd, request, receive.list(), 0, grh, error);
  if (error == LocalError::kNone && result == PlaceResult::kDone)
    result =
        scatter(qp, qp.recv_pd, request, receive.list(), kGrhBytes, payload_of(packet, p), error);
  if (result == PlaceResult::kNotNow) return;
  if (error != LocalError::kNone || result != PlaceResult::kDone) {
    fail_receive(qp, sn, RecvStatus::kProtectionError);
    return;
  }
  ReceiveEnd end = end_of_message(p, kGrhBytes + p.payload_bytes);
  end.flags |= kRecvHasGrh;
  end.src_qpn = raw(p.src_qpn);
  complete_receive(qp, sn, end, RecvStatus::kSuccess);
}

// ---- sending

// Descriptors come in PSN order and once; after an error those that were under way are discarded.
bool Nic::Impl::may_send_unreliable(const QpContext& qp, const SendDescriptor& d) const {
  if (d.op > SendOp::kSendImm || Psn(d.psn) != qp.transmitted) return false;
  if (qp.type == QpType::kUc) return true;
  const bool whole = (d.flags & (kSendCont | kSendMore)) == 0;
  const bool send = d.op == SendOp::kSend || d.op == SendOp::kSendImm;
  return whole && send && d.length_bytes <= qp.mtu_bytes;
}

void Nic::Impl::set_unreliable_opcode(const QpContext& qp, const SendDescriptor& d,
                                      wire::Packet& p) const {
  if (qp.type == QpType::kUc) {
    p.opcode = uc_opcode(d.op, p.cont, p.more);
    p.reth.length_bytes = d.message_bytes;
    return;
  }
  p.opcode = d.op == SendOp::kSendImm ? Opcode::kUdSendImm : Opcode::kUdSend;
  p.dest_qpn = Qpn{d.dest_qpn & 0xffffff};
  p.qkey = d.key;
}

// Leads request_flow to the datagram's destination. False: there is no way, or not yet.
bool Nic::Impl::prepare_datagram(QpContext& qp, const SendDescriptor& d) {
  if (qp.flows_made_for == 0 || d.dest_ip != qp.dest_ip) {
    qp.dest_ip = d.dest_ip;
    qp.flows_made_for = 0;
    qp.neighbour = -1;
    if (wire::is_multicast(Ipv4Address{qp.dest_ip})) {
      qp.peer = 0;  // and all others (send_to_group)
    } else if (qp.dest_ip == raw(settings.ip)) {
      qp.peer = kLoopbackPeer;
    } else if (port.is_wire()) {
      const int peer = port.peer_of(qp.dest_ip);
      if (peer < 0 || peer >= static_cast<int>(kMaxPeers)) return false;
      qp.peer = static_cast<int16_t>(peer);
      output_peers = std::max(output_peers, static_cast<uint32_t>(peer) + 1);
    } else {
      qp.peer = 0;
      qp.neighbour =
          static_cast<int16_t>(neighbours.find_or_add(next_hop(Ipv4Address{qp.dest_ip})));
      if (qp.neighbour < 0) return false;
    }
  }
  const uint32_t made_for = qp.neighbour < 0 ? 1 : neighbours.entry(qp.neighbour).generation;
  if (made_for == 0) return false;
  if (made_for == qp.flows_made_for && d.dest_qpn == qp.flow_qpn &&
      d.traffic_class == qp.flow_traffic_class && d.hop_limit == qp.flow_hop_limit) {
    return true;
  }
  const wire::MacAddress mac = qp.neighbour < 0 ? wire_mac(qp) : neighbours.entry(qp.neighbour).mac;
  const auto traffic_class = static_cast<uint8_t>(d.traffic_class & ~wire::kEcnMask);
  qp.request_flow =
      wire::make_flow_template(settings.mac, mac, settings.ip, Ipv4Address{qp.dest_ip},
                               make_flow_tag(qp.qpn, d.dest_qpn, 0), traffic_class, d.hop_limit);
  qp.flows_made_for = made_for;
  qp.flow_qpn = d.dest_qpn;
  qp.flow_traffic_class = d.traffic_class;
  qp.flow_hop_limit = d.hop_limit;
  return true;
}

// Everything before `next` has left, and that is all there is to wait for.
void Nic::Impl::settle_unreliable(QpContext& qp, Psn next) {
  QpStatus& status = *qp.status;
  QpStatusUpdate update(status);
  qp.una = next;
  status.una_psn = status.sack_end_psn = next.value();
  status.highest_acceptable_psn = (next + (kWindowLimit - 1)).value();
  ++status.ack_count;
  report(qp);
}

// SQE to RTS.
void Nic::Impl::restart_unreliable(QpContext& qp, Psn next) {
  if (qp.type == QpType::kRc) return;
  qp.send_failed = false;
  qp.transmitted = next;
  qp.status->transmitted_psn.store(next.value(), std::memory_order_release);
  {
    QpStatusUpdate update(*qp.status);
    qp.status->local_error = 0;
  }
  settle_unreliable(qp, next);
}

}  // namespace hostnic
