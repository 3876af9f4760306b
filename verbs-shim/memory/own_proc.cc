// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/memory/own_proc.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "verbs-shim/base/own_descriptors.h"
#include "verbs-shim/memory/own_process.h"

namespace hostnic::memory {
namespace {

constexpr std::string_view kFolder = "/proc/self/";
constexpr size_t kLongestName = 64;
constexpr int kOpenTries = 10;

// A file that is kept open. What bypasses libc may have put another one in its place.
struct KeptFile {
  std::atomic<int> fd{-1};
  dev_t device = 0;
  ino_t inode = 0;

  bool is(int other) const {
    struct stat file {};
    return other >= 0 && fstat(other, &file) == 0 && file.st_dev == device && file.st_ino == inode;
  }
  void keep(const char* path, int flags) {
    if (fd.load() >= 0) return;
    const int opened = ::open(path, flags | O_CLOEXEC);
    struct stat file {};
    if (opened < 0) return;
    if (fstat(opened, &file) == 0) {
      device = file.st_dev;
      inode = file.st_ino;
      fd.store(keep_copy(opened), std::memory_order_release);
    }
    close(opened);
  }
};

KeptFile folder, maps;
// Given up for the moment where none is left: for a directory, and for a file that is named there.
std::atomic<int> spares[2] = {-1, -1};

thread_local OwnProc table;  // of a thread that has a table of its own

int kept(const KeptFile& file, int in_own_table) {
  if (!OwnProcess::is_known()) return -1;
  const int fd = in_own_table >= 0 ? in_own_table : file.fd.load(std::memory_order_acquire);
  return file.is(fd) ? fd : -1;
}

int open_by_name(const char* name, int flags) {
  if (const int fd = kept(folder, table.folder); fd >= 0) return openat(fd, name, flags);
  char path[kFolder.size() + kLongestName] = {};
  std::memcpy(path, kFolder.data(), kFolder.size());
  std::strncpy(path + kFolder.size(), name, kLongestName - 1);
  return open(path, flags);
}

// Opens what is root's because the process is not "dumpable", having changed its user: it is made
// so for the moment.
int open_as_dumpable(const char* name, int flags) {
  if (prctl(PR_GET_DUMPABLE) == 1 || prctl(PR_SET_DUMPABLE, 1) != 0) {
    errno = EACCES;
    return -1;
  }
  const int fd = open_by_name(name, flags);
  const int error = errno;
  prctl(PR_SET_DUMPABLE, 0);
  errno = error;
  return fd;
}

// Opens it where the process has no descriptor left. What another thread opens in the same moment
// has a number that it may not have had.
int open_beyond_limit(const char* name, int flags) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
    const rlimit raised{limit.rlim_max, limit.rlim_max};
    if (setrlimit(RLIMIT_NOFILE, &raised) == 0) {
      const int fd = open_by_name(name, flags);
      const int error = errno;
      setrlimit(RLIMIT_NOFILE, &limit);
      errno = error;
      if (fd >= 0) return fd;
    }
  }
  for (std::atomic<int>& spare : spares) {
    if (spare.load() < 0) continue;
    close_ours(spare.exchange(-1));
    return open_by_name(name, flags);
  }
  errno = EMFILE;
  return -1;
}

void keep_spare(std::atomic<int>& spare) {
  if (spare.load() >= 0) return;
  const int again = keep_copy(kept(folder, -1));
  int none = -1;
  if (again >= 0 && !spare.compare_exchange_strong(none, again)) close_ours(again);
}

}  // namespace

void keep_own_proc() {
  if (!OwnProcess::set()) return;
  folder.keep("/proc/self/", O_PATH | O_DIRECTORY);
  maps.keep("/proc/self/maps", O_RDONLY);
  for (std::atomic<int>& spare : spares) keep_spare(spare);
}

void forget_own_proc() {
  for (std::atomic<int>* fd : {&folder.fd, &maps.fd, &spares[0], &spares[1]})
    close_ours(fd->exchange(-1));
}

OwnProc keep_own_proc_in_own_table() {
  table = {fcntl(folder.fd.load(), F_DUPFD_CLOEXEC, 0), fcntl(maps.fd.load(), F_DUPFD_CLOEXEC, 0)};
  return table;
}

int own_maps() {
  const int error = errno;
  const int fd = kept(maps, table.maps);
  errno = error;
  return fd;
}

int open_own_proc(const char* name, int flags) {
  flags |= O_CLOEXEC;
  int fd = open_by_name(name, flags);
  // Another thread that does the same may end the moment.
  for (int tries = 0; fd < 0 && errno == EACCES && tries < kOpenTries; tries++)
    fd = open_as_dumpable(name, flags);
  if (fd < 0 && errno == EMFILE) fd = open_beyond_limit(name, flags);
  return fd;
}

void close_own_proc(int fd) {
  if (fd < 0) return;
  const int error = errno;
  close(fd);
  if (table.folder < 0)
    for (std::atomic<int>& spare : spares) keep_spare(spare);
  errno = error;
}

}  // namespace hostnic::memory
