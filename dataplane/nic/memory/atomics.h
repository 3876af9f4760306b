// SPDX-License-Identifier: BSD-3-Clause
// Atomics on a memory region, executed by the target's NIC (docs/transport.md rule 19).
#pragma once

#include <cstdint>

#include "dataplane/memory/mem_fd_helper.h"
#include "dataplane/memory/word_lock.h"
#include "dataplane/nic/memory/mr_table.h"

namespace hostnic {

enum class AtomicResult : uint8_t {
  kDone,
  kBusy,  // another lcore is executing one, or a helper this one, or memory is not filled: ask
          // again
  kMemoryGone,
};

// Executes an atomic at `iova`, which is a multiple of 8 and has 8 bytes of the region behind it.
// May be called on any lcore. Sets `before` to what memory contained.
AtomicResult execute_atomic_on(MemoryRegionEntry& region, uint64_t iova,
                               const AtomicOperation& operation, const TransferUser& user,
                               uint64_t& before);

// Both together execute an atomic in two steps, between which the word may change, on mapped memory
// only, for a NIC whose `ordering` is adversarial: the first sets `before`, and the second leaves
// there what the atomic makes of that. kBusy: not in this memory, or not now, and nothing has
// happened.
AtomicResult load_atomic_on(const MemoryRegionEntry& region, uint64_t iova, uint64_t& before);
AtomicResult store_atomic_on(const MemoryRegionEntry& region, uint64_t iova,
                             const AtomicOperation& operation, uint64_t before);

}  // namespace hostnic
