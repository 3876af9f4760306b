// SPDX-License-Identifier: BSD-3-Clause
// Which addresses a device's regions cover, as hostnicd knows them: hostnicd need not hear of
// memory that went elsewhere.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>

namespace hostnic::runtime {

// The ranges of memory that this device has registered, for any thread. overlaps() allocates
// nothing and waits for nothing but the lock.
class RegisteredRanges {
 public:
  // Called before hostnicd hears of the region.
  void add(uint64_t start, uint64_t length_bytes) {
    const std::lock_guard lock(mutex_);
    ends_.emplace(first_page(start), last_page(start, length_bytes));
  }
  // Called when hostnicd has forgotten the region, or never knew it. Of several ranges that are the
  // same one is removed.
  void remove(uint64_t start, uint64_t length_bytes) {
    const std::lock_guard lock(mutex_);
    const auto [from, to] = ends_.equal_range(first_page(start));
    const auto found = std::find_if(
        from, to,
        [end = last_page(start, length_bytes)](const auto& range) { return range.second == end; });
    if (found != to) ends_.erase(found);
  }
  // Whether a region has a byte in the pages of [start, start + length_bytes).
  bool overlaps(uint64_t start, uint64_t length_bytes) const {
    const std::lock_guard lock(mutex_);
    const auto behind = ends_.upper_bound(last_page(start, length_bytes));
    return std::any_of(ends_.begin(), behind, [first = first_page(start)](const auto& range) {
      return range.second >= first;
    });
  }

 private:
  static constexpr unsigned kPageBits = 12;
  static uint64_t first_page(uint64_t start) { return start >> kPageBits; }
  // The last page that has a byte of the range; an inclusive end, so that the end of the address
  // space is no special case.
  static uint64_t last_page(uint64_t start, uint64_t length_bytes) {
    return (start + length_bytes - 1) >> kPageBits;
  }

  mutable std::mutex mutex_;
  std::multimap<uint64_t, uint64_t> ends_;  // first page to last page
};

}  // namespace hostnic::runtime
