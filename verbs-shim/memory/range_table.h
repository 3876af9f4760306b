// SPDX-License-Identifier: BSD-3-Clause
// Which pages are registered, how often, and where they are now.
#pragma once

#include <cstdint>
#include <map>

#include "verbs-shim/memory/raw_memory.h"

namespace hostnic::memory {

enum class PagePlace : uint8_t {
  kInPlace,  // where the application put them; not migrated while so registered, because a
             // transfer by the mem fd could meet the migration and fail
  kMirror,   // migrated to the mirror
  kLost,     // were migrated; the application unmapped or replaced them since. Not migrated again
             // while so registered: the old region has the mirror's pages
};

struct PageRange {
  uint64_t end = 0;
  uint32_t registrations = 0;
  PagePlace place = PagePlace::kInPlace;
  int prot = 0;              // kMirror: protection of the area when it was migrated
  uint64_t stash_delta = 0;  // kMirror: add to an address to get its place in the stash
  bool by_mem_fd = false;    // a registration, not one on demand, reaches them by the mem fd
  bool by_file = false;      // one reaches pages of the mirror that have moved, by its file
};

// Disjoint page ranges by start address. Used under the registrar's mutex.
class RangeTable {
 public:
  using Map = std::map<uint64_t, PageRange, std::less<uint64_t>,
                       RawNodeAllocator<std::pair<const uint64_t, PageRange>>>;
  using Iterator = Map::iterator;

  bool empty() const { return ranges_.empty(); }
  size_t size() const { return ranges_.size(); }
  Iterator begin() { return ranges_.begin(); }
  Iterator end() { return ranges_.end(); }
  void clear() { ranges_.clear(); }

  // The first range that ends behind `va`.
  Iterator first_after(uint64_t va) {
    auto it = ranges_.upper_bound(va);
    if (it != ranges_.begin() && std::prev(it)->second.end > va) --it;
    return it;
  }
  // Makes range borders at `va`. It throws std::bad_alloc.
  void split_at(uint64_t va) {
    const auto it = first_after(va);
    if (it == ranges_.end() || it->first >= va) return;
    ranges_.emplace(va, it->second);
    it->second.end = va;
  }
  // Makes sure that the next `count` times insert() or split_at() do not throw. It throws
  // std::bad_alloc.
  void reserve(uint64_t count) {
    for (uint64_t i = 0; i < count; i++) ranges_.emplace(kNoAddress + i, PageRange{});
    ranges_.erase(ranges_.lower_bound(kNoAddress), ranges_.end());
  }
  void insert(uint64_t start, const PageRange& range) { ranges_.emplace(start, range); }
  // Joins ranges that became alike in and around [start, end), so that the table does not grow with
  // the number of registrations that ever were.
  void join(uint64_t start, uint64_t end) {
    auto it = first_after(start == 0 ? 0 : start - 1);
    while (it != ranges_.end() && it->first <= end) {
      const auto next = std::next(it);
      if (next == ranges_.end() || next->first > end) return;
      const PageRange &a = it->second, &b = next->second;
      if (a.end != next->first || a.registrations != b.registrations || a.place != b.place ||
          a.prot != b.prot || a.stash_delta != b.stash_delta || a.by_mem_fd != b.by_mem_fd ||
          a.by_file != b.by_file) {
        it = next;
        continue;
      }
      it->second.end = b.end;
      ranges_.erase(next);
    }
  }
  Iterator erase(Iterator it) { return ranges_.erase(it); }

 private:
  static constexpr uint64_t kNoAddress = UINT64_MAX - 1000;
  Map ranges_;
};

}  // namespace hostnic::memory
