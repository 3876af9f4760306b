// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/runtime/core_sharing.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "protocol/hostif/yield_cost.h"
#include "verbs-shim/base/clock.h"

namespace hostnic::runtime {
namespace {

// A costly yield is remembered for kCostlyYieldNs, and for kCostlyYieldsNs at most where one
// follows another. Most costly yields come alone: as a program starts, threads find their cores.
// Beside an Ethernet port the longest time is used at once.
constexpr uint64_t kCostlyYieldNs = 1'000'000, kCostlyYieldsNs = 50'000'000;
constexpr uint64_t kYieldedNs = 5'000'000;  // a poller that has yielded its core comes back within
                                            // this time
constexpr long kNapNs = 50'000;             // nap of a poller that does better not to yield
constexpr uint64_t kNappingNs = 1'000'000;  // naps may last this long
// The time between attempts to leave a busy lcore's core. The kernel may bring us back: it counts
// threads, and two here and one there is as good for it as the other way round.
constexpr uint64_t kBetweenMovesNs = 5'000'000;
constexpr uint64_t kNowhereToGoNs = 1'000'000'000;

// A yield that lasts kPreemptedNs may be one that doesn't end soon. A yield that lasts longer than
// kForgottenNs is none: the program jumped out of it.
constexpr uint64_t kPreemptedNs = 30'000, kForgottenNs = 100'000'000;

// Moves the calling thread away from `cpu`. The affinity is narrowed and given back at once: the
// kernel moves the thread for the first and lets it be for the second. Returns how long the next
// attempt should wait.
uint64_t leave(int cpu) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return kNowhereToGoNs;
  cpu_set_t others = allowed;
  CPU_CLR(cpu, &others);
  if (CPU_COUNT(&others) == 0 || sched_setaffinity(0, sizeof(others), &others) != 0)
    return kNowhereToGoNs;
  sched_setaffinity(0, sizeof(allowed), &allowed);
  return kBetweenMovesNs;
}

// Restores the affinity of the calling thread, which has been or is being migrated.
void restore_affinity(const YieldingPoller& yielding) {
  while (!yielding.not_migrated.load(std::memory_order_acquire)) {
    cpu_set_t now;
    if (sched_getaffinity(0, sizeof(now), &now) != 0) return;
    if (!CPU_EQUAL(&now, &yielding.allowed)) {
      sched_setaffinity(0, sizeof(yielding.allowed), &yielding.allowed);
      return;
    }
    sched_yield();  // the migrator has not got that far
  }
}

thread_local uint32_t own_tid = 0;     // 0: gettid() has not been called yet
thread_local bool yield_used = false;  // whether somebody used the core that the last yield gave
                                       // away

constexpr uint32_t kPollsBesideOthers = 16, kPollsAlone = 64;

void yield(YieldingPoller& yielding, TimeNs now_ns) {
  if (own_tid == 0) own_tid = static_cast<uint32_t>(gettid());
  uint32_t expected = 0;
  yielding.cpu.store(static_cast<uint32_t>(sched_getcpu()), std::memory_order_relaxed);
  yielding.since_ns.store(now_ns, std::memory_order_relaxed);
  const bool known = yielding.tid.compare_exchange_strong(expected, own_tid);
  sched_yield();
  expected = own_tid;
  if (!known || yielding.tid.compare_exchange_strong(expected, 0)) return;
  restore_affinity(yielding);
  yielding.tid.store(0, std::memory_order_release);
}

// Returns the processors where a thread does better than on `cpu`, among those that it may use:
// ours, which let us in just now, or, where that is the same one, any other.
cpu_set_t away_from(int cpu, const cpu_set_t& allowed) {
  cpu_set_t others = allowed;
  CPU_CLR(cpu, &others);
  const int here = sched_getcpu();
  if (here < 0 || !CPU_ISSET(here, &others)) return others;
  CPU_ZERO(&others);
  CPU_SET(here, &others);
  return others;
}

}  // namespace

void forget_own_tid() { own_tid = 0; }

uint32_t polls_before_sharing() { return yield_used ? kPollsBesideOthers : kPollsAlone; }

bool share_core(SegmentHeader& header, const DoorbellPage& doorbell, YieldingPoller& yielding,
                TimeNs now_ns, uint32_t rounds) {
  static thread_local YieldCost wire_yield_cost(kCostlyYieldNs, kCostlyYieldsNs);
  static thread_local YieldCost ethernet_yield_cost(kCostlyYieldsNs, kCostlyYieldsNs);
  static thread_local TimeNs next_move_ns = 0;
  const uint32_t busy_cpu = doorbell.busy_cpu.load(std::memory_order_relaxed);
  if (busy_cpu != 0 && now_ns >= next_move_ns) {
    const int cpu = sched_getcpu();
    if (cpu >= 0 && busy_cpu == cpu + 1u) next_move_ns = now_ns + leave(cpu);
  }
  const TimeNs polling_until_ns = now_ns + kPollingNs;
  // On Ethernet packets are work for the kernel and for the peer's lcore, and naps pay.
  const bool ethernet = doorbell.serves_ethernet.load(std::memory_order_relaxed) != 0;
  YieldCost& yield_cost = ethernet ? ethernet_yield_cost : wire_yield_cost;
  const bool others_want_core = doorbell.crowded.load(std::memory_order_relaxed) != 0 ||
                                (ethernet && yield_used && busy_cpu != 0);
  if ((rounds >= kRoundsBeforeNap && others_want_core) || yield_cost.costly(now_ns)) {
    header.polling_until_ns.store(polling_until_ns + kNappingNs, std::memory_order_relaxed);
    return false;
  }
  header.polling_until_ns.store(polling_until_ns + kYieldedNs, std::memory_order_relaxed);
  yield(yielding, now_ns);
  header.polling_until_ns.store(polling_until_ns, std::memory_order_relaxed);
  const TimeNs end_ns = monotonic_ns();
  yield_cost.took(now_ns, end_ns);
  yield_used = end_ns - now_ns > kYieldUsedNs;
  return true;
}

void migrate_preempted_poller(YieldingPoller& yielding, TimeNs now_ns) {
  uint32_t tid = yielding.tid.load(std::memory_order_acquire);
  const TimeNs since_ns = yielding.since_ns.load(std::memory_order_relaxed);
  if (tid == 0 || (tid & YieldingPoller::kMigrated) != 0 || now_ns < since_ns + kPreemptedNs ||
      now_ns > since_ns + kForgottenNs)
    return;
  const auto pid = static_cast<pid_t>(tid);
  if (sched_getaffinity(pid, sizeof(yielding.allowed), &yielding.allowed) != 0) return;
  const cpu_set_t target =
      away_from(static_cast<int>(yielding.cpu.load(std::memory_order_relaxed)), yielding.allowed);
  if (CPU_COUNT(&target) == 0) return;
  // From here on the poller waits for us when its yield ends, and restores its affinity before
  // anything else: the program never sees the narrow one.
  yielding.not_migrated.store(false, std::memory_order_relaxed);
  if (!yielding.tid.compare_exchange_strong(tid, tid | YieldingPoller::kMigrated)) return;
  if (sched_setaffinity(pid, sizeof(target), &target) != 0)
    yielding.not_migrated.store(true, std::memory_order_release);
}

void announce_nap(SegmentHeader& header) {
  header.poller_naps.store(1, std::memory_order_relaxed);
  // The fence stands between announcing the nap and looking; the NIC publishes reports, fences, and
  // reads the word.
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

void nap(SegmentHeader& header) {
  const timespec timeout{0, kNapNs};
  syscall(SYS_futex, &header.poller_naps, FUTEX_WAIT, 1, &timeout, nullptr, 0);
}

}  // namespace hostnic::runtime
