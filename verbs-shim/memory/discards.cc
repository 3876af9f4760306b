// SPDX-License-Identifier: BSD-3-Clause
// Discards (MADV_DONTNEED) of pages of the mirror. For the kernel these are pages of a file, which
// it leaves as they are; the program has private memory there, and relies on zeros. A thread that
// discards, by whatever way, waits in the kernel until an event of a userfaultfd has been read: its
// reader makes the pages zeros before.
#include <algorithm>
#include <mutex>

#include "verbs-shim/memory/bare_calls.h"

namespace hostnic::memory {

// Called by the threads that read events. They wait for nobody who may wait for them: the lock is
// taken only if it is free. `mirror` is the thread's descriptor of it.
void BareCalls::before_discard(uint64_t start, uint64_t end, int mirror) {
  TextRoom room;
  end = first_locked(start, end, room);  // the kernel stops there
  Area area;
  for (uint64_t at = start; at < end && next_area(at, area, room) && area.start < end;
       at = area.end) {
    if (!state_.is_of_mirror(area)) continue;
    const uint64_t from = std::max(at, area.start), to = std::min(end, area.end);
    const uint64_t offset = area.offset + (from - area.start);
    discard_in_mirror(offset, offset + (to - from), mirror);
  }
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
