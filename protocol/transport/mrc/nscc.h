// SPDX-License-Identifier: BSD-3-Clause
// MRC's congestion window (docs/mrc.md, "Congestion"): bytes on their way, of one queue pair.
// Each SACK says whether the network marked its packet (ECN) and how long that took; what the
// window does is one of four cases:
//   not marked, delay below the target      proportional increase
//   not marked, delay at the target or more fair increase
//   marked, delay at the target or more     multiplicative decrease, once a round trip at most
//   marked, delay below the target          nothing: the queue is young, or another's
// The delay is what a round trip takes beyond the shortest one. No clock; one thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "protocol/types.h"

namespace hostnic::mrc {

class Nscc {
 public:
  // The names of the cases, as a SACK is one.
  enum class Case : uint8_t { kProportional, kFair, kDecrease, kNothing };

  struct Settings {
    uint32_t mtu_bytes = 4096;
    uint64_t most_bytes = 0;       // the window begins there and never exceeds it
    uint64_t least_target_ns = 0;  // the target delay is not below this, however short the path
  };

  void reset(const Settings& settings) {
    settings_ = settings;
    settings_.most_bytes = std::max<uint64_t>(settings.most_bytes, settings.mtu_bytes);
    window_bytes_ = settings_.most_bytes;
    increase_ = 0;
    shortest_ns_ = UINT64_MAX;
    average_delay_ns_ = 0;
    decreased_ns_ = 0;
    penalty_ = 0;
  }

  // How many bytes may be on their way, at least one packet.
  uint64_t window_bytes() const {
    const uint64_t bytes = window_bytes_ - window_bytes_ * penalty_ / kMostPenalty;
    return std::max<uint64_t>(bytes, settings_.mtu_bytes);
  }
  // The same in packets of the path MTU.
  uint32_t window_psns() const {
    return static_cast<uint32_t>(window_bytes() / settings_.mtu_bytes);
  }
  // The delay that is aimed at, in the network's queues: three quarters of the shortest round trip.
  uint64_t target_ns() const {
    const uint64_t of_path = shortest_ns_ == UINT64_MAX ? 0 : shortest_ns_ / 4 * 3;
    return std::max<uint64_t>({of_path, settings_.least_target_ns, 1});
  }

  // Takes what one SACK says: `newly_bytes` that were not known to have come, the round trip of the
  // packet that it answers, and whether that packet was marked. Returns the case that this is.
  Case on_sack(uint64_t newly_bytes, uint64_t rtt_ns, bool is_marked, TimeNs now_ns) {
    shortest_ns_ = std::min(shortest_ns_, rtt_ns);
    const uint64_t delay_ns = rtt_ns - shortest_ns_, target = target_ns();
    average_delay_ns_ += delay_ns / kDelayShare - average_delay_ns_ / kDelayShare;
    if (is_marked) {
      if (delay_ns < target) return Case::kNothing;
      decrease(now_ns, target);
      return Case::kDecrease;
    }
    if (delay_ns >= target) {
      increase(newly_bytes, kFairPerRoundTrip, 1, 1);
      return Case::kFair;
    }
    increase(newly_bytes, kMostPerRoundTrip, target - delay_ns, target);
    return Case::kProportional;
  }

  // A timeout says that more was lost than SACKs could tell of.
  void on_timeout() { shrink_to(window_bytes_ / 2); }
  // The receiver asks for less: 0 for nothing, 127 for one packet a round trip.
  void on_penalty(uint8_t penalty) { penalty_ = std::min<uint8_t>(penalty, kMostPenalty); }

 private:
  // Eighths of an MTU by which the window grows in a round trip: at most, where there is no queue,
  // and where the queue is at its target.
  static constexpr uint64_t kMostPerRoundTrip = 32, kFairPerRoundTrip = 2;
  static constexpr uint64_t kDelayShare = 8;  // one delay's share of the average
  static constexpr uint8_t kMostPenalty = 127;

  // Grows so much in a round trip of all that the window holds, times `part` of `whole`.
  void increase(uint64_t newly_bytes, uint64_t eighths, uint64_t part, uint64_t whole) {
    const uint64_t per_round_trip = settings_.mtu_bytes * eighths / 8 * part / whole;
    increase_ += newly_bytes * per_round_trip;
    const uint64_t grown = increase_ / window_bytes_;
    increase_ -= grown * window_bytes_;
    window_bytes_ = std::min(window_bytes_ + grown, settings_.most_bytes);
  }
  void decrease(TimeNs now_ns, uint64_t target) {
    if (decreased_ns_ != 0 && now_ns - decreased_ns_ < shortest_ns_) return;
    decreased_ns_ = now_ns;
    // By four fifths of the share of the delay that is beyond the target, by half at most. A first
    // mark counts as if the average were twice the target.
    const uint64_t average = std::max(average_delay_ns_, 2 * target);
    const uint64_t down = window_bytes_ * 4 / 5 * (average - target) / average;
    shrink_to(window_bytes_ - std::min(down, window_bytes_ / 2));
  }
  void shrink_to(uint64_t bytes) {
    window_bytes_ = std::max<uint64_t>(bytes, settings_.mtu_bytes);
    increase_ = 0;
  }

  Settings settings_;
  uint64_t window_bytes_ = 1;
  uint64_t increase_ = 0;  // bytes of the window, times the window: what has not made a whole byte
  uint64_t shortest_ns_ = UINT64_MAX;
  uint64_t average_delay_ns_ = 0;
  TimeNs decreased_ns_ = 0;
  uint8_t penalty_ = 0;
};

}  // namespace hostnic::mrc
