// SPDX-License-Identifier: BSD-3-Clause
// Where migrated pages come back, or are taken away by the program.
#include <algorithm>
#include <cerrno>

#include "verbs-shim/memory/critical.h"

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

// Whether frames that this thread needs while pages come home lie in [start, end): it could not go
// on when they are stopped.
bool holds_own_stack(uint64_t start, uint64_t end) {
  const uint64_t frame = address(__builtin_frame_address(0));
  return frame + kPageBytes > start && frame - kFrameBytes < end;
}

}  // namespace

void MemoryRegistrar::update_bounds() {
  if (table_.empty()) {
    lowest_.store(UINT64_MAX, std::memory_order_relaxed);
    highest_.store(0, std::memory_order_relaxed);
    return;
  }
  lowest_.store(table_.begin()->first, std::memory_order_relaxed);
  highest_.store(std::prev(table_.end())->second.end, std::memory_order_relaxed);
}

void MemoryRegistrar::unpin(uint64_t start, uint64_t end) {
  if (start >= end) return;
  lose_where_gone(start, end);
  table_.split_at(start);
  table_.split_at(end);
  const bool large = is_large(start, end);
  bool asked = false, may_move = false;
  uint64_t brought_to = start;  // what lay aside before has come home
  for (auto it = table_.first_after(start); it != table_.end() && it->first < end;) {
    PageRange& range = it->second;
    if (range.registrations > 0) range.registrations--;
    if (range.registrations > 0) {
      ++it;
      continue;
    }
    if (range.place == PagePlace::kMirror) {
      range.by_mem_fd = false;
      const uint64_t range_start = it->first, range_end = range.end;
      if (range_start >= brought_to && late_.any_aside(range_start, range_end)) {
        brought_to = range_end;
        const bool came = bring_aside_home(range_start, range_end);
        if (!came) parked_ = wants_home_ = true;
        it = table_.first_after(came ? range_start : range_end);
        continue;
      }
      if (large && park(it->first, range_end)) {
        it = table_.first_after(range_end);
        continue;
      }
      if (!std::exchange(asked, true)) may_move = may_move_pages();
      if (!may_move || !return_home(it->first, range)) {
        parked_ = wants_home_ = true;
        it = table_.first_after(range_end);
        continue;
      }
    }
    if (range.place == PagePlace::kLost) {
      lost_in_use_ = true;
      ++it;
    } else {
      it = table_.erase(it);
    }
  }
  if (lost_in_use_) free_lost();
  table_.join(start, end);
  if (!moved_.empty()) drop_moves(start, end);
  unwatch_unused(start, end);
  if (wants_home_ && may_move) unpark(Unpark::kSome);
  update_bounds();
}

// Brings home what still lies aside of a range that nobody has registered, by its page tables; the
// rest of it is filled then. Returns false if that failed.
bool MemoryRegistrar::bring_aside_home(uint64_t start, uint64_t end) {
  RawVector<Area> areas;
  table_.reserve(2 + (end - start) / kSliceBytes);
  if (holds_own_stack(start, end) || !read_areas(start, end, areas)) return false;
  if (process_memory().locked_kb != 0) mark_locked(areas);
  bool came = true;
  for_each_part(areas, start, end, [&](uint64_t from, uint64_t to, const Area* area) {
    const auto forget = [this](uint64_t home, uint64_t home_end) {
      table_.split_at(home);
      table_.split_at(home_end);
      while (table_.first_after(home) != table_.end() && table_.first_after(home)->first < home_end)
        table_.erase(table_.first_after(home));
      // The thread of late filling has handed it over to the watch, as what stays in the mirror.
      mirror_watch_.unwatch(home, home_end);
      counters_.in_mirror_bytes -= home_end - home;
    };
    const bool in_place = area != nullptr && is_mirror(*area);
    const int error =
        in_place ? late_.bring_home(from, to, area->prot, forget) : late_.fill(from, to);
    if (in_place) lock_again(*area, from, to);
    came &= error == 0;
  });
  return came;
}

// Whether a registration leaves its pages in the mirror.
bool MemoryRegistrar::is_large(uint64_t start, uint64_t end) const {
  return end - start >= kLargeBytes && !comes_home_at_once_;
}

// Leaves migrated pages that nobody has registered in the mirror. Returns false if their end would
// not be noticed: nobody would free the mirror's pages.
bool MemoryRegistrar::park(uint64_t start, uint64_t end) {
  RawVector<Area> areas;
  if (!mirror_watch_.covers(start, end) || !read_areas(start, end, areas)) return false;
  if (!std::ranges::all_of(areas, [this](const Area& area) { return is_mirror(area); }))
    return false;
  late_.tidy(start, end);
  parked_ = true;
  return true;
}

// Brings home pages that could not come before, or that were left in the mirror because they are
// many.
void MemoryRegistrar::unpark(Unpark what) {
  bool some_parked = false, some_want_home = false;
  for (auto it = table_.begin(); it != table_.end();) {
    const PageRange& range = it->second;
    const uint64_t range_start = it->first, range_end = range.end;
    if (range.place != PagePlace::kMirror || range.registrations != 0) {
      ++it;
    } else if (what == Unpark::kSome && is_large(range_start, range_end)) {
      some_parked = true;
      ++it;
    } else if (return_home(it->first, range)) {
      it = table_.erase(it);
    } else {
      some_parked = some_want_home = true;
      it = table_.first_after(range_end);
    }
  }
  parked_ = some_parked;
  wants_home_ = some_want_home;
  update_bounds();
}

// Extends a watched range to its areas' ends: what a bare mremap has added is watched, too.
void MemoryRegistrar::note_growth(uint64_t& from, uint64_t& to) {
  if (!read_areas(from, to, areas_of_losses_) || areas_of_losses_.empty()) return;
  const Area &first = areas_of_losses_.front(), &last = areas_of_losses_.back();
  if (!is_of_mirror(first)) from = std::min(from, first.start);
  if (!is_of_mirror(last)) to = std::max(to, last.end);
  watch_.note_area(from, to);
}

// Ends watches that nothing needs. Each stays whole as long as anything in it needs that.
void MemoryRegistrar::unwatch_unused(uint64_t start, uint64_t end) {
  uint64_t from = 0, to = 0;
  for (uint64_t at = start; watch_.next_range(at, from, to) && from < end; at = to) {
    note_growth(from, to);
    bool needed = false;
    for (auto it = table_.first_after(from); it != table_.end() && it->first < to; ++it)
      needed |= it->second.by_mem_fd;
    if (!needed) watch_.unwatch(from, to);
  }
}

bool MemoryRegistrar::return_home(uint64_t start, const PageRange& range) {
  RawVector<Area> areas;
  const ProcessMemory process = process_memory();
  // A real adapter that pinned these pages would go on using them where they are.
  if (holds_own_stack(start, range.end) || process.pinned_kb != 0 ||
      !read_areas(start, range.end, areas) || late_.fill(start, range.end) != 0)
    return false;
  if (process.locked_kb != 0) mark_locked(areas);
  mirror_watch_.reserve();
  mirror_watch_.unwatch(start, range.end);  // a page can have one userfaultfd only
  uint64_t stopped_at = kNoEnd;
  for_each_part(areas, start, range.end, [&](uint64_t from, uint64_t to, const Area* area) {
    if (stopped_at != kNoEnd) return;
    if (area != nullptr && is_mirror(*area)) {
      const uint64_t moved = migrator_.move_back(from, to, range.stash_delta, area->prot);
      lock_again(*area, from, moved);
      if (moved > from && range.registrations == 0) migrator_.punch(from, moved);
      counters_.in_mirror_bytes -= moved - from;
      if (moved != to) stopped_at = moved;
    } else {
      raw_munmap(pointer(from + range.stash_delta), to - from);
      punch_unseen(from, to);
      counters_.in_mirror_bytes -= to - from;
    }
  });
  if (stopped_at == kNoEnd) return true;
  // The system is out of memory or areas: what has not come back remains migrated, and usable.
  mirror_watch_.claim(stopped_at, range.end);
  if (stopped_at > start) {
    table_.split_at(stopped_at);
    table_.erase(table_.first_after(start));
  }
  return false;
}

// Whether a NIC reaches a part of [start, end) by the mem fd whose end the kernel does not report.
bool MemoryRegistrar::goes_untold(uint64_t start, uint64_t end) {
  for (auto it = table_.first_after(start); it != table_.end() && it->first < end; ++it)
    if (it->second.by_mem_fd &&
        !watch_.covers(std::max(start, it->first), std::min(end, it->second.end)))
      return true;
  return false;
}

// Called by the revoker's thread: all devices follow the change.
void MemoryRegistrar::follow(const MemoryChange& change) try {
  const NoNewMappings no_new_mappings;
  const Critical critical(*this);
  const uint64_t start = page_down(change.va), end = page_up(change.va + change.length_bytes);
  watch_.forget(start, end);
  mirror_watch_.forget(start, end);
  if (change.kind == MemoryChangeKind::kMoved) {
    note_move(change.va, change.moved_to, change.length_bytes);
  } else {
    table_.split_at(start);
    table_.split_at(end);
    for (auto it = table_.first_after(start); it != table_.end() && it->first < end; ++it)
      it->second.by_mem_fd = false;
    drop_moves_to(start, end);
  }
  lose_where_gone(start, end);
  keep_grown(start, end);
} catch (...) {  // no room for a border: the next look at /proc/self/maps puts it right
}

// Pages of the mirror that no migration brought there: a bare mremap had grown the mapping in
// place. [start, end) is no longer mapped; what the program sees elsewhere stays, and nothing else
// comes to that place of the mirror.
void MemoryRegistrar::keep_grown(uint64_t start, uint64_t end) {
  if (mirror_fd_ < 0) return;
  for (uint64_t at = start; at < end;) {
    const auto range = table_.first_after(at);
    const bool inside = range != table_.end() && range->first <= at;
    const uint64_t next = range == table_.end() ? end : inside ? range->second.end : range->first;
    const uint64_t to = std::min(end, next);
    const bool known = inside && range->second.place != PagePlace::kInPlace;
    if (!known && Migrator::has_pages(mirror_fd_, at, to)) {
      if (inside)
        range->second.place = PagePlace::kLost;
      else
        table_.insert(at, {to, 0, PagePlace::kLost});
      lost_in_use_ = true;
    }
    at = to;
  }
  if (lost_in_use_) free_lost();
  update_bounds();
}

void MemoryRegistrar::lose_unmapped(uint64_t start, uint64_t end) try {
  const int error = errno;
  const NoNewMappings no_new_mappings;
  const Critical critical(*this);
  lose_where_gone(start, end);
  errno = error;
} catch (...) {  // as above
}

// Loses the pages of the mirror that are gone; where the program has mapped anew and registered
// meanwhile, the mirror's pages are that registration's.
void MemoryRegistrar::lose_where_gone(uint64_t start, uint64_t end) {
  bool any_in_mirror = false;
  for (auto it = table_.first_after(start); it != table_.end() && it->first < end; ++it)
    any_in_mirror |= it->second.place == PagePlace::kMirror;
  if (any_in_mirror && read_areas(start, end, areas_of_losses_))
    for_each_part(areas_of_losses_, start, end, [&](uint64_t from, uint64_t to, const Area* area) {
      if (area == nullptr || !is_mirror(*area)) lose(from, to);
    });
  table_.join(start, end);
  update_bounds();
}

// Notes that the program unmapped or replaced [start, end).
void MemoryRegistrar::lose(uint64_t start, uint64_t end) {
  table_.split_at(start);
  table_.split_at(end);
  for (auto it = table_.first_after(start); it != table_.end() && it->first < end;) {
    PageRange& range = it->second;
    if (range.place != PagePlace::kMirror) {
      ++it;
      continue;
    }
    // A key leads to the old pages still: the mirror gets what lies aside. What a device holds for
    // long stays there.
    if (late_.fill(it->first, range.end) == 0)
      raw_munmap(pointer(it->first + range.stash_delta), range.end - it->first);
    counters_.in_mirror_bytes -= range.end - it->first;
    range.place = PagePlace::kLost;
    range.stash_delta = 0;
    mirror_watch_.forget(it->first, range.end);
    lost_in_use_ |= range.registrations == 0;
    ++it;
  }
  if (lost_in_use_) free_lost();
  update_bounds();
}

FileRange MemoryRegistrar::mirror_range(uint64_t start, uint64_t end) const {
  return {mirror_major_, mirror_minor_, mirror_inode_, start, end};
}

// Frees pages of the mirror that no key leads to, but for those that the program has moved to
// another place by a bare mremap, and sees there.
void MemoryRegistrar::punch_unseen(uint64_t start, uint64_t end) {
  const FileRange range = mirror_range(start, end);
  Area area;
  bool known = false;
  if (!find_shifted(0, range, area, known) && known) migrator_.punch(start, end);
}

// Forgets lost pages that nobody has registered and nobody sees. Others stay in the table, so that
// nothing else takes their place in the mirror.
void MemoryRegistrar::free_lost() {
  lost_in_use_ = false;
  for (auto it = table_.begin(); it != table_.end();) {
    if (it->second.place != PagePlace::kLost || it->second.registrations != 0) {
      ++it;
      continue;
    }
    Area area;
    bool known = false;
    const bool seen = find_shifted(0, mirror_range(it->first, it->second.end), area, known);
    if (seen || !known) {
      lost_in_use_ = true;
      ++it;
      continue;
    }
    migrator_.punch(it->first, it->second.end);
    it = table_.erase(it);
  }
}

}  // namespace hostnic::memory
