// SPDX-License-Identifier: BSD-3-Clause
// The program's side of sharing cores (protocol/hostif/core_sharing.h, docs/core-sharing.md): what
// a thread does with its core while it polls in vain. There may be fewer cores than busy threads,
// and one of those is the NIC's lcore, which does all the work that pollers wait for.
//
//   stateDiagram-v2
//     Looking --> Yielding: 16 empty looks, 64 if the last yield was not used
//     Yielding --> Looking: the yield is over
//     Looking --> Napping: instead of a yield, where it does better not to run
//     Napping --> Looking: the NIC has reported and is idle, or 50 us
//     Yielding --> Migrated: preempted, while the NIC is idle and its reports are not taken
//     Migrated --> Looking: on another core
#pragma once

#include <sched.h>

#include <atomic>

#include "protocol/expected.h"
#include "protocol/hostif/core_sharing.h"
#include "protocol/types.h"
#include "verbs-shim/runtime/context_error.h"

namespace hostnic::runtime {

// A program that polled more recently than this counts as polling.
inline constexpr uint64_t kPollingNs = 50'000;

// After so many rounds without a completion a poller may nap.
inline constexpr uint32_t kRoundsBeforeNap = 4;

// The number of threads of this machine that run or want to, the caller among them, as the file
// says (/proc/loadavg); 0: it does not say.
uint32_t busy_threads(const char* loadavg = "/proc/loadavg");

// Whether the library may move the program's threads to other processors, where these are fewer
// than busy threads: $HOSTNIC_MOVE_THREADS, `1` (default) or `0`. EINVAL for anything else.
Expected<bool, ContextError> may_move_threads();

// Called in a forked child, whose thread has another id than its parent's. A poller asks for its id
// once only: where system calls are costly, asking is half of a yield.
void forget_own_tid();

// How often the calling thread may look in vain before it shares its core: more often while nobody
// uses the core that it gives away, because it sees nothing meanwhile.
uint32_t polls_before_sharing();

// The one of the threads that poll a device that yields its core just now, if any does: what that
// thread and the service thread tell each other.
struct YieldingPoller {
  static constexpr uint64_t kMigrated = uint64_t{1} << 63;

  // The thread's id, and in bits 32 to 62 how many yields it has begun: a migrator that has looked
  // at one yield does not act on the next. With kMigrated: the thread has to restore its affinity.
  std::atomic<uint64_t> yield{0};  // 0: none
  std::atomic<uint32_t> cpu{0};
  std::atomic<TimeNs> since_ns{0};
  cpu_set_t allowed;                 // the affinity to restore
  cpu_set_t target;                  // the affinity that the migrator gives the thread
  std::atomic<bool> settled{false};  // the migrator has given it, or could not

  static pid_t thread(uint64_t yield) { return static_cast<pid_t>(yield & UINT32_MAX); }
};

// How the threads of one program share cores over one open device. A thread is moved to another
// processor only while the processors that it may use are fewer than the machine's busy threads:
// else the kernel finds each a processor, and the program may have placed them.
class CoreSharing {
 public:
  using BusyThreads = uint32_t();

  // Both shared parts must outlive this. `count_busy_threads` is what busy_threads() is, in tests
  // something else.
  CoreSharing(
      SegmentHeader& header, const DoorbellPage& doorbell, bool move_threads,
      BusyThreads* count_busy_threads = [] { return busy_threads(); })
      : header_(header),
        doorbell_(doorbell),
        move_threads_(move_threads),
        count_busy_threads_(count_busy_threads) {}

  // The calling thread, a poller, gives its core away for a moment, and leaves a busy lcore's core
  // for another one if it may be moved: two pollers share a core well, each yielding to the other,
  // and a poller and a busy lcore don't. The thread's affinity is as before when this returns.
  // `rounds` is how often this was called since the poller last found something. Returns false if
  // nothing was given away and the poller had better nap: yielding costs too much just now, or the
  // poller has waited for some rounds while others want the core: the lcore, or whoever makes an
  // Ethernet port's packets move.
  [[nodiscard]] bool share(TimeNs now_ns, uint32_t rounds);

  // Called by the service thread, when an idle NIC has woken it because nobody takes what it
  // reported: brings a poller whose yield does not end, because somebody computes on that core, to
  // the caller's core, or away from there where that is the same, if it may run there. The kernel
  // let the caller in on an idle core if there was one, and would do so for the poller after
  // milliseconds.
  void migrate_preempted_poller(TimeNs now_ns);

  // A nap of a poller that share() refused: until the NIC has reported something and has no other
  // work, or for 50 us. To be announced (announce_nap()), after which the poller looks once more.
  void nap();

  const YieldingPoller& yielding() const { return yielding_; }

 private:
  bool may_move(const cpu_set_t& allowed) const;
  uint64_t leave(int cpu) const;
  void yield(TimeNs now_ns);

  SegmentHeader& header_;
  const DoorbellPage& doorbell_;
  const bool move_threads_;
  BusyThreads* const count_busy_threads_;
  YieldingPoller yielding_;
};

}  // namespace hostnic::runtime
