// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/lcore/clock.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <charconv>
#include <cstring>

#include "protocol/hostif/unique_fd.h"

namespace hostnic {
namespace {

// The second number of the thread's schedstat.
uint64_t thread_waited_ns() {
  thread_local const UniqueFd kFile(open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC));
  char text[128];
  const ssize_t length = pread(kFile.get(), text, sizeof(text), 0);
  if (length <= 0) return ThreadTimes::kUnknown;
  const char* const end = text + length;
  const auto* space = static_cast<const char*>(std::memchr(text, ' ', static_cast<size_t>(length)));
  uint64_t waited_ns = 0;
  if (space == nullptr || std::from_chars(space + 1, end, waited_ns).ec != std::errc())
    return ThreadTimes::kUnknown;
  return waited_ns;
}

}  // namespace

ThreadTimes thread_times_now() {
  timespec cpu{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu);
  rusage use{};
  getrusage(RUSAGE_THREAD, &use);
  return {static_cast<uint64_t>(cpu.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(cpu.tv_nsec),
          thread_waited_ns(), static_cast<uint64_t>(use.ru_nvcsw)};
}

}  // namespace hostnic
