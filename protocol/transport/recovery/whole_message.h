// SPDX-License-Identifier: BSD-3-Clause
// Whole messages: the receiver counts a message's packets instead of remembering which ones came
// (docs/recovery.md), so all of a message goes again.
#pragma once

#include <utility>

#include "protocol/transport/recovery/strategy.h"

namespace hostnic::recovery {

class WholeMessage {
 public:
  static constexpr RecoveryTraits kTraits{.answers_acknowledge = false,
                                          .congestion_limits = false,
                                          .follows_transmission = true,
                                          .one_attempt_per_message = true};

  explicit WholeMessage(uint32_t /*window*/) {}

  void detect_losses(Scoreboard& sent, TimeNs now_ns, uint64_t srtt_ns) {
    for (Psn psn = sent.una(); psn != sent.next(); psn += 1) {
      const Scoreboard::State& s = std::as_const(sent).state(psn);
      if (sent.arrived(psn) || !may_be_lost(sent, s)) continue;
      if (sent.reorder_window_over(s, now_ns, srtt_ns) ||
          sent.overtaken_by(s) >= sent.threshold()) {
        mark_with_company(*this, sent, psn, RepeatCause::gap);
      }
    }
  }
  // The outstanding part of its message.
  PsnRun repeated_with(const Scoreboard& sent, Psn psn) const {
    PsnRun run{psn, 1};
    while (run.first != sent.una() && !sent.state(run.first + Psn::kMask).ends_message)
      run.first += Psn::kMask;  // one PSN back
    const auto rest = static_cast<uint32_t>(distance(run.first, sent.next()));
    while (run.count < rest && !sent.state(run.first + (run.count - 1)).ends_message) ++run.count;
    return run;
  }
  TimeNs overdue_ns(const Scoreboard& sent, uint64_t srtt_ns) const {
    for (Psn psn = sent.una(); psn != sent.next(); psn += 1) {
      const Scoreboard::State& s = sent.state(psn);
      if (!sent.arrived(psn) && may_be_lost(sent, s)) return sent.overdue_ns(psn, s, srtt_ns);
    }
    return UINT64_MAX;
  }

 private:
  // Whether a whole message may be lost, of which this is the last packet: once it or a later one
  // has arrived, it tells whether any is missing.
  static bool may_be_lost(const Scoreboard& sent, const Scoreboard::State& last) {
    return last.ends_message && !last.lost && sent.reached(last) && sent.time_tells(last);
  }
};
static_assert(RecoveryStrategy<WholeMessage>);

}  // namespace hostnic::recovery
