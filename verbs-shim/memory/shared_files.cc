// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/memory/shared_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>

namespace hostnic::memory {
namespace {

bool leads_to(int fd, const Area& area) {
  struct stat file {};
  struct statfs fs {};
  if (fstat(fd, &file) != 0 || !S_ISREG(file.st_mode) || fstatfs(fd, &fs) != 0) return false;
  if (fs.f_type != TMPFS_MAGIC && fs.f_type != HUGETLBFS_MAGIC) return false;
  return area.same_file_as(major(file.st_dev), minor(file.st_dev), file.st_ino);
}

bool access_suffices(int fd, const Area& area) {
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || (flags & O_PATH) != 0) return false;
  const int mode = flags & O_ACCMODE;
  return mode == O_RDWR || (mode == O_RDONLY && (area.prot & PROT_WRITE) == 0);
}

// Looks in /proc/self/fd by getdents64: opendir would call malloc.
int from_own_descriptors(const Area& area) {
  const int directory = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) return -1;
  alignas(dirent64) char buffer[4096];
  int found = -1;
  long got = 0;
  while (found < 0 && (got = syscall(SYS_getdents64, directory, buffer, sizeof(buffer))) > 0) {
    for (long at = 0; at < got && found < 0;) {
      const auto* entry = reinterpret_cast<const dirent64*>(buffer + at);
      at += entry->d_reclen;
      int fd = -1;
      const char* name = entry->d_name;
      if (std::from_chars(name, name + std::strlen(name), fd).ec != std::errc{} || fd == directory)
        continue;
      if (!leads_to(fd, area) || !access_suffices(fd, area)) continue;
      found = fcntl(fd, F_DUPFD_CLOEXEC, 3);
      // Another thread may have closed the descriptor in between, and its number may be of another
      // file.
      if (found >= 0 && !(leads_to(found, area) && access_suffices(found, area))) {
        close(found);
        found = -1;
      }
    }
  }
  close(directory);
  return found;
}

int from_path(const char* path, const Area& area) {
  const int mode = (area.prot & PROT_WRITE) != 0 ? O_RDWR : O_RDONLY;
  const int fd = open(path, mode | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd >= 0 && leads_to(fd, area)) return fd;
  if (fd >= 0) close(fd);
  return -1;
}

}  // namespace

int open_shared_file(const Area& area) {
  if (!area.shared || area.inode == 0) return -1;
  int fd = from_own_descriptors(area);
  // The path is opened only where a file of that name is a file of memory: opening devices may have
  // effects.
  if (fd < 0 && area.path[0] == '/') {
    struct stat file {};
    if (stat(area.path, &file) == 0 && S_ISREG(file.st_mode)) fd = from_path(area.path, area);
  }
  if (fd < 0) {
    char path[64];
    std::snprintf(path, sizeof(path), "/proc/self/map_files/%llx-%llx",
                  static_cast<unsigned long long>(area.start),
                  static_cast<unsigned long long>(area.end));
    struct stat file {};
    if (stat(path, &file) == 0 && S_ISREG(file.st_mode)) fd = from_path(path, area);
  }
  return fd;
}

}  // namespace hostnic::memory
