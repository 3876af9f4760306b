// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/memory/system_calls.h"

#include <sys/shm.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "verbs-shim/memory/critical.h"
#include "verbs-shim/memory/libc_calls.h"
#include "verbs-shim/memory/solitude.h"
#include "verbs-shim/memory/system_change.h"

namespace hostnic::memory {

// Begins a change; returns false if nothing in the table is concerned.
bool SystemCalls::begin_change(SystemChange& change, uint64_t start, uint64_t end) {
  const Critical critical(state_);
  if (!state_.in_table(start, end)) return false;
  change.may_take(start, end);
  return true;
}

// Does `call`, a system call that takes [start, end) away. The kernel reports that when it is done:
// by then something else may be there, of this thread's (MAP_FIXED) or another's, and a NIC may
// have written to it. So this thread says it, and before.
template <typename Call>
auto SystemCalls::take_away(uint64_t start, uint64_t end, Leaves leaves, Call call) {
  state_.revoker.wait_until_known();
  SystemChange change(state_, release_, moved_, kept_);
  if (start % kPageBytes != 0 || end <= start || !prepare_replacement(change, start, end))
    return call();
  const auto result = call();
  if (result != decltype(result)(-1)) {
    if (leaves == Leaves::kGap)
      bare_calls_.guard_gap(start, {state_.mirror_fd, state_.mirror_watch.fd(), false});
    change.took(start, end);
    return result;
  }
  const int error = errno;
  const Critical critical(state_);
  change.let_be();
  watch_again(start, end);
  watch_left_behind(start, end);
  errno = error;
  return result;
}

int SystemCalls::munmap(void* at, size_t length_bytes) try {
  const uint64_t start = address(at);
  return take_away(start, start + page_up(length_bytes), Leaves::kGap,
                   [&] { return libc_munmap(at, length_bytes); });
} catch (...) {
  errno = ENOMEM;
  return -1;
}

void* SystemCalls::mmap_fixed(void* at, size_t length_bytes, int prot, int flags, int fd,
                              off_t offset) try {
  const uint64_t start = address(at);
  return take_away(start, start + page_up(length_bytes), Leaves::kMapping,
                   [&] { return libc_mmap(at, length_bytes, prot, flags, fd, offset); });
} catch (...) {
  errno = ENOMEM;
  return MAP_FAILED;
}

void* SystemCalls::shmat_over(int id, void* at, int flags) try {
  const uint64_t start = (flags & SHM_RND) != 0 ? page_down(address(at)) : address(at);
  const int error = errno;
  shmid_ds segment{};
  const bool known = shmctl(id, IPC_STAT, &segment) == 0;
  errno = error;
  if (!known) return libc_shmat(id, at, flags);
  return take_away(start, start + page_up(segment.shm_segsz), Leaves::kMapping,
                   [&] { return libc_shmat(id, at, flags); });
} catch (...) {
  errno = ENOMEM;
  return MAP_FAILED;
}

// The end of what a segment has at `start`, where it begins; `start`: not known, or not in one
// piece. The kernel tells of such.
uint64_t SystemCalls::segment_end(uint64_t start) {
  const int error = errno;
  TextRoom room;
  Area first, area;
  uint64_t end = start;
  if (next_area(start, first, room) && first.start == start && first.shared && first.offset == 0) {
    end = first.end;
    shmid_ds segment{};
    const bool whole = shmctl(static_cast<int>(first.inode), IPC_STAT, &segment) == 0 &&
                       next_area(start + page_up(segment.shm_segsz) - 1, area, room) &&
                       area.offset + (start - area.start) == 0 &&
                       area.same_file_as(first.device_major, first.device_minor, first.inode);
    end = whole ? start + page_up(segment.shm_segsz) : start;
  }
  errno = error;
  return end;
}

int SystemCalls::shmdt(const void* at) try {
  const CancellationOff cancellation_off;
  const uint64_t start = address(at);
  return take_away(start, segment_end(start), Leaves::kGap, [&] { return libc_shmdt(at); });
} catch (...) {
  errno = ENOMEM;
  return -1;
}

int SystemCalls::brk(void* end, uint64_t now) try {
  return take_away(page_up(address(end)), page_up(now), Leaves::kGap,
                   [&] { return libc_brk(end); });
} catch (...) {
  errno = ENOMEM;
  return -1;
}

void* SystemCalls::sbrk(intptr_t increment, uint64_t now) try {
  return take_away(page_up(now + static_cast<uint64_t>(increment)), page_up(now), Leaves::kGap,
                   [&] { return libc_sbrk(increment); });
} catch (...) {
  errno = ENOMEM;
  return MAP_FAILED;
}

// Gives advice about private memory to pages that are shared for now. Advice about the area waits
// in the stash.
int SystemCalls::madvise_part(uint64_t start, uint64_t end, int advice, bool in_mirror,
                              uint64_t stash_delta) {
  const auto give = [&](uint64_t at, int what) {
    return raw_madvise(pointer(at), end - start, what);
  };
  if (!in_mirror) return give(start, advice);
  switch (advice) {
    case MADV_FREE:  // the kernel may keep the contents, and so do we; of locked memory it may not
      return give(start, MADV_COLD);
    case MADV_DOFORK:  // a child must never share the mirror
    case MADV_WIPEONFORK:
    case MADV_KEEPONFORK:
      return give(start + stash_delta, advice);
    case MADV_DONTFORK:
    case MADV_HUGEPAGE:
    case MADV_NOHUGEPAGE:
    case MADV_MERGEABLE:
    case MADV_UNMERGEABLE:
    case MADV_DONTDUMP:
    case MADV_DODUMP:
      give(start + stash_delta, advice);
      return give(start, advice);
    case MADV_GUARD_INSTALL:  // private pages would be gone, and those that lie aside, too
      if (const int error = state_.late.fill(start, end); error != 0) {
        errno = error;
        return -1;
      }
      return give(start, advice);
    case MADV_REMOVE:  // the advice is for shared memory only
      errno = EINVAL;
      return -1;
    default:
      return give(start, advice);
  }
}

bool SystemCalls::in_mirror(uint64_t start, uint64_t end) {
  const Critical critical(state_);
  for (auto it = state_.table.first_after(start); it != state_.table.end() && it->first < end; ++it)
    if (it->second.place == PagePlace::kMirror) return true;
  return false;
}

// Whether a part of [start, end) is the mirror's and has no stash, where advice about forks would
// wait: a bare mremap has grown it, and it is registered.
bool SystemCalls::any_without_stash(uint64_t start, uint64_t end) {
  RawVector<Area> areas;
  if (!state_.has_migrated.load() || !read_areas(start, end, areas)) return false;
  for (const Area& area : areas) {
    const uint64_t last = std::min(area.end, end);
    if (!state_.is_of_mirror(area)) continue;
    for (uint64_t at = std::max(area.start, start); at < last;) {
      const auto range = state_.table.first_after(at);
      if (range == state_.table.end() || range->first > at || range->second.stash_delta == 0)
        return true;
      at = range->second.end;
    }
  }
  return false;
}

// Gives MADV_FREE, which the kernel has refused, to each area: what a bare mremap has grown in
// place is the mirror's, though the table does not know of it. Returns what madvise does, with
// errno.
int SystemCalls::free_each_area(uint64_t start, uint64_t end) {
  RawVector<Area> areas;
  if (!read_areas(start, end, areas)) return -1;
  uint64_t at = start;
  bool has_holes = false;
  for (const Area& area : areas) {
    const uint64_t from = std::max(area.start, start), to = std::min(area.end, end);
    if (madvise_part(from, to, MADV_FREE, state_.is_of_mirror(area), 0) != 0) return -1;
    has_holes |= from != at;
    at = to;
  }
  if (!has_holes && at == end) return 0;
  errno = ENOMEM;
  return -1;
}

// Guards hide the mirror's pages, which would be there again when the guards go, at another offset
// where they have moved: they become zeros. The kernel goes on behind holes.
int SystemCalls::madvise(void* at, size_t length_bytes, int advice) try {
  const CancellationOff cancellation_off;
  const int result = advise(at, length_bytes, advice);
  if (advice != MADV_GUARD_INSTALL || (result != 0 && errno != ENOMEM)) return result;
  const int error = errno;
  const uint64_t start = address(at);
  bare_calls_.before_discard({start, start + page_up(length_bytes), false}, state_.mirror_fd);
  errno = error;
  return result;
} catch (...) {
  errno = ENOMEM;
  return -1;
}

// Makes zeros of what is about to be discarded, as long as nobody else will. The watch notices
// discards by whatever way they are made (discards.cc), but of several threads that discard at the
// same moment it may miss one: it sees what a thread does that waits in the kernel, and reading the
// event of another wakes this one for a moment. Returns whether that is noted for the watch, which
// leaves it at that: the note is to be forgotten after the call.
bool SystemCalls::discard_first(const Discard& discard) {
  const uint64_t migrations = state_.migrations_begun.load();
  const bool is_reported = state_.mirror_watch.reports();
  if (is_reported) {
    // The lock may be taken for long: then the watch does what it can.
    const Critical critical(state_, std::try_to_lock);
    if (critical.owns() && is_only_thread(state_.own_threads)) return false;
    if (critical.owns()) state_.late.drop_first(discard.start, discard.end);
  }
  const bool any_aside = state_.late.asides().any_aside(discard.start, discard.end);
  // Where the kernel stops on the way, the watch looks how far it gets.
  const bool is_whole = bare_calls_.before_discard(discard, state_.mirror_fd);
  return is_reported && is_whole && !any_aside &&
         bare_calls_.settled_discard().note(static_cast<pid_t>(syscall(SYS_gettid)), discard,
                                            migrations);
}

int SystemCalls::discard(void* at, size_t length_bytes, int advice) {
  const uint64_t start = address(at);
  const bool is_noted =
      discard_first({start, start + page_up(length_bytes), advice == MADV_DONTNEED_LOCKED});
  const int result = libc_madvise(at, length_bytes, advice);
  if (is_noted) bare_calls_.settled_discard().forget();
  return result;
}

int SystemCalls::advise(void* at, size_t length_bytes, int advice) {
  const uint64_t start = address(at), end = start + page_up(length_bytes);
  const bool is_discard = advice == MADV_DONTNEED || advice == MADV_DONTNEED_LOCKED;
  if (is_discard && start % kPageBytes == 0 && in_mirror(start, end))
    return discard(at, length_bytes, advice);
  if ((advice == MADV_WIPEONFORK || advice == MADV_DONTFORK) && state_.has_migrated.load()) {
    const Critical critical(state_);
    large_moves_.bring_home(start, end);
    release_.bring_growth_in(start, end);
  }
  if (is_discard || start % kPageBytes != 0 || end <= start || !in_mirror(start, end)) {
    const int result = libc_madvise(at, length_bytes, advice);
    if (result == 0 || errno != EINVAL || advice != MADV_FREE || start % kPageBytes != 0 ||
        end <= start || !state_.has_migrated.load())
      return result;
    const Critical critical(state_);
    return free_each_area(start, end);
  }
  const Critical critical(state_);
  // A bare call may have put other memory there, whose report has not been followed yet: advice is
  // for what the program has there now.
  release_.lose_where_gone(start, end);
  if (advice == MADV_WIPEONFORK && any_without_stash(start, end)) {
    errno = EINVAL;  // nothing has changed then
    return -1;
  }
  bool has_holes = false;
  uint64_t done = start;
  while (done < end) {
    const auto range = state_.table.first_after(done);
    const bool inside = range != state_.table.end() && range->first <= done;
    const uint64_t border = range == state_.table.end() ? end
                            : inside                    ? range->second.end
                                                        : range->first;
    const bool in_mirror = inside && range->second.place == PagePlace::kMirror;
    const uint64_t next = std::min(end, border);
    int result =
        madvise_part(done, next, advice, in_mirror, in_mirror ? range->second.stash_delta : 0);
    if (result != 0 && errno == EINVAL && !in_mirror && advice == MADV_FREE)
      result = free_each_area(done, next);
    if (result != 0) {
      if (errno != ENOMEM) return -1;
      has_holes = true;  // the kernel goes on behind them
    }
    done = next;
  }
  if (has_holes) errno = ENOMEM;
  return has_holes ? -1 : 0;
}

// Watches again what is still there after all.
void SystemCalls::watch_again(uint64_t start, uint64_t end) {
  const int error = errno;
  RawVector<Area> areas;
  if (read_areas(start, end, areas))
    for (auto it = state_.table.first_after(start); it != state_.table.end() && it->first < end;
         ++it)
      if (it->second.by_mem_fd)
        state_.watch_range(areas, std::max(start, it->first), std::min(end, it->second.end));
  state_.mirror_watch.reserve();
  for (auto it = state_.table.first_after(start); it != state_.table.end() && it->first < end; ++it)
    if (it->second.place == PagePlace::kMirror)
      state_.mirror_watch.claim(it->first, it->second.end);
  errno = error;
}

// Watches what MREMAP_DONTUNMAP has left at the old place, or what a call that failed has left, if
// what lies beside it is watched: the kernel has split them, and moves one area only.
void SystemCalls::watch_left_behind(uint64_t start, uint64_t end) {
  const bool beside =
      state_.watch.covers(start - kPageBytes, start) || state_.watch.covers(end, end + kPageBytes);
  RawVector<Area> areas;
  if (!beside || !read_areas(start, end, areas)) return;
  for (const Area& area : areas)
    if (!state_.is_of_mirror(area))
      state_.watch.watch(std::max(area.start, start), std::min(area.end, end));
}

// Brings pages home, because the mirror can hold them at their own address only. Returns false if
// out of memory: nothing may move.
bool SystemCalls::bring_home(uint64_t start, uint64_t end) {
  state_.table.split_at(start);
  state_.table.split_at(end);
  for (auto it = state_.table.first_after(start); it != state_.table.end() && it->first < end;) {
    PageRange& range = it->second;
    if (range.place == PagePlace::kMirror) {
      if (!release_.return_home(it->first, range)) {
        watch_again(start, end);
        return false;
      }
      range.place = PagePlace::kLost;
      range.stash_delta = 0;
    }
    it = range.registrations > 0 ? std::next(it) : state_.table.erase(it);
  }
  return true;
}

// Prepares what is about to move: all of it is the program's own, in one piece as far as the
// program has it so, and no NIC touches it. With `parts`, much of the mirror may stay there, and
// these are what has to move then.
bool SystemCalls::prepare_move(SystemChange& change, const Remap& call, RawVector<Area>* parts) {
  const uint64_t start = call.start, end = call.end();
  if (!release_.take_outside(start, end)) return false;
  const Critical critical(state_);
  // The kernel moves one area only, and watched parts are areas.
  RawVector<Area> areas;
  if (read_areas(start, end, areas))
    for (const Area& area : areas)
      if (!state_.is_of_mirror(area)) state_.watch.note_area(area.start, area.end);
  state_.watch.unwatch(start, end);
  change.may_take(start, end);
  // Where another adapter or io_uring has pinned pages these stay in the mirror, and the program
  // sees them there at their new place: what the kernel shows beside them is settled
  // (bare_moves.cc).
  if (state_.mirror_watch.reports() && process_memory().pinned_kb != 0) return true;
  return (parts != nullptr && large_moves_.takes(call, *parts)) || bring_home(start, end);
}

// The kernel reports the end of all of [start, end) if it watches any of it, as what has grown by a
// bare mremap: that ends with the rest.
void SystemCalls::note_growth(uint64_t start, uint64_t end) noexcept try {
  if (!read_areas(start, end, state_.areas_of_losses)) return;
  for (const Area& area : state_.areas_of_losses)
    if (!state_.is_of_mirror(area) && !state_.watch.note_area(area.start, area.end))
      state_.watch.unwatch_unknown(std::max(area.start, start), std::min(area.end, end));
} catch (...) {  // no memory: the report is told as well
}

// The kernel would report the end of all of [start, end) for what has grown in the mirror there,
// and with it of what is kept.
void SystemCalls::unwatch_growth(uint64_t start, uint64_t end) noexcept try {
  if (!state_.has_migrated.load() || !read_areas(start, end, state_.areas_of_losses)) return;
  for (const Area& area : state_.areas_of_losses)
    if (state_.is_of_mirror(area))
      state_.mirror_watch.unwatch_growth(std::max(area.start, start), std::min(area.end, end));
} catch (...) {  // no memory: the report is told as well
}

// Prepares [start, end), in whose place something is about to move: this thread says what has
// become of it. The kernel's report would be followed later, when what has moved there is known
// already, or before what is kept has moved away. Of a watched area a part may be registered by
// nobody any more. Returns false if nothing is concerned.
bool SystemCalls::prepare_replacement(SystemChange& change, uint64_t start, uint64_t end) {
  const Critical critical(state_);
  uint64_t watched = 0, watched_end = 0;
  const bool any_watched = state_.watch.next_range(start, watched, watched_end) && watched < end;
  if (!any_watched && !state_.in_table(start, end)) return false;
  change.stay_outside(start, end);
  if (any_watched) note_growth(start, end);
  state_.watch.unwatch(start, end);
  state_.mirror_watch.unwatch(start, end);
  unwatch_growth(start, end);
  change.may_take(start, end);
  change.keep(start, end);
  return true;
}

// The end goes first, and what keys lead to there stays with them; the rest moves then.
void* SystemCalls::shrink(const Remap& call) {
  if (munmap(pointer(call.start + call.new_bytes), call.old_bytes - call.new_bytes) != 0)
    return MAP_FAILED;
  void* const start = pointer(call.start);
  if ((call.flags & MREMAP_FIXED) == 0) return start;
  return mremap(start, call.new_bytes, call.new_bytes, call.flags, pointer(call.to));
}

void* SystemCalls::grow_in_place(void* from, size_t old_length, size_t length) {
  TextRoom room;
  Area area;
  // What would grow of the mirror would show others' pages.
  if (!next_area(address(from), area, room) || state_.is_of_mirror(area)) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  return bare_calls_.guards().grow(from, old_length, length, 0);
}

// Keys follow what moves.
void* SystemCalls::mremap(void* from, size_t old_length, size_t length, int flags, void* to) try {
  const Remap call{address(from), page_up(old_length), page_up(length), flags, address(to)};
  const uint64_t start = call.start, end = call.end();
  const bool replaces = (flags & MREMAP_FIXED) != 0;
  const uint64_t to_start = call.to, to_end = to_start + call.new_bytes;
  if (start % kPageBytes != 0 || end < start)
    return libc_mremap(from, old_length, length, flags, to);
  if (large_moves_.shrinks(call)) return shrink(call);
  state_.revoker.wait_until_known();
  SystemChange change(state_, release_, moved_, kept_);
  RawVector<Area> parts;
  if (!prepare_move(change, call, &parts)) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  if (replaces) prepare_replacement(change, to_start, to_end);
  const uint64_t kept_end = std::min(end, start + call.new_bytes);
  const bool grows = call.new_bytes > call.old_bytes && Guards::any();
  if (kept_end < end) {
    const Critical critical(state_);
    change.keep(kept_end, end);
  }
  void* result = !parts.empty()        ? large_moves_.move(call, parts)
                 : flags == 0 && grows ? grow_in_place(from, old_length, length)
                                       : libc_mremap(from, old_length, length, flags, to);
  if (result == MAP_FAILED && errno == EFAULT && state_.has_migrated.load())
    result = large_moves_.move_divided(call);
  const int error = errno;
  if (result != MAP_FAILED) {
    change.took(kept_end, end);
    if (replaces) change.took(to_start, to_end);
    if (result != from) {
      const Critical critical(state_);
      change.moved(start, kept_end, address(result));
    }
    if (result != from)
      bare_calls_.guard_gap(start, {state_.mirror_fd, state_.mirror_watch.fd(), false});
  }
  const Critical critical(state_);
  if (result == MAP_FAILED) change.let_be();
  watch_again(start, end);
  if ((flags & MREMAP_DONTUNMAP) != 0 && result != MAP_FAILED) watch_left_behind(start, end);
  if (replaces && result == MAP_FAILED) {
    watch_again(to_start, to_end);
    watch_left_behind(to_start, to_end);
  }
  state_.update_bounds();
  errno = error;
  return result;
} catch (...) {
  errno = ENOMEM;
  return MAP_FAILED;
}

void* SystemCalls::move_divided(void* from, size_t old_length, size_t length, int flags,
                                void* to) try {
  const CancellationOff cancellation_off;
  return large_moves_.move_divided(
      {address(from), page_up(old_length), page_up(length), flags, address(to)});
} catch (...) {
  errno = ENOMEM;
  return MAP_FAILED;
}

void* SystemCalls::realloc_mapping(void* block, size_t usable_bytes, size_t length,
                                   void* (*reallocate)(void*, size_t)) try {
  const uint64_t start = page_down(address(block));
  const uint64_t end = page_up(address(block) + usable_bytes);
  if (usable_bytes >= kLargeMoveBytes && move_block(block, usable_bytes, length))
    return reallocate(block, length);
  state_.revoker.wait_until_known();
  bool concerned = false;
  {
    const Critical critical(state_);
    concerned = state_.in_table(start, end);
  }
  if (!concerned) return reallocate(block, length);
  SystemChange change(state_, release_, moved_, kept_);
  if (!prepare_move(change, {start, end - start, 0, 0, 0}, nullptr)) {
    errno = ENOMEM;
    return nullptr;
  }
  void* result = reallocate(block, length);
  const int error = errno;
  const bool moved = result != nullptr && result != block;
  if (moved) {
    const Critical critical(state_);
    change.moved(start, end, start + (address(result) - address(block)));
  }
  if (moved) bare_calls_.guard_gap(start, {state_.mirror_fd, state_.mirror_watch.fd(), false});
  const Critical critical(state_);
  watch_again(start, end);
  state_.update_bounds();
  errno = error;
  return result;
} catch (...) {
  errno = ENOMEM;
  return nullptr;
}

bool SystemCalls::prepare_release(SystemChange& change, uint64_t start, uint64_t end,
                                  uint64_t words) try {
  if (start >= end || !prepare_replacement(change, start, end)) return false;
  if (const std::byte* const kept = change.kept_at(words); kept != nullptr)
    std::memcpy(pointer(words), kept, kWordBytes);
  return true;
} catch (...) {  // no memory: the kernel tells of it, or the end of the heap is looked at
  return false;
}

void* SystemCalls::release_mapping(void* block, size_t usable_bytes, size_t length,
                                   void* (*release)(void*, size_t)) {
  // The C library's words: the bytes of the mapping before them, and the block's size.
  const uint64_t words = address(block) - kWordBytes;
  const uint64_t start = page_down(words - static_cast<const uint64_t*>(pointer(words))[0]);
  const uint64_t end = page_up(address(block) + usable_bytes);
  const uint64_t gone = length == 0 ? start : page_up(address(block) + length);
  state_.revoker.wait_until_known();
  SystemChange change(state_, release_, moved_, kept_);
  const bool concerned = prepare_release(change, gone, end, words);
  void* result = release(block, length);
  const int error = errno;
  if (!concerned) return result;
  const bool failed = result == nullptr && length != 0;
  if (failed) {
    const Critical critical(state_);
    change.let_be();
  }
  if (!failed) change.took(gone, end);
  // What has been copied elsewhere is gone as a whole.
  if (!failed && length != 0 && result != block) change.took(start, gone);
  const Critical critical(state_);
  watch_again(start, end);
  errno = error;
  return result;
}

void SystemCalls::note_unmapped(uint64_t start, uint64_t end) {
  SystemChange change(state_, release_, moved_, kept_);
  if (begin_change(change, start, end)) change.took(start, end);
}

}  // namespace hostnic::memory
