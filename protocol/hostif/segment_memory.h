// SPDX-License-Identifier: BSD-3-Clause
// One side's view of a client segment: header, rings and QP statuses from one file, which may lie
// in huge pages, and the arena from a sparse file of ordinary pages. Both are named by offsets of
// one space, in which the arena follows the rest.
//
// The arena is as large as all that a device promises to create could need at once, which is more
// address space than most programs should spend. Its first gigabyte is always mapped, all of it
// (once more) when something beyond that is used.
#pragma once

#include <cstddef>
#include <cstdint>

#include "protocol/hostif/segment.h"

namespace hostnic {

class SegmentMemory {
 public:
  SegmentMemory() = default;
  ~SegmentMemory();
  SegmentMemory(const SegmentMemory&) = delete;
  SegmentMemory& operator=(const SegmentMemory&) = delete;

  // Whether all of the arena can be accessed at once, or only what was opened: mlockall() of a
  // program brings every page that can.
  enum class Access : uint8_t { kAll, kOpened };
  // Maps both parts; returns 0 or an errno value. `arena_fd` is used until the object goes, and
  // stays the caller's. Neither part is inherited by children.
  int map(int segment_fd, uint64_t segment_bytes, int arena_fd, uint64_t arena_bytes,
          Access access = Access::kAll);
  void unmap();
  // Forgets the mappings, in a child, where nothing of them is there.
  void abandon();

  std::byte* base() const { return base_; }
  uint64_t segment_bytes() const { return segment_bytes_; }
  uint64_t arena_bytes() const { return arena_bytes_; }
  // The end of the part of the arena that is always mapped.
  uint64_t near_end() const { return near_end_; }

  // Lets the arena be accessed up to the end of [offset, offset + bytes), which lies on one side of
  // near_end(). Returns false if the system has no memory for that.
  bool open(uint64_t offset, uint64_t bytes);
  // The second mapping of the arena, which is all of it; null before reach_far().
  std::byte* far_arena() const {
    return far_base_ == nullptr ? nullptr : far_base_ + segment_bytes_;
  }

  // The address of what begins at this offset. An object that does not lie before near_end() as a
  // whole must begin at near_end() or later, and reach_far() must have succeeded.
  std::byte* at(uint64_t offset) const { return (offset < near_end_ ? base_ : far_base_) + offset; }
  // The address of bytes anywhere in the arena, where the caller has checked them to be; null when
  // address space is used up.
  std::byte* at(uint64_t offset, uint64_t bytes);
  // Maps all of the arena, unless it is mapped. Returns false if address space is used up.
  bool reach_far();

  // Gives whole pages of the arena back: they read as zeros from now on. Returns false if the
  // system call is refused.
  bool discard(uint64_t offset, uint64_t bytes) const;

 private:
  std::byte* base_ = nullptr;
  std::byte* far_base_ = nullptr;  // address where offset 0 would be
  uint64_t segment_bytes_ = 0, arena_bytes_ = 0, near_end_ = 0;
  uint64_t opened_near_ = 0, opened_far_ = 0;  // ends of what can be accessed; 0: all can
  int arena_fd_ = -1;
  void* reservation_ = nullptr;
  uint64_t reservation_bytes_ = 0;
};

}  // namespace hostnic
