// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/memory/solitude.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <new>

#include "verbs-shim/memory/areas.h"

namespace hostnic::memory {
namespace {

// Calls `use(number, name)` for the entries of a directory whose names are numbers until it says
// false. It reads by getdents64: opendir would call malloc. Returns false if `use` said so, or if
// the directory can't be read.
template <typename Use>
bool for_each_number(const char* path, Use use) {
  const int directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) return false;
  alignas(dirent64) char buffer[4096];
  bool more = true;
  long got = 0;
  while (more && (got = syscall(SYS_getdents64, directory, buffer, sizeof(buffer))) > 0) {
    for (long at = 0; at < got && more;) {
      const auto* entry = reinterpret_cast<const dirent64*>(buffer + at);
      at += entry->d_reclen;
      int number = -1;
      const char* name = entry->d_name;
      if (std::from_chars(name, name + std::strlen(name), number).ec == std::errc{})
        more = use(number);
    }
  }
  close(directory);
  return more && got == 0;
}

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
