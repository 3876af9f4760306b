// SPDX-License-Identifier: BSD-3-Clause
// What the NIC reports: acknowledgements, limits, NAKs, answers, receives, errors; and the
// completions that follow (docs/transport.md rules 7, 15, 20..22, 28).
#include <algorithm>

#include "verbs-shim/base/log.h"
#include "verbs-shim/driver/qp.h"

namespace hostnic::driver {
namespace {

// The kinds of NAK in AETH, as the status carries them (protocol/wire/aeth.h).
constexpr uint32_t kNakKindRnr = 1;
constexpr uint32_t kInfiniteRnrRetry = 7;

struct Cause {
  WcStatus status;
  VendorError vendor;
};
Cause cause_of_nak(uint32_t code) {
  switch (code) {
    case 2:
      return {WcStatus::kRemAccessErr, VendorError::kPeerAccess};
    case 3:
      return {WcStatus::kRemOpErr, VendorError::kPeerOperation};
    default:
      return {WcStatus::kRemInvReqErr, VendorError::kPeerInvalidRequest};
  }
}

Cause cause_of_local_error(uint32_t error) {
  switch (LocalError{error}) {
    case LocalError::kLength:
      return {WcStatus::kLocLenErr, VendorError::kLocalLength};
    case LocalError::kBadResponse:
      return {WcStatus::kBadRespErr, VendorError::kBadResponse};
    default:
      return {WcStatus::kLocProtErr, VendorError::kLocalKey};
  }
}

WcStatus status_of_receive(uint32_t status) {
  switch (RecvStatus{status}) {
    case RecvStatus::kSuccess:
      return WcStatus::kSuccess;
    case RecvStatus::kLengthError:
      return WcStatus::kLocLenErr;
    case RecvStatus::kAccessError:
      return WcStatus::kLocAccessErr;
    default:
      return WcStatus::kLocProtErr;
  }
}

}  // namespace

void Qp::on_report(TimeNs now_ns) {
  // Receives are counted before the status is read and delivered after it: a completion of ours
  // that the peer saw before it answered must not come after its answer.
  const uint32_t received = status().recv_completed.load(std::memory_order_acquire);
  QpStatusSnapshot snapshot;
  if (!read_status(status(), snapshot, host_.bits)) {
    host_.want_issue(*this);  // the next turn looks again
    return;
  }
  if (state == QpState::kRts || state == QpState::kSqd) {
    take_acks(snapshot, now_ns);
    if (reads_outstanding_ != 0) take_responses(snapshot, now_ns);
    if ((snapshot.local_error | snapshot.response_error) != 0) take_errors(snapshot);
    if (snapshot.nak != 0) take_nak(snapshot, now_ns);
    complete(now_ns);
  }
  // Receives of a shared queue may be taken and not completed yet, so they are always looked at.
  if (received != recv_taken_ || init.srq != nullptr) take_receives(received);
  if (snapshot.events != seen_events_) take_events(snapshot);
  issue(now_ns);
}

void Qp::take_receives(uint32_t completed) {
  if (recv_entries_ == 0) return;
  if (serial_distance(completed, recv_posted_) < 0) return;
  bool failed = false;
  while (serial_distance(recv_taken_, completed) > 0) {
    const uint32_t name = receive_name(recv_taken_);
    const RecvCompletion& received = recv_completion(name);
    Completion completion;
    completion.wr_id = init.srq != nullptr ? init.srq->wr_id(name) : recv_wr_ids_[name];
    completion.status = status_of_receive(received.status);
    completion.opcode =
        (received.flags & kRecvIsWriteImm) != 0 ? WcOpcode::kRecvRdmaWithImm : WcOpcode::kRecv;
    completion.byte_len = received.byte_len;
    completion.imm_data = (received.flags & kRecvHasImm) != 0 ? received.imm_data : 0;
    completion.flags = (received.flags & kRecvHasImm) != 0 ? uint32_t{kWcWithImm} : 0;
    if ((received.flags & kRecvHasInv) != 0) {
      completion.imm_data = received.imm_data;
      completion.flags |= kWcWithInv;
    }
    if ((received.flags & kRecvHasGrh) != 0) completion.flags |= kWcGrh;
    completion.qpn = qpn;
    completion.src_qpn = init.type == QpType::kUd ? received.src_qpn : attr.dest_qpn;
    if (completion.status != WcStatus::kSuccess) {
      failed = true;
      completion.vendor = completion.status == WcStatus::kLocLenErr ? VendorError::kLocalLength
                                                                    : VendorError::kLocalKey;
      log_debug("QP 0x%x: receive %u failed with status %u: %s", qpn, recv_taken_,
                static_cast<unsigned>(completion.status),
                completion.status == WcStatus::kLocLenErr
                    ? "the message is longer than the buffers posted"
                    : "key, address or protection domain of a buffer");
    }
    ++recv_taken_;
    if (init.srq != nullptr) init.srq->release(name);
    push(*init.recv_cq, completion, (received.flags & kRecvSolicited) != 0, 0);
  }
  if (init.srq != nullptr) {
    move_ring_end();
    host_.srq_taken(*init.srq);
  }
  if (failed) go_to_error();
}

// The NIC's errors become the request's: nothing was changed.
void Qp::on_window_answer(int error, TimeNs now_ns) {
  if (state != QpState::kRts && state != QpState::kSqd) return;  // it was flushed meanwhile
  if (head_ == tail_ || !is_local(wqe(head_).op) || !wqe(head_).started) return;
  if (error != 0) {
    fail(head_, WcStatus::kMwBindErr, VendorError::kWindow);
  } else {
    ++issue_;
  }
  complete(now_ns);
  if (state == QpState::kRts || state == QpState::kSqd) host_.want_issue(*this);
}

void Qp::take_events(const QpStatusSnapshot& snapshot) {
  const uint32_t fresh = snapshot.events & ~seen_events_;
  seen_events_ |= snapshot.events;
  if ((fresh & kEventCommEstablished) != 0 && state == QpState::kRtr)
    host_.raise(AsyncEvent::kCommEst, this, nullptr);
  if ((fresh & kEventAccessError) != 0) host_.raise(AsyncEvent::kQpAccessErr, this, nullptr);
  if ((fresh & kEventRequestError) != 0) host_.raise(AsyncEvent::kQpReqErr, this, nullptr);
  if ((fresh & (kEventAccessError | kEventRequestError | kEventRecvError)) != 0) {
    log_debug("QP 0x%x: refused a request of its peer: to the error state", qpn);
    go_to_error();
  }
}

void Qp::take_acks(const QpStatusSnapshot& snapshot, TimeNs now_ns) {
  if (const Psn highest(snapshot.highest_acceptable_psn);
      snapshot.ack_count != 0 && distance(highest_acceptable_, highest) > 0)
    highest_acceptable_ = highest;
  if (snapshot.has_credit != 0 &&
      (!has_credit_ || serial_distance(credit_, snapshot.recv_sn_limit) > 0 ||
       broken(Fault::credit_lowered))) {
    has_credit_ = true;
    credit_ = snapshot.recv_sn_limit;
    if (rnr_ != Rnr::kNone && serial_distance(rnr_sn_, credit_) > 0)
      end_rnr_wait(/*counted=*/false);
  }
  if (snapshot.rtt_count != seen_rtt_count_) {
    seen_rtt_count_ = snapshot.rtt_count;
    rtt_.sample(snapshot.rtt_ns);
    request_congestion_.on_rtt(snapshot.rtt_ns);
  }
  if (snapshot.mark_count != seen_mark_count_) {
    seen_mark_count_ = snapshot.mark_count;
    request_congestion_.on_mark();
  }
  if (snapshot.spurious_count != seen_spurious_count_) {
    seen_spurious_count_ = snapshot.spurious_count;
    if (!requests_.guessed(Psn(snapshot.echo_psn))) requests_.on_spurious_resend();
  }
  const uint32_t echoes = seen_echo_count_;
  if (snapshot.echo_count != seen_echo_count_) {
    seen_echo_count_ = snapshot.echo_count;
    requests_.on_echo(Psn(snapshot.echo_psn), static_cast<uint8_t>(snapshot.echo_attempt));
  }
  const Psn una = requests_.una();
  if (host_.bits.has_sack) {
    requests_.on_ack(Psn(snapshot.una_psn), host_.bits.sack);
  } else {
    requests_.on_ack(Psn(snapshot.una_psn));
  }
  note_acknowledged(una, now_ns);
  if (snapshot.echo_count != echoes && Psn(snapshot.echo_psn) == requests_.una()) note_put_off();
  const uint32_t lost = requests_.detect_losses(now_ns, rtt_.srtt_ns());
  if (broken(Fault::losses_shrink_window) && lost != 0) request_congestion_.on_timeout();
}

// Takes note of acknowledged requests; those from `una` on may be new.
void Qp::note_acknowledged(Psn una, TimeNs now_ns) {
  request_congestion_.on_ack(requests_.una(), requests_.next());
  if (requests_.una() == una) return;
  status().acknowledged_psn.store(requests_.una().value(), std::memory_order_release);
  note_progress(now_ns);
  // The refused request was the oldest unacknowledged one. If it is acknowledged while its timer
  // still runs, a later duplicate of it has found a receive; the timer would find nothing that it
  // could send again.
  if (rnr_ != Rnr::kNone) {
    rnr_ = Rnr::kNone;
    rnr_retries_used_ = 0;
  }
}

void Qp::take_responses(const QpStatusSnapshot& snapshot, TimeNs now_ns) {
  const Psn una = responses_.una();
  const Psn new_una(snapshot.response_una_psn);
  // Answers of the epoch before may complete a READ just before the NIC learns of the new epoch:
  // then more has arrived than is remembered as asked for.
  if (const int32_t unasked = distance(responses_.next(), new_una);
      unasked > 0 && distance(new_una, next_response_psn_) >= 0) {
    responses_.on_first_send(static_cast<uint32_t>(unasked), now_ns);
  }
  // Bits of another epoch say nothing; response_una_psn always counts, because only what every
  // epoch keeps lies before it.
  const bool has_bits = host_.bits.has_responses && snapshot.response_epoch == epoch_;
  // No answer says which pull it belongs to. An answer that comes a round trip after the last pull,
  // or after the silence before a probe, is taken for that pull's, and what was pulled before is
  // missing. Otherwise a lost range would come back probe by probe.
  TimeNs answered_before_ns = 0;
  if (probed_) {
    answered_before_ns = now_ns;
  } else if (rtt_.valid()) {
    answered_before_ns = now_ns - std::min(now_ns, rtt_.srtt_ns());
  }
  const uint32_t fresh = has_bits
                             ? responses_.on_ack(new_una, host_.bits.responses, answered_before_ns)
                             : responses_.on_ack(new_una, answered_before_ns);
  if (snapshot.response_mark_count != seen_response_mark_count_) {
    seen_response_mark_count_ = snapshot.response_mark_count;
    response_congestion_.on_mark();
  }
  response_congestion_.on_ack(responses_.una(), responses_.next());
  if (fresh != 0) note_progress(now_ns);
  if (responses_.una() != una) take_executed(now_ns);
  if (responses_.una() != una || fresh != 0) responses_.detect_losses(now_ns, rtt_.srtt_ns());
}

// Acknowledges requests by their answers: READs and atomics execute at the peer's expected PSN, so
// once all answers to one are here, it and all before it have been received (rule 20; InfiniBand
// 9.7.5.1.1).
void Qp::take_executed(TimeNs now_ns) {
  if (!requests_.traits().answers_acknowledge || broken(Fault::answers_do_not_acknowledge)) return;
  if (serial_distance(answered_, head_) > 0) answered_ = head_;
  const Psn una = requests_.una();
  Psn executed = una;
  for (; answered_ != issue_; ++answered_) {
    const Wqe& w = wqe(answered_);
    if (w.response_count == 0) continue;
    if (distance(w.first_response_psn + w.response_count, responses_.una()) < 0) break;
    executed = w.first_psn + 1;
  }
  requests_.on_ack(executed);
  // The ACK that would have said how far the peer's window reaches now may never come.
  highest_acceptable_ += static_cast<uint32_t>(distance(una, requests_.una()));
  note_acknowledged(una, now_ns);
}

// Notes that the oldest unacknowledged packet has arrived, and the peer answers that it can't be
// taken now: its memory's mappings are just changing. That is no silence, but repetitions go on at
// longer and longer intervals.
void Qp::note_put_off() {
  if (requests_.in_flight() == 0) return;
  silence_ns_ = 0;
  retries_ = 0;
}

void Qp::note_progress(TimeNs now_ns) {
  progress_ns_ = evaluated_ns_ = now_ns;
  silence_ns_ = 0;
  retries_ = 0;
  backoff_ = 0;
  probed_ = false;
}

void Qp::take_errors(const QpStatusSnapshot& snapshot) {
  if (snapshot.local_error != 0) {
    // After a local error the NIC sends nothing any more. If the work that the error is about is
    // acknowledged by now, the program took its memory away too early, and the oldest request fails
    // instead.
    const Psn una = requests_.una(), refused(snapshot.local_error_psn);
    const Cause cause = cause_of_local_error(snapshot.local_error);
    if (head_ == tail_) {
      host_.raise(AsyncEvent::kQpFatal, this, nullptr);
      go_to_error();
      return;
    }
    fail(find_by_psn(before(refused, una) ? una : refused), cause.status, cause.vendor);
  }
  if (snapshot.response_error != 0) {
    for (uint32_t i = head_; i != tail_ && wqe(i).started; ++i) {
      if (!is_read_or_atomic(wqe(i).op) || wqe(i).recv_sn != snapshot.response_error_read) continue;
      const Cause cause = cause_of_local_error(snapshot.response_error);
      fail(i, cause.status, cause.vendor);
      break;
    }
  }
}

void Qp::take_nak(const QpStatusSnapshot& snapshot, TimeNs now_ns) {
  if (snapshot.nak == 0 || snapshot.nak_count == seen_nak_count_) return;
  seen_nak_count_ = snapshot.nak_count;
  const uint32_t kind = snapshot.nak >> 8, code = snapshot.nak & 0xff;
  if (kind != kNakKindRnr) {
    const Cause cause = cause_of_nak(code);
    fail(index_refused(Psn(snapshot.nak_psn), Psn(snapshot.nak_sn)), cause.status, cause.vendor);
    return;
  }
  // An RNR NAK (rule 15). NAKs that arrive while waiting, or about something already acknowledged,
  // are old.
  if (rnr_ == Rnr::kWaiting || Psn(snapshot.nak_psn) != requests_.una()) return;
  if (has_credit_ && serial_distance(snapshot.nak_sn, credit_) > 0) {
    requests_.mark_lost(requests_.una());  // a receive has been posted since
    return;
  }
  note_progress(now_ns);  // the peer answers: this is not silence
  if (attr.rnr_retry != kInfiniteRnrRetry && rnr_retries_used_ >= attr.rnr_retry) {
    fail(find_by_psn(requests_.una()), WcStatus::kRnrRetryExcErr, VendorError::kReceiverNotReady);
    return;
  }
  ++host_.totals.rnr_waits;
  rnr_ = Rnr::kWaiting;
  rnr_sn_ = snapshot.nak_sn;
  rnr_until_ns_ = now_ns + (broken(Fault::rnr_not_waited_for) ? 0 : rnr_timer_ns(code));
}

// Finds the request that a fatal NAK is about. The peer names what it refused: a READ that is
// acknowledged and still pulls its ranges, or the oldest unacknowledged PSN. That may be a request
// of which only a part is issued yet; and when all PSNs are acknowledged it can only be the oldest
// READ. The end of the queue says that there is none: a READ whose answers are all here was asked
// for once more than was needed, and the peer has revoked its key since.
uint32_t Qp::index_refused(Psn una, Psn refused) const {
  if (before(refused, requests_.una()) && !broken(Fault::nak_hits_the_front)) {
    const uint32_t read = find_by_psn(refused);
    const bool waits = read != issue_ && wqe(read).op == SendOp::kRead &&
                       wqe(read).first_psn == refused && !finished(wqe(read));
    return waits ? read : tail_;
  }
  if (distance(una, requests_.next()) <= 0 && head_ != issue_) return head_;
  const uint32_t index = find_by_psn(una);
  if (broken(Fault::nak_hits_the_oldest) && index == issue_) return head_;
  return index;
}

void Qp::end_rnr_wait(bool counted) {
  if (counted) {
    if (!broken(Fault::rnr_retries_not_counted)) ++rnr_retries_used_;
    rnr_ = broken(Fault::rnr_resends_all) ? Rnr::kNone : Rnr::kProbing;
  } else {
    rnr_ = Rnr::kNone;
    rnr_retries_used_ = 0;
  }
  if (requests_.in_flight() == 0) return;
  if (broken(Fault::rnr_resends_all)) requests_.mark_all_lost();
  // Only the request that was refused goes first; what followed it was dropped and will be found
  // lost.
  const Wqe& w = wqe(find_by_psn(requests_.una()));
  for (uint32_t i = 0; i < w.psn_count; ++i) {
    const Psn psn = w.first_psn + i;
    if (distance(requests_.una(), psn) >= 0 && distance(psn, requests_.next()) > 0)
      requests_.mark_lost(psn);
  }
}

// Fails a request; the first one that failed counts: nothing at or after it is issued, everything
// before it still completes (rule 28, after an error).
void Qp::fail(uint32_t index, WcStatus status, VendorError vendor) {
  if (index == tail_) return;
  if (failed_ && serial_distance(index, failed_index_) <= 0) return;
  failed_ = true;
  failed_index_ = index;
  failed_status_ = status;
  failed_vendor_ = vendor;
  log_failure(wqe(index));
}

void Qp::log_failure(const Wqe& w) {
  const uint32_t ip = raw(attr.dest_ip);
  const char* reason = "";
  switch (failed_vendor_) {
    case VendorError::kLocalKey:
      reason = "an lkey, address or protection domain of its own memory is wrong";
      break;
    case VendorError::kLocalLength:
      reason = "the local buffers are too small";
      break;
    case VendorError::kPeerInvalidRequest:
      reason =
          "the peer calls it invalid: receive too small, a misaligned atomic, another path MTU, or "
          "more READs and atomics than its max_dest_rd_atomic";
      break;
    case VendorError::kPeerAccess:
      reason = "the peer refuses the rkey, the bounds or the access right, or has no memory there";
      break;
    case VendorError::kPeerOperation:
      reason = "the peer's own receive buffer is bad";
      break;
    case VendorError::kWindow:
      reason =
          "no such window or region, bounds, protection domain or rights wrong, or a bound type 2 "
          "window";
      break;
    case VendorError::kBadResponse:
      reason =
          "the peer's answers have another length than this path MTU gives: do both ends agree?";
      break;
    case VendorError::kAddressDomain:
      reason = "its address handle is of another protection domain";
      break;
    case VendorError::kReceiverNotReady:
      reason = "the peer posted no receive within rnr_retry";
      break;
    case VendorError::kNoAnswer:
      reason =
          "no answer within (retry_cnt + 1) timeouts: wrong address, peer gone, or network down";
      break;
    default:
      break;
  }
  log_debug(
      "QP 0x%x: work request 0x%llx to QP 0x%x at %u.%u.%u.%u failed with status %u: %s (retry_cnt "
      "%u, timeout %u, rnr_retry %u, %llu ms without progress)",
      qpn, static_cast<unsigned long long>(w.wr_id), attr.dest_qpn, ip >> 24, ip >> 16 & 255,
      ip >> 8 & 255, ip & 255, static_cast<unsigned>(failed_status_), reason, attr.retry_cnt,
      attr.timeout, attr.rnr_retry, static_cast<unsigned long long>(silence_ns_ / 1'000'000));
  log_debug(
      "QP 0x%x: requests %u..%u (%u lost, transmitted to %u, front attempt %u), responses %u..%u "
      "of %u (%u lost), epoch %u, rnr %u, credit %u of %u, timeouts %u",
      qpn, requests_.una().value(), requests_.next().value(), requests_.lost_count(),
      status().transmitted_psn.load(std::memory_order_relaxed),
      requests_.window() != 0 ? requests_.attempt(requests_.una()) : 0u, responses_.una().value(),
      responses_.next().value(), next_response_psn_.value(), responses_.lost_count(), epoch_,
      static_cast<unsigned>(rnr_), next_recv_sn_, credit_, backoff_);
}

bool Qp::finished(const Wqe& w) const {
  const uint32_t needed = broken(Fault::complete_on_first_ack) ? 1 : w.psn_count;
  if (distance(w.first_psn + needed, requests_.una()) < 0) return false;
  return w.response_count == 0 || broken(Fault::read_completes_early) ||
         distance(w.first_response_psn + w.response_count, responses_.una()) >= 0;
}

void Qp::complete(TimeNs) {
  if (broken(Fault::completion_out_of_order) && serial_distance(head_ + 1, issue_) > 0 &&
      finished(wqe(head_ + 1)))
    std::swap(wqe(head_).wr_id, wqe(head_ + 1).wr_id);
  while (head_ != issue_ && finished(wqe(head_)) && !(failed_ && head_ == failed_index_)) {
    const Wqe& w = wqe(head_);
    if (consumes_receive(w.op)) --receives_outstanding_;
    if (is_read_or_atomic(w.op)) --reads_outstanding_;
    deliver(w, WcStatus::kSuccess, VendorError::kNone);
    ++head_;
    if (state == QpState::kErr) return;  // the completion queue overflowed
  }
  if (failed_ && head_ == failed_index_) {
    deliver(wqe(head_), failed_status_, failed_vendor_);
    ++head_;
    if (serial_distance(issue_, head_) > 0) issue_ = head_;
    if (is_reliable()) {
      go_to_error();
    } else {
      stop_sends();
    }
    return;
  }
  tell_drained();
}

void Qp::tell_drained() {
  if (state != QpState::kSqd || !notify_drained || draining()) return;
  notify_drained = false;
  host_.raise(AsyncEvent::kSqDrained, this, nullptr);
}

}  // namespace hostnic::driver
