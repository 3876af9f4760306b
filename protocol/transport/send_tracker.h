// SPDX-License-Identifier: BSD-3-Clause
// The sender's view of one PSN space: what is outstanding, what the receiver has, what is lost
// (docs/transport.md rules 24..26). Used twice per QP: for requests (acknowledged by ACKs) and for
// READ responses (where "sent" means pulled and "acknowledged" means that our own NIC has placed
// them).
//
// Loss detection follows QUIC (RFC 9002) and RACK (RFC 8985): every transmission gets a rising
// sequence number; a PSN is lost when something sent `threshold` later, or sent later and
// acknowledged a reordering window ago, has arrived. Numbering transmissions instead of PSNs makes
// a lost retransmission detectable like any other loss. No clock: times come in.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "protocol/hostif/segment.h"
#include "protocol/prefetch.h"
#include "protocol/psn.h"
#include "protocol/transport/receive_window.h"
#include "protocol/types.h"
#include "protocol/wire/bth.h"

namespace hostnic {

// A smoothed round trip time, by RFC 6298 arithmetic.
class RttEstimator {
 public:
  void sample(uint64_t rtt_ns) {
    if (samples_++ == 0) {
      srtt_ns_ = rtt_ns;
      rttvar_ns_ = rtt_ns / 2;
      return;
    }
    const uint64_t deviation = srtt_ns_ > rtt_ns ? srtt_ns_ - rtt_ns : rtt_ns - srtt_ns_;
    rttvar_ns_ += (deviation >> 2) - (rttvar_ns_ >> 2);
    srtt_ns_ += (rtt_ns >> 3) - (srtt_ns_ >> 3);
  }
  bool valid() const { return samples_ != 0; }
  uint64_t srtt_ns() const { return srtt_ns_; }
  uint64_t rttvar_ns() const { return rttvar_ns_; }

 private:
  uint64_t srtt_ns_ = 0, rttvar_ns_ = 0;
  uint32_t samples_ = 0;
};

class SendTracker {
 public:
  static constexpr uint32_t kMinThreshold = 8;  // in transmissions; adaptive upward
  // How many quarters of a round trip a transmission may be late; adaptive upward, too.
  static constexpr uint32_t kMinLateQuarters = 1, kMaxLateQuarters = 16;

  // Starts anew: `window` is the most PSNs in flight, a power of two up to kWindowLimit. `policy`
  // says what goes again when something is lost (rule 30, policies). This allocates; not for the
  // hot path.
  void reset(Psn first, uint32_t window, wire::Policy policy = wire::Policy::kSelective);

  Psn una() const { return una_; }    // oldest unacknowledged
  Psn next() const { return next_; }  // next never sent
  uint32_t in_flight() const { return static_cast<uint32_t>(distance(una_, next_)); }
  // The number of PSNs in flight that are neither acknowledged nor known to be lost: the network
  // still has them.
  uint32_t on_its_way() const {
    const uint32_t settled = acked_ahead_ + lost_count_;  // una may be both lost and acknowledged
                                                          // ahead
    return settled < in_flight() ? in_flight() - settled : 0;
  }
  uint32_t window() const { return static_cast<uint32_t>(states_.size()); }
  uint32_t lost_count() const { return lost_count_; }
  bool acknowledged(Psn psn) const { return distance(una_, psn) < 0 || acked_->test(psn); }
  uint8_t attempt(Psn psn) const { return state(psn).attempt; }
  uint64_t last_send_ns() const { return last_send_ns_; }
  uint32_t threshold() const { return threshold_; }

  // `count` PSNs from next() leave for the first time. in_flight() + count <= window().
  // `ends_message` says that the last of them is the last of its message. `attempt` is not 0 only
  // for the rest of a message whose beginning went again under kWholeMessage.
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
  // Notes that first transmissions before `psn` have left; the others wait in the NIC, and resends
  // overtake them. Without a call everything handed over counts as having left.
  void note_transmitted(Psn psn) {
    transmitted_ = psn;
    knows_transmitted_ = true;
  }
  // Notes that `count` PSNs from `first`, all outstanding, leave again; raises their attempt number
  // (modulo 4).
  void on_resend(Psn first, uint32_t count, TimeNs now_ns);

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
  bool guessed(Psn psn) const { return state(psn).guessed; }

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
  void mark_all_lost();
  // Does so for the oldest `count` PSNs.
  void mark_first_lost(uint32_t count);
  void mark_una_lost();
  // Makes one PSN due for resending (RNR, probe).
  void mark_lost(Psn psn);

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
  struct State {
    uint64_t sent_ns = 0;
    uint32_t sequence = 0;
    uint8_t attempt = 0;
    bool lost = false;
    bool ends_message = true;
    bool guessed = false;
  };
  static_assert(sizeof(State) == 16, "a thousand of them per queue pair");
  State& state(Psn psn) { return states_[psn.value() & mask_]; }
  const State& state(Psn psn) const { return states_[psn.value() & mask_]; }
  // Sequence numbers are serial: 32 bits wrap after four thousand million transmissions of one QP.
  static bool sequence_before(uint32_t a, uint32_t b) { return static_cast<int32_t>(b - a) > 0; }
  // Whether nothing was overtaken: without resends PSN order is sending order, so if una is not
  // overtaken nothing is.
  bool nothing_overtaken() const {
    return in_flight() == 0 || newest_arrived_ == 0 ||
           (resends_in_flight_ == 0 && !sequence_before(state(una_).sequence, newest_arrived_));
  }
  void note_arrival(const State& s) {
    if (sequence_before(newest_arrived_, s.sequence)) {
      newest_arrived_ = s.sequence;
      newest_arrived_sent_ns_ = s.sent_ns;
    }
  }
  uint32_t on_ack(Psn new_una, const PsnBits* acked, TimeNs answered_before_ns);
  uint32_t take_bits(const PsnBits& acked, TimeNs answered_before_ns);
  bool find_lost_run(Psn from, uint32_t max, Psn& first, uint32_t& count) const;
  TimeNs first_overdue_ns(uint64_t srtt_ns) const;
  uint32_t mark_overdue(TimeNs now_ns, uint64_t srtt_ns);
  bool overdue(const State& s, TimeNs now_ns, uint64_t srtt_ns, uint32_t threshold) const;
  uint64_t reorder_window_ns(uint64_t srtt_ns) const {
    return srtt_ns + (srtt_ns >> 2) * late_quarters_;
  }
  template <class Visit>  // bool(Psn, const State&): whether to go on
  void for_each_overtaken(Visit visit) const;
  uint32_t detect_selective(TimeNs now_ns, uint64_t srtt_ns);
  uint32_t detect_from_front(TimeNs now_ns, uint64_t srtt_ns);
  uint32_t detect_messages(TimeNs now_ns, uint64_t srtt_ns);
  bool message_may_be_lost(const State& last) const;
  // Finds the PSNs that go again together with `psn`: [first, first + count), all outstanding.
  void repeat_unit(Psn psn, Psn& first, uint32_t& count) const;
  void mark_unit(Psn psn, bool guessed);
  void level_attempts(Psn first, uint32_t count);

  // The number of PSNs from una_ on that have left.
  uint32_t left() const;

  std::vector<State> states_;
  Psn transmitted_;
  bool knows_transmitted_ = false;
  uint32_t mask_ = 0;
  wire::Policy policy_ = wire::Policy::kSelective;
  Psn una_, next_;
  uint32_t next_sequence_ = 1;
  uint32_t newest_arrived_ = 0;  // highest transmission sequence known to have arrived
  uint64_t newest_arrived_sent_ns_ = 0;
  uint32_t threshold_ = kMinThreshold;
  uint32_t late_quarters_ = kMinLateQuarters;
  uint32_t quiet_acks_ = 0;  // ACKs in a row without spurious resends, for the threshold's decay
  uint32_t lost_count_ = 0;
  uint32_t resends_in_flight_ =
      0;  // outstanding PSNs with attempt > 0: order of PSNs is not order of sending
  // For go-back-N: the PSN found lost last, how often its repetition was lost, and how many PSNs go
  // again together.
  static constexpr uint32_t kFrontLossesByChance = 1;
  Psn repeated_front_;
  uint32_t front_losses_ = 0, repeat_most_ = 0;
  uint32_t acked_ahead_ = 0;  // number of bits set in acked_
  uint64_t last_send_ns_ = 0;
  std::unique_ptr<PsnBits> acked_;  // PSNs acknowledged beyond una_
};

}  // namespace hostnic
