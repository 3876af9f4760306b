// SPDX-License-Identifier: BSD-3-Clause
// A link with a finite queue in front of it: when each packet has left it. Impairments' rule `rate`
// and the links of a switch are this. No clock; one thread; nothing is allocated after
// construction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "protocol/types.h"

namespace hostnic::impair {

// The departure times of the packets in the queue, whose number is bounded by its length.
class RateLimiter {
 public:
  // Both at least 1.
  RateLimiter(uint64_t bits_per_second, uint32_t queue_packets)
      : bits_per_second_(bits_per_second), departures_(queue_packets) {}

  // The time when a packet that arrives now has left the link; none if the queue is full. Times
  // must not go back from call to call.
  std::optional<TimeNs> admit(uint32_t bytes, TimeNs now);
  // How many packets the link still has, that one included.
  size_t queued() const { return queued_; }
  // How many packets would find room now.
  size_t room(TimeNs now) {
    let_depart(now);
    return departures_.size() - queued_;
  }
  // When the next packet will have left the link; 0 if there is none.
  TimeNs first_departure_ns() const { return queued_ == 0 ? 0 : departures_[oldest_]; }
  // Has the link carry bytes that overtake its queue: packets that are admitted from now on leave
  // later by that, and those before them when it was said.
  void overtake(uint32_t bytes, TimeNs now) { carry(bytes, now); }

 private:
  void let_depart(TimeNs now);
  void carry(uint32_t bytes, TimeNs now);

  uint64_t bits_per_second_;
  std::vector<TimeNs> departures_;  // ring of the packets in the queue
  size_t oldest_ = 0, queued_ = 0;
  TimeNs busy_until_ = 0;
  uint64_t remainder_ = 0;  // remainder of the division into nanoseconds, so that rates are exact
                            // over time
};

}  // namespace hostnic::impair
