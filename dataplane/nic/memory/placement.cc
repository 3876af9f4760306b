// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/memory/placement.h"

#include <algorithm>
#include <array>

namespace hostnic {
namespace {

MemoryAccess worse(MemoryAccess one, MemoryAccess other) { return std::max(one, other); }

// An access to memory that has no address now; apart from the others, which are nearly all. It
// notes what it made of the whole access in `access`, and `unfilled` if a late piece is why.
struct Elsewhere {
  Counters& counters;
  MemoryRegionEntry& region;
  MemoryAccess access = MemoryAccess::kDone;
  bool unfilled = false;

  [[gnu::noinline]] void write(const MappedPiece& piece, uint64_t offset,
                               std::span<const std::byte> bytes, const TransferUser& user) {
    if (is_unfilled(piece, bytes.size())) return;
    access = worse(access, write_through(region, piece, offset, bytes, user));
  }
  [[gnu::noinline]] void read(const MappedPiece& piece, uint64_t offset, std::span<std::byte> bytes,
                              const TransferUser& user) {
    if (is_unfilled(piece, bytes.size())) return;
    access = worse(access, read_through(region, piece, offset, bytes, user));
  }
  void count_put_off() const {
    if (access == MemoryAccess::kNotNow)
      counters.add(unfilled ? Counter::unfilled_put_off : Counter::mem_fd_put_off);
  }

 private:
  bool is_unfilled(const MappedPiece& piece, uint64_t length_bytes) {
    if (piece.by_mem_fd()) {
      counters.add(Counter::bytes_copied_mem_fd, length_bytes);
      return false;
    }
    unfilled = true;
    access = worse(access, MemoryAccess::kNotNow);
    return true;
  }
};

}  // namespace

// Remembers what a packet has written that is ahead, and counts as received.
void Placement::remember(const PlaceRequest& request, const MemoryRegionEntry& region,
                         uint64_t iova, uint64_t length_bytes) {
  const Psn last = request.psn + (request.packets - 1);
  for_each_piece(region, iova + region.va_delta, length_bytes,
                 [&](const MappedPiece& piece, uint64_t offset, uint64_t part) {
                   return request.early_writes.add(early_writes_, request.psn, last, piece.space_id,
                                                   piece.space_offset + offset, part);
                 });
}

PlaceResult Placement::place(const PlaceRequest& request, MemoryRegionEntry& region, uint64_t iova,
                             std::span<const std::byte> bytes) {
  if (place_at_once(request, region, iova, bytes)) return PlaceResult::kDone;
  if (has_faulted()) return PlaceResult::kNotNow;
  const uint64_t addr = iova + region.va_delta;
  const MemFdPass pass(region);
  if (!pass.granted()) {
    counters_.add(Counter::mem_fd_put_off);
    return PlaceResult::kNotNow;
  }
  // The ranges of all pieces can be remembered, or nothing is written.
  if (request.ahead && early_writes_.available() < region.pieces.size())
    return PlaceResult::kNotNow;
  const std::byte* from = bytes.data();
  Elsewhere elsewhere{counters_, region};
  const TransferUser user{&request.early_writes, request.psn.value()};
  const auto put = [&](const MappedPiece& piece, uint64_t offset, const std::byte* source,
                       uint64_t part, bool tail) {
    std::byte* to = address_now(piece, offset, part);
    if (to == nullptr) return elsewhere.write(piece, offset, {source, part}, user);
    counters_.add(Counter::bytes_copied_mapped, part);
    put_bytes(request, to, {source, part}, tail);
    look_at_copy(to, part);
  };
  // Later PSNs may have written here already, also when this packet is itself ahead of the expected
  // PSN.
  const bool late =
      !request.early_writes.empty() && !(request.ahead && request.window.beyond_all(request.psn));
  const bool remembers = request.ahead && !request.is_part;
  bool in_one_piece = false;
  const Psn last = request.psn + (request.packets - 1);
  for_each_piece(region, addr, bytes.size(),
                 [&](const MappedPiece& piece, uint64_t offset, uint64_t part) {
                   const bool tail = request.tail && from + part == bytes.data() + bytes.size();
                   if (!late) {
                     put(piece, offset, from, part, tail);
                   } else {
                     const uint64_t start = piece.space_offset + offset;
                     const uint64_t skipped = request.early_writes.for_each_unwritten(
                         early_writes_, request.psn, piece.space_id, start, part,
                         [&](uint64_t at, uint64_t length_bytes) {
                           put(piece, offset + (at - start), from + (at - start), length_bytes,
                               tail && at + length_bytes == start + part);
                         });
                     counters_.add(Counter::late_bytes_skipped, skipped);
                   }
                   if (copy_is_void(from, part))
                     elsewhere.access = worse(elsewhere.access, MemoryAccess::kNotNow);
                   if (remembers && part == bytes.size() && elsewhere.access == MemoryAccess::kDone)
                     request.early_writes.add(early_writes_, request.psn, last, piece.space_id,
                                              piece.space_offset + offset, part);
                   in_one_piece = part == bytes.size();
                   from += part;
                   return elsewhere.access != MemoryAccess::kGone;
                 });
  const MemoryAccess access = elsewhere.access;
  elsewhere.count_put_off();
  if (remembers && !in_one_piece && access == MemoryAccess::kDone)
    remember(request, region, iova, bytes.size());
  return access == MemoryAccess::kDone     ? PlaceResult::kDone
         : access == MemoryAccess::kNotNow ? PlaceResult::kNotNow
                                           : PlaceResult::kMemoryGone;
}

PlaceResult Placement::scatter(const AccessScope& scope, const PlaceRequest& request,
                               std::span<const Sge> sges, uint64_t offset,
                               std::span<const std::byte> bytes, LocalError& error) {
  bool not_now = false;
  struct Part {
    const MemoryRegionEntry* region;
    uint64_t iova, length_bytes;
  };
  std::array<Part, kMaxSge> parts;  // of a packet that is ahead
  size_t part_count = 0, ranges = 0;
  for (const Sge& sge : sges) {
    if (bytes.empty()) break;
    if (offset >= sge.length_bytes) {
      offset -= sge.length_bytes;
      continue;
    }
    const uint64_t part = std::min<uint64_t>(bytes.size(), sge.length_bytes - offset);
    // Only the bytes that are written must lie in the region: an element may say more, as on
    // adapters.
    MemoryRegionEntry* region =
        local_region(scope, sge.lkey, sge.addr + offset, part, kAccessLocalWrite);
    if (region == nullptr) {
      error = LocalError::kProtection;
      return PlaceResult::kDone;
    }
    PlaceRequest part_request = request;
    part_request.tail = request.tail && part == bytes.size();
    part_request.is_part = part_count != 0 || part != bytes.size();
    if (request.ahead && part_request.is_part) {
      parts[part_count++] = {region, sge.addr + offset, part};
      ranges += region->pieces.size();
      if (early_writes_.available() < ranges) return PlaceResult::kNotNow;
    }
    const PlaceResult result = place(part_request, *region, sge.addr + offset, bytes.first(part));
    // A helper gets all parts to do before the packet comes again.
    if (result == PlaceResult::kMemoryGone) return result;
    not_now |= result == PlaceResult::kNotNow;
    bytes = bytes.subspan(part);
    offset = 0;
  }
  // A packet that is put off comes again, and is remembered then.
  for (size_t i = 0; i < part_count && !not_now; ++i)
    remember(request, *parts[i].region, parts[i].iova, parts[i].length_bytes);
  if (!bytes.empty()) error = LocalError::kLength;
  return not_now && error == LocalError::kNone ? PlaceResult::kNotNow : PlaceResult::kDone;
}

MemoryAccess Placement::fetch(MemoryRegionEntry& region, uint64_t iova, std::byte* out,
                              uint32_t length_bytes, const TransferUser& user) {
  const MemFdPass pass(region);
  if (!pass.granted()) {
    counters_.add(Counter::mem_fd_put_off);
    return MemoryAccess::kNotNow;
  }
  Elsewhere elsewhere{counters_, region};
  for_each_piece(region, iova + region.va_delta, length_bytes,
                 [&](const MappedPiece& piece, uint64_t offset, uint64_t part) {
                   if (const std::byte* from = address_now(piece, offset, part)) {
                     copy_from_memory(out, from, part);
                     copy_is_void(from, part);
                   } else {
                     elsewhere.read(piece, offset, {out, part}, user);
                   }
                   out += part;
                   return elsewhere.access != MemoryAccess::kGone;
                 });
  elsewhere.count_put_off();
  if (has_faulted()) return worse(elsewhere.access, MemoryAccess::kNotNow);
  return elsewhere.access;
}

RemoteRange Placement::windows_range(AccessScope scope, uint32_t key, uint64_t va,
                                     uint64_t length_bytes, uint32_t access) {
  const MemoryWindow* window = windows_.accessible(scope, key, access);
  if (window == nullptr) return {};
  const uint64_t first = (window->access & kAccessZeroBased) != 0 ? 0 : window->va;
  const uint64_t offset = va - first;
  if (offset > window->length_bytes || length_bytes > window->length_bytes - offset) return {};
  const uint64_t iova = window->va + offset;
  return {local_region(scope, window->mr_key, iova, length_bytes, 0), iova};
}

}  // namespace hostnic
