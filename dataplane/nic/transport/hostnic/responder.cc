// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/transport/hostnic/responder.h"

#include <rte_branch_prediction.h>

#include "dataplane/nic/memory/atomics.h"
#include "dataplane/nic/memory/region_access.h"

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

RequestResult fatal(wire::NakCode code, uint32_t event) {
  return {.kind = RequestResult::kFatal,
          .code = code,
          .event = event,
          .recv_status = std::nullopt,
          .sn = 0};
}
RequestResult invalid_request() {
  return fatal(wire::NakCode::kInvalidRequest, kEventRequestError);
}
RequestResult fatal_receive(wire::NakCode code, RecvStatus status, uint32_t sn) {
  return {.kind = RequestResult::kFatal,
          .code = code,
          .event = kEventRecvError,
          .recv_status = status,
          .sn = sn};
}

RequestResult result_of(LocalError error, uint32_t sn) {
  return error == LocalError::kLength
             ? fatal_receive(wire::NakCode::kInvalidRequest, RecvStatus::kLengthError, sn)
             : fatal_receive(wire::NakCode::kRemoteOperational, RecvStatus::kProtectionError, sn);
}

RequestResult write_refused(const wire::Packet& p) {
  RequestResult outcome = fatal(wire::NakCode::kRemoteAccess, kEventAccessError);
  if (p.opcode == Opcode::kWriteImm) {
    outcome.recv_status = RecvStatus::kAccessError;
    outcome.sn = p.recv_sn;
  }
  return outcome;
}

ReceiveEnd receive_end_of(const wire::Packet& p) {
  ReceiveEnd end;
  end.byte_len = p.opcode == Opcode::kWriteImm ? p.message_bytes : p.reth.length_bytes;
  if (p.solicited) end.flags |= kRecvSolicited;
  if (p.opcode == Opcode::kWriteImm) end.flags |= kRecvHasImm | kRecvIsWriteImm;
  if (p.opcode == Opcode::kSendImm) end.flags |= kRecvHasImm;
  if ((end.flags & kRecvHasImm) != 0) end.imm_data = p.imm_data;
  if (p.opcode == Opcode::kSendInv) {
    end.flags |= kRecvHasInv;
    end.imm_data = p.invalidate_rkey;
  }
  return end;
}

}  // namespace

void Responder::receive(QpContext& qp, const wire::Packet& p, rte_mbuf* packet) {
  ReceiveWindow& window = qp.requests.window;
  if (unlikely(qp.state == QpState::kRtr && !qp.comm_established)) {
    qp.comm_established = true;
    reports_.publish_event(qp, kEventCommEstablished);
  }
  if (unlikely(congestion_experienced(p))) qp.congestion_seen = true;
  const Place where = window.classify(p.psn);
  if (unlikely(qp.fatal)) {
    // The NAK is repeated for whatever is not settled yet (rule 28). READs and atomics that
    // executed before are answered to their end.
    if (where == Place::kOld) {
      const bool answered = p.opcode == Opcode::kReadRequest || is_atomic(p.opcode);
      if (answered && !broken(Fault::reads_end_with_a_nak)) receive_old_request(qp, p);
    } else if (!broken(Fault::fatal_nak_said_once)) {
      acks_.owe(qp, p, false);
    }
    return;
  }
  if (unlikely(p.policy != policy_) && !broken(Fault::policy_not_checked)) {
    // Both ends must lose and recover by the same rules (rule 30).
    counters_.add(Counter::policy_mismatch);
    refuse(qp, p, invalid_request());
    return;
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
      if (policy_ == wire::Policy::kGoBackN && !broken(Fault::go_back_n_takes_all)) {
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
  if (unlikely(is_atomic(p.opcode) && reads_unanswered(qp))) {
    hold_expected(qp, p, packet);
    return false;
  }
  const RequestResult outcome = execute(qp, p, payload_of(packet, p), /*ahead=*/false);
  if (likely(outcome.kind == RequestResult::kDone)) return true;
  if (outcome.kind == RequestResult::kRetry) hold_expected(qp, p, packet);
  refuse(qp, p, outcome);
  return false;
}

// Holds the expected packet, which a later turn executes: its sender may have ended its queue pair,
// and repeat nothing (rule 28). Without room for it the sender has to.
void Responder::hold_expected(QpContext& qp, const wire::Packet& p, rte_mbuf* packet) {
  if (!reorder_.enter(qp.requests, p.psn, packet)) return;
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
      const RequestResult outcome = execute_read(qp, p);
      if (outcome.kind == RequestResult::kFatal) refuse_old_read(qp, p, outcome);
    }
    if (p.ack_request) acks_.owe(qp, p, false);
    return;
  }
  if (broken(Fault::duplicate_atomic_executed) && is_atomic(p.opcode)) execute_atomic(qp, p);
  if (is_atomic(p.opcode) && p.read.length_bytes != 0 && !broken(Fault::atomic_not_replayed)) {
    for (const auto& record : qp.atomics) {
      if (record.valid && record.psn == p.psn) {
        counters_.add(Counter::atomics_replayed);
        reads_.answer_atomic(qp, p.read, record.result);
        break;
      }
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
      if (p.more || settings_.ordering == Ordering::kRelaxed) return false;
      if (broken(Fault::tail_not_buffered)) return false;
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
  if (broken(Fault::bit_set_before_place)) qp.requests.window.set(p.psn);
  const bool consumes_receive = is_send(p.opcode) || p.opcode == Opcode::kWriteImm;
  if (consumes_receive) {
    const uint32_t sn = is_send(p.opcode) ? p.reth.key : p.recv_sn;
    // The receive is checked here also for packets that will be buffered: at the expected PSN a
    // buffered packet can't answer RNR any more (rule 13).
    if (serial_distance(qp.recv_next_sn, sn) < 0 ||
        check_receive(qp, sn, /*ahead=*/true).kind != RequestResult::kDone) {
      return false;
    }
  }
  if (needs_reorder_buffer(p)) {
    if (!reorder_.enter(qp.requests, p.psn, packet)) return false;
  } else {
    const bool ends_send = is_send(p.opcode) && !p.more;
    if (ends_send && !reorder_.take_slot(qp.requests, p.psn, ReorderSlot::receive_end(p.reth.key)))
      return false;
    const RequestResult outcome = execute(qp, p, payload_of(packet, p), /*ahead=*/true);
    if (outcome.kind != RequestResult::kDone) {
      if (broken(Fault::errors_raised_ahead)) refuse(qp, p, outcome);
      if (ends_send) reorder_.release_slot(qp.requests, p.psn);
      // A wrong key ends the connection, when its turn comes: whoever guesses has one guess. What
      // is put off must not depend on being sent again (rule 28).
      const bool is_wrong_key =
          outcome.kind == RequestResult::kFatal && outcome.code == wire::NakCode::kRemoteAccess;
      const bool is_held = is_wrong_key || outcome.kind == RequestResult::kRetry;
      if (!is_held || !reorder_.enter(qp.requests, p.psn, packet)) return false;
    } else if (ends_send) {
      ReceiveQueues::write(qp, p.reth.key, receive_end_of(p), RecvStatus::kSuccess);
    }
  }
  if (!broken(Fault::bit_set_before_place)) qp.requests.window.set(p.psn);
  return true;
}

RequestResult Responder::execute(QpContext& qp, const wire::Packet& p,
                                 std::span<const std::byte> payload, bool ahead, uint32_t packets) {
  if (unlikely(!fits_path_mtu(qp, p))) return invalid_request();
  switch (p.opcode) {
    case Opcode::kWriteOnly:
    case Opcode::kWriteImm:
      return qp.takes(kAccessRemoteWrite) ? execute_write(qp, p, payload, ahead, packets)
                                          : invalid_request();
    case Opcode::kSend:
    case Opcode::kSendImm:
    case Opcode::kSendInv:
      return execute_send(qp, p, payload, ahead, packets);
    case Opcode::kReadRequest:
      return qp.takes(kAccessRemoteRead) && !has_too_many_reads(qp, p) ? execute_read(qp, p)
                                                                       : invalid_request();
    default:
      return qp.takes(kAccessRemoteAtomic) && !has_too_many_reads(qp, p) ? execute_atomic(qp, p)
                                                                         : invalid_request();
  }
}

// Whether the peer has more READs and atomics outstanding than this end has said that it serves at
// a time (InfiniBand 9.7.4.1.2, "too many RDMA READ or ATOMIC requests").
bool Responder::has_too_many_reads(const QpContext& qp, const wire::Packet& p) {
  if (broken(Fault::responder_resources_ignored)) return false;
  return qp.responder_resources == 0 ||
         serial_distance(qp.reads_answered, p.read.read_number) >= qp.responder_resources;
}

RequestResult Responder::execute_write(QpContext& qp, const wire::Packet& p,
                                       std::span<const std::byte> payload, bool ahead,
                                       uint32_t packets) {
  const bool consumes_receive = p.opcode == Opcode::kWriteImm;
  if (consumes_receive) {
    // Only the last packet of a WRITE_IMM is checked for a receive (rule 15, RNR), and it is never
    // placed ahead.
    qp.takes_receives = true;
    if (p.recv_sn != qp.recv_next_sn) return invalid_request();
    const RequestResult outcome = check_receive(qp, p.recv_sn, ahead);
    if (outcome.kind != RequestResult::kDone) return outcome;
  }
  if (!payload.empty()) {
    const RemoteRange range = placement_.remote_range(qp.scope(), p.reth.key, p.reth.va,
                                                      payload.size(), kAccessRemoteWrite);
    if (range.region == nullptr) return write_refused(p);
    const PlaceRequest request{.early_writes = qp.requests.early_writes,
                               .window = qp.requests.window,
                               .psn = p.psn,
                               .ahead = ahead,
                               .tail = !p.more,
                               .packets = packets};
    switch (placement_.place_at_once(request, *range.region, range.iova, payload)
                ? PlaceResult::kDone
                : placement_.place(request, *range.region, range.iova, payload)) {
      case PlaceResult::kDone:
        break;
      case PlaceResult::kNotNow:
        return {.kind = RequestResult::kRetry};
      case PlaceResult::kMemoryGone:
        return write_refused(p);
    }
  }
  if (consumes_receive) receives_.complete(qp, p.recv_sn, receive_end_of(p), RecvStatus::kSuccess);
  return {};
}

RequestResult Responder::execute_send(QpContext& qp, const wire::Packet& p,
                                      std::span<const std::byte> payload, bool ahead,
                                      uint32_t packets) {
  const uint32_t sn = p.reth.key;
  qp.takes_receives = true;
  if (!ahead && sn != qp.recv_next_sn) return invalid_request();
  if (const RequestResult outcome = check_receive(qp, sn, ahead);
      outcome.kind != RequestResult::kDone)
    return outcome;

  PostedReceive receive;
  if (!ReceiveQueues::load(qp, sn, receive)) {
    return fatal_receive(wire::NakCode::kRemoteOperational, RecvStatus::kProtectionError, sn);
  }
  if (p.reth.length_bytes > receive.capacity_bytes) {
    return fatal_receive(wire::NakCode::kInvalidRequest, RecvStatus::kLengthError, sn);
  }
  MemoryWindow* invalidated = nullptr;
  if (p.opcode == Opcode::kSendInv) {  // never placed ahead: what precedes it may use the window
    invalidated = windows_.invalidatable(qp.scope(), p.invalidate_rkey);
    if (invalidated == nullptr) {
      RequestResult outcome =
          fatal_receive(wire::NakCode::kRemoteAccess, RecvStatus::kAccessError, sn);
      outcome.event |= kEventAccessError;
      return outcome;
    }
  }
  ReceiveQueues::prefetch(qp, sn);
  LocalError error = LocalError::kNone;
  const PlaceRequest request{.early_writes = qp.requests.early_writes,
                             .window = qp.requests.window,
                             .psn = p.psn,
                             .ahead = ahead,
                             .tail = false,
                             .packets = packets};
  const PlaceResult result =
      placement_.scatter(qp.receive_scope(), request, receive.list(), p.reth.va, payload, error);
  if (error != LocalError::kNone || result == PlaceResult::kMemoryGone) return result_of(error, sn);
  if (result == PlaceResult::kNotNow) return {.kind = RequestResult::kRetry};
  if (invalidated != nullptr) windows_.unbind(*invalidated);
  if ((!ahead || broken(Fault::receive_completes_early)) && !p.more)
    receives_.complete(qp, sn, receive_end_of(p), RecvStatus::kSuccess);
  return {};
}

RequestResult Responder::execute_read(QpContext& qp, const wire::Packet& p) {
  // A zero-byte READ succeeds whatever its key (InfiniBand 9.7.4.1.4).
  if (p.reth.length_bytes == 0) {
    note_read_answered(qp, p.read.read_number);
  } else {
    const RemoteRange range = placement_.remote_range(qp.scope(), p.reth.key, p.reth.va,
                                                      p.reth.length_bytes, kAccessRemoteRead);
    // The memory is looked at now, because the answers can't say any more that it is missing.
    // Memory that is pulled later is looked at then.
    const MemoryAccess access = range.region == nullptr
                                    ? MemoryAccess::kGone
                                    : has_memory(*range.region, range.iova + p.read.offset_bytes,
                                                 p.read.length_bytes, {&qp, p.psn.value()});
    if (access == MemoryAccess::kNotNow) return {.kind = RequestResult::kRetry};
    if (access == MemoryAccess::kGone)
      return fatal(wire::NakCode::kRemoteAccess, kEventAccessError);
    // A pull that finds no room is not answered: the requester pulls again.
    if (p.read.length_bytes != 0) reads_.queue(qp, p);
  }
  return {};
}

// Whether READs before an atomic still have to read their memory, which they do before it
// (InfiniBand 10.8.3.3).
bool Responder::reads_unanswered(const QpContext& qp) const {
  return (qp.answers_in_line != 0 || qp.answers.any_out()) &&
         !broken(Fault::atomic_overtakes_reads);
}

RequestResult Responder::execute_atomic(QpContext& qp, const wire::Packet& p) {
  if (reads_unanswered(qp)) return {.kind = RequestResult::kRetry};
  if (p.atomic.va % 8 != 0) return invalid_request();
  const RemoteRange range =
      placement_.remote_range(qp.scope(), p.atomic.rkey, p.atomic.va, 8, kAccessRemoteAtomic);
  // In an on-demand region nothing would be atomic with the CPU's accesses (IBV_ODP_SUPPORT_ATOMIC
  // is not advertised).
  if (range.region == nullptr || (range.region->access & kAccessOnDemand) != 0)
    return fatal(wire::NakCode::kRemoteAccess, kEventAccessError);
  const AtomicOperation operation{p.opcode == Opcode::kCompareSwap, p.atomic.swap_or_add,
                                  p.atomic.compare};
  uint64_t before = 0;
  switch (execute_atomic_on(*range.region, range.iova, operation, {&qp, p.psn.value()}, before)) {
    case AtomicResult::kDone:
      break;
    case AtomicResult::kBusy:
      return {.kind = RequestResult::kRetry};
    case AtomicResult::kMemoryGone:
      return fatal(wire::NakCode::kRemoteAccess, kEventAccessError);
  }
  counters_.add(Counter::atomics_executed);
  qp.atomics[qp.atomic_next] = {true, p.psn, before};
  qp.atomic_next = (qp.atomic_next + 1) % kAtomicRecords;
  if (p.read.length_bytes != 0) reads_.answer_atomic(qp, p.read, before);
  return {};
}

// Says that the expected packet can't be accepted, and remembers it (rules 6, 15, 28).
void Responder::refuse(QpContext& qp, const wire::Packet& p, const RequestResult& outcome) {
  switch (outcome.kind) {
    case RequestResult::kDone:
      return;
    case RequestResult::kRetry:
      // An ACK that is sent for what is put off, too, breaks the silence: the requester repeats the
      // packet, and does not count.
      break;
    case RequestResult::kRnr:
      qp.ack_kind = wire::AckKind::kRnrNak;
      qp.rnr_sn = outcome.sn;
      counters_.add(Counter::rnr_nak_sent);
      break;
    case RequestResult::kFatal:
      qp.fatal = true;
      qp.fatal_code = outcome.code;
      qp.fatal_psn = p.psn;
      counters_.add(Counter::nak_sent);
      if (outcome.recv_status) receives_.complete(qp, outcome.sn, {}, *outcome.recv_status);
      reports_.publish_event(qp,
                             outcome.event | (outcome.recv_status ? uint32_t{kEventRecvError} : 0));
      break;
  }
  acks_.owe(qp, p, false);
}

// Refuses a range of a READ that has executed. If the READ was never answered to its end, it waits
// for this range: that is an error of its PSN, which the window has passed; the NAK goes with the
// expected PSN and names the READ. Whether a READ that was answered still misses anything only its
// requester knows: to it the NAK is an error, or the echo of a pull that the network has delayed or
// repeated. So this end does not fail; it says so once, and a requester that misses something asks
// again.
void Responder::refuse_old_read(QpContext& qp, const wire::Packet& p,
                                const RequestResult& outcome) {
  const bool waits = serial_distance(qp.reads_answered, p.read.read_number) >= 0;
  if (waits || broken(Fault::late_pull_is_fatal)) {
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
    if (space.pass_placed() != 0) continue;
    if (budget-- == 0) break;
    const Psn psn = space.window.expected();
    const ReorderSlot slot = space.waiting(psn);
    if (rte_mbuf* packet = slot.packet(); packet != nullptr) {
      const wire::Packet p = valid_headers(packet);
      const RequestResult outcome = execute(qp, p, payload_of(packet, p), /*ahead=*/false);
      if (outcome.kind == RequestResult::kFatal) {
        refuse(qp, p, outcome);
        return;
      }
      if (outcome.kind != RequestResult::kDone) break;  // room will come; processed in a later turn
      if (!p.more) ++qp.msn;
      reorder_.release_slot(space, psn);
      if (!broken(Fault::buffered_packet_leaks)) rte_pktmbuf_free(packet);
    } else if (!slot.empty()) {
      reorder_.release_slot(space, psn);
      if (slot.sn() != qp.recv_next_sn) {
        wire::Packet last;
        last.psn = psn;
        refuse(qp, last, invalid_request());
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

RequestResult Responder::check_receive(QpContext& qp, uint32_t sn, bool ahead) {
  if (receives_.is_there(qp, sn, ahead)) return {};
  return {.kind = RequestResult::kRnr, .recv_status = std::nullopt, .sn = sn};
}

}  // namespace hostnic
