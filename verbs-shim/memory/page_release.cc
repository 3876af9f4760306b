// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/memory/page_release.h"

#include <algorithm>
#include <cerrno>

#include "verbs-shim/memory/critical.h"
#include "verbs-shim/memory/own_variables.h"

namespace hostnic::memory {
namespace {

// Visits the areas between `start` and `end` with what lies between them: calls use(from, to, area
// or null).
template <typename Use>
void for_each_part(const RawVector<Area>& areas, uint64_t start, uint64_t end, Use use) {
  uint64_t at = start;
  for (const Area& area : areas) {
    if (area.start >= end) break;
    if (area.start > at) use(at, area.start, nullptr);
    at = std::max(at, area.start);
    const uint64_t to = std::min(area.end, end);
    if (to > at) use(at, to, &area);
    at = std::max(at, to);
  }
  if (at < end) use(at, end, nullptr);
}

constexpr uint64_t kNoEnd = UINT64_MAX;

// The bytes that the frames of this thread take while pages come home.
constexpr uint64_t kFrameBytes = 64 << 10;

// Memory that the program has locked since it migrated stays locked at home: another mapping takes
// the place of the one that it has locked.
void lock_again(const Area& area, uint64_t start, uint64_t end) {
  if (area.locked && start < end) raw_mlock_on_fault(pointer(start), end - start);
}

// Whether frames or variables that this thread needs while pages come home lie in [start, end): it
// could not go on when they are stopped.
bool holds_own_stack(uint64_t start, uint64_t end) {
  const uint64_t frame = address(__builtin_frame_address(0));
  const ThreadPages variables = own_thread_pages();
  return (frame + kPageBytes > start && frame - kFrameBytes < end) ||
         (variables.start < end && start < variables.end);
}

}  // namespace

void PageRelease::unpin(uint64_t start, uint64_t end) {
  if (start >= end) return;
  lose_where_gone(start, end);
  state_.table.split_at(start);
  state_.table.split_at(end);
  const bool large = is_large(start, end);
  bool asked = false, may_move = false;
  uint64_t brought_to = start;  // what lay aside before has come home
  for (auto it = state_.table.first_after(start); it != state_.table.end() && it->first < end;) {
    PageRange& range = it->second;
    if (range.registrations > 0) range.registrations--;
    if (range.registrations > 0) {
      ++it;
      continue;
    }
    if (range.place == PagePlace::kMirror) {
      range.by_mem_fd = false;
      const uint64_t range_start = it->first, range_end = range.end;
      if (range_start >= brought_to && state_.late.asides().any_aside(range_start, range_end)) {
        brought_to = range_end;
        const bool came = bring_aside_home(range_start, range_end);
        if (!came) state_.parked = state_.wants_home = true;
        it = state_.table.first_after(came ? range_start : range_end);
        continue;
      }
      if (large && park(it->first, range_end)) {
        it = state_.table.first_after(range_end);
        continue;
      }
      if (!std::exchange(asked, true)) may_move = state_.may_move_pages();
      if (!may_move || !return_home(it->first, range)) {
        state_.parked = state_.wants_home = true;
        it = state_.table.first_after(range_end);
        continue;
      }
    }
    if (range.place == PagePlace::kLost) {
      state_.lost_in_use = true;
      ++it;
    } else {
      it = state_.table.erase(it);
    }
  }
  if (state_.lost_in_use) free_lost();
  state_.table.join(start, end);
  if (!moved_.empty()) moved_.drop_moves(start, end);
  unwatch_unused(start, end);
  if (state_.wants_home && may_move) unpark(Unpark::kSome);
  state_.update_bounds();
}

bool PageRelease::bring_aside_home(uint64_t start, uint64_t end) {
  RawVector<Area> areas;
  state_.table.reserve(2 + (end - start) / kSliceBytes);
  if (holds_own_stack(start, end) || !read_areas(start, end, areas)) return false;
  if (process_memory().locked_kb != 0) mark_locked(areas);
  bool came = true;
  for_each_part(areas, start, end, [&](uint64_t from, uint64_t to, const Area* area) {
    const auto forget = [this](uint64_t home, uint64_t home_end) {
      state_.table.split_at(home);
      state_.table.split_at(home_end);
      for (auto it = state_.table.first_after(home);
           it != state_.table.end() && it->first < home_end;) {
        it->second.place = PagePlace::kLost;
        it->second.stash_delta = 0;
        it = it->second.registrations != 0 ? std::next(it) : state_.table.erase(it);
      }
      // The thread of late filling has handed it over to the watch, as what stays in the mirror.
      state_.mirror_watch.unwatch(home, home_end);
      state_.counters.in_mirror_bytes -= home_end - home;
    };
    const bool in_place = area != nullptr && state_.is_mirror(*area);
    const int error = in_place ? state_.late.bring_home(from, to, area->prot, forget)
                               : state_.late.fill(from, to);
    if (in_place) lock_again(*area, from, to);
    came &= error == 0;
  });
  return came;
}

// Whether a registration leaves its pages in the mirror.
bool PageRelease::is_large(uint64_t start, uint64_t end) const {
  return end - start >= kLargeBytes && !state_.comes_home_at_once;
}

// Leaves migrated pages that nobody has registered in the mirror. Returns false if their end would
// not be noticed: nobody would free the mirror's pages.
bool PageRelease::park(uint64_t start, uint64_t end) {
  RawVector<Area> areas;
  if (!state_.mirror_watch.covers(start, end) || !read_areas(start, end, areas)) return false;
  if (!std::ranges::all_of(areas, [this](const Area& area) { return state_.is_mirror(area); }))
    return false;
  state_.late.tidy(start, end);
  state_.parked = true;
  return true;
}

void PageRelease::unpark(Unpark what) {
  bool some_parked = false, some_want_home = false;
  for (auto it = state_.table.begin(); it != state_.table.end();) {
    const PageRange& range = it->second;
    const uint64_t range_start = it->first, range_end = range.end;
    if (range.place != PagePlace::kMirror || range.registrations != 0) {
      ++it;
    } else if (what == Unpark::kSome && is_large(range_start, range_end)) {
      some_parked = true;
      ++it;
    } else if (return_home(it->first, range)) {
      it = state_.table.erase(it);
    } else {
      some_parked = some_want_home = true;
      it = state_.table.first_after(range_end);
    }
  }
  state_.parked = some_parked;
  state_.wants_home = some_want_home;
  state_.update_bounds();
}

// Extends a watched range to its areas' ends: what a bare mremap has added is watched, too.
void PageRelease::note_growth(uint64_t& from, uint64_t& to) {
  if (!read_areas(from, to, state_.areas_of_losses) || state_.areas_of_losses.empty()) return;
  const Area &first = state_.areas_of_losses.front(), &last = state_.areas_of_losses.back();
  if (!state_.is_of_mirror(first)) from = std::min(from, first.start);
  if (!state_.is_of_mirror(last)) to = std::max(to, last.end);
  state_.watch.note_area(from, to);
}

// Ends watches that nothing needs. Each stays whole as long as anything in it needs that. What has
// migrated in between is watched otherwise, and leaves a rest on both sides.
void PageRelease::unwatch_unused(uint64_t start, uint64_t end) {
  uint64_t from = 0, to = 0;
  for (uint64_t at = start - kPageBytes; state_.watch.next_range(at, from, to) && from <= end;
       at = to) {
    note_growth(from, to);
    bool needed = false;
    for (auto it = state_.table.first_after(from); it != state_.table.end() && it->first < to; ++it)
      needed |= it->second.by_mem_fd;
    if (!needed) state_.watch.unwatch(from, to);
  }
}

// Brings home what a bare mremap has grown in place, from `start` on, behind what has come home:
// the table knows nothing of it, and advice, forks and registrations go by the table.
void PageRelease::bring_growth_home(const Area& area, uint64_t start) {
  if (!state_.is_mirror(area) || area.end <= start || !state_.may_move_pages()) return;
  const auto known = state_.table.first_after(start);
  const uint64_t end =
      known == state_.table.end() ? area.end : std::clamp(known->first, start, area.end);
  if (end == start) return;
  const uint64_t length = end - start;
  void* const home = state_.migrator.copy_elsewhere(start, length, area.prot);
  if (home == nullptr) return;
  state_.mirror_watch.unwatch_growth(start, end);
  if (raw_mremap(home, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, pointer(start)) ==
      MAP_FAILED) {
    raw_munmap(home, length);
    return;
  }
  lock_again(area, start, end);
  punch_unseen(start, end);
}

void PageRelease::bring_growth_in(uint64_t start, uint64_t end) {
  RawVector<Area> areas;
  if (!read_areas(start, end, areas)) return;
  if (process_memory().locked_kb != 0) mark_locked(areas);
  for (const Area& area : areas) {
    if (!state_.is_mirror(area)) continue;
    for (uint64_t at = std::max(area.start, start); at < std::min(area.end, end);) {
      const auto known = state_.table.first_after(at);
      if (known != state_.table.end() && known->first <= at) {
        at = known->second.end;
        continue;
      }
      bring_growth_home(area, at);
      at = known == state_.table.end() ? area.end : known->first;
    }
  }
}

bool PageRelease::return_home(uint64_t start, const PageRange& range) {
  RawVector<Area> areas;
  const ProcessMemory process = process_memory();
  // A real adapter that pinned these pages would go on using them where they are.
  if (holds_own_stack(start, range.end) || process.pinned_kb != 0 ||
      !read_areas(start, range.end, areas) || state_.late.fill(start, range.end) != 0)
    return false;
  if (process.locked_kb != 0) mark_locked(areas);
  state_.mirror_watch.reserve();
  state_.mirror_watch.unwatch(start, range.end);  // a page can have one userfaultfd only
  uint64_t stopped_at = kNoEnd;
  for_each_part(areas, start, range.end, [&](uint64_t from, uint64_t to, const Area* area) {
    if (stopped_at != kNoEnd) return;
    if (area != nullptr && state_.is_mirror(*area)) {
      const uint64_t moved = state_.migrator.move_back(from, to, range.stash_delta, area->prot);
      lock_again(*area, from, moved);
      if (moved > from && range.registrations == 0) state_.migrator.punch(from, moved);
      state_.counters.in_mirror_bytes -= moved - from;
      if (moved != to) stopped_at = moved;
    } else {
      raw_munmap(pointer(from + range.stash_delta), to - from);
      punch_unseen(from, to);
      state_.counters.in_mirror_bytes -= to - from;
    }
  });
  if (stopped_at == kNoEnd) {
    if (!areas.empty()) bring_growth_home(areas.back(), range.end);
    return true;
  }
  // The system is out of memory or areas: what has not come back remains migrated, and usable.
  state_.mirror_watch.claim(stopped_at, range.end);
  if (stopped_at > start) {
    state_.table.split_at(stopped_at);
    state_.table.erase(state_.table.first_after(start));
  }
  return false;
}

bool PageRelease::goes_untold(uint64_t start, uint64_t end) {
  for (auto it = state_.table.first_after(start); it != state_.table.end() && it->first < end; ++it)
    if (it->second.by_mem_fd &&
        !state_.watch.covers(std::max(start, it->first), std::min(end, it->second.end)))
      return true;
  return false;
}

// Whether MREMAP_DONTUNMAP has left [start, end) as a part of a larger area, which is watched as a
// whole: it stays so, since the kernel would divide the area, and moves one only. The kernel knows
// of more than we do here: what has been moved by a bare call is watched at its new place.
bool PageRelease::is_left_in_one_piece(uint64_t start, uint64_t end) {
  TextRoom room;
  Area area;
  return next_area(start, area, room) && area.start <= start && area.end >= end &&
         (area.start < start || area.end > end) && !state_.is_of_mirror(area);
}

void PageRelease::follow(const MemoryChange& change) try {
  const NoNewMappings no_new_mappings;
  const Critical critical(state_);
  const uint64_t start = page_down(change.va), end = page_up(change.va + change.length_bytes);
  state_.mirror_watch.forget(start, end);
  if (change.kind == MemoryChangeKind::kMoved) {
    if (!is_left_in_one_piece(start, end)) state_.watch.leave(start, end);
    moved_.note_move(change.va, change.moved_to, change.length_bytes);
  } else {
    state_.watch.forget(start, end);
    state_.table.split_at(start);
    state_.table.split_at(end);
    for (auto it = state_.table.first_after(start); it != state_.table.end() && it->first < end;
         ++it)
      it->second.by_mem_fd = false;
    moved_.drop_moves_to(start, end);
  }
  lose_where_gone(start, end);
  keep_grown(start, end);
} catch (...) {  // no room for a border: the next look at /proc/self/maps puts it right
}

void PageRelease::keep(uint64_t start, uint64_t end, bool in_table) {
  if (in_table) {  // this part only: alike ranges have been joined
    state_.table.split_at(start);
    state_.table.split_at(end);
    state_.table.first_after(start)->second.place = PagePlace::kLost;
  } else {
    state_.table.insert(start, {end, 0, PagePlace::kLost});
  }
  state_.lost_in_use = true;
}

// Pages of the mirror that no migration brought there: a bare mremap had grown the mapping in
// place. [start, end) has been unmapped; what the program sees elsewhere stays, and nothing else
// comes to that place of the mirror. What has grown there anew since is the program's.
void PageRelease::keep_grown(uint64_t start, uint64_t end) {
  if (state_.mirror_fd < 0) return;
  for (uint64_t at = start; at < end;) {
    const auto range = state_.table.first_after(at);
    const bool inside = range != state_.table.end() && range->first <= at;
    const uint64_t next = range == state_.table.end() ? end
                          : inside                    ? range->second.end
                                                      : range->first;
    const uint64_t to = std::min(end, next);
    const bool known = inside && range->second.place != PagePlace::kInPlace;
    if (!known && Migrator::has_pages(state_.mirror_fd, at, to) &&
        read_areas(at, to, state_.areas_of_losses))
      for_each_part(state_.areas_of_losses, at, to,
                    [&](uint64_t from, uint64_t until, const Area* area) {
                      if (area == nullptr || !state_.is_mirror(*area)) keep(from, until, inside);
                    });
    at = to;
  }
  if (state_.lost_in_use) free_lost();
  state_.update_bounds();
}

void PageRelease::lose_unmapped(uint64_t start, uint64_t end) try {
  const int error = errno;
  const NoNewMappings no_new_mappings;
  const Critical critical(state_);
  lose_where_gone(start, end);
  keep_grown(start, end);
  errno = error;
} catch (...) {  // as above
}

void PageRelease::lose_in_time(uint64_t start, uint64_t end) try {
  const NoNewMappings no_new_mappings;
  if (state_.late.asides().any_aside(start, end)) return;
  lose_where_gone(start, end);
  keep_grown(start, end);
} catch (...) {  // as above
}

void PageRelease::lose_where_gone(uint64_t start, uint64_t end) {
  bool any_in_mirror = false;
  for (auto it = state_.table.first_after(start); it != state_.table.end() && it->first < end; ++it)
    any_in_mirror |= it->second.place == PagePlace::kMirror;
  if (any_in_mirror && read_areas(start, end, state_.areas_of_losses))
    for_each_part(state_.areas_of_losses, start, end,
                  [&](uint64_t from, uint64_t to, const Area* area) {
                    if (area == nullptr || !state_.is_mirror(*area)) lose(from, to);
                  });
  state_.table.join(start, end);
  state_.update_bounds();
}

void PageRelease::lose(uint64_t start, uint64_t end) {
  state_.table.split_at(start);
  state_.table.split_at(end);
  for (auto it = state_.table.first_after(start); it != state_.table.end() && it->first < end;) {
    PageRange& range = it->second;
    if (range.place != PagePlace::kMirror) {
      ++it;
      continue;
    }
    // A key leads to the old pages still: the mirror gets what lies aside. What a device holds for
    // long stays there.
    if (state_.late.fill(it->first, range.end) == 0)
      raw_munmap(pointer(it->first + range.stash_delta), range.end - it->first);
    state_.counters.in_mirror_bytes -= range.end - it->first;
    range.place = PagePlace::kLost;
    range.stash_delta = 0;
    state_.mirror_watch.forget(it->first, range.end);
    state_.lost_in_use |= range.registrations == 0;
    ++it;
  }
  if (state_.lost_in_use) free_lost();
  state_.update_bounds();
}

// Frees pages of the mirror that no key leads to, but for those that the program has moved to
// another place by a bare mremap, and sees there.
void PageRelease::punch_unseen(uint64_t start, uint64_t end) {
  const FileRange range = state_.mirror_range(start, end);
  Area area;
  bool known = false;
  if (!find_shifted(0, range, area, known) && known) state_.migrator.punch(start, end);
}

// Others stay in the table, so that nothing else takes their place in the mirror.
void PageRelease::free_lost() {
  state_.lost_in_use = false;
  for (auto it = state_.table.begin(); it != state_.table.end();) {
    if (it->second.place != PagePlace::kLost || it->second.registrations != 0) {
      ++it;
      continue;
    }
    Area area;
    bool known = false;
    const bool seen = find_shifted(0, state_.mirror_range(it->first, it->second.end), area, known);
    if (seen || !known) {
      state_.lost_in_use = true;
      ++it;
      continue;
    }
    state_.migrator.punch(it->first, it->second.end);
    it = state_.table.erase(it);
  }
}

bool PageRelease::take_outside(uint64_t start, uint64_t end) {
  RawVector<MappingChange> leaving;
  {
    const Critical critical(state_);
    lose_where_gone(start, end);  // what the kernel has reported may not have been followed yet
    mark_outside(start, end, leaving);
  }
  return tell_outside(leaving);
}

void PageRelease::mark_outside(uint64_t start, uint64_t end, RawVector<MappingChange>& leaving) {
  state_.table.split_at(start);
  state_.table.split_at(end);
  for (auto it = state_.table.first_after(start); it != state_.table.end() && it->first < end;
       ++it) {
    PageRange& range = it->second;
    if (range.place != PagePlace::kMirror || range.registrations == 0) continue;
    range.by_mem_fd = true;
    leaving.push_back({{it->first, range.end - it->first, MemoryChangeKind::kOutside, 0, 0},
                       /*noted=*/true});
  }
}

bool PageRelease::tell_outside(const RawVector<MappingChange>& leaving) {
  return leaving.empty() || state_.revoker.tell({leaving.data(), leaving.size()});
}

}  // namespace hostnic::memory
