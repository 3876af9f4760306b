// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/memory/description.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <span>

#include "protocol/hostif/control_message.h"
#include "verbs-shim/memory/prefetch.h"
#include "verbs-shim/memory/shared_files.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

namespace hostnic::memory {
namespace {

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

Failure Description::describe(const Request& request, Described& described) {
  const MemoryRegion whole{request.va, request.length_bytes, RegionKind::kMemFd, 0, 0};
  if (request.paging == Paging::kOnDemand) {
    described.regions.push_back(whole);
    return {};
  }
  for (const Area& area : request.areas) {
    uint64_t at = std::max(area.start, request.first);
    const uint64_t area_end = std::min(area.end, request.last);
    while (at < area_end) {
      const auto range = state_.table.first_after(at);
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
  if (const int error = state_.late.fill(request.first, request.last); error != 0)
    return failure(error, "its pages can't be copied: %s", std::strerror(error));
  described.regions.clear();
  described.files.clear();
  pins_.let_go_all(described);
  described.regions.push_back(whole);
  return {};
}

Failure Description::describe_part(const Request& request, const Area& area, PagePlace place,
                                   uint64_t start, uint64_t end, Described& described) {
  const uint64_t first = std::max(start, request.va);
  const uint64_t last = std::min(end, request.va + request.length_bytes);
  if (request.lost_pages == LostPages::kRefused) {
    if (area.shared && describe_file(request, area, start, end, described)) return {};
    return failure(EOPNOTSUPP, "hostnicd can't map the file, and no other way hears of its end");
  }
  if (place == PagePlace::kMirror) return describe_mirror(request, area, start, end, described);
  const MemoryRegion region{first, last - first, RegionKind::kMemFd, 0, 0};
  // Pages of the mirror at home may be about to leave it.
  if (area.shared && state_.mode != MemoryMode::kMemFd && !state_.is_mirror(area) &&
      describe_file(request, area, start, end, described)) {
    if (state_.is_of_mirror(area)) note_by_file(start, end);
    return {};
  }
  if (state_.mode == MemoryMode::kFile && area.shared)
    return failure(EOPNOTSUPP, "HOSTNIC_MEMORY=file, but no descriptor or path leads to the file");
  const bool whole_pages = start >= request.va && end <= request.va + request.length_bytes;
  if (state_.mode == MemoryMode::kMirror && !area.shared && place == PagePlace::kInPlace &&
      whole_pages)
    return failure(EOPNOTSUPP, "HOSTNIC_MEMORY=window, but it can't migrate: %s",
                   state_.reason[0] != '\0' ? state_.reason : "it is registered in place already");
  if (area.shared && !state_.is_of_mirror(area)) {
    // The kernel lets nobody pin it for an adapter either: memfd_secret, registers of devices.
    if (std::byte byte{}; pread(state_.mem_fd, &byte, 1, static_cast<off_t>(first)) < 0)
      return failure(EFAULT, "the kernel lets no other process reach it: %s", std::strerror(errno));
    pins_.keep(area, start, end, described);
  }
  append(described.regions, region);
  return {};
}

// These have moved, and may not come home as long as they are registered.
void Description::note_by_file(uint64_t start, uint64_t end) {
  state_.table.split_at(start);
  state_.table.split_at(end);
  for (auto it = state_.table.first_after(start); it != state_.table.end() && it->first < end; ++it)
    it->second.by_file = true;
}

// Describes pages of the mirror: whole slices that lie aside as late, slices that lie aside and are
// in the registration only in part are filled.
Failure Description::describe_mirror(const Request& request, const Area& area, uint64_t start,
                                     uint64_t end, Described& described) {
  const uint64_t first = std::max(start, request.va);
  const uint64_t last = std::min(end, request.va + request.length_bytes);
  AsideTable::Part part;
  for (uint64_t at = start; at < end;) {
    state_.late.asides().next_aside(at, end, part);
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

Failure Description::describe_filled(const Request& request, const Area& area, uint64_t start,
                                     uint64_t end, Described& described) {
  if (start >= end) return {};
  const uint64_t first = std::max(start, request.va);
  const uint64_t last = std::min(end, request.va + request.length_bytes);
  int error = state_.late.fill(start, end);
  if (error == 0) error = populate(start, end, (area.prot & PROT_WRITE) != 0);
  if (error != 0) return failure(error, "its pages can't be allocated: %s", std::strerror(error));
  append(described.regions, {first, last - first, RegionKind::kMirror, 0, 0});
  return {};
}

// Has the fill map sent along. Returns false where that is not possible.
bool Description::find_fill_map(Described& described, uint32_t& index) const {
  const auto known = std::ranges::find_if(
      described.files, [](const Described::File& file) { return file.is_fill_map; });
  index = static_cast<uint32_t>(known - described.files.begin());
  if (known != described.files.end()) return true;
  Described::File file{UniqueFd(state_.late.asides().duplicate_map())};
  file.is_fill_map = true;
  if (file.fd.get() < 0 || described.files.size() == kMaxControlFds) return false;
  described.files.push_back(std::move(file));
  return true;
}

void Description::watch(const Described& described) {
  RawVector<Area> areas;  // as they are now: what has migrated is an area of its own
  const MemoryRegion &first = described.regions.front(), &last = described.regions.back();
  read_areas(page_down(first.va), page_up(last.va + last.length_bytes), areas);
  for (const MemoryRegion& region : described.regions) {
    if (region.kind != RegionKind::kMemFd) continue;
    const uint64_t start = page_down(region.va), end = page_up(region.va + region.length_bytes);
    uint64_t at = start;
    for (const Area& area : areas) {
      const uint64_t from = std::max(at, area.start), to = std::min(end, area.end);
      if (from >= to || !pins_.is_kept(described, from, to)) continue;
      watch_unpinned(areas, at, from);
      at = to;
    }
    watch_unpinned(areas, at, end);
  }
}

void Description::watch_unpinned(const RawVector<Area>& areas, uint64_t start, uint64_t end) {
  if (start >= end) return;
  state_.table.split_at(start);
  state_.table.split_at(end);
  for (auto it = state_.table.first_after(start); it != state_.table.end() && it->first < end; ++it)
    it->second.by_mem_fd = true;
  state_.watch_range(areas, start, end);
}

// Describes a file; returns false where that is not possible, and the mem fd is taken.
bool Description::describe_file(const Request& request, const Area& area, uint64_t start,
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
