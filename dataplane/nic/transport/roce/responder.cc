// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/transport/roce/responder.h"

#include "dataplane/nic/execute/atomic_record.h"
#include "dataplane/nic/limits.h"
#include "dataplane/nic/packet/packet.h"
#include "dataplane/nic/transport/path_mtu.h"

namespace hostnic {
namespace {

using wire::AckKind;
using wire::Opcode;
using Place = ReceiveWindow::Place;

bool is_write(Opcode opcode) {
  return opcode >= Opcode::kRcWriteFirst && opcode <= Opcode::kRcWriteOnlyImm;
}
bool is_send_with_invalidate(Opcode opcode) {
  return opcode == Opcode::kRcSendLastInv || opcode == Opcode::kRcSendOnlyInv;
}
bool is_rc_atomic(Opcode opcode) {
  return opcode == Opcode::kRcCompareSwap || opcode == Opcode::kRcFetchAdd;
}

bool has_immediate(const wire::Packet& p) {
  return wire::find_opcode(wire::Dialect::kRocev2, p.opcode)->has_imm;
}

MessageKind kind_of(const wire::Packet& p) {
  return {.is_write = is_write(p.opcode),
          .has_imm = has_immediate(p),
          .has_inv = is_send_with_invalidate(p.opcode)};
}

}  // namespace

void RoceResponder::receive(QpContext& qp, const wire::Packet& p, rte_mbuf* packet) {
  executor_.note_arrival(qp);
  const ReceiveWindow::Place where = qp.requests.window.classify(p.psn);
  if (qp.fatal) {
    // READs and atomics that executed before are answered to their end: the NAK says nothing about
    // them. It is said again, since the first may be lost.
    const bool answered = p.opcode == Opcode::kRcReadRequest || is_rc_atomic(p.opcode);
    if (answered && where == Place::kOld)
      receive_duplicate(qp, p);
    else
      answers_.owe_nak(qp, AckKind::kNak);
    return;
  }
  switch (where) {
    case Place::kExpected:
      if (take_expected(qp, p, payload_of(packet, p)).kind == Outcome::kNotNow) {
        hold_expected(qp, p, packet);
      } else if (qp.requests.window.expected_received() && !qp.fatal) {
        advance(qp);
      }
      return;
    case Place::kOld:
      counters_.add(Counter::duplicate_request);
      receive_duplicate(qp, p);
      return;
    case Place::kReceived:
      counters_.add(Counter::duplicate_request);
      receive_ahead(qp);
      return;
    case Place::kAhead:
      counters_.add(Counter::out_of_sequence);
      hold(qp, p, packet);
      receive_ahead(qp);
      return;
    case Place::kBeyond:
      counters_.add(Counter::out_of_window);
      receive_ahead(qp);
      return;
  }
}

// Says once which PSN is missing, when something arrives that was sent after it. What is held from
// before the gap was answered says nothing: its sender repeats all that is behind the gap, and what
// it repeats tells whether another packet is lost.
void RoceResponder::receive_ahead(QpContext& qp) {
  RoceConnection& connection = *qp.roce;
  if (qp.requests.window.expected_received()) return;  // held as well, and executes in a later turn
  if (connection.gap_answered) return;
  counters_.add(Counter::packet_seq_err);
  connection.gap_answered = true;
  answers_.owe_nak(qp, AckKind::kNak);
}

// Holds a copy of a packet: buffers of ports are few, and those of the virtual wire refer to the
// sender's memory. After an RNR NAK nothing is held: its sender waits, and repeats it.
void RoceResponder::hold(QpContext& qp, const wire::Packet& p, rte_mbuf* packet) {
  if (settings_.policy == wire::Policy::kGoBackN || qp.roce->not_ready) return;
  if (!reorder_.enter(qp.requests, p.psn, packet)) return;
  qp.requests.window.set(p.psn);
}

// Holds the expected packet, which a later turn executes: its sender may have ended its queue pair,
// and repeat nothing. Without room for it all is as if the network had lost it.
void RoceResponder::hold_expected(QpContext& qp, const wire::Packet& p, rte_mbuf* packet) {
  if (!reorder_.enter(qp.requests, p.psn, packet)) return drop_held(qp);
  qp.requests.window.set(p.psn);
  advance_list_.add(qp);
}

void RoceResponder::drop_held(QpContext& qp) {
  ReceiveWindow& window = qp.requests.window;
  if (!window.has_hole()) return;
  reorder_.drop(qp.requests);
  window.reset(window.expected(), window.window());
}

// Passes the PSNs of a request that has executed. What is held behind the first of them, where a
// READ has its answers, no sender can have meant.
void RoceResponder::pass(QpContext& qp, uint32_t psns) {
  ReceiveWindow& window = qp.requests.window;
  for (; psns != 0 && window.has_hole(); --psns) {
    if (window.expected_received()) {
      rte_mbuf* const packet = reorder_.release_slot(qp.requests, window.expected()).packet();
      rte_pktmbuf_free(packet);
      window.advance();
    } else {
      window.accept_in_order();
    }
  }
  window.accept_in_order(psns);
}

// Executes the expected request, whether it has just arrived or was held.
Outcome RoceResponder::take_expected(QpContext& qp, const wire::Packet& p,
                                     std::span<const std::byte> payload) {
  RoceConnection& connection = *qp.roce;
  const Outcome outcome = execute(qp, p, payload);
  switch (outcome.kind) {
    case Outcome::kDone:
      connection.gap_answered = connection.not_ready = false;
      // A NAK about what has come meanwhile is not said any more.
      connection.nak = qp.fatal ? connection.nak : AckKind::kAck;
      if (p.ack_request) answers_.owe_ack(qp);
      break;
    case Outcome::kNoReceive:
      counters_.add(Counter::rnr_nak_sent);
      connection.gap_answered = connection.not_ready = true;
      drop_held(qp);
      answers_.owe_nak(qp, AckKind::kRnrNak);
      break;
    case Outcome::kNotNow:
      connection.gap_answered = connection.not_ready = false;
      break;
    case Outcome::kRefused: {
      if (!qp.fatal) qp.refused = RefusedRequest::of(p, qp.recv_next_sn);
      const RefusalMeaning& meaning = executor_.refuse(qp, qp.recv_next_sn, outcome.refusal);
      answers_.refuse(qp, p.psn, meaning.code, meaning.event);
      drop_held(qp);
      break;
    }
  }
  return outcome;
}

void RoceResponder::advance(QpContext& qp) {
  const ReceiveWindow& window = qp.requests.window;
  const Psn first = window.expected();
  uint32_t budget = kAdvanceBudget;
  while (window.expected_received() && !qp.fatal && budget-- != 0) {
    rte_mbuf* const packet = qp.requests.waiting(window.expected()).packet();
    const wire::Packet p = held_headers(packet, wire::Dialect::kRocev2);
    if (!take_expected(qp, p, payload_of(packet, p)).done()) break;
  }
  // One acknowledgement for all, when all have executed: where it ends a packet is missing.
  if (window.expected() != first) answers_.owe_ack(qp);
  if (window.expected_received() && !qp.fatal) advance_list_.add(qp);
}

// Answers a request that has been executed (InfiniBand 9.7.5.1.3..5).
void RoceResponder::receive_duplicate(QpContext& qp, const wire::Packet& p) {
  if (p.opcode == Opcode::kRcReadRequest) {
    const uint32_t answers = answers_of_read(p.reth.length_bytes, qp.mtu_bytes);
    // What reaches beyond what has been asked for is no repetition.
    if (distance(p.psn + answers, qp.requests.window.expected()) < 0) return;
    answers_.owe_answers(qp, {.first = p.psn,
                              .packets = answers,
                              .key = p.reth.key,
                              .va = p.reth.va,
                              .length_bytes = p.reth.length_bytes,
                              .msn = qp.msn,
                              .again = true});
    return;
  }
  if (!is_rc_atomic(p.opcode)) {
    answers_.owe_ack(qp);
    return;
  }
  if (const auto before = recorded_atomic(qp, p.psn)) {
    counters_.add(Counter::atomics_replayed);
    answers_.owe_answers(qp, {.first = p.psn,
                              .packets = 1,
                              .is_atomic = true,
                              .before = *before,
                              .msn = qp.msn,
                              .again = true});
  }
}

Outcome RoceResponder::execute(QpContext& qp, const wire::Packet& p,
                               std::span<const std::byte> payload) {
  const RoceConnection& connection = *qp.roce;
  constexpr Outcome kInvalid = refused(Refusal::kInvalidRequest);
  if (p.opcode == Opcode::kRcReadRequest || is_rc_atomic(p.opcode)) {
    const uint32_t right = is_rc_atomic(p.opcode) ? kAccessRemoteAtomic : kAccessRemoteRead;
    if (connection.in_message || !qp.takes(right)) return kInvalid;
    if (is_one_read_too_many(qp, reads_owed(qp))) return refused(Refusal::kTooManyReads);
    if (connection.answers.full()) return {.kind = Outcome::kNotNow};
    return is_rc_atomic(p.opcode) ? execute_atomic(qp, p) : execute_read(qp, p);
  }
  // First and Only begin a message, Middle and Last go on with one of their kind.
  const bool write = is_write(p.opcode);
  const bool in_order = p.cont ? connection.in_message && connection.message.is_write == write
                               : !connection.in_message;
  if (!in_order || !fits_path_mtu(qp, p) || (write && !qp.takes(kAccessRemoteWrite)))
    return kInvalid;
  return execute_message(qp, p, payload);
}

Outcome RoceResponder::execute_message(QpContext& qp, const wire::Packet& p,
                                       std::span<const std::byte> payload) {
  RoceConnection& connection = *qp.roce;
  MessageState& message = connection.message;
  const MessageKind kind = kind_of(p);
  if (!p.cont) message.begin(kind.is_write, p.reth);
  const Outcome placed = kind.is_write ? place_write(qp, p, payload) : place_send(qp, p, payload);
  if (!placed.done()) return placed;
  message.offset_bytes += payload.size();
  pass(qp, 1);
  connection.in_message = p.more;
  if (p.more) return {};
  ++qp.msn;
  if (!kind.is_write || kind.has_imm)
    executor_.complete(qp, qp.recv_next_sn, receive_end_of(p, kind, message.offset_bytes));
  return {};
}

// A SEND takes its receive with its first packet, a WRITE with immediate data with its last.
Outcome RoceResponder::place_send(QpContext& qp, const wire::Packet& p,
                                  std::span<const std::byte> payload) {
  const uint64_t offset = qp.roce->message.offset_bytes;
  return executor_.place_send(qp,
                              {.sn = qp.recv_next_sn,
                               .offset_bytes = offset,
                               .message_bytes = offset + payload.size(),
                               .invalidates = is_send_with_invalidate(p.opcode),
                               .invalidate_key = p.invalidate_rkey},
                              {.psn = p.psn}, payload);
}

Outcome RoceResponder::place_write(QpContext& qp, const wire::Packet& p,
                                   std::span<const std::byte> payload) {
  const MessageState& message = qp.roce->message;
  if (!message.fits(payload.size(), p.more)) return refused(Refusal::kMessageTooLong);
  return executor_.place_write(qp,
                               {.key = message.key,
                                .va = message.next_va(),
                                .checked_bytes = message.checked_bytes(p.cont, payload.size()),
                                .is_last = !p.more,
                                .takes_receive = has_immediate(p),
                                .sn = qp.recv_next_sn},
                               {.psn = p.psn}, payload);
}

// How many READs and atomics are owed answers, but for those that the peer asked for again.
uint32_t RoceResponder::reads_owed(const QpContext& qp) {
  uint32_t owed = 0;
  const auto& answers = qp.roce->answers;
  for (uint32_t i = 0; i < answers.size(); ++i) owed += answers.at(i).again ? 0 : 1;
  return owed;
}

Outcome RoceResponder::execute_read(QpContext& qp, const wire::Packet& p) {
  const Outcome looked = executor_.look_at_read(
      qp, {.read = p.reth, .length_bytes = p.reth.length_bytes, .psn = p.psn});
  if (!looked.done()) return looked;
  const uint32_t answers = answers_of_read(p.reth.length_bytes, qp.mtu_bytes);
  pass(qp, answers);
  ++qp.msn;
  answers_.owe_answers(qp, {.first = p.psn,
                            .packets = answers,
                            .key = p.reth.key,
                            .va = p.reth.va,
                            .length_bytes = p.reth.length_bytes,
                            .msn = qp.msn});
  return {};
}

Outcome RoceResponder::execute_atomic(QpContext& qp, const wire::Packet& p) {
  uint64_t before = 0;
  const Outcome executed =
      executor_.execute_atomic(qp, p.atomic, p.opcode == Opcode::kRcCompareSwap, p.psn, before);
  if (!executed.done()) return executed;
  if (p.psn == qp.requests.window.expected()) pass(qp, 1);
  ++qp.msn;
  answers_.owe_answers(
      qp, {.first = p.psn, .packets = 1, .is_atomic = true, .before = before, .msn = qp.msn});
  return {};
}

}  // namespace hostnic
