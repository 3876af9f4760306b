// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/memory/solitude.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
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

}  // namespace

bool is_alone(std::span<const pid_t> ours) {
  const auto self = static_cast<pid_t>(syscall(SYS_gettid));
  return for_each_number("/proc/self/task",
                         [&](pid_t thread) {
                           return thread == self || std::ranges::find(ours, thread) != ours.end();
                         }) &&
         for_each_number("/proc/self/fd", [](int fd) { return !is_io_uring(fd); }) &&
         !has_aio_context();
}

}  // namespace hostnic::memory
