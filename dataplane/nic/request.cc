// A request arrives at the responder: checked at the front, placed in any order, executed and
// completed in PSN order (docs/transport.md rules 5..13, 16, 19, 28).
#include <rte_branch_prediction.h>

#include "dataplane/nic/atomics.h"
#include "dataplane/nic/context_prefetch.h"
#include "dataplane/nic/impl.h"
#include "dataplane/nic/placement.h"
#include "dataplane/nic/region_access.h"
#include "protocol/prefetch.h"

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

void Nic::Impl::owe_plain_ack(QpContext& qp) {
  qp.ack_owed = true;
  if (!qp.on_ack_list) {
    qp.on_ack_list = true;
    ack_list.push_back(&qp);
    prefetch_line(&qp.status->recv_posted);  // the credit that it will say
  }
}

void Nic::Impl::owe_ack(QpContext& qp, const wire::Packet& p, bool duplicate) {
  qp.echo_valid = true;
  qp.echo_psn = p.psn;
  qp.echo_attempt = p.attempt;
  qp.echo_duplicate = duplicate;
  owe_plain_ack(qp);
}

void Nic::Impl::receive_request(QpContext& qp, const wire::Packet& p, rte_mbuf* packet) {
  ReceiveWindow& window = qp.requests.window;
  if (unlikely(qp.state == QpState::kRtr && !qp.comm_established)) {
    qp.comm_established = true;
    publish_event(qp, kEventCommEstablished);
  }
  if (unlikely(congestion_experienced(p))) qp.congestion_seen = true;
  const Place where = window.classify(p.psn);
  if (unlikely(qp.fatal)) {
    // Repeat the NAK for whatever is not settled yet (rule 28). READs and atomics that executed
    // before are answered to their end.
    if (where == Place::kOld) {
      const bool answered = p.opcode == Opcode::kReadRequest || is_atomic(p.opcode);
      if (answered && !broken(Fault::reads_end_with_a_nak)) receive_old_request(qp, p);
    } else if (!broken(Fault::fatal_nak_said_once)) {
      owe_ack(qp, p, false);
    }
    return;
  }
  if (unlikely(p.policy != settings.policy) && !broken(Fault::policy_not_checked)) {
    // Both ends must lose and recover by the same rules (rule 30).
    counters.add(Counter::policy_mismatch);
    refuse(qp, p, fatal(wire::NakCode::kInvalidRequest, kEventRequestError));
    return;
  }
  switch (where) {
    case Place::kExpected: {
      if (!place_write(qp, p, payload_of(packet, p)) && !execute_expected(qp, p, packet)) return;
      const bool filled_hole = window.has_hole();
      window.accept_in_order();
      if (!p.more) ++qp.msn;
      note_message(qp, p);
      if (unlikely(filled_hole)) advance_requests(qp);
      if (p.ack_request || filled_hole || ++qp.unacknowledged >= kAckEvery) owe_ack(qp, p, false);
      return;
    }
    case Place::kAhead:
      counters.add(Counter::out_of_sequence);
      if (!window.has_hole()) counters.add(Counter::packet_seq_err);
      // Go-back-N takes the front only; the ACK says what came instead.
      if (settings.policy == wire::Policy::kGoBackN && !broken(Fault::go_back_n_takes_all)) {
        owe_ack(qp, p, false);
      } else if (accept_ahead(qp, p, packet)) {
        note_message(qp, p);
        owe_ack(qp, p, false);
      }
      return;
    case Place::kReceived:
      counters.add(Counter::duplicate_request);
      note_message(qp, p);
      owe_ack(qp, p, true);
      return;
    case Place::kOld:
      counters.add(Counter::duplicate_request);
      note_message(qp, p);
      receive_old_request(qp, p);
      return;
    case Place::kBeyond:
      counters.add(Counter::out_of_window);
      owe_ack(qp, p, false);
      return;
  }
}

// Anything but a WRITE that place_write() takes. False: it stays the front.
bool Nic::Impl::execute_expected(QpContext& qp, const wire::Packet& p, rte_mbuf* packet) {
  if (unlikely(is_atomic(p.opcode) && reads_unanswered(qp))) {
    if (enter_reorder_buffer(qp.requests, p, packet)) {
      qp.requests.window.set(p.psn);
      advance_later(qp);
    }
    return false;
  }
  const RequestResult outcome = execute(qp, p, payload_of(packet, p), /*ahead=*/false);
  if (likely(outcome.kind == RequestResult::kDone)) return true;
  refuse(qp, p, outcome);
  return false;
}

void Nic::Impl::note_message(QpContext& qp, const wire::Packet& p) {
  if (settings.policy == wire::Policy::kWholeMessage)
    qp.messages.note(p.psn, p.cont, p.more, p.attempt);
}

// A request that has been executed: a pull of a READ's next range, a duplicate atomic, or a plain
// duplicate.
void Nic::Impl::receive_old_request(QpContext& qp, const wire::Packet& p) {
  if (p.opcode == Opcode::kReadRequest) {
    if (p.read.length_bytes != 0) {
      // A key that was good when the READ executed and is no longer.
      const RequestResult outcome = execute_read(qp, p);
      if (outcome.kind == RequestResult::kFatal) refuse_old_read(qp, p, outcome);
    }
    if (p.ack_request) owe_ack(qp, p, false);
    return;
  }
  if (broken(Fault::duplicate_atomic_executed) && is_atomic(p.opcode)) execute_atomic(qp, p);
  if (is_atomic(p.opcode) && p.read.length_bytes != 0 && !broken(Fault::atomic_not_replayed)) {
    for (const auto& record : qp.atomics) {
      if (record.valid && record.psn == p.psn) {
        counters.add(Counter::atomics_replayed);
        answer_atomic(qp, p.read, record.result);
        break;
      }
    }
  }
  // An atomic that asks for no ACK is a pull.
  if (!is_atomic(p.opcode) || p.ack_request) owe_ack(qp, p, !is_atomic(p.opcode));
}

// Rule 10: what must not be visible before all that precedes it, and what can only execute in
// order.
bool Nic::Impl::needs_reorder_buffer(const wire::Packet& p) const {
  switch (p.opcode) {
    case Opcode::kReadRequest:
    case Opcode::kCompareSwap:
    case Opcode::kFetchAdd:
    case Opcode::kWriteImm:
    case Opcode::kSendInv:
      return true;
    case Opcode::kWriteOnly: {
      if (settings.ordering == Ordering::kStrict) return true;
      if (p.more || settings.ordering == Ordering::kRelaxed) return false;
      if (broken(Fault::tail_not_buffered)) return false;
      const MemoryRegionEntry* region = const_cast<MrTable&>(mrs).find(p.reth.key);
      return region == nullptr || (region->access & kAccessRelaxedOrdering) == 0;
    }
    default:
      return settings.ordering == Ordering::kStrict;
  }
}

// A packet ahead of the front. Whatever is wrong or lacking: drop it unset, which is always safe
// (rule 6).
bool Nic::Impl::accept_ahead(QpContext& qp, const wire::Packet& p, rte_mbuf* packet) {
  if (broken(Fault::bit_set_before_place)) qp.requests.window.set(p.psn);
  const bool consumes_receive = is_send(p.opcode) || p.opcode == Opcode::kWriteImm;
  if (consumes_receive) {
    const uint32_t sn = is_send(p.opcode) ? p.reth.key : p.recv_sn;
    // Checked here also for packets that will be buffered: at the front a buffered packet can't
    // answer RNR any more (rule 13).
    if (serial_distance(qp.recv_next_sn, sn) < 0 ||
        check_receive(qp, sn, /*ahead=*/true).kind != RequestResult::kDone) {
      return false;
    }
  }
  if (needs_reorder_buffer(p)) {
    if (!enter_reorder_buffer(qp.requests, p, packet)) return false;
  } else {
    const bool ends_send = is_send(p.opcode) && !p.more;
    if (ends_send && !take_reorder_slot(qp.requests, p.psn, ReorderSlot::receive_end(p.reth.key)))
      return false;
    const RequestResult outcome = execute(qp, p, payload_of(packet, p), /*ahead=*/true);
    if (outcome.kind != RequestResult::kDone) {
      if (broken(Fault::errors_raised_ahead)) refuse(qp, p, outcome);
      if (ends_send) release_reorder_slot(qp.requests, p.psn);
      return false;
    }
    if (ends_send) write_receive(qp, p.reth.key, receive_end_of(p), RecvStatus::kSuccess);
  }
  if (!broken(Fault::bit_set_before_place)) qp.requests.window.set(p.psn);
  return true;
}

bool Nic::Impl::take_reorder_slot(ReceiveSpace& space, Psn psn, ReorderSlot slot) {
  if (space.reorder_slots == nullptr) {
    if (free_reorder_blocks.empty()) return false;
    space.reorder_slots = free_reorder_blocks.back();
    free_reorder_blocks.pop_back();
  }
  space.reorder_slot(psn) = slot;
  ++space.reorder_slots_used;
  return true;
}

ReorderSlot Nic::Impl::release_reorder_slot(ReceiveSpace& space, Psn psn) {
  if (space.reorder_slots == nullptr) return {};
  ReorderSlot& place = space.reorder_slot(psn);
  const ReorderSlot slot = place;
  if (slot.empty()) return slot;
  place = ReorderSlot();
  if (slot.packet() != nullptr) {
    --reorder_packets;
    --space.reorder_packets;
  }
  if (--space.reorder_slots_used == 0) {
    if (!broken(Fault::reorder_block_leaks)) free_reorder_blocks.push_back(space.reorder_slots);
    space.reorder_slots = nullptr;
  }
  return slot;
}

bool Nic::Impl::enter_reorder_buffer(ReceiveSpace& space, const wire::Packet& p, rte_mbuf* packet) {
  const bool within_budget =
      reorder_packets < reorder_limit && space.reorder_packets < reorder_limit_per_space;
  rte_mbuf* copy = within_budget ? copy_packet(packet, pools.copies) : nullptr;
  if (copy == nullptr || !take_reorder_slot(space, p.psn, ReorderSlot::of_packet(copy))) {
    counters.add(Counter::reorder_full);
    rte_pktmbuf_free(copy);
    return false;
  }
  ++reorder_packets;
  ++space.reorder_packets;
  counters.add(Counter::reorder_buffered);
  return true;
}

void Nic::Impl::drop_reorder_slots(ReceiveSpace& space) {
  for (uint32_t i = 0; space.reorder_slots != nullptr && i < space.window.window(); ++i) {
    rte_pktmbuf_free(release_reorder_slot(space, Psn(i)).packet());
  }
}

RequestResult Nic::Impl::execute(QpContext& qp, const wire::Packet& p,
                                 std::span<const std::byte> payload, bool ahead) {
  if (unlikely(!fits_path_mtu(qp, p)))
    return fatal(wire::NakCode::kInvalidRequest, kEventRequestError);
  switch (p.opcode) {
    case Opcode::kWriteOnly:
    case Opcode::kWriteImm:
      return execute_write(qp, p, payload, ahead);
    case Opcode::kSend:
    case Opcode::kSendImm:
    case Opcode::kSendInv:
      return execute_send(qp, p, payload, ahead);
    case Opcode::kReadRequest:
      return has_too_many_reads(qp, p) ? fatal(wire::NakCode::kInvalidRequest, kEventRequestError)
                                       : execute_read(qp, p);
    default:
      return has_too_many_reads(qp, p) ? fatal(wire::NakCode::kInvalidRequest, kEventRequestError)
                                       : execute_atomic(qp, p);
  }
}

// Whether the peer has more READs and atomics outstanding than this end has said that it serves at
// a time (InfiniBand 9.7.4.1.2, "too many RDMA READ or ATOMIC requests").
bool Nic::Impl::has_too_many_reads(const QpContext& qp, const wire::Packet& p) {
  if (broken(Fault::responder_resources_ignored)) return false;
  return qp.max_dest_rd_atomic == 0 ||
         serial_distance(qp.reads_answered, p.read.read_number) >= qp.max_dest_rd_atomic;
}

void Nic::Impl::note_read_answered(QpContext& qp, uint32_t read_number) {
  if (serial_distance(qp.reads_answered, read_number + 1) > 0) qp.reads_answered = read_number + 1;
}

RequestResult Nic::Impl::execute_write(QpContext& qp, const wire::Packet& p,
                                       std::span<const std::byte> payload, bool ahead) {
  const bool consumes_receive = p.opcode == Opcode::kWriteImm;
  if (consumes_receive) {
    // Of a WRITE_IMM only the last packet is checked (rule 15), and it is never placed ahead.
    qp.takes_receives = true;
    if (p.recv_sn != qp.recv_next_sn)
      return fatal(wire::NakCode::kInvalidRequest, kEventRequestError);
    const RequestResult outcome = check_receive(qp, p.recv_sn, ahead);
    if (outcome.kind != RequestResult::kDone) return outcome;
  }
  if (!payload.empty()) {
    const RemoteRange range =
        remote_range(qp, p.reth.key, p.reth.va, payload.size(), kAccessRemoteWrite);
    if (range.region == nullptr) return write_refused(p);
    const PlaceRequest request{qp.requests, p.psn, ahead, !p.more};
    switch (place_at_once(request, *range.region, range.iova, payload)
                ? PlaceResult::kDone
                : place(request, *range.region, range.iova, payload)) {
      case PlaceResult::kDone:
        break;
      case PlaceResult::kNotNow:
        return {.kind = RequestResult::kRetry};
      case PlaceResult::kMemoryGone:
        return write_refused(p);
    }
  }
  if (consumes_receive) complete_receive(qp, p.recv_sn, receive_end_of(p), RecvStatus::kSuccess);
  return {};
}

RequestResult Nic::Impl::execute_send(QpContext& qp, const wire::Packet& p,
                                      std::span<const std::byte> payload, bool ahead) {
  const uint32_t sn = p.reth.key;
  qp.takes_receives = true;
  if (!ahead && sn != qp.recv_next_sn)
    return fatal(wire::NakCode::kInvalidRequest, kEventRequestError);
  if (const RequestResult outcome = check_receive(qp, sn, ahead);
      outcome.kind != RequestResult::kDone)
    return outcome;

  PostedReceive receive;
  if (!load_receive(qp, sn, receive)) {
    return fatal_receive(wire::NakCode::kRemoteOperational, RecvStatus::kProtectionError, sn);
  }
  if (p.reth.length_bytes > receive.capacity_bytes) {
    return fatal_receive(wire::NakCode::kInvalidRequest, RecvStatus::kLengthError, sn);
  }
  MemoryWindow* invalidated = nullptr;
  if (p.opcode == Opcode::kSendInv) {  // never ahead: what precedes it may use the window
    invalidated = invalidatable(qp, p.invalidate_rkey);
    if (invalidated == nullptr) {
      RequestResult outcome =
          fatal_receive(wire::NakCode::kRemoteAccess, RecvStatus::kAccessError, sn);
      outcome.event |= kEventAccessError;
      return outcome;
    }
  }
  prefetch_receives(qp, sn);
  LocalError error = LocalError::kNone;
  const PlaceRequest request{qp.requests, p.psn, ahead, false};
  const PlaceResult result =
      scatter(qp, qp.recv_pd, request, receive.list(), p.reth.va, payload, error);
  if (error != LocalError::kNone || result == PlaceResult::kMemoryGone) return result_of(error, sn);
  if (result == PlaceResult::kNotNow) return {.kind = RequestResult::kRetry};
  if (invalidated != nullptr) unbind(*invalidated);
  if ((!ahead || broken(Fault::receive_completes_early)) && !p.more)
    complete_receive(qp, sn, receive_end_of(p), RecvStatus::kSuccess);
  return {};
}

RequestResult Nic::Impl::execute_read(QpContext& qp, const wire::Packet& p) {
  // A zero-byte READ succeeds whatever its key (InfiniBand 9.7.4.1.4).
  if (p.reth.length_bytes == 0) {
    note_read_answered(qp, p.read.read_number);
  } else {
    const RemoteRange range =
        remote_range(qp, p.reth.key, p.reth.va, p.reth.length_bytes, kAccessRemoteRead);
    // Memory may be missing, and the answers can't say so any more. What is pulled later is looked
    // at then.
    if (range.region == nullptr ||
        !has_memory(*range.region, range.iova + p.read.offset_bytes, p.read.length_bytes)) {
      return fatal(wire::NakCode::kRemoteAccess, kEventAccessError);
    }
    // A pull that finds no room is not answered: the requester pulls again.
    if (p.read.length_bytes != 0) queue_read(qp, p);
  }
  return {};
}

// READs before an atomic read before it (InfiniBand 10.8.3.3).
bool Nic::Impl::reads_unanswered(const QpContext& qp) const {
  return (qp.read_jobs != 0 || qp.answers.any_out()) && !broken(Fault::atomic_overtakes_reads);
}

RequestResult Nic::Impl::execute_atomic(QpContext& qp, const wire::Packet& p) {
  if (reads_unanswered(qp)) return {.kind = RequestResult::kRetry};
  if (p.atomic.va % 8 != 0) return fatal(wire::NakCode::kInvalidRequest, kEventRequestError);
  const RemoteRange range = remote_range(qp, p.atomic.rkey, p.atomic.va, 8, kAccessRemoteAtomic);
  // On demand, nothing would be atomic with the CPU's (IBV_ODP_SUPPORT_ATOMIC is not advertised).
  if (range.region == nullptr || (range.region->access & kAccessOnDemand) != 0)
    return fatal(wire::NakCode::kRemoteAccess, kEventAccessError);
  const AtomicOperation operation{p.opcode == Opcode::kCompareSwap, p.atomic.swap_or_add,
                                  p.atomic.compare};
  uint64_t before = 0;
  switch (execute_atomic_on(*range.region, range.iova, operation, before)) {
    case AtomicResult::kDone:
      break;
    case AtomicResult::kBusy:
      return {.kind = RequestResult::kRetry};
    case AtomicResult::kMemoryGone:
      return fatal(wire::NakCode::kRemoteAccess, kEventAccessError);
  }
  counters.add(Counter::atomics_executed);
  qp.atomics[qp.atomic_next] = {true, p.psn, before};
  qp.atomic_next = (qp.atomic_next + 1) % kAtomicRecords;
  if (p.read.length_bytes != 0) answer_atomic(qp, p.read, before);
  return {};
}

// The front can't be accepted: say so and remember (rules 6, 15, 28).
void Nic::Impl::refuse(QpContext& qp, const wire::Packet& p, const RequestResult& outcome) {
  switch (outcome.kind) {
    case RequestResult::kDone:
      return;
    case RequestResult::kRetry:
      // Said, too, for what is put off is no silence: the requester repeats it, and does not count.
      break;
    case RequestResult::kRnr:
      qp.ack_kind = wire::AckKind::kRnrNak;
      qp.rnr_sn = outcome.sn;
      counters.add(Counter::rnr_nak_sent);
      break;
    case RequestResult::kFatal:
      qp.fatal = true;
      qp.fatal_code = outcome.code;
      qp.fatal_psn = p.psn;
      counters.add(Counter::nak_sent);
      if (outcome.recv_status) complete_receive(qp, outcome.sn, {}, *outcome.recv_status);
      publish_event(qp, outcome.event | (outcome.recv_status ? uint32_t{kEventRecvError} : 0));
      break;
  }
  owe_ack(qp, p, false);
}

// A READ that was never answered to its end waits for the range that is refused: an error of its
// PSN, which the window has passed; the NAK goes with the front and names the READ. Whether one
// that was still misses answers only its requester knows: to it the NAK is an error, or the echo of
// a pull that the network has delayed or repeated. So this end does not fail; it says so once, and
// who misses something asks again.
void Nic::Impl::refuse_old_read(QpContext& qp, const wire::Packet& p,
                                const RequestResult& outcome) {
  const bool waits = serial_distance(qp.reads_answered, p.read.read_number) >= 0;
  if (waits || broken(Fault::late_pull_is_fatal)) {
    if (!qp.fatal || before(p.psn, qp.fatal_psn)) refuse(qp, p, outcome);
    return;
  }
  qp.old_read_refused = true;
  qp.old_read_psn = p.psn;
  counters.add(Counter::nak_sent);
  owe_ack(qp, p, false);
}

// Advances over everything received, processing slots in PSN order (rule 8).
void Nic::Impl::advance_requests(QpContext& qp) {
  ReceiveSpace& space = qp.requests;
  uint32_t budget = kAdvanceBudget;
  while (space.window.expected_received() && budget-- != 0 && !qp.fatal) {
    if (const uint32_t passed = space.pass_without_reordering(budget + 1); passed != 0) {
      budget -= passed - 1;
      continue;
    }
    const Psn psn = space.window.expected();
    const ReorderSlot slot = space.waiting(psn);
    if (rte_mbuf* packet = slot.packet(); packet != nullptr) {
      const wire::Packet p = valid_headers(packet);
      const RequestResult outcome = execute(qp, p, payload_of(packet, p), /*ahead=*/false);
      if (outcome.kind == RequestResult::kFatal) {
        refuse(qp, p, outcome);
        return;
      }
      if (outcome.kind != RequestResult::kDone) break;  // room will come; tried again next turn
      if (!p.more) ++qp.msn;
      release_reorder_slot(space, psn);
      if (!broken(Fault::buffered_packet_leaks)) rte_pktmbuf_free(packet);
    } else if (!slot.empty()) {
      release_reorder_slot(space, psn);
      if (slot.sn() != qp.recv_next_sn) {
        wire::Packet last;
        last.psn = psn;
        refuse(qp, last, fatal(wire::NakCode::kInvalidRequest, kEventRequestError));
        return;
      }
      publish_receive(qp, slot.sn());
      ++qp.msn;
    }
    space.window.advance();
  }
  space.early_writes.release_before(early_write_pool, space.window.expected());
  if (space.window.expected_received() && !qp.fatal) advance_later(qp);
}

void Nic::Impl::advance_later(QpContext& qp) {
  if (qp.on_advance_list) return;
  qp.on_advance_list = true;
  advance_next.push_back(&qp);
}

}  // namespace hostnic
