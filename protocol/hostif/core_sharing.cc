// SPDX-License-Identifier: BSD-3-Clause
#include "protocol/hostif/core_sharing.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace hostnic {
namespace {

void futex_wait(std::atomic<uint32_t>& word, uint32_t seen, uint64_t at_most_ns) {
  const timespec timeout{static_cast<time_t>(at_most_ns / 1'000'000'000),
                         static_cast<long>(at_most_ns % 1'000'000'000)};
  syscall(SYS_futex, &word, FUTEX_WAIT, seen, &timeout, nullptr, 0);
}

void futex_wake(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace

void sleep_until_woken(SegmentHeader& header, uint32_t seen, uint64_t at_most_ns) {
  futex_wait(header.driver_wake, seen, at_most_ns);
}

void wake_service(SegmentHeader& header) {
  header.driver_wake.fetch_add(1, std::memory_order_release);
  futex_wake(header.driver_wake);
}

void wake_service_once(SegmentHeader& header) {
  // The flag is cleared before the count changes: a thread that falls asleep once more looks at the
  // count again.
  end_service_sleep(header);
  wake_service(header);
}

void nap(SegmentHeader& header, uint64_t at_most_ns) {
  futex_wait(header.poller_naps, 1, at_most_ns);
}

void wake_pollers(SegmentHeader& header) {
  if (header.poller_naps.load(std::memory_order_relaxed) == 0) return;
  header.poller_naps.store(0, std::memory_order_release);
  futex_wake(header.poller_naps);
}

}  // namespace hostnic
