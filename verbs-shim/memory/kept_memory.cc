// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/memory/kept_memory.h"

#include <algorithm>
#include <cerrno>

#ifndef MREMAP_DONTUNMAP  // Linux 5.7
#define MREMAP_DONTUNMAP 4
#endif

namespace hostnic::memory {

void KeptMemory::reserve() {
  constexpr size_t kKeptAtFirst = 128;
  kept_.reserve(kKeptAtFirst);
  areas_.reserve(kKeptAtFirst);
}

void KeptMemory::move_part(const Area& area, uint64_t start, uint64_t end,
                           RawVector<Piece>& pieces) {
  constexpr uint64_t kPartsOfAPiece = 4;  // by registrations that it is shared among, usually
  pieces.reserve(pieces.size() + 1);
  kept_.reserve(kept_.size() + kPartsOfAPiece * (pieces.size() + 1));
  state_.table.reserve(2 * kPartsOfAPiece);
  const uint64_t length = end - start;
  // The threads that read events would settle the move (bare_moves.cc).
  if (area.shared) state_.mirror_watch.unwatch_growth(start, end);
  void* const place = reserve_outside(length);
  if (place == MAP_FAILED) return;
  if (raw_mremap(pointer(start), length, length, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP,
                 place) == MAP_FAILED) {
    raw_munmap(place, length);
    return;
  }
  pieces.push_back({start, end, address(place)});
  if (!area.locked) return;  // else the kernel has unlocked all of the area
  if (area.start < start) raw_mlock_on_fault(pointer(area.start), start - area.start);
  if (end < area.end) raw_mlock_on_fault(pointer(end), area.end - end);
}

void KeptMemory::move_away(uint64_t start, uint64_t end, RawVector<Piece>& pieces) {
  const int error = errno;
  areas_.clear();
  if (read_areas(start, end, areas_)) {
    if (process_memory().locked_kb != 0) mark_locked(areas_);
    for (auto it = state_.table.first_after(start); it != state_.table.end() && it->first < end;
         ++it) {
      if (!it->second.by_mem_fd || it->second.registrations == 0) continue;
      for (const Area& area : areas_) {
        const uint64_t from = std::max({start, it->first, area.start});
        const uint64_t to = std::min({end, it->second.end, area.end});
        if (from < to && (!area.shared || state_.is_of_mirror(area)))
          move_part(area, from, to, pieces);
      }
    }
  }
  errno = error;
}

void KeptMemory::move_back(const Piece& piece) {
  const int error = errno;
  const uint64_t length = piece.end - piece.start;
  raw_mremap(pointer(piece.place), length, length, MREMAP_MAYMOVE | MREMAP_FIXED,
             pointer(piece.start));
  errno = error;
}

void KeptMemory::keep(const Piece& piece) try {
  const int error = errno;
  const uint64_t length = piece.end - piece.start;
  raw_munlock(pointer(piece.place), length);
  raw_madvise(pointer(piece.place), length, MADV_DONTFORK);
  errno = error;
  for (const MovedMemory::Move& move : moved_.take(piece.start, piece.end, piece.place)) {
    const uint64_t end = move.from + move.length_bytes;
    state_.table.split_at(move.from);
    state_.table.split_at(end);
    for (auto it = state_.table.first_after(move.from); it != state_.table.end() && it->first < end;
         ++it)
      if (it->second.registrations != 0)
        kept_.push_back({it->first, it->second.end, move.to + (it->first - move.from),
                         state_.last_number, it->second.registrations});
  }
} catch (...) {
}

// What was registered at two places, because it had moved in between, is kept once.
void KeptMemory::unmap_unused(uint64_t place, uint64_t place_end) {
  while (place < place_end) {
    uint64_t next = place_end, behind = place_end;  // a part that others keep
    for (const Kept& other : kept_) {
      const uint64_t other_end = other.place + (other.end - other.start);
      if (other_end <= place || other.place >= next) continue;
      next = std::max(place, other.place);
      behind = std::min(place_end, other_end);
    }
    if (place < next) raw_munmap(pointer(place), next - place);
    place = behind;
  }
}

void KeptMemory::release(uint64_t start, uint64_t end, uint64_t number) {
  for (size_t i = 0; i < kept_.size();) {
    const Kept kept = kept_[i];
    const uint64_t from = std::max(start, kept.start), to = std::min(end, kept.end);
    if (from >= to || number > kept.last_number) {
      i++;
      continue;
    }
    const auto part = [&kept](uint64_t first, uint64_t last, uint32_t users) {
      return Kept{first, last, kept.place + (first - kept.start), kept.last_number, users};
    };
    kept_.reserve(kept_.size() + 2);
    if (kept.users > 1) {
      kept_[i++] = part(from, to, kept.users - 1);
    } else {
      kept_[i] = kept_.back();
      kept_.pop_back();
      unmap_unused(kept.place + (from - kept.start), kept.place + (to - kept.start));
    }
    // These lie outside of [start, end).
    if (kept.start < from) kept_.push_back(part(kept.start, from, kept.users));
    if (to < kept.end) kept_.push_back(part(to, kept.end, kept.users));
  }
}

}  // namespace hostnic::memory
