// SPDX-License-Identifier: BSD-3-Clause
// What a requester is to the driver: the sending transport of a queue pair. It gives requests their
// PSNs, hands them to the NIC as its windows allow, and says when they are finished. Qp keeps what
// verbs means: the send queue and its order, checks, completions, flush, receives, state. hostnic
// is the native one (docs/transport.md), for RC; roce is the standard's RC (docs/roce.md); mrc is
// Multipath Reliable Connection (docs/mrc.md); unreliable is for UC and UD. The NIC's half of a
// transport is described in dataplane/nic/transport/transport.h.
//
// Each queue pair has one requester, by value (AnyRequester), which its service and, from the
// moment that it is connected, its transport choose. A requester owns its PSN spaces, windows and
// timers, and is handed the send queue (SendQueue) with each call; it sees neither Qp nor the
// receive side. Calls are resolved when compiled, and want the driver lock held.
//
// A requester is added in these places, beside what transport.h lists for the NIC:
//   requester/<name>.h, <name>*.cc  the requester, and a static_assert that it is one
//   requester/any_requester.h       the member, and its line in with()
//   send_queue.cc                   describe(), if it says something new in descriptors
//   meson.build                     its sources
//   tests/unit/driver/              its test
#pragma once

#include <concepts>
#include <cstdint>

#include "protocol/transport_kind.h"
#include "verbs-shim/driver/send_queue.h"

namespace hostnic::driver {

template <class R>
concept Requester = requires(R requester, const R constant, SendQueue& queue, const SendQueue& seen,
                             Wqe& w, const Wqe& posted, uint32_t index, uint32_t room,
                             uint64_t limit_bytes, Psn first, TimeNs now_ns,
                             const QpStatusSnapshot& snapshot) {
  // Starts with requests at `first`: when connected, or from SQE to RTS. This allocates; not for
  // the hot path.
  requester.start(queue, first, now_ns);
  // The oldest PSN that is not acknowledged, the next one that was never sent, and how many lie
  // between them. Requests have PSNs in the queue's order.
  { constant.una() } -> std::same_as<Psn>;
  { constant.next() } -> std::same_as<Psn>;
  { constant.in_flight() } -> std::same_as<uint32_t>;

  // How many PSNs the windows leave room for.
  { constant.room(seen) } -> std::same_as<uint32_t>;
  // Whether a request that is next in the queue, and has packets, may be handed over now (rule
  // 2, numbers at hand-off). If not, a report or a timer comes that changes that.
  { constant.may_start(seen, posted) } -> std::same_as<bool>;
  // Begins a request: gives it its numbers, from next() on (first_psn, psn_count).
  requester.assign(queue, w, index);
  // Hands over the next chunk of a request that has begun, at most `room` PSNs, and counts them
  // in issued_psns. The send ring has room for the largest descriptor; `limit_bytes` is what may
  // wait in the NIC (QpHost::queued_bytes_limit).
  requester.send_next(queue, w, index, room, limit_bytes, now_ns);

  // Takes what the NIC says has arrived.
  requester.take_acks(queue, snapshot, now_ns);
  // Whether a request, in [head, next_to_issue), is acknowledged and answered to its end; if it has
  // no packets, whether what came before it is.
  { constant.finished(posted) } -> std::same_as<bool>;
  // Forgets a request that completes, the oldest one.
  requester.retire(posted);

  // Prefetches what the next send_next() fills in.
  constant.prefetch_next();
  { constant.gauges(seen) } -> std::same_as<QpGauges>;
  // How many PSNs may be in flight (rule 27, congestion window).
  { constant.congestion_window() } -> std::same_as<uint32_t>;
};

// A requester of a reliable service has these, too: what is lost goes again, and time says so in
// the end.
template <class R>
concept ReliableRequester = Requester<R> &&
    requires(R requester, const R constant, SendQueue& queue, const SendQueue& seen, TimeNs now_ns,
             const QpStatusSnapshot& snapshot) {
  // Notes that work begins on an idle queue: until now there was nothing to wait for.
  requester.begin_work(now_ns);
  // Repeats what is lost, and asks for what is still to come of requests that have begun.
  // Returns false if a ring is full: the next turn looks again.
  { requester.send_again(queue, now_ns) } -> std::same_as<bool>;
  // Whether first transmissions may go at all.
  { constant.may_issue() } -> std::same_as<bool>;
  // Takes the peer's refusals, and what is wrong with its answers: requests fail, or wait.
  requester.take_refusals(queue, snapshot, now_ns);
  // When on_timer() has something to do; UINT64_MAX: only if a report comes first.
  { constant.deadline_ns(seen) } -> std::same_as<TimeNs>;
  // A deadline that is not later than that, cheaply, for what has just been sent; UINT64_MAX:
  // nothing is waited for.
  { constant.first_deadline_ns(seen, now_ns) } -> std::same_as<TimeNs>;
  // Looks for losses, counts silence, and marks what is to go again. Returns false if a request
  // has failed.
  { requester.on_timer(queue, now_ns) } -> std::same_as<bool>;
};

}  // namespace hostnic::driver
