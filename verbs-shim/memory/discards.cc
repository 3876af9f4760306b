// SPDX-License-Identifier: BSD-3-Clause
// Discards (MADV_DONTNEED) of pages of the mirror. For the kernel these are pages of a file, which
// it leaves as they are; the program has private memory there, and relies on zeros. A thread that
// discards, by whatever way, waits in the kernel until an event of a userfaultfd has been read: its
// reader makes the pages zeros before.
#include <algorithm>
#include <mutex>

#include "verbs-shim/memory/bare_calls.h"

namespace hostnic::memory {

void BareCalls::settle_discard(const BlockedCall& call, const EventReader& reader) {
  Discard discard;
  for (size_t index = 0; find_discard(call, index, discard); index++) {
    if (settled_discard_.covers(call, discard, state_.migrations_begun.load())) return;
    if (reader.is_late_fill) state_.late.drop(discard.start, discard.end);
    if (!before_discard(discard, reader.mirror)) return;
  }
}

// Called by the threads that read events. They wait for nobody who may wait for them: the lock is
// taken only if it is free. `mirror` is the thread's descriptor of it.
bool BareCalls::before_discard(const Discard& discard, int mirror) {
  TextRoom room;
  // The kernel stops at locked memory; of several ranges it stops behind one that has holes.
  const uint64_t end =
      discard.of_locked ? discard.end : first_locked(discard.start, discard.end, room);
  Area area;
  uint64_t at = discard.start;
  bool has_holes = false;
  for (; at < end && next_area(at, area, room) && area.start < end; at = area.end) {
    has_holes |= area.start > at;
    if (!state_.is_of_mirror(area)) continue;
    const uint64_t from = std::max(at, area.start), to = std::min(end, area.end);
    const uint64_t offset = area.offset + (from - area.start);
    discard_in_mirror(offset, offset + (to - from), mirror);
  }
  return at >= discard.end && !has_holes;
}

// Pages that a key leads to stay where they are, and become zeros: hostnicd's mapping of another
// user's memory must not meet a hole. What nobody has registered is freed.
void BareCalls::discard_in_mirror(uint64_t start, uint64_t end, int mirror) {
  bool registered = true;
  if (const std::unique_lock lock(state_.mutex, std::try_to_lock); lock.owns_lock())
    registered = state_.any_registered(start, end);
  if (!registered || !Migrator::clear(mirror, start, end)) Migrator::punch(mirror, start, end);
}

}  // namespace hostnic::memory
