// SPDX-License-Identifier: BSD-3-Clause
// What has left of one PSN space, and what of it has arrived: the scoreboard (RFC 6675) that
// SendTracker keeps and that the strategies of recovery/ judge by.
//
// Loss detection follows QUIC (RFC 9002) and RACK (RFC 8985): every transmission gets a rising
// sequence number; a PSN is lost when something sent `threshold` later, or sent later and
// acknowledged a reordering window ago, has arrived. Numbering transmissions instead of PSNs makes
// a lost retransmission detectable like any other loss. No clock: times come in.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>
#include <vector>

#include "protocol/psn.h"
#include "protocol/repeat_cause.h"
#include "protocol/transport/path_order.h"
#include "protocol/transport/receive_window.h"
#include "protocol/types.h"

namespace hostnic {

// Consecutive PSNs.
struct PsnRun {
  Psn first;
  uint32_t count = 0;
};

class Scoreboard {
 public:
  // The last transmission of a PSN.
  struct State {
    uint64_t sent_ns = 0;
    uint32_t sequence = 0;
    uint8_t attempt = 0;
    bool lost = false;
    bool ends_message = true;
    RepeatCause cause = RepeatCause::kNone;  // why it is lost, or went again last
  };
  static_assert(sizeof(State) == 16, "a thousand of them per queue pair");

  Psn una() const { return una_; }    // oldest unacknowledged
  Psn next() const { return next_; }  // next never sent
  uint32_t in_flight() const { return static_cast<uint32_t>(distance(una_, next_)); }
  uint32_t window() const { return static_cast<uint32_t>(states_.size()); }
  uint32_t lost_count() const { return lost_count_; }
  uint32_t threshold() const { return threshold_; }
  const State& state(Psn psn) const { return states_[psn.value() & mask_]; }
  // Whether a PSN from una() on has arrived.
  bool arrived(Psn psn) const { return acked_->test(psn); }
  // The number of PSNs from una() on that have left; the others wait in the NIC.
  uint32_t left() const {
    const uint32_t outstanding = in_flight();
    if (!knows_transmitted_) return outstanding;
    const int32_t gone = distance(una_, transmitted_);
    return gone <= 0 ? 0 : std::min(static_cast<uint32_t>(gone), outstanding);
  }

  // When the newest transmission that has arrived was made; 0: none has.
  uint64_t newest_arrived_sent_ns() const { return newest_arrived_sent_ns_; }
  // Whether something that was sent later than this has arrived.
  bool overtaken(const State& s) const { return sequence_before(s.sequence, newest_arrived_); }
  // Whether this, or something that was sent later, has arrived.
  bool reached(const State& s) const { return !sequence_before(newest_arrived_, s.sequence); }
  // How many transmissions after this one the newest that has arrived was made.
  uint32_t overtaken_by(const State& s) const { return newest_arrived_ - s.sequence; }
  // Whether the newest that has arrived was not sent at an earlier time than this: only then does
  // time say anything.
  bool time_tells(const State& s) const { return newest_arrived_sent_ns_ >= s.sent_ns; }
  // How long after it was sent a transmission that something has overtaken counts as late only.
  uint64_t reorder_window_ns(uint64_t srtt_ns) const {
    return srtt_ns + (srtt_ns >> 2) * late_quarters_;
  }
  bool reorder_window_over(const State& s, TimeNs now_ns, uint64_t srtt_ns) const {
    return srtt_ns != 0 && now_ns >= s.sent_ns + reorder_window_ns(srtt_ns);
  }
  // Whether a transmission counts as lost: something sent `threshold` later has arrived, or
  // something sent later has, and a reordering window is over. With several paths the former counts
  // what went by the same one, and the latter is the path's own.
  bool overdue(Psn psn, const State& s, TimeNs now_ns, uint64_t srtt_ns, uint32_t threshold) const {
    if (!overtaken(s)) return false;
    if (paths_ != nullptr) [[unlikely]] {
      return paths_->overtaken_by(psn, threshold) ||
             (time_tells(s) && now_ns >= overdue_ns(psn, s, srtt_ns));
    }
    if (overtaken_by(s) >= threshold) return true;
    return reorder_window_over(s, now_ns, srtt_ns) && time_tells(s);
  }
  // When a transmission that something has overtaken counts as lost by time; an `srtt_ns` of 0 is
  // unknown, and then that is never.
  TimeNs overdue_ns(Psn psn, const State& s, uint64_t srtt_ns) const {
    if (srtt_ns == 0) return UINT64_MAX;
    if (paths_ != nullptr) [[unlikely]]
      return paths_->may_come_until_ns(psn, s.sequence, srtt_ns, late_quarters_);
    return s.sent_ns + reorder_window_ns(srtt_ns);
  }
  bool has_paths() const { return paths_ != nullptr; }

  // The number of PSNs from una() on whose absence may say something.
  uint32_t judged() const {
    const uint32_t outstanding = in_flight();
    if (!knows_judged_) return outstanding;
    const int32_t judged = distance(una_, judged_);
    return judged <= 0 ? 0 : std::min(static_cast<uint32_t>(judged), outstanding);
  }
  // The PSN behind the last that has arrived; una() if none has.
  Psn arrived_end() const { return before(una_, arrived_end_) ? arrived_end_ : una_; }

  // Visits the PSNs whose absence says something: sent before what has arrived, and not
  // acknowledged. First transmissions leave in PSN order and a repetition is younger than all that
  // left before it, so behind the first transmission that is too young there is nothing: with a
  // thousand PSNs in flight and one in each hundred missing this looks at the missing ones.
  // Visit: bool(Psn, const State&), whether to go on.
  template <class Visit>
  void for_each_overtaken(Visit visit) const {
    const uint32_t outstanding = judged();
    for (uint32_t offset = 0; offset < outstanding; offset += 64) {
      uint64_t missing = ~acked_->extract(una_ + offset);
      if (outstanding - offset < 64) missing &= (uint64_t{1} << (outstanding - offset)) - 1;
      while (missing != 0) {
        const Psn psn = una_ + (offset + static_cast<uint32_t>(std::countr_zero(missing)));
        missing &= missing - 1;
        const State& s = state(psn);
        if (overtaken(s)) {
          if (!visit(psn, s)) return;
        } else if (s.attempt == 0) {
          return;
        }
      }
    }
  }

  // Marks a PSN as lost. With a cause other than `gap` that is a guess: it was not found missing.
  void mark(Psn psn, RepeatCause cause) {
    State& s = state(psn);
    if (s.lost) return;
    s.lost = true;
    s.cause = cause;
    ++lost_count_;
    if (paths_ != nullptr) paths_->note_lost(psn, cause);
  }
  // Marks what has not arrived of a run.
  void mark_missing(PsnRun run, RepeatCause cause) {
    for (uint32_t i = 0; i < run.count; ++i) {
      if (!arrived(run.first + i)) mark(run.first + i, cause);
    }
  }
  // Gives PSNs that are repeated together the same attempt: some may have gone again already while
  // the rest still waits to.
  void level_attempts(PsnRun run) {
    const uint8_t attempt = state(run.first).attempt;
    for (uint32_t i = 1; i < run.count; ++i) {
      State& s = state(run.first + i);
      if (s.attempt == 0 && attempt != 0) ++resends_in_flight_;
      if (s.attempt != 0 && attempt == 0) --resends_in_flight_;
      s.attempt = attempt;
    }
  }

 protected:
  State& state(Psn psn) { return states_[psn.value() & mask_]; }
  // Sequence numbers are serial: 32 bits wrap after four thousand million transmissions of one QP.
  static bool sequence_before(uint32_t a, uint32_t b) { return static_cast<int32_t>(b - a) > 0; }

  std::vector<State> states_;
  Psn transmitted_;
  Psn judged_;
  bool knows_transmitted_ = false, knows_judged_ = false;
  Psn arrived_end_;  // behind the last PSN whose bit was ever set in acked_
  uint32_t mask_ = 0;
  Psn una_, next_;
  uint32_t next_sequence_ = 1;
  uint32_t newest_arrived_ = 0;  // highest transmission sequence known to have arrived
  uint64_t newest_arrived_sent_ns_ = 0;
  uint32_t threshold_ = 0;
  uint32_t late_quarters_ = 0;
  uint32_t quiet_acks_ = 0;  // ACKs in a row without spurious resends, for the threshold's decay
  uint32_t lost_count_ = 0;
  uint32_t resends_in_flight_ =
      0;  // outstanding PSNs with attempt > 0: order of PSNs is not order of sending
  uint32_t acked_ahead_ = 0;  // number of bits set in acked_
  uint64_t last_send_ns_ = 0;
  std::unique_ptr<PsnBits> acked_;    // PSNs acknowledged beyond una_
  std::unique_ptr<PathOrder> paths_;  // null: there is one path
};

}  // namespace hostnic
