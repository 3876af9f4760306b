// SPDX-License-Identifier: BSD-3-Clause
// What goes to the NIC: first transmissions in queue order, as the requester lets them, and before
// those what it has to repeat; and when a timer has to look again.
#include <algorithm>

#include "verbs-shim/driver/qp.h"

namespace hostnic::driver {
namespace {

// The least chunks and PSNs of one queue pair's turn at the ring before it is another's: a chunk
// that follows one of the same queue pair costs each end half as much.
constexpr uint32_t kChunksPerTurn = 8;
constexpr int32_t kPsnsPerTurn = 64;

}  // namespace

// Hands over the next chunk of the oldest request that has one.
template <Requester R>
Qp::Issue Qp::issue_chunk(R& requester, TimeNs now_ns) {
  const uint32_t index = issue_;
  Wqe& w = wqe(index);
  if (is_local(w.op)) return issue_local(index, requester.next());
  const uint32_t room = requester.room(*this);
  if (is_unsendable(w)) {
    fail_unsendable(index);
    if (is_reliable()) host.raise(AsyncEvent::kQpReqErr, this, nullptr);
    return Issue::kWaits;
  }
  if (room == 0 || (!w.started && !requester.may_start(*this, w))) return Issue::kWaits;
  // Only a bounded amount queues in the NIC (rule 4, bounded queues). Nobody reports transmission,
  // so progress() looks again.
  const uint64_t limit_bytes = host.queued_bytes_limit(status_index, now_ns);
  const auto beyond_limit = [&](uint32_t psns) {
    return uint64_t{psns} * attr.path_mtu_bytes >= limit_bytes;
  };
  // The number of PSNs transmitted is read only where it matters, because it is on another core.
  if (beyond_limit(requester.in_flight())) {
    const int32_t untransmitted = distance(transmitted(), requester.next());
    if (untransmitted > 0 && beyond_limit(static_cast<uint32_t>(untransmitted)))
      return Issue::kLater;
  }
  if (!host.map.sends.has_room(1 + kMaxExtraElements)) return Issue::kRingFull;
  if (!w.started) {
    w.started = true;
    requester.assign(*this, w, index);
  }
  requester.send_next(*this, w, index, room, limit_bytes, now_ns);
  if (w.issued_psns == w.psn_count) ++issue_;
  return Issue::kDone;
}

// Issues first transmissions, in queue order. Returns false if the next turn must look again.
template <Requester R>
[[gnu::always_inline]] inline bool Qp::issue_new(R& requester, TimeNs now_ns) {
  const bool others_first = host.others_wait_for_ring_space(*this);
  const Psn first = requester.next();
  uint32_t chunks = 0;
  while (issue_ != tail_ && (state == QpState::kRts || wqe(issue_).started)) {
    Issue outcome = Issue::kRingFull;
    const bool turn_over =
        chunks++ >= kChunksPerTurn && distance(first, requester.next()) >= kPsnsPerTurn;
    if (!others_first && !turn_over) outcome = issue_chunk(requester, now_ns);
    if (outcome == Issue::kDone) continue;
    if (outcome == Issue::kRingFull) host.wait_for_ring_space(*this);
    return outcome != Issue::kLater;
  }
  return true;
}

template <Requester R>
[[gnu::always_inline]] inline bool Qp::issue_with(R& requester, TimeNs now_ns) {
  bool all = true;
  if constexpr (ReliableRequester<R>) {
    all = requester.send_again(*this, now_ns);
    if (!requester.may_issue()) return all;
  }
  if (failed_) return all;
  return issue_new(requester, now_ns) && all;
}

void Qp::issue_ready(TimeNs now_ns) {
  if (state != QpState::kRts && state != QpState::kSqd) return;
  if (credit_unsaid_) notify_credit();
  const bool all = requester_.with([&](auto& requester) { return issue_with(requester, now_ns); });
  if (!all) host.want_issue(*this);
  // A request that can't be issued at all has failed; nobody will report it.
  if (failed_ && head_ == failed_index_) complete();
}

// Issues a bind or an invalidation, which takes no PSN. It starts when all before it is complete,
// and nothing after it starts before the NIC has answered: then order needs no rules of its own.
Qp::Issue Qp::issue_local(uint32_t index, Psn next) {
  Wqe& w = wqe(index);
  if (w.started || head_ != index) return Issue::kWaits;
  Command command{};
  if (w.op == SendOp::kBindWindow) {
    command.kind = CommandKind::kBindWindow;
    command.bind_window = {.qpn = qpn,
                           .key = w.rkey,
                           .mr_key = w.binding.mr_key,
                           .access = w.binding.access,
                           .va = w.remote_va,
                           .length_bytes = w.binding.length_bytes};
  } else {
    command.kind = CommandKind::kInvalidateWindow;
    command.invalidate_window = {.qpn = qpn, .key = w.rkey};
  }
  if (!host.send_window_command(*this, command)) return Issue::kLater;
  w.started = true;
  w.first_psn = next;
  w.psn_count = 0;
  return Issue::kWaits;
}

// ---- time

void Qp::update_deadline() {
  deadline_ns_ = UINT64_MAX;
  if (state != QpState::kRts && state != QpState::kSqd) return;
  requester_.with([&]<class R>(R& requester) {
    if constexpr (ReliableRequester<R>) deadline_ns_ = requester.deadline_ns(*this);
  });
  if (deadline_ns_ != UINT64_MAX) host.want_timer(*this);
}

// Starts the timer when something has been sent and no timer ran.
void Qp::start_timer(TimeNs now_ns) {
  if (state > QpState::kSqd) return;
  requester_.with([&]<class R>(R& requester) {
    if constexpr (ReliableRequester<R>) deadline_ns_ = requester.first_deadline_ns(*this, now_ns);
  });
  if (deadline_ns_ != UINT64_MAX) host.want_timer(*this);
}

void Qp::on_timer(TimeNs now_ns) {
  if (state != QpState::kRts && state != QpState::kSqd) return;
  const bool goes_on = requester_.with([&]<class R>(R& requester) {
    if constexpr (ReliableRequester<R>)
      return requester.on_timer(*this, now_ns);
    else
      return true;
  });
  if (goes_on) {
    issue(now_ns);
  } else {
    complete();
  }
}

}  // namespace hostnic::driver
