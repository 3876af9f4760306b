// SPDX-License-Identifier: BSD-3-Clause
// Sharing cores: the words by which lcores, a program's threads and the library's service threads
// tell each other who sleeps, who yields and who must be woken, where there may be fewer processors
// than busy threads. This file is the protocol between the halves. What each side does by it is in
// one file each: dataplane/daemon/lcore/idle_strategy.h (lcore), dataplane/nic/qp/reports.cc (whom
// the NIC wakes) and verbs-shim/runtime/core_sharing.h (pollers); docs/core-sharing.md shows all.
//
// Three kinds of threads sleep, all in the same way:
//
//   sleeper          its flag          sleeps in              woken by
//   lcore            lcore_sleeping    epoll: eventfds,       posting threads, other lcores,
//                                      sockets of ports       hostnicd's control threads, the
//                                                             kernel (packets at a port's socket)
//   service thread   driver_sleeping   futex driver_wake      the NIC, threads that post
//   polling thread   poller_naps       futex poller_naps      the NIC
//
//   stateDiagram-v2
//     Awake --> Announced: the sleeper sets its flag, and executes a full fence
//     Announced --> Awake: it looks once more, and finds work
//     Announced --> Asleep: it finds none
//     Asleep --> Awake: woken, or its time is over; the flag is cleared
//
// The waker publishes its work, executes a full fence, and reads the flag. Without either fence
// both may miss what the other one stored, and the wake-up is lost. A waker of the lcore goes
// without one where the lcore's fence is shared (shared_fence.h): posting is frequent and going to
// sleep is not. The NIC executes one fence in a turn for all its clients.
//
// The words are all atomic. Who writes each, who reads it, and with which memory order:
//
//   DoorbellPage
//     lcore_sleeping    lcore; wakers of the lcore. Relaxed: the fences order it.
//     shares_fences     lcore, once; the library as it opens a device. Release, acquire.
//     busy_cpu          lcore, each 250 us; pollers. Relaxed: a hint.
//     crowded           lcore, each 2 ms while it is busy; pollers. Relaxed: a hint.
//     serves_ethernet   lcore, before it runs; pollers. Relaxed: a hint.
//   SegmentHeader
//     polling_until_ns  polling and posting threads; NIC, service thread. Relaxed: a hint, which
//                       is worth nothing any more when that time is over.
//     armed_cqs         driver (Cq::arm); NIC, service thread. Raised with seq_cst, because who
//                       arms a queue looks at it after that; read with acquire.
//     driver_sleeping   service thread, and the NIC, which clears it as it wakes the thread; NIC.
//                       Relaxed, as the fences order it; read with acquire.
//     driver_wake       NIC and the program's threads add 1; service thread. Release, acquire:
//                       who is woken sees what was published before.
//     poller_naps       a polling thread sets it, the NIC clears it as it wakes the thread; NIC.
//                       Relaxed, as the fences order it; cleared with release.
//     program_cpu       posting threads; NIC. Relaxed: a hint.
//
// A client's words are untrusted: the worst that they can do is to have that client woken too late
// or too often. Its pages are mapped by nobody else.
#pragma once

#include <atomic>
#include <cstdint>

#include "protocol/hostif/segment.h"
#include "protocol/types.h"

namespace hostnic {

// The lcore's words: one page per lcore, mapped read-only by every client that it serves.
struct DoorbellPage {
  alignas(64) std::atomic<uint32_t> lcore_sleeping;
  std::atomic<uint32_t> shares_fences;  // 1: between that flag and its look at the rings the lcore
                                        // fences clients too (shared_fence.h). Set once
  std::atomic<uint32_t> busy_cpu;       // number of the processor + 1; 0: the lcore is not busy, or
                                        // the processor not known
  std::atomic<uint32_t> crowded;        // the lcore is busy, and others take more than a tenth of
                                        // its time
  std::atomic<uint32_t> serves_ethernet;  // 1: the lcore's packets are work for the kernel, and for
                                          // another hostnicd that may be on this machine. Set once
};

// ---- the lcore sleeps

// For whoever has published work for the lcore: executes the waker's fence, and returns whether the
// doorbell (the lcore's eventfd) has to be rung. `lcore_fences`: the lcore's fence is shared with
// this process, and the compiler's order suffices.
inline bool doorbell_wanted(const DoorbellPage& page, bool lcore_fences = false) {
  if (lcore_fences) {
    std::atomic_signal_fence(std::memory_order_seq_cst);
  } else {
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  return page.lcore_sleeping.load(std::memory_order_relaxed) != 0;
}

// ---- a program is expected to look by itself

// For polling and posting threads: the program is going to look at its queues by then.
inline void expect_look_until(SegmentHeader& header, TimeNs until_ns) {
  header.polling_until_ns.store(until_ns, std::memory_order_relaxed);
}
inline TimeNs look_expected_until(const SegmentHeader& header) {
  return header.polling_until_ns.load(std::memory_order_relaxed);
}
// Whether the program polls, so that nobody need be woken for it. A program with an armed
// completion queue may be about to sleep until an event comes.
inline bool program_polls(const SegmentHeader& header, TimeNs now_ns) {
  return header.armed_cqs.load(std::memory_order_acquire) == 0 &&
         now_ns < look_expected_until(header);
}

// For posting threads: work is handed over on this processor (-1: not known). The line is written
// only when the thread has moved.
inline void note_handover(SegmentHeader& header, int cpu) {
  const auto value = static_cast<uint32_t>(cpu + 1);
  if (header.program_cpu.load(std::memory_order_relaxed) != value)
    header.program_cpu.store(value, std::memory_order_relaxed);
}
// For the NIC: whether the program last handed over work on that processor.
inline bool handed_over_on(const SegmentHeader& header, uint32_t cpu) {
  return header.program_cpu.load(std::memory_order_relaxed) == cpu + 1;
}

// ---- the service thread sleeps

// How often the service thread has been woken. It is read before the thread looks for work: a
// wake-up that comes later ends the sleep at once.
inline uint32_t service_wakes(const SegmentHeader& header) {
  return header.driver_wake.load(std::memory_order_acquire);
}
// The sleeper's flag and fence. The thread looks for work after that, and either way ends with
// end_service_sleep().
inline void announce_service_sleep(SegmentHeader& header) {
  header.driver_sleeping.store(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}
// Sleeps until the count is another one than `seen`, or for that time.
void sleep_until_woken(SegmentHeader& header, uint32_t seen, uint64_t at_most_ns);
inline void end_service_sleep(SegmentHeader& header) {
  header.driver_sleeping.store(0, std::memory_order_relaxed);
}
// For the NIC, after its fence.
inline bool service_sleeps(const SegmentHeader& header) {
  return header.driver_sleeping.load(std::memory_order_acquire) != 0;
}
// Wakes the service thread; for the program's own threads.
void wake_service(SegmentHeader& header);
// Wakes the service thread; for the NIC. The thread counts as awake from here on, before it gets a
// core: until it has had one nobody need wake it again.
void wake_service_once(SegmentHeader& header);

// ---- a polling thread naps

// The sleeper's flag and fence. The thread looks at the rings after that, and calls nap() if
// nothing has come.
inline void announce_nap(SegmentHeader& header) {
  header.poller_naps.store(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}
// Sleeps until the NIC wakes pollers, or for that time.
void nap(SegmentHeader& header, uint64_t at_most_ns);
// Wakes the threads that nap, if any does; for the NIC, after its fence.
void wake_pollers(SegmentHeader& header);

}  // namespace hostnic
