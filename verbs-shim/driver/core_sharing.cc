#include "verbs-shim/driver/core_sharing.h"

#include <sched.h>
#include <time.h>

#include "protocol/hostif/yield_cost.h"

namespace hostnic::driver {
namespace {

constexpr uint64_t kYieldedNs = 5'000'000;  // a poller that has yielded its core comes back within
constexpr uint32_t kNapNs = 50'000;         // of a poller that does better not to yield
constexpr uint64_t kNappingNs = 1'000'000;  // ... which may last so long
// Between attempts to leave a busy lcore's core. The kernel may bring us back: it counts threads,
// and two here and one there is as good for it as the other way round.
constexpr uint64_t kBetweenMovesNs = 5'000'000;
constexpr uint64_t kNowhereToGoNs = 1'000'000'000;

// Moves the calling thread away from `cpu`. The affinity is narrowed and given back at once: the
// kernel moves the thread for the first and lets it be for the second. When to look again.
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

}  // namespace

TimeNs monotonic_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

void pause_for(uint32_t pause_ns) {
  const timespec pause{0, static_cast<long>(pause_ns)};
  nanosleep(&pause, nullptr);
}

void share_core(SegmentHeader& header, const DoorbellPage& doorbell, TimeNs now_ns) {
  static thread_local YieldCost yield_cost;
  static thread_local TimeNs next_move_ns = 0;
  if (now_ns >= next_move_ns) {
    const int cpu = sched_getcpu();
    if (cpu >= 0 && doorbell.busy_cpu.load(std::memory_order_relaxed) == cpu + 1u)
      next_move_ns = now_ns + leave(cpu);
  }
  const TimeNs polling_until_ns = now_ns + kPollingNs;
  if (yield_cost.dear(now_ns)) {
    header.polling_until_ns.store(polling_until_ns + kNappingNs, std::memory_order_relaxed);
    pause_for(kNapNs);
    return;
  }
  header.polling_until_ns.store(polling_until_ns + kYieldedNs, std::memory_order_relaxed);
  sched_yield();
  header.polling_until_ns.store(polling_until_ns, std::memory_order_relaxed);
  yield_cost.took(now_ns, monotonic_ns());
}

}  // namespace hostnic::driver
