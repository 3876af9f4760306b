// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/transport/unreliable/unreliable.h"

#include <algorithm>
#include <cstring>

#include "dataplane/nic/client/qp_status_update.h"
#include "dataplane/nic/packet/packet.h"
#include "dataplane/nic/qp/receive_queue.h"
#include "dataplane/nic/transport/path_mtu.h"
#include "protocol/wire/ipv6.h"
#include "protocol/wire/multicast.h"

namespace hostnic {
namespace {

using wire::Opcode;
using State = UnreliableMessage::State;

bool is_uc_write(Opcode opcode) {
  return opcode >= Opcode::kUcWriteFirst && opcode <= Opcode::kUcWriteOnlyImm;
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

// The room of the receive that is next; 0: not known.
uint64_t room_of_next(const QpContext& qp) {
  PostedReceive receive;
  if (qp.srq != nullptr || qp.recv_entries == 0 ||
      !ReceiveQueues::load(qp, qp.recv_next_sn, receive))
    return 0;
  return receive.capacity_bytes;
}

}  // namespace

// ---- receiving

// Counts the reason why a message is not taken. A receive whose own memory is no good is completed:
// that is an error of this side, which its program learns.
UnreliableTransport::Taken UnreliableTransport::judge(QpContext& qp, const wire::Packet& p,
                                                      const Outcome& outcome) {
  switch (outcome.kind) {
    case Outcome::kDone:
      return Taken::kDone;
    case Outcome::kNotNow:
      return Taken::kNotNow;
    case Outcome::kNoReceive:
      counters_.add(Counter::rx_no_receive);
      qp.drops.note(SilentDrop::kNoReceive, p, qp.recv_next_sn);
      return Taken::kDone;
    case Outcome::kRefused:
      break;
  }
  switch (outcome.refusal) {
    case Refusal::kMessageTooLong:
    case Refusal::kReceiveTooLong:
      counters_.add(Counter::rx_too_long);
      qp.drops.note(SilentDrop::kTooLong, p, qp.recv_next_sn, room_of_next(qp));
      break;
    case Refusal::kReceiveMemory:
      reports_.publish_event(qp, executor_.refuse(qp, qp.recv_next_sn, outcome.refusal).event);
      qp.fatal = true;
      break;
    default:
      counters_.add(Counter::uc_access_refused);
      qp.drops.note(SilentDrop::kAccess, p, qp.recv_next_sn);
      break;
  }
  return Taken::kDone;
}

// Gives up the message, because a packet of it is missing: the rest is of no use. The receive stays
// posted.
void UnreliableTransport::lose_message(QpContext& qp, const wire::Packet& p) {
  if (qp.message.state != State::kTaking) return;
  counters_.add(Counter::uc_incomplete);
  qp.drops.note(SilentDrop::kIncomplete, p, qp.recv_next_sn);
  qp.message.state = State::kDropping;
}

// Follows the message that a packet belongs to: UC takes packets in order. Returns false if the
// packet belongs to nothing that is being taken.
bool UnreliableTransport::follow_message(QpContext& qp, const wire::Packet& p) {
  UnreliableMessage& message = qp.message;
  const int32_t ahead = distance(message.expected, p.psn);
  // PSNs up to a window behind are packets repeated, or overtaken. Anything else that is not the
  // expected one is a gap, however wide; the standard's receivers follow their sender, too.
  if (ahead < 0 && ahead >= -static_cast<int32_t>(kWindowLimit)) {
    counters_.add(Counter::duplicate_request);
    return false;
  }
  if (ahead != 0) {
    counters_.add(Counter::packet_seq_err);
    lose_message(qp, p);
  }
  message.expected = p.psn + 1;
  if (!p.cont) {
    lose_message(qp, p);  // the end of the message before never came
    message.state = State::kTaking;
    message.parts.begin(is_uc_write(p.opcode), p.reth);
    return true;
  }
  if (message.state == State::kNone) {
    counters_.add(Counter::uc_incomplete);  // the message's First did not come
    qp.drops.note(SilentDrop::kIncomplete, p, qp.recv_next_sn);
    message.state = State::kDropping;
  }
  if (message.parts.is_write != is_uc_write(p.opcode)) lose_message(qp, p);
  if (message.state == State::kTaking) return true;
  if (!p.more) message.state = State::kNone;
  return false;
}

bool UnreliableTransport::receive(QpContext& qp, const wire::Packet& p, rte_mbuf* packet) {
  bool begun = false;
  if (qp.held_packets == 0 && take(qp, p, packet, begun) == Taken::kDone) return false;
  if (!held_.add(qp, packet, begun)) counters_.add(Counter::reorder_full);
  return false;
}

uint32_t UnreliableTransport::begin_turn() {
  if (held_.empty()) return 0;
  return held_.retry([this](QpContext& qp, rte_mbuf* packet, bool& begun) {
    return take(qp, held_headers(packet, wire::Dialect::kRocev2), packet, begun) == Taken::kDone;
  });
}

UnreliableTransport::Taken UnreliableTransport::take(QpContext& qp, const wire::Packet& p,
                                                     rte_mbuf* packet, bool& begun) {
  return qp.type == QpType::kUd ? receive_datagram(qp, p, packet)
                                : receive_in_order(qp, p, packet, begun);
}

UnreliableTransport::Taken UnreliableTransport::receive_in_order(QpContext& qp,
                                                                 const wire::Packet& p,
                                                                 rte_mbuf* packet, bool& begun) {
  if (qp.fatal) return Taken::kDone;
  executor_.note_arrival(qp);
  if (!begun && !follow_message(qp, p)) return Taken::kDone;
  begun = true;
  const Outcome placed = place_message(qp, p, payload_of(packet, p));
  if (judge(qp, p, placed) == Taken::kNotNow) return Taken::kNotNow;
  if (placed.done()) qp.message.parts.offset_bytes += p.payload_bytes;
  if (unlikely(messages_ != nullptr) && placed.done() && !p.more) messages_->note_placed(qp, p);
  if (!p.more)
    qp.message.state = State::kNone;
  else if (!placed.done())
    qp.message.state = State::kDropping;
  return Taken::kDone;
}

Outcome UnreliableTransport::place_message(QpContext& qp, const wire::Packet& p,
                                           std::span<const std::byte> payload) {
  const MessageState& message = qp.message.parts;
  if (message.is_write && !qp.takes(kAccessRemoteWrite)) return refused(Refusal::kInvalidRequest);
  if (!message.fits(payload.size(), p.more) || !fits_path_mtu(qp, p))
    return refused(Refusal::kMessageTooLong);
  const uint32_t sn = qp.recv_next_sn;
  const uint64_t end = message.offset_bytes + payload.size();
  const MessageKind kind{.is_write = message.is_write,
                         .has_imm = wire::opcode_info(p.opcode).has_imm};
  const Outcome placed =
      message.is_write
          ? executor_.place_write(qp,
                                  {.key = message.key,
                                   .va = message.next_va(),
                                   .checked_bytes = message.checked_bytes(p.cont, payload.size()),
                                   .is_last = !p.more,
                                   .takes_receive = kind.has_imm,
                                   .sn = sn},
                                  {.psn = p.psn}, payload)
          : executor_.place_send(
                qp, {.sn = sn, .offset_bytes = message.offset_bytes, .message_bytes = end},
                {.psn = p.psn}, payload);
  if (placed.done() && !p.more && (!kind.is_write || kind.has_imm))
    executor_.complete(qp, sn, receive_end_of(p, kind, end));
  return placed;
}

// The network header that datagrams' receives begin with: IPv6's 40 bytes, or as many of which the
// last are IPv4's. Of IPv6 there are only the values that count.
std::array<std::byte, kGrhBytes> UnreliableTransport::network_header(const wire::Packet& p,
                                                                     rte_mbuf* packet) const {
  static_assert(kGrhBytes == wire::kIpv6Bytes);
  std::array<std::byte, kGrhBytes> header{};
  const auto* ip = rte_pktmbuf_mtod_offset(packet, const std::byte*, wire::kEthernetBytes);
  if (!is_stand_in(p.src_ip)) {
    std::memcpy(header.data() + kGrhBytes - wire::kIpv4Bytes, ip, wire::kIpv4Bytes);
    return header;
  }
  const Gid destination =
      wire::is_multicast(p.dst_ip) ? ipv6_group_of(p.dst_ip) : settings_.address_of(p.dst_ip);
  emit(wire::Ipv6{.traffic_class = p.traffic_class,
                  .payload_bytes = static_cast<uint16_t>(
                      wire::load_be16(ip + wire::ipv4_offset::kTotalLength) - wire::kIpv4Bytes),
                  .hop_limit = wire::load_u8(ip + wire::ipv4_offset::kHopLimit),
                  .src = settings_.address_of(p.src_ip),
                  .dst = destination},
       header);
  return header;
}

UnreliableTransport::Taken UnreliableTransport::receive_datagram(QpContext& qp,
                                                                 const wire::Packet& p,
                                                                 rte_mbuf* packet) {
  if (qp.fatal) return Taken::kDone;
  if (p.qkey != qp.qkey) {
    counters_.add(Counter::rx_wrong_qkey);
    qp.drops.note(SilentDrop::kOtherQkey, p, qp.recv_next_sn);
    return Taken::kDone;
  }
  const uint32_t sn = qp.recv_next_sn;
  const std::array<std::byte, kGrhBytes> grh = network_header(p, packet);
  const uint32_t message_bytes = kGrhBytes + p.payload_bytes;
  const Outcome placed =
      executor_.place_send(qp, {.sn = sn, .message_bytes = message_bytes, .header = grh},
                           {.psn = p.psn}, payload_of(packet, p));
  if (!placed.done()) return judge(qp, p, placed);
  if (unlikely(messages_ != nullptr)) messages_->note_placed(qp, p);
  ReceiveEnd end =
      receive_end_of(p, {.has_imm = wire::opcode_info(p.opcode).has_imm}, message_bytes);
  end.flags |= kRecvHasGrh | (is_stand_in(p.src_ip) ? kRecvIpv6 : 0u);
  end.src_qpn = raw(p.src_qpn);
  executor_.complete(qp, sn, end);
  return Taken::kDone;
}

// ---- sending

// Descriptors must come in PSN order and once; after an error those that were under way are
// discarded.
bool UnreliableTransport::start(const QpContext& qp, const SendDescriptor& d) const {
  if (d.op > SendOp::kSendImm || Psn(d.psn) != qp.transmitted) return false;
  if (qp.type == QpType::kUc) return true;
  const bool whole = (d.flags & (kSendCont | kSendMore)) == 0;
  const bool send = d.op == SendOp::kSend || d.op == SendOp::kSendImm;
  return whole && send && d.length_bytes <= qp.mtu_bytes;
}

// Adds to a packet's headers the opcode and the extensions; the opcode says its place in the
// message. `sent_bytes` of the message have left before it.
void UnreliableTransport::set_headers(const QpContext& qp, const SendDescriptor& d,
                                      uint32_t sent_bytes, wire::Packet& p) {
  p.imm_data = d.imm_data;
  if (qp.type == QpType::kUc) {
    p.opcode = uc_opcode(d.op, p.cont, p.more);
    p.reth = {d.va + sent_bytes, d.key, d.message_bytes};
    return;
  }
  p.opcode = d.op == SendOp::kSendImm ? Opcode::kUdSendImm : Opcode::kUdSend;
  p.dest_qpn = Qpn{d.dest_qpn & 0xffffff};
  p.qkey = d.key;
}

// Leads request_flow to the datagram's destination. Returns false if there is no way, or not yet.
bool UnreliableTransport::prepare_datagram(QpContext& qp, const SendDescriptor& d) {
  uint32_t made_for = qp.neighbour < 0 ? 1 : egress_.paths().use_neighbour(qp.neighbour);
  if (qp.flows_made_for == 0 || qp.flows_made_for != made_for || d.dest_ip != qp.dest_ip) {
    qp.dest_ip = d.dest_ip;
    qp.flows_made_for = 0;
    Path path;  // to a group: send_to_group() finds the peers
    if (!wire::is_multicast(Ipv4Address{qp.dest_ip}) &&
        egress_.find_path(Ipv4Address{qp.dest_ip}, neighbour_name(qp), false, path) != 0)
      return false;
    qp.peer = path.peer;
    qp.neighbour = path.neighbour;
    made_for = qp.neighbour < 0 ? 1 : egress_.paths().use_neighbour(qp.neighbour);
  }
  if (made_for == 0) return false;
  if (made_for == qp.flows_made_for && d.dest_qpn == qp.flow_qpn &&
      d.traffic_class == qp.flow_traffic_class && d.hop_limit == qp.flow_hop_limit &&
      d.source_index == qp.flow_source_index) {
    return true;
  }
  const wire::MacAddress mac = qp.neighbour < 0
                                   ? egress_.paths().mac_without_arp(Ipv4Address{qp.dest_ip})
                                   : egress_.paths().neighbour(qp.neighbour).mac;
  const auto traffic_class = static_cast<uint8_t>(d.traffic_class & ~wire::kEcnMask);
  qp.request_flow = wire::make_flow_template(
      settings_.mac, mac, settings_.own_address(d.source_index), Ipv4Address{qp.dest_ip},
      wire::make_flow_tag(qp.qpn, d.dest_qpn, 0), traffic_class, d.hop_limit);
  qp.flows_made_for = made_for;
  qp.flow_qpn = d.dest_qpn;
  qp.flow_traffic_class = d.traffic_class;
  qp.flow_hop_limit = d.hop_limit;
  qp.flow_source_index = d.source_index;
  return true;
}

// Tells the driver that everything before `next` has left, which is all there is to wait for.
void UnreliableTransport::settle(QpContext& qp, Psn next) {
  QpStatus& status = *qp.status;
  QpStatusUpdate update(status);
  qp.una = next;
  status.una_psn = status.sack_end_psn = next.value();
  status.highest_acceptable_psn = (next + (kWindowLimit - 1)).value();
  ++status.ack_count;
  reports_.add(qp);
}

// Restarts a queue pair from SQE to RTS.
void UnreliableTransport::restart(QpContext& qp, Psn next) {
  qp.send_failed = false;
  qp.transmitted = next;
  qp.status->transmitted_psn.store(next.value(), std::memory_order_release);
  {
    QpStatusUpdate update(*qp.status);
    qp.status->local_error = 0;
  }
  settle(qp, next);
}

bool UnreliableTransport::send_one(QpContext& qp, SendProgress& progress, bool& blocked) {
  const SendDescriptor& d = progress.descriptor;
  wire::Packet p = Packetizer::next_packet(qp, progress);
  set_headers(qp, d, progress.sent_bytes, p);
  const bool datagram = qp.type == QpType::kUd;
  const bool is_resolved = datagram ? prepare_datagram(qp, d) : egress_.paths().prepare_flows(qp);
  if (is_resolved && datagram && wire::is_multicast(Ipv4Address{qp.dest_ip})) {
    if (!send_to_group(qp, progress, p, blocked)) return false;
  } else {
    const Leaving leaving = packetizer_.send(qp, progress, p, is_resolved);
    if (leaving != Leaving::kLeft) {
      blocked = leaving == Leaving::kBlocked;
      if (!blocked) fail_send(qp, p.psn, progress.error);
      return false;
    }
  }
  note_transmitted(qp, p);
  return Packetizer::note_progress(progress, 1, p.payload_bytes);
}

// Builds a packet; returns null if `blocked` by missing buffers, or if the send failed.
rte_mbuf* UnreliableTransport::build_packet(QpContext& qp, SendProgress& progress,
                                            const wire::Packet& p, bool& blocked) {
  rte_mbuf* packet = packetizer_.build(qp, progress, p);
  if (packet != nullptr) return packet;
  blocked = progress.error == LocalError::kNone;
  if (blocked)
    counters_.add(Counter::tx_no_buffer);
  else
    fail_send(qp, p.psn, progress.error);
  return nullptr;
}

void UnreliableTransport::note_transmitted(QpContext& qp, const wire::Packet& p) {
  const Psn next = p.psn + 1;
  qp.transmitted = next;
  qp.status->transmitted_psn.store(next.value(), std::memory_order_release);
  if (p.ack_request) settle(qp, next);
}

void UnreliableTransport::fail_send(QpContext& qp, Psn psn, LocalError error) {
  if (qp.send_failed && distance(qp.send_failed_psn, psn) >= 0) return;
  settle(qp, psn);  // what has left before this PSN is complete
  reports_.fail_send(qp, psn, error);
}

}  // namespace hostnic
