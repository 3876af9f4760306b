// SPDX-License-Identifier: BSD-3-Clause
// Memory of a NIC's own for payloads that have to be copied before their packets leave, many
// packets' in one piece: so copies, too, travel in bundles. To a packet such a block is a region as
// any other, in which its external payload lies (external_payload.h); a block may be used again
// when no packet refers to it any more.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "dataplane/nic/memory/mr_table.h"
#include "dataplane/nic/packet/qp_packets.h"

namespace hostnic {

class CopyBlocks {
 public:
  static constexpr uint32_t kBlockBytes = 64 * 1024;
  // As many as hold what a peer may ask for ahead (2 MiB, rule 17), twice.
  static constexpr uint32_t kBlocks = 64;

  // Packets are freed on any lcore, some after their NIC: what they refer to belongs to the process
  // and is taken by another NIC when nothing refers to it. Throws std::bad_alloc.
  CopyBlocks();
  ~CopyBlocks();
  CopyBlocks(const CopyBlocks&) = delete;
  CopyBlocks& operator=(const CopyBlocks&) = delete;

  struct Block {
    MemoryRegionEntry* region;  // null: none is free
    std::byte* bytes;
  };
  // Finds a block that no packet refers to; it is free as long as none is made to. Those that were
  // used last come first, for they are in the cache.
  Block find_free() const {
    for (uint32_t i = 0; i < kBlocks; ++i) {
      MemoryRegionEntry& region = set_->regions[i];
      if (region.mbufs_out.load(std::memory_order_acquire) == 0)
        return {&region, static_cast<std::byte*>(set_->bytes[i].all)};
    }
    return {nullptr, nullptr};
  }
  // The count of packets that refer to blocks.
  PacketCount* packets() const { return set_->packets.count(); }

 private:
  struct alignas(4096) Bytes {
    std::byte all[kBlockBytes];
  };
  struct Set {
    std::array<MemoryRegionEntry, kBlocks> regions;
    // Not initialised, so that memory which is never needed is never there.
    std::unique_ptr<Bytes[]> bytes{new Bytes[kBlocks]};
    QpPackets packets;
    bool any_out() const;
  };
  struct Pool;
  static Pool& pool();

  std::unique_ptr<Set> set_;
};

}  // namespace hostnic
