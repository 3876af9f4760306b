// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/memory/solitude.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <new>

#include "verbs-shim/memory/areas.h"
#include "verbs-shim/memory/numbered_entries.h"

namespace hostnic::memory {
namespace {

bool is_io_uring(int fd) {
  char path[32] = "/proc/self/fd/";
  *std::to_chars(path + std::strlen(path), path + sizeof(path) - 1, fd).ptr = '\0';
  char target[64];
  const ssize_t length = readlink(path, target, sizeof(target));
  return length > 0 && memmem(target, static_cast<size_t>(length), "io_uring",
                              std::strlen("io_uring")) != nullptr;
}

enum class Life { kRuns, kEnds, kIsOver };

// How a thread is doing (proc(5), stat): who is over has given up the process's memory for good;
// who ends may still write to it, and does so soon. The kernel lists both.
Life life_of(pid_t thread) {
  constexpr uint64_t kExiting = 4;  // PF_EXITING of the kernel's
  constexpr int kFlags = 9, kMemoryBytes = 23;
  char text[512];
  const ssize_t length = read_of_thread(thread, "stat", text);
  if (length < 0 && (errno == ENOENT || errno == ESRCH)) return Life::kIsOver;
  if (length <= 0 || length == sizeof(text)) return Life::kRuns;
  text[length] = '\0';
  const char* at = std::strrchr(text, ')');  // behind the name, the second field
  uint64_t flags = 0, memory_bytes = 1;
  for (int field = 3; at != nullptr && field <= kMemoryBytes; field++) {
    at = std::strchr(at + 1, ' ');
    if (at == nullptr) break;
    if (field == kFlags) std::from_chars(at + 1, text + length, flags);
    if (field == kMemoryBytes) std::from_chars(at + 1, text + length, memory_bytes);
  }
  if (memory_bytes == 0) return Life::kIsOver;
  return (flags & kExiting) != 0 ? Life::kEnds : Life::kRuns;
}

// Whether nothing of a thread is left, or will be in a moment, which this waits for: a thread that
// has been joined ends while others run. `tries` are left for all threads together.
bool is_over(pid_t thread, int& tries) {
  const timespec pause{0, 100'000};
  for (;;) {
    const Life life = life_of(thread);
    if (life != Life::kEnds || tries == 0) return life == Life::kIsOver;
    --tries;
    nanosleep(&pause, nullptr);
  }
}

}  // namespace

bool is_only_thread(std::span<const pid_t> ours) {
  const auto self = static_cast<pid_t>(syscall(SYS_gettid));
  return for_each_number("task", [&](pid_t thread) {
    return thread == self || std::ranges::find(ours, thread) != ours.end();
  });
}

bool is_alone(std::span<const pid_t> ours) {
  constexpr int kTries = 100;
  const auto self = static_cast<pid_t>(syscall(SYS_gettid));
  int tries = kTries;
  return for_each_number("task",
                         [&](pid_t thread) {
                           return thread == self || std::ranges::find(ours, thread) != ours.end() ||
                                  is_over(thread, tries);
                         }) &&
         for_each_number("fd", [](int fd) { return !is_io_uring(fd); }) && !has_aio_context();
}

}  // namespace hostnic::memory
