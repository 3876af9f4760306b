// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/memory/migration.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "verbs-shim/memory/raw_memory.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace hostnic::memory {
namespace {

constexpr size_t kSlicePages = kSliceBytes / kPageBytes;
// Whether an entry of /proc/self/pagemap says that the page has content: bit 63 page present, bit
// 62 swapped out.
constexpr bool has_content(uint64_t pagemap_entry) { return pagemap_entry >> 62 != 0; }

void* map_mirror(int mirror, uint64_t start, uint64_t length, int prot) {
  return raw_mmap(nullptr, length, prot, MAP_SHARED | MAP_NORESERVE, mirror,
                  static_cast<off_t>(start));
}

uint64_t slice_end(uint64_t at, uint64_t end) {
  return std::min(end, (at & ~(kSliceBytes - 1)) + kSliceBytes);
}

}  // namespace

Migrator::Result Migrator::move_to_mirror(uint64_t start, uint64_t end, int prot) {
  // The area is written to first: one that was never written has no anon_vma yet. Its parts would
  // each get their own on separate ways, and never merge again.
  if ((prot & PROT_WRITE) != 0) raw_madvise(pointer(start), kPageBytes, MADV_POPULATE_WRITE);
  void* stash =
      raw_mmap(nullptr, end - start, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (stash == MAP_FAILED) return {start, 0, errno};
  Result result{start, address(stash) - start, 0};
  while (result.end < end) {
    const uint64_t next = slice_end(result.end, end);
    result.error = move_slice(result.end, next, result.stash_delta, prot);
    if (result.error != 0) break;
    result.end = next;
  }
  if (result.end < end) {
    raw_munmap(pointer(result.end + result.stash_delta), end - result.end);
    punch(result.end, end);
  }
  return result;
}

// Copies through the mem fd and not by address: a page that vanishes meanwhile (MADV_DONTNEED by
// another thread, MADV_FREE) would make this thread wait for itself, while the mem fd reports it.
void Migrator::copy_present_pages(uint64_t start, uint64_t end, unsigned char* to) {
  uint64_t entries[kSlicePages];
  const size_t pages = (end - start) / kPageBytes;
  const ssize_t got = pread(fds_.pagemap, entries, pages * sizeof(entries[0]),
                            static_cast<off_t>(start / kPageBytes * sizeof(entries[0])));
  if (got != static_cast<ssize_t>(pages * sizeof(entries[0])))
    std::fill(entries, entries + pages, UINT64_MAX);  // the mem fd will find out
  for (size_t page = 0; page < pages;) {
    size_t run = page;
    while (run < pages && has_content(entries[run])) run++;
    const uint64_t length = (run - page) * kPageBytes;
    const ssize_t done = length == 0 ? 0
                                     : pread(fds_.mem, to + page * kPageBytes, length,
                                             static_cast<off_t>(start + page * kPageBytes));
    if (done == static_cast<ssize_t>(length)) {
      page = run + 1;  // `run` is absent, or past the end
    } else {
      page += done > 0 ? static_cast<size_t>(done) / kPageBytes + 1 : 1;  // the page has vanished
    }
  }
}

// 1. Writes and first touches stop. Write protection alone would not stop first touches: their
//    bytes would be lost.
// 2. Only then look which pages exist; copy those.
// 3. The private pages leave for the stash, the mirror takes their place, waiting threads go on.
int Migrator::move_slice(uint64_t start, uint64_t end, uint64_t delta, int prot) {
  const uint64_t length = end - start;
  void* incoming = map_mirror(fds_.mirror, start, length, PROT_READ | PROT_WRITE);
  if (incoming == MAP_FAILED) return errno;
  // The advice is given before the mapping is in place, so that no fork can catch it without: a
  // child must not share it.
  raw_madvise(incoming, length, MADV_DONTFORK);
  int error = fds_.userfault->stop(start, length, true);
  if (error != 0) {
    raw_munmap(incoming, length);
    return error;
  }
  copy_present_pages(start, end, static_cast<unsigned char*>(incoming));
  if (prot != (PROT_READ | PROT_WRITE) && mprotect(incoming, length, prot) != 0) error = errno;
  void* stash = pointer(start + delta);
  bool stashed = false;
  if (error == 0) {
    stashed = raw_mremap(pointer(start), length, length,
                         MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, stash) != MAP_FAILED;
    if (!stashed) error = errno;
  }
  if (stashed && raw_mremap(incoming, length, length, MREMAP_MAYMOVE | MREMAP_FIXED,
                            pointer(start)) == MAP_FAILED) {
    error = errno;
    // The (empty) stash is kept mapped: its addresses stay reserved until all of it is given up.
    raw_mremap(stash, length, length, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP,
               pointer(start));
  }
  if (error != 0) {
    fds_.userfault->release(start, length);
    raw_munmap(incoming, length);
    return error;
  }
  fds_.userfault->wake(start, length);
  raw_madvise(stash, length, MADV_DONTNEED);
  return 0;
}

uint64_t Migrator::move_back(uint64_t start, uint64_t end, uint64_t stash_delta, int prot) {
  uint64_t at = start;
  while (at < end) {
    const uint64_t next = slice_end(at, end);
    if (move_slice_back(at, next, stash_delta, prot) != 0) break;
    at = next;
  }
  if (at > start) punch(start, at);  // punched at once: slice by slice would split huge pages
  return at;
}

// Reads the mirror by a mapping of its own, because the application may have taken away its access.
int Migrator::fill_stash(uint64_t start, uint64_t end, uint64_t delta, int prot) {
  const uint64_t length = end - start;
  void* stash = pointer(start + delta);
  void* source = map_mirror(fds_.mirror, start, length, PROT_READ);
  if (source == MAP_FAILED) return errno;
  int error = mprotect(stash, length, PROT_READ | PROT_WRITE) == 0 ? 0 : errno;
  if (error == 0) {
    std::memcpy(stash, source, length);
    if (prot != (PROT_READ | PROT_WRITE) && mprotect(stash, length, prot) != 0) error = errno;
  }
  raw_munmap(source, length);
  return error;
}

int Migrator::move_slice_back(uint64_t start, uint64_t end, uint64_t delta, int prot) {
  const uint64_t length = end - start;
  int error = fds_.userfault->stop(start, length, false);
  if (error != 0) return error;
  error = fill_stash(start, end, delta, prot);
  if (error == 0 && raw_mremap(pointer(start + delta), length, length,
                               MREMAP_MAYMOVE | MREMAP_FIXED, pointer(start)) == MAP_FAILED)
    error = errno;
  if (error != 0) {
    fds_.userfault->release(start, length);
    raw_madvise(pointer(start + delta), length, MADV_DONTNEED);
    return error;
  }
  fds_.userfault->wake(start, length);
  return 0;
}

bool Migrator::restore_in_child(uint64_t start, uint64_t end, uint64_t stash_delta, int prot) {
  const uint64_t length = end - start;
  if (fill_stash(start, end, stash_delta, prot) != 0) return false;
  return raw_mremap(pointer(start + stash_delta), length, length, MREMAP_MAYMOVE | MREMAP_FIXED,
                    pointer(start)) != MAP_FAILED;
}

void Migrator::punch(uint64_t start, uint64_t end) {
  fallocate(fds_.mirror, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(start),
            static_cast<off_t>(end - start));
}

}  // namespace hostnic::memory
