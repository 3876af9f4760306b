// SPDX-License-Identifier: BSD-3-Clause
// The memory of a region, piece by piece: mapped, or reached through the client's mem fd.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "dataplane/memory/mem_fd.h"
#include "dataplane/nic/memory/mr_table.h"
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

// A MemFdPass is leave to use a client's mem fd for some transfers in a row. It is not granted
// while the client's mappings are just changing, because what is at an address now may not be what
// was registered. Then nothing may be transferred now, but later. Regions that don't need a pass
// get one for nothing: mapped ones, and those on demand.
class MemFdPass {
 public:
  explicit MemFdPass(const MemoryRegionEntry& region) : gate_(region.gate) {
    if (gate_ == nullptr) return;
    gate_->in_transfer.store(1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (gate_->closed.load(std::memory_order_acquire) == 0) return;
    granted_ = false;
    gate_->in_transfer.store(0, std::memory_order_release);
  }
  ~MemFdPass() {
    if (gate_ != nullptr) gate_->in_transfer.store(0, std::memory_order_release);
  }
  MemFdPass(const MemFdPass&) = delete;
  MemFdPass& operator=(const MemFdPass&) = delete;
  bool granted() const { return granted_; }

 private:
  MemoryGate* gate_;
  bool granted_ = true;
};

// What became of an access to a region's memory.
enum class MemoryAccess : uint8_t {
  kDone,
  kNotNow,  // no MemFdPass was granted: try again
  kGone,    // the client unmapped the memory
};

// Whether a transfer went well; a range that the client has unmapped is its own loss, and the
// request fails. A client whose address space is gone is dropped.
inline bool good_transfer(MemoryRegionEntry& region, MemFdResult result) {
  if (result == MemFdResult::kGone && region.client_gone != nullptr) {
    region.client_gone->store(true, std::memory_order_release);
  }
  return result == MemFdResult::kOk;
}

// Reads at `offset` of a piece that is not mapped; the caller has a MemFdPass.
inline bool read_through(MemoryRegionEntry& region, const MappedPiece& piece, uint64_t offset,
                         std::span<std::byte> bytes) {
  return !piece.gone && good_transfer(region, read_client(region.mem_fd, piece.va + offset, bytes));
}
inline bool write_through(MemoryRegionEntry& region, const MappedPiece& piece, uint64_t offset,
                          std::span<const std::byte> bytes) {
  return !piece.gone &&
         good_transfer(region, write_client(region.mem_fd, piece.va + offset, bytes));
}

// Whether there is memory at the addresses of a range. For an on-demand region that takes one
// system call per page, so the end of a long range is not looked at: who misses that part asks
// again for the rest. The memory of other regions was there when they were registered, and is
// unless the client said otherwise.
inline bool has_memory(MemoryRegionEntry& region, uint64_t iova, uint64_t length_bytes) {
  constexpr uint64_t kPageBytes = 4096, kMostPages = 64;
  const bool on_demand = (region.access & kAccessOnDemand) != 0;
  if (!on_demand) {
    return !region.partly_gone ||
           for_each_piece(region, iova + region.va_delta, length_bytes,
                          [](const MappedPiece& piece, uint64_t, uint64_t) { return !piece.gone; });
  }
  return for_each_piece(
      region, iova + region.va_delta, std::min(length_bytes, kMostPages * kPageBytes),
      [&](const MappedPiece& piece, uint64_t offset, uint64_t part) {
        if (piece.host != nullptr) return true;
        const VirtualAddress end = piece.va + offset + part;
        std::byte byte{};
        for (VirtualAddress at = piece.va + offset; at < end; at = (at | (kPageBytes - 1)) + 1)
          if (!read_through(region, piece, at - piece.va, {&byte, 1})) return false;
        return true;
      });
}

// The address of a range, or null where the range is not mapped in one piece.
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
