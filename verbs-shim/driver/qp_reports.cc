// SPDX-License-Identifier: BSD-3-Clause
// What the NIC reports: receives, errors of this side, events, and by the requester what has been
// acknowledged; and the completions that follow (docs/transport.md rules 21, 28).
#include <algorithm>
#include <string>
#include <utility>

#include "verbs-shim/base/explanation.h"
#include "verbs-shim/driver/cause.h"
#include "verbs-shim/driver/qp.h"

namespace hostnic::driver {
namespace {

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
  if (!read_status(status(), snapshot, host.bits)) {
    host.want_issue(*this);  // the next turn looks again
    return;
  }
  if (state == QpState::kRts || state == QpState::kSqd) {
    requester_.with([&]<class R>(R& requester) {
      requester.take_acks(*this, snapshot, now_ns);
      if (snapshot.local_error != 0) take_local_error(snapshot, requester.una());
      if constexpr (ReliableRequester<R>) requester.take_refusals(*this, snapshot, now_ns);
    });
    complete();
  }
  // Receives of a shared queue may be taken and not completed yet, so they are always looked at.
  if (received != recv_taken_ || init.srq != nullptr) take_receives(received);
  if (snapshot.events != seen_events_) take_events(snapshot);
  issue(now_ns);
}

void Qp::take_last_acks(TimeNs now_ns) {
  QpStatusSnapshot snapshot;
  if ((state != QpState::kRts && state != QpState::kSqd) || failed_ ||
      !read_status(status(), snapshot, host.bits))
    return;
  requester_.with([&](auto& requester) { requester.take_acks(*this, snapshot, now_ns); });
  complete();
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
    if ((received.flags & kRecvIpv6) != 0) completion.flags |= kWcIpv6;
    completion.qpn = qpn;
    completion.src_qpn = init.type == QpType::kUd ? received.src_qpn : attr.dest_qpn;
    if (completion.status != WcStatus::kSuccess) {
      failed = true;
      completion.vendor = completion.status == WcStatus::kLocLenErr ? VendorError::kLocalLength
                                                                    : VendorError::kLocalKey;
      explain_receive(completion, name);
    }
    ++recv_taken_;
    if (init.srq != nullptr) init.srq->release(name);
    push(*init.recv_cq, completion, (received.flags & kRecvSolicited) != 0, 0);
  }
  if (init.srq != nullptr) {
    move_ring_end();
    host.srq_taken(*init.srq);
  }
  if (failed) go_to_error();
}

// Tells people why a message did not get into the receive that it met.
void Qp::explain_receive(const Completion& completion, uint32_t name) const {
  if (!explanations_wanted()) return;
  ExplainRequest request{};
  request.qpn = qpn;
  request.question = Question::kOwnReceive;
  const uint64_t slots = init.srq != nullptr ? init.srq->slots_offset : recv_offset;
  const uint32_t max_sge = init.srq != nullptr ? init.srq->init.max_sge : init.caps.max_recv_sge;
  const auto& slot = *reinterpret_cast<const RecvSlot*>(
      host.map.at(slots + uint64_t{name} * recv_slot_bytes(max_sge)));
  request.sge_count = static_cast<uint8_t>(std::min({slot.sge_count, max_sge, kMaxSge}));
  std::copy_n(slot.sge, request.sge_count, request.sges);
  const std::string cause = host.ask_why(request);
  explain("QP 0x%x: receive (wr_id 0x%llx) failed: %s (status %u, vendor err %u): %s", qpn,
          static_cast<unsigned long long>(completion.wr_id),
          status_text(static_cast<uint32_t>(completion.status)),
          static_cast<unsigned>(completion.status), static_cast<unsigned>(completion.vendor),
          !cause.empty()                              ? cause.c_str()
          : completion.status == WcStatus::kLocLenErr ? "the message is longer than the receive"
                                                      : "the memory that it names is wrong");
}

void Qp::explain_refusal() const {
  if (!explanations_wanted()) return;
  ExplainRequest request{};
  request.qpn = qpn;
  request.question = Question::kRefusesPeer;
  const std::string cause = host.ask_why(request);
  explain("QP 0x%x: has refused a request of its peer, and is in ERR now: %s", qpn,
          cause.empty() ? "key, bounds, right or length" : cause.c_str());
}

// The NIC's errors become the request's: nothing was changed.
void Qp::on_window_answer(int error) {
  if (state != QpState::kRts && state != QpState::kSqd) return;  // it was flushed meanwhile
  if (head_ == tail_ || !is_local(wqe(head_).op) || !wqe(head_).started) return;
  if (error != 0) {
    fail(head_, WcStatus::kMwBindErr, VendorError::kWindow);
  } else {
    ++issue_;
  }
  complete();
  if (state == QpState::kRts || state == QpState::kSqd) host.want_issue(*this);
}

void Qp::take_events(const QpStatusSnapshot& snapshot) {
  const uint32_t fresh = snapshot.events & ~seen_events_;
  seen_events_ |= snapshot.events;
  if ((fresh & kEventCommEstablished) != 0 && state == QpState::kRtr)
    host.raise(AsyncEvent::kCommEst, this, nullptr);
  if ((fresh & kEventAccessError) != 0) host.raise(AsyncEvent::kQpAccessErr, this, nullptr);
  if ((fresh & kEventRequestError) != 0) host.raise(AsyncEvent::kQpReqErr, this, nullptr);
  if ((fresh & (kEventAccessError | kEventRequestError | kEventRecvError)) != 0) {
    // A receive that has failed says why itself.
    if ((fresh & kEventRecvError) == 0) explain_refusal();
    go_to_error();
  }
}

// After a local error the NIC sends nothing any more. If the work that the error is about is
// acknowledged by now (before `una`), the program took its memory away too early, and the oldest
// request fails instead.
void Qp::take_local_error(const QpStatusSnapshot& snapshot, Psn una) {
  if (head_ == tail_) {
    host.raise(AsyncEvent::kQpFatal, this, nullptr);
    go_to_error();
    return;
  }
  const Psn refused(snapshot.local_error_psn);
  const Cause cause = cause_of_local_error(snapshot.local_error);
  fail(find_by_psn(before(refused, una) ? una : refused), cause.status, cause.vendor);
}

template <Requester R>
[[gnu::always_inline]] inline void Qp::complete_finished(R& requester) {
  while (head_ != issue_ && requester.finished(wqe(head_)) &&
         !(failed_ && head_ == failed_index_)) {
    const Wqe& w = wqe(head_);
    requester.retire(w);
    deliver(w, WcStatus::kSuccess, VendorError::kNone);
    ++head_;
    if (state == QpState::kErr) return;  // the completion queue overflowed
  }
}

void Qp::complete() {
  requester_.with([&](auto& requester) { complete_finished(requester); });
  if (state == QpState::kErr) return;
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
  host.raise(AsyncEvent::kSqDrained, this, nullptr);
}

}  // namespace hostnic::driver
