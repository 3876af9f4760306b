// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/memory/aside_table.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <iterator>

#include "verbs-shim/base/own_descriptors.h"

namespace hostnic::memory {

// The map is sealed: hostnicd must not fault on it.
int AsideTable::make_map() {
  if (map_ != nullptr) return 0;
  rlimit largest{};  // a larger file is a signal to the program
  if (getrlimit(RLIMIT_FSIZE, &largest) == 0 && largest.rlim_cur < kMapBytes) return EFBIG;
  const int fd = memfd_create("hostnic-fill-map", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return errno;
  struct stat file {};
  void* map = MAP_FAILED;
  if (ftruncate(fd, static_cast<off_t>(kMapBytes)) == 0 &&
      fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0 && fstat(fd, &file) == 0)
    map = raw_mmap(nullptr, kMapBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
  if (map != MAP_FAILED) map_fd_ = keep_copy(fd);
  if (map_fd_ < 0) {
    const int error = errno;
    if (map != MAP_FAILED) raw_munmap(map, kMapBytes);
    close(fd);
    return error;
  }
  close(fd);
  raw_madvise(map, kMapBytes, MADV_DONTFORK);
  map_inode_ = file.st_ino;
  map_ = static_cast<Slice*>(map);
  return 0;
}

int AsideTable::duplicate_map() const {
  const int fd = fcntl(map_fd_, F_DUPFD_CLOEXEC, 3);
  struct stat file {};
  if (fd < 0 || (fstat(fd, &file) == 0 && file.st_ino == map_inode_)) return fd;
  close(fd);
  errno = EBADF;
  return -1;
}

void AsideTable::forget_parent() {
  close_ours(map_fd_);
  asides_in_use_.store(0);
}

bool AsideTable::any_aside(uint64_t start, uint64_t end) const {
  return std::ranges::any_of(asides_,
                             [=](const Aside& aside) { return aside.overlaps(start, end); });
}

bool AsideTable::any_unfilled(uint64_t start, uint64_t end) const {
  return std::ranges::any_of(asides_, [=, this](const Aside& aside) {
    if (!aside.overlaps(start, end)) return false;
    const uint64_t last = std::min(aside.end, end);
    for (uint64_t at = std::max(aside.start.load(), slice_down(start)); at < last;
         at += kSliceBytes)
      if (slice(aside, at).load(std::memory_order_acquire) != SliceState::kFilled) return true;
    return false;
  });
}

const AsideTable::Aside* AsideTable::find(uint64_t va) const {
  for (const Aside& aside : asides_)
    if (aside.overlaps(va, va + 1)) return &aside;
  return nullptr;
}

// What has just been filled altogether is still good for a part: its states stay as they are until
// the registrar moves something else aside.
bool AsideTable::next_aside(uint64_t start, uint64_t end, Part& part) const {
  part = {end, end, 0};
  for (const Aside& aside : asides_) {
    const uint64_t from = aside.start.load(std::memory_order_acquire);
    if (from == 0 || from >= end || aside.end <= start || std::max(from, start) >= part.start)
      continue;
    part = {std::max(from, start), std::min(aside.end, end), aside.map_start};
  }
  return part.start < part.end;
}

uint64_t AsideTable::next_in_state(SliceState state, uint64_t from, const Aside*& found) const {
  uint64_t after = UINT64_MAX, first = UINT64_MAX;
  const Aside *after_in = nullptr, *first_in = nullptr;
  for (const Aside& aside : asides_) {
    if (!aside.used()) continue;
    for (uint64_t at = aside.start; at < aside.end; at += kSliceBytes) {
      if (slice(aside, at).load(std::memory_order_relaxed) != state) continue;
      if (at < first) {
        first = at;
        first_in = &aside;
      }
      if (at < from) continue;
      if (at < after) {
        after = at;
        after_in = &aside;
      }
      break;
    }
  }
  found = after_in != nullptr ? after_in : first_in;
  return after_in != nullptr ? after : first_in != nullptr ? first : 0;
}

const AsideTable::Aside* AsideTable::filled() const {
  for (const Aside& aside : asides_) {
    if (!aside.used()) continue;
    uint64_t at = aside.start;
    while (at < aside.end &&
           slice(aside, at).load(std::memory_order_relaxed) == SliceState::kFilled)
      at += kSliceBytes;
    if (at >= aside.end) return &aside;
  }
  return nullptr;
}

// The map's room is given out round and round, so that what hostnicd still looks at stays as it is
// for long.
uint64_t AsideTable::find_room(uint64_t slices) const {
  uint64_t at = next_slot_ + slices <= kMapBytes ? next_slot_ : 0;
  for (size_t tries = 0; tries <= 2 * kMaxAsides && at + slices <= kMapBytes; tries++) {
    const auto taken = std::ranges::find_if(asides_, [&](const Aside& aside) {
      return aside.used() && aside.slot(aside.start) < at + slices && at < aside.slot(aside.end);
    });
    if (taken == std::end(asides_)) return at;
    at = taken->slot(taken->end);
    if (at + slices > kMapBytes) at = 0;
  }
  return kMapBytes;
}

int AsideTable::add(uint64_t start, uint64_t end, uint64_t stash_delta, bool takes_out) {
  const uint64_t slices = (end - start) / kSliceBytes;
  const auto free = std::ranges::find_if(asides_, [](const Aside& aside) { return !aside.used(); });
  const uint64_t room = slices <= kMapBytes ? find_room(slices) : kMapBytes;
  if (free == std::end(asides_) || room == kMapBytes || any_aside(start, end)) return ENOSPC;
  next_slot_ = room + slices;
  for (uint64_t i = 0; i < slices; i++) map_[room + i].store(kMoving);
  free->end = end;
  free->stash_delta = stash_delta;
  free->takes_out = takes_out;
  free->map_start = start - room * kSliceBytes;
  free->start.store(start, std::memory_order_release);
  asides_in_use_.fetch_add(1);
  return 0;
}

void AsideTable::mark(uint64_t start, uint64_t end, SliceState from, SliceState to) {
  for (const Aside& aside : asides_) {
    if (!aside.overlaps(start, end)) continue;
    const uint64_t last = std::min(aside.end, end);
    for (uint64_t at = std::max(aside.start.load(), start); at < last; at += kSliceBytes)
      if (SliceState seen = from; slice(aside, at) == from)
        slice(aside, at).compare_exchange_strong(seen, to);
  }
}

void AsideTable::take_from(Aside& aside, uint64_t from, uint64_t to) {
  if (from == aside.start) {
    const bool whole = to == aside.end;
    aside.start.store(whole ? 0 : to, std::memory_order_release);
    if (whole) asides_in_use_.fetch_sub(1);
    return;
  }
  if (to < aside.end) {
    const auto rest =
        std::ranges::find_if(asides_, [](const Aside& other) { return !other.used(); });
    if (rest == std::end(asides_)) return;
    rest->end = aside.end;
    rest->stash_delta = aside.stash_delta;
    rest->map_start = aside.map_start;
    rest->takes_out = aside.takes_out;
    rest->start.store(to, std::memory_order_release);
    asides_in_use_.fetch_add(1);
  }
  aside.end = from;
}

}  // namespace hostnic::memory
