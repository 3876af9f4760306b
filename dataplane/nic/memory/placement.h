// SPDX-License-Identifier: BSD-3-Clause
// Bytes between packets and application memory: copied where the memory is mapped, through the
// client's mem fd elsewhere. Keys, bounds and rights are checked here.
//
// The NIC's lcore.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "dataplane/memory/sigbus.h"
#include "dataplane/nic/counters.h"
#include "dataplane/nic/limits.h"
#include "dataplane/nic/memory/access_scope.h"
#include "dataplane/nic/memory/copy.h"
#include "dataplane/nic/memory/mr_table.h"
#include "dataplane/nic/memory/region_access.h"
#include "dataplane/nic/memory/window_table.h"
#include "protocol/hostif/descriptors.h"
#include "protocol/transport/early_writes.h"
#include "protocol/transport/receive_window.h"

namespace hostnic {

// Where a packet stands among those of its queue pair, which decides what its bytes may overwrite.
struct PlaceRequest {
  EarlyWrites& early_writes;
  const ReceiveWindow& window;
  Psn psn;
  bool ahead;            // remember the range
  bool tail;             // last bytes of a message: the final word is stored last
  bool watched = false;  // the bytes may lie in memory that a program writes to
  bool is_part = false;  // of what scatter() places, which remembers the whole
  uint32_t packets = 1;  // several, from `psn` on, whose bytes follow each other
};

enum class PlaceResult : uint8_t { kDone, kNotNow, kMemoryGone };

class Placement {
 public:
  Placement(MrTable& mrs, WindowTable& windows, Counters& counters)
      : mrs_(mrs), windows_(windows), counters_(counters) {}

  // Finds memory that a peer names by the key of a region or of a window.
  RemoteRange remote_range(const AccessScope& scope, uint32_t key, uint64_t va,
                           uint64_t length_bytes, uint32_t access);
  // Finds memory that a client names in its own work requests. Returns null if the memory is not
  // the client's, or not so long.
  MemoryRegionEntry* local_region(const AccessScope& scope, uint32_t key, uint64_t addr,
                                  uint64_t length_bytes, uint32_t access);

  // Places bytes in the case that is nearly always met: in order, into memory that is mapped in one
  // piece. Returns false if nothing has happened, or nothing that counts (sigbus.h).
  bool place_at_once(const PlaceRequest& request, MemoryRegionEntry& region, uint64_t iova,
                     std::span<const std::byte> bytes);
  PlaceResult place(const PlaceRequest& request, MemoryRegionEntry& region, uint64_t iova,
                    std::span<const std::byte> bytes);
  // Places bytes of a message at `offset` into a scatter list.
  PlaceResult scatter(const AccessScope& scope, const PlaceRequest& request,
                      std::span<const Sge> sges, uint64_t offset, std::span<const std::byte> bytes,
                      LocalError& error);
  MemoryAccess fetch(MemoryRegionEntry& region, uint64_t iova, std::byte* out,
                     uint32_t length_bytes, const TransferUser& user);

  // The pool of the early writes of all queue pairs.
  EarlyWritePool& early_writes() { return early_writes_; }
  const EarlyWritePool& early_writes() const { return early_writes_; }
  const MrTable& regions() const { return mrs_; }
  MrTable& regions() { return mrs_; }

 private:
  void remember(const PlaceRequest& request, const MemoryRegionEntry& region, uint64_t iova,
                uint64_t length_bytes);
  static void put_bytes(const PlaceRequest& request, std::byte* to,
                        std::span<const std::byte> bytes, bool tail);
  // The scope is passed by value, so that callers need not have it in memory.
  RemoteRange windows_range(AccessScope scope, uint32_t key, uint64_t va, uint64_t length_bytes,
                            uint32_t access);

  MrTable& mrs_;
  WindowTable& windows_;
  Counters& counters_;
  EarlyWritePool early_writes_{kEarlyWriteCapacity};
};

inline MemoryRegionEntry* Placement::local_region(const AccessScope& scope, uint32_t key,
                                                  uint64_t addr, uint64_t length_bytes,
                                                  uint32_t access) {
  MemoryRegionEntry* region = mrs_.find(key);
  if (region == nullptr || region->client_id != scope.client_id || region->pd != scope.pd)
    return nullptr;
  if ((region->access & access) != access) return nullptr;
  const uint64_t offset = addr - region->iova;
  if (offset > region->length_bytes || length_bytes > region->length_bytes - offset) return nullptr;
  return region;
}

inline RemoteRange Placement::remote_range(const AccessScope& scope, uint32_t key, uint64_t va,
                                           uint64_t length_bytes, uint32_t access) {
  if ((scope.rights & access) != access) return {};
  if ((key & kWindowKeyBit) != 0) return windows_range(scope, key, va, length_bytes, access);
  return {local_region(scope, key, va, length_bytes, access), va};
}

inline void Placement::put_bytes(const PlaceRequest& request, std::byte* to,
                                 std::span<const std::byte> bytes, bool tail) {
  if (request.watched) {
    copy_between_memories(to, bytes.data(), bytes.size(), tail);
  } else if (tail) {
    copy_tail_to_memory(to, bytes.data(), bytes.size());
  } else {
    copy_to_memory(to, bytes.data(), bytes.size());
  }
}

// Places bytes in the case that is nearly always met: in order, into memory that is mapped in one
// piece.
[[gnu::always_inline]] inline bool Placement::place_at_once(const PlaceRequest& request,
                                                            MemoryRegionEntry& region,
                                                            uint64_t iova,
                                                            std::span<const std::byte> bytes) {
  if (request.ahead || !request.early_writes.empty() || region.pieces.size() != 1) return false;
  const MappedPiece& piece = region.pieces.front();
  const uint64_t offset = iova + region.va_delta - piece.va;
  if (piece.host == nullptr || offset > piece.length_bytes ||
      bytes.size() > piece.length_bytes - offset)
    return false;
  counters_.add(Counter::bytes_copied_mapped, bytes.size());
  std::byte* const to = piece.host + offset;
  put_bytes(request, to, bytes, request.tail);
  return !copy_is_void(bytes.data(), to, bytes.size());
}

}  // namespace hostnic
