// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/memory/moved_memory.h"

#include <algorithm>

#include "verbs-shim/memory/page_release.h"

namespace hostnic::memory {

void MovedMemory::reserve() {
  constexpr size_t kMovesAtFirst = 128;
  for (RawVector<Move>* list : {&moved_, &moving_}) list->reserve(kMovesAtFirst);
}

// Counts moved memory at its new place, and has its end noticed.
void MovedMemory::hold(uint64_t start, uint64_t end) {
  release_.lose_where_gone(start, end);
  state_.table.split_at(start);
  state_.table.split_at(end);
  for (uint64_t at = start; at < end;) {
    const auto range = state_.table.first_after(at);
    if (range == state_.table.end() || range->first > at) {
      const uint64_t gap_end = range == state_.table.end() ? end : std::min(end, range->first);
      PageRange held{gap_end, 1, PagePlace::kInPlace};
      held.by_mem_fd = true;
      state_.table.insert(at, held);
      at = gap_end;
    } else {
      range->second.registrations++;
      range->second.by_mem_fd = true;
      at = range->second.end;
    }
  }
  if (read_areas(start, end, state_.areas_of_losses))
    state_.watch_range(state_.areas_of_losses, start, end);
  state_.update_bounds();
}

// Memory is again where it was registered.
void MovedMemory::come_back(uint64_t start, uint64_t end) {
  state_.table.split_at(start);
  state_.table.split_at(end);
  for (auto it = state_.table.first_after(start); it != state_.table.end() && it->first < end; ++it)
    it->second.by_mem_fd |= it->second.registrations != 0;
  if (read_areas(start, end, state_.areas_of_losses))
    state_.watch_range(state_.areas_of_losses, start, end);
}

const RawVector<MovedMemory::Move>& MovedMemory::take(uint64_t from, uint64_t end, uint64_t to) {
  moving_.clear();
  for (const Move& moved : moved_) {  // what has moved before moves on
    const uint64_t first = std::max(from, moved.to);
    const uint64_t last = std::min(end, moved.to + moved.length_bytes);
    if (first < last)
      moving_.push_back({moved.from + (first - moved.to), to + (first - from), last - first});
  }
  drop_moves_to(from, end);
  state_.table.split_at(from);
  state_.table.split_at(end);
  for (auto it = state_.table.first_after(from); it != state_.table.end() && it->first < end;
       ++it) {
    PageRange& range = it->second;
    if (range.by_mem_fd && range.registrations != 0)
      moving_.push_back({it->first, to + (it->first - from), range.end - it->first});
    range.by_mem_fd = false;
  }
  return moving_;
}

void MovedMemory::note_move(uint64_t from, uint64_t to, uint64_t length_bytes) {
  for (const Move& moved : take(from, from + length_bytes, to)) {
    if (moved.to == moved.from) {
      come_back(moved.from, moved.from + moved.length_bytes);
      continue;
    }
    moved_.push_back(moved);
    hold(moved.to, moved.to + moved.length_bytes);
  }
}

void MovedMemory::drop_moves_to(uint64_t start, uint64_t end) {
  for (size_t i = 0; i < moved_.size();) {
    const Move moved = moved_[i];
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
    release_.unpin(first, last);
    i = 0;
  }
}

void MovedMemory::drop_moves(uint64_t start, uint64_t end) {
  for (size_t i = 0; i < moved_.size();) {
    const Move moved = moved_[i];
    const uint64_t moved_end = moved.from + moved.length_bytes;
    const uint64_t first = std::max(start, moved.from), last = std::min(end, moved_end);
    if (first >= last || state_.any_registered(first, last)) {
      i++;
      continue;
    }
    moved_.erase(moved_.begin() + static_cast<ptrdiff_t>(i));
    if (moved.from < first) moved_.push_back({moved.from, moved.to, first - moved.from});
    if (last < moved_end)
      moved_.push_back({last, moved.to + (last - moved.from), moved_end - last});
    const uint64_t place = moved.to + (first - moved.from);
    release_.unpin(place, place + (last - first));
    i = 0;
  }
}

}  // namespace hostnic::memory
