// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/memory/migration.h"

#include <fcntl.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "protocol/hostif/file_pages.h"
#include "verbs-shim/memory/page_mover.h"
#include "verbs-shim/memory/raw_memory.h"

namespace hostnic::memory {
namespace {

constexpr size_t kSlicePages = kSliceBytes / kPageBytes;
constexpr int kPageTries = 1000;

// Leaves nothing at addresses of the window but their reservation.
void give_up(void* at, uint64_t length) {
  raw_mmap(at, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

uint64_t slice_end(uint64_t at, uint64_t end) {
  return std::min(end, (at & ~(kSliceBytes - 1)) + kSliceBytes);
}

}  // namespace

// Nothing can be accessed in an empty stash: mlockall() would bring a page for each of the
// mirror's.
void Migrator::empty_stash(uint64_t stash, uint64_t length) {
  discard_private(pointer(stash), length);
  mprotect(pointer(stash), length, PROT_NONE);
}

int Migrator::reserve() {
  if (window_ != 0) return 0;
  void* at = raw_mmap(nullptr, 3 * kSliceBytes, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return errno;
  window_ = (address(at) + kSliceBytes - 1) & ~(kSliceBytes - 1);
  return 0;
}

// The stash lies towards slices as the range does, so that huge pages move as such.
uint64_t Migrator::reserve_stash(uint64_t start, uint64_t end) {
  const uint64_t length = end - start, total = length + kSliceBytes;
  void* all =
      raw_mmap(nullptr, total, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (all == MAP_FAILED) return 0;
  const uint64_t skipped = (start - address(all)) & (kSliceBytes - 1);
  const uint64_t stash = address(all) + skipped;
  if (skipped != 0) raw_munmap(all, skipped);
  raw_munmap(pointer(stash + length), total - skipped - length);
  return stash - start;
}

void Migrator::prepare(uint64_t start, int prot) {
  if ((prot & PROT_WRITE) != 0) raw_madvise(pointer(start), kPageBytes, MADV_POPULATE_WRITE);
}

Migrator::Result Migrator::move_to_mirror(uint64_t start, uint64_t end, int prot) {
  prepare(start, prot);
  const uint64_t delta = reserve_stash(start, end);
  if (delta == 0) return {start, 0, ENOMEM};
  Result result{start, delta, 0};
  while (result.end < end) {
    const uint64_t next = slice_end(result.end, end);
    result.error = move_slice(result.end, next, result.stash_delta, prot);
    if (result.error != 0) break;
    result.end = next;
  }
  if (result.end < end) raw_munmap(pointer(result.end + result.stash_delta), end - result.end);
  return result;
}

// Copies the pages that have content from `from`, where [start, end) can be found now.
void Migrator::copy_present_pages(uint64_t from, uint64_t start, uint64_t end, unsigned char* to) {
  uint64_t entries[kSlicePages];
  const size_t pages = (end - start) / kPageBytes;
  const ssize_t got = pread(fds_.pagemap, entries, pages * sizeof(entries[0]),
                            static_cast<off_t>(from / kPageBytes * sizeof(entries[0])));
  if (got != static_cast<ssize_t>(pages * sizeof(entries[0])))
    std::fill(entries, entries + pages, UINT64_MAX);  // the mem fd will find out
  for (size_t page = 0; page < pages;) {
    size_t run = page;
    while (run < pages && has_content(entries[run])) run++;
    const uint64_t length = (run - page) * kPageBytes;
    ssize_t done = static_cast<ssize_t>(length);
    if (length != 0 && from != start) {
      std::memcpy(to + page * kPageBytes, pointer(from + page * kPageBytes), length);
    } else if (length != 0) {
      // This goes through the mem fd and not by address: a page that vanishes meanwhile
      // (MADV_DONTNEED by another thread, MADV_FREE) would make this thread wait for itself, while
      // the mem fd reports it.
      done = pread(fds_.mem, to + page * kPageBytes, length,
                   static_cast<off_t>(start + page * kPageBytes));
    }
    if (done == static_cast<ssize_t>(length)) {
      page = run + 1;  // `run` is absent, or past the end
    } else {
      page += done > 0 ? static_cast<size_t>(done) / kPageBytes + 1 : 1;  // the page has vanished
    }
  }
}

// Maps a part of the mirror in the window, with its pages: whole slices as huge pages, where the
// kernel has some for a file. It is where no fork can catch it without MADV_DONTFORK: a child must
// not share it. Returns MAP_FAILED with errno.
void* Migrator::map_incoming(uint64_t start, uint64_t length) const {
  void* incoming =
      raw_mmap(pointer(window_ + (start & (kSliceBytes - 1))), length, PROT_READ | PROT_WRITE,
               MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fds_.mirror, static_cast<off_t>(start));
  if (incoming == MAP_FAILED) return incoming;
  raw_munlock(incoming, length);  // by mlockall(MCL_FUTURE): what it takes the place of is not
  raw_madvise(incoming, length, MADV_DONTFORK);
  if (length == kSliceBytes) {
    // There has to be a page for MADV_COLLAPSE to begin with.
    raw_madvise(incoming, kPageBytes, MADV_POPULATE_WRITE);
    raw_madvise(incoming, length, MADV_COLLAPSE);
  }
  for (int tries = 0; raw_madvise(incoming, length, MADV_POPULATE_WRITE) != 0; tries++) {
    if ((errno == EAGAIN || errno == EINTR) && tries < kPageTries) continue;
    const int error = errno;
    give_up(incoming, length);
    errno = error;
    return MAP_FAILED;
  }
  return incoming;
}

// Maps the place to which pages leave, anew each time: page tables left there would split huge
// pages. Returns MAP_FAILED with errno.
void* Migrator::map_transit(uint64_t start, uint64_t length) const {
  void* transit =
      map_without_pages(pointer(window_ + kSliceBytes + (start & (kSliceBytes - 1))), length);
  if (transit == MAP_FAILED) return transit;
  raw_madvise(transit, length, MADV_DONTFORK);
  if (const int error = fds_.userfault->accept_pages(address(transit), length); error != 0) {
    give_up(transit, length);
    errno = error;
    return MAP_FAILED;
  }
  return transit;
}

// Copies what a stopped range contains. With a transit the pages are taken out first: from then on
// nobody can write to them, a device neither.
int Migrator::copy_pages(uint64_t start, uint64_t end, void* transit, unsigned char* to) {
  if (transit == nullptr) {
    copy_present_pages(start, start, end, to);
    return 0;
  }
  Userfault& userfault = *fds_.userfault;
  const uint64_t length = end - start;
  int error = userfault.move_pages(address(transit), start, length);
  if (error == EBUSY) {
    // What a forked child shares becomes the program's own by a write, which waits while the range
    // is stopped.
    userfault.put_back(start, address(transit), length);
    userfault.release(start, length);
    raw_madvise(pointer(start), length, MADV_POPULATE_WRITE);
    error = userfault.stop(start, length, true);
    if (error == 0) error = userfault.move_pages(address(transit), start, length);
  }
  if (error == 0) copy_present_pages(address(transit), start, end, to);
  return error == EBUSY ? EINPROGRESS : error;
}

// Lets the mirror's mapping take the place of the range, which leaves for the stash.
int Migrator::put_in_place(uint64_t start, uint64_t length, void* stash, void* incoming) {
  if (raw_mremap(pointer(start), length, length, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP,
                 stash) == MAP_FAILED)
    return errno;
  // What it leaves stays mapped, and so reserved.
  if (raw_mremap(incoming, length, length, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP,
                 pointer(start)) != MAP_FAILED) {
    give_up(incoming, length);
    return 0;
  }
  const int error = errno;
  // The (empty) stash is kept mapped: its addresses stay reserved until all of it is given up.
  raw_mremap(stash, length, length, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP,
             pointer(start));
  return error;
}

// 1. The mirror's pages are made, while nobody waits.
// 2. Writes and first touches stop. Write protection alone would not stop first touches: their
//    bytes would be lost.
// 3. Only then the pages that exist are taken out and copied.
// 4. The mirror takes their place, waiting threads go on.
int Migrator::move_slice(uint64_t start, uint64_t end, uint64_t delta, int prot) {
  const uint64_t length = end - start;
  if (const int error = reserve(); error != 0) return error;
  void* incoming = map_incoming(start, length);
  if (incoming == MAP_FAILED) return errno;
  // Only what is written to can be taken out, and only what can be written to needs to be.
  const bool takes = fds_.userfault->moves_pages() && prot == (PROT_READ | PROT_WRITE);
  void* transit = takes ? map_transit(start, length) : nullptr;
  int error = transit == MAP_FAILED ? errno : fds_.userfault->stop(start, length, true);
  if (error == 0) {
    error = copy_pages(start, end, transit, static_cast<unsigned char*>(incoming));
    if (error == 0 && prot != (PROT_READ | PROT_WRITE) && mprotect(incoming, length, prot) != 0)
      error = errno;
    if (error == 0) error = put_in_place(start, length, pointer(start + delta), incoming);
    if (error == 0) {
      fds_.userfault->wake(start, length);
      empty_stash(start + delta, length);
    } else {
      if (takes) fds_.userfault->put_back(start, address(transit), length);
      fds_.userfault->release(start, length);
      punch(start, end);
    }
  }
  if (error != 0) give_up(incoming, length);
  if (takes && transit != MAP_FAILED) give_up(transit, length);
  return error;
}

uint64_t Migrator::move_back(uint64_t start, uint64_t end, uint64_t stash_delta, int prot) {
  uint64_t at = start;
  while (at < end) {
    const uint64_t next = slice_end(at, end);
    if (move_slice_back(at, next, stash_delta, prot) != 0) break;
    at = next;
  }
  return at;
}

// Maps a part of the mirror to read. Returns null with errno.
void* Migrator::open_view(uint64_t offset, uint64_t length) {
  void* const at =
      raw_mmap(nullptr, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return nullptr;
  view_end_.store(address(at) + length);
  view_start_.store(address(at));
  view_changes_.fetch_add(1);
  if (raw_mmap(at, length, PROT_READ, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fds_.mirror,
               static_cast<off_t>(offset)) != MAP_FAILED)
    return at;
  const int error = errno;
  close_view(at, length);
  errno = error;
  return nullptr;
}

void Migrator::close_view(void* at, uint64_t length) {
  raw_munmap(at, length);
  view_end_.store(0);
  view_start_.store(0);
  view_changes_.fetch_add(1);
}

namespace {

// Makes pages, since an error is better than a signal. Returns 0 or an errno value.
int make_pages(std::byte* at, uint64_t length) {
  for (int tries = 0; raw_madvise(at, length, MADV_POPULATE_WRITE) != 0; tries++) {
    if (errno == EINVAL) return 0;  // before Linux 5.14
    if ((errno != EAGAIN && errno != EINTR) || tries == kPageTries) return errno;
  }
  return 0;
}

// Where the pages of the mirror from `at` on end, at `last` at the latest.
off_t hole_behind(int mirror, off_t at, off_t last) {
  return static_cast<off_t>(
      end_of_pages(mirror, static_cast<uint64_t>(at), static_cast<uint64_t>(last)));
}

// Copies the pages that the mirror has, which `source` shows, to memory of zeros: to read where it
// has none would make them, and nobody would ever free them. Returns 0 or an errno value.
int copy_present(int mirror, uint64_t offset, uint64_t length, const void* source, void* to) {
  auto at = static_cast<off_t>(offset);
  const auto last = static_cast<off_t>(offset + length);
  while ((at = lseek(mirror, at, SEEK_DATA)) >= 0 && at < last) {
    const off_t hole = hole_behind(mirror, at, last);
    if (hole == at) return EIO;
    const uint64_t first = static_cast<uint64_t>(at) - offset;
    const auto bytes = static_cast<uint64_t>(hole - at);
    std::byte* const place = static_cast<std::byte*>(to) + first;
    if (const int error = make_pages(place, bytes); error != 0) return error;
    std::memcpy(place, static_cast<const std::byte*>(source) + first, bytes);
    at = hole;
  }
  return at >= 0 || errno == ENXIO ? 0 : errno;
}

}  // namespace

// Copies a part of the mirror to private memory of zeros. Reads the mirror by a mapping of its own,
// because the application may have taken away its access.
int Migrator::copy_out(uint64_t offset, uint64_t length, void* to, int prot) {
  void* const source = open_view(offset, length);
  if (source == nullptr) return errno;
  int error = mprotect(to, length, PROT_READ | PROT_WRITE) == 0 ? 0 : errno;
  if (error == 0) error = copy_present(fds_.mirror, offset, length, source, to);
  if (error == 0) {
    if (prot != (PROT_READ | PROT_WRITE) && mprotect(to, length, prot) != 0) error = errno;
  }
  close_view(source, length);
  return error;
}

int Migrator::move_slice_back(uint64_t start, uint64_t end, uint64_t delta, int prot) {
  const uint64_t length = end - start;
  int error = fds_.userfault->stop(start, length, false);
  if (error != 0) return error;
  error = copy_out(start, length, pointer(start + delta), prot);
  if (error == 0 && raw_mremap(pointer(start + delta), length, length,
                               MREMAP_MAYMOVE | MREMAP_FIXED, pointer(start)) == MAP_FAILED)
    error = errno;
  if (error != 0) {
    fds_.userfault->release(start, length);
    empty_stash(start + delta, length);
    return error;
  }
  fds_.userfault->wake(start, length);
  return 0;
}

int Migrator::copy_to_stash(uint64_t start, uint64_t end, uint64_t stash_delta, int prot) {
  void* const stash = pointer(start + stash_delta);
  const int error = copy_out(start, end - start, stash, prot);
  if (error != 0) empty_stash(start + stash_delta, end - start);
  return error;
}

void* Migrator::copy_elsewhere(uint64_t offset, uint64_t length, int prot) {
  void* const to =
      raw_mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (to == MAP_FAILED) return nullptr;
  if (copy_out(offset, length, to, prot) == 0) return to;
  raw_munmap(to, length);
  return nullptr;
}

namespace {

// A slice of zeros, of which the kernel writes a huge page at once: one page, which stays in the
// processor's cache, again and again.
alignas(kPageBytes) constexpr std::byte kZeros[kPageBytes] = {};
constexpr auto kZeroSlice = [] {
  std::array<iovec, kSliceBytes / kPageBytes> pieces{};
  pieces.fill({const_cast<std::byte*>(kZeros), kPageBytes});
  return pieces;
}();

}  // namespace

bool Migrator::clear(int mirror, uint64_t start, uint64_t end) {
  auto at = static_cast<off_t>(start);
  const auto last = static_cast<off_t>(end);
  while ((at = lseek(mirror, at, SEEK_DATA)) >= 0 && at < last) {
    const off_t hole = hole_behind(mirror, at, last);
    if (hole == at) return false;
    while (at < hole) {
      const auto count = std::min(kZeroSlice.size(), static_cast<uint64_t>(hole - at) / kPageBytes);
      const ssize_t put = pwritev(mirror, kZeroSlice.data(), static_cast<int>(count), at);
      if (put <= 0 && errno != EINTR) return false;
      if (put > 0) at += put;
    }
  }
  return true;
}

uint64_t Migrator::next_page(int mirror, uint64_t start) {
  const off_t at = lseek(mirror, static_cast<off_t>(start), SEEK_DATA);
  return at < 0 ? kMirrorBytes : static_cast<uint64_t>(at);
}

bool Migrator::has_pages(int mirror, uint64_t start, uint64_t end) {
  return next_page(mirror, start) < end;
}

int Migrator::read_mirror(int mirror, uint64_t offset, uint64_t length, void* to) {
  auto at = static_cast<off_t>(offset);
  const auto last = static_cast<off_t>(offset + length);
  while ((at = lseek(mirror, at, SEEK_DATA)) >= 0 && at < last) {
    const off_t hole = hole_behind(mirror, at, last);
    if (hole == at) return EIO;
    while (at < hole) {
      auto* const place = static_cast<std::byte*>(to) + (at - static_cast<off_t>(offset));
      const ssize_t got = pread(mirror, place, static_cast<size_t>(hole - at), at);
      if (got > 0)
        at += got;
      else if (got == 0 || errno != EINTR)
        return got == 0 ? EIO : errno;
    }
  }
  return at >= 0 || errno == ENXIO ? 0 : errno;
}

void Migrator::punch(int mirror, uint64_t start, uint64_t end) {
  fallocate(mirror, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(start),
            static_cast<off_t>(end - start));
}

}  // namespace hostnic::memory
