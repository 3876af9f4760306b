// SPDX-License-Identifier: BSD-3-Clause
// How many PSNs of one space may be in flight, below a static cap (docs/transport.md rule 27).
//
// It follows what tells of a queue: congestion marks of the receiver, and round trips that have
// grown. A lost packet does not shrink it, for random loss is what this transport is made for; a
// retransmission timeout does. Decisions are made once per round trip: multiplicative down,
// additive up. Of a round trip's samples the smallest counts: a standing queue delays all of them,
// a thread that did not get the CPU only some (as in LEDBAT, RFC 6817, and HyStart, RFC 9406).
//
// No clock; the driver half's lock covers it. No division after reset().
#pragma once

#include <algorithm>
#include <cstdint>

#include "protocol/psn.h"

namespace hostnic {

class CongestionWindow {
 public:
  // Starts at `cap_psns`, as adapters do, which the window never exceeds. `allowance_ns` says how
  // much a round trip may exceed the shortest one before that counts as a queue.
  void reset(Psn first, uint32_t cap_psns, uint64_t allowance_ns) {
    window_psns_ = cap_psns_ = cap_psns;
    step_psns_ = std::max(cap_psns / kStepDivisor, 1u);
    allowance_ns_ = allowance_ns;
    round_end_ = first;
    shortest_ns_ = older_shortest_ns_ = round_shortest_ns_ = UINT64_MAX;
    rounds_ = 0;
    marked_ = false;
  }

  uint32_t psns() const { return window_psns_; }

  void on_rtt(uint64_t rtt_ns) { round_shortest_ns_ = std::min(round_shortest_ns_, rtt_ns); }
  void on_mark() { marked_ = true; }

  // Called after an ACK, or what stands for one: `una` is the oldest PSN that it lacks, `next` the
  // next one to be sent. A round trip is over when what was next at its start has been
  // acknowledged.
  void on_ack(Psn una, Psn next) {
    if (before(una, round_end_)) return;
    if (queue_exceeds(kLongQueue * allowance_ns_)) {
      on_timeout();
    } else if (marked_ || queue_exceeds(allowance_ns_)) {
      window_psns_ = std::max(window_psns_ - ((window_psns_ + 3) >> 2), 1u);
    } else {
      window_psns_ = std::min(window_psns_ + step_psns_, cap_psns_);
    }
    remember_shortest();
    round_shortest_ns_ = UINT64_MAX;
    marked_ = false;
    // The round has at least one more PSN than now, or every ACK would be a round of its own.
    round_end_ = next == una ? next + 1 : next;
  }

  void on_timeout() { window_psns_ = std::max(window_psns_ >> 1, 1u); }

 private:
  static constexpr uint64_t kLongQueue = 4;  // a queue of more allowances than this halves the
                                             // window
  static constexpr uint32_t kStepDivisor = 32;
  // The shortest round trip is that of the last kMemoryRounds to twice as many rounds, so that a
  // path that became longer is believed in the end.
  static constexpr uint32_t kMemoryRounds = 4096;

  bool queue_exceeds(uint64_t allowance_ns) const {
    const uint64_t shortest_ns = std::min(shortest_ns_, older_shortest_ns_);
    return shortest_ns != UINT64_MAX && round_shortest_ns_ != UINT64_MAX &&
           round_shortest_ns_ > shortest_ns + allowance_ns;
  }

  void remember_shortest() {
    shortest_ns_ = std::min(shortest_ns_, round_shortest_ns_);
    if (++rounds_ % kMemoryRounds != 0) return;
    older_shortest_ns_ = shortest_ns_;
    shortest_ns_ = round_shortest_ns_;
  }

  uint32_t window_psns_ = 1, cap_psns_ = 1, step_psns_ = 1;
  uint64_t allowance_ns_ = 0;
  Psn round_end_;
  uint64_t shortest_ns_ = UINT64_MAX, older_shortest_ns_ = UINT64_MAX;
  uint64_t round_shortest_ns_ = UINT64_MAX;
  uint32_t rounds_ = 0;
  bool marked_ = false;
};

}  // namespace hostnic
