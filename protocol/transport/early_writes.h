// SPDX-License-Identifier: BSD-3-Clause
// Early writes: late packets never overwrite newer data (docs/transport.md rule 9). While a PSN is
// missing, the receiver remembers which bytes later PSNs have written, by physical identity; when
// the missing packet arrives, those bytes are skipped.
//
// Ranges come from a pool shared by all QPs of a NIC. Runs of consecutive PSNs that continue each
// other in memory merge, so a QP needs about one range per hole.
#pragma once

#include <cstdint>
#include <vector>

#include "protocol/psn.h"

namespace hostnic {

struct EarlyWrite {
  Psn first, last;  // the PSNs that wrote it; all received
  uint32_t space_id = 0;
  uint64_t offset = 0;
  uint64_t length_bytes = 0;
  uint32_t next = 0;
};

class EarlyWritePool {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;
  explicit EarlyWritePool(uint32_t capacity) : ranges_(capacity) {
    for (uint32_t i = 0; i < capacity; ++i) ranges_[i].next = i + 1 < capacity ? i + 1 : kNone;
    free_ = capacity == 0 ? kNone : 0;
    available_ = capacity;
  }
  uint32_t available() const { return available_; }

 private:
  friend class EarlyWrites;
  uint32_t take() {
    const uint32_t index = free_;
    if (index != kNone) {
      free_ = ranges_[index].next;
      --available_;
    }
    return index;
  }
  void give(uint32_t index) {
    ranges_[index].next = free_;
    free_ = index;
    ++available_;
  }
  std::vector<EarlyWrite> ranges_;
  uint32_t free_ = kNone;
  uint32_t available_ = 0;
};

class EarlyWrites {
 public:
  // Whether no range is remembered.
  bool empty() const { return head_ == EarlyWritePool::kNone; }

  // Remembers that `psn` wrote these bytes. Returns false when the pool is empty: the packet must
  // then not be placed.
  bool add(EarlyWritePool& pool, Psn psn, uint32_t space_id, uint64_t offset,
           uint64_t length_bytes) {
    return add(pool, psn, psn, space_id, offset, length_bytes);
  }
  // As add(), of the bytes of the PSNs from `first` to `last`, which have been received together.
  bool add(EarlyWritePool& pool, Psn first, Psn last, uint32_t space_id, uint64_t offset,
           uint64_t length_bytes) {
    if (length_bytes == 0) return true;
    if (head_ != EarlyWritePool::kNone) {
      EarlyWrite& newest = pool.ranges_[head_];
      if (newest.space_id == space_id && newest.offset + newest.length_bytes == offset &&
          (newest.last == last || newest.last + 1 == first)) {
        newest.last = last;
        newest.length_bytes += length_bytes;
        return true;
      }
    }
    const uint32_t index = pool.take();
    if (index == EarlyWritePool::kNone) return false;
    pool.ranges_[index] = {first, last, space_id, offset, length_bytes, head_};
    head_ = index;
    return true;
  }

  // Forgets writes of PSNs before `expected`: the window has passed them, so what they wrote can't
  // be late any more.
  void release_before(EarlyWritePool& pool, Psn expected) {
    release_if(pool, [expected](const EarlyWrite& range) { return before(range.last, expected); });
  }
  // Forgets what PSNs from `psn` on wrote (a new epoch of READ answers).
  void release_from(EarlyWritePool& pool, Psn psn) {
    release_if(pool, [psn](const EarlyWrite& range) { return !before(range.first, psn); });
  }

  // Calls write(offset, length) for each part of [offset, offset + length) that no PSN after `psn`
  // has written. Returns the bytes skipped. The cost is quadratic in the ranges that overlap, which
  // are few.
  template <class Write>
  uint64_t for_each_unwritten(const EarlyWritePool& pool, Psn psn, uint32_t space_id,
                              uint64_t offset, uint64_t length_bytes, Write&& write) const {
    const uint64_t end = offset + length_bytes;
    uint64_t position = offset, skipped = 0;
    while (position < end) {
      uint64_t covered_to = position, free_to = end;
      for (uint32_t i = head_; i != EarlyWritePool::kNone; i = pool.ranges_[i].next) {
        const EarlyWrite& r = pool.ranges_[i];
        if (r.space_id != space_id || !before(psn, r.first)) continue;
        const uint64_t r_end = r.offset + r.length_bytes;
        if (r.offset <= position && r_end > covered_to) covered_to = r_end;
        if (r.offset > position && r.offset < free_to) free_to = r.offset;
      }
      if (covered_to > position) {
        const uint64_t stop = covered_to < end ? covered_to : end;
        skipped += stop - position;
        position = stop;
      } else {
        write(position, free_to - position);
        position = free_to;
      }
    }
    return skipped;
  }

  void clear(EarlyWritePool& pool) {
    while (head_ != EarlyWritePool::kNone) {
      const uint32_t index = head_;
      head_ = pool.ranges_[index].next;
      pool.give(index);
    }
  }

 private:
  template <class Test>
  void release_if(EarlyWritePool& pool, Test&& test) {
    uint32_t* link = &head_;
    while (*link != EarlyWritePool::kNone) {
      const uint32_t index = *link;
      if (test(pool.ranges_[index])) {
        *link = pool.ranges_[index].next;
        pool.give(index);
      } else {
        link = &pool.ranges_[index].next;
      }
    }
  }

  uint32_t head_ = EarlyWritePool::kNone;
};

}  // namespace hostnic
