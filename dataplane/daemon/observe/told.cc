// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/observe/told.h"

#include <algorithm>

namespace hostnic {
namespace {

static_assert(uint32_t{cm::kFirstToldType} == static_cast<uint32_t>(QpType::kRc));
static_assert(uint32_t{cm::kLastToldType} == static_cast<uint32_t>(QpType::kUd));
static_assert(uint32_t{cm::kLastToldState} == static_cast<uint32_t>(QpState::kErr));
static_assert(Transport{cm::kLastToldTransport} == Transport::kMrc);
static_assert(SendOp{cm::kLastToldOp} == SendOp::kLocalInvalidate);
static_assert(wire::NakCode{cm::kLastToldCode} == wire::NakCode::kRemoteOperational);
static_assert(KeyFault{cm::kLastToldFault} == KeyFault::kOnDemand);

// Rights beyond these are nobody's business, and would not fit.
constexpr uint32_t kToldAccess =
    kAccessLocalWrite | kAccessRemoteWrite | kAccessRemoteRead | kAccessRemoteAtomic;

uint8_t told_access(uint32_t access) { return static_cast<uint8_t>(access & kToldAccess); }

bool names(const QpView& qp, const Asking& asking) {
  return qp.state >= QpState::kRtr && qp.dest_qpn == asking.qpn && qp.dest_ip == raw(asking.host);
}

void tell_refusal(const Seen& seen, cm::ToldRefusal& told) {
  const QpView& qp = *seen.qp;
  told.op = static_cast<uint8_t>(op_of(qp.refused.opcode));
  told.code = static_cast<uint8_t>(qp.refused_code);
  told.key = qp.refused.key;
  told.va = qp.refused.va;
  told.length_bytes = qp.refused.length_bytes;
  told.packet_bytes = qp.refused.packet_bytes;
  told.receive_bytes = qp.refused_receive_bytes;
  told.bad_receive = qp.refused_receive_fault.fault != KeyFault::kNone;
  told.qp_access = told_access(qp.access);
  const KeyView& key = seen.key;
  told.fault = static_cast<uint8_t>(key.fault);
  told.is_window = key.is_window;
  told.wanted_access = told_access(key.wanted_access);
  // A key of another domain, or of no region, says nothing of what it reaches.
  if (key.fault != KeyFault::kRight && key.fault != KeyFault::kBounds &&
      key.fault != KeyFault::kOnDemand)
    return;
  told.region_va = key.region_va;
  told.region_bytes = key.region_bytes;
  told.region_access = told_access(key.region_access);
}

void tell_peer(const Seen& seen, cm::InquiryAnswer& answer) {
  const QpView& qp = *seen.qp;
  cm::ToldQp& told = answer.qp;
  answer.standing = cm::Standing::kPeer;
  told.is_stopped = seen.is_stopped;
  told.shared_receives = qp.shared_receives;
  told.dest_qpn = qp.dest_qpn;
  told.names_asker_host = true;
  told.has_psns = is_unused(qp);
  if (told.has_psns) {
    told.rq_psn = qp.rq_psn;
    told.expected = qp.expected;
  }
  told.sent_packets = (qp.transmitted - qp.sq_psn) & Psn::kMask;
  told.mtu_bytes = qp.mtu_bytes;
  told.responder_resources = qp.responder_resources;
  told.receives_waiting = qp.receives_waiting;
  told.pid = qp.pid;
  told.program = qp.program;
  told.has_refused = qp.refused_its_peer;
  if (qp.refused_its_peer) tell_refusal(seen, answer.refusal);
}

}  // namespace

bool is_atomic_op(SendOp op) { return op == SendOp::kCompareSwap || op == SendOp::kFetchAdd; }

bool is_send_op(SendOp op) {
  return op == SendOp::kSend || op == SendOp::kSendImm || op == SendOp::kSendInv;
}

uint32_t right_of(SendOp op) {
  if (op == SendOp::kRead) return kAccessRemoteRead;
  return is_atomic_op(op) ? kAccessRemoteAtomic : kAccessRemoteWrite;
}

SendOp op_of(wire::Opcode opcode) {
  using wire::Opcode;
  switch (opcode) {
    case Opcode::kReadRequest:
    case Opcode::kRcReadRequest:
      return SendOp::kRead;
    case Opcode::kCompareSwap:
    case Opcode::kRcCompareSwap:
      return SendOp::kCompareSwap;
    case Opcode::kFetchAdd:
    case Opcode::kRcFetchAdd:
      return SendOp::kFetchAdd;
    case Opcode::kSendInv:
    case Opcode::kRcSendLastInv:
    case Opcode::kRcSendOnlyInv:
      return SendOp::kSendInv;
    case Opcode::kSend:
    case Opcode::kSendImm:
    case Opcode::kRcSendFirst:
    case Opcode::kRcSendMiddle:
    case Opcode::kRcSendLast:
    case Opcode::kRcSendLastImm:
    case Opcode::kRcSendOnly:
    case Opcode::kRcSendOnlyImm:
      return SendOp::kSend;
    default:
      return SendOp::kWrite;
  }
}

bool is_unused(const QpView& qp) {
  return qp.state < QpState::kRtr || (qp.expected == qp.rq_psn && !qp.heard);
}

void tell(const Seen& seen, const Asking& asking, cm::InquiryAnswer& answer) {
  answer.standing = cm::Standing::kNone;
  cm::ToldQp& told = answer.qp;
  if (seen.qp) {
    const QpView& qp = *seen.qp;
    told.type = static_cast<uint8_t>(qp.type);
    told.state = static_cast<uint8_t>(qp.state);
    told.transport = static_cast<uint8_t>(qp.transport);
    if (names(qp, asking)) return tell_peer(seen, answer);
    if (!is_unused(qp)) {
      // Not even that it is there: its number is a part of what a forger has to guess.
      told = {};
      return;
    }
    answer.standing = qp.state < QpState::kRtr ? cm::Standing::kAlone : cm::Standing::kOther;
    told.names_asker_host = qp.state >= QpState::kRtr && qp.dest_ip == raw(asking.host);
    if (told.names_asker_host) told.dest_qpn = qp.dest_qpn;
    return;
  }
  told.other_qpn = seen.other_qpn;
  if (!seen.dead || !names(seen.dead->last, asking)) return;
  const DeadQpView& dead = *seen.dead;
  answer.standing = cm::Standing::kGone;
  told.type = static_cast<uint8_t>(dead.last.type);
  told.state = static_cast<uint8_t>(dead.last.state);
  told.transport = static_cast<uint8_t>(dead.last.transport);
  told.with_its_program = dead.with_its_program;
  told.pid = dead.last.pid;
  told.program = dead.last.program;
  told.gone_ms = static_cast<uint32_t>(std::min<uint64_t>(
      (seen.now_ns - std::min(dead.at_ns, seen.now_ns)) / 1'000'000, UINT32_MAX));
}

std::optional<QpView> told_qp(const cm::InquiryAnswer& answer, const QpView& own) {
  using cm::Standing;
  if (answer.standing != Standing::kOther && answer.standing != Standing::kAlone &&
      answer.standing != Standing::kPeer)
    return std::nullopt;
  const cm::ToldQp& told = answer.qp;
  QpView qp;
  qp.qpn = own.dest_qpn;
  qp.type = QpType{told.type};
  qp.state = QpState{told.state};
  qp.transport = Transport{told.transport};
  qp.uid = own.uid;  // what is told may be said
  qp.pid = told.pid;
  qp.program = told.program;
  qp.dest_qpn = told.dest_qpn;
  qp.dest_ip = told.names_asker_host ? own.source_ip : 0;
  qp.mtu_bytes = static_cast<uint16_t>(told.mtu_bytes);
  qp.rq_psn = told.rq_psn;
  qp.expected = told.expected;
  qp.transmitted = qp.una = told.sent_packets;
  qp.receives_waiting = told.receives_waiting;
  qp.shared_receives = told.shared_receives;
  qp.responder_resources = told.responder_resources;
  qp.access = answer.refusal.qp_access;
  qp.refused_its_peer = told.has_refused;
  qp.refused_code = wire::NakCode{answer.refusal.code};
  qp.refused.key = answer.refusal.key;
  qp.refused.va = answer.refusal.va;
  qp.refused.length_bytes = answer.refusal.length_bytes;
  qp.refused.packet_bytes = answer.refusal.packet_bytes;
  qp.refused_receive_bytes = answer.refusal.receive_bytes;
  return qp;
}

KeyView told_key(const cm::ToldRefusal& refusal, uint32_t key, uint64_t va, uint64_t length_bytes) {
  KeyView view;
  // It was another request that was refused: nothing is known of this one's key.
  if (refusal.key != key) return view;
  view.fault = KeyFault{refusal.fault};
  view.is_window = refusal.is_window;
  view.key = key;
  view.va = va;
  view.length_bytes = length_bytes;
  view.region_va = refusal.region_va;
  view.region_bytes = refusal.region_bytes;
  view.wanted_access = refusal.wanted_access;
  view.region_access = refusal.region_access;
  // A part of the request was refused, and it is the whole that is asked about now.
  const bool is_within = va >= view.region_va && length_bytes <= view.region_bytes &&
                         va - view.region_va <= view.region_bytes - length_bytes;
  if (view.fault == KeyFault::kBounds && is_within) {
    view.va = refusal.va;
    view.length_bytes = refusal.length_bytes;
  }
  return view;
}

}  // namespace hostnic
