// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/base/clock.h"

#include <time.h>

#include "verbs-shim/base/cancellation.h"

namespace hostnic {

TimeNs monotonic_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

#if defined(__x86_64__)
TimeNs recent_ns() {
  // The age in ticks of the time stamp counter, whatever its rate, up to which a time is recent:
  // about 1 us, little beside any round trip.
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
  const CancellationOff cancellation_off;
  const timespec pause{0, static_cast<long>(pause_ns)};
  nanosleep(&pause, nullptr);
}

}  // namespace hostnic
