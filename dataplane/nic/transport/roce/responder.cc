// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/transport/roce/responder.h"

#include "dataplane/nic/limits.h"
#include "dataplane/nic/memory/atomics.h"
#include "dataplane/nic/memory/region_access.h"
#include "dataplane/nic/packet/packet.h"
#include "dataplane/nic/transport/path_mtu.h"
#include "protocol/faults.h"
#include "protocol/message_limits.h"

namespace hostnic {
namespace {

using wire::AckKind;
using wire::NakCode;
using wire::Opcode;
using Message = RoceConnection::Message;
using Place = ReceiveWindow::Place;

bool is_write(Opcode opcode) {
  return opcode >= Opcode::kRcWriteFirst && opcode <= Opcode::kRcWriteOnlyImm;
}
bool is_send_with_invalidate(Opcode opcode) {
  return opcode == Opcode::kRcSendLastInv || opcode == Opcode::kRcSendOnlyInv;
}
bool is_atomic(Opcode opcode) {
  return opcode == Opcode::kRcCompareSwap || opcode == Opcode::kRcFetchAdd;
}

bool has_immediate(const wire::Packet& p) {
  return wire::find_opcode(wire::Dialect::kRocev2, p.opcode)->has_imm;
}

ReceiveEnd receive_end_of(const wire::Packet& p, uint64_t message_bytes) {
  ReceiveEnd end;
  end.byte_len = static_cast<uint32_t>(message_bytes);
  if (p.solicited) end.flags |= kRecvSolicited;
  if (is_write(p.opcode)) end.flags |= kRecvIsWriteImm;
  if (has_immediate(p)) {
    end.flags |= kRecvHasImm;
    end.imm_data = p.imm_data;
  }
  if (is_send_with_invalidate(p.opcode)) {
    end.flags |= kRecvHasInv;
    end.imm_data = p.invalidate_rkey;
  }
  return end;
}

}  // namespace

void RoceResponder::receive(QpContext& qp, const wire::Packet& p, rte_mbuf* packet) {
  if (qp.state == QpState::kRtr && !qp.comm_established) {
    qp.comm_established = true;
    reports_.publish_event(qp, kEventCommEstablished);
  }
  if (qp.fatal) {
    answers_.owe_nak(qp, AckKind::kNak);  // again: the first may be lost
    return;
  }
  ReceiveWindow::Place where = qp.requests.window.classify(p.psn);
  if (where == Place::kAhead && broken(Fault::roce_gap_not_seen)) where = Place::kExpected;
  switch (where) {
    case Place::kExpected:
      if (take_expected(qp, p, payload_of(packet, p)) == Outcome::kNotYet) {
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
  ReceiveWindow& window = qp.requests.window;
  if (window.expected_received()) return;  // held as well, and executes in a later turn
  if (broken(Fault::roce_hold_executes_early) && window.has_hole()) {
    window.accept_in_order();
    if (window.expected_received()) advance(qp);
    return;
  }
  if (connection.gap_answered && !broken(Fault::roce_nak_for_each)) return;
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
      if (!broken(Fault::roce_hold_leaks)) rte_pktmbuf_free(packet);
      window.advance();
    } else {
      window.accept_in_order();
    }
  }
  window.accept_in_order(psns);
}

// Executes the expected request, whether it has just arrived or was held.
RoceResponder::Outcome RoceResponder::take_expected(QpContext& qp, const wire::Packet& p,
                                                    std::span<const std::byte> payload) {
  RoceConnection& connection = *qp.roce;
  const Outcome outcome = execute(qp, p, payload);
  switch (outcome) {
    case Outcome::kDone:
      connection.gap_answered = connection.not_ready = false;
      // A NAK about what has come meanwhile is not said any more.
      connection.nak = qp.fatal ? connection.nak : AckKind::kAck;
      if (p.ack_request) answers_.owe_ack(qp);
      break;
    case Outcome::kNotReady:
      counters_.add(Counter::rnr_nak_sent);
      connection.gap_answered = connection.not_ready = true;
      drop_held(qp);
      answers_.owe_nak(qp, AckKind::kRnrNak);
      break;
    case Outcome::kNotYet:
      connection.gap_answered = connection.not_ready = false;
      break;
    case Outcome::kRefused:
      drop_held(qp);
      break;
  }
  return outcome;
}

void RoceResponder::advance(QpContext& qp) {
  const ReceiveWindow& window = qp.requests.window;
  const Psn first = window.expected();
  uint32_t budget = kAdvanceBudget;
  while (window.expected_received() && !qp.fatal && budget-- != 0) {
    if (broken(Fault::roce_hold_loses_last) && window.received_ahead() == 1) return pass(qp, 1);
    rte_mbuf* const packet = qp.requests.waiting(window.expected()).packet();
    const wire::Packet p = held_headers(packet, wire::Dialect::kRocev2);
    if (take_expected(qp, p, payload_of(packet, p)) != Outcome::kDone) break;
  }
  // One acknowledgement for all, when all have executed: where it ends a packet is missing.
  if (window.expected() != first && !broken(Fault::roce_hold_not_acknowledged))
    answers_.owe_ack(qp);
  if (broken(Fault::roce_second_gap_not_told)) qp.roce->gap_answered = window.has_hole();
  if (window.expected_received() && !qp.fatal) advance_list_.add(qp);
}

// Answers a request that has been executed (InfiniBand 9.7.5.1.3..5).
void RoceResponder::receive_duplicate(QpContext& qp, const wire::Packet& p) {
  if (p.opcode == Opcode::kRcReadRequest) {
    if (broken(Fault::roce_read_not_repeated)) return;
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
  if (!is_atomic(p.opcode)) {
    if (!broken(Fault::roce_duplicate_not_acknowledged)) answers_.owe_ack(qp);
    return;
  }
  if (broken(Fault::roce_duplicate_atomic_executed)) {
    execute_atomic(qp, p);
    return;
  }
  for (const auto& record : qp.atomics) {
    if (!record.valid || record.psn != p.psn) continue;
    counters_.add(Counter::atomics_replayed);
    answers_.owe_answers(qp, {.first = p.psn,
                              .packets = 1,
                              .is_atomic = true,
                              .before = record.result,
                              .msn = qp.msn,
                              .again = true});
    return;
  }
}

RoceResponder::Outcome RoceResponder::refuse(QpContext& qp, const wire::Packet& p, NakCode code,
                                             uint32_t event) {
  answers_.refuse(qp, p.psn, code, event);
  return Outcome::kRefused;
}

// Refuses a message that has taken a receive, which ends as well.
RoceResponder::Outcome RoceResponder::refuse_receive(QpContext& qp, const wire::Packet& p,
                                                     NakCode code, RecvStatus status,
                                                     uint32_t event) {
  receives_.complete(qp, qp.recv_next_sn, {}, status);
  return refuse(qp, p, code, event | kEventRecvError);
}

RoceResponder::Outcome RoceResponder::execute(QpContext& qp, const wire::Packet& p,
                                              std::span<const std::byte> payload) {
  const bool in_message = qp.roce->message != Message::kNone;
  if (p.opcode == Opcode::kRcReadRequest || is_atomic(p.opcode)) {
    const uint32_t right = is_atomic(p.opcode) ? kAccessRemoteAtomic : kAccessRemoteRead;
    if (in_message || !qp.takes(right))
      return refuse(qp, p, NakCode::kInvalidRequest, kEventRequestError);
    return is_atomic(p.opcode) ? execute_atomic(qp, p) : execute_read(qp, p);
  }
  // First and Only begin a message, Middle and Last go on with one of their kind.
  const Message kind = is_write(p.opcode) ? Message::kWrite : Message::kSend;
  const bool in_order = p.cont ? qp.roce->message == kind : !in_message;
  const bool taken = kind != Message::kWrite || qp.takes(kAccessRemoteWrite);
  if ((!in_order && !broken(Fault::roce_message_order_ignored)) || !fits_path_mtu(qp, p) || !taken)
    return refuse(qp, p, NakCode::kInvalidRequest, kEventRequestError);
  return execute_message(qp, p, payload);
}

RoceResponder::Outcome RoceResponder::execute_message(QpContext& qp, const wire::Packet& p,
                                                      std::span<const std::byte> payload) {
  RoceConnection& connection = *qp.roce;
  const bool write = is_write(p.opcode);
  const bool with_imm = has_immediate(p);
  if (!p.cont) connection.offset_bytes = 0;
  if (!p.cont && write) {
    connection.va = p.reth.va;
    connection.key = p.reth.key;
    connection.length_bytes = p.reth.length_bytes;
  }
  // A SEND takes its receive with its first packet, a WRITE with immediate data with its last.
  if ((!write || with_imm) && !receives_.is_there(qp, qp.recv_next_sn, /*ahead=*/false))
    return Outcome::kNotReady;
  const Outcome placed = write ? place_write(qp, p, payload) : place_send(qp, p, payload);
  if (placed != Outcome::kDone) return placed;
  if (!broken(Fault::roce_middle_overwrites_first)) connection.offset_bytes += payload.size();
  pass(qp, 1);
  connection.message = !p.more ? Message::kNone : write ? Message::kWrite : Message::kSend;
  if (p.more) return Outcome::kDone;
  ++qp.msn;
  if (!write || with_imm)
    receives_.complete(qp, qp.recv_next_sn, receive_end_of(p, connection.offset_bytes),
                       RecvStatus::kSuccess);
  return Outcome::kDone;
}

RoceResponder::Outcome RoceResponder::place_send(QpContext& qp, const wire::Packet& p,
                                                 std::span<const std::byte> payload) {
  PostedReceive receive;
  if (!ReceiveQueues::load(qp, qp.recv_next_sn, receive))
    return refuse_receive(qp, p, NakCode::kRemoteOperational, RecvStatus::kProtectionError);
  if (qp.roce->offset_bytes + payload.size() > receive.capacity_bytes)
    return refuse_receive(qp, p, NakCode::kInvalidRequest, RecvStatus::kLengthError);
  MemoryWindow* invalidated = nullptr;
  if (is_send_with_invalidate(p.opcode)) {
    invalidated = windows_.invalidatable(qp.scope(), p.invalidate_rkey);
    if (invalidated == nullptr)
      return refuse_receive(qp, p, NakCode::kRemoteAccess, RecvStatus::kAccessError,
                            kEventAccessError);
  }
  LocalError error = LocalError::kNone;
  const PlaceRequest request{.early_writes = qp.requests.early_writes,
                             .window = qp.requests.window,
                             .psn = p.psn,
                             .ahead = false,
                             .tail = false};
  const PlaceResult result = placement_.scatter(qp.receive_scope(), request, receive.list(),
                                                qp.roce->offset_bytes, payload, error);
  if (error == LocalError::kLength)
    return refuse_receive(qp, p, NakCode::kInvalidRequest, RecvStatus::kLengthError);
  if (error != LocalError::kNone || result == PlaceResult::kMemoryGone)
    return refuse_receive(qp, p, NakCode::kRemoteOperational, RecvStatus::kProtectionError);
  if (result == PlaceResult::kNotNow) return Outcome::kNotYet;
  if (invalidated != nullptr) windows_.unbind(*invalidated);
  return Outcome::kDone;
}

RoceResponder::Outcome RoceResponder::place_write(QpContext& qp, const wire::Packet& p,
                                                  std::span<const std::byte> payload) {
  const RoceConnection& connection = *qp.roce;
  const uint64_t end = connection.offset_bytes + payload.size();
  const bool fits = p.more ? end < connection.length_bytes : end == connection.length_bytes;
  if ((!fits && !broken(Fault::roce_length_ignored)) || connection.length_bytes > kMaxMessageBytes)
    return refuse(qp, p, NakCode::kInvalidRequest, kEventRequestError);
  if (payload.empty()) return Outcome::kDone;
  // The whole range is checked with the first packet, and each part again: the key may be revoked
  // meanwhile.
  const uint64_t va = connection.va + connection.offset_bytes;
  const uint64_t checked_bytes = p.cont ? payload.size() : connection.length_bytes;
  const RemoteRange range =
      placement_.remote_range(qp.scope(), connection.key, va, checked_bytes, kAccessRemoteWrite);
  if (range.region == nullptr) return refuse_write(qp, p);
  const PlaceRequest request{.early_writes = qp.requests.early_writes,
                             .window = qp.requests.window,
                             .psn = p.psn,
                             .ahead = false,
                             .tail = !p.more};
  switch (placement_.place(request, *range.region, range.iova, payload)) {
    case PlaceResult::kDone:
      return Outcome::kDone;
    case PlaceResult::kNotNow:
      return Outcome::kNotYet;
    case PlaceResult::kMemoryGone:
      break;
  }
  return refuse_write(qp, p);
}

// Refuses a WRITE for its key, bounds or rights, or for memory that is gone. One whose immediate
// data has taken a receive tells that, too.
RoceResponder::Outcome RoceResponder::refuse_write(QpContext& qp, const wire::Packet& p) {
  if (has_immediate(p))
    return refuse_receive(qp, p, NakCode::kRemoteAccess, RecvStatus::kAccessError,
                          kEventAccessError);
  return refuse(qp, p, NakCode::kRemoteAccess, kEventAccessError);
}

// Whether the peer has more READs and atomics outstanding than this end serves at a time
// (InfiniBand 9.7.4.1.2): answers that are owed, but for those that it asked for again.
bool RoceResponder::has_too_many_reads(const QpContext& qp) {
  uint32_t owed = 0;
  const auto& answers = qp.roce->answers;
  for (uint32_t i = 0; i < answers.size(); ++i) owed += answers.at(i).again ? 0 : 1;
  return owed >= qp.responder_resources && !broken(Fault::responder_resources_ignored);
}

RoceResponder::Outcome RoceResponder::execute_read(QpContext& qp, const wire::Packet& p) {
  if (has_too_many_reads(qp) || p.reth.length_bytes > kMaxMessageBytes)
    return refuse(qp, p, NakCode::kInvalidRequest, kEventRequestError);
  if (qp.roce->answers.full()) return Outcome::kNotYet;
  if (p.reth.length_bytes != 0) {
    const RemoteRange range = placement_.remote_range(qp.scope(), p.reth.key, p.reth.va,
                                                      p.reth.length_bytes, kAccessRemoteRead);
    const MemoryAccess access =
        range.region == nullptr
            ? MemoryAccess::kGone
            : has_memory(*range.region, range.iova, p.reth.length_bytes, {&qp, p.psn.value()});
    if (access == MemoryAccess::kNotNow) return Outcome::kNotYet;
    if (access == MemoryAccess::kGone)
      return refuse(qp, p, NakCode::kRemoteAccess, kEventAccessError);
  }
  const uint32_t answers = answers_of_read(p.reth.length_bytes, qp.mtu_bytes);
  pass(qp, answers);
  ++qp.msn;
  answers_.owe_answers(qp, {.first = p.psn,
                            .packets = answers,
                            .key = p.reth.key,
                            .va = p.reth.va,
                            .length_bytes = p.reth.length_bytes,
                            .msn = qp.msn});
  return Outcome::kDone;
}

RoceResponder::Outcome RoceResponder::execute_atomic(QpContext& qp, const wire::Packet& p) {
  if (has_too_many_reads(qp) || p.atomic.va % 8 != 0)
    return refuse(qp, p, NakCode::kInvalidRequest, kEventRequestError);
  if (qp.roce->answers.full()) return Outcome::kNotYet;
  const RemoteRange range =
      placement_.remote_range(qp.scope(), p.atomic.rkey, p.atomic.va, 8, kAccessRemoteAtomic);
  if (range.region == nullptr || (range.region->access & kAccessOnDemand) != 0)
    return refuse(qp, p, NakCode::kRemoteAccess, kEventAccessError);
  const AtomicOperation operation{p.opcode == Opcode::kRcCompareSwap, p.atomic.swap_or_add,
                                  p.atomic.compare};
  uint64_t before = 0;
  switch (execute_atomic_on(*range.region, range.iova, operation, {&qp, p.psn.value()}, before)) {
    case AtomicResult::kDone:
      break;
    case AtomicResult::kBusy:
      return Outcome::kNotYet;
    case AtomicResult::kMemoryGone:
      return refuse(qp, p, NakCode::kRemoteAccess, kEventAccessError);
  }
  counters_.add(Counter::atomics_executed);
  qp.atomics[qp.atomic_next] = {true, p.psn, before};
  qp.atomic_next = (qp.atomic_next + 1) % kAtomicRecords;
  if (p.psn == qp.requests.window.expected()) pass(qp, 1);
  ++qp.msn;
  answers_.owe_answers(
      qp, {.first = p.psn, .packets = 1, .is_atomic = true, .before = before, .msn = qp.msn});
  return Outcome::kDone;
}

}  // namespace hostnic
