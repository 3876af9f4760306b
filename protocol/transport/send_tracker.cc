// SPDX-License-Identifier: BSD-3-Clause
#include "protocol/transport/send_tracker.h"

#include <algorithm>
#include <bit>

namespace hostnic {
namespace {
constexpr uint32_t kDecayAfterAcks = 1024;
}  // namespace

void SendTracker::reset(Psn first, uint32_t window, wire::Policy policy) {
  switch (policy) {
    case wire::Policy::kGoBackN:
      strategy_.emplace<recovery::GoBackN>(window);
      break;
    case wire::Policy::kWholeMessage:
      strategy_.emplace<recovery::WholeMessage>(window);
      break;
    default:
      strategy_.emplace<recovery::Selective>(window);
  }
  traits_ = with_strategy([](const auto& strategy) { return strategy.kTraits; });
  states_.assign(window, State{});
  mask_ = window - 1;
  una_ = next_ = transmitted_ = arrived_end_ = first;
  knows_transmitted_ = knows_judged_ = false;
  paths_.reset();
  acked_ = std::make_unique<PsnBits>();
  next_sequence_ = 1;
  newest_arrived_ = 0;
  newest_arrived_sent_ns_ = 0;
  threshold_ = least_threshold_ = kMinThreshold;
  late_quarters_ = kMinLateQuarters;
  quiet_acks_ = lost_count_ = resends_in_flight_ = acked_ahead_ = 0;
  last_send_ns_ = 0;
}

void SendTracker::use_paths(PathTable& table) {
  paths_ = std::make_unique<PathOrder>(window(), table);
}

void SendTracker::on_resend(Psn first, uint32_t count, TimeNs now_ns, uint8_t path) {
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
         .cause = s.cause};
  }
  last_send_ns_ = now_ns;
  if (paths_ != nullptr) [[unlikely]]
    note_path_of({first, count}, path, /*in_order=*/!overtakes);
}

void SendTracker::note_first_path(uint32_t count, uint8_t path) {
  note_path_of({next_ + (Psn::kMask + 1 - count), count}, path, /*in_order=*/true);
}

[[gnu::noinline]] void SendTracker::note_path_of(PsnRun run, uint8_t path, bool in_order) {
  for (uint32_t i = 0; i < run.count; ++i) paths_->note_sent(run.first + i, path, in_order);
}

// The oldest `count` PSNs have arrived, with one path and nothing acknowledged ahead of them: so
// nearly always. Returns how many are new.
inline uint32_t SendTracker::advance_clean(uint32_t count, TimeNs answered_before_ns) {
  for (uint32_t i = 0; i < count; ++i) {
    const State& s = state(una_ + i);
    if (s.attempt == 0 || s.sent_ns <= answered_before_ns) note_arrival(s);
    if (s.lost) --lost_count_;
    if (s.attempt != 0) --resends_in_flight_;
  }
  return count;
}

// As advance_clean(), without its conditions.
template <bool kHasPaths>
[[gnu::noinline]] uint32_t SendTracker::advance_over_holes(uint32_t count,
                                                           TimeNs answered_before_ns) {
  uint32_t ahead = acked_ahead_;
  for (uint32_t i = 0; i < count; ++i) {
    const Psn psn = una_ + i;
    const State& s = state(psn);
    if (ahead != 0 && acked_->test(psn)) {
      acked_->clear(psn);
      --ahead;
      if constexpr (kHasPaths) paths_->settle(psn);
    } else {
      if (s.attempt == 0 || s.sent_ns <= answered_before_ns) note_arrival(s);
      if constexpr (kHasPaths) note_path(psn, s);
    }
    if (s.lost) --lost_count_;
    if (s.attempt != 0) --resends_in_flight_;
  }
  const uint32_t known = acked_ahead_ - ahead;
  acked_ahead_ = ahead;
  return count - known;
}

// Takes the bits of what has arrived beyond una_. Returns how many are new.
uint32_t SendTracker::take_bits(const PsnBits& acked, TimeNs answered_before_ns) {
  uint32_t newly = 0;
  const uint32_t outstanding = in_flight();
  for (uint32_t offset = 0; offset < outstanding; offset += 64) {
    const Psn base = una_ + offset;
    uint64_t fresh = acked.extract(base) & ~acked_->extract(base);
    if (outstanding - offset < 64) fresh &= (uint64_t{1} << (outstanding - offset)) - 1;
    if (fresh == 0) continue;
    newly += paths_ == nullptr ? take_word<false>(base, fresh, answered_before_ns)
                               : take_word<true>(base, fresh, answered_before_ns);
  }
  return newly;
}

// Takes the bits that are new among 64; `fresh` is not 0. Returns how many they are.
template <bool kHasPaths>
uint32_t SendTracker::take_word(Psn base, uint64_t fresh, TimeNs answered_before_ns) {
  uint32_t newly = 0;
  const Psn end = base + (64 - static_cast<uint32_t>(std::countl_zero(fresh)));
  if (before(arrived_end_, end)) arrived_end_ = end;
  while (fresh != 0) {
    const Psn psn = base + static_cast<uint32_t>(std::countr_zero(fresh));
    fresh &= fresh - 1;
    acked_->set(psn);
    ++acked_ahead_;
    ++newly;
    State& s = state(psn);
    if (s.attempt == 0 || s.sent_ns <= answered_before_ns) note_arrival(s);
    if constexpr (kHasPaths) note_path(psn, s);
    if (s.lost) {
      s.lost = false;
      --lost_count_;
    }
  }
  return newly;
}

uint32_t SendTracker::on_ack(Psn new_una, const PsnBits& acked, TimeNs answered_before_ns) {
  return on_ack(new_una, &acked, answered_before_ns);
}

uint32_t SendTracker::on_ack(Psn new_una, const PsnBits* acked, TimeNs answered_before_ns) {
  const int32_t advance = distance(una_, new_una);
  if (advance < 0) return 0;
  if (advance > distance(una_, next_)) return 0;
  const auto count = static_cast<uint32_t>(advance);
  uint32_t newly = 0;
  if (acked_ahead_ == 0 && paths_ == nullptr) [[likely]] {
    newly = advance_clean(count, answered_before_ns);
  } else if (paths_ == nullptr) {
    newly = advance_over_holes<false>(count, answered_before_ns);
  } else {
    newly = advance_over_holes<true>(count, answered_before_ns);
  }
  una_ = new_una;
  if (acked != nullptr) newly += take_bits(*acked, answered_before_ns);
  if ((threshold_ > least_threshold_ || late_quarters_ > kMinLateQuarters) &&
      ++quiet_acks_ >= kDecayAfterAcks) {
    quiet_acks_ = 0;
    threshold_ -= (threshold_ - least_threshold_ + 7) / 8;
    late_quarters_ -= (late_quarters_ - kMinLateQuarters + 7) / 8;
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
  if (s.attempt != attempt) return;
  note_arrival(s);
  if (paths_ != nullptr && attempt != 0) paths_->note_arrived(psn);
}

void SendTracker::on_spurious_resend() {
  quiet_acks_ = 0;
  threshold_ = threshold_ * 2 > window() ? window() : threshold_ * 2;
  late_quarters_ = std::min(late_quarters_ * 2, kMaxLateQuarters);
}

uint32_t SendTracker::mark_overdue(TimeNs now_ns, uint64_t srtt_ns) {
  const uint32_t before = lost_count_;
  with_strategy([&](auto& strategy) { strategy.detect_losses(*this, now_ns, srtt_ns); });
  return lost_count_ - before;
}

TimeNs SendTracker::first_overdue_ns(uint64_t srtt_ns) const {
  return with_strategy([&](const auto& strategy) { return strategy.overdue_ns(*this, srtt_ns); });
}

void SendTracker::mark_lost(Psn psn, RepeatCause cause) {
  with_strategy([&](const auto& strategy) { mark_with_company(strategy, *this, psn, cause); });
}

// Marks una as lost, even if it has been acknowledged ahead: the receiver's expected PSN does not
// move, so something about it has not arrived. Where a message has one attempt that is all of the
// message, because a late duplicate of another attempt may have spoilt what was complete.
void SendTracker::mark_una_lost(RepeatCause cause) {
  if (in_flight() == 0) return;
  PsnRun run{una_, 1};
  if (traits_.one_attempt_per_message) {
    run = with_strategy([&](const auto& strategy) { return strategy.repeated_with(*this, una_); });
    level_attempts(run);
  }
  for (uint32_t i = 0; i < run.count; ++i) mark(run.first + i, cause);
}

void SendTracker::mark_all_lost(RepeatCause cause) {
  for (uint32_t i = 0, n = in_flight(); i < n; ++i) mark_lost(una_ + i, cause);
  mark_una_lost(cause);
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

void SendTracker::mark_first_lost(uint32_t count, RepeatCause cause) {
  for (uint32_t i = 0, n = left(); i < n && count != 0; ++i) {
    if (acked_->test(una_ + i)) continue;
    mark_lost(una_ + i, cause);
    --count;
  }
  mark_una_lost(cause);
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
    if (paths_ != nullptr) paths_->settle(psn);
    s = State{};
  }
  if (keep < static_cast<int32_t>(outstanding)) next_ = to;
  if (before(to, arrived_end_)) arrived_end_ = to;
}

}  // namespace hostnic
