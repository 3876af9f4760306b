// SPDX-License-Identifier: BSD-3-Clause
// The entries of directories in /proc whose names are numbers: threads, descriptors; and what a
// thread's files say.
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <string_view>
#include <system_error>

#include "verbs-shim/memory/own_proc.h"

namespace hostnic::memory {

// Calls `use(number)` for the entries of the directory /proc/self/NAME whose names are numbers
// until it says false. It reads by getdents64: opendir would call malloc. Returns false if `use`
// said so, or if the directory can't be read.
template <typename Use>
bool for_each_number(const char* name, Use use) {
  const int directory = open_own_proc(name, O_RDONLY | O_DIRECTORY);
  if (directory < 0) return false;
  alignas(dirent64) char buffer[4096];
  bool more = true;
  long got = 0;
  while (more && (got = syscall(SYS_getdents64, directory, buffer, sizeof(buffer))) > 0) {
    for (long at = 0; at < got && more;) {
      const auto* entry = reinterpret_cast<const dirent64*>(buffer + at);
      at += entry->d_reclen;
      int number = -1;
      const char* entry_name = entry->d_name;
      if (std::from_chars(entry_name, entry_name + std::strlen(entry_name), number).ec ==
          std::errc{})
        more = use(number);
    }
  }
  close_own_proc(directory);
  return more && got == 0;
}

// Reads the beginning of /proc/self/task/TID/`file`. Returns the number of bytes, or -1 with errno:
// ENOENT or ESRCH when the thread is over.
template <size_t kLength>
ssize_t read_of_thread(pid_t thread, std::string_view file, char (&text)[kLength]) {
  constexpr std::string_view kFolder = "task/";
  char name[64] = {};
  std::memcpy(name, kFolder.data(), kFolder.size());
  char* at = std::to_chars(name + kFolder.size(), name + sizeof(name) / 2, thread).ptr;
  *at++ = '/';
  std::memcpy(at, file.data(), file.size());
  const int fd = open_own_proc(name, O_RDONLY);
  if (fd < 0) return -1;
  const ssize_t got = read(fd, text, kLength);
  close_own_proc(fd);
  return got;
}

}  // namespace hostnic::memory
