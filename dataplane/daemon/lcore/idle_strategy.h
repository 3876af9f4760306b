// SPDX-License-Identifier: BSD-3-Clause
// The lcore's side of sharing cores (protocol/hostif/core_sharing.h, docs/core-sharing.md): what an
// lcore does while it has no work, and what it tells the programs that it serves.
//
//   stateDiagram-v2
//     Working --> Waiting: an empty turn
//     Waiting --> Yielding: 8 empty turns and patience are over, or at once if it makes way
//     Yielding --> Waiting: the yield is over
//     Waiting --> Sleeping: lingered long enough, or yields are costly
//     Waiting --> Working: work
//     Sleeping --> Waiting: rung, a deadline, a tick
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "protocol/hostif/core_sharing.h"
#include "protocol/hostif/yield_cost.h"
#include "protocol/types.h"

namespace hostnic {

// `poll` never yields or sleeps; `adaptive` does both.
enum class IdlePolicy : uint8_t { kAdaptive, kPoll };

struct LcoreIdle {
  IdlePolicy policy = IdlePolicy::kAdaptive;
  // The time without work before the lcore sleeps; longer where interrupts are costly, unless 0.
  uint64_t linger_ns = 30'000;
  // How long a sleep may last on ports that can't wake us; shorter at first, doubled each time.
  uint64_t min_tick_ns = 50'000;
  uint64_t max_tick_ns = 1'000'000;
};

// How long an lcore without work keeps its core to itself, and how long it stays awake; used by
// that lcore alone.
//
// Both are measured in what this machine takes for an interrupt of another core, of which going to
// sleep is one (shared_fence.h). A program that is interrupted answers that much later, and an
// lcore that has given its core away or gone to sleep by then costs more than the wait. In some
// virtual machines that is 50 us, where others take 2.
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

// Decides after each turn of one lcore whether to go on, yield or sleep; used by that lcore alone.
class IdleStrategy {
 public:
  enum class Step : uint8_t { kGoOn, kYield, kSleep };

  // The lcore's load and its core are told in `page`, which must outlive this.
  IdleStrategy(const LcoreIdle& idle, DoorbellPage& page)
      : policy_(idle.policy), linger_ns_(idle.linger_ns), times_(idle.linger_ns), page_(page) {}

  // Notes a turn that began at `now_ns`, with work or without.
  void turned(TimeNs now_ns, bool worked);
  // What to do after an empty turn. `handling`: NICs are served; else there is nothing to linger
  // for. `delivered_here()`, asked as the lcore becomes idle, says whether it has just delivered to
  // a program that goes on on this processor.
  template <class DeliveredHere>
  Step next(TimeNs now_ns, bool handling, DeliveredHere delivered_here) {
    if (policy_ == IdlePolicy::kPoll && handling) return Step::kGoOn;
    if (++empty_turns_ == 1) makes_way_ = !busy_ && delivered_here();
    return next_while_idle(now_ns, handling);
  }

  // Gives the core away until somebody has had it: the kernel goes on with a thread that yields
  // while it has had less of the core than the others have.
  void yield(TimeNs now_ns);

  // Notes that fencing all programs, as the lcore went to sleep, took so long.
  void fence_took(uint64_t duration_ns) { times_.fence_took(duration_ns); }
  // Notes a sleep. Where somebody rang, a partner is awake and likely to go on, so the lcore
  // lingers again; after a mere tick the next empty turn sleeps at once.
  void slept(TimeNs now_ns, TimeNs woken_ns, bool rung) {
    slept_ns_ += woken_ns - now_ns;
    if (rung) start_again(woken_ns);
  }
  // Begins to wait anew: work came as the lcore was about to sleep.
  void start_again(TimeNs now_ns) {
    empty_turns_ = 0;
    idle_since_ns_ = now_ns;
  }
  // Whether it was found since this was last asked that the lcore is busy and does not sleep: each
  // announcement of an arrival would wake a thread that is awake, at its sender's cost.
  bool found_awake() { return std::exchange(found_awake_, false); }

 private:
  Step next_while_idle(TimeNs now_ns, bool handling);
  void note_load(TimeNs now_ns, bool worked);
  void note_crowd(TimeNs now_ns);

  // A costly yield is remembered for so long: programs that spin on their memory never yield back,
  // so that each attempt costs a time slice. But a program that has just been delivered something
  // is likely to answer, and to poll then: its yields are an account of their own. Most costly
  // yields come alone, as a program starts.
  static constexpr uint64_t kCostlyYieldNs = 1'000'000, kCostlyYieldsNs = 800'000'000;

  IdlePolicy policy_;
  uint64_t linger_ns_;
  IdleTimes times_;
  DoorbellPage& page_;
  YieldCost idle_yield_cost_{kCostlyYieldNs, kCostlyYieldsNs};
  YieldCost answer_yield_cost_{kCostlyYieldNs, kCostlyYieldsNs};
  uint32_t empty_turns_ = 0;
  bool makes_way_ = false;  // until a program that has been delivered to has had this core
  TimeNs idle_since_ns_ = 0;
  TimeNs last_turn_ns_ = 0, load_since_ns_ = 0;
  uint64_t busy_ns_ = 0;  // time of turns with work, since load_since_ns_
  bool last_turn_worked_ = false;
  bool busy_ = false;
  bool found_awake_ = false;
  TimeNs crowd_since_ns_ = 0;  // 0: nothing is measured
  uint64_t crowd_cpu_ns_ = 0, slept_ns_ = 0;
};

}  // namespace hostnic
