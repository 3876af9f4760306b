// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/transport/roce/answers.h"

#include <algorithm>
#include <array>
#include <utility>

#include "dataplane/nic/limits.h"
#include "dataplane/nic/memory/region_access.h"
#include "dataplane/nic/transport/answer_bytes.h"

namespace hostnic {
namespace {

using wire::AckKind;
using wire::Opcode;

// Acknowledgements that leave in a turn.
constexpr uint32_t kAcksPerTurn = 64;
// The value of AETH that says that credit is not counted (InfiniBand 9.7.7.2.1).
constexpr uint8_t kNoCredit = 31;
constexpr std::array<std::byte, 16> kCnpReserved{};

Opcode read_opcode(const RoceAnswer& answer) {
  const bool first = answer.sent == 0, last = answer.sent + 1 == answer.packets;
  if (first) return last ? Opcode::kRcReadOnly : Opcode::kRcReadFirst;
  return last ? Opcode::kRcReadLast : Opcode::kRcReadMiddle;
}

}  // namespace

RoceAnswers::RoceAnswers(const TransportServices& nic)
    : egress_(nic.egress),
      placement_(nic.placement),
      reports_(nic.reports),
      counters_(nic.counters),
      now_(nic.now),
      lines_(nic.answer_lines) {
  acks_owed_.reserve(nic.settings.nic_qps);
  waiting_for_rate_.reserve(nic.settings.nic_qps);
}

// Has the acknowledgement leave that is owed: at once, or behind the answers.
void RoceAnswers::add(QpContext& qp) {
  if (qp.on_ack_list || !qp.roce->answers.empty()) return;
  qp.on_ack_list = true;
  acks_owed_.push_back(&qp);
}

void RoceAnswers::owe_ack(QpContext& qp) {
  qp.ack_owed = true;
  add(qp);
}

void RoceAnswers::owe_nak(QpContext& qp, AckKind kind) {
  qp.roce->nak = kind;
  add(qp);
}

bool RoceAnswers::owe_answers(QpContext& qp, const RoceAnswer& answer) {
  if (qp.roce->answers.full()) return false;
  qp.roce->answers.push(answer);
  if (qp.answers_in_line == 0 && !qp.roce->waits_for_rate) lines_.add_qp(qp);
  return true;
}

void RoceAnswers::refuse(QpContext& qp, Psn psn, wire::NakCode code, uint32_t event) {
  if (qp.fatal) return;
  qp.fatal = true;
  qp.fatal_code = code;
  qp.fatal_psn = psn;
  counters_.add(Counter::nak_sent);
  owe_nak(qp, AckKind::kNak);
  if (event != 0) reports_.publish_event(qp, event);
}

void RoceAnswers::forget(QpContext& qp) {
  if (qp.on_ack_list) std::erase(acks_owed_, &qp);
  qp.on_ack_list = qp.ack_owed = false;
  lines_.forget(qp);
  if (qp.roce == nullptr) return;
  if (std::exchange(qp.roce->waits_for_rate, false)) std::erase(waiting_for_rate_, &qp);
  qp.roce->answers.clear();
  qp.roce->requests.clear();
  qp.roce->nak = AckKind::kAck;
}

uint32_t RoceAnswers::send_acks() {
  uint32_t sent = 0;
  size_t kept = 0, looked_at = 0;
  for (; looked_at != acks_owed_.size() && sent != kAcksPerTurn; ++looked_at) {
    QpContext& qp = *acks_owed_[looked_at];
    // Answers that are owed since then go first. If what is held has not all executed, the
    // responder says when.
    const bool waits = !qp.roce->answers.empty() ||
                       (qp.on_advance_list && qp.requests.window.expected_received() && !qp.fatal);
    if (!waits && !send_ack(qp)) {
      acks_owed_[kept++] = &qp;
      continue;
    }
    qp.on_ack_list = false;
    sent += waits ? 0 : 1;
  }
  // Queue pairs that had no turn come first next time.
  const auto not_looked_at = acks_owed_.begin() + static_cast<std::ptrdiff_t>(looked_at);
  std::rotate(acks_owed_.begin(), not_looked_at, acks_owed_.end());
  acks_owed_.resize(acks_owed_.size() - looked_at + kept);
  return sent;
}

void RoceAnswers::wait_for_rate(QpContext& qp) {
  qp.roce->waits_for_rate = true;
  waiting_for_rate_.push_back(&qp);
  next_by_rate_ns_ = std::min(next_by_rate_ns_, qp.roce->answer_limiter.wake_ns());
}

void RoceAnswers::resume() {
  if (now_ < next_by_rate_ns_) return;
  next_by_rate_ns_ = UINT64_MAX;
  std::erase_if(waiting_for_rate_, [this](QpContext* qp) {
    if (!rate_allows(*qp->roce)) {
      next_by_rate_ns_ = std::min(next_by_rate_ns_, qp->roce->answer_limiter.wake_ns());
      return false;
    }
    qp->roce->waits_for_rate = false;
    lines_.add_qp(*qp);
    return true;
  });
}

// Whether the next answer may leave now, by the rate that congestion has left.
bool RoceAnswers::rate_allows(RoceConnection& connection) {
  DcqcnLimiter& limiter = connection.answer_limiter;
  if (!limiter.limited()) return true;
  limiter.advance(now_);
  count_recoveries(connection);
  return !limiter.limited() || limiter.packets(0) != 0;
}

void RoceAnswers::count_recoveries(RoceConnection& connection) {
  const uint32_t recoveries = connection.answer_limiter.rate().recoveries();
  counters_.add(Counter::rate_recoveries, recoveries - connection.answer_recoveries);
  connection.answer_recoveries = recoveries;
}

void RoceAnswers::slow_down(QpContext& qp) {
  // What the network has marked may be requests, whose driver sees to them.
  if (!qp.roce->answered) return;
  qp.roce->answered = false;
  counters_.add(Counter::rate_cuts, qp.roce->answer_limiter.on_cnp(now_));
}

AnswerStep RoceAnswers::serve(QpContext& qp) {
  using Then = AnswerStep::Then;
  RoceConnection& connection = *qp.roce;
  if (!rate_allows(connection)) {
    wait_for_rate(qp);
    return {.then = Then::kOver};
  }
  RoceAnswer& answer = connection.answers.front();
  AnswerStep step{.then = Then::kGoesOn, .done = 1};
  switch (send_answer(qp, answer, step.payload_bytes)) {
    case Sent::kNoRoom:
      return {.then = Then::kStopped};
    case Sent::kNever:
      connection.answers.clear();
      break;
    case Sent::kYes:
      step.packets = 1;
      if (++answer.sent == answer.packets) connection.answers.pop_front();
      break;
  }
  if (!connection.answers.empty()) return step;
  step.then = Then::kOver;
  if (qp.ack_owed || connection.nak != AckKind::kAck) add(qp);
  return step;
}

// Sends the next packet of an answer; its payload's length is `payload_bytes` then.
RoceAnswers::Sent RoceAnswers::send_answer(QpContext& qp, RoceAnswer& answer,
                                           uint32_t& payload_bytes) {
  if (!egress_.paths().prepare_flows(qp)) {
    counters_.add(Counter::tx_unresolved);
    return Sent::kNever;  // as if the network had lost them
  }
  if (!egress_.has_room(qp.peer)) return Sent::kNoRoom;
  wire::Packet p;
  p.dest_qpn = Qpn{qp.dest_qpn};
  p.psn = answer.first + answer.sent;
  p.aeth = {AckKind::kAck, kNoCredit, answer.msn & 0xffffff};
  rte_mbuf* packet = nullptr;
  bool gone = false;
  if (answer.is_atomic) {
    p.opcode = Opcode::kRcAtomicAck;
    p.atomic_before = answer.before;
    packet = egress_.build_small(qp.response_flow, p, {}, {}, egress_.pools().control);
    payload_bytes = sizeof(answer.before);
  } else {
    p.opcode = read_opcode(answer);
    const uint32_t sent_bytes = answer.sent * qp.mtu_bytes;
    p.payload_bytes =
        static_cast<uint16_t>(std::min<uint32_t>(qp.mtu_bytes, answer.length_bytes - sent_bytes));
    packet = build_read_answer(qp, answer, p, gone);
    payload_bytes = p.payload_bytes;
  }
  if (gone) {
    // A requester that asks again may have the answer and have taken the key back since: what the
    // network delayed must not end the connection. One that misses it hears nothing, and gives up.
    if (answer.again) return Sent::kNever;
    refuse(qp, p.psn, wire::NakCode::kRemoteAccess, kEventAccessError);
    return Sent::kNever;
  }
  if (packet == nullptr) return Sent::kNoRoom;
  if (answer.sent == 0 && !answer.is_atomic) counters_.add(Counter::read_requests_served);
  egress_.emit(packet, qp.peer);
  qp.roce->answered = true;
  if (qp.roce->answer_limiter.limited()) [[unlikely]] {
    qp.roce->answer_limiter.take(1, p.payload_bytes);
    count_recoveries(*qp.roce);
  }
  return Sent::kYes;
}

// Copies an answer behind its headers. Returns null if there is no buffer, or the memory is not to
// be read now, or it is `gone`.
rte_mbuf* RoceAnswers::build_read_answer(QpContext& qp, const RoceAnswer& answer,
                                         const wire::Packet& p, bool& gone) {
  const uint64_t va = answer.va + uint64_t{answer.sent} * qp.mtu_bytes;
  RemoteRange range;
  if (p.payload_bytes != 0) {
    range = placement_.remote_range(qp.scope(), answer.key, va, p.payload_bytes, kAccessRemoteRead);
    gone = range.region == nullptr;
    if (gone) return nullptr;
  }
  return build_copied_answer(egress_, placement_, counters_, qp.response_flow, p, range,
                             {&qp, p.psn.value()}, gone);
}

// Sends the acknowledgement or NAK. Returns false if there is no room now.
bool RoceAnswers::send_ack(QpContext& qp) {
  RoceConnection& connection = *qp.roce;
  if (!egress_.paths().prepare_flows(qp)) {
    counters_.add(Counter::tx_unresolved);
    qp.ack_owed = false;
    connection.nak = AckKind::kAck;
    return true;
  }
  if (!egress_.has_room_for_ack(qp.peer)) return false;
  wire::Packet p;
  p.opcode = Opcode::kRcAck;
  p.dest_qpn = Qpn{qp.dest_qpn};
  p.aeth = {connection.nak, kNoCredit, qp.msn & 0xffffff};
  switch (connection.nak) {
    case AckKind::kAck:
      p.psn = qp.requests.window.expected() + Psn::kMask;  // the one before
      break;
    case AckKind::kRnrNak:
      p.psn = qp.requests.window.expected();
      p.aeth.code = qp.min_rnr_timer;
      break;
    case AckKind::kNak:
      p.psn = qp.fatal ? qp.fatal_psn : qp.requests.window.expected();
      p.aeth.code = static_cast<uint8_t>(qp.fatal ? qp.fatal_code : wire::NakCode::kPsnSequence);
      break;
  }
  rte_mbuf* packet = egress_.build_small(qp.response_flow, p, {}, {}, egress_.pools().control);
  if (packet == nullptr) return false;
  egress_.emit(packet, qp.peer);
  counters_.add(Counter::acks_sent);
  qp.ack_owed = false;
  connection.nak = AckKind::kAck;
  return true;
}

bool RoceAnswers::notify_congestion(QpContext& qp) {
  if (!egress_.paths().prepare_flows(qp) || !egress_.has_room_for_ack(qp.peer)) return false;
  wire::Packet p;
  p.opcode = Opcode::kCnp;
  p.dest_qpn = Qpn{qp.dest_qpn};
  p.becn = true;
  p.payload_bytes = kCnpReserved.size();
  rte_mbuf* packet =
      egress_.build_small(qp.response_flow, p, {}, kCnpReserved, egress_.pools().control);
  if (packet == nullptr) return false;
  egress_.emit(packet, qp.peer);
  counters_.add(Counter::cnp_sent);
  return true;
}

}  // namespace hostnic
