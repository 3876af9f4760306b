// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/elf/stat_calls.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "verbs-shim/elf/symbols.h"

namespace hostnic::elf {
namespace {

// On x86-64 the kernel fills in libc's structure, which is the same with and without 64.
int call_fstatat(int directory, const char* path, struct stat* status, int flags) {
  return static_cast<int>(syscall(SYS_newfstatat, directory, path, status, flags));
}
int call_stat(const char* path, struct stat* status) {
  return call_fstatat(AT_FDCWD, path, status, 0);
}
int call_lstat(const char* path, struct stat* status) {
  return call_fstatat(AT_FDCWD, path, status, AT_SYMLINK_NOFOLLOW);
}
int call_fstat(int fd, struct stat* status) {
  return static_cast<int>(syscall(SYS_fstat, fd, status));
}

}  // namespace

void* stat_call(const char* name) {
  const auto is = [name](const char* plain, const char* with_64) {
    return same_text(name, plain) || same_text(name, with_64);
  };
  if (is("stat", "stat64")) return reinterpret_cast<void*>(call_stat);
  if (is("lstat", "lstat64")) return reinterpret_cast<void*>(call_lstat);
  if (is("fstat", "fstat64")) return reinterpret_cast<void*>(call_fstat);
  if (is("fstatat", "fstatat64")) return reinterpret_cast<void*>(call_fstatat);
  return nullptr;
}

}  // namespace hostnic::elf
