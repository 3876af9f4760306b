// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/transport/roce/roce.h"

namespace hostnic {
namespace {

using wire::Opcode;

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
    : egress_(parts.egress),
      packetizer_(parts.packetizer),
      counters_(parts.counters),
      answers_({parts.settings, parts.egress, parts.placement, parts.reports, parts.counters}),
      responder_({parts.placement, parts.windows, parts.receives, parts.reports, answers_,
                  parts.counters, parts.now}),
      requester_({parts.settings, parts.placement, parts.reports, parts.counters}) {}

void RoceTransport::receive(QpContext& qp, const wire::Packet& p, rte_mbuf* packet) {
  if (qp.roce == nullptr) return;
  if (p.opcode == Opcode::kCnp) {
    requester_.receive_congestion_notification(qp);
  } else if (p.opcode == Opcode::kRcAck) {
    requester_.receive_ack(qp, p);
  } else if (wire::is_response(p.opcode)) {
    requester_.receive_answer(qp, p, packet);
  } else {
    responder_.receive(qp, p, packet);
  }
}

bool RoceTransport::send_one(QpContext& qp, SendProgress& progress, bool& blocked) {
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
  qp.roce->expected = Psn(qp.rq_psn);
  qp.msn = 0;
  qp.atomics = {};
  qp.atomic_next = 0;
  qp.ack_owed = false;
  qp.responses_changed = qp.response_bits_published = false;
}

}  // namespace hostnic
