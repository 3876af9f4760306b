// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/memory/solitude.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
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

// Whether a thread has given up the process's memory for good: it is joined, or the kernel is just
// taking it down, which may last on a busy machine. Its size is zero then (proc(5), statm).
bool has_no_memory(pid_t thread) {
  char path[48] = "/proc/self/task/";
  char* const number = path + std::strlen(path);
  char* const end = std::to_chars(number, path + sizeof(path) - sizeof("/statm"), thread).ptr;
  std::memcpy(end, "/statm", sizeof("/statm"));
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return errno == ENOENT || errno == ESRCH;
  char size[2] = {};
  const ssize_t length = read(fd, size, sizeof(size));
  const bool gone = length < 0 && errno == ESRCH;
  close(fd);
  return gone || (length == sizeof(size) && size[0] == '0' && size[1] == ' ');
}

}  // namespace

bool is_alone(std::span<const pid_t> ours) {
  const auto self = static_cast<pid_t>(syscall(SYS_gettid));
  return for_each_number("/proc/self/task",
                         [&](pid_t thread) {
                           return thread == self || std::ranges::find(ours, thread) != ours.end() ||
                                  has_no_memory(thread);
                         }) &&
         for_each_number("/proc/self/fd", [](int fd) { return !is_io_uring(fd); }) &&
         !has_aio_context();
}

}  // namespace hostnic::memory
