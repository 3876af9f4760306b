// SPDX-License-Identifier: BSD-3-Clause
// How long an lcore without work keeps its core to itself, and how long it stays awake.
//
// Both are measured in what this machine takes for an interrupt of another core, of which going to
// sleep is one (shared_fence.h). A program that is interrupted answers that much later, and an
// lcore that has given its core away or gone to sleep by then costs more than the wait. In some
// virtual machines that is 50 us, where others take 2.
#pragma once

#include <algorithm>
#include <cstdint>

#include "protocol/types.h"

namespace hostnic {

// The idle times of one lcore, used by it alone.
class IdleTimes {
 public:
  explicit IdleTimes(uint64_t linger_ns) : linger_ns_(linger_ns) {}

  // Notes how long fencing all programs took, as the lcore went to sleep.
  void fence_took(uint64_t duration_ns) { interrupt_ns_ = std::min(duration_ns, kInterruptNs); }
  // Notes that work came after `idle_ns` without any, or that the lcore goes to sleep after so
  // long.
  void waited(TimeNs now_ns, uint64_t idle_ns) {
    if (idle_ns < patience_ns(now_ns)) {
      in_vain_ = 0;
    } else {
      ++in_vain_;
    }
  }
  // Notes that a yield ended now that took a time slice: who got the core was not one who answers
  // and polls.
  void yield_was_costly(TimeNs now_ns) {
    patient_until_ns_ = now_ns + kPatientNs;
    in_vain_ = 0;
  }

  // The time without work before the lcore offers its core to others: mostly 0.
  uint64_t patience_ns(TimeNs now_ns) const {
    return now_ns < patient_until_ns_ && in_vain_ < kInVain ? 2 * interrupt_ns_ : 0;
  }
  // The time without work before the lcore sleeps. An lcore that is told not to linger at all does
  // not.
  uint64_t linger_ns() const {
    return linger_ns_ == 0 ? 0 : std::max(linger_ns_, 4 * interrupt_ns_);
  }

 private:
  static constexpr uint64_t kInterruptNs = 50'000;  // what takes longer is a time slice
  static constexpr uint64_t kPatientNs = 100'000'000;
  static constexpr uint32_t kInVain = 8;  // patience in vain, in a row: then nobody is about to
                                          // answer

  uint64_t linger_ns_;
  uint64_t interrupt_ns_ = 0;
  TimeNs patient_until_ns_ = 0;
  uint32_t in_vain_ = kInVain;
};

}  // namespace hostnic
