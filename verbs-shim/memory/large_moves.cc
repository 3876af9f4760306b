// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/memory/large_moves.h"

#include <algorithm>
#include <cerrno>

#include "verbs-shim/memory/critical.h"
#include "verbs-shim/memory/libc_calls.h"

namespace hostnic::memory {
namespace {

constexpr int kPrivate = MAP_PRIVATE | MAP_ANONYMOUS;
constexpr int kMoves = MREMAP_MAYMOVE | MREMAP_FIXED;
#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

void* failed(int error) {
  errno = error;
  return MAP_FAILED;
}

bool is_at_home(const Area& area) { return area.offset == area.start; }

bool stays_mapped(const Remap& call) { return (call.flags & MREMAP_DONTUNMAP) != 0; }

// Maps zeros that are not locked, and have no pages after mlockall(MCL_FUTURE) either. Returns
// MAP_FAILED with errno.
void* map_zeros(uint64_t bytes, int prot) {
  void* const at = raw_mmap(nullptr, bytes, PROT_NONE, kPrivate, -1, 0);
  if (at == MAP_FAILED) return at;
  raw_munlock(at, bytes);
  if (prot == PROT_NONE || mprotect(at, bytes, prot) == 0) return at;
  const int error = errno;
  raw_munmap(at, bytes);
  return failed(error);
}

// Has what was mapped behind a part be locked if the part is. Returns 0 or an errno value.
int lock_like(const Area& part, uint64_t at, uint64_t bytes) {
  if (!part.locked) {
    raw_munlock(pointer(at), bytes);  // mlockall(MCL_FUTURE) is about new mappings
    return 0;
  }
  return syscall(SYS_mlock, at, bytes) == 0 ? 0 : EAGAIN;
}

}  // namespace

bool LargeMoves::is_valid(const Remap& call) const {
  // The place is a wish where the old one stays mapped and it is not fixed.
  const bool has_place = (call.flags & (MREMAP_FIXED | MREMAP_DONTUNMAP)) != 0;
  const bool may_move = (call.flags & MREMAP_MAYMOVE) != 0;
  const bool is_apart = call.to >= call.end() || call.to + call.new_bytes <= call.start;
  return (call.flags & ~(kMoves | MREMAP_DONTUNMAP)) == 0 && call.new_bytes != 0 &&
         call.start % kPageBytes == 0 && call.end() > call.start &&
         call.start + call.new_bytes > call.start &&
         (!stays_mapped(call) || call.new_bytes == call.old_bytes) &&
         (!has_place || (may_move && is_apart && call.to % kPageBytes == 0 &&
                         call.to + call.new_bytes > call.to)) &&
         state_.mirror_watch.reports();
}

// Finds the areas of [start, end), cut to it. Returns false if they are not the program's one piece
// of private memory, locked or not as a whole.
bool LargeMoves::find_piece(const Remap& call, RawVector<Area>& parts) const {
  if (!read_areas(call.start, call.end(), parts)) return false;
  if (process_memory().locked_kb != 0 && !mark_locked(parts)) return false;
  uint64_t at = call.start;
  for (Area& part : parts) {
    if (part.start > at || part.prot != parts.front().prot || part.locked != parts.front().locked ||
        (!state_.is_of_mirror(part) && (part.shared || part.inode != 0)))
      return false;
    part.offset += at - part.start;
    part.start = at;
    part.end = at = std::min(part.end, call.end());
  }
  return at == call.end();
}

// find_piece() of a piece of which much is in the mirror, or some away from home.
bool LargeMoves::find_parts(const Remap& call, RawVector<Area>& parts) const {
  if (!find_piece(call, parts)) return false;
  uint64_t in_mirror_bytes = 0;
  bool any_away = false;
  for (const Area& part : parts) {
    if (!state_.is_of_mirror(part)) continue;
    in_mirror_bytes += part.end - part.start;
    any_away |= !is_at_home(part);
  }
  return in_mirror_bytes >= kLargeMoveBytes || any_away;
}

// Whether the program wants memory to grow in place, and a place that pages came from lies there.
// It goes when they come home.
bool LargeMoves::grows_into_stash(const Remap& call) {
  if ((call.flags & MREMAP_MAYMOVE) != 0 || call.new_bytes == call.old_bytes) return false;
  for (auto it = state_.table.first_after(call.start);
       it != state_.table.end() && it->first < call.end(); ++it) {
    const PageRange& range = it->second;
    if (range.place == PagePlace::kMirror &&
        overlaps(it->first + range.stash_delta, range.end + range.stash_delta, call.end(),
                 call.start + call.new_bytes))
      return true;
  }
  return false;
}

bool LargeMoves::shrinks(const Remap& call) {
  if (call.new_bytes >= call.old_bytes || call.old_bytes < kLargeMoveBytes || !is_valid(call))
    return false;
  const Critical critical(state_);
  RawVector<Area> parts;
  return state_.in_table(call.start, call.end()) && find_parts(call, parts);
}

bool LargeMoves::takes(const Remap& call, RawVector<Area>& parts) {
  const bool is_large = call.old_bytes >= kLargeMoveBytes;
  const bool may_be_away = std::ranges::any_of(state_.moved_views, [&](const auto& view) {
    return overlaps(view.start, view.end, call.start, call.end());
  });
  bool takes = call.new_bytes >= call.old_bytes && (is_large || may_be_away) && is_valid(call) &&
               !grows_into_stash(call) && find_parts(call, parts);
  if (takes && state_.late.asides().any_aside(call.start, call.end())) {
    release_.bring_aside_home(call.start, call.end());
    // Nothing may be in the mirror any more.
    takes = find_parts(call, parts);
  }
  // After mlockall(MCL_FUTURE) RLIMIT_MEMLOCK may have no room for the place.
  takes = takes && (!parts.front().locked || (call.flags & MREMAP_FIXED) != 0 || finds_room(call));
  if (!takes) {
    parts.clear();
    return false;
  }
  // What is forgotten at each place may leave two parts.
  state_.moved_views.reserve(state_.moved_views.size() + 3 * parts.size());
  // What is moved here is not reported as well: the report would be told at another time.
  for (const Area& part : parts)
    if (state_.is_of_mirror(part)) state_.mirror_watch.unwatch_growth(part.start, part.end);
  state_.mirror_watch.forget(call.start, call.end());
  return true;
}

bool LargeMoves::finds_room(const Remap& call) {
  const uint64_t delta = Migrator::reserve_stash(call.start, call.start + call.new_bytes);
  if (delta != 0) raw_munmap(pointer(call.start + delta), call.new_bytes);
  return delta != 0;
}

void* LargeMoves::move(const Remap& call, const RawVector<Area>& parts) {
  void* const result = move_parts(call, parts);
  const int error = errno;
  note(call, parts, result != MAP_FAILED ? address(result) : call.start);
  errno = error;
  return result;
}

void* LargeMoves::move_divided(const Remap& call) {
  RawVector<Area> parts;
  {
    const Critical critical(state_);
    if (!is_valid(call) || call.new_bytes < call.old_bytes || !find_piece(call, parts) ||
        parts.size() < 2 ||
        std::ranges::any_of(parts, [this](const Area& part) { return state_.is_of_mirror(part); }))
      return failed(EFAULT);
  }
  return move_parts(call, parts);
}

void* LargeMoves::move_parts(const Remap& call, const RawVector<Area>& parts) {
  if ((call.flags & (MREMAP_FIXED | MREMAP_DONTUNMAP)) == 0) {
    if (call.new_bytes == call.old_bytes || grow_in_place(call, parts.back()))
      return pointer(call.start);
    if ((call.flags & MREMAP_MAYMOVE) == 0) return failed(ENOMEM);
  }
  return move_elsewhere(call, parts);
}

// What would grow of the mirror's mapping would show others' pages.
bool LargeMoves::grow_in_place(const Remap& call, const Area& last) {
  const uint64_t more = call.new_bytes - call.old_bytes;
  if (!state_.is_of_mirror(last))
    return guards_.grow(pointer(last.start), last.end - last.start, last.end - last.start + more,
                        0) != MAP_FAILED;
  constexpr int kFlags = kPrivate | MAP_FIXED_NOREPLACE;
  void* const at = pointer(call.end());
  void* grown = libc_mmap(at, more, last.prot, kFlags, -1, 0);
  if (grown == MAP_FAILED && errno == EEXIST && Guards::any())
    grown = guards_.mmap(at, more, last.prot, kFlags, -1, 0);
  if (grown != at) return false;
  if (lock_like(last, call.end(), more) == 0) return true;
  raw_munmap(at, more);
  return false;
}

// Reserves the place that a move goes to, and returns how far that is; 0: there is none.
uint64_t LargeMoves::reserve_place(const Remap& call) {
  if (call.to != 0 &&
      raw_mmap(pointer(call.to), call.new_bytes, PROT_NONE,
               kPrivate | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0) == pointer(call.to))
    return call.to - call.start;
  // The new place lies towards slices as the old one does, so that whole page tables move.
  return Migrator::reserve_stash(call.start, call.start + call.new_bytes);
}

// Moves one area, which may grow, to `to`. Where the old place stays mapped the kernel shows the
// same pages of the mirror there: zeros take their place. Returns 0 or an errno value.
int LargeMoves::move_part(const Area& part, uint64_t to, uint64_t more, bool stays) {
  const uint64_t bytes = part.end - part.start;
  const bool needs_zeros = stays && state_.is_of_mirror(part);
  void* const zeros = needs_zeros ? map_zeros(bytes, part.prot) : nullptr;
  if (zeros == MAP_FAILED) return errno;
  int error = libc_mremap(pointer(part.start), bytes, bytes + more,
                          kMoves | (stays ? MREMAP_DONTUNMAP : 0), pointer(to)) == MAP_FAILED
                  ? errno
                  : 0;
  if (error == 0 && needs_zeros &&
      raw_mremap(zeros, bytes, bytes, kMoves, pointer(part.start)) == MAP_FAILED) {
    error = errno;
    raw_mremap(pointer(to), bytes, bytes, kMoves, pointer(part.start));
  }
  if (error != 0 && needs_zeros) raw_munmap(zeros, bytes);
  return error;
}

void* LargeMoves::move_elsewhere(const Remap& call, const RawVector<Area>& parts) {
  const uint64_t more = call.new_bytes - call.old_bytes;
  const bool fixed = (call.flags & MREMAP_FIXED) != 0;
  const uint64_t delta = fixed ? call.to - call.start : reserve_place(call);
  if (delta == 0) return failed(ENOMEM);
  const bool ends_in_mirror = state_.is_of_mirror(parts.back());
  int error = 0;
  size_t moved = 0;
  for (; moved < parts.size() && error == 0; moved++) {
    const Area& part = parts[moved];
    const bool grows = moved + 1 == parts.size() && !ends_in_mirror;
    error = move_part(part, part.start + delta, grows ? more : 0, stays_mapped(call));
  }
  if (error != 0) moved--;
  const uint64_t end = call.end() + delta;
  if (error == 0 && ends_in_mirror && more != 0) {
    void* const grown =
        libc_mmap(pointer(end), more, parts.back().prot, kPrivate | MAP_FIXED, -1, 0);
    error = grown == MAP_FAILED ? errno : lock_like(parts.back(), end, more);
    if (error != 0 && grown != MAP_FAILED) raw_munmap(grown, more);
  }
  if (error == 0) {
    if (ends_in_mirror && more == 0) guards_.put(end);
    return pointer(call.start + delta);
  }
  while (moved-- > 0) {
    const uint64_t bytes = parts[moved].end - parts[moved].start;
    raw_mremap(pointer(parts[moved].start + delta), bytes, bytes, kMoves,
               pointer(parts[moved].start));
  }
  if (!fixed) raw_munmap(pointer(call.start + delta), call.new_bytes);
  return failed(error);
}

// Watches the mirror's pages where they are now. The library takes over calls about what is seen
// of them elsewhere, registered or not.
void LargeMoves::note(const Remap& call, const RawVector<Area>& parts, uint64_t to) {
  const Critical critical(state_);
  forget_gone();
  state_.mirror_watch.reserve();
  if (to != call.start) state_.forget_views(call.start, call.end());
  for (const Area& part : parts) {
    if (!state_.is_of_mirror(part)) continue;
    const uint64_t start = part.start - call.start + to, end = start + (part.end - part.start);
    state_.mirror_watch.claim(start, end);
    state_.forget_views(start, end);
    if (start != part.offset) state_.moved_views.push_back({start, end, part.offset});
  }
  state_.has_moved_views.store(!state_.moved_views.empty() || state_.has_moved_views.load());
  state_.update_bounds();
}

void LargeMoves::forget_gone() {
  std::erase_if(state_.moved_views, [this](const auto& view) {
    TextRoom room;
    Area area;
    for (uint64_t at = view.start;
         at < view.end && next_area(at, area, room) && area.start < view.end; at = area.end)
      if (state_.is_of_mirror(area) && !is_at_home(area)) return false;
    return true;
  });
}

void LargeMoves::bring_home(uint64_t start, uint64_t end) {
  if (state_.moved_views.empty() || !state_.may_move_pages()) return;
  // Another adapter or io_uring would go on using pinned pages where they are.
  const ProcessMemory process = process_memory();
  if (process.pinned_kb != 0) return;
  RawVector<Area> areas;
  for (const auto& view : state_.moved_views) {
    const uint64_t from = std::max(start, view.start), to = std::min(end, view.end);
    if (from >= to || !read_areas(from, to, areas)) continue;
    if (process.locked_kb != 0) mark_locked(areas);
    for (Area& area : areas) {
      if (!state_.is_of_mirror(area) || is_at_home(area)) continue;
      const uint64_t first = std::max(from, area.start);
      area.offset += first - area.start;
      area.start = first;
      area.end = std::min(to, area.end);
      bring_part_home(area);
    }
  }
  forget_gone();
  state_.lost_in_use = true;
  release_.free_lost();
  state_.update_bounds();
}

// Brings one area home. Returns false if it stays: a registration of what has moved leads to the
// mirror by its file, or there is no memory.
bool LargeMoves::bring_part_home(const Area& area) {
  const uint64_t bytes = area.end - area.start;
  bool by_mem_fd = false;
  for (auto it = state_.table.first_after(area.start);
       it != state_.table.end() && it->first < area.end; ++it) {
    if (it->second.registrations != 0 && it->second.by_file) return false;
    by_mem_fd |= it->second.by_mem_fd;
  }
  void* const home = state_.migrator.copy_elsewhere(area.offset, bytes, area.prot);
  if (home == nullptr) return false;
  state_.mirror_watch.unwatch_growth(area.start, area.end);
  if (raw_mremap(home, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, pointer(area.start)) ==
      MAP_FAILED) {
    raw_munmap(home, bytes);
    return false;
  }
  if (area.locked) raw_mlock_on_fault(pointer(area.start), bytes);
  if (by_mem_fd) state_.watch.watch(area.start, area.end);
  return true;
}

}  // namespace hostnic::memory
