// SPDX-License-Identifier: BSD-3-Clause
// The receiver's view of one PSN space: the expected PSN (the oldest missing one) and a bitmap of
// what arrived beyond it (docs/transport.md rules 5..8). Bits live in a ring indexed by PSN, so
// advancing never shifts memory.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "protocol/hostif/segment.h"
#include "protocol/psn.h"

namespace hostnic {

// A ring of kWindowLimit bits addressed by PSN. 2^24 is a multiple of the ring's size, so the
// addressing survives the wrap.
class PsnBits {
 public:
  bool test(Psn psn) const { return words_[word(psn)] >> bit(psn) & 1; }
  void set(Psn psn) { words_[word(psn)] |= uint64_t{1} << bit(psn); }
  void clear(Psn psn) { words_[word(psn)] &= ~(uint64_t{1} << bit(psn)); }
  // Clears 1 to 64 bits from `from` on.
  void clear_run(Psn from, uint32_t run) {
    const uint64_t mask = ~uint64_t{0} >> (64 - run);
    const uint32_t shift = bit(from);
    const uint32_t first = word(from);
    words_[first] &= ~(mask << shift);
    if (shift != 0) words_[(first + 1) % kBitmapWords] &= ~(mask >> (64 - shift));
  }
  // Sets 1 to 64 bits from `from` on.
  void set_run(Psn from, uint32_t run) {
    const uint64_t mask = ~uint64_t{0} >> (64 - run);
    const uint32_t shift = bit(from);
    const uint32_t first = word(from);
    words_[first] |= mask << shift;
    if (shift != 0) words_[(first + 1) % kBitmapWords] |= mask >> (64 - shift);
  }
  void reset() { words_ = {}; }
  // Returns 64 bits starting at `from`: bit k is from + k.
  uint64_t extract(Psn from) const {
    const uint32_t shift = bit(from);
    const uint32_t first = word(from);
    const uint64_t low = words_[first] >> shift;
    return shift == 0 ? low : low | words_[(first + 1) % kBitmapWords] << (64 - shift);
  }
  const std::array<uint64_t, kBitmapWords>& words() const { return words_; }
  std::array<uint64_t, kBitmapWords>& words() { return words_; }

 private:
  static uint32_t word(Psn psn) { return psn.value() / 64 % kBitmapWords; }
  static uint32_t bit(Psn psn) { return psn.value() % 64; }
  std::array<uint64_t, kBitmapWords> words_{};
};

class ReceiveWindow {
 public:
  enum class Place : uint8_t {
    kExpected,  // the oldest missing PSN
    kAhead,     // inside the window, not yet received; a packet before it is missing
    kReceived,  // inside the window, already received: a duplicate of a packet ahead of the
                // expected PSN
    kOld,       // before the expected PSN: a duplicate
    kBeyond,    // outside the window: to be dropped with its bit unset
  };

  void reset(Psn expected, uint32_t window) {
    expected_ = expected;
    window_ = window;
    ahead_ = 0;
    span_ = 0;
    bits_.reset();
  }

  Psn expected() const { return expected_; }
  uint32_t window() const { return window_; }
  Psn highest_acceptable() const { return expected_ + (window_ - 1); }
  // Whether something beyond the expected PSN has been received.
  bool has_hole() const { return ahead_ != 0; }
  // Whether nothing at or after `psn`, which is inside the window, has been received.
  bool beyond_all(Psn psn) const {
    return static_cast<uint32_t>(distance(expected_, psn)) >= span_;
  }
  // Whether all of `packets` PSNs from `first` on are inside the window, and none of them has been
  // received.
  bool misses_all(Psn first, uint32_t packets) const {
    const int32_t d = distance(expected_, first);
    if (d < 0 || static_cast<uint32_t>(d) + packets > window_) return false;
    if (ahead_ == 0 || beyond_all(first)) return true;
    for (uint32_t done = 0; done < packets; done += 64) {
      const uint32_t rest = packets - done;
      const uint64_t mask = rest >= 64 ? ~uint64_t{0} : (uint64_t{1} << rest) - 1;
      if ((bits_.extract(first + done) & mask) != 0) return false;
    }
    return true;
  }
  // The PSN at and after which nothing has been received.
  Psn end() const { return expected_ + span_; }
  // The number of PSNs beyond the expected one that have been received.
  uint32_t received_ahead() const { return ahead_; }

  Place classify(Psn psn) const {
    const int32_t d = distance(expected_, psn);
    // While nothing is ahead no bit is set, and the bitmap need not be in the cache.
    if (d == 0) return ahead_ != 0 && bits_.test(psn) ? Place::kReceived : Place::kExpected;
    if (d < 0) return Place::kOld;
    if (static_cast<uint32_t>(d) >= window_) return Place::kBeyond;
    return bits_.test(psn) ? Place::kReceived : Place::kAhead;
  }

  // Marks a PSN that classify() called kExpected or kAhead. A set bit is never undone, except by
  // forget_from().
  void set(Psn psn) {
    bits_.set(psn);
    ++ahead_;
    const auto d = static_cast<uint32_t>(distance(expected_, psn)) + 1;
    if (d > span_) span_ = d;
  }
  // Marks PSNs that misses_all() has said to be missing, and the first of which is not the expected
  // one.
  void set_run(Psn first, uint32_t packets) {
    for (uint32_t done = 0; done < packets; done += 64)
      bits_.set_run(first + done, std::min<uint32_t>(packets - done, 64));
    ahead_ += packets;
    span_ = std::max(span_, static_cast<uint32_t>(distance(expected_, first)) + packets);
  }
  // Whether the expected PSN has been received, so that advance() may pass it.
  bool expected_received() const { return ahead_ != 0 && bits_.test(expected_); }
  void advance() {
    bits_.clear(expected_);
    --ahead_;
    expected_ += 1;
    if (span_ != 0) --span_;
  }
  // The number of PSNs from the expected one on that have been received in a row, up to 64;
  // advance_over() passes that many at once.
  uint32_t expected_run() const {
    return ahead_ == 0 ? 0 : static_cast<uint32_t>(std::countr_one(bits_.extract(expected_)));
  }
  void advance_over(uint32_t run) {
    if (run == 0) return;
    bits_.clear_run(expected_, run);
    ahead_ -= run;
    expected_ += run;
    span_ -= std::min(span_, run);
  }
  // Accepts the expected PSN, or several from it on, that arrived in order while nothing was ahead:
  // the common case, without touching the bitmap.
  void accept_in_order(uint32_t packets = 1) {
    expected_ += packets;
    span_ -= std::min(span_, packets);
  }

  // Makes everything from `psn` on count as not received: READ responses of an older epoch (rule
  // 18, READs stay ordered).
  void forget_from(Psn psn) {
    const int32_t keep = distance(expected_, psn);
    for (int32_t d = keep < 0 ? 0 : keep; d < static_cast<int32_t>(span_); ++d) {
      const Psn p = expected_ + static_cast<uint32_t>(d);
      if (bits_.test(p)) {
        bits_.clear(p);
        --ahead_;
      }
    }
    if (keep < static_cast<int32_t>(span_)) span_ = keep < 0 ? 0 : static_cast<uint32_t>(keep);
  }

  // Writes the bitmap for an ACK: bit k of the whole is expected() + k. Returns the number of words
  // needed (0: nothing is ahead).
  uint32_t sack_words(std::array<uint64_t, kBitmapWords>& out) const {
    if (ahead_ == 0) return 0;
    const uint32_t count = (span_ + 63) / 64;
    for (uint32_t i = 0; i < count; ++i) out[i] = bits_.extract(expected_ + i * 64);
    if (const uint32_t rest = span_ % 64; rest != 0) out[count - 1] &= (uint64_t{1} << rest) - 1;
    return count;
  }
  const PsnBits& bits() const { return bits_; }

 private:
  Psn expected_;
  uint32_t window_ = kInitialWindow;
  uint32_t ahead_ = 0;  // number of bits set
  uint32_t span_ = 0;   // distance from the expected PSN to the highest set bit, plus one
  PsnBits bits_;
};

}  // namespace hostnic
