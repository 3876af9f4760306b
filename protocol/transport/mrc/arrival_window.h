// SPDX-License-Identifier: BSD-3-Clause
// The responder's half of MRC's reliability layer (docs/mrc.md, "Window"): which PSNs have come,
// and what a SACK says of them. That a packet is in here means that it has come, and nothing about
// its operation: that is what transport ACKs are for. Pure, one thread.
#pragma once

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstdint>

#include "protocol/psn.h"
#include "protocol/transport/receive_window.h"
#include "protocol/wire/mrc/control_headers.h"

namespace hostnic::mrc {

// The most that is tracked, in units of wire::mrc::kMprUnitPsns: as many PSNs as PsnBits has.
inline constexpr uint8_t kMaxMprUnits = kWindowLimit / wire::mrc::kMprUnitPsns;

// PSNs in [expected, expected + MPR) are accepted, in any order. The right edge never moves back:
// what a sender was allowed to send before the MPR shrank is taken when it comes.
class ArrivalWindow {
 public:
  enum class Place : uint8_t {
    kNew,       // inside the window, not yet received
    kReceived,  // inside the window, already received: a duplicate
    kOld,       // before the expected PSN: a duplicate
    kBeyond,    // outside the window: to be refused, or dropped
  };

  // Begins with `expected` as the first PSN. `mpr_units` is 1 to kMaxMprUnits.
  void reset(Psn expected, uint8_t mpr_units) {
    assert(mpr_units != 0 && mpr_units <= kMaxMprUnits);
    *this = ArrivalWindow{};
    expected_ = expected;
    end_ = expected;
    unreported_ = unreported_end_ = expected;
    resize(mpr_units);
  }

  Psn expected() const { return expected_; }
  // The last PSN before the expected one: all up to it have come.
  Psn cumulative() const { return expected_ + Psn::kMask; }
  uint8_t mpr_units() const { return mpr_units_; }
  // The first PSN that is outside the window.
  Psn limit() const { return limit_; }
  // The number of PSNs beyond the expected one that have come.
  uint32_t out_of_order_count() const { return ahead_; }

  // Changes the window's size (dynamic MPR), at once where it grows, and where it shrinks as the
  // expected PSN advances.
  void resize(uint8_t mpr_units) {
    mpr_units_ = std::clamp<uint8_t>(mpr_units, 1, kMaxMprUnits);
    open();
  }

  // Old is whatever lies in the half of the number space before the expected PSN.
  Place classify(Psn psn) const {
    const int32_t ahead = distance(expected_, psn);
    if (ahead < 0) return Place::kOld;
    if (distance(psn, limit_) <= 0) return Place::kBeyond;
    return bits_.test(psn) ? Place::kReceived : Place::kNew;
  }

  // Marks a PSN that classify() called kNew, and advances over what has come in a row.
  void receive(Psn psn) {
    assert(classify(psn) == Place::kNew);
    if (before(end_, psn + 1)) end_ = psn + 1;
    if (psn != expected_) {
      bits_.set(psn);
      ++ahead_;
      if (!has_unreported() || before(psn, unreported_)) unreported_ = psn;
      if (!before(psn, unreported_end_)) unreported_end_ = psn + 1;
      return;
    }
    expected_ += 1;
    for (uint32_t run; ahead_ != 0 && (run = run_at(expected_)) != 0;) {
      bits_.clear_run(expected_, run);
      ahead_ -= run;
      expected_ += run;
    }
    open();
    // The cumulative PSN of the next SACK reports what is behind it.
    if (has_unreported() && before(unreported_, expected_)) find_unreported(expected_);
  }

  // Whether something beyond the expected PSN has come that no SACK's bitmap has shown since. One
  // bitmap has room for 64 PSNs; the window may be longer.
  bool has_unreported() const { return before(unreported_, unreported_end_); }

  // Fills in what a SACK says of this window, to a packet of PSN `answered`: cumulative PSN,
  // offsets, bitmap. The bitmap has what has not been reported, and as much before that as there is
  // room for, since a SACK may be lost; with nothing to report it begins with `answered`. Whoever
  // calls says the rest: entropy, contexts, mark, MPR.
  void report(Psn answered, wire::mrc::Seth& out) {
    const Psn from = first_to_report(answered);
    out.cumulative_psn = cumulative();
    out.ack_offset = offset_to(answered);
    out.sack_offset = offset_to(from);
    out.bitmap = bits_.extract(from) & inside_mask(from);
    if (has_unreported()) find_unreported(from + wire::mrc::kSackBits);
  }

 private:
  Psn first_to_report(Psn answered) const {
    if (!has_unreported()) return before(cumulative(), answered) ? answered : expected_;
    const Psn last_begin = unreported_end_ + (Psn::kMask + 1 - wire::mrc::kSackBits);
    if (before(unreported_, last_begin)) return unreported_;
    const Psn behind_gap = expected_ + 1;
    return before(last_begin, behind_gap) ? behind_gap : last_begin;
  }
  int16_t offset_to(Psn psn) const {
    return static_cast<int16_t>(std::clamp(distance(cumulative(), psn), INT16_MIN, INT16_MAX));
  }
  // Bits behind the last PSN that has come are other PSNs' of the ring.
  uint64_t inside_mask(Psn from) const {
    const int32_t count = distance(from, end_);
    if (count <= 0) return 0;
    return count >= 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1;
  }
  uint32_t run_at(Psn psn) const {
    return static_cast<uint32_t>(std::countr_one(bits_.extract(psn) & inside_mask(psn)));
  }
  void open() {
    const Psn wanted = expected_ + mpr_units_ * wire::mrc::kMprUnitPsns;
    if (limit_is_set_ && !before(limit_, wanted)) return;
    limit_ = wanted;
    limit_is_set_ = true;
  }
  // Looks for a PSN from `from` on that has come, and before the end of what is to be reported: of
  // these some may have been reported before.
  void find_unreported(Psn from) {
    for (Psn psn = from; before(psn, unreported_end_); psn += 64) {
      const uint64_t bits = bits_.extract(psn) & inside_mask(psn);
      if (bits == 0) continue;
      unreported_ = psn + static_cast<uint32_t>(std::countr_zero(bits));
      if (has_unreported()) return;
    }
    unreported_ = unreported_end_ = expected_;
  }

  Psn expected_;
  Psn limit_;
  Psn end_;  // at and after it nothing has come
  // From the first to behind the last that have come and that no bitmap has shown; the same: none.
  Psn unreported_, unreported_end_;
  uint32_t ahead_ = 0;
  uint8_t mpr_units_ = 1;
  bool limit_is_set_ = false;
  PsnBits bits_;
};

}  // namespace hostnic::mrc
