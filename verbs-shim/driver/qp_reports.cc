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

void explain_refusal(const SendQueue& queue) {
  if (!explanations_wanted()) return;
  ExplainRequest request{};
  request.qpn = queue.qpn;
  request.question = Question::kRefusesPeer;
  char before[96];
  snprintf(before, sizeof before, "QP 0x%x: has refused a request of its peer, and is in ERR now",
           queue.qpn);
  queue.host.say_why(request, before, "key, bounds, right or length");
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
  if (receives_.may_have_news(received)) take_receives(received);
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
  const bool good = receives_.take(completed, [&](const Completion& completion, bool solicited) {
    push(*init.recv_cq, completion, solicited, 0);
  });
  if (!good) go_to_error();
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
    if ((fresh & kEventRecvError) == 0) explain_refusal(*this);
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
