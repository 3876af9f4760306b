// SPDX-License-Identifier: BSD-3-Clause
// MRC's congestion window (docs/mrc.md, "Congestion"): bytes on their way, of one queue pair.
// Each SACK says whether the network marked its packet (ECN) and how long that took; what the
// window does is one of four cases:
//   not marked, delay below the target      proportional increase
//   not marked, delay at the target or more fair increase
//   marked, delay at the target or more     multiplicative decrease, once a round trip at most
//   marked, delay below the target          nothing: the queue is young, or another's
// The delay is what a round trip takes beyond the shortest one. The target is not above the delay
// at which the network begins to mark: else all would be marked below the target, the third and the
// fourth case would never take turns with the first, and no sender would find its share.
// What is marked on few paths of many is left to the choice of paths and shrinks nothing.
// No clock; one thread.
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
    uint64_t least_target_ns = 0;  // the target is so much where marks don't say another
  };

  void reset(const Settings& settings);

  // How many bytes may be on their way, at least one packet.
  uint64_t window_bytes() const {
    const uint64_t bytes = window_bytes_ - window_bytes_ * penalty_ / kMostPenalty;
    return std::max<uint64_t>(bytes, settings_.mtu_bytes);
  }
  // The same in packets of the path MTU.
  uint32_t window_psns() const {
    return static_cast<uint32_t>(window_bytes() / settings_.mtu_bytes);
  }
  // The delay that is aimed at, in the network's queues: three quarters of the shortest round trip,
  // or the settings' if that is more; but a little less than what marks come with, at most.
  uint64_t target_ns() const;
  // The shortest round trip; 0 before there was one.
  uint64_t shortest_ns() const { return shortest_ns_ == UINT64_MAX ? 0 : shortest_ns_; }

  // Takes what one SACK says: `newly_bytes` that were not known to have come, the round trip of the
  // packet that it answers, and whether that packet was marked. Returns the case that this is.
  Case on_sack(uint64_t newly_bytes, uint64_t rtt_ns, bool is_marked, TimeNs now_ns);
  // A packet that left at `sent_ns` is lost, or was trimmed. The latter says that a queue was full:
  // then the window shrinks to what has come in the last round trip. So it does if an eighth of all
  // is lost; less is the network's errors.
  void on_loss(bool is_trimmed, TimeNs sent_ns, TimeNs now_ns);
  // A timeout says that more was lost than SACKs could tell of.
  void on_timeout() { shrink_to(window_bytes_ / 2); }
  // The receiver asks for less: 0 for nothing, 127 for one packet a round trip.
  void on_penalty(uint8_t penalty) { penalty_ = std::min<uint8_t>(penalty, kMostPenalty); }

 private:
  static constexpr uint8_t kMostPenalty = 127;

  void note_marks(uint64_t packets, bool is_marked);
  void begin_period(TimeNs now_ns);
  void increase(uint64_t newly_bytes, uint64_t eighths, uint64_t part, uint64_t whole);
  bool decrease(uint64_t rtt_ns, TimeNs now_ns);
  void shrink_to(uint64_t bytes);

  Settings settings_;
  uint64_t window_bytes_ = 1;
  uint64_t increase_ = 0;  // bytes of the window, times the window: what has not made a whole byte
  uint64_t shortest_ns_ = UINT64_MAX;
  uint64_t newest_ns_ = 0;  // the last round trip
  uint64_t average_delay_ns_ = 0;
  uint64_t marked_delay_ns_ = UINT64_MAX;  // the average of those that came with marks
  uint32_t marked_share_ = 0;              // of what has come lately, in 65536
  TimeNs decreased_ns_ = 0;
  // What has come and what was lost in this round trip, and in the one before.
  TimeNs period_end_ns_ = 0;
  uint64_t come_bytes_ = 0, come_before_bytes_ = 0;
  uint64_t lost_bytes_ = 0, lost_before_bytes_ = 0;
  uint8_t penalty_ = 0;
};

}  // namespace hostnic::mrc
