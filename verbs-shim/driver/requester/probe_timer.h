// SPDX-License-Identifier: BSD-3-Clause
// After how much silence something is repeated: at first by a probe, because the end of what was
// sent may be lost without anything behind it to show that (docs/transport.md rule 24).
#pragma once

#include <algorithm>
#include <cstdint>

#include "verbs-shim/driver/requester/read_answers.h"

namespace hostnic::driver {

// Probes, each after twice the silence, while answers are missing that were pulled again: a loss
// has just shown, and the last that is pulled again has nothing behind it by which its loss would.
inline constexpr uint32_t kMostRepullProbes = 4;
// How much less silence precedes a probe for answers that were pulled again: processes that have
// just sent and received have their cores.
inline constexpr uint64_t kRepullsSooner = 8;

class ProbeTimer {
 public:
  // Probes since the last progress.
  bool any() const { return probes_ != 0; }
  void note_probe() { ++probes_; }
  void note_progress() { probes_ = 0; }
  bool may_probe(const ReadAnswers& answers) const {
    return probes_ < (answers.misses_repulled() ? kMostRepullProbes : 1);
  }
  // The silence before the first probe; `rtt` is that of requests.
  static uint64_t silence_ns(const DriverSettings& settings, const RttEstimator& rtt,
                             const ReadAnswers& answers) {
    const uint64_t measured = rtt.valid() ? 2 * rtt.srtt_ns() : settings.min_rto_ns;
    if (!answers.misses_repulled() || !answers.rtt().valid())
      return std::max(settings.min_probe_ns, measured);
    return std::max(
        {settings.min_probe_ns / kRepullsSooner, measured, 2 * answers.rtt().srtt_ns()});
  }
  // The silence before the next probe, or the timeout.
  uint64_t repeat_ns(const DriverSettings& settings, const RttEstimator& rtt,
                     const ReadAnswers& answers, uint64_t rto_ns) const {
    if (!may_probe(answers)) return rto_ns;
    return std::min(silence_ns(settings, rtt, answers) << probes_, rto_ns);
  }

 private:
  uint32_t probes_ = 0;
};

}  // namespace hostnic::driver
