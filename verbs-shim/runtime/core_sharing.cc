// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/runtime/core_sharing.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <string_view>

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
constexpr uint64_t kNapNs = 50'000;         // nap of a poller that does better not to yield
constexpr uint64_t kNappingNs = 1'000'000;  // naps may last this long
// The time between attempts to leave a busy lcore's core. The kernel may bring us back: it counts
// threads, and two here and one there is as good for it as the other way round.
constexpr uint64_t kBetweenMovesNs = 5'000'000;
constexpr uint64_t kNowhereToGoNs = 1'000'000'000;
// How long a poller stays on a busy lcore's core before it asks again whether processors are short.
constexpr uint64_t kBetweenCountsNs = 1'000'000;

// A yield that lasts kPreemptedNs may be one that doesn't end soon. A yield that lasts longer than
// kForgottenNs is none: the program jumped out of it.
constexpr uint64_t kPreemptedNs = 30'000, kForgottenNs = 100'000'000;

// Restores the affinity of the calling thread, which has been or is being migrated. An affinity
// that is neither has been given by the program meanwhile, and stays.
void restore_affinity(const YieldingPoller& yielding) {
  for (bool settled = false; !settled;) {
    settled = yielding.settled.load(std::memory_order_acquire);
    cpu_set_t now;
    if (sched_getaffinity(0, sizeof(now), &now) != 0) return;
    if (CPU_EQUAL(&now, &yielding.target)) {
      sched_setaffinity(0, sizeof(yielding.allowed), &yielding.allowed);
      return;
    }
    if (!settled) sched_yield();  // the migrator has not got that far
  }
}

thread_local uint32_t own_tid = 0;     // 0: gettid() has not been called yet
thread_local uint32_t yields = 0;      // begun by this thread
thread_local bool yield_used = false;  // whether somebody used the core that the last yield gave
                                       // away

constexpr uint32_t kPollsBesideOthers = 16, kPollsAlone = 64;

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

uint32_t busy_threads(const char* loadavg) {
  // By system calls of our own, which are no cancellation points and nobody's hooks.
  const auto fd = static_cast<int>(syscall(SYS_openat, AT_FDCWD, loadavg, O_RDONLY | O_CLOEXEC));
  if (fd < 0) return 0;
  char text[128];
  const long length = syscall(SYS_read, fd, text, sizeof text);
  syscall(SYS_close, fd);
  if (length <= 0) return 0;
  // Three averages, then "running/all".
  std::string_view rest(text, static_cast<size_t>(length));
  for (int average = 0; average < 3; ++average) {
    const size_t space = rest.find(' ');
    if (space == std::string_view::npos) return 0;
    rest.remove_prefix(space + 1);
  }
  uint32_t running = 0;
  for (; !rest.empty() && rest.front() >= '0' && rest.front() <= '9'; rest.remove_prefix(1))
    running = 10 * running + static_cast<uint32_t>(rest.front() - '0');
  return running;
}

Expected<bool, ContextError> may_move_threads() {
  const char* wanted = getenv("HOSTNIC_MOVE_THREADS");
  const std::string_view value = wanted != nullptr && *wanted != '\0' ? wanted : "1";
  if (value == "0" || value == "1") return value == "1";
  return failure(EINVAL,
                 "HOSTNIC_MOVE_THREADS=" + std::string(value.substr(0, 64)) + ": use 0 or 1");
}

void forget_own_tid() { own_tid = 0; }

uint32_t polls_before_sharing() { return yield_used ? kPollsBesideOthers : kPollsAlone; }

// Whether a thread that may run on these processors is to be moved: there are more threads to run
// than processors for them. Those that run elsewhere are counted as well, for the kernel counts no
// others.
bool CoreSharing::may_move(const cpu_set_t& allowed) const {
  return move_threads_ && count_busy_threads_() > static_cast<uint32_t>(CPU_COUNT(&allowed));
}

// Moves the calling thread away from `cpu`, if it may be moved. The affinity is narrowed and given
// back at once: the kernel moves the thread for the first and lets it be for the second. Returns
// how long the next attempt should wait.
uint64_t CoreSharing::leave(int cpu) const {
  cpu_set_t allowed;
  if (!move_threads_ || sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return kNowhereToGoNs;
  cpu_set_t others = allowed;
  CPU_CLR(cpu, &others);
  if (CPU_COUNT(&others) == 0) return kNowhereToGoNs;
  if (!may_move(allowed)) return kBetweenCountsNs;
  if (sched_setaffinity(0, sizeof(others), &others) != 0) return kNowhereToGoNs;
  sched_setaffinity(0, sizeof(allowed), &allowed);
  return kBetweenMovesNs;
}

void CoreSharing::yield(TimeNs now_ns) {
  if (own_tid == 0) own_tid = static_cast<uint32_t>(gettid());
  const uint64_t mine =
      (static_cast<uint64_t>(++yields) << 32 | own_tid) & ~YieldingPoller::kMigrated;
  uint64_t expected = 0;
  yielding_.cpu.store(static_cast<uint32_t>(sched_getcpu()), std::memory_order_relaxed);
  yielding_.since_ns.store(now_ns, std::memory_order_relaxed);
  const bool known = yielding_.yield.compare_exchange_strong(expected, mine);
  sched_yield();
  expected = mine;
  if (!known || yielding_.yield.compare_exchange_strong(expected, 0)) return;
  restore_affinity(yielding_);
  yielding_.yield.store(0, std::memory_order_release);
}

bool CoreSharing::share(TimeNs now_ns, uint32_t rounds) {
  static thread_local YieldCost wire_yield_cost(kCostlyYieldNs, kCostlyYieldsNs);
  static thread_local YieldCost ethernet_yield_cost(kCostlyYieldsNs, kCostlyYieldsNs);
  static thread_local TimeNs next_move_ns = 0;
  const uint32_t busy_cpu = doorbell_.busy_cpu.load(std::memory_order_relaxed);
  if (busy_cpu != 0 && now_ns >= next_move_ns) {
    const int cpu = sched_getcpu();
    if (cpu >= 0 && busy_cpu == cpu + 1u) next_move_ns = now_ns + leave(cpu);
  }
  const TimeNs polling_until_ns = now_ns + kPollingNs;
  // On Ethernet packets are work for the kernel and for the peer's lcore, and naps pay.
  const bool ethernet = doorbell_.serves_ethernet.load(std::memory_order_relaxed) != 0;
  YieldCost& yield_cost = ethernet ? ethernet_yield_cost : wire_yield_cost;
  const bool others_want_core = doorbell_.crowded.load(std::memory_order_relaxed) != 0 ||
                                (ethernet && yield_used && busy_cpu != 0);
  if ((rounds >= kRoundsBeforeNap && others_want_core) || yield_cost.costly(now_ns)) {
    expect_look_until(header_, polling_until_ns + kNappingNs);
    return false;
  }
  expect_look_until(header_, polling_until_ns + kYieldedNs);
  yield(now_ns);
  expect_look_until(header_, polling_until_ns);
  const TimeNs end_ns = monotonic_ns();
  yield_cost.took(now_ns, end_ns);
  yield_used = end_ns - now_ns > kYieldUsedNs;
  return true;
}

void CoreSharing::migrate_preempted_poller(TimeNs now_ns) {
  uint64_t yield = yielding_.yield.load(std::memory_order_acquire);
  const TimeNs since_ns = yielding_.since_ns.load(std::memory_order_relaxed);
  if (!move_threads_ || yield == 0 || (yield & YieldingPoller::kMigrated) != 0 ||
      now_ns < since_ns + kPreemptedNs || now_ns > since_ns + kForgottenNs)
    return;
  const pid_t thread = YieldingPoller::thread(yield);
  if (sched_getaffinity(thread, sizeof(yielding_.allowed), &yielding_.allowed) != 0) return;
  yielding_.target =
      away_from(static_cast<int>(yielding_.cpu.load(std::memory_order_relaxed)), yielding_.allowed);
  if (CPU_COUNT(&yielding_.target) == 0 || CPU_EQUAL(&yielding_.target, &yielding_.allowed) ||
      !may_move(yielding_.allowed))
    return;
  // From here on the poller waits for us when its yield ends, and restores its affinity before
  // anything else: the program never sees the narrow one.
  yielding_.settled.store(false, std::memory_order_relaxed);
  if (!yielding_.yield.compare_exchange_strong(yield, yield | YieldingPoller::kMigrated)) return;
  sched_setaffinity(thread, sizeof(yielding_.target), &yielding_.target);
  yielding_.settled.store(true, std::memory_order_release);
}

void CoreSharing::nap() { hostnic::nap(header_, kNapNs); }

}  // namespace hostnic::runtime
