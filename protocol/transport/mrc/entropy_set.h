// SPDX-License-Identifier: BSD-3-Clause
// A queue pair's entropy values (EVs), by which the network's switches choose paths (docs/mrc.md,
// "Entropy values"): their order, which is another one for each queue pair, and what is known of
// each. A value is 16 bits, the UDP source port. No clock: times come in. One thread.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cstdint>

#include "protocol/types.h"
#include "protocol/wire/flow_tag.h"
#include "protocol/wire/mrc/control_headers.h"

namespace hostnic::mrc {

enum class EvState : uint8_t {
  kGood,
  kSkip,        // left out once, then good again
  kAssumedBad,  // only a probe's answer brings it back
  kDenied,      // only who denied it does (Denier)
};

constexpr const char* to_string(EvState state) {
  constexpr const char* kNames[] = {"good", "skip", "assumed-bad", "denied"};
  return kNames[static_cast<size_t>(state)];
}

// A value is denied as long as one of these denies it.
enum class Denier : uint8_t {
  kController = 1 << 0,
  kOwnPort = 1 << 1,    // its port here is down
  kPeersPort = 1 << 2,  // or at the peer
};

class EntropySet {
 public:
  static constexpr uint32_t kMost = 256;
  static constexpr uint32_t kMostPlanes = 16;
  static constexpr uint32_t kNone = UINT32_MAX;
  // How long a value that is assumed to be bad waits for its first probe. Each time that a probe
  // brings it back in vain, or tells nothing new, the next wait is twice as long, so many times.
  static constexpr uint64_t kFirstWaitNs = 200'000;
  static constexpr uint8_t kMostDoublings = 6;
  // A value is trusted as at first when so many of its packets have come.
  static constexpr uint8_t kProven = 64;

  // Makes `count` different values of `seed`, 1 to kMost, in RoCEv2's range of source ports. They
  // are spread evenly over `planes`, a power of two: a value's plane is its remainder, and one
  // plane follows the other.
  void reset(uint32_t count, uint64_t seed, uint32_t planes = 1) {
    assert(count != 0 && count <= kMost && std::has_single_bit(planes) && planes <= kMostPlanes);
    *this = EntropySet{};
    count_ = count;
    proofs_.fill(kProven);
    // Steps of an odd number pass through all of the range before one comes again; a shuffle then
    // takes the order away.
    const uint32_t range = (0x10000 - wire::kFlowTagBase) / planes;
    const uint64_t mixed = next_of(seed);
    const auto first = static_cast<uint32_t>(mixed);
    const auto step = static_cast<uint32_t>(mixed >> 32 | 1);
    const uint32_t first_plane = planes == 1 ? 0 : static_cast<uint32_t>(mixed >> 16);
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t plane = (first_plane + i) % planes;
      const uint32_t at = (first + i / planes * step) % range;
      values_[i] = static_cast<uint16_t>(wire::kFlowTagBase + at * planes + plane);
    }
    // Each changes places with one before it, or itself, of its own plane.
    for (uint32_t i = count; i > 1; --i) {
      const uint32_t of_plane = (i - 1) / planes + 1;
      const uint32_t other = static_cast<uint32_t>(next_of(seed) % of_plane);
      std::swap(values_[i - 1], values_[other * planes + (i - 1) % planes]);
    }
  }

  uint32_t size() const { return count_; }
  uint16_t value(uint32_t index) const { return values_[index]; }
  EvState state(uint32_t index) const { return states_[index]; }
  uint32_t count(EvState state) const {
    return static_cast<uint32_t>(std::count(states_.begin(), states_.begin() + count_, state));
  }
  // The value's index; kNone: it is not of this set.
  uint32_t find(uint32_t value) const {
    for (uint32_t i = 0; i < count_; ++i)
      if (values_[i] == value) return i;
    return kNone;
  }

  // The index that the next packet takes; take() says that it has left. `other_than` is avoided if
  // another one may be taken: a repetition goes another way than before. Values that are to be
  // skipped are passed once. If no value is good, bad ones are taken: something has to find out.
  uint32_t next(uint32_t other_than = kNone) {
    if (is_chosen_ && at_ != other_than && states_[at_] == EvState::kGood) return at_;
    is_chosen_ = true;
    // Two rotations: the first makes good what was skipped.
    uint32_t fallback = kNone;
    for (uint32_t i = 0; i < 2 * count_; ++i) {
      const uint32_t index = (at_ + i) % count_;
      EvState& state = states_[index];
      if (state == EvState::kSkip) {
        state = EvState::kGood;
      } else if (state == EvState::kGood && (index != other_than || count_ == 1)) {
        return at_ = index;
      } else if (fallback == kNone && state != EvState::kDenied && index != other_than) {
        fallback = index;
      }
    }
    if (fallback != kNone) at_ = fallback;
    return at_;
  }
  void take() {
    is_chosen_ = false;
    at_ = (at_ + 1) % count_;
  }

  // A SACK answers a packet that went this way.
  void note_mark(uint32_t index, wire::mrc::PathMark mark) {
    EvState& state = states_[index];
    if (state == EvState::kDenied || state == EvState::kAssumedBad) return;
    if (mark == wire::mrc::PathMark::kSkipOnce) state = EvState::kSkip;
    if (mark == wire::mrc::PathMark::kAlwaysSkip) state = EvState::kAssumedBad;
  }
  // Nothing was heard of a packet that went this way, or too many are lost. Returns false if it was
  // bad before, or is denied.
  bool note_silence(uint32_t index, TimeNs now_ns) {
    EvState& state = states_[index];
    if (state == EvState::kDenied || state == EvState::kAssumedBad) return false;
    state = EvState::kAssumedBad;
    // It had come back, and has not proved itself since.
    if (proofs_[index] < kProven && doublings_[index] < kMostDoublings) ++doublings_[index];
    due_ns_[index] = now_ns + wait_ns(index);
    return true;
  }
  // A packet that went this way has come.
  void note_come(uint32_t index) {
    if (proofs_[index] >= kProven) return;
    if (++proofs_[index] == kProven) doublings_[index] = 0;
  }
  // Whether so many of the values are bad that these are not the network's worst: what is lost then
  // is lost whatever way it goes.
  bool is_most_bad() const {
    return 4 * (count(EvState::kGood) + count(EvState::kSkip)) <= count_ - count(EvState::kDenied);
  }
  // The answer to a probe. A path that needs too long for it, `is_slow`, stays bad.
  void note_probe_answer(uint32_t index, wire::mrc::PathMark mark, bool is_slow = false) {
    EvState& state = states_[index];
    if (state != EvState::kAssumedBad) return;
    if (is_slow || mark == wire::mrc::PathMark::kAlwaysSkip) return;
    state = mark == wire::mrc::PathMark::kSkipOnce ? EvState::kSkip : EvState::kGood;
    proofs_[index] = 0;
  }
  void deny(uint32_t index, Denier denier, bool is_denied) {
    const auto bit = static_cast<uint8_t>(denier);
    uint8_t& by = denied_by_[index];
    if (((by & bit) != 0) == is_denied) return;
    by = static_cast<uint8_t>(by ^ bit);
    states_[index] = by != 0 ? EvState::kDenied : EvState::kGood;
  }
  // The first value at or behind `from`, around, that is assumed to be bad and whose probe is due
  // at `now_ns`; kNone: none is.
  uint32_t next_bad(uint32_t from, TimeNs now_ns = UINT64_MAX) const {
    for (uint32_t i = 0; i < count_; ++i) {
      const uint32_t index = (from + i) % count_;
      if (states_[index] == EvState::kAssumedBad && due_ns_[index] <= now_ns) return index;
    }
    return kNone;
  }
  // A probe has left: if it brings nothing the next one waits longer.
  void note_probed(uint32_t index, TimeNs now_ns) {
    if (doublings_[index] < kMostDoublings) ++doublings_[index];
    due_ns_[index] = now_ns + wait_ns(index);
  }

 private:
  uint64_t wait_ns(uint32_t index) const { return kFirstWaitNs << doublings_[index]; }
  // A generator with a fixed algorithm (splitmix64).
  static uint64_t next_of(uint64_t& seed) {
    uint64_t z = seed += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
  }

  std::array<uint16_t, kMost> values_{};
  std::array<EvState, kMost> states_{};
  std::array<uint8_t, kMost> denied_by_{};  // bits of Denier
  std::array<TimeNs, kMost> due_ns_{};      // of bad ones: when a probe is to leave
  std::array<uint8_t, kMost> doublings_{};  // of its wait for that
  std::array<uint8_t, kMost> proofs_{};     // packets that have come since it came back
  uint32_t count_ = 1, at_ = 0;
  bool is_chosen_ = false;  // next() has said at_, and nothing has left since
};

}  // namespace hostnic::mrc
