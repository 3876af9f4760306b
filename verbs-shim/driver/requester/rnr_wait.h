// SPDX-License-Identifier: BSD-3-Clause
// A requester's wait for a peer that has no receive posted (RNR NAK, InfiniBand 9.7.5.2.8;
// docs/transport.md rule 15): how long, and how often, as rnr_retry says. What goes again then, the
// requester decides.
//
// Called with the driver lock held.
#pragma once

#include <cstdint>

#include "verbs-shim/driver/cause.h"
#include "verbs-shim/driver/qp_state.h"
#include "verbs-shim/driver/requester/silence.h"
#include "verbs-shim/driver/send_queue.h"
#include "verbs-shim/driver/types.h"

namespace hostnic::driver {

class RnrWait {
 public:
  // Whether a request was refused and is not acknowledged: its timer runs, or it goes again alone.
  bool any() const { return state_ != State::kNone; }
  bool waiting() const { return state_ == State::kWaiting; }
  // Whether the timer is over and the refused request goes first.
  bool probing() const { return state_ == State::kProbing; }
  // When the timer is over. Means nothing unless waiting().
  TimeNs until_ns() const { return until_ns_; }

  // Takes an RNR NAK with this timer code. Returns false if the program wants no more retries: the
  // request fails.
  bool begin(SendQueue& queue, uint32_t code, TimeNs now_ns) {
    if (queue.attr.rnr_retry != kInfiniteRnrRetry && retries_used_ >= queue.attr.rnr_retry)
      return false;
    ++retries_used_;
    ++queue.host.totals.rnr_waits;
    state_ = State::kWaiting;
    until_ns_ = now_ns + scaled_ns(rnr_timer_ns(code), queue.host.settings().timescale);
    return true;
  }
  // The timer is over. With `probe` the refused request goes alone until it is acknowledged.
  void end(bool probe) { state_ = probe ? State::kProbing : State::kNone; }
  // The request is acknowledged, or a receive has been posted: the next refusal is another one's.
  void forget() {
    state_ = State::kNone;
    retries_used_ = 0;
  }

 private:
  enum class State : uint8_t { kNone, kWaiting, kProbing };
  State state_ = State::kNone;
  uint32_t retries_used_ = 0;
  TimeNs until_ns_ = 0;
};

}  // namespace hostnic::driver
