// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/transport/roce/roce.h"

namespace hostnic {
namespace {

using wire::Opcode;

// PSNs beyond the expected one that may be held: as many as a requester here has in flight.
constexpr uint32_t kMostHeld = 512;

Opcode write_opcode(bool imm, bool cont, bool more) {
  if (more) return cont ? Opcode::kRcWriteMiddle : Opcode::kRcWriteFirst;
  if (imm) return cont ? Opcode::kRcWriteLastImm : Opcode::kRcWriteOnlyImm;
  return cont ? Opcode::kRcWriteLast : Opcode::kWriteOnly;
}

Opcode send_opcode(SendOp op, bool cont, bool more) {
  if (more) return cont ? Opcode::kRcSendMiddle : Opcode::kRcSendFirst;
  if (op == SendOp::kSendImm) return cont ? Opcode::kRcSendLastImm : Opcode::kRcSendOnlyImm;
  if (op == SendOp::kSendInv) return cont ? Opcode::kRcSendLastInv : Opcode::kRcSendOnlyInv;
  return cont ? Opcode::kRcSendLast : Opcode::kRcSendOnly;
}

// The least time between two notifications to one peer (DCQCN's N).
constexpr uint64_t kCnpIntervalNs = 50'000;

// Makes the standard's headers of those that the native transport would send.
void set_opcode(const SendDescriptor& d, wire::Packet& p) {
  switch (d.op) {
    case SendOp::kWrite:
    case SendOp::kWriteImm:
      p.opcode = write_opcode(d.op == SendOp::kWriteImm, p.cont, p.more);
      p.reth.length_bytes = d.message_bytes;  // a First or Only packet says where all of it goes
      break;
    case SendOp::kRead:
      p.opcode = Opcode::kRcReadRequest;
      p.reth = {d.va + d.read_offset_bytes, d.key, d.length_bytes};
      break;
    case SendOp::kCompareSwap:
      p.opcode = Opcode::kRcCompareSwap;
      break;
    case SendOp::kFetchAdd:
      p.opcode = Opcode::kRcFetchAdd;
      break;
    default:
      p.opcode = send_opcode(d.op, p.cont, p.more);
      break;
  }
  p.cont = p.more = false;
  p.attempt = 0;
  p.policy = wire::Policy::kSelective;
}

}  // namespace

RoceTransport::RoceTransport(const Parts& parts)
    : settings_(parts.settings),
      egress_(parts.egress),
      packetizer_(parts.packetizer),
      counters_(parts.counters),
      now_(parts.now),
      advance_list_(parts.settings.nic_qps),
      answers_({parts.settings, parts.answer_lines, parts.egress, parts.placement, parts.reports,
                parts.counters, parts.now}),
      responder_({parts.settings, parts.placement, parts.windows, parts.receives, parts.reorder,
                  parts.reports, answers_, advance_list_, parts.counters}),
      requester_({parts.settings, parts.placement, parts.reports, parts.counters}) {}

void RoceTransport::receive(QpContext& qp, const wire::Packet& p, rte_mbuf* packet) {
  if (qp.roce == nullptr) return;
  if (p.opcode == Opcode::kCnp) {
    requester_.receive_congestion_notification(qp);
    answers_.slow_down(qp);
    return;
  }
  if (p.opcode == Opcode::kRcAck) {
    qp.heard_ns = now_;
    requester_.receive_ack(qp, p);
    return;
  }
  if (congestion_experienced(p)) [[unlikely]]
    note_congestion(qp);
  if (wire::is_response(p.opcode)) {
    qp.heard_ns = now_;
    requester_.receive_answer(qp, p, packet);
  } else {
    responder_.receive(qp, p, packet);
  }
}

// Passes over the packets of a repetition that have been acknowledged since it was handed over: the
// peer held them. Returns whether that was all of the descriptor.
bool RoceTransport::skip_acknowledged(const QpContext& qp, SendProgress& progress) const {
  const SendDescriptor& d = progress.descriptor;
  if ((d.flags & kSendRetransmit) == 0 || is_read_or_atomic(d.op)) return false;
  if (broken(Fault::roce_acknowledged_goes_again)) return false;
  while (before(Psn(d.psn + progress.sent_packets), qp.una)) {
    const uint32_t bytes = std::min<uint32_t>(qp.mtu_bytes, d.length_bytes - progress.sent_bytes);
    Packetizer::pass_payload(progress, bytes);
    if (!Packetizer::note_progress(progress, 1, bytes)) return true;
  }
  return false;
}

// Tells the peer that what it sends, requests or answers, meets congestion.
void RoceTransport::note_congestion(QpContext& qp) {
  if (now_ < qp.roce->next_cnp_ns || !answers_.notify_congestion(qp)) return;
  qp.roce->next_cnp_ns = now_ + kCnpIntervalNs;
}

bool RoceTransport::send_one(QpContext& qp, SendProgress& progress, bool& blocked) {
  if (skip_acknowledged(qp, progress)) return false;
  const SendDescriptor& d = progress.descriptor;
  wire::Packet p = packetizer_.next_packet(qp, progress);
  set_opcode(d, p);
  if (!egress_.prepare_flows(qp)) {
    counters_.add(Counter::tx_unresolved);
    Packetizer::pass_payload(progress, p.payload_bytes);
  } else if (!egress_.has_room(qp.peer)) {
    blocked = true;
    return false;
  } else if (rte_mbuf* packet = packetizer_.build(qp, progress, p); packet != nullptr) {
    if ((d.flags & kSendRetransmit) != 0) packet->ol_flags |= resent_flag();
    egress_.emit(packet, qp.peer);
  } else if (progress.error == LocalError::kNone) {
    counters_.add(Counter::tx_no_buffer);
    blocked = true;
    return false;
  } else {
    requester_.fail_send(qp, p.psn, progress.error);
    return false;
  }
  requester_.note_transmitted(qp, d, p);
  return Packetizer::note_progress(progress, 1, p.payload_bytes);
}

void RoceTransport::connect(QpContext& qp) {
  qp.roce = std::make_unique<RoceConnection>();
  qp.requests.window.reset(Psn(qp.rq_psn), std::min(settings_.window, kMostHeld));
  qp.roce->answer_limiter.reset(settings_.line_rate_mbps);
  qp.msn = 0;
  qp.atomics = {};
  qp.atomic_next = 0;
  qp.ack_owed = false;
  qp.responses_changed = qp.response_bits_published = false;
}

void RoceTransport::quiesce(QpContext& qp) {
  if (!broken(Fault::roce_hold_survives)) responder_.drop_held(qp);
  advance_list_.forget(qp);
  answers_.forget(qp);
}

uint32_t RoceTransport::advance_windows() {
  answers_.resume();
  return advance_list_.for_each([this](QpContext& qp) {
    const Psn before = qp.requests.window.expected();
    responder_.advance(qp);
    return qp.requests.window.expected() != before || qp.fatal;
  });
}

}  // namespace hostnic
