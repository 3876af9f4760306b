#include "verbs-shim/driver/core_sharing.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "protocol/hostif/yield_cost.h"

namespace hostnic::driver {
namespace {

// How long a dear yield is remembered, and at most where one follows another. Most come alone: as a
// program starts, threads find their cores. Beside an Ethernet port at once the most.
constexpr uint64_t kDearYieldNs = 1'000'000, kDearYieldsNs = 50'000'000;
constexpr uint64_t kYieldUsedNs = 2'000;    // others ran during a yield that took longer
constexpr uint64_t kYieldedNs = 5'000'000;  // a poller that has yielded its core comes back within
constexpr long kNapNs = 50'000;             // of a poller that does better not to yield
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

#if defined(__x86_64__)
TimeNs recent_ns() {
  // Of the time stamp counter, whatever its rate: about 1 us, little beside any round trip.
  constexpr uint64_t kRecentTicks = 2'500;
  static thread_local uint64_t read_at_tick = 0;
  static thread_local TimeNs read_ns = 0;
  const uint64_t tick = __builtin_ia32_rdtsc();
  if (tick - read_at_tick >= kRecentTicks) {
    read_at_tick = tick;
    read_ns = monotonic_ns();
  }
  return read_ns;
}
#else
TimeNs recent_ns() { return monotonic_ns(); }
#endif

void pause_for(uint32_t pause_ns) {
  const timespec pause{0, static_cast<long>(pause_ns)};
  nanosleep(&pause, nullptr);
}

bool share_core(SegmentHeader& header, const DoorbellPage& doorbell, TimeNs now_ns,
                uint32_t rounds) {
  static thread_local YieldCost wire_yield_cost(kDearYieldNs, kDearYieldsNs);
  static thread_local YieldCost ethernet_yield_cost(kDearYieldsNs, kDearYieldsNs);
  static thread_local TimeNs next_move_ns = 0;
  static thread_local bool yield_used = false;
  const uint32_t busy_cpu = doorbell.busy_cpu.load(std::memory_order_relaxed);
  if (busy_cpu != 0 && now_ns >= next_move_ns) {
    const int cpu = sched_getcpu();
    if (cpu >= 0 && busy_cpu == cpu + 1u) next_move_ns = now_ns + leave(cpu);
  }
  const TimeNs polling_until_ns = now_ns + kPollingNs;
  // There packets are work for the kernel and for the peer's lcore, and naps pay.
  const bool ethernet = doorbell.serves_ethernet.load(std::memory_order_relaxed) != 0;
  YieldCost& yield_cost = ethernet ? ethernet_yield_cost : wire_yield_cost;
  const bool others_want_core = doorbell.crowded.load(std::memory_order_relaxed) != 0 ||
                                (ethernet && yield_used && busy_cpu != 0);
  if ((rounds >= kRoundsBeforeNap && others_want_core) || yield_cost.dear(now_ns)) {
    header.polling_until_ns.store(polling_until_ns + kNappingNs, std::memory_order_relaxed);
    return false;
  }
  header.polling_until_ns.store(polling_until_ns + kYieldedNs, std::memory_order_relaxed);
  sched_yield();
  header.polling_until_ns.store(polling_until_ns, std::memory_order_relaxed);
  const TimeNs end_ns = monotonic_ns();
  yield_cost.took(now_ns, end_ns);
  yield_used = end_ns - now_ns > kYieldUsedNs;
  return true;
}

void announce_nap(SegmentHeader& header) {
  header.poller_naps.store(1, std::memory_order_relaxed);
  // The NIC publishes reports, fences, and reads the word.
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

void nap(SegmentHeader& header) {
  const timespec timeout{0, kNapNs};
  syscall(SYS_futex, &header.poller_naps, FUTEX_WAIT, 1, &timeout, nullptr, 0);
}

}  // namespace hostnic::driver
