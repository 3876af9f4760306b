// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/memory/blocked_calls.h"

#include <sys/mman.h>

#include "verbs-shim/memory/numbered_entries.h"
#include "verbs-shim/memory/raw_memory.h"

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif

namespace hostnic::memory {
namespace {

// Writes "/proc/self/task/TID/syscall", with its terminator.
void name_file(char* to, int thread) {
  constexpr char kFolder[] = "/proc/self/task/", kFile[] = "/syscall";
  constexpr size_t kMostDigits = 10;
  std::memcpy(to, kFolder, sizeof(kFolder) - 1);
  char* const digits = to + sizeof(kFolder) - 1;
  std::memcpy(std::to_chars(digits, digits + kMostDigits, thread).ptr, kFile, sizeof(kFile));
}

}  // namespace

// "NUMBER 0xARGUMENT ... 0xSTACK 0xPLACE", or "running", or "-1 ..." outside of a call.
bool parse_discard(const char* line, const char* end, uint64_t& start, uint64_t& discard_end) {
  long number = -1;
  auto [at, failed] = std::from_chars(line, end, number);
  if (failed != std::errc{} || number != SYS_madvise) return false;
  uint64_t arguments[3] = {};
  for (uint64_t& each : arguments) {
    if (end - at < 3 || std::memcmp(at, " 0x", 3) != 0) return false;
    const auto [next, wrong] = std::from_chars(at + 3, end, each, 16);
    if (wrong != std::errc{}) return false;
    at = next;
  }
  const auto advice = static_cast<int>(arguments[2]);
  start = arguments[0];
  discard_end = start + page_up(arguments[1]);
  return (advice == MADV_DONTNEED || advice == MADV_DONTNEED_LOCKED) && start % kPageBytes == 0 &&
         discard_end > start;
}

void for_each_discard(Discards* use) {
  const auto self = static_cast<int>(syscall(SYS_gettid));
  for_each_number("/proc/self/task", [&](int thread) {
    if (thread == self) return true;
    char path[64], line[256];
    name_file(path, thread);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return true;  // it has ended
    const ssize_t got = read(fd, line, sizeof(line));
    close(fd);
    uint64_t start = 0, end = 0;
    if (got > 0 && parse_discard(line, line + got, start, end)) use(start, end);
    return true;
  });
}

}  // namespace hostnic::memory
