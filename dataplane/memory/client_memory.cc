// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/memory/client_memory.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <utility>

#include "dataplane/memory/hole_guard.h"
#include "dataplane/memory/sigbus.h"
#include "dataplane/memory/steps.h"
#include "protocol/hostif/file_pages.h"

namespace hostnic {
namespace {

constexpr uint64_t kPageBytes = 4096;
constexpr uint64_t kHugePageBytes = uint64_t{2} << 20;
// Files are mapped in pieces that begin at multiples of this: few areas, and one page of a client
// has one host address whatever registrations it belongs to.
constexpr uint64_t kChunkBytes = uint64_t{1} << 30;
// Most mappings of one client: enough for two terabytes, and a part of what all clients share.
constexpr size_t kMaxMappings = kClientMappings / 8;

constexpr uint64_t align_down(uint64_t v, uint64_t to) { return v & ~(to - 1); }
constexpr uint64_t align_up(uint64_t v, uint64_t to) { return align_down(v + to - 1, to); }

std::string describe(const MemoryRegion& region) {
  char text[64];
  std::snprintf(text, sizeof(text),
                "region 0x%llx+%llu: ", static_cast<unsigned long long>(region.va),
                static_cast<unsigned long long>(region.length_bytes));
  return text;
}

Unexpected<std::string> refuse(const MemoryRegion& region, const std::string& why) {
  return Unexpected(describe(region) + why);
}

// Whether pieces are too much for one step.
bool are_long(std::span<const MappedPiece> pieces) {
  uint64_t mapped_bytes = 0;
  for (const MappedPiece& piece : pieces)
    if (piece.mapping() != nullptr) mapped_bytes += piece.length_bytes;
  return mapped_bytes > kMappingStepBytes;
}

// Whether every page of [offset, end) has memory already. Otherwise hostnicd would allocate (and be
// charged for) what a client names. hugetlbfs does not report holes.
bool populated(int fd, uint64_t offset, uint64_t end) {
  return end_of_pages(fd, offset, end) >= end;
}

// Reserves addresses, beginning at a multiple of `alignment`, so that huge pages of the file can be
// mapped as such; null when there is no address space.
std::byte* reserve(uint64_t length_bytes, uint64_t alignment) {
  const uint64_t total = length_bytes + alignment;
  void* all = mmap(nullptr, total, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (all == MAP_FAILED) return nullptr;
  const auto begin = reinterpret_cast<uintptr_t>(all);
  const uintptr_t aligned = align_up(begin, alignment);
  if (aligned > begin) munmap(all, aligned - begin);
  const uintptr_t tail = begin + total - (aligned + length_bytes);
  if (tail > 0) munmap(reinterpret_cast<void*>(aligned + length_bytes), tail);
  return reinterpret_cast<std::byte*>(aligned);
}

}  // namespace

// A file that pieces are mapped from.
struct ClientMemory::Source {
  int fd = -1;
  uint32_t space_id = 0;
  uint64_t size_bytes = 0;
  uint64_t page_bytes = kPageBytes;
  bool writable = true;
  bool revocable = false;  // pages that the file has lost are not made anew
};

struct ClientMemory::Mapping {
  std::byte* host = nullptr;
  uint64_t offset = 0, length_bytes = 0;  // in the file
  uint64_t page_bytes = kPageBytes;
  // The bytes of all pieces that ever used the mapping: no more can be populated.
  uint64_t brought_bytes = 0;
  uint32_t space_id = 0;  // the number of the file, of which this has a reference
  bool writable = true;
  bool revocable = false;
  uint32_t users = 0;  // number of pieces that use it
  PageTables tables = {};
};

ClientMemory::ClientMemory(int mirror_fd, std::atomic<bool>* cut_off, const MemoryTerms& terms)
    : mirror_fd_(fcntl(mirror_fd, F_DUPFD_CLOEXEC, 0)), cut_off_(cut_off), terms_(terms) {
  struct stat file {};
  if (mirror_fd_ >= 0 && fstat(mirror_fd_, &file) == 0)
    mirror_space_ = MemorySpaces::acquire(file.st_dev, file.st_ino);
}

ClientMemory::~ClientMemory() {
  while (!by_host_.empty()) {
    Mapping& mapping = *by_host_.begin()->second;
    mapping.users = 1;
    release(mapping.host);
  }
  if (mirror_space_ != 0) MemorySpaces::release(mirror_space_);
  if (mirror_fd_ >= 0) close(mirror_fd_);
}

Expected<std::vector<MappedPiece>, std::string> ClientMemory::map(
    std::span<const MemoryRegion> regions, std::span<const int> fds, bool need_write,
    bool revocable) {
  refusal_ = mirror_space_ == 0 ? ENOMEM : EINVAL;
  limit_met_.clear();
  if (mirror_space_ == 0) return Error("no mirror: hostnicd ran out of descriptors");
  if (regions.empty()) return Error("registration without regions");
  const MemoryRegion& last = regions.back();
  if (!covers_exactly(regions, regions.front().va,
                      last.va + last.length_bytes - regions.front().va))
    return Error("regions overlap, have gaps, or wrap around");
  if (last.va + last.length_bytes > kMirrorBytes) return refuse(last, "beyond user addresses");
  // A packet of a page's length then touches two or three of them, however many there are.
  for (const MemoryRegion& region : regions.subspan(1))
    if (region.va % kPageBytes != 0) return refuse(region, "begins inside a page");
  std::optional<ShortMapping> short_mapping(std::in_place);
  std::vector<MappedPiece> pieces;
  for (const MemoryRegion& region : regions) {
    if (auto mapped = map_region(region, fds, need_write, revocable, pieces); !mapped) {
      short_mapping.reset();
      unmap(pieces);
      return Error(mapped.error());
    }
  }
  return pieces;
}

Expected<void, std::string> ClientMemory::map_region(const MemoryRegion& region,
                                                     std::span<const int> fds, bool need_write,
                                                     bool revocable,
                                                     std::vector<MappedPiece>& pieces) {
  switch (region.kind) {
    case RegionKind::kMemFd:
      if (!pieces.empty() && pieces.back().by_mem_fd()) {
        pieces.back().length_bytes += region.length_bytes;
        return {};
      }
      pieces.push_back({region.va, region.length_bytes, nullptr, mirror_space_, region.va, true});
      return {};
    case RegionKind::kMirror: {
      MemoryRegion at_va = region;
      at_va.file_offset = region.va;
      if (!populated(mirror_fd_, align_down(region.va, kPageBytes),
                     region.va + region.length_bytes))
        return refuse(region, "has pages that are not in the mirror");
      return map_source(mirror_source(), at_va, pieces);
    }
    case RegionKind::kFile: {
      auto source = open_file_source(region, fds, need_write);
      if (!source) return Error(source.error());
      source->revocable = revocable;
      auto mapped = map_source(*source, region, pieces);
      MemorySpaces::release(source->space_id);  // the mappings hold references of their own
      return mapped;
    }
    case RegionKind::kMirrorLate:
      return map_late(region, fds, pieces);
  }
  return refuse(region, "unknown kind");
}

Expected<ClientMemory::Source, std::string> ClientMemory::open_file_source(
    const MemoryRegion& region, std::span<const int> fds, bool need_write) const {
  if (region.file_index >= fds.size()) return refuse(region, "names a file that was not sent");
  const int fd = fds[region.file_index];
  uint64_t end = 0;
  if (__builtin_add_overflow(region.file_offset, region.length_bytes, &end))
    return refuse(region, "file offset wraps around");
  if (region.file_offset % kPageBytes != region.va % kPageBytes)
    return refuse(region, "file offset is not congruent with the address");
  struct stat file {};
  struct statfs fs {};
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || fstat(fd, &file) != 0 || fstatfs(fd, &fs) != 0)
    return refuse(region, "unusable descriptor");
  // The file must be memory: a page of a disk, network or FUSE file could keep an lcore waiting for
  // ever.
  if (!S_ISREG(file.st_mode) || (fs.f_type != TMPFS_MAGIC && fs.f_type != HUGETLBFS_MAGIC))
    return refuse(region, "not a file of tmpfs or hugetlbfs");
  if ((flags & O_PATH) != 0 || (flags & O_ACCMODE) == O_WRONLY)
    return refuse(region, "descriptor is not readable");
  const int seals = fcntl(fd, F_GET_SEALS);  // -1: the file can't have any
  const bool sealed = seals > 0 && (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) != 0;
  const bool writable = (flags & O_ACCMODE) == O_RDWR && !sealed;
  if (need_write && !writable)
    return refuse(region, "file was opened read-only, or is sealed against writing");
  const bool huge = fs.f_type == HUGETLBFS_MAGIC;
  const uint64_t page_bytes = huge ? static_cast<uint64_t>(fs.f_bsize) : kPageBytes;
  if (page_bytes == 0 || (page_bytes & (page_bytes - 1)) != 0)
    return refuse(region, "odd page size");
  const uint64_t size = static_cast<uint64_t>(file.st_size);
  if (end > size) return refuse(region, "reaches beyond the end of its file");
  if (!huge && !populated(fd, align_down(region.file_offset, kPageBytes), end))
    return refuse(region, "has pages that were not populated");
  return Source{fd, MemorySpaces::acquire(file.st_dev, file.st_ino), size, page_bytes, writable};
}

ClientMemory::Source ClientMemory::mirror_source() const {
  return {mirror_fd_, mirror_space_, kMirrorBytes, kPageBytes, true};
}

Expected<void, std::string> ClientMemory::map_source(const Source& source,
                                                     const MemoryRegion& region,
                                                     std::vector<MappedPiece>& pieces) {
  uint64_t done = 0;
  while (done < region.length_bytes) {
    const uint64_t offset = region.file_offset + done;
    const uint64_t end = std::min(align_down(offset, kChunkBytes) + kChunkBytes,
                                  offset + region.length_bytes - done);
    auto mapping = acquire(source, offset, end);
    if (!mapping) return refuse(region, mapping.error());
    std::byte* host = (*mapping)->host + (offset - (*mapping)->offset);
    pieces.push_back({region.va + done, end - offset, host, source.space_id, offset,
                      source.writable,
                      /*gone=*/false, static_cast<uint8_t>(std::countr_zero(source.page_bytes))});
    pieces.back().in_mirror = source.fd == mirror_fd_;
    done += end - offset;
  }
  return {};
}

// ---- late regions

// The file that tells of a late region's slices. It is sealed, so that none of it can be cut off,
// and has all pages that are looked at.
Expected<ClientMemory::Source, std::string> ClientMemory::open_fill_map(
    const MemoryRegion& region, std::span<const int> fds) const {
  constexpr int kWantedSeals = F_SEAL_SHRINK | F_SEAL_GROW;
  if (region.file_index >= fds.size()) return refuse(region, "names a fill map that was not sent");
  const int fd = fds[region.file_index];
  uint64_t end = 0;
  if (__builtin_add_overflow(region.file_offset, region.length_bytes / kSliceBytes, &end))
    return refuse(region, "offset in the fill map wraps around");
  struct stat file {};
  struct statfs fs {};
  const int flags = fcntl(fd, F_GETFL), seals = fcntl(fd, F_GET_SEALS);
  if (flags < 0 || seals < 0 || fstat(fd, &file) != 0 || fstatfs(fd, &fs) != 0)
    return refuse(region, "fill map: not a memfd");
  if (fs.f_type != TMPFS_MAGIC) return refuse(region, "fill map: not on ordinary pages");
  if ((seals & kWantedSeals) != kWantedSeals)
    return refuse(region, "fill map: not sealed against truncation");
  if ((seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) != 0 || (flags & O_ACCMODE) != O_RDWR)
    return refuse(region, "fill map: not for reading and writing");
  const auto size = static_cast<uint64_t>(file.st_size);
  if (end > size) return refuse(region, "reaches beyond the end of the fill map");
  if (!populated(fd, align_down(region.file_offset, kPageBytes), end))
    return refuse(region, "fill map: has pages that were not populated");
  return Source{fd, MemorySpaces::acquire(file.st_dev, file.st_ino), size, kPageBytes, true};
}

// Maps a region whose pages need not be there yet: none of them is touched.
Expected<void, std::string> ClientMemory::map_late(const MemoryRegion& region,
                                                   std::span<const int> fds,
                                                   std::vector<MappedPiece>& pieces) {
  if (region.va % kSliceBytes != 0 || region.length_bytes % kSliceBytes != 0)
    return refuse(region, "late, and not whole slices");
  auto fill_map = open_fill_map(region, fds);
  if (!fill_map) return Error(fill_map.error());
  MemoryRegion at_va = region;
  at_va.file_offset = region.va;
  const size_t first = pieces.size();
  auto mapped = map_source(mirror_source(), at_va, pieces);
  for (size_t i = first; i < pieces.size(); ++i)
    pieces[i].late_host = std::exchange(pieces[i].host, nullptr);
  for (size_t i = first; mapped && i < pieces.size(); ++i) {
    const uint64_t offset = region.file_offset + (pieces[i].va - region.va) / kSliceBytes;
    if (auto done = map_slices(*fill_map, offset, pieces[i]); !done)
      mapped = refuse(region, done.error());
  }
  MemorySpaces::release(fill_map->space_id);  // the mappings hold references of their own
  return mapped;
}

// Maps the states of a piece's slices, from `offset` of the fill map on.
Expected<void, std::string> ClientMemory::map_slices(const Source& fill_map, uint64_t offset,
                                                     MappedPiece& piece) {
  const uint64_t count = piece.length_bytes / kSliceBytes;
  auto mapping = acquire(fill_map, offset, offset + count);
  if (!mapping) return Error("fill map: " + mapping.error());
  std::byte* slices = (*mapping)->host + (offset - (*mapping)->offset);
  piece.slices = reinterpret_cast<uint8_t*>(slices);
  const uint64_t lead = offset % kPageBytes;
  if (madvise(slices - lead, align_up(lead + count, kPageBytes), MADV_POPULATE_WRITE) != 0)
    return Error(std::string("fill map: cannot populate hostnicd's mapping: ") +
                 std::strerror(errno));
  return {};
}

Expected<void, std::string> ClientMemory::check_filled(
    std::span<const MappedPiece> late_pieces) const {
  for (const MappedPiece& piece : late_pieces) {
    const uint64_t bytes = piece.slice_lead_bytes + piece.length_bytes;
    const uint64_t count = (bytes + kSliceBytes - 1) / kSliceBytes;
    for (uint64_t i = 0; i < count; ++i)
      if (slice_state(piece.slices[i]) != SliceState::kFilled)
        return Error("a slice of the region is not filled");
    if (!populated(mirror_fd_, piece.space_offset, piece.space_offset + piece.length_bytes))
      return Error("the region has pages that are not in the mirror");
  }
  return {};
}

uint64_t ClientMemory::populate_step(const MappedPiece& late_piece, uint64_t offset) {
  let_short_mappings_pass();
  const uint64_t bytes = std::min(kMappingStepBytes, late_piece.length_bytes - offset);
  return madvise(late_piece.late_host + offset, bytes, MADV_POPULATE_WRITE) == 0 ? bytes : 0;
}

Expected<void, std::string> ClientMemory::populate(std::span<const MappedPiece> pieces) {
  std::optional<ShortMapping> short_mapping;
  if (!are_long(pieces)) short_mapping.emplace();
  for (const MappedPiece& piece : pieces) {
    if (piece.host == nullptr) continue;
    if (!short_mapping) let_short_mappings_pass();
    const uint64_t page_bytes = uint64_t{1} << piece.page_shift;
    const uint64_t lead = piece.space_offset % page_bytes;
    const int advice = piece.writable ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
    if (!in_steps(piece.host - lead, align_up(lead + piece.length_bytes, page_bytes), page_bytes,
                  [&](std::byte* at, uint64_t bytes) { return madvise(at, bytes, advice) == 0; }))
      return Error(std::string("cannot populate hostnicd's mapping: ") + std::strerror(errno));
  }
  return {};
}

bool any_replaced(std::span<const MappedPiece> pieces) {
  return std::ranges::any_of(pieces, [](const MappedPiece& piece) {
    return piece.mapping() != nullptr && is_replaced(piece.mapping(), piece.length_bytes);
  });
}

void ClientMemory::look_again(std::span<const MappedPiece> pieces) const {
  if (!any_replaced(pieces)) return;
  cut_off_->store(true, std::memory_order_release);
  replacements.fetch_add(1, std::memory_order_release);
}

Expected<ClientMemory::Mapping*, std::string> ClientMemory::acquire(const Source& source,
                                                                    uint64_t offset, uint64_t end) {
  for (auto& [host, mapping] : by_host_) {
    if (mapping->space_id != source.space_id || mapping->writable != source.writable ||
        mapping->revocable != source.revocable || offset < mapping->offset ||
        end > mapping->offset + mapping->length_bytes ||
        is_replaced(mapping->host, mapping->length_bytes))
      continue;
    if (auto used = use_part(*mapping, offset, end); !used) return Error(used.error());
    mapping->users++;
    mapping->brought_bytes += end - offset;
    return mapping.get();
  }
  return create(source, offset, end);
}

Expected<ClientMemory::Mapping*, std::string> ClientMemory::create(const Source& source,
                                                                   uint64_t offset, uint64_t end) {
  refusal_ = ENOMEM;  // unless something else turns out to be wrong
  if (by_host_.size() >= kMaxMappings)
    return Error("hostnicd maps as many files for this program as it may");
  if (terms_.mappings != nullptr && !terms_.mappings->take(terms_.stranger))
    return Error("hostnicd maps as many files as it may for the programs of this user, or for all");
  auto mapping = map_file(source, offset, end);
  if (!mapping && terms_.mappings != nullptr) terms_.mappings->give_back(terms_.stranger);
  if (!mapping) return mapping;
  if (auto used = use_part(**mapping, offset, end); !used) {
    release((*mapping)->host);
    return Error(used.error());
  }
  return mapping;
}

// Counts the page tables of what is used of a mapping. Those of late pieces count as well: an lcore
// will touch them. A mapping's stay until it goes, as the kernel's do.
Expected<void, std::string> ClientMemory::use_part(Mapping& mapping, uint64_t offset,
                                                   uint64_t end) {
  // Huge pages need none for each 2 MiB.
  const bool huge = mapping.page_bytes >= PageTables::kSpanBytes;
  const std::byte* const at = huge ? mapping.host : mapping.host + (offset - mapping.offset);
  if (mapping.tables.use(at, huge ? 1 : end - offset)) return {};
  refusal_ = ENOMEM;
  limit_met_ =
      "the page tables that hostnicd may have for memory of a user's programs "
      "(limits.user_page_tables_mb), of 4 KiB for each 2 MiB of addresses in which "
      "something is registered: memory that lies together takes fewest";
  return Error("this user's memory lies too scattered (limits.user_page_tables_mb)");
}

Expected<ClientMemory::Mapping*, std::string> ClientMemory::map_file(const Source& source,
                                                                     uint64_t offset,
                                                                     uint64_t end) {
  const uint64_t page_bytes = source.page_bytes;
  const uint64_t begin = align_down(offset, kChunkBytes);
  // The mapping does not go beyond the file's end: a writable mapping there would make a hugetlbfs
  // file grow.
  const uint64_t limit = std::min(begin + kChunkBytes, align_up(source.size_bytes, page_bytes));
  const uint64_t length = align_up(std::max(limit, end), page_bytes) - begin;
  std::byte* host = reserve(length, std::max(page_bytes, kHugePageBytes));
  if (host == nullptr) return Error("hostnicd is out of address space or areas (vm.max_map_count)");
  const int prot = PROT_READ | (source.writable ? PROT_WRITE : 0);
  // A private mapping that nobody writes to shows the file's pages, too, and can be guarded.
  const int sharing = source.writable ? MAP_SHARED : MAP_PRIVATE;
  if (mmap(host, length, prot, sharing | MAP_FIXED | MAP_NORESERVE, source.fd,
           static_cast<off_t>(begin)) == MAP_FAILED) {
    const int error = errno;
    if (error != ENOMEM) refusal_ = EINVAL;
    munmap(host, length);
    return Error(std::string("hostnicd cannot map it: ") + std::strerror(error));
  }
  madvise(host, length, MADV_DONTDUMP);
  if ((terms_.stranger || source.revocable) && can_guard_holes() && !guard_holes(host, length)) {
    const int error = errno;
    munmap(host, length);
    return Error(std::string("hostnicd cannot guard it: ") + std::strerror(error));
  }
  if (!add_sigbus_range(host, length, page_bytes, cut_off_)) {
    munmap(host, length);
    return Error("hostnicd maps too much client memory already");
  }
  refusal_ = EINVAL;
  auto mapping = std::make_unique<Mapping>();
  *mapping = {.host = host,
              .offset = begin,
              .length_bytes = length,
              .page_bytes = page_bytes,
              .brought_bytes = end - offset,
              .space_id = source.space_id,
              .writable = source.writable,
              .revocable = source.revocable,
              .users = 1,
              .tables = PageTables(host, length, terms_.page_tables)};
  MemorySpaces::add_user(source.space_id);
  return by_host_.emplace(host, std::move(mapping)).first->second.get();
}

void ClientMemory::release(std::byte* host) {
  auto found = by_host_.upper_bound(host);
  if (found == by_host_.begin()) return;
  Mapping& mapping = *(--found)->second;
  if (host >= mapping.host + mapping.length_bytes || --mapping.users != 0) return;
  remove_sigbus_range(mapping.host);
  if (mapping.brought_bytes > kMappingStepBytes) {
    in_steps(mapping.host, mapping.length_bytes, mapping.page_bytes,
             [](std::byte* at, uint64_t bytes) { return munmap(at, bytes) == 0; });
  } else {
    const ShortMapping short_mapping;
    munmap(mapping.host, mapping.length_bytes);
  }
  MemorySpaces::release(mapping.space_id);
  if (terms_.mappings != nullptr) terms_.mappings->give_back(terms_.stranger);
  by_host_.erase(found);
}

void ClientMemory::unmap(std::span<const MappedPiece> pieces) {
  const bool is_long = are_long(pieces);
  for (const MappedPiece& piece : pieces) {
    if (piece.mapping() == nullptr || piece.is_rest) continue;
    if (is_long) let_short_mappings_pass();
    release(piece.mapping());
    if (piece.slices != nullptr) release(reinterpret_cast<std::byte*>(piece.slices));
  }
}

}  // namespace hostnic
