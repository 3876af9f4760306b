// SPDX-License-Identifier: BSD-3-Clause
#include "protocol/transport/send_tracker.h"

#include <algorithm>
#include <bit>

namespace hostnic {
namespace {
constexpr uint32_t kDecayAfterAcks = 1024;
}  // namespace

void SendTracker::reset(Psn first, uint32_t window, wire::Policy policy) {
  policy_ = policy;
  states_.assign(window, State{});
  mask_ = window - 1;
  una_ = next_ = transmitted_ = first;
  knows_transmitted_ = false;
  acked_ = std::make_unique<PsnBits>();
  next_sequence_ = 1;
  newest_arrived_ = 0;
  newest_arrived_sent_ns_ = 0;
  threshold_ = kMinThreshold;
  late_quarters_ = kMinLateQuarters;
  quiet_acks_ = lost_count_ = resends_in_flight_ = acked_ahead_ = 0;
  last_send_ns_ = 0;
  repeated_front_ = first + Psn::kMask;  // no PSN
  repeat_most_ = window;
  front_losses_ = 0;
}

uint32_t SendTracker::left() const {
  const uint32_t outstanding = in_flight();
  if (!knows_transmitted_) return outstanding;
  const int32_t gone = distance(una_, transmitted_);
  return gone <= 0 ? 0 : std::min(static_cast<uint32_t>(gone), outstanding);
}

void SendTracker::on_resend(Psn first, uint32_t count, TimeNs now_ns) {
  // These PSNs overtake what waits in the NIC: in the order of sending that comes after them, and
  // its absence says nothing.
  const uint32_t ahead = left();
  const bool overtakes = ahead < in_flight();
  const uint32_t before_waiting = overtakes ? state(una_ + ahead).sequence - 1 : 0;
  for (uint32_t i = 0; i < count; ++i) {
    State& s = state(first + i);
    if (s.lost) --lost_count_;
    if (s.attempt == 0) ++resends_in_flight_;
    // The attempt has 2 bits on the wire; 0 is reserved for the first, so that "not a resend" stays
    // recognisable.
    s = {.sent_ns = now_ns,
         .sequence = overtakes ? before_waiting : next_sequence_++,
         .attempt = static_cast<uint8_t>(s.attempt == 3 ? 1 : s.attempt + 1),
         .ends_message = s.ends_message,
         .guessed = s.guessed};
  }
  last_send_ns_ = now_ns;
}

uint32_t SendTracker::on_ack(Psn new_una, const PsnBits& acked, TimeNs answered_before_ns) {
  return on_ack(new_una, &acked, answered_before_ns);
}

uint32_t SendTracker::on_ack(Psn new_una, const PsnBits* acked, TimeNs answered_before_ns) {
  const int32_t advance = distance(una_, new_una);
  if (advance < 0 && !broken(Fault::stale_ack_taken)) return 0;
  if (advance > distance(una_, next_)) return 0;
  uint32_t newly = 0;
  for (int32_t i = 0; i < advance; ++i) {
    const Psn psn = una_ + static_cast<uint32_t>(i);
    const State& s = state(psn);
    if (acked_ahead_ != 0 && acked_->test(psn)) {
      acked_->clear(psn);
      --acked_ahead_;
    } else {
      ++newly;
      if (s.attempt == 0 || s.sent_ns <= answered_before_ns) note_arrival(s);
    }
    if (s.lost) --lost_count_;
    if (s.attempt != 0) --resends_in_flight_;
  }
  una_ = new_una;
  if (acked != nullptr) newly += take_bits(*acked, answered_before_ns);
  if (threshold_ > kMinThreshold && ++quiet_acks_ >= kDecayAfterAcks) {
    quiet_acks_ = 0;
    threshold_ -= (threshold_ - kMinThreshold + 7) / 8;
    late_quarters_ -= (late_quarters_ - kMinLateQuarters + 7) / 8;
  }
  return newly;
}

// Takes the bits of what has arrived beyond una_. Returns how many are new.
uint32_t SendTracker::take_bits(const PsnBits& acked, TimeNs answered_before_ns) {
  uint32_t newly = 0;
  const uint32_t outstanding = in_flight();
  for (uint32_t offset = 0; offset < outstanding; offset += 64) {
    uint64_t fresh = acked.extract(una_ + offset) & ~acked_->extract(una_ + offset);
    if (outstanding - offset < 64) fresh &= (uint64_t{1} << (outstanding - offset)) - 1;
    if (broken(Fault::sack_bit_ignored)) fresh &= ~(uint64_t{1} << 9);
    while (fresh != 0) {
      const Psn psn = una_ + (offset + static_cast<uint32_t>(std::countr_zero(fresh)));
      fresh &= fresh - 1;
      acked_->set(psn);
      ++acked_ahead_;
      ++newly;
      State& s = state(psn);
      if (s.attempt == 0 || s.sent_ns <= answered_before_ns) note_arrival(s);
      if (s.lost) {
        s.lost = false;
        --lost_count_;
      }
    }
  }
  return newly;
}

void SendTracker::on_echo(Psn psn, uint8_t attempt) {
  const int32_t offset = distance(una_, psn);
  // States of acknowledged PSNs stay readable until their slot is used again, one window later.
  if (offset >= distance(una_, next_) ||
      offset < -static_cast<int32_t>(mask_) + distance(una_, next_))
    return;
  const State& s = state(psn);
  if (s.attempt == attempt) note_arrival(s);
}

void SendTracker::on_spurious_resend() {
  quiet_acks_ = 0;
  threshold_ = threshold_ * 2 > window() ? window() : threshold_ * 2;
  late_quarters_ = std::min(late_quarters_ * 2, kMaxLateQuarters);
}

// Whether a transmission counts as lost: something sent `threshold` later has arrived, or something
// sent later has, and a reordering window is over.
bool SendTracker::overdue(const State& s, TimeNs now_ns, uint64_t srtt_ns,
                          uint32_t threshold) const {
  if (!sequence_before(s.sequence, newest_arrived_)) return false;
  if (newest_arrived_ - s.sequence >= threshold) return true;
  return srtt_ns != 0 && now_ns >= s.sent_ns + reorder_window_ns(srtt_ns) &&
         newest_arrived_sent_ns_ >= s.sent_ns;
}

uint32_t SendTracker::mark_overdue(TimeNs now_ns, uint64_t srtt_ns) {
  switch (policy_) {
    case wire::Policy::kGoBackN:
      return detect_from_front(now_ns, srtt_ns);
    case wire::Policy::kWholeMessage:
      return detect_messages(now_ns, srtt_ns);
    default:
      return detect_selective(now_ns, srtt_ns);
  }
}

// Visits the PSNs whose absence says something: sent before what has arrived, and not acknowledged.
// First transmissions leave in PSN order and a repetition is younger than all that left before it,
// so behind the first transmission that is too young there is nothing: with a thousand PSNs in
// flight and one in each hundred missing this looks at the missing ones.
template <class Visit>
void SendTracker::for_each_overtaken(Visit visit) const {
  const uint32_t outstanding = in_flight();
  for (uint32_t offset = 0; offset < outstanding; offset += 64) {
    uint64_t missing = ~acked_->extract(una_ + offset);
    if (outstanding - offset < 64) missing &= (uint64_t{1} << (outstanding - offset)) - 1;
    while (missing != 0) {
      const Psn psn = una_ + (offset + static_cast<uint32_t>(std::countr_zero(missing)));
      missing &= missing - 1;
      const State& s = state(psn);
      if (sequence_before(s.sequence, newest_arrived_)) {
        if (!visit(psn, s)) return;
      } else if (s.attempt == 0) {
        return;
      }
    }
  }
}

uint32_t SendTracker::detect_selective(TimeNs now_ns, uint64_t srtt_ns) {
  const uint32_t before = lost_count_;
  for_each_overtaken([&](Psn psn, const State& overtaken) {
    if (overtaken.lost || !overdue(overtaken, now_ns, srtt_ns, threshold_)) return true;
    State& s = state(psn);
    s.lost = true;
    s.guessed = false;
    ++lost_count_;
    return true;
  });
  const uint32_t marked = lost_count_ - before;
  if (broken(Fault::whole_window_resent) && marked != 0) mark_all_lost();
  return marked;
}

// Detects losses under go-back-N, where the receiver takes its expected PSN only. If one later
// transmission arrived first, all is repeated, once per round trip: what was handed over before the
// repetition proves nothing. An atomic that waits for the READs before it is acknowledged, and
// still delays the receiver's expected PSN: so the oldest PSN that is not acknowledged counts
// (`front`), not una. A front that is lost again and again is one of more than a queue on the way
// takes: of one burst behind the other it may lose the same packets each time, so less goes until
// it has arrived. One repetition is lost by chance, too.
uint32_t SendTracker::detect_from_front(TimeNs now_ns, uint64_t srtt_ns) {
  Psn first = una_;
  while (first != next_ && acked_->test(first)) first += 1;
  if (first == next_) return 0;
  const State& front = state(first);
  if (front.lost || newest_arrived_sent_ns_ < front.sent_ns ||
      !overdue(front, now_ns, srtt_ns, /*threshold=*/1)) {
    return 0;
  }
  if (first != repeated_front_) {
    repeated_front_ = first;
    front_losses_ = 0;
    repeat_most_ = std::min(repeat_most_ * 2, window());
  } else if (++front_losses_ > kFrontLossesByChance) {
    repeat_most_ = std::max(std::min(repeat_most_, left()) / 2, 1u);
  }
  const uint32_t before = lost_count_;
  mark_unit(first, /*guessed=*/false);
  return lost_count_ - before;
}

// Whether a whole message may be lost, of which this is the last packet: the receiver counts a
// message's packets, so the last one, once it or a later one has arrived, tells whether any is
// missing.
bool SendTracker::message_may_be_lost(const State& last) const {
  return last.ends_message && !last.lost && !sequence_before(newest_arrived_, last.sequence) &&
         newest_arrived_sent_ns_ >= last.sent_ns;
}

uint32_t SendTracker::detect_messages(TimeNs now_ns, uint64_t srtt_ns) {
  const uint32_t before = lost_count_;
  for (Psn psn = una_; psn != next_; psn += 1) {
    const State& s = state(psn);
    if (acked_->test(psn) || !message_may_be_lost(s)) continue;
    const bool by_time = srtt_ns != 0 && now_ns >= s.sent_ns + reorder_window_ns(srtt_ns);
    if (by_time || newest_arrived_ - s.sequence >= threshold_) mark_unit(psn, /*guessed=*/false);
  }
  return lost_count_ - before;
}

void SendTracker::repeat_unit(Psn psn, Psn& first, uint32_t& count) const {
  first = psn;
  count = 1;
  if (policy_ == wire::Policy::kSelective) return;
  if (policy_ == wire::Policy::kGoBackN) {
    const auto end = una_ + left();
    if (before(psn, end)) count = std::min(static_cast<uint32_t>(distance(psn, end)), repeat_most_);
    return;
  }
  while (first != una_ && !state(first + Psn::kMask).ends_message)
    first += Psn::kMask;  // one PSN back
  const auto rest = static_cast<uint32_t>(distance(first, next_));
  while (count < rest && !state(first + (count - 1)).ends_message) ++count;
}

TimeNs SendTracker::first_overdue_ns(uint64_t srtt_ns) const {
  const uint32_t outstanding = in_flight();
  TimeNs sent_ns = UINT64_MAX;
  switch (policy_) {
    case wire::Policy::kGoBackN:
      return UINT64_MAX;  // ACKs decide, not time
    case wire::Policy::kWholeMessage:
      for (uint32_t i = 0; i < outstanding && sent_ns == UINT64_MAX; ++i) {
        const State& s = state(una_ + i);
        if (!acked_->test(una_ + i) && message_may_be_lost(s)) sent_ns = s.sent_ns;
      }
      break;
    default:
      for_each_overtaken([&](Psn, const State& s) {
        // The condition is that of overdue(): a deadline that passes without effect would never
        // end.
        if (!s.lost && newest_arrived_sent_ns_ >= s.sent_ns) sent_ns = s.sent_ns;
        return sent_ns == UINT64_MAX;
      });
  }
  return sent_ns == UINT64_MAX ? UINT64_MAX : sent_ns + reorder_window_ns(srtt_ns);
}

void SendTracker::mark_unit(Psn psn, bool guessed) {
  Psn first;
  uint32_t count = 0;
  repeat_unit(psn, first, count);
  if (policy_ == wire::Policy::kWholeMessage) level_attempts(first, count);
  for (uint32_t i = 0; i < count; ++i) {
    State& s = state(first + i);
    if (s.lost || acked_->test(first + i)) continue;
    s.lost = true;
    s.guessed = guessed;
    ++lost_count_;
  }
}

// Gives PSNs that are repeated together the same attempt, or the receiver would never count them as
// a whole: some may have gone again already while the rest still waits to.
void SendTracker::level_attempts(Psn first, uint32_t count) {
  const uint8_t attempt = state(first).attempt;
  for (uint32_t i = 1; i < count; ++i) {
    State& s = state(first + i);
    if (s.attempt == 0 && attempt != 0) ++resends_in_flight_;
    if (s.attempt != 0 && attempt == 0) --resends_in_flight_;
    s.attempt = attempt;
  }
}

void SendTracker::mark_lost(Psn psn) { mark_unit(psn, /*guessed=*/true); }

// Marks una as lost, even if it has been acknowledged ahead: the receiver's expected PSN does not
// move, so something about it has not arrived. Under the whole-message policy that is all of the
// message, because a late duplicate of another attempt may have spoilt what was complete.
void SendTracker::mark_una_lost() {
  if (in_flight() == 0) return;
  Psn first = una_;
  uint32_t count = 1;
  if (policy_ == wire::Policy::kWholeMessage) {
    repeat_unit(una_, first, count);
    level_attempts(first, count);
  }
  for (uint32_t i = 0; i < count; ++i) {
    State& s = state(first + i);
    if (s.lost) continue;
    s.lost = s.guessed = true;
    ++lost_count_;
  }
}

void SendTracker::mark_all_lost() {
  for (uint32_t i = 0, n = in_flight(); i < n; ++i) mark_lost(una_ + i);
  mark_una_lost();
}

bool SendTracker::find_lost_run(Psn from, uint32_t max, Psn& first, uint32_t& count) const {
  const uint32_t outstanding = in_flight();
  const int32_t skip = distance(una_, from);
  for (uint32_t i = skip < 0 ? 0 : static_cast<uint32_t>(skip); i < outstanding; ++i) {
    if (!state(una_ + i).lost) continue;
    first = una_ + i;
    count = 1;
    while (count < max && i + count < outstanding && state(first + count).lost &&
           state(first + count).attempt == state(first).attempt) {
      ++count;
    }
    return true;
  }
  return false;
}

void SendTracker::mark_first_lost(uint32_t count) {
  for (uint32_t i = 0, n = left(); i < n && count != 0; ++i) {
    if (acked_->test(una_ + i)) continue;
    mark_lost(una_ + i);
    --count;
  }
  mark_una_lost();
}

Psn SendTracker::last_unacknowledged() const {
  for (uint32_t i = left(); i > 1; --i) {
    if (!acked_->test(una_ + (i - 1))) return una_ + (i - 1);
  }
  return una_;
}

void SendTracker::rewind(Psn to) {
  const uint32_t outstanding = in_flight();
  const int32_t keep = distance(una_, to);
  if (keep < 0) return;
  for (auto i = static_cast<uint32_t>(keep); i < outstanding; ++i) {
    const Psn psn = una_ + i;
    State& s = state(psn);
    if (acked_->test(psn)) {
      acked_->clear(psn);
      --acked_ahead_;
    }
    if (s.lost) --lost_count_;
    if (s.attempt != 0) --resends_in_flight_;
    s = State{};
  }
  if (keep < static_cast<int32_t>(outstanding)) next_ = to;
}

}  // namespace hostnic
