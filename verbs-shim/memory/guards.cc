// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/memory/guards.h"

#include <sys/shm.h>

#include <algorithm>
#include <cerrno>

#include "verbs-shim/memory/areas.h"
#include "verbs-shim/memory/libc_calls.h"
#include "verbs-shim/memory/raw_memory.h"

namespace hostnic::memory {

bool Guards::map(uint64_t start) {
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
  void* const guard = raw_mmap(pointer(start), kPageBytes, PROT_NONE, kFlags, -1, 0);
  if (guard == MAP_FAILED) return false;
  raw_munlock(guard, kPageBytes);
  raw_madvise(guard, kPageBytes, MADV_DONTFORK);
  return true;
}

// Whether the heap ends there. Nobody moves a part of the heap, and a guard would keep it from
// growing: the C library asks nobody.
bool Guards::is_break(uint64_t start) {
  return start == page_up(static_cast<uint64_t>(syscall(SYS_brk, 0)));
}

bool Guards::is_place(uint64_t at) const {
  return std::ranges::any_of(
      places_, [at](const auto& place) { return place.load(std::memory_order_acquire) == at; });
}

void Guards::put(uint64_t start) {
  if (is_break(start)) return;
  forget(start, start + kPageBytes);  // the program may have unmapped an older one
  for (std::atomic<uint64_t>& place : places_) {
    uint64_t free = 0;
    if (!place.compare_exchange_strong(free, start)) continue;
    put_any_.store(true, std::memory_order_relaxed);
    if (!map(start)) place.store(0);
    return;
  }
}

bool Guards::make_room(uint64_t start, uint64_t end) {
  TextRoom room;
  Area area;
  bool found = false;
  for (uint64_t at = start; at < end && next_area(at, area, room) && area.start < end;
       at = area.end) {
    if (area.shared || area.inode != 0 || area.prot != PROT_NONE) return false;
    for (uint64_t page = area.start; page < area.end; page += kPageBytes)
      if (!is_place(page)) return false;
    found = true;
  }
  if (!found) return false;
  for (const std::atomic<uint64_t>& place : places_) {
    const uint64_t at = place.load(std::memory_order_acquire);
    if (at - start < end - start) raw_munmap(pointer(at), kPageBytes);
  }
  return true;
}

void Guards::put_again(uint64_t start, uint64_t end) {
  const int error = errno;
  for (std::atomic<uint64_t>& place : places_) {
    const uint64_t at = place.load(std::memory_order_acquire);
    if (at != 0 && at - start < end - start && !map(at)) place.store(0);
  }
  errno = error;
}

void Guards::forget(uint64_t start, uint64_t end) {
  for (std::atomic<uint64_t>& place : places_) {
    uint64_t at = place.load(std::memory_order_acquire);
    if (at - start < end - start) place.compare_exchange_strong(at, 0);
  }
}

void* Guards::mmap(void* at, size_t length, int prot, int flags, int fd, off_t offset) {
  const uint64_t start = address(at), end = start + page_up(length);
  if (start % kPageBytes != 0 || end <= start || !make_room(start, end)) {
    errno = EEXIST;
    return MAP_FAILED;
  }
  void* const result = libc_mmap(at, length, prot, flags, fd, offset);
  result == at ? forget(start, end) : put_again(start, end);
  return result;
}

void* Guards::grow(void* from, size_t old_length, size_t length, int flags) {
  const uint64_t start = address(from) + page_up(old_length);
  const uint64_t end = address(from) + page_up(length);
  const bool made_room = any() && start < end && make_room(start, end);
  void* const result = libc_mremap(from, old_length, length, flags, nullptr);
  if (made_room) result == from ? forget(start, end) : put_again(start, end);
  return result;
}

void* Guards::shmat(int id, void* at, int flags) {
  const uint64_t start = (flags & SHM_RND) != 0 ? page_down(address(at)) : address(at);
  shmid_ds segment{};
  const bool known = start % kPageBytes == 0 && shmctl(id, IPC_STAT, &segment) == 0;
  const uint64_t end = start + (known ? page_up(segment.shm_segsz) : 0);
  if (!known || !make_room(start, end)) {
    errno = EINVAL;
    return MAP_FAILED;
  }
  void* const result = libc_shmat(id, at, flags);
  result == pointer(start) ? forget(start, end) : put_again(start, end);
  return result;
}

}  // namespace hostnic::memory
