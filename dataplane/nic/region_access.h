// The memory of a region, piece by piece: mapped, or reached through the client's mem fd.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "dataplane/memory/mem_fd.h"
#include "dataplane/nic/mr_table.h"
#include "protocol/hostif/descriptors.h"

namespace hostnic {

// Calls visit(piece, offset in piece, bytes) for each piece of [addr, addr + length), until it
// says false. The range lies inside the region.
template <class Visit>
bool for_each_piece(const MemoryRegionEntry& region, uint64_t addr, uint64_t length_bytes,
                    Visit&& visit) {
  for (const MappedPiece& piece : region.pieces) {
    if (length_bytes == 0) break;
    if (addr - piece.va >= piece.length_bytes) continue;
    const uint64_t offset = addr - piece.va;
    const uint64_t part = std::min(length_bytes, piece.length_bytes - offset);
    if (!visit(piece, offset, part)) return false;
    addr += part;
    length_bytes -= part;
  }
  return true;
}

// A range that the client has unmapped is its own loss: the request fails. A client whose address
// space is gone is dropped.
inline bool good_transfer(MemoryRegionEntry& region, MemFdResult result) {
  if (result == MemFdResult::kGone && region.client_gone != nullptr) {
    region.client_gone->store(true, std::memory_order_release);
  }
  return result == MemFdResult::kOk;
}

inline bool read_through(MemoryRegionEntry& region, VirtualAddress va, std::span<std::byte> bytes) {
  return good_transfer(region, read_client(region.mem_fd, va, bytes));
}
inline bool write_through(MemoryRegionEntry& region, VirtualAddress va,
                          std::span<const std::byte> bytes) {
  return good_transfer(region, write_client(region.mem_fd, va, bytes));
}

// Whether there is memory at the addresses of a range of an on-demand region; that of other regions
// was there when they were registered. One system call per page, so not of a long range's end: who
// misses that asks again for the rest.
inline bool is_present(MemoryRegionEntry& region, uint64_t iova, uint64_t length_bytes) {
  constexpr uint64_t kPageBytes = 4096, kMostPages = 64;
  if ((region.access & kAccessOnDemand) == 0) return true;
  return for_each_piece(
      region, iova + region.va_delta, std::min(length_bytes, kMostPages * kPageBytes),
      [&](const MappedPiece& piece, uint64_t offset, uint64_t part) {
        if (piece.host != nullptr) return true;
        const VirtualAddress end = piece.va + offset + part;
        std::byte byte{};
        for (VirtualAddress at = piece.va + offset; at < end; at = (at | (kPageBytes - 1)) + 1)
          if (!read_through(region, at, {&byte, 1})) return false;
        return true;
      });
}

// Null where the range is not mapped in one piece.
inline std::byte* mapped_address(const MemoryRegionEntry& region, uint64_t iova,
                                 uint64_t length_bytes) {
  std::byte* address = nullptr;
  for_each_piece(region, iova + region.va_delta, length_bytes,
                 [&](const MappedPiece& piece, uint64_t offset, uint64_t part) {
                   if (piece.host != nullptr && part == length_bytes) address = piece.host + offset;
                   return false;
                 });
  return address;
}

}  // namespace hostnic
