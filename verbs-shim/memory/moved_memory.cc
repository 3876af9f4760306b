// SPDX-License-Identifier: BSD-3-Clause
// Memory that the program moved by mremap while a key leads to it. hostnicd reaches it at its new
// place by the mem fd; here it counts in the table at both places, so that its end is noticed where
// it is, and its registrations are undone where they were made.
#include <algorithm>

#include "verbs-shim/memory/critical.h"

namespace hostnic::memory {

bool MemoryRegistrar::any_registered(uint64_t start, uint64_t end) {
  for (auto it = table_.first_after(start); it != table_.end() && it->first < end; ++it)
    if (it->second.registrations != 0) return true;
  return false;
}

// Counts moved memory at its new place, and has its end noticed.
void MemoryRegistrar::hold(uint64_t start, uint64_t end) {
  lose_where_gone(start, end);
  table_.split_at(start);
  table_.split_at(end);
  for (uint64_t at = start; at < end;) {
    const auto range = table_.first_after(at);
    if (range == table_.end() || range->first > at) {
      const uint64_t gap_end = range == table_.end() ? end : std::min(end, range->first);
      PageRange held{gap_end, 1, PagePlace::kInPlace};
      held.by_mem_fd = true;
      table_.insert(at, held);
      at = gap_end;
    } else {
      range->second.registrations++;
      range->second.by_mem_fd = true;
      at = range->second.end;
    }
  }
  if (read_areas(start, end, areas_of_losses_)) watch_range(areas_of_losses_, start, end);
  update_bounds();
}

// Memory is again where it was registered.
void MemoryRegistrar::come_back(uint64_t start, uint64_t end) {
  table_.split_at(start);
  table_.split_at(end);
  for (auto it = table_.first_after(start); it != table_.end() && it->first < end; ++it)
    it->second.by_mem_fd |= it->second.registrations != 0;
  if (read_areas(start, end, areas_of_losses_)) watch_range(areas_of_losses_, start, end);
}

// Notes that the program has moved pages from [from, from + length_bytes) to `to`.
void MemoryRegistrar::note_move(uint64_t from, uint64_t to, uint64_t length_bytes) {
  const uint64_t end = from + length_bytes;
  moving_.clear();
  for (const MovedMemory& moved : moved_) {  // what has moved before moves on
    const uint64_t first = std::max(from, moved.to);
    const uint64_t last = std::min(end, moved.to + moved.length_bytes);
    if (first < last)
      moving_.push_back({moved.from + (first - moved.to), to + (first - from), last - first});
  }
  drop_moves_to(from, end);
  table_.split_at(from);
  table_.split_at(end);
  for (auto it = table_.first_after(from); it != table_.end() && it->first < end; ++it) {
    PageRange& range = it->second;
    if (range.by_mem_fd && range.registrations != 0)
      moving_.push_back({it->first, to + (it->first - from), range.end - it->first});
    range.by_mem_fd = false;
  }
  for (const MovedMemory& moved : moving_) {
    if (moved.to == moved.from) {
      come_back(moved.from, moved.from + moved.length_bytes);
      continue;
    }
    moved_.push_back(moved);
    hold(moved.to, moved.to + moved.length_bytes);
  }
}

// Forgets what was moved to [start, end): it is no longer there.
void MemoryRegistrar::drop_moves_to(uint64_t start, uint64_t end) {
  for (size_t i = 0; i < moved_.size();) {
    const MovedMemory moved = moved_[i];
    const uint64_t moved_end = moved.to + moved.length_bytes;
    const uint64_t first = std::max(start, moved.to), last = std::min(end, moved_end);
    if (first >= last) {
      i++;
      continue;
    }
    moved_.erase(moved_.begin() + static_cast<ptrdiff_t>(i));
    if (moved.to < first) moved_.push_back({moved.from, moved.to, first - moved.to});
    if (last < moved_end)
      moved_.push_back({moved.from + (last - moved.to), last, moved_end - last});
    unpin(first, last);
    i = 0;
  }
}

// Forgets moved memory that was registered in [start, end) and is no longer.
void MemoryRegistrar::drop_moves(uint64_t start, uint64_t end) {
  for (size_t i = 0; i < moved_.size();) {
    const MovedMemory moved = moved_[i];
    const uint64_t moved_end = moved.from + moved.length_bytes;
    const uint64_t first = std::max(start, moved.from), last = std::min(end, moved_end);
    if (first >= last || any_registered(first, last)) {
      i++;
      continue;
    }
    moved_.erase(moved_.begin() + static_cast<ptrdiff_t>(i));
    if (moved.from < first) moved_.push_back({moved.from, moved.to, first - moved.from});
    if (last < moved_end)
      moved_.push_back({last, moved.to + (last - moved.from), moved_end - last});
    const uint64_t place = moved.to + (first - moved.from);
    unpin(place, place + (last - first));
    i = 0;
  }
}

}  // namespace hostnic::memory
