// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/transport/hostnic/responder.h"

#include <rte_branch_prediction.h>

#include "dataplane/nic/execute/atomic_record.h"

namespace hostnic {
namespace {

using Place = ReceiveWindow::Place;
using wire::Opcode;

bool is_send(Opcode opcode) {
  return opcode == Opcode::kSend || opcode == Opcode::kSendImm || opcode == Opcode::kSendInv;
}
bool is_atomic(Opcode opcode) {
  return opcode == Opcode::kCompareSwap || opcode == Opcode::kFetchAdd;
}

// The receive that a SEND's packet, or the last of a WRITE with immediate data, names.
uint32_t receive_sn(const wire::Packet& p) { return is_send(p.opcode) ? p.reth.key : p.recv_sn; }

ReceiveEnd receive_end_in(const wire::Packet& p) {
  const bool is_write = p.opcode == Opcode::kWriteImm;
  return hostnic::receive_end_of(p,
                                 {.is_write = is_write,
                                  .has_imm = is_write || p.opcode == Opcode::kSendImm,
                                  .has_inv = p.opcode == Opcode::kSendInv},
                                 is_write ? p.message_bytes : p.reth.length_bytes);
}

}  // namespace

void Responder::receive(QpContext& qp, const wire::Packet& p, rte_mbuf* packet) {
  ReceiveWindow& window = qp.requests.window;
  executor_.note_arrival(qp);
  if (unlikely(congestion_experienced(p))) qp.congestion_seen = true;
  const Place where = window.classify(p.psn);
  if (unlikely(qp.fatal)) {
    // The NAK is repeated for whatever is not settled yet (rule 28). READs and atomics that
    // executed before are answered to their end.
    if (where == Place::kOld) {
      const bool answered = p.opcode == Opcode::kReadRequest || is_atomic(p.opcode);
      if (answered) receive_old_request(qp, p);
    } else {
      acks_.owe(qp, p, false);
    }
    return;
  }
  if (unlikely(p.policy != policy_at_once_)) {
    if (p.policy != policy_) {
      // Both ends must lose and recover by the same rules (rule 30).
      counters_.add(Counter::policy_mismatch);
      refuse(qp, p, refused(Refusal::kInvalidRequest));
      return;
    }
    if (where == Place::kExpected && acknowledge_unseen(qp, p, packet)) return;
  }
  switch (where) {
    case Place::kExpected: {
      if (!place_write(qp, p, payload_of(packet, p)) && !execute_expected(qp, p, packet)) return;
      const bool filled_hole = window.has_hole();
      window.accept_in_order();
      if (!p.more) ++qp.msn;
      note_message(qp, p);
      if (unlikely(filled_hole)) advance(qp);
      if (p.ack_request || filled_hole || ++qp.unacknowledged >= kAckEvery) acks_.owe(qp, p, false);
      return;
    }
    case Place::kAhead:
      counters_.add(Counter::out_of_sequence);
      if (!window.has_hole()) counters_.add(Counter::packet_seq_err);
      // Under go-back-N only the expected packet is taken; the ACK says what came instead.
      if (policy_ == wire::Policy::kGoBackN) {
        acks_.owe(qp, p, false);
      } else if (accept_ahead(qp, p, packet)) {
        note_message(qp, p);
        acks_.owe(qp, p, false);
      }
      return;
    case Place::kReceived:
      counters_.add(Counter::duplicate_request);
      if (p.attempt != 0) acks_.doubt_peer(qp);
      note_message(qp, p);
      acks_.owe(qp, p, true);
      return;
    case Place::kOld:
      counters_.add(Counter::duplicate_request);
      if (p.attempt != 0) acks_.doubt_peer(qp);
      note_message(qp, p);
      receive_old_request(qp, p);
      return;
    case Place::kBeyond:
      counters_.add(Counter::out_of_window);
      acks_.owe(qp, p, false);
      return;
  }
}

// Executes any expected request but a WRITE that place_write() takes. Returns false if its PSN
// stays the expected one.
bool Responder::execute_expected(QpContext& qp, const wire::Packet& p, rte_mbuf* packet) {
  if (unlikely(settings_.adversary_seed != 0) && refuses_on_purpose(qp, p)) {
    refuse(qp, p, {.kind = Outcome::kNoReceive});
    return false;
  }
  if (unlikely(is_atomic(p.opcode) && reads_unanswered(qp))) {
    hold_expected(qp, p, packet);
    return false;
  }
  const Outcome outcome = execute(qp, p, payload_of(packet, p), /*ahead=*/false);
  if (likely(outcome.kind == Outcome::kDone)) return true;
  if (outcome.kind == Outcome::kNotNow) hold_expected(qp, p, packet);
  refuse(qp, p, outcome);
  return false;
}

// Holds the expected packet, which a later turn executes: its sender may have ended its queue pair,
// and repeat nothing (rule 28). Without room for it the sender has to.
void Responder::hold_expected(QpContext& qp, const wire::Packet& p, rte_mbuf* packet) {
  if (!reorder_.enter(qp.requests, p.psn, packet)) {
    executor_.end_split_atomic(qp);
    return;
  }
  note_message(qp, p);
  qp.requests.window.set(p.psn);
  advance_list_.add(qp);
}

void Responder::note_message(QpContext& qp, const wire::Packet& p) {
  if (policy_ == wire::Policy::kWholeMessage) qp.messages.note(p.psn, p.cont, p.more, p.attempt);
}

// Takes a request that has been executed: a pull of a READ's next range, a duplicate atomic, or a
// plain duplicate.
void Responder::receive_old_request(QpContext& qp, const wire::Packet& p) {
  if (p.opcode == Opcode::kReadRequest) {
    if (p.read.length_bytes != 0) {
      // The key may have been good when the READ executed and be so no longer.
      const Outcome outcome = execute_read(qp, p);
      if (outcome.kind == Outcome::kRefused) refuse_old_read(qp, p, outcome);
    }
    if (p.ack_request) acks_.owe(qp, p, false);
    return;
  }
  if (is_atomic(p.opcode) && p.read.length_bytes != 0) {
    if (const auto before = recorded_atomic(qp, p.psn)) {
      counters_.add(Counter::atomics_replayed);
      reads_.answer_atomic(qp, p, *before);
    }
  }
  // An atomic that asks for no ACK is a pull.
  if (!is_atomic(p.opcode) || p.ack_request) acks_.owe(qp, p, !is_atomic(p.opcode));
}

// Whether a packet waits in the reorder buffer (rule 10, tails wait): it must not be visible before
// all that precedes it, or can only execute in order.
bool Responder::needs_reorder_buffer(const wire::Packet& p) const {
  switch (p.opcode) {
    case Opcode::kReadRequest:
    case Opcode::kCompareSwap:
    case Opcode::kFetchAdd:
    case Opcode::kWriteImm:
    case Opcode::kSendInv:
      return true;
    case Opcode::kWriteOnly: {
      if (settings_.ordering == Ordering::kStrict) return true;
      if (p.more || !tails_wait(settings_.ordering)) return false;
      const MemoryRegionEntry* region = placement_.regions().find(p.reth.key);
      return region == nullptr || (region->access & kAccessRelaxedOrdering) == 0;
    }
    default:
      return settings_.ordering == Ordering::kStrict;
  }
}

// Takes a packet ahead of the expected PSN. If anything about it is wrong or lacking, it is dropped
// with its bit unset, which is always safe (rule 6).
bool Responder::accept_ahead(QpContext& qp, const wire::Packet& p, rte_mbuf* packet) {
  const bool consumes_receive = is_send(p.opcode) || p.opcode == Opcode::kWriteImm;
  if (consumes_receive) {
    const uint32_t sn = receive_sn(p);
    // The receive is checked here also for packets that will be buffered: at the expected PSN a
    // buffered packet can't answer RNR any more (rule 13).
    if (serial_distance(qp.recv_next_sn, sn) < 0 ||
        !executor_.check_receive(qp, sn, /*ahead=*/true).done()) {
      return false;
    }
  }
  if (needs_reorder_buffer(p)) {
    if (!reorder_.enter(qp.requests, p.psn, packet)) return false;
    if (unlikely(settings_.adversary_seed != 0)) place_write_early(qp, p, packet);
  } else {
    const bool ends_send = is_send(p.opcode) && !p.more;
    if (ends_send && !reorder_.take_slot(qp.requests, p.psn, ReorderSlot::receive_end(p.reth.key)))
      return false;
    const Outcome outcome = execute(qp, p, payload_of(packet, p), /*ahead=*/true);
    if (outcome.kind != Outcome::kDone) {
      if (ends_send) reorder_.release_slot(qp.requests, p.psn);
      // A wrong key ends the connection, when its turn comes: whoever guesses has one guess. What
      // is put off must not depend on being sent again (rule 28).
      const bool is_wrong_key = outcome.kind == Outcome::kRefused &&
                                meaning_of(outcome.refusal).code == wire::NakCode::kRemoteAccess;
      const bool is_held = is_wrong_key || outcome.kind == Outcome::kNotNow;
      if (!is_held || !reorder_.enter(qp.requests, p.psn, packet)) return false;
    } else if (ends_send) {
      ReceiveQueues::write(qp, p.reth.key, receive_end_in(p), RecvStatus::kSuccess);
    }
  }
  qp.requests.window.set(p.psn);
  return true;
}

Outcome Responder::execute(QpContext& qp, const wire::Packet& p, std::span<const std::byte> payload,
                           bool ahead, uint32_t packets) {
  constexpr Outcome kInvalid = refused(Refusal::kInvalidRequest);
  if (unlikely(!fits_path_mtu(qp, p))) return kInvalid;
  switch (p.opcode) {
    case Opcode::kWriteOnly:
    case Opcode::kWriteImm:
      return qp.takes(kAccessRemoteWrite) ? execute_write(qp, p, payload, ahead, packets)
                                          : kInvalid;
    case Opcode::kSend:
    case Opcode::kSendImm:
    case Opcode::kSendInv:
      return execute_send(qp, p, payload, ahead, packets);
    case Opcode::kReadRequest:
      if (!qp.takes(kAccessRemoteRead)) return kInvalid;
      return has_too_many_reads(qp, p) ? refused(Refusal::kTooManyReads) : execute_read(qp, p);
    default:
      if (!qp.takes(kAccessRemoteAtomic)) return kInvalid;
      return has_too_many_reads(qp, p) ? refused(Refusal::kTooManyReads) : execute_atomic(qp, p);
  }
}

// Whether the peer has more READs and atomics outstanding than this end serves at a time.
bool Responder::has_too_many_reads(const QpContext& qp, const wire::Packet& p) {
  return is_one_read_too_many(qp, serial_distance(qp.reads_answered, p.read.read_number));
}

Outcome Responder::execute_write(QpContext& qp, const wire::Packet& p,
                                 std::span<const std::byte> payload, bool ahead, uint32_t packets) {
  const bool takes_receive = p.opcode == Opcode::kWriteImm;  // never placed ahead
  if (takes_receive) {
    qp.takes_receives = true;
    if (p.recv_sn != qp.recv_next_sn) return refused(Refusal::kInvalidRequest);
  }
  const Outcome placed = executor_.place_write(qp,
                                               {.key = p.reth.key,
                                                .va = p.reth.va,
                                                .checked_bytes = payload.size(),
                                                .is_last = !p.more,
                                                .takes_receive = takes_receive,
                                                .sn = p.recv_sn},
                                               {p.psn, ahead, packets}, payload);
  if (placed.done() && takes_receive) executor_.complete(qp, p.recv_sn, receive_end_in(p));
  return placed;
}

Outcome Responder::execute_send(QpContext& qp, const wire::Packet& p,
                                std::span<const std::byte> payload, bool ahead, uint32_t packets) {
  const uint32_t sn = p.reth.key;
  qp.takes_receives = true;
  if (!ahead && sn != qp.recv_next_sn) return refused(Refusal::kInvalidRequest);
  const Outcome placed = executor_.place_send(qp,
                                              {.sn = sn,
                                               .offset_bytes = p.reth.va,
                                               .message_bytes = p.reth.length_bytes,
                                               .invalidates = p.opcode == Opcode::kSendInv,
                                               .invalidate_key = p.invalidate_rkey},
                                              {p.psn, ahead, packets}, payload);
  if (placed.done() && !ahead && !p.more) executor_.complete(qp, sn, receive_end_in(p));
  return placed;
}

Outcome Responder::execute_read(QpContext& qp, const wire::Packet& p) {
  // Memory that is pulled later is looked at then.
  const Outcome looked = executor_.look_at_read(qp, {.read = p.reth,
                                                     .offset_bytes = p.read.offset_bytes,
                                                     .length_bytes = p.read.length_bytes,
                                                     .psn = p.psn});
  if (!looked.done()) return looked;
  if (p.reth.length_bytes == 0) {
    note_read_answered(qp, p.read.read_number);
  } else if (p.read.length_bytes != 0) {
    reads_.queue(qp, p);  // a pull that finds no room is not answered: the requester pulls again
  }
  return {};
}

// Whether READs before an atomic still have to read their memory, which they do before it
// (InfiniBand 10.8.3.3).
bool Responder::reads_unanswered(const QpContext& qp) const {
  return qp.answers_in_line != 0 || qp.answers.any_out();
}

Outcome Responder::execute_atomic(QpContext& qp, const wire::Packet& p) {
  if (reads_unanswered(qp)) return {.kind = Outcome::kNotNow};
  if (unlikely(settings_.adversary_seed != 0) && put_off_atomic(qp, p))
    return {.kind = Outcome::kNotNow};
  uint64_t before = 0;
  const Outcome executed =
      executor_.execute_atomic(qp, p.atomic, p.opcode == Opcode::kCompareSwap, p.psn, before);
  if (executed.done() && p.read.length_bytes != 0) reads_.answer_atomic(qp, p, before);
  return executed;
}

// Says that the expected packet can't be accepted, and remembers it (rules 6, 15, 28).
void Responder::refuse(QpContext& qp, const wire::Packet& p, const Outcome& outcome) {
  switch (outcome.kind) {
    case Outcome::kDone:
      return;
    case Outcome::kNotNow:
      // An ACK that is sent for what is put off, too, breaks the silence: the requester repeats the
      // packet, and does not count.
      break;
    case Outcome::kNoReceive:
      qp.ack_kind = wire::AckKind::kRnrNak;
      qp.rnr_sn = receive_sn(p);
      counters_.add(Counter::rnr_nak_sent);
      break;
    case Outcome::kRefused: {
      settle(qp);
      qp.refused = RefusedRequest::of(p, qp.recv_next_sn);
      const RefusalMeaning& meaning = executor_.refuse(qp, receive_sn(p), outcome.refusal);
      qp.fatal = true;
      qp.fatal_code = meaning.code;
      qp.fatal_psn = p.psn;
      counters_.add(Counter::nak_sent);
      reports_.publish_event(qp, meaning.event);
      break;
    }
  }
  acks_.owe(qp, p, false);
}

// Refuses a range of a READ that has executed. If the READ was never answered to its end, it waits
// for this range: that is an error of its PSN, which the window has passed; the NAK goes with the
// expected PSN and names the READ. Whether a READ that was answered still misses anything only its
// requester knows: to it the NAK is an error, or the echo of a pull that the network has delayed or
// repeated. So this end does not fail; it says so once, and a requester that misses something asks
// again.
void Responder::refuse_old_read(QpContext& qp, const wire::Packet& p, const Outcome& outcome) {
  const bool waits = serial_distance(qp.reads_answered, p.read.read_number) >= 0;
  if (waits) {
    if (!qp.fatal || before(p.psn, qp.fatal_psn)) refuse(qp, p, outcome);
    return;
  }
  qp.old_read_refused = true;
  qp.old_read_psn = p.psn;
  counters_.add(Counter::nak_sent);
  acks_.owe(qp, p, false);
}

// Advances over everything received, processing slots in PSN order (rule 8).
void Responder::advance(QpContext& qp) {
  ReceiveSpace& space = qp.requests;
  uint32_t budget = kAdvanceBudget;
  while (space.window.expected_received() && !qp.fatal) {
    if (unlikely(qp.unseen)) {
      if (now_ < qp.unseen_write.until_ns || !show_unseen(qp, /*or_forget=*/false)) break;
      continue;
    }
    if (space.pass_placed() != 0) continue;
    if (budget-- == 0) break;
    const Psn psn = space.window.expected();
    const ReorderSlot slot = space.waiting(psn);
    if (rte_mbuf* packet = slot.packet(); packet != nullptr) {
      const wire::Packet p = valid_headers(packet);
      const auto payload = slot.is_placed() ? std::span<const std::byte>() : payload_of(packet, p);
      const Outcome outcome = execute(qp, p, payload, /*ahead=*/false);
      if (outcome.kind == Outcome::kRefused) {
        refuse(qp, p, outcome);
        return;
      }
      if (outcome.kind != Outcome::kDone) break;  // room will come; processed in a later turn
      if (!p.more) ++qp.msn;
      reorder_.release_slot(space, psn);
      rte_pktmbuf_free(packet);
    } else if (!slot.empty()) {
      reorder_.release_slot(space, psn);
      if (slot.sn() != qp.recv_next_sn) {
        wire::Packet last;
        last.psn = psn;
        refuse(qp, last, refused(Refusal::kInvalidRequest));
        return;
      }
      receives_.publish(qp, slot.sn());
      ++qp.msn;
    }
    space.window.advance();
  }
  space.early_writes.release_before(placement_.early_writes(), space.window.expected());
  if (space.window.expected_received() && !qp.fatal) advance_list_.add(qp);
}

}  // namespace hostnic
