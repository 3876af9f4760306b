// SPDX-License-Identifier: BSD-3-Clause
#include "protocol/hostif/segment_memory.h"

#include <errno.h>
#include <linux/falloc.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

namespace hostnic {
namespace {

constexpr uint64_t kNearArenaBytes = uint64_t{1} << 30;
constexpr uint64_t kStepBytes = uint64_t{1} << 20;  // by which more of the arena is opened

void keep_to_this_process(void* at, uint64_t bytes) {
  madvise(at, bytes, MADV_DONTFORK);
  // The mapping is left out of cores: to write one would allocate every page of a sparse file.
  madvise(at, bytes, MADV_DONTDUMP);
}

}  // namespace

int SegmentMemory::map(int segment_fd, uint64_t segment_bytes, int arena_fd, uint64_t arena_bytes,
                       Access access) {
  const bool closed = access == Access::kOpened;
  const uint64_t near_bytes = std::min(arena_bytes, kNearArenaBytes);
  // The reservation has room to align: huge pages want an address that is a multiple of theirs; it
  // does no harm to others.
  reservation_bytes_ = segment_bytes + near_bytes + kHugePageBytes;
  void* reservation = mmap(nullptr, reservation_bytes_, PROT_NONE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reservation == MAP_FAILED) return errno;
  reservation_ = reservation;
  const auto start = reinterpret_cast<uintptr_t>(reservation);
  const uintptr_t aligned = (start + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  auto* base = static_cast<std::byte*>(reservation) + (aligned - start);
  // The mapping is reserved, so that huge pages that are missing fail here and not at the first
  // touch.
  if (mmap(base, segment_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, segment_fd, 0) ==
      MAP_FAILED)
    return errno;
  if (mmap(base + segment_bytes, near_bytes, closed ? PROT_NONE : PROT_READ | PROT_WRITE,
           MAP_SHARED | MAP_FIXED | MAP_NORESERVE, arena_fd, 0) == MAP_FAILED)
    return errno;
  madvise(base, segment_bytes, MADV_DONTFORK);
  keep_to_this_process(base + segment_bytes, near_bytes);
  base_ = base;
  segment_bytes_ = segment_bytes;
  arena_bytes_ = arena_bytes;
  near_end_ = segment_bytes + near_bytes;
  opened_near_ = closed ? segment_bytes : 0;
  opened_far_ = closed ? near_end_ : 0;
  arena_fd_ = arena_fd;
  return 0;
}

SegmentMemory::~SegmentMemory() { unmap(); }

void SegmentMemory::unmap() {
  if (reservation_ != nullptr) munmap(reservation_, reservation_bytes_);
  if (far_base_ != nullptr) munmap(far_base_ + segment_bytes_, arena_bytes_);
  abandon();
}

void SegmentMemory::abandon() {
  base_ = far_base_ = nullptr;
  reservation_ = nullptr;
}

bool SegmentMemory::reach_far() {
  if (far_base_ != nullptr) return true;
  const int prot = opened_far_ != 0 ? PROT_NONE : PROT_READ | PROT_WRITE;
  void* all = mmap(nullptr, arena_bytes_, prot, MAP_SHARED | MAP_NORESERVE, arena_fd_, 0);
  if (all == MAP_FAILED) return false;
  keep_to_this_process(all, arena_bytes_);
  far_base_ = static_cast<std::byte*>(all) - segment_bytes_;
  return true;
}

bool SegmentMemory::open(uint64_t offset, uint64_t bytes) {
  const bool near = offset < near_end_;
  uint64_t& opened = near ? opened_near_ : opened_far_;
  const uint64_t limit = near ? near_end_ : segment_bytes_ + arena_bytes_;
  if (opened == 0 || offset + bytes <= opened) return true;
  const uint64_t end = std::min(limit, (offset + bytes + kStepBytes - 1) / kStepBytes * kStepBytes);
  if (mprotect((near ? base_ : far_base_) + opened, end - opened, PROT_READ | PROT_WRITE) != 0)
    return false;
  opened = end;
  return true;
}

std::byte* SegmentMemory::at(uint64_t offset, uint64_t bytes) {
  if (offset + bytes <= near_end_) return base_ + offset;
  return reach_far() ? far_base_ + offset : nullptr;
}

bool SegmentMemory::discard(uint64_t offset, uint64_t bytes) const {
  // This is the system call and not fallocate(): where a thread may be cancelled must not depend on
  // who frees what.
  return syscall(SYS_fallocate, arena_fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                 static_cast<off_t>(offset - segment_bytes_), static_cast<off_t>(bytes)) == 0;
}

}  // namespace hostnic
