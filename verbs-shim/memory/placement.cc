// SPDX-License-Identifier: BSD-3-Clause
// Where the pages of a registration go, and how hostnicd is told.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <span>

#include "protocol/hostif/control_message.h"
#include "verbs-shim/memory/critical.h"
#include "verbs-shim/memory/shared_files.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

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

// Makes the memory exist, in this process and charged to it, before hostnicd maps it. Returns 0 or
// errno.
int populate(uint64_t start, uint64_t end, bool writable) {
  const int advice = writable ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
  for (int tries = 0; raw_madvise(pointer(start), end - start, advice) != 0; tries++) {
    if ((errno == EAGAIN || errno == EINTR) && tries < 100) continue;
    return errno;
  }
  return 0;
}

void append(RawVector<MemoryRegion>& regions, const MemoryRegion& region) {
  if (!regions.empty()) {
    MemoryRegion& last = regions.back();
    const bool joins = last.kind == region.kind && last.file_index == region.file_index &&
                       region.kind != RegionKind::kMirrorLate &&
                       (region.kind != RegionKind::kFile ||
                        last.file_offset + last.length_bytes == region.file_offset);
    if (joins) {
      last.length_bytes += region.length_bytes;
      return;
    }
  }
  regions.push_back(region);
}

// Whether nobody can map the file for writing any more, though the program has.
bool is_sealed(int fd) {
  const int seals = fcntl(fd, F_GET_SEALS);  // -1: the file can't have any
  return seals > 0 && (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) != 0;
}

}  // namespace

int prefetch(uint64_t va, uint64_t length_bytes, bool for_writing) {
  const int error = populate(page_down(va), page_up(va + length_bytes), for_writing);
  const int advice = for_writing ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
  // EINVAL also says that the kernel does not know the advice, which it then does for no memory at
  // all.
  const bool unknown =
      error == EINVAL && raw_madvise(pointer(page_down(va)), 0, advice) != 0 && errno == EINVAL;
  if (error == 0 || error == EAGAIN || error == EINTR || unknown) return 0;
  return EFAULT;
}

bool MemoryRegistrar::is_of_mirror(const Area& area) const {
  return area.shared && mirror_inode_ != 0 &&
         area.same_file_as(mirror_major_, mirror_minor_, mirror_inode_);
}
bool MemoryRegistrar::is_mirror(const Area& area) const {
  return area.offset == area.start && is_of_mirror(area);
}

// Whether pages may migrate now, which is looked at once for a registration.
bool MemoryRegistrar::may_migrate_now(Request& request) {
  using Alone = Request::Alone;
  if (request.alone == Alone::kUnknown) request.alone = may_move_pages() ? Alone::kYes : Alone::kNo;
  return request.alone == Alone::kYes;
}

void MemoryRegistrar::pin(Request& request) {
  for (const Area& area : request.areas) {
    const uint64_t start = std::max(area.start, request.first);
    const uint64_t end = std::min(area.end, request.last);
    pin_area(request, area, start, end);
  }
}

// Counts the pages in the table, also those that are not mapped: nothing here may migrate now or
// later, since a transfer by the mem fd that met the migration would fail.
void MemoryRegistrar::pin_on_demand(Request& request) {
  table_.split_at(request.first);
  table_.split_at(request.last);
  while (request.pinned_end < request.last) {
    const uint64_t at = request.pinned_end;
    const auto range = table_.first_after(at);
    if (range == table_.end() || range->first > at) {
      const uint64_t gap_end =
          range == table_.end() ? request.last : std::min(request.last, range->first);
      table_.insert(at, {gap_end, 1, PagePlace::kInPlace});
      request.pinned_end = gap_end;
    } else {
      range->second.registrations++;
      request.pinned_end = range->second.end;
    }
  }
}

// Counts [start, end) in the table; pages that are there for the first time may migrate.
void MemoryRegistrar::pin_area(Request& request, const Area& area, uint64_t start, uint64_t end) {
  table_.split_at(start);
  table_.split_at(end);
  if (!is_mirror(area))
    lose(start, end);  // the mirror's pages were replaced without our
                       // interposers seeing it
  uint64_t at = start;
  while (at < end) {
    const auto range = table_.first_after(at);
    if (range == table_.end() || range->first > at) {
      const uint64_t gap_end = range == table_.end() ? end : std::min(end, range->first);
      pin_new(request, area, at, gap_end);
      at = gap_end;
    } else {
      range->second.registrations++;
      at = request.pinned_end = range->second.end;
    }
  }
}

void MemoryRegistrar::pin_new(Request& request, const Area& area, uint64_t start, uint64_t end) {
  // Only whole pages of the registration migrate: what else is on its first and last page belongs
  // to others, who may rely on it across a fork. Pages that this thread's own stack frames occupy
  // do not.
  uint64_t low = std::max(start, page_up(request.va));
  const uint64_t high = std::min(end, page_down(request.va + request.length_bytes));
  if (area.above_guard && userfault_.mode() == UserfaultMode::kUserOnly)
    low = std::max(low, area.start + stack_allowance());
  const auto keep = [&](uint64_t to) {
    if (to <= request.pinned_end) return;
    table_.insert(request.pinned_end, {to, 1, PagePlace::kInPlace});
    request.pinned_end = to;
  };
  const auto move = [&](uint64_t from, uint64_t to) {
    if (from >= to) return;
    keep(from);
    migrate(request, area, from, to);
  };
  if (low < high && may_migrate(request, area)) {
    move(low, std::min(high, request.stack_low));
    move(std::max(low, request.stack_high), high);
  }
  keep(end);
}

// Whether the process has too many areas. Counting takes long in processes with many, so not each
// time; one migration makes at most four (what is left on both sides, the mirror's part, and the
// stash).
bool MemoryRegistrar::too_many_areas() {
  constexpr size_t kRecount = 256;
  if (adds_since_count_ == 0 || areas_counted_ + 4 * adds_since_count_ >= max_areas_) {
    areas_counted_ = count_areas();
    adds_since_count_ = 0;
  }
  adds_since_count_ = adds_since_count_ == kRecount ? 0 : adds_since_count_ + 1;
  return areas_counted_ >= max_areas_;
}

// Whether an area may migrate; the reason why not is remembered for status() and for
// HOSTNIC_MEMORY=window.
bool MemoryRegistrar::may_migrate(Request& request, const Area& area) {
  if (area.shared || is_mirror(area)) return false;
  const char* why = nullptr;
  if (!can_migrate())
    why = "migration is not possible here";
  else if (area.inode != 0)
    why = "private mapping of a file";
  else if ((area.prot & PROT_EXEC) != 0)
    why = "executable memory";
  else if (area.is_main_stack())
    why = "the main thread's stack";
  else if (area.locked)
    why = "memory locked by mlock";
  else if (request.process.pinned_kb != 0)
    why = "the process has memory registered with another adapter or io_uring";
  else if (!mirror_watch_.runs())
    why = mirror_watch_.error();
  else if (!may_migrate_now(request))
    why = "other threads run, whose system calls could meet pages on their way";
  else if (too_many_areas())
    why = "the process has too many areas; raise vm.max_map_count";
  if (why != nullptr) set_reason("%s", why);
  return why == nullptr;
}

// Large memory moves aside at once and is copied later; the edges that are no whole slices are
// copied now.
void MemoryRegistrar::migrate(Request& request, const Area& area, uint64_t start, uint64_t end) {
  watch_.unwatch(start, end);  // a page can have one userfaultfd only
  const uint64_t first = slice_up(start), last = slice_down(end);
  const bool late = late_.runs() && late_wanted_ && request.arrival == Arrival::kMayBeLate &&
                    request.length_bytes >= kLateBytes && first < last &&
                    !late_.stands_in(first, last);
  if (!late) return migrate_now(request, area, start, end);
  if (first > start) migrate_now(request, area, start, first);
  if (first > start && request.pinned_end != first) return;
  const bool moved = migrate_late(request, area, first, last);
  if (moved && last == end) return;
  migrate_now(request, area, moved ? last : first, end);
}

// What has migrated must get into the tables.
void MemoryRegistrar::reserve_for_migration() {
  table_.reserve(1);
  mirror_watch_.reserve();
}

void MemoryRegistrar::migrate_now(Request& request, const Area& area, uint64_t start,
                                  uint64_t end) {
  reserve_for_migration();
  const auto moved = migrator_.move_to_mirror(start, end, area.prot);
  if (moved.error != 0)
    set_reason("%s", moved.error == EBUSY    ? "the program uses userfaultfd on this memory itself"
                     : moved.error == EAGAIN ? "mlockall is in force and its limit is reached"
                                             : std::strerror(moved.error));
  if (moved.end == start) return;
  migrated(request, start, {moved.end, 1, PagePlace::kMirror, area.prot, moved.stash_delta});
}

// Moves whole slices aside. Returns false if that is not possible, and nothing has changed.
bool MemoryRegistrar::migrate_late(Request& request, const Area& area, uint64_t start,
                                   uint64_t end) {
  reserve_for_migration();
  migrator_.prepare(start, area.prot);
  const uint64_t delta = Migrator::reserve_stash(start, end);
  if (delta == 0) return false;
  if (late_.move_aside(start, end, delta, mirror_fd_, area.prot, userfault_) != 0) {
    raw_munmap(pointer(start + delta), end - start);
    return false;
  }
  migrated(request, start, {end, 1, PagePlace::kMirror, area.prot, delta});
  return true;
}

void MemoryRegistrar::migrated(Request& request, uint64_t start, const PageRange& range) {
  table_.insert(start, range);
  mirror_watch_.claim(start, range.end);
  request.pinned_end = range.end;
  counters_.in_mirror_bytes += range.end - start;
  counters_.migrations++;
}

Failure MemoryRegistrar::describe(const Request& request, Described& described) {
  const MemoryRegion whole{request.va, request.length_bytes, RegionKind::kMemFd, 0, 0};
  if (request.paging == Paging::kOnDemand) {
    described.regions.push_back(whole);
    return {};
  }
  for (const Area& area : request.areas) {
    uint64_t at = std::max(area.start, request.first);
    const uint64_t area_end = std::min(area.end, request.last);
    while (at < area_end) {
      const auto range = table_.first_after(at);
      const uint64_t end = std::min(area_end, range->second.end);
      // Pages on their way out of the mirror are no longer to be reached there.
      const PageRange& pages = range->second;
      const PagePlace place =
          pages.by_mem_fd && pages.place == PagePlace::kMirror ? PagePlace::kLost : pages.place;
      if (Failure failed = describe_part(request, area, place, at, end, described)) return failed;
      at = end;
    }
  }
  const std::span<const MemoryRegion> regions(described.regions.data(), described.regions.size());
  if (regions.size() <= kMaxRegionsPerMr &&
      covers_exactly(regions, request.va, request.length_bytes))
    return {};
  // The registration is a patchwork, or changed while it was looked at. The mem fd reaches all of
  // it, once it is filled.
  if (const int error = late_.fill(request.first, request.last); error != 0)
    return failure(error, "its pages can't be copied: %s", std::strerror(error));
  described.regions.clear();
  described.files.clear();
  for (const uint64_t place : described.pins) unpin_shared(place);
  described.pins.clear();
  described.regions.push_back(whole);
  return {};
}

Failure MemoryRegistrar::describe_part(const Request& request, const Area& area, PagePlace place,
                                       uint64_t start, uint64_t end, Described& described) {
  const uint64_t first = std::max(start, request.va);
  const uint64_t last = std::min(end, request.va + request.length_bytes);
  if (place == PagePlace::kMirror) return describe_mirror(request, area, start, end, described);
  const MemoryRegion region{first, last - first, RegionKind::kMemFd, 0, 0};
  if (area.shared && mode_ != MemoryMode::kMemFd &&
      describe_file(request, area, start, end, described))
    return {};
  if (mode_ == MemoryMode::kFile && area.shared)
    return failure(EOPNOTSUPP, "HOSTNIC_MEMORY=file, but no descriptor or path leads to the file");
  const bool whole_pages = start >= request.va && end <= request.va + request.length_bytes;
  if (mode_ == MemoryMode::kMirror && !area.shared && place == PagePlace::kInPlace && whole_pages)
    return failure(EOPNOTSUPP, "HOSTNIC_MEMORY=window, but it can't migrate: %s",
                   reason_[0] != '\0' ? reason_ : "it is registered in place already");
  if (area.shared && !is_of_mirror(area)) pin_shared(area, start, end, described);
  append(described.regions, region);
  return {};
}

// Describes pages of the mirror: whole slices that lie aside as late, slices that lie aside and are
// in the registration only in part are filled.
Failure MemoryRegistrar::describe_mirror(const Request& request, const Area& area, uint64_t start,
                                         uint64_t end, Described& described) {
  const uint64_t first = std::max(start, request.va);
  const uint64_t last = std::min(end, request.va + request.length_bytes);
  LateFill::Part part;
  for (uint64_t at = start; at < end;) {
    late_.next_aside(at, end, part);
    const uint64_t from = slice_up(std::max(part.start, first));
    const uint64_t to = slice_down(std::min(part.end, last));
    uint32_t file = 0;
    const bool late = from < to && find_fill_map(described, file);
    const uint64_t filled_end = late ? from : part.end;
    if (Failure failed = describe_filled(request, area, at, filled_end, described)) return failed;
    at = filled_end;
    if (!late) continue;
    described.regions.push_back(
        {from, to - from, RegionKind::kMirrorLate, file, part.map_offset(from)});
    at = to;
  }
  return {};
}

Failure MemoryRegistrar::describe_filled(const Request& request, const Area& area, uint64_t start,
                                         uint64_t end, Described& described) {
  if (start >= end) return {};
  const uint64_t first = std::max(start, request.va);
  const uint64_t last = std::min(end, request.va + request.length_bytes);
  int error = late_.fill(start, end);
  if (error == 0) error = populate(start, end, (area.prot & PROT_WRITE) != 0);
  if (error != 0) return failure(error, "its pages can't be allocated: %s", std::strerror(error));
  append(described.regions, {first, last - first, RegionKind::kMirror, 0, 0});
  return {};
}

// Has the fill map sent along. Returns false where that is not possible.
bool MemoryRegistrar::find_fill_map(Described& described, uint32_t& index) const {
  const auto known = std::ranges::find_if(
      described.files, [](const Described::File& file) { return file.is_fill_map; });
  index = static_cast<uint32_t>(known - described.files.begin());
  if (known != described.files.end()) return true;
  Described::File file{UniqueFd(late_.duplicate_map())};
  file.is_fill_map = true;
  if (file.fd.get() < 0 || described.files.size() == kMaxControlFds) return false;
  described.files.push_back(std::move(file));
  return true;
}

// Marks ranges that are reached by the mem fd, and has their end noticed as far as the kernel can
// tell.
void MemoryRegistrar::watch(const Described& described) {
  RawVector<Area> areas;  // as they are now: what has migrated is an area of its own
  const MemoryRegion &first = described.regions.front(), &last = described.regions.back();
  read_areas(page_down(first.va), page_up(last.va + last.length_bytes), areas);
  for (const MemoryRegion& region : described.regions) {
    if (region.kind != RegionKind::kMemFd) continue;
    const uint64_t start = page_down(region.va), end = page_up(region.va + region.length_bytes);
    uint64_t at = start;
    for (const Area& area : areas) {
      const uint64_t from = std::max(at, area.start), to = std::min(end, area.end);
      if (from >= to || !is_pinned(described, from, to)) continue;
      watch_unpinned(areas, at, from);
      at = to;
    }
    watch_unpinned(areas, at, end);
  }
}

void MemoryRegistrar::watch_unpinned(const RawVector<Area>& areas, uint64_t start, uint64_t end) {
  if (start >= end) return;
  table_.split_at(start);
  table_.split_at(end);
  for (auto it = table_.first_after(start); it != table_.end() && it->first < end; ++it)
    it->second.by_mem_fd = true;
  watch_range(areas, start, end);
}

void MemoryRegistrar::watch_range(const RawVector<Area>& areas, uint64_t start, uint64_t end) {
  for (const Area& area : areas)
    if (area.start < end && start < area.end && !is_of_mirror(area))
      watch_.watch(area.start, area.end);
}

// Describes a file; returns false where that is not possible, and the mem fd is taken.
bool MemoryRegistrar::describe_file(const Request& request, const Area& area, uint64_t start,
                                    uint64_t end, Described& described) {
  const bool writable = (area.prot & PROT_WRITE) != 0;
  size_t index = 0;
  while (index < described.files.size()) {
    const Described::File& file = described.files[index];
    if (!file.is_fill_map && file.inode == area.inode && file.device_major == area.device_major &&
        file.device_minor == area.device_minor && file.writable == writable)
      break;
    index++;
  }
  if (index == described.files.size()) {
    if (index == kMaxControlFds) return false;
    Described::File file{UniqueFd(open_shared_file(area)),
                         area.device_major,
                         area.device_minor,
                         area.inode,
                         0,
                         writable,
                         false};
    struct stat status {};
    if (file.fd.get() < 0 || fstat(file.fd.get(), &status) != 0) return false;
    if (writable && is_sealed(file.fd.get())) return false;
    file.size_bytes = static_cast<uint64_t>(status.st_size);
    described.files.push_back(std::move(file));
  }
  const uint64_t first = std::max(start, request.va);
  const uint64_t last = std::min(end, request.va + request.length_bytes);
  if (area.offset + (last - area.start) > described.files[index].size_bytes) return false;
  if (populate(start, end, writable) != 0) return false;
  append(described.regions, {first, last - first, RegionKind::kFile, static_cast<uint32_t>(index),
                             area.offset + (first - area.start)});
  return true;
}

}  // namespace hostnic::memory
