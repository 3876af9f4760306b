// SPDX-License-Identifier: BSD-3-Clause
// The entries of directories in /proc whose names are numbers: threads, descriptors.
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <charconv>
#include <cstring>
#include <system_error>

namespace hostnic::memory {

// Calls `use(number)` for the entries of a directory whose names are numbers until it says
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

}  // namespace hostnic::memory
