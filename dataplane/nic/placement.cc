// Bytes between packets and application memory: copied where the memory is mapped, through the
// client's mem fd elsewhere. Late packets spare newer bytes (rule 9).
#include "dataplane/nic/placement.h"

#include <algorithm>

#include "dataplane/nic/region_access.h"

namespace hostnic {
Nic::Impl::PlaceResult Nic::Impl::place(const PlaceRequest& request, MemoryRegionEntry& region,
                                        uint64_t iova, std::span<const std::byte> bytes) {
  if (place_at_once(request, region, iova, bytes)) return PlaceResult::kDone;
  const uint64_t addr = iova + region.va_delta;
  const MemFdPass pass(region);
  if (!pass.granted()) {
    counters.add(Counter::mem_fd_put_off);
    return PlaceResult::kNotNow;
  }
  // All ranges are remembered, or nothing is written.
  if (request.ahead && early_write_pool.available() < region.pieces.size())
    return PlaceResult::kNotNow;
  const std::byte* from = bytes.data();
  bool memory_gone = false;
  const auto write = [&](const MappedPiece& piece, uint64_t offset, const std::byte* source,
                         uint64_t part, bool tail) {
    if (piece.host == nullptr) {
      counters.add(Counter::bytes_copied_mem_fd, part);
      memory_gone |= !write_through(region, piece, offset, {source, part});
    } else {
      counters.add(Counter::bytes_copied_mapped, part);
      put_bytes(request, piece.host + offset, {source, part}, tail);
    }
  };
  // Later PSNs may have written here already, also when this one is ahead of the front itself.
  const bool late = !broken(Fault::late_bytes_overwrite) && !request.space.early_writes.empty() &&
                    !(request.ahead && request.space.window.beyond_all(request.psn));
  for_each_piece(region, addr, bytes.size(),
                 [&](const MappedPiece& piece, uint64_t offset, uint64_t part) {
                   const bool tail = request.tail && from + part == bytes.data() + bytes.size();
                   if (!late) {
                     write(piece, offset, from, part, tail);
                   } else {
                     const uint64_t start = piece.space_offset + offset;
                     const uint64_t skipped = request.space.early_writes.for_each_unwritten(
                         early_write_pool, request.psn, piece.space_id, start, part,
                         [&](uint64_t at, uint64_t length_bytes) {
                           write(piece, offset + (at - start), from + (at - start), length_bytes,
                                 tail && at + length_bytes == start + part);
                         });
                     counters.add(Counter::late_bytes_skipped, skipped);
                   }
                   if (request.ahead)
                     request.space.early_writes.add(early_write_pool, request.psn, piece.space_id,
                                                    piece.space_offset + offset, part);
                   from += part;
                   return !memory_gone;
                 });
  return memory_gone ? PlaceResult::kMemoryGone : PlaceResult::kDone;
}

// Places bytes of a message at `offset` into a scatter list of memory of domain `pd`.
Nic::Impl::PlaceResult Nic::Impl::scatter(QpContext& qp, uint32_t pd, const PlaceRequest& request,
                                          std::span<const Sge> sges, uint64_t offset,
                                          std::span<const std::byte> bytes, LocalError& error) {
  for (const Sge& sge : sges) {
    if (bytes.empty()) break;
    if (offset >= sge.length_bytes) {
      offset -= sge.length_bytes;
      continue;
    }
    const uint64_t part = std::min<uint64_t>(bytes.size(), sge.length_bytes - offset);
    // Only what is written: an element may say more than its region has, as on adapters.
    MemoryRegionEntry* region =
        local_region(qp, pd, sge.lkey, sge.addr + offset, part, kAccessLocalWrite);
    if (region == nullptr) {
      error = LocalError::kProtection;
      return PlaceResult::kDone;
    }
    PlaceRequest part_request = request;
    part_request.tail = request.tail && part == bytes.size();
    const PlaceResult result = place(part_request, *region, sge.addr + offset, bytes.first(part));
    if (result != PlaceResult::kDone) return result;
    bytes = bytes.subspan(part);
    offset = 0;
  }
  if (!bytes.empty()) error = LocalError::kLength;
  return PlaceResult::kDone;
}

MemoryAccess Nic::Impl::fetch(MemoryRegionEntry& region, uint64_t iova, std::byte* out,
                              uint32_t length_bytes) {
  const MemFdPass pass(region);
  if (!pass.granted()) {
    counters.add(Counter::mem_fd_put_off);
    return MemoryAccess::kNotNow;
  }
  const bool good = for_each_piece(region, iova + region.va_delta, length_bytes,
                                   [&](const MappedPiece& piece, uint64_t offset, uint64_t part) {
                                     bool there = true;
                                     if (piece.host != nullptr) {
                                       copy_from_memory(out, piece.host + offset, part);
                                     } else {
                                       counters.add(Counter::bytes_copied_mem_fd, part);
                                       there = read_through(region, piece, offset, {out, part});
                                     }
                                     out += part;
                                     return there;
                                   });
  return good ? MemoryAccess::kDone : MemoryAccess::kGone;
}

}  // namespace hostnic
