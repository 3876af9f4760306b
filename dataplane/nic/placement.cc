// Bytes between packets and application memory: copied where the memory is mapped, through the
// client's mem fd elsewhere.
#include <algorithm>

#include "dataplane/nic/copy.h"
#include "dataplane/nic/impl.h"
#include "dataplane/nic/region_access.h"

namespace hostnic {
namespace {

MemoryRegionEntry* check_bounds(MemoryRegionEntry* region, uint64_t iova, uint64_t length_bytes,
                                uint32_t access) {
  if (region == nullptr) return nullptr;
  if ((region->access & access) != access && !broken(Fault::rights_not_checked)) return nullptr;
  const uint64_t offset = iova - region->iova;
  if (broken(Fault::bounds_not_checked)) return region;
  if (offset > region->length_bytes || length_bytes > region->length_bytes - offset) return nullptr;
  return region;
}

}  // namespace

MemoryRegionEntry* Nic::Impl::local_region(QpContext& qp, uint32_t pd, uint32_t key, uint64_t addr,
                                           uint64_t length_bytes, uint32_t access) {
  MemoryRegionEntry* region = mrs.find(key);
  if (region == nullptr || region->client_id != qp.client->settings().client_id ||
      (region->pd != pd && !broken(Fault::domain_not_checked)))
    return nullptr;
  return check_bounds(region, addr, length_bytes, access);
}

Nic::Impl::RemoteRange Nic::Impl::remote_range(QpContext& qp, uint32_t key, uint64_t va,
                                               uint64_t length_bytes, uint32_t access) {
  if ((qp.access & access) != access && !broken(Fault::rights_not_checked)) return {};
  if ((key & kWindowKeyBit) != 0) return window_range(qp, key, va, length_bytes, access);
  return {local_region(qp, qp.pd, key, va, length_bytes, access), va};
}

void Nic::Impl::put_bytes(const PlaceRequest& request, std::byte* to,
                          std::span<const std::byte> bytes, bool tail) {
  if (request.watched) {
    copy_between_memories(to, bytes.data(), bytes.size(), tail);
  } else if (tail) {
    copy_tail_to_memory(to, bytes.data(), bytes.size());
  } else {
    copy_to_memory(to, bytes.data(), bytes.size());
  }
}

Nic::Impl::PlaceResult Nic::Impl::place(const PlaceRequest& request, MemoryRegionEntry& region,
                                        uint64_t iova, std::span<const std::byte> bytes) {
  const uint64_t addr = iova + region.va_delta;
  // Nearly always: in order, into memory that is mapped in one piece.
  if (!request.ahead && request.space.placed_ahead.empty() && region.pieces.size() == 1) {
    const MappedPiece& piece = region.pieces.front();
    const uint64_t offset = addr - piece.va;
    if (piece.host != nullptr && offset <= piece.length_bytes &&
        bytes.size() <= piece.length_bytes - offset) {
      counters.add(Counter::bytes_copied_mapped, bytes.size());
      put_bytes(request, piece.host + offset, bytes, request.tail);
      return PlaceResult::kDone;
    }
  }
  // All ranges are remembered, or nothing is written.
  if (request.ahead && range_pool.available() < region.pieces.size()) return PlaceResult::kNoRoom;
  const std::byte* from = bytes.data();
  bool memory_gone = false;
  const auto write = [&](const MappedPiece& piece, uint64_t offset, const std::byte* source,
                         uint64_t part, bool tail) {
    if (piece.host == nullptr) {
      counters.add(Counter::bytes_copied_mem_fd, part);
      memory_gone |= !write_through(region, piece.va + offset, {source, part});
    } else {
      counters.add(Counter::bytes_copied_mapped, part);
      put_bytes(request, piece.host + offset, {source, part}, tail);
    }
  };
  // Later PSNs may have written here already, also when this one is ahead of the front itself.
  const bool late = !broken(Fault::late_bytes_overwrite) && !request.space.placed_ahead.empty() &&
                    !(request.ahead && request.space.window.beyond_all(request.psn));
  for_each_piece(region, addr, bytes.size(),
                 [&](const MappedPiece& piece, uint64_t offset, uint64_t part) {
                   const bool tail = request.tail && from + part == bytes.data() + bytes.size();
                   if (!late) {
                     write(piece, offset, from, part, tail);
                   } else {
                     const uint64_t start = piece.space_offset + offset;
                     const uint64_t skipped = request.space.placed_ahead.for_each_unwritten(
                         range_pool, request.psn, piece.space_id, start, part,
                         [&](uint64_t at, uint64_t length_bytes) {
                           write(piece, offset + (at - start), from + (at - start), length_bytes,
                                 tail && at + length_bytes == start + part);
                         });
                     counters.add(Counter::late_bytes_skipped, skipped);
                   }
                   if (request.ahead)
                     request.space.placed_ahead.add(range_pool, request.psn, piece.space_id,
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
    MemoryRegionEntry* region =
        local_region(qp, pd, sge.lkey, sge.addr, sge.length_bytes, kAccessLocalWrite);
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

bool Nic::Impl::fetch(MemoryRegionEntry& region, uint64_t iova, std::byte* out,
                      uint32_t length_bytes) {
  return for_each_piece(region, iova + region.va_delta, length_bytes,
                        [&](const MappedPiece& piece, uint64_t offset, uint64_t part) {
                          bool good = true;
                          if (piece.host != nullptr) {
                            copy_from_memory(out, piece.host + offset, part);
                          } else {
                            counters.add(Counter::bytes_copied_mem_fd, part);
                            good = read_through(region, piece.va + offset, {out, part});
                          }
                          out += part;
                          return good;
                        });
}

}  // namespace hostnic
