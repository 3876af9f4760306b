// SPDX-License-Identifier: BSD-3-Clause
// Selective repeat: only what is lost goes again.
#pragma once

#include <algorithm>

#include "protocol/transport/recovery/strategy.h"

namespace hostnic::recovery {

class Selective {
 public:
  static constexpr RecoveryTraits kTraits{.answers_acknowledge = true,
                                          .congestion_limits = true,
                                          .follows_transmission = false,
                                          .one_attempt_per_message = false};

  explicit Selective(uint32_t /*window*/) {}

  void detect_losses(Scoreboard& sent, TimeNs now_ns, uint64_t srtt_ns) {
    sent.for_each_overtaken([&](Psn psn, const Scoreboard::State& s) {
      if (!s.lost && sent.overdue(psn, s, now_ns, srtt_ns, sent.threshold()))
        sent.mark(psn, RepeatCause::gap);
      return true;
    });
  }
  PsnRun repeated_with(const Scoreboard& /*sent*/, Psn psn) const { return {psn, 1}; }
  // The first of one path is the oldest; of several paths each may be the one that is due first.
  TimeNs overdue_ns(const Scoreboard& sent, uint64_t srtt_ns) const {
    TimeNs first_ns = UINT64_MAX;
    sent.for_each_overtaken([&](Psn psn, const Scoreboard::State& s) {
      if (!s.lost && sent.time_tells(s))
        first_ns = std::min(first_ns, sent.overdue_ns(psn, s, srtt_ns));
      return first_ns == UINT64_MAX || sent.has_paths();
    });
    return first_ns;
  }
};
static_assert(RecoveryStrategy<Selective>);

}  // namespace hostnic::recovery
