// What the program asks the kernel for, where memory in the table is concerned.
#include <algorithm>
#include <cerrno>

#include "verbs-shim/memory/critical.h"

namespace hostnic::memory {

// A system call that may take [start, end) away. While it runs no NIC uses the mem fd, if it could
// reach the range so.
class MemoryRegistrar::Change {
 public:
  Change(MemoryRegistrar& registrar, uint64_t start, uint64_t end) : revoker_(registrar.revoker_) {
    begin(registrar, start, end);
  }
  ~Change() {
    if (begun_) revoker_.end_change(change_, lost_, count_);
  }
  Change(const Change&) = delete;
  Change& operator=(const Change&) = delete;

  void begin(MemoryRegistrar& registrar, uint64_t start, uint64_t end) {
    if (begun_ || !revoker_.runs() || !registrar.reached_by_mem_fd(start, end)) return;
    begun_ = true;
    change_ = revoker_.begin_change();
  }
  // It did take it away.
  void lost(uint64_t start, uint64_t end) {
    if (begun_ && start < end) lost_[count_++] = {start, end, 0};
  }

 private:
  Revoker& revoker_;
  bool begun_ = false;
  uint64_t change_ = 0;
  LostRange lost_[2];
  size_t count_ = 0;
};

bool MemoryRegistrar::in_table(uint64_t start, uint64_t end) {
  const Critical critical(*this);
  const auto range = table_.first_after(start);
  return range != table_.end() && range->first < end;
}

int MemoryRegistrar::munmap(void* at, size_t length_bytes) try {
  const uint64_t start = address(at), end = start + page_up(length_bytes);
  if (!in_table(start, end)) return raw_munmap(at, length_bytes);
  const Critical critical(*this);
  Change change(*this, start, end);
  const int result = raw_munmap(at, length_bytes);
  if (result == 0) {
    change.lost(start, end);
    lose(start, end);
    table_.join(start, end);  // on demand, memory comes and goes while it is registered
  }
  return result;
} catch (...) {
  return 0;  // unmapped; what the table has wrong, the next look at /proc/self/maps puts right
}

void* MemoryRegistrar::mmap_fixed(void* at, size_t length_bytes, int prot, int flags, int fd,
                                  off_t offset) {
  const uint64_t start = address(at), end = start + page_up(length_bytes);
  if (!in_table(start, end)) return raw_mmap(at, length_bytes, prot, flags, fd, offset);
  const Critical critical(*this);
  Change change(*this, start, end);
  void* result = raw_mmap(at, length_bytes, prot, flags, fd, offset);
  if (result != MAP_FAILED) try {
      change.lost(start, end);
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

bool MemoryRegistrar::in_window(uint64_t start, uint64_t end) {
  const Critical critical(*this);
  for (auto it = table_.first_after(start); it != table_.end() && it->first < end; ++it)
    if (it->second.place == PagePlace::kWindow) return true;
  return false;
}

int MemoryRegistrar::madvise(void* at, size_t length_bytes, int advice) {
  const uint64_t start = address(at), end = start + page_up(length_bytes);
  if (start % kPageBytes != 0 || end <= start || !in_window(start, end))
    return raw_madvise(at, length_bytes, advice);
  const Critical critical(*this);
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

// What is still there after all.
void MemoryRegistrar::watch_again(uint64_t start, uint64_t end) {
  const int error = errno;
  RawVector<Area> areas;
  if (read_areas(start, end, areas))
    for (auto it = table_.first_after(start); it != table_.end() && it->first < end; ++it)
      if (it->second.by_mem_fd)
        watch_range(areas, std::max(start, it->first), std::min(end, it->second.end));
  errno = error;
}

// The pages go home first, for the window can hold them at their own address only. Registrations
// of the old address are void from then on.
void* MemoryRegistrar::mremap(void* from, size_t old_length, size_t length, int flags,
                              void* to) try {
  const Critical critical(*this);
  const uint64_t start = address(from), end = start + page_up(old_length);
  const bool replaces = (flags & MREMAP_FIXED) != 0;
  const uint64_t to_start = address(to), to_end = to_start + page_up(length);
  Change change(*this, start, end);
  if (replaces) change.begin(*this, to_start, to_end);
  watch_.unwatch(start, end);  // the kernel moves one area only, and watched parts are areas
  table_.split_at(start);
  table_.split_at(end);
  for (auto it = table_.first_after(start); it != table_.end() && it->first < end;) {
    PageRange& range = it->second;
    if (range.place == PagePlace::kWindow) {
      if (!return_home(it->first, range)) {
        watch_again(start, end);
        errno = ENOMEM;
        return MAP_FAILED;
      }
      range.place = PagePlace::kLost;
      range.stash_delta = 0;
    }
    it = range.registrations > 0 ? std::next(it) : table_.erase(it);
  }
  void* result = raw_mremap(from, old_length, length, flags, to);
  const bool stays = result == MAP_FAILED || result == from;
  const uint64_t kept_end = result == MAP_FAILED ? end : stays ? start + page_up(length) : start;
  watch_again(start, std::min(kept_end, end));
  if (result != MAP_FAILED) {
    change.lost(std::min(kept_end, end), end);
    if (replaces) {
      change.lost(to_start, to_end);
      lose(to_start, to_end);
    }
  }
  update_bounds();
  return result;
} catch (...) {
  errno = ENOMEM;
  return MAP_FAILED;
}

}  // namespace hostnic::memory
