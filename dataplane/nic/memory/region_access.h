// SPDX-License-Identifier: BSD-3-Clause
// The memory of a region, piece by piece: mapped, late, or reached through the client's mem fd.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "dataplane/memory/mem_fd.h"
#include "dataplane/memory/mem_fd_helper.h"
#include "dataplane/nic/memory/late_piece.h"
#include "dataplane/nic/memory/mr_table.h"
#include "protocol/hostif/descriptors.h"

namespace hostnic {

// Calls visit(piece, offset in piece, bytes) for each piece of [addr, addr + length), until it
// says false. The range lies inside the region.
template <class Visit>
bool for_each_piece(const MemoryRegionEntry& region, uint64_t addr, uint64_t length_bytes,
                    Visit&& visit) {
  const auto end = region.pieces.end();
  for (auto at = region.pieces.begin(); at != end && length_bytes != 0; ++at) {
    if (addr - at->va >= at->length_bytes) {
      // Few regions have more than three pieces; some have thousands.
      constexpr size_t kFew = 8;
      if (region.pieces.size() <= kFew || addr < at->va) continue;
      at = std::ranges::upper_bound(at, end, addr, {}, &MappedPiece::va) - 1;
      if (addr - at->va >= at->length_bytes) continue;
    }
    const MappedPiece& piece = *at;
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
// get one for nothing: mapped ones, those on demand, and those whose helper takes its own.
class MemFdPass {
 public:
  explicit MemFdPass(const MemoryRegionEntry& region)
      : gate_(region.helper == nullptr ? region.gate : nullptr) {
    if (gate_ != nullptr) granted_ = gate_->enter(MemoryGate::kLcore);
  }
  ~MemFdPass() {
    if (gate_ != nullptr) gate_->leave();
  }
  MemFdPass(const MemFdPass&) = delete;
  MemFdPass& operator=(const MemFdPass&) = delete;
  bool granted() const { return granted_; }

 private:
  MemoryGate* gate_;
  bool granted_ = true;
};

// What became of an access to a region's memory.
enum class MemoryAccess : uint8_t {  // the worse, the later
  kDone,
  kNotNow,  // no MemFdPass was granted, the helper is not done, or a late piece not filled: try
            // again
  kGone,    // the client unmapped the memory
};

// What a finished transfer at [va, va + length_bytes), as registered, means. A client whose address
// space is gone is dropped. A range that is not there has been unmapped, which is the client's own
// loss, or has moved, and the client is about to say so: for a while it counts as not there now.
MemoryAccess judge_transfer(MemoryRegionEntry& region, uint64_t va, uint64_t length_bytes,
                            MemFdResult result);

inline MemFdHelper::Target helper_target(MemoryRegionEntry& region, const TransferUser& user,
                                         const MappedPiece& piece, uint64_t offset) {
  return {user, piece.client_address(offset), piece.va + offset, &region.mbufs_out, region.gate};
}
inline MemoryAccess access_of(MemoryRegionEntry& region, uint64_t va, uint64_t length_bytes,
                              std::optional<MemFdResult> result) {
  if (!result) return MemoryAccess::kNotNow;
  return judge_transfer(region, va, length_bytes, *result);
}

// Reads at `offset` of a piece that is not mapped; the caller has a MemFdPass. A region with a
// helper knows by the user that it is asked again.
inline MemoryAccess read_through(MemoryRegionEntry& region, const MappedPiece& piece,
                                 uint64_t offset, std::span<std::byte> bytes,
                                 const TransferUser& user) {
  if (piece.gone) return MemoryAccess::kGone;
  const VirtualAddress va = piece.client_address(offset);
  if (region.helper != nullptr)
    return access_of(region, piece.va + offset, bytes.size(),
                     region.helper->read(helper_target(region, user, piece, offset), bytes));
  return judge_transfer(region, piece.va + offset, bytes.size(),
                        read_client(region.mem_fd, va, bytes));
}
inline MemoryAccess write_through(MemoryRegionEntry& region, const MappedPiece& piece,
                                  uint64_t offset, std::span<const std::byte> bytes,
                                  const TransferUser& user) {
  if (piece.gone) return MemoryAccess::kGone;
  const VirtualAddress va = piece.client_address(offset);
  if (region.helper != nullptr)
    return access_of(region, piece.va + offset, bytes.size(),
                     region.helper->write(helper_target(region, user, piece, offset), bytes));
  return judge_transfer(region, piece.va + offset, bytes.size(),
                        write_client(region.mem_fd, va, bytes));
}
// Looks at each page of a range.
inline MemoryAccess probe_through(MemoryRegionEntry& region, const MappedPiece& piece,
                                  uint64_t offset, uint64_t length_bytes,
                                  const TransferUser& user) {
  constexpr uint64_t kPageBytes = 4096;
  if (piece.gone) return MemoryAccess::kGone;
  const VirtualAddress va = piece.client_address(offset), end = va + length_bytes;
  if (region.helper != nullptr)
    return access_of(
        region, piece.va + offset, length_bytes,
        region.helper->probe(helper_target(region, user, piece, offset), length_bytes));
  std::byte byte{};
  for (VirtualAddress at = va, next = 0; at < end; at = next) {
    next = (at | (kPageBytes - 1)) + 1;
    const auto access =
        judge_transfer(region, piece.va + offset + (at - va), std::min(next, end) - at,
                       read_client(region.mem_fd, at, {&byte, 1}));
    if (access != MemoryAccess::kDone) return access;
  }
  return MemoryAccess::kDone;
}

// Whether there is memory at the addresses of a range. For an on-demand region that takes one
// system call per page, so the end of a long range is not looked at: who misses that part asks
// again for the rest. The memory of other regions was there when they were registered, and is
// unless the client said otherwise; or nobody says so (bare system calls): once a transfer has
// found nothing there it is looked at as well.
inline MemoryAccess has_memory(MemoryRegionEntry& region, uint64_t iova, uint64_t length_bytes,
                               const TransferUser& user) {
  constexpr uint64_t kMostBytes = uint64_t{64} * 4096;
  const uint64_t addr = iova + region.va_delta;
  if ((region.access & kAccessOnDemand) == 0) {
    const bool there = !region.partly_gone || for_each_piece(region, addr, length_bytes,
                                                             [](const MappedPiece& piece, uint64_t,
                                                                uint64_t) { return !piece.gone; });
    if (!there) return MemoryAccess::kGone;
    if (region.fault_since_ns == 0) return MemoryAccess::kDone;
  }
  const MemFdPass pass(region);
  if (!pass.granted()) return MemoryAccess::kNotNow;
  MemoryAccess access = MemoryAccess::kDone;
  for_each_piece(region, addr, std::min(length_bytes, kMostBytes),
                 [&](const MappedPiece& piece, uint64_t offset, uint64_t part) {
                   if (piece.by_mem_fd()) access = probe_through(region, piece, offset, part, user);
                   return access == MemoryAccess::kDone;
                 });
  return access;
}

// The address of a range, or null where the range is not mapped in one piece; late pieces count as
// not mapped.
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
