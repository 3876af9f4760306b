// SPDX-License-Identifier: BSD-3-Clause
// The time base of hostnicd: CLOCK_MONOTONIC, because drivers publish theirs in it.
#pragma once

#include <time.h>

#include <cstdint>

#include "protocol/types.h"

namespace hostnic {

// The time of CLOCK_MONOTONIC, for any thread. This is a vDSO call of about 20 ns: to be read once
// per loop turn, not once per packet.
inline TimeNs monotonic_now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<TimeNs>(now.tv_sec) * 1'000'000'000 + static_cast<TimeNs>(now.tv_nsec);
}

// How long the calling thread has had a processor; this is a system call.
inline uint64_t thread_cpu_now_ns() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

// What has become of a thread's time since it began.
struct ThreadTimes {
  static constexpr uint64_t kUnknown = UINT64_MAX;
  uint64_t cpu_ns = 0;     // it had a processor
  uint64_t waited_ns = 0;  // it could have gone on, but had none; kUnknown: the kernel does not say
  uint64_t sleeps = 0;     // how often it slept, in system calls or while a page was brought
};
// The times of the calling thread, by three system calls.
ThreadTimes thread_times_now();

}  // namespace hostnic
