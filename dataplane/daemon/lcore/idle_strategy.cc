// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/lcore/idle_strategy.h"

#include <sched.h>
#include <time.h>

#include "dataplane/daemon/lcore/clock.h"

namespace hostnic {
namespace {

// The number of empty turns before the lcore offers its core to others. A client that answers
// within that time keeps its latency; on a machine with fewer cores than busy threads the client
// needs the core.
constexpr uint32_t kTurnsBeforeYield = 8;
// How often the lcore asks itself whether it is busy.
constexpr uint64_t kLoadPeriodNs = 250'000;
// A busy lcore waits so many times as long before it sleeps: work is likely to come.
constexpr uint64_t kBusyLingers = 8;
// How often a busy lcore asks how much of its core it gets: a system call.
constexpr uint64_t kCrowdPeriodNs = 2'000'000;

uint64_t thread_cpu_ns() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec);
}

}  // namespace

void IdleStrategy::turned(TimeNs now_ns, bool worked) {
  note_load(now_ns, worked);
  if (!worked) return;
  if (empty_turns_ != 0) times_.waited(now_ns, now_ns - idle_since_ns_);
  start_again(now_ns);
}

// Tells pollers where they are in the way: only while turns with work take most of the time.
// Programs that exchange small messages leave much of it, and do better on a core each.
void IdleStrategy::note_load(TimeNs now_ns, bool worked) {
  if (last_turn_worked_) busy_ns_ += now_ns - last_turn_ns_;
  last_turn_ns_ = now_ns;
  last_turn_worked_ = worked;
  if (now_ns - load_since_ns_ < kLoadPeriodNs) return;
  const uint64_t period_ns = now_ns - load_since_ns_;
  busy_ = 2 * busy_ns_ > period_ns;
  load_since_ns_ = now_ns;
  busy_ns_ = 0;
  note_crowd(now_ns);
  page_.busy_cpu.store(busy_ ? static_cast<uint32_t>(sched_getcpu() + 1) : 0,
                       std::memory_order_relaxed);
}

// Tells pollers that others, perhaps they, want this core as well.
void IdleStrategy::note_crowd(TimeNs now_ns) {
  if (!busy_) {
    crowd_since_ns_ = 0;
    page_.crowded.store(0, std::memory_order_relaxed);
    return;
  }
  if (crowd_since_ns_ != 0 && now_ns - crowd_since_ns_ < kCrowdPeriodNs) return;
  const uint64_t cpu_ns = thread_cpu_ns();
  if (crowd_since_ns_ != 0) {
    const uint64_t awake_ns = now_ns - crowd_since_ns_ - slept_ns_;
    const uint64_t ran_ns = cpu_ns - crowd_cpu_ns_;
    page_.crowded.store(ran_ns + awake_ns / 10 < awake_ns, std::memory_order_relaxed);
    found_awake_ = slept_ns_ == 0;
  }
  slept_ns_ = 0;
  crowd_since_ns_ = now_ns;
  crowd_cpu_ns_ = cpu_ns;
}

IdleStrategy::Step IdleStrategy::next_while_idle(TimeNs now_ns, bool handling) {
  const uint64_t idle_ns = now_ns - idle_since_ns_;
  if (!makes_way_ && (empty_turns_ < kTurnsBeforeYield || idle_ns < times_.patience_ns(now_ns)))
    return Step::kGoOn;
  const YieldCost& cost = makes_way_ ? answer_yield_cost_ : idle_yield_cost_;
  const uint64_t linger_ns = busy_ ? kBusyLingers * linger_ns_ : times_.linger_ns();
  if (handling && idle_ns < linger_ns && !cost.costly(now_ns)) return Step::kYield;
  times_.waited(now_ns, idle_ns);
  return Step::kSleep;
}

void IdleStrategy::yield(TimeNs now_ns) {
  YieldCost& cost = makes_way_ ? answer_yield_cost_ : idle_yield_cost_;
  sched_yield();
  const TimeNs end_ns = monotonic_now_ns();
  cost.took(now_ns, end_ns);
  if (cost.costly(end_ns)) times_.yield_was_costly(end_ns);
  if (end_ns - now_ns > kYieldUsedNs) makes_way_ = false;
}

}  // namespace hostnic
