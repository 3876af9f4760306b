// Where migrated pages come back, or are taken away by the program.
#include <algorithm>
#include <cerrno>

#include "verbs-shim/memory/critical.h"

namespace hostnic::memory {
namespace {

// Areas between `start` and `end` with what lies between them: calls use(from, to, area or null).
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

}  // namespace

void MemoryRegistrar::update_bounds() {
  if (counters_.in_window_bytes == 0) {
    lowest_.store(UINT64_MAX, std::memory_order_relaxed);
    highest_.store(0, std::memory_order_relaxed);
    return;
  }
  lowest_.store(table_.begin()->first, std::memory_order_relaxed);
  highest_.store(std::prev(table_.end())->second.end, std::memory_order_relaxed);
}

void MemoryRegistrar::unpin(uint64_t start, uint64_t end) {
  if (start >= end) return;
  table_.split_at(start);
  table_.split_at(end);
  for (auto it = table_.first_after(start); it != table_.end() && it->first < end;) {
    PageRange& range = it->second;
    if (range.registrations > 0) range.registrations--;
    if (range.registrations > 0) {
      ++it;
      continue;
    }
    if (range.place == PagePlace::kWindow && !return_home(it->first, range)) {
      ++it;  // stays in the window, registered by nobody, until it is registered again
      continue;
    }
    if (range.place == PagePlace::kLost) migrator_.punch(it->first, range.end);
    it = table_.erase(it);
  }
  table_.join(start, end);
  update_bounds();
}

bool MemoryRegistrar::return_home(uint64_t start, const PageRange& range) {
  RawVector<Area> areas;
  // A real adapter that pinned these pages would go on using them where they are.
  if (process_memory().pinned_kb != 0 || !read_areas(start, range.end, areas)) return false;
  uint64_t stuck = kNoEnd;
  for_each_part(areas, start, range.end, [&](uint64_t from, uint64_t to, const Area* area) {
    if (stuck != kNoEnd) return;
    if (area != nullptr && is_window(*area)) {
      const uint64_t moved = migrator_.move_back(from, to, range.stash_delta, area->prot);
      counters_.in_window_bytes -= moved - from;
      if (moved != to) stuck = moved;
    } else {
      raw_munmap(pointer(from + range.stash_delta), to - from);
      migrator_.punch(from, to);
      counters_.in_window_bytes -= to - from;
    }
  });
  if (stuck == kNoEnd) return true;
  // Out of memory or areas: what has not come back remains migrated, and usable.
  if (stuck > start) {
    table_.split_at(stuck);
    table_.erase(table_.first_after(start));
  }
  return false;
}

// The program unmapped or replaced [start, end).
void MemoryRegistrar::lose(uint64_t start, uint64_t end) {
  table_.split_at(start);
  table_.split_at(end);
  for (auto it = table_.first_after(start); it != table_.end() && it->first < end;) {
    PageRange& range = it->second;
    if (range.place != PagePlace::kWindow) {
      ++it;
      continue;
    }
    raw_munmap(pointer(it->first + range.stash_delta), range.end - it->first);
    counters_.in_window_bytes -= range.end - it->first;
    range.place = PagePlace::kLost;
    range.stash_delta = 0;
    if (range.registrations > 0) {
      ++it;
      continue;
    }
    migrator_.punch(it->first, range.end);
    it = table_.erase(it);
  }
  update_bounds();
}

int MemoryRegistrar::munmap(void* at, size_t length_bytes) try {
  const Critical critical(*this);
  const int result = raw_munmap(at, length_bytes);
  if (result == 0) {
    const uint64_t start = address(at), end = start + page_up(length_bytes);
    lose(start, end);
    table_.join(start, end);  // on demand, memory comes and goes while it is registered
  }
  return result;
} catch (...) {
  return 0;  // unmapped; what the table has wrong, the next look at /proc/self/maps puts right
}

void* MemoryRegistrar::mmap_fixed(void* at, size_t length_bytes, int prot, int flags, int fd,
                                  off_t offset) {
  const Critical critical(*this);
  void* result = raw_mmap(at, length_bytes, prot, flags, fd, offset);
  if (result != MAP_FAILED) try {
      const uint64_t start = address(at), end = start + page_up(length_bytes);
      lose(start, end);
      table_.join(start, end);
    } catch (...) {  // as in munmap
    }
  return result;
}

// Advice about private memory, given to pages that are shared for now. What concerns contents takes
// effect in the window, what concerns the area waits in the stash.
int MemoryRegistrar::madvise_part(uint64_t start, uint64_t end, int advice, bool in_window,
                                  uint64_t stash_delta) {
  const auto give = [&](uint64_t at) { return raw_madvise(pointer(at), end - start, advice); };
  if (!in_window) return give(start);
  switch (advice) {
    case MADV_FREE:  // the kernel may keep the contents; so do we
      return 0;
    case MADV_DONTNEED: {  // reads as zero from now on
      const int result = give(start);
      if (result == 0) migrator_.punch(start, end);
      return result;
    }
    case MADV_DOFORK:  // a child must never share the window
    case MADV_WIPEONFORK:
    case MADV_KEEPONFORK:
      return give(start + stash_delta);
    case MADV_DONTFORK:
    case MADV_HUGEPAGE:
    case MADV_NOHUGEPAGE:
    case MADV_MERGEABLE:
    case MADV_UNMERGEABLE:
    case MADV_DONTDUMP:
    case MADV_DODUMP:
      give(start + stash_delta);
      return give(start);
    default:
      return give(start);
  }
}

int MemoryRegistrar::madvise(void* at, size_t length_bytes, int advice) {
  const Critical critical(*this);
  const uint64_t start = address(at), end = start + page_up(length_bytes);
  if (start % kPageBytes != 0 || end <= start) return raw_madvise(at, length_bytes, advice);
  uint64_t done = start;
  while (done < end) {
    const auto range = table_.first_after(done);
    const bool inside = range != table_.end() && range->first <= done;
    const uint64_t border = range == table_.end() ? end : inside ? range->second.end : range->first;
    const bool in_window = inside && range->second.place == PagePlace::kWindow;
    const uint64_t next = std::min(end, border);
    if (madvise_part(done, next, advice, in_window, in_window ? range->second.stash_delta : 0) != 0)
      return -1;
    done = next;
  }
  return 0;
}

// The pages go home first, for the window can hold them at their own address only. Registrations
// of the old address are void from then on.
void* MemoryRegistrar::mremap(void* from, size_t old_length, size_t length, int flags,
                              void* to) try {
  const Critical critical(*this);
  const uint64_t start = address(from), end = start + page_up(old_length);
  table_.split_at(start);
  table_.split_at(end);
  for (auto it = table_.first_after(start); it != table_.end() && it->first < end;) {
    PageRange& range = it->second;
    if (range.place == PagePlace::kWindow) {
      if (!return_home(it->first, range)) {
        errno = ENOMEM;
        return MAP_FAILED;
      }
      range.place = PagePlace::kLost;
      range.stash_delta = 0;
    }
    it = range.registrations > 0 ? std::next(it) : table_.erase(it);
  }
  void* result = raw_mremap(from, old_length, length, flags, to);
  if (result != MAP_FAILED && (flags & MREMAP_FIXED) != 0)
    lose(address(to), address(to) + page_up(length));
  update_bounds();
  return result;
} catch (...) {
  errno = ENOMEM;
  return MAP_FAILED;
}

}  // namespace hostnic::memory
