// SPDX-License-Identifier: BSD-3-Clause
#include "protocol/hostif/file_pages.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#ifndef SYS_cachestat  // Linux 6.5
#define SYS_cachestat 451
#endif

namespace hostnic {
namespace {

constexpr uint64_t kPageBytes = 4096;

// The structures are linux/mman.h's, which is older than the call on some machines.
struct CacheRange {
  uint64_t start = 0, length_bytes = 0;
};
struct CachedPages {
  uint64_t present = 0, dirty = 0, under_writeback = 0;
  uint64_t evicted = 0;  // of tmpfs: in swap
  uint64_t recently_evicted = 0;
};

bool has_all(int fd, uint64_t start, uint64_t end) {
  CacheRange range{start, end - start};
  CachedPages pages;
  return syscall(SYS_cachestat, fd, &range, &pages, 0) == 0 &&
         pages.present + pages.evicted >= (end - start + kPageBytes - 1) / kPageBytes;
}

}  // namespace

uint64_t end_of_pages(int fd, uint64_t start, uint64_t end) {
  if (start >= end || has_all(fd, start, end)) return end;
  const off_t hole = lseek(fd, static_cast<off_t>(start), SEEK_HOLE);
  return hole < 0 ? start : std::min(static_cast<uint64_t>(hole), end);
}

}  // namespace hostnic
