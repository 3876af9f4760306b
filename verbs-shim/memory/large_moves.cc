// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/memory/large_moves.h"

#include <algorithm>
#include <cerrno>

#include "verbs-shim/memory/critical.h"
#include "verbs-shim/memory/libc_calls.h"

namespace hostnic::memory {
namespace {

constexpr int kPrivate = MAP_PRIVATE | MAP_ANONYMOUS;

void* failed(int error) {
  errno = error;
  return MAP_FAILED;
}

bool is_at_home(const Area& area) { return area.offset == area.start; }

}  // namespace

bool LargeMoves::is_valid(const Remap& call) const {
  const bool fixed = (call.flags & MREMAP_FIXED) != 0,
             may_move = (call.flags & MREMAP_MAYMOVE) != 0;
  const bool is_apart = call.to >= call.end() || call.to + call.new_bytes <= call.start;
  return (call.flags & ~(MREMAP_MAYMOVE | MREMAP_FIXED)) == 0 && call.new_bytes != 0 &&
         call.start % kPageBytes == 0 && call.end() > call.start &&
         call.start + call.new_bytes > call.start &&
         (!fixed || (may_move && is_apart && call.to % kPageBytes == 0 &&
                     call.to + call.new_bytes > call.to)) &&
         state_.mirror_watch.reports();
}

// Finds the areas of [start, end), cut to it. Returns false if they are not the program's one piece
// of private memory that is not locked, or not much of it is in the mirror and all at home.
bool LargeMoves::find_parts(const Remap& call, RawVector<Area>& parts) const {
  if (!read_areas(call.start, call.end(), parts)) return false;
  if (process_memory().locked_kb != 0 &&
      (!mark_locked(parts) || std::ranges::any_of(parts, &Area::locked)))
    return false;
  uint64_t at = call.start, in_mirror_bytes = 0;
  bool any_away = false;
  for (Area& part : parts) {
    const bool in_mirror = state_.is_of_mirror(part);
    if (part.start > at || part.prot != parts.front().prot ||
        (!in_mirror && (part.shared || part.inode != 0)))
      return false;
    part.offset += at - part.start;
    part.start = at;
    part.end = at = std::min(part.end, call.end());
    if (in_mirror) in_mirror_bytes += part.end - part.start;
    any_away |= in_mirror && !is_at_home(part);
  }
  return at == call.end() && (in_mirror_bytes >= kLargeMoveBytes || any_away);
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
               find_parts(call, parts);
  if (takes && state_.late.asides().any_aside(call.start, call.end())) {
    release_.bring_aside_home(call.start, call.end());
    // Nothing may be in the mirror any more.
    takes = find_parts(call, parts);
  }
  if (!takes) {
    parts.clear();
    return false;
  }
  state_.moved_views.reserve(state_.moved_views.size() + parts.size());
  // What is moved here is not reported as well: the report would be told at another time.
  for (const Area& part : parts)
    if (state_.is_of_mirror(part)) state_.mirror_watch.unwatch_growth(part.start, part.end);
  state_.mirror_watch.forget(call.start, call.end());
  return true;
}

void* LargeMoves::move(const Remap& call, const RawVector<Area>& parts) {
  void* const result = move_parts(call, parts);
  const int error = errno;
  note(call, parts, result != MAP_FAILED ? address(result) : call.start);
  errno = error;
  return result;
}

void* LargeMoves::move_parts(const Remap& call, const RawVector<Area>& parts) {
  if ((call.flags & MREMAP_FIXED) == 0) {
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
  return grown == at;
}

void* LargeMoves::move_elsewhere(const Remap& call, const RawVector<Area>& parts) {
  constexpr int kFlags = MREMAP_MAYMOVE | MREMAP_FIXED;
  const uint64_t more = call.new_bytes - call.old_bytes;
  const bool fixed = (call.flags & MREMAP_FIXED) != 0;
  uint64_t delta = call.to - call.start;
  // The new place lies towards slices as the old one does, so that whole page tables move.
  if (!fixed) delta = Migrator::reserve_stash(call.start, call.start + call.new_bytes);
  if (delta == 0) return failed(ENOMEM);
  const bool ends_in_mirror = state_.is_of_mirror(parts.back());
  int error = 0;
  size_t moved = 0;
  for (; moved < parts.size() && error == 0; moved++) {
    const Area& part = parts[moved];
    const uint64_t bytes = part.end - part.start;
    const bool grows = moved + 1 == parts.size() && !ends_in_mirror;
    if (libc_mremap(pointer(part.start), bytes, bytes + (grows ? more : 0), kFlags,
                    pointer(part.start + delta)) == MAP_FAILED)
      error = errno;
  }
  if (error != 0) moved--;
  const uint64_t end = call.end() + delta;
  if (error == 0 && ends_in_mirror && more != 0 &&
      libc_mmap(pointer(end), more, parts.back().prot, kPrivate | MAP_FIXED, -1, 0) == MAP_FAILED)
    error = errno;
  if (error == 0) {
    if (ends_in_mirror && more == 0) guards_.put(end);
    return pointer(call.start + delta);
  }
  while (moved-- > 0) {
    const uint64_t bytes = parts[moved].end - parts[moved].start;
    raw_mremap(pointer(parts[moved].start + delta), bytes, bytes, kFlags,
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
  for (const Area& part : parts) {
    if (!state_.is_of_mirror(part)) continue;
    const uint64_t start = part.start - call.start + to, end = start + (part.end - part.start);
    state_.mirror_watch.claim(start, end);
    if (start != part.offset) state_.moved_views.push_back({start, end});
  }
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
