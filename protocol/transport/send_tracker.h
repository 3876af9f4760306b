// SPDX-License-Identifier: BSD-3-Clause
// The sender's view of one PSN space: what is outstanding, what the receiver has, what is lost
// (docs/transport.md rules 24, 25). When a connection has failed is the requester's to say. Used
// twice per QP: for requests (acknowledged by ACKs) and for READ responses (where "sent" means
// pulled and "acknowledged" means that our own NIC has placed them).
//
// What was sent and what has arrived of it is the Scoreboard; what is lost, and what goes again,
// says a strategy of recovery/, one for each policy.
#pragma once

#include <cstdint>
#include <memory>
#include <variant>

#include "protocol/hostif/segment.h"
#include "protocol/prefetch.h"
#include "protocol/psn.h"
#include "protocol/transport/receive_window.h"
#include "protocol/transport/recovery/go_back_n.h"
#include "protocol/transport/recovery/selective.h"
#include "protocol/transport/recovery/whole_message.h"
#include "protocol/transport/rtt_estimator.h"
#include "protocol/transport/scoreboard.h"
#include "protocol/types.h"
#include "protocol/wire/bth.h"

namespace hostnic {

class SendTracker : private Scoreboard {
 public:
  static constexpr uint32_t kMinThreshold = 8;  // in transmissions; adaptive upward
  // How many quarters of a round trip a transmission may be late; adaptive upward, too.
  static constexpr uint32_t kMinLateQuarters = 1, kMaxLateQuarters = 16;

  // Starts anew: `window` is the most PSNs in flight, a power of two up to kWindowLimit. `policy`
  // says what goes again when something is lost (rule 30, policies). This allocates; not for the
  // hot path.
  void reset(Psn first, uint32_t window, wire::Policy policy = wire::Policy::kSelective);
  // Has packets go by several paths from here on, selectively recovered: note_first_path()
  // and on_resend() say by which, and `table`, which outlives this, hears what became of them.
  // Called right after reset(); this allocates, too.
  void use_paths(PathTable& table);
  // The path by which a PSN, up to a window ago, went last; with one path: 0.
  uint8_t path(Psn psn) const { return paths_ == nullptr ? uint8_t{0} : paths_->path(psn); }
  // With several paths: says that all of a report has been taken, by on_echo() and on_ack().
  void end_report(TimeNs now_ns) { paths_->end_report(newest_arrived_, now_ns); }

  using Scoreboard::arrived_end;
  using Scoreboard::in_flight;
  using Scoreboard::lost_count;
  using Scoreboard::newest_arrived_sent_ns;
  using Scoreboard::next;
  using Scoreboard::threshold;
  using Scoreboard::una;
  using Scoreboard::window;
  // The number of PSNs in flight that are neither acknowledged nor known to be lost: the network
  // still has them.
  uint32_t on_its_way() const {
    const uint32_t settled = acked_ahead_ + lost_count_;  // una may be both lost and acknowledged
                                                          // ahead
    return settled < in_flight() ? in_flight() - settled : 0;
  }
  // What else than resends the policy decides.
  const RecoveryTraits& traits() const { return traits_; }
  bool acknowledged(Psn psn) const { return distance(una_, psn) < 0 || acked_->test(psn); }
  uint8_t attempt(Psn psn) const { return state(psn).attempt; }
  uint64_t last_send_ns() const { return last_send_ns_; }

  // `count` PSNs from next() leave for the first time. in_flight() + count <= window().
  // `ends_message` says that the last of them is the last of its message. `attempt` is not 0 only
  // for the rest of a message whose beginning went again where
  // the policy has one attempt per message.
  void on_first_send(uint32_t count, TimeNs now_ns, bool ends_message = true, uint8_t attempt = 0) {
    for (uint32_t i = 0; i < count; ++i) {
      state(next_ + i) = {.sent_ns = now_ns,
                          .sequence = next_sequence_++,
                          .attempt = attempt,
                          .ends_message = ends_message && i + 1 == count};
    }
    if (attempt != 0) resends_in_flight_ += count;
    next_ += count;
    last_send_ns_ = now_ns;
  }
  // With several paths, after each on_first_send(): by which those PSNs have left. It is a call of
  // its own because the loop above took an instruction more for each PSN with it.
  void note_first_path(uint32_t count, uint8_t path);
  // Packets go by several paths: that one was overtaken by others says nothing until time does, or
  // somebody who knows the paths.
  void expect_disorder() { threshold_ = least_threshold_ = window(); }
  // Notes that first transmissions before `psn` have left; the others wait in the NIC, and resends
  // overtake them. Without a call everything handed over counts as having left.
  void note_transmitted(Psn psn) {
    transmitted_ = psn;
    knows_transmitted_ = true;
  }
  // Notes that the absence of PSNs from `psn` on says nothing yet, whatever has arrived that was
  // sent later. Without a call that of every PSN does. Whoever goes by arrived_end() calls this
  // once in half the number space.
  void judge_before(Psn psn) {
    arrived_end_ = arrived_end();
    judged_ = psn;
    knows_judged_ = true;
  }
  // Notes that `count` PSNs from `first`, all outstanding, leave again; raises their attempt number
  // (modulo 4).
  void on_resend(Psn first, uint32_t count, TimeNs now_ns, uint8_t path = 0);

  // Takes an ACK, or what stands for one: everything before `new_una` arrived, and the bits of
  // `acked` beyond it (a whole snapshot: a bit may go away again only through rewind()). `echo` is
  // the packet that the receiver answered, with its attempt, when known. An impossible ACK
  // (`new_una` outside [una(), next()]) changes nothing. Resends from `answered_before_ns` or
  // earlier count as what arrived; later ones may have been overtaken by the answer to an earlier
  // transmission (RACK). Returns how many PSNs became acknowledged.
  uint32_t on_ack(Psn new_una, const PsnBits& acked, TimeNs answered_before_ns = 0);
  // Takes an ACK without any bit set.
  uint32_t on_ack(Psn new_una, TimeNs answered_before_ns = 0) {
    return on_ack(new_una, nullptr, answered_before_ns);
  }
  // Notes that the newest ACK echoes this very transmission: loss detection may count on it even if
  // it was a resend.
  void on_echo(Psn psn, uint8_t attempt);
  // Notes that the peer reported a resend as a duplicate: reordering is wider than believed, unless
  // the resend was guessed().
  void on_spurious_resend();
  // Whether `psn`, up to a window ago, last went again by a probe, a timeout or the like and not
  // because it was found lost: such a duplicate says nothing about reordering, for what was lost
  // may have been the acknowledgement.
  bool guessed(Psn psn) const {
    const RepeatCause cause = state(psn).cause;
    return cause != RepeatCause::gap && cause != RepeatCause::kNone;
  }
  // Why it is lost, or went again last.
  RepeatCause cause(Psn psn) const { return state(psn).cause; }

  // Marks PSNs that count as lost by now. With an `srtt_ns` of 0 (unknown) only the threshold
  // counts. Returns how many were newly marked.
  uint32_t detect_losses(TimeNs now_ns, uint64_t srtt_ns) {
    return nothing_overtaken() ? 0 : mark_overdue(now_ns, srtt_ns);
  }
  // The time when detect_losses() will mark something by time alone; UINT64_MAX: nothing pending.
  TimeNs reorder_deadline_ns(uint64_t srtt_ns) const {
    return srtt_ns == 0 || nothing_overtaken() ? UINT64_MAX : first_overdue_ns(srtt_ns);
  }
  // Marks everything outstanding and not acknowledged as lost, at a retransmission timeout, and una
  // in any case: when all has been acknowledged beyond an una that does not move, what is lost is
  // the ACK that would have moved it, and only a duplicate brings another (rule 7, only the base
  // promises).
  void mark_all_lost(RepeatCause cause = RepeatCause::timeout);
  // Does so for the oldest `count` PSNs.
  void mark_first_lost(uint32_t count, RepeatCause cause = RepeatCause::timeout);
  void mark_una_lost(RepeatCause cause = RepeatCause::timeout);
  // Makes one PSN due for resending (RNR, probe).
  void mark_lost(Psn psn, RepeatCause cause = RepeatCause::probe);

  // Finds the first run of lost PSNs at or after `from` with equal attempts, at most `max` long.
  // Returns false if there is none.
  bool next_lost_run(Psn from, uint32_t max, Psn& first, uint32_t& count) const {
    return lost_count_ != 0 && find_lost_run(from, max, first, count);
  }
  // The highest transmitted PSN (una() if none) that is not acknowledged: what a tail-loss probe
  // repeats. in_flight() must not be 0.
  Psn last_unacknowledged() const;

  // Prefetches what the next on_first_send() fills in.
  void prefetch_next() const { prefetch_line(states_.data() + (next_.value() & mask_)); }

  // Forgets that PSNs from `to` on were sent (READs pulled again under a new epoch).
  void rewind(Psn to);

 private:
  // Whether nothing was overtaken: without resends PSN order is sending order, so if una is not
  // overtaken nothing is.
  bool nothing_overtaken() const {
    return in_flight() == 0 || newest_arrived_ == 0 ||
           (resends_in_flight_ == 0 && !sequence_before(state(una_).sequence, newest_arrived_));
  }
  // A PSN has become acknowledged. Of what went more than once nobody knows which transmission has
  // arrived, unless an ACK echoes it.
  void note_path(Psn psn, const State& s) {
    paths_->settle(psn);
    if (s.attempt == 0) paths_->note_arrived(psn);
  }
  void note_arrival(const State& s) {
    if (sequence_before(newest_arrived_, s.sequence)) {
      newest_arrived_ = s.sequence;
      newest_arrived_sent_ns_ = s.sent_ns;
    }
  }
  uint32_t on_ack(Psn new_una, const PsnBits* acked, TimeNs answered_before_ns);
  uint32_t advance_clean(uint32_t count, TimeNs answered_before_ns);
  template <bool kHasPaths>
  uint32_t advance_over_holes(uint32_t count, TimeNs answered_before_ns);
  uint32_t take_bits(const PsnBits& acked, TimeNs answered_before_ns);
  template <bool kHasPaths>
  uint32_t take_word(Psn base, uint64_t fresh, TimeNs answered_before_ns);
  void note_path_of(PsnRun run, uint8_t path, bool in_order);
  bool find_lost_run(Psn from, uint32_t max, Psn& first, uint32_t& count) const;
  TimeNs first_overdue_ns(uint64_t srtt_ns) const;
  uint32_t mark_overdue(TimeNs now_ns, uint64_t srtt_ns);
  // Calls `call` with the policy's strategy: the one place that tells them apart.
  template <class Call>
  decltype(auto) with_strategy(Call call) {
    return std::visit(call, strategy_);
  }
  template <class Call>
  decltype(auto) with_strategy(Call call) const {
    return std::visit(call, strategy_);
  }

  uint32_t least_threshold_ = kMinThreshold;
  RecoveryTraits traits_ = recovery::Selective::kTraits;
  std::variant<recovery::Selective, recovery::GoBackN, recovery::WholeMessage> strategy_{
      recovery::Selective(0)};
};

}  // namespace hostnic
