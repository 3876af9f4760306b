// SPDX-License-Identifier: BSD-3-Clause
// Bare mremap and munmap of pages of the mirror. For the kernel these are pages of a shared file;
// the program has private memory there. A thread that moves them waits in the kernel until an event
// of a userfaultfd has been read: its reader gives the program what it would have then.
// Memory that has moved leaves the mirror, as with the C library's mremap; what the kernel shows of
// the file beyond it, or at its old place (MREMAP_DONTUNMAP), becomes zeros of the program's own.
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <mutex>

#include "verbs-shim/memory/bare_calls.h"
#include "verbs-shim/memory/large_moves.h"

namespace hostnic::memory {
namespace {

constexpr int kMostLooks = 1000;    // at areas, while pages are being copied
constexpr size_t kMostParts = 256;  // that a move takes out of the mirror
// The lock is waited for so long: who has it may wait for the thread that reads events.
constexpr int kLockTries = 2'500;
constexpr long kLockPauseNs = 200'000;

bool lock_in_time(std::unique_lock<std::mutex>& lock) {
  for (int tries = 0; tries < kLockTries; tries++) {
    if (lock.try_lock()) return true;
    const timespec pause{0, kLockPauseNs};
    nanosleep(&pause, nullptr);
  }
  return false;
}

// What changes its mapping must not raise an event of its own: its thread would wait for itself.
void unwatch(uint64_t start, uint64_t end, const EventReader& reader) {
  uffdio_range range{start, end - start};
  ioctl(reader.watch, UFFDIO_UNREGISTER, &range);
}

void watch_for_events(uint64_t start, uint64_t end, int watch) {
  uffdio_register request{};
  request.range = {start, end - start};
  request.mode = UFFDIO_REGISTER_MODE_WP;
  ioctl(watch, UFFDIO_REGISTER, &request);
}

}  // namespace

// Late filling settles what concerns memory that lies aside, whose events only it reads.
uint64_t BareCalls::settle(const BlockedCall& call, EventReader reader) {
  if (!reader.is_late_fill)
    reader.mirror = state_.mirror_fd;  // which may be another hostnicd's by now
  uint64_t start = 0, end = 0;
  MoveCall move;
  if (Discard discard; find_discard(call, 0, discard)) {
    settle_discard(call, reader);
  } else if (is_unmap(call, start, end)) {
    lose_in_time(start, end, reader);
    guard_gap(start, reader);
  } else if (is_move(call, move) &&
             state_.late.asides().any_aside(move.from, move.from + move.old_bytes) ==
                 reader.is_late_fill) {
    if (settle_move(move, reader)) return move.from;
  }
  return 0;
}

// What has been unmapped is followed later, by the revoker's thread. By then the thread that did it
// may have grown what lies before to that place, and would see the old pages.
void BareCalls::lose_in_time(uint64_t start, uint64_t end, const EventReader& reader) {
  if (reader.is_late_fill || !Migrator::has_pages(reader.mirror, start, end)) return;
  std::unique_lock lock(state_.mutex, std::defer_lock);
  if (lock_in_time(lock)) release_.lose_in_time(start, end);
}

// Where a move has brought pages of the mirror. Returns false if they are none, or the kernel has
// not moved them yet.
bool BareCalls::find_moved(const MoveCall& move, uint64_t& to, Area& area, TextRoom& room) const {
  const bool stays =
      next_area(move.from, area, room) && area.start <= move.from && state_.is_of_mirror(area);
  const uint64_t offset = stays ? area.offset + (move.from - area.start) : known_offset(move.from);
  if (move.to != 0) {
    to = move.to;
    return next_area(to, area, room) && area.start <= to && state_.is_of_mirror(area) &&
           area.offset + (to - area.start) == offset;
  }
  const FileRange range = state_.mirror_range(offset, offset + 1);
  bool found = false;
  uint32_t changes = 0;
  int looks = 0;
  do {
    changes = state_.migrator.view_changes();
    found = find_view(range, room, area, [&](const Area& each) {
      to = each.start;
      return each.offset == offset && to != move.from && !state_.migrator.is_own_view(to) &&
             !state_.late.is_own_view(to);
    });
  } while (changes != state_.migrator.view_changes() && ++looks < kMostLooks);
  return found && looks < kMostLooks;
}

// The place in the mirror of what the program saw at `va`, where it may have moved before.
uint64_t BareCalls::known_offset(uint64_t va) const {
  std::unique_lock lock(state_.mutex, std::defer_lock);
  if (!state_.has_moved_views.load() || !lock_in_time(lock)) return va;
  for (const RegistrarState::View& view : state_.moved_views)
    if (view.start <= va && va < view.end) return view.offset + (va - view.start);
  return va;
}

// Has the library take over calls about what the program sees of the mirror at its new place.
void BareCalls::note_view(const MoveCall& move, uint64_t to, uint64_t offset) try {
  const uint64_t end = to + std::min(move.old_bytes, move.new_bytes);
  std::unique_lock lock(state_.mutex, std::defer_lock);
  if (!lock_in_time(lock)) return;
  state_.mirror_watch.reserve();
  state_.forget_views(move.from, move.from + move.old_bytes);
  state_.forget_views(to, end);
  state_.moved_views.push_back({to, end, offset});
  state_.has_moved_views.store(true);
  state_.mirror_watch.claim(to, end);
  state_.update_bounds();
} catch (...) {  // no memory: the kernel goes on telling of it
}

// Returns whether NICs were told to reach by the mem fd what has moved.
bool BareCalls::settle_move(const MoveCall& move, const EventReader& reader) {
  TextRoom room;
  Area area;
  uint64_t to = 0;
  bool is_outside = false;
  if (state_.migrator.is_own_view(move.from)) return false;
  if (move.may_move && find_moved(move, to, area, room)) {
    const uint64_t offset = area.offset + (to - area.start);
    const uint64_t old_end = move.from + move.old_bytes;
    const bool is_much = move.old_bytes >= kLargeMoveBytes;
    const bool may_leave = !reader.is_late_fill && offset == move.from;
    const bool came_home = may_leave && !is_much && take_home(move, to, area, reader, room);
    is_outside = may_leave;
    // To copy much would take long: it stays in the mirror, and no key leads to it there. What has
    // moved before moves on.
    if (!reader.is_late_fill &&
        (offset != move.from || (is_much && take_outside_in_time(move.from, old_end))))
      note_view(move, to, offset);
    if (!came_home && move.new_bytes > move.old_bytes)
      make_private(to + move.old_bytes, to + move.new_bytes, offset + move.old_bytes, reader, room);
    if (move.stays_mapped)
      make_private(move.from, old_end, offset, reader, room);
    else
      guard_gap(move.from, reader);
  } else if (move.new_bytes < move.old_bytes) {
    lose_in_time(move.from + move.new_bytes, move.from + move.old_bytes, reader);
    guard_gap(move.from + move.new_bytes, reader);
  }
  return is_outside;
}

// Has private memory take the place of what was moved to `to`, with its contents. Returns false if
// that can't be: it stays where the kernel has moved it, in the mirror.
bool BareCalls::take_home(const MoveCall& move, uint64_t to, const Area& area,
                          const EventReader& reader, TextRoom& room) {
  const uint64_t end = move.from + move.old_bytes;
  const uint64_t kept_bytes = std::min(move.old_bytes, move.new_bytes);
  // A real adapter or io_uring would go on using the pages where they are.
  if (to + move.new_bytes > area.end || process_memory(room).pinned_kb != 0 ||
      !take_outside_in_time(move.from, end))
    return false;
  void* const home =
      raw_mmap(nullptr, move.new_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (home == MAP_FAILED) return false;
  const bool locked = first_locked(to, to + move.new_bytes, room) != to + move.new_bytes;
  bool came =
      Migrator::read_mirror(reader.mirror, move.from, kept_bytes, home) == 0 &&
      (area.prot == (PROT_READ | PROT_WRITE) || mprotect(home, move.new_bytes, area.prot) == 0);
  if (came) {
    unwatch(to, to + move.new_bytes, reader);
    came = raw_mremap(home, move.new_bytes, move.new_bytes, MREMAP_MAYMOVE | MREMAP_FIXED,
                      pointer(to)) != MAP_FAILED;
  }
  if (!came) {
    raw_munmap(home, move.new_bytes);
    return false;
  }
  // New mappings are locked after mlockall(MCL_FUTURE); what moves stays as it was.
  syscall(locked ? SYS_mlock : SYS_munlock, to, move.new_bytes);
  // It may move on before the registrar knows that it is there.
  std::unique_lock lock(state_.mutex, std::defer_lock);
  if (!lock_in_time(lock) || state_.any_registered(move.from, end))
    watch_for_events(to, to + move.new_bytes, state_.watch.fd());
  return true;
}

bool BareCalls::take_outside_in_time(uint64_t start, uint64_t end) try {
  RawVector<MappingChange> leaving;
  leaving.reserve(kMostParts);
  const NoNewMappings no_new_mappings;
  {
    std::unique_lock lock(state_.mutex, std::defer_lock);
    if (!lock_in_time(lock)) return false;
    release_.mark_outside(start, end, leaving);
  }
  return release_.tell_outside(leaving);
} catch (...) {  // no room for a border, or too many parts
  return false;
}

// Has zeros take the place of what is mapped at [start, end) of the mirror from `offset` on.
void BareCalls::make_private(uint64_t start, uint64_t end, uint64_t offset,
                             const EventReader& reader, TextRoom& room) {
  Area area;
  for (uint64_t at = start; at < end && next_area(at, area, room) && area.start < end;
       at = area.end) {
    const uint64_t from = std::max(at, area.start), to = std::min(end, area.end);
    if (!state_.is_of_mirror(area) || area.offset + (from - area.start) != offset + (from - start))
      continue;
    unwatch(from, to, reader);
    constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    // An access that fails is better than one to others' bytes.
    if (raw_mmap(pointer(from), to - from, area.prot, kFlags, -1, 0) == MAP_FAILED &&
        raw_mmap(pointer(from), to - from, area.prot, kFlags | MAP_NORESERVE, -1, 0) == MAP_FAILED)
      raw_munmap(pointer(from), to - from);
  }
}

// Where memory goes away behind pages of the mirror, a bare mremap could grow these in place, of
// which nobody is told: it would show what a key still leads to. A page without access keeps that
// from happening. What lies in between may go as untold.
void BareCalls::guard_gap(uint64_t start, const EventReader& reader) {
  if (reader.is_late_fill) return;
  TextRoom room;
  Area behind;
  if (!next_area(start, behind, room)) behind.start = kMirrorBytes;
  if (behind.start <= start || !Migrator::has_pages(reader.mirror, start, behind.start)) return;
  {
    std::unique_lock lock(state_.mutex, std::defer_lock);
    if (lock_in_time(lock) &&
        (state_.lowest.load() >= start || !state_.any_registered(start, behind.start)))
      return;
  }
  guards_.put(start);
}

// What comes next in the mirror is what the program sees there, nearly always.
void BareCalls::guard_behind(uint64_t start, uint64_t end) {
  for (auto it = state_.table.first_after(start); it != state_.table.end() && it->first < end;
       ++it) {
    if (it->second.place != PagePlace::kMirror) continue;
    const uint64_t gap = it->second.end;
    const uint64_t next = Migrator::next_page(state_.mirror_fd, gap);
    if (next == kMirrorBytes) return;
    const auto range = state_.table.first_after(next);
    if (range != state_.table.end() && range->first <= next &&
        range->second.place == PagePlace::kMirror)
      continue;
    TextRoom room;
    Area behind;
    if (!next_area(gap, behind, room) || behind.start > next) guards_.put(gap);
  }
}

}  // namespace hostnic::memory
