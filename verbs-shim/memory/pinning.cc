// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/memory/pinning.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "protocol/hostif/memory_region.h"
#include "verbs-shim/memory/own_variables.h"

namespace hostnic::memory {
namespace {

// The size above a guard page that is taken for stack: in user-mode-only mode a page of a running
// stack must not be stopped, and a thread's stack may have merged with what was mapped behind it.
uint64_t stack_allowance() {
  constexpr uint64_t kUsual = 8 << 20;
  rlimit limit{};
  if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kUsual;
  return std::max<uint64_t>(kUsual, page_up(limit.rlim_cur));
}

}  // namespace

// Whether pages may migrate now, which is looked at once for a registration.
bool Pinning::may_migrate_now(Request& request) {
  using Alone = Request::Alone;
  if (request.alone == Alone::kUnknown)
    request.alone = state_.may_move_pages() ? Alone::kYes : Alone::kNo;
  return request.alone == Alone::kYes;
}

void Pinning::pin(Request& request) {
  for (const Area& area : request.areas) {
    const uint64_t start = std::max(area.start, request.first);
    const uint64_t end = std::min(area.end, request.last);
    pin_area(request, area, start, end);
  }
}

void Pinning::pin_on_demand(Request& request) {
  state_.table.split_at(request.first);
  state_.table.split_at(request.last);
  while (request.pinned_end < request.last) {
    const uint64_t at = request.pinned_end;
    const auto range = state_.table.first_after(at);
    if (range == state_.table.end() || range->first > at) {
      const uint64_t gap_end =
          range == state_.table.end() ? request.last : std::min(request.last, range->first);
      state_.table.insert(at, {gap_end, 1, PagePlace::kInPlace});
      request.pinned_end = gap_end;
    } else {
      range->second.registrations++;
      request.pinned_end = range->second.end;
    }
  }
}

// Counts [start, end) in the table; pages that are there for the first time may migrate.
void Pinning::pin_area(Request& request, const Area& area, uint64_t start, uint64_t end) {
  state_.table.split_at(start);
  state_.table.split_at(end);
  if (!state_.is_mirror(area))
    release_.lose(start, end);  // the mirror's pages were replaced without our
                                // interposers seeing it
  uint64_t at = start;
  while (at < end) {
    const auto range = state_.table.first_after(at);
    if (range == state_.table.end() || range->first > at) {
      const uint64_t gap_end = range == state_.table.end() ? end : std::min(end, range->first);
      pin_new(request, area, at, gap_end);
      at = gap_end;
    } else {
      range->second.registrations++;
      at = request.pinned_end = range->second.end;
    }
  }
}

void Pinning::pin_new(Request& request, const Area& area, uint64_t start, uint64_t end) {
  // Only whole pages of the registration migrate: what else is on its first and last page belongs
  // to others, who may rely on it across a fork. Pages that this thread's own stack frames and
  // variables occupy do not.
  uint64_t low = std::max(start, page_up(request.va));
  const uint64_t high = std::min(end, page_down(request.va + request.length_bytes));
  if (area.above_guard && state_.userfault.mode() == UserfaultMode::kUserOnly)
    low = std::max(low, area.start + stack_allowance());
  const auto keep = [&](uint64_t to) {
    if (to <= request.pinned_end) return;
    state_.table.insert(request.pinned_end, {to, 1, PagePlace::kInPlace});
    request.pinned_end = to;
  };
  const auto move = [&](uint64_t from, uint64_t to) {
    if (from >= to) return;
    keep(from);
    migrate(request, area, from, to);
  };
  if (low < high && may_migrate(request, area)) {
    const ThreadPages stack{request.stack_low, request.stack_high}, variables = own_thread_pages();
    const bool stack_first = stack.start < variables.start;
    for (const ThreadPages& own :
         {stack_first ? stack : variables, stack_first ? variables : stack}) {
      move(low, std::min(high, own.start));
      low = std::max(low, own.end);
    }
    move(low, high);
  }
  keep(end);
}

// Whether the process has too many areas. Counting takes long in processes with many, so not each
// time; one migration makes at most four (what is left on both sides, the mirror's part, and the
// stash).
bool Pinning::too_many_areas() {
  constexpr size_t kRecount = 256;
  if (adds_since_count_ == 0 || areas_counted_ + 4 * adds_since_count_ >= state_.max_areas) {
    areas_counted_ = count_areas();
    adds_since_count_ = 0;
  }
  adds_since_count_ = adds_since_count_ == kRecount ? 0 : adds_since_count_ + 1;
  return areas_counted_ >= state_.max_areas;
}

// Whether an area may migrate; the reason why not is remembered for status() and for
// HOSTNIC_MEMORY=window.
bool Pinning::may_migrate(Request& request, const Area& area) {
  if (area.shared || state_.is_mirror(area)) return false;
  const char* why = nullptr;
  if (!state_.can_migrate())
    why = "migration is not possible here";
  else if (area.inode != 0)
    why = "private mapping of a file";
  else if ((area.prot & PROT_EXEC) != 0)
    why = "executable memory";
  else if (area.is_main_stack())
    why = "the main thread's stack";
  else if (holds_own_variables(area.start, area.end))
    why = "variables of the C library's";
  else if (area.locked)
    why = "memory locked by mlock";
  else if (request.process.pinned_kb != 0)
    why = "the process has memory registered with another adapter or io_uring";
  else if (!state_.mirror_watch.runs())
    why = state_.mirror_watch.error();
  else if (!may_migrate_now(request))
    why = "other threads run, whose system calls could meet pages on their way";
  else if (too_many_areas())
    why = "the process has too many areas; raise vm.max_map_count";
  if (why != nullptr) state_.set_reason("%s", why);
  return why == nullptr;
}

// Large memory moves aside at once and is copied later; the edges that are no whole slices are
// copied now.
void Pinning::migrate(Request& request, const Area& area, uint64_t start, uint64_t end) {
  // While the area is whole: parts that are watched differently would each get an anon_vma.
  Migrator::prepare(start, area.prot);
  state_.watch.unwatch(start, end);  // a page can have one userfaultfd only
  const uint64_t first = slice_up(start), last = slice_down(end);
  const bool late = state_.late.runs() && state_.late_wanted &&
                    request.arrival == Arrival::kMayBeLate && request.length_bytes >= kLateBytes &&
                    first < last && !state_.late.stands_in(first, last);
  if (!late) return migrate_now(request, area, start, end);
  if (first > start) migrate_now(request, area, start, first);
  if (first > start && request.pinned_end != first) return;
  const bool moved = migrate_late(request, area, first, last);
  if (moved && last == end) return;
  migrate_now(request, area, moved ? last : first, end);
}

// What has migrated must get into the tables.
void Pinning::begin_migration() {
  state_.table.reserve(1);
  state_.mirror_watch.reserve();
  state_.moved_views.reserve(state_.moved_views.size() + 1);
  state_.migrations_begun.fetch_add(1);
}

void Pinning::migrate_now(Request& request, const Area& area, uint64_t start, uint64_t end) {
  begin_migration();
  const auto moved = state_.migrator.move_to_mirror(start, end, area.prot);
  if (moved.error != 0)
    state_.set_reason("%s",
                      moved.error == EBUSY    ? "the program uses userfaultfd on this memory itself"
                      : moved.error == EAGAIN ? "mlockall is in force and its limit is reached"
                                              : std::strerror(moved.error));
  if (moved.end == start) return;
  migrated(request, start, {moved.end, 1, PagePlace::kMirror, area.prot, moved.stash_delta});
}

// Moves whole slices aside. Returns false if that is not possible, and nothing has changed.
bool Pinning::migrate_late(Request& request, const Area& area, uint64_t start, uint64_t end) {
  begin_migration();
  state_.migrator.prepare(start, area.prot);
  const uint64_t delta = Migrator::reserve_stash(start, end);
  if (delta == 0) return false;
  if (state_.late.move_aside(start, end, delta, state_.mirror_fd, area.prot, state_.userfault) !=
      0) {
    raw_munmap(pointer(start + delta), end - start);
    return false;
  }
  migrated(request, start, {end, 1, PagePlace::kMirror, area.prot, delta});
  return true;
}

void Pinning::migrated(Request& request, uint64_t start, const PageRange& range) {
  state_.table.insert(start, range);
  state_.forget_views(start, range.end);
  state_.mirror_watch.claim(start, range.end);
  request.pinned_end = range.end;
  state_.counters.in_mirror_bytes += range.end - start;
  state_.counters.migrations++;
  state_.has_migrated.store(true);
}

}  // namespace hostnic::memory
