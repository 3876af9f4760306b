// SPDX-License-Identifier: BSD-3-Clause
// Atomics on a memory region, executed by the target's NIC (docs/transport.md rule 19).
#pragma once

#include <cstdint>

#include "dataplane/nic/memory/mr_table.h"

namespace hostnic {

struct AtomicOperation {
  bool compare_swap = false;  // else fetch and add
  uint64_t swap_or_add = 0;
  uint64_t compare = 0;
};

enum class AtomicResult : uint8_t {
  kDone,
  kBusy,  // another lcore is executing one; nothing was changed
  kMemoryGone,
};

// Executes an atomic at `iova`, which is a multiple of 8 and has 8 bytes of the region behind it.
// May be called on any lcore. Sets `before` to what memory contained.
AtomicResult execute_atomic_on(MemoryRegionEntry& region, uint64_t iova,
                               const AtomicOperation& operation, uint64_t& before);

}  // namespace hostnic
