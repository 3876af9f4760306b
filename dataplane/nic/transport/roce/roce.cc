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

// Adds to a packet's headers the opcode and the extensions; the opcode says its place in the
// message. `sent_bytes` of the message have left before it.
void set_headers(const SendDescriptor& d, uint32_t sent_bytes, wire::Packet& p) {
  switch (d.op) {
    case SendOp::kWrite:
    case SendOp::kWriteImm:
      p.opcode = write_opcode(d.op == SendOp::kWriteImm, p.cont, p.more);
      // A First or Only packet says where all of it goes.
      p.reth = {d.va + sent_bytes, d.key, d.message_bytes};
      p.imm_data = d.imm_data;
      break;
    case SendOp::kRead:
      p.opcode = Opcode::kRcReadRequest;
      p.reth = {d.va + d.read_offset_bytes, d.key, d.length_bytes};
      break;
    case SendOp::kCompareSwap:
    case SendOp::kFetchAdd:
      p.opcode = d.op == SendOp::kCompareSwap ? Opcode::kRcCompareSwap : Opcode::kRcFetchAdd;
      p.atomic = {d.va, d.key, d.atomic.swap_or_add, d.atomic.compare};
      break;
    default:
      p.opcode = send_opcode(d.op, p.cont, p.more);
      p.imm_data = p.invalidate_rkey = d.imm_data;  // the Last packet has the one or the other
      break;
  }
}

}  // namespace

RoceTransport::RoceTransport(const TransportServices& nic)
    : settings_(nic.settings),
      egress_(nic.egress),
      packetizer_(nic.packetizer),
      now_(nic.now),
      advance_list_(nic.settings.nic_qps),
      answers_(nic),
      responder_(nic, answers_, advance_list_),
      completer_(nic) {}

bool RoceTransport::receive(QpContext& qp, const wire::Packet& p, rte_mbuf* packet) {
  if (qp.roce == nullptr) return false;
  if (p.opcode == Opcode::kCnp) {
    completer_.receive_congestion_notification(qp);
    answers_.slow_down(qp);
    return false;
  }
  if (p.opcode == Opcode::kRcAck) {
    qp.heard_ns = now_;
    completer_.receive_ack(qp, p);
    return false;
  }
  if (congestion_experienced(p)) [[unlikely]]
    note_congestion(qp);
  if (wire::is_response(p.opcode)) {
    qp.heard_ns = now_;
    completer_.receive_answer(qp, p, packet);
  } else {
    responder_.receive(qp, p, packet);
  }
  return false;
}

// Passes over the packets of a repetition that have been acknowledged since it was handed over: the
// peer held them. Returns whether that was all of the descriptor.
bool RoceTransport::skip_acknowledged(const QpContext& qp, SendProgress& progress) const {
  const SendDescriptor& d = progress.descriptor;
  if ((d.flags & kSendRetransmit) == 0 || is_read_or_atomic(d.op)) return false;
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
  wire::Packet p = Packetizer::next_packet(qp, progress);
  set_headers(d, progress.sent_bytes, p);
  const bool is_resolved = egress_.paths().prepare_flows(qp);
  const Leaving leaving = packetizer_.send(qp, progress, p, is_resolved);
  if (leaving != Leaving::kLeft) {
    blocked = leaving == Leaving::kBlocked;
    if (!blocked) completer_.fail_send(qp, p.psn, progress.error);
    return false;
  }
  completer_.note_transmitted(qp, d, p);
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
  responder_.drop_held(qp);
  advance_list_.forget(qp);
  answers_.forget(qp);
}

// A message names its key in its first packet only.
RefusedRequest RoceTransport::refused_request(const QpContext& qp) {
  RefusedRequest request = qp.refused;
  if (qp.roce == nullptr || request.key != 0) return request;
  request.key = qp.roce->message.key;
  request.va = qp.roce->message.va;
  request.length_bytes = qp.roce->message.length_bytes;
  return request;
}

// Time goes by for answers when the next one leaves; here it is looked at as if one did.
std::optional<DcqcnRate> RoceTransport::answer_rate(const QpContext& qp, TimeNs now) {
  if (qp.roce == nullptr) return {};
  DcqcnLimiter limiter = qp.roce->answer_limiter;
  limiter.advance(now);
  return limiter.rate();
}

uint32_t RoceTransport::begin_turn() {
  answers_.resume();
  return advance_list_.for_each([this](QpContext& qp) {
    const Psn before = qp.requests.window.expected();
    responder_.advance(qp);
    return qp.requests.window.expected() != before || qp.fatal;
  });
}

}  // namespace hostnic
