// SPDX-License-Identifier: BSD-3-Clause
// What a thread does with its core while it polls in vain. There may be fewer cores than busy
// threads, and one of those is the NIC's lcore, which does all the work that pollers wait for.
#pragma once

#include <sched.h>

#include <atomic>

#include "protocol/hostif/segment.h"
#include "protocol/types.h"

namespace hostnic::runtime {

// A program that polled more recently than this counts as polling.
inline constexpr uint64_t kPollingNs = 50'000;

// After so many rounds without a completion a poller may nap.
inline constexpr uint32_t kRoundsBeforeNap = 4;

// The one of the threads that poll a device that yields its core just now, if any does: what
// share_core() and migrate_preempted_poller() tell each other.
struct YieldingPoller {
  static constexpr uint32_t kMigrated = 1u << 31;

  std::atomic<uint32_t> tid{0};  // 0: none. With kMigrated: the thread has to restore its affinity
  std::atomic<uint32_t> cpu{0};
  std::atomic<TimeNs> since_ns{0};
  cpu_set_t allowed;                      // the affinity to restore
  std::atomic<bool> not_migrated{false};  // the thread could not be migrated: nothing to restore
};

// Called in a forked child, whose thread has another id than its parent's. share_core() asks for
// the id once only: where system calls are costly, asking is half of a yield.
void forget_own_tid();

// How often the calling thread may look in vain before it calls share_core(): more often while
// nobody uses the core that it gives away, because it sees nothing meanwhile.
uint32_t polls_before_sharing();

// The calling thread, a poller, gives its core away for a moment, and leaves a busy lcore's core
// for another one if it may use one: two pollers share a core well, each yielding to the other, and
// a poller and a busy lcore don't. The thread's affinity is as before when this returns.
// `polling_until_ns` of the header says meanwhile that the program comes back. `rounds` is how
// often this was called since the poller last found something. Returns false if nothing was given
// away and the poller had better nap: yielding costs too much just now, or the poller has waited
// for some rounds while others want the core: the lcore, or whoever makes an Ethernet port's
// packets move.
[[nodiscard]] bool share_core(SegmentHeader& header, const DoorbellPage& doorbell,
                              YieldingPoller& yielding, TimeNs now_ns, uint32_t rounds);

// Called by the service thread, when an idle NIC has woken it because nobody takes what it
// reported: brings a poller whose yield does not end, because somebody computes on that core, to
// the caller's core, or away from there where that is the same, if it may run there. The kernel let
// the caller in on an idle core if there was one, and would do so for the poller after
// milliseconds.
void migrate_preempted_poller(YieldingPoller& yielding, TimeNs now_ns);

// A poller that share_core() refused calls announce_nap(), looks at the rings once more, and calls
// nap() if nothing has come. The nap ends when the NIC has reported something and has no other
// work, or after 50 us.
void announce_nap(SegmentHeader& header);
void nap(SegmentHeader& header);

}  // namespace hostnic::runtime
