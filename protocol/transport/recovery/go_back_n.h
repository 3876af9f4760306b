// SPDX-License-Identifier: BSD-3-Clause
// Go-back-N: the receiver takes its expected PSN only, so everything from a lost PSN on goes again.
#pragma once

#include <algorithm>
#include <utility>

#include "protocol/transport/recovery/strategy.h"

namespace hostnic::recovery {

class GoBackN {
 public:
  static constexpr RecoveryTraits kTraits{.answers_acknowledge = true,
                                          .congestion_limits = true,
                                          .follows_transmission = true,
                                          .one_attempt_per_message = false};

  explicit GoBackN(uint32_t window) : repeat_most_(window) {}

  // If one later transmission arrived first, all is repeated, once per round trip: what was handed
  // over before the repetition proves nothing. An atomic that waits for the READs before it is
  // acknowledged, and still delays the receiver's expected PSN: so the oldest PSN that is not
  // acknowledged counts (`front`), not una. A front that is lost again and again is one of more
  // than a queue on the way takes: of one burst behind the other it may lose the same packets each
  // time, so less goes until it has arrived. One repetition is lost by chance, too.
  void detect_losses(Scoreboard& sent, TimeNs now_ns, uint64_t srtt_ns) {
    Psn first = sent.una();
    while (first != sent.next() && sent.arrived(first)) first += 1;
    if (first == sent.next()) return;
    const Scoreboard::State& front = std::as_const(sent).state(first);
    if (front.lost || !sent.time_tells(front) ||
        !sent.overdue(first, front, now_ns, srtt_ns, /*threshold=*/1)) {
      return;
    }
    if (!has_repeated_ || first != repeated_front_) {
      has_repeated_ = true;
      repeated_front_ = first;
      front_losses_ = 0;
      repeat_most_ = std::min(repeat_most_ * 2, sent.window());
    } else if (++front_losses_ > kFrontLossesByChance) {
      repeat_most_ = std::max(std::min(repeat_most_, sent.left()) / 2, 1u);
    }
    mark_with_company(*this, sent, first, RepeatCause::gap);
  }
  // All that has left from there on, but for a front that is lost again and again.
  PsnRun repeated_with(const Scoreboard& sent, Psn psn) const {
    const auto end = sent.una() + sent.left();
    if (!before(psn, end)) return {psn, 1};
    return {psn, std::min(static_cast<uint32_t>(distance(psn, end)), repeat_most_)};
  }
  // ACKs decide, not time.
  TimeNs overdue_ns(const Scoreboard& /*sent*/, uint64_t /*srtt_ns*/) const { return UINT64_MAX; }

 private:
  static constexpr uint32_t kFrontLossesByChance = 1;
  Psn repeated_front_;  // the PSN that was found lost last, if any was
  bool has_repeated_ = false;
  uint32_t front_losses_ = 0;  // how often its repetition was lost
  uint32_t repeat_most_;       // how many PSNs go again together
};
static_assert(RecoveryStrategy<GoBackN>);

}  // namespace hostnic::recovery
