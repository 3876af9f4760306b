// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/transport/mrc/acknowledge.h"

#include <algorithm>

namespace hostnic {
namespace {

namespace wm = wire::mrc;

MrcAnswered answered_by(const wire::Packet& p, const wm::Packet& headers) {
  return {.psn = p.psn,
          .entropy = p.src_port,
          .timestamp = headers.timestamp.value,
          .again = headers.retransmission,
          .marked = wire::congestion_experienced(p)};
}

wm::Contexts contexts_of(const QpContext& qp) {
  return {static_cast<uint16_t>(qp.qpn), static_cast<uint16_t>(qp.dest_qpn)};
}

}  // namespace

MrcAcks::MrcAcks(const TransportServices& nic) : egress_(nic.egress), counters_(nic.counters) {
  owed_.reserve(nic.settings.nic_qps);
}

void MrcAcks::add(QpContext& qp) {
  if (qp.on_ack_list) return;
  qp.on_ack_list = true;
  owed_.push_back(&qp);
}

void MrcAcks::owe_sack(QpContext& qp, const wire::Packet& p, const wm::Packet& headers) {
  MrcConnection& connection = *qp.mrc;
  // What the one before says of its path would be lost.
  if (connection.sack_owed && connection.last.marked) send_sack(qp);
  connection.last = answered_by(p, headers);
  // Below is a socket's port, which chooses no path.
  if (p.src_port >= wire::kFlowTagBase) connection.answers_by = p.src_port;
  connection.sack_owed = true;
  add(qp);
}

void MrcAcks::owe_ack(QpContext& qp) {
  qp.ack_owed = true;
  add(qp);
}

void MrcAcks::owe_nack(QpContext& qp, const wire::Packet& p, const wm::Packet& headers,
                       wm::NackReason reason) {
  MrcConnection& connection = *qp.mrc;
  connection.refused = answered_by(p, headers);
  connection.nack_reason = reason;
  connection.nack_owed = true;
  add(qp);
}

void MrcAcks::owe_trimmed_nack(QpContext& qp, const wire::Packet& p, const wm::Packet& headers) {
  // Each of them names another PSN. If the one before finds no room it is as good as lost.
  if (qp.mrc->nack_owed) send_nack(qp);
  owe_nack(qp, p, headers, wm::NackReason::kTrimmed);
}

void MrcAcks::owe_probe_answer(QpContext& qp, const wire::Packet& p, const wm::Packet& headers) {
  MrcConnection& connection = *qp.mrc;
  if (connection.probes.full()) return;
  MrcAnswered answered = answered_by(p, headers);
  answered.timestamp = headers.peth.timestamp.value;
  connection.probes.push({headers.peth.probe_id, answered});
  add(qp);
}

void MrcAcks::forget(QpContext& qp) {
  if (qp.on_ack_list) std::erase(owed_, &qp);
  qp.on_ack_list = qp.ack_owed = false;
  if (qp.mrc == nullptr) return;
  qp.mrc->sack_owed = qp.mrc->nack_owed = false;
  qp.mrc->probes.clear();
}

uint32_t MrcAcks::send_all() {
  uint32_t done = 0;
  size_t kept = 0;
  for (QpContext* qp : owed_) {
    if (!send_owed(*qp)) {
      owed_[kept++] = qp;
      continue;
    }
    qp->on_ack_list = false;
    ++done;
  }
  owed_.resize(kept);
  return done;
}

// Sends what is owed to one peer; returns false if something is left for want of room.
bool MrcAcks::send_owed(QpContext& qp) {
  MrcConnection& connection = *qp.mrc;
  if (!egress_.paths().prepare_flows(qp)) {
    counters_.add(Counter::tx_unresolved);
    qp.ack_owed = connection.sack_owed = connection.nack_owed = false;
    connection.probes.clear();
    return true;
  }
  return (!connection.nack_owed || send_nack(qp)) && (!connection.sack_owed || send_sack(qp)) &&
         (!qp.ack_owed || send_ack(qp)) && (connection.probes.empty() || send_probe_answer(qp));
}

bool MrcAcks::send_control(QpContext& qp, const wire::FlowTemplate& flow, wm::Packet& headers) {
  if (!egress_.has_room_for_ack(qp.peer)) return false;
  headers.dest_qpn = Qpn{qp.dest_qpn};
  wire::Packet p;
  p.opcode = static_cast<wire::Opcode>(headers.opcode);
  p.dest_qpn = headers.dest_qpn;
  p.psn = headers.psn;
  p.mrc = &headers;
  rte_mbuf* const packet = egress_.build_small(flow, p, {}, {}, egress_.pools().control);
  if (packet == nullptr) return false;
  egress_.emit(packet, qp.peer);
  return true;
}

// Answers go by the entropy value of the packet that has come last: that path was good a moment
// ago.
bool MrcAcks::send_answer(QpContext& qp, wm::Packet& headers) {
  wire::FlowTemplate flow = qp.response_flow;
  if (qp.mrc->answers_by != 0) wire::set_source_port(flow, qp.mrc->answers_by);
  return send_control(qp, flow, headers);
}

void MrcAcks::fill_sack(const QpContext& qp, const MrcAnswered& answered, wm::Packet& sack) {
  const MrcConnection& connection = *qp.mrc;
  sack.opcode = wm::Opcode::kSack;
  sack.retransmission = answered.again;
  sack.seth.mark = answered.marked ? wm::PathMark::kSkipOnce : wm::PathMark::kNone;
  sack.seth.entropy = answered.entropy;
  sack.seth.contexts = contexts_of(qp);
  sack.seth.mpr_units = connection.arrivals.mpr_units();
  sack.cc_state = {
      .timestamp = answered.timestamp,
      .out_of_order_count = static_cast<uint16_t>(connection.arrivals.out_of_order_count()),
      .received_units = connection.received_bytes / wm::kReceivedUnitBytes};
}

// A bitmap has room for 64 PSNs: where more have come that none has shown, more SACKs leave.
bool MrcAcks::send_sack(QpContext& qp) {
  MrcConnection& connection = *qp.mrc;
  constexpr uint32_t kMostInARow = 8;
  for (uint32_t i = 0; i < kMostInARow; ++i) {
    wm::Packet sack;
    fill_sack(qp, connection.last, sack);
    if (!egress_.has_room_for_ack(qp.peer)) return false;
    connection.arrivals.report(connection.last.psn, sack.seth);
    sack.psn = sack.seth.cumulative_psn;
    if (!send_answer(qp, sack)) return false;
    counters_.add(Counter::mrc_sacks_sent);
    if (!connection.arrivals.has_unreported()) break;
  }
  connection.sack_owed = false;
  return true;
}

bool MrcAcks::send_ack(QpContext& qp) {
  wm::Packet ack;
  ack.opcode = wm::Opcode::kAck;
  ack.aeth = {wire::AckKind::kAck, wm::kNoCreditLimit, qp.msn & 0xffffff};
  ack.psn = qp.requests.window.expected() + Psn::kMask;  // the one before
  if (qp.fatal) {
    ack.aeth.kind = wire::AckKind::kNak;
    ack.aeth.code = static_cast<uint8_t>(qp.fatal_code);
    ack.psn = qp.fatal_psn;
  }
  if (!send_answer(qp, ack)) return false;
  counters_.add(Counter::acks_sent);
  qp.ack_owed = false;
  return true;
}

bool MrcAcks::send_nack(QpContext& qp) {
  MrcConnection& connection = *qp.mrc;
  wm::Packet nack;
  nack.opcode = wm::Opcode::kNack;
  nack.retransmission = connection.refused.again;
  nack.psn = nack.neth.psn = connection.refused.psn;
  nack.neth.reason = connection.nack_reason;
  nack.neth.entropy = connection.refused.entropy;
  nack.neth.contexts = contexts_of(qp);
  nack.neth.timestamp = connection.refused.timestamp;
  if (!send_answer(qp, nack)) return false;
  counters_.add(Counter::mrc_nacks_sent);
  connection.nack_owed = false;
  return true;
}

bool MrcAcks::send_probe_answer(QpContext& qp) {
  MrcConnection& connection = *qp.mrc;
  while (!connection.probes.empty()) {
    const MrcProbed& probed = connection.probes.front();
    wm::Packet sack;
    fill_sack(qp, probed.answered, sack);
    sack.seth.answers_probe = true;
    sack.seth.probe_id = probed.id;
    sack.seth.cumulative_psn = sack.psn = connection.arrivals.cumulative();
    if (!send_answer(qp, sack)) return false;
    connection.probes.pop_front();
  }
  return true;
}

}  // namespace hostnic
