// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/memory/region_access.h"

namespace hostnic {
namespace {

// A client says what has moved as soon as one of its threads runs.
constexpr uint64_t kFaultPatienceNs = 100'000'000;

// 0 stands for no time at all.
uint64_t now_of(const MemoryRegionEntry& region) {
  return region.turn_ns == nullptr ? 1 : std::max<uint64_t>(*region.turn_ns, 1);
}

}  // namespace

MemoryAccess judge_transfer(MemoryRegionEntry& region, uint64_t va, uint64_t length_bytes,
                            MemFdResult result) {
  if (result == MemFdResult::kOk) {
    // Success elsewhere says nothing of the place that was not there.
    if (region.fault_since_ns != 0 && region.fault_va - va < length_bytes)
      region.fault_since_ns = 0;
    return MemoryAccess::kDone;
  }
  if (result == MemFdResult::kGone) {
    if (region.client_gone != nullptr) region.client_gone->store(true, std::memory_order_release);
    return MemoryAccess::kGone;
  }
  if (region.gate == nullptr) return MemoryAccess::kGone;  // on demand: nobody says anything
  const uint64_t now = now_of(region);
  const bool is_same = region.fault_since_ns != 0 && region.fault_va - va < length_bytes;
  const bool is_over =
      region.fault_since_ns != 0 && now - region.fault_since_ns >= kFaultPatienceNs;
  if (region.fault_since_ns == 0 || (is_over && !is_same)) {
    region.fault_since_ns = now;
    region.fault_va = va;
    return MemoryAccess::kNotNow;
  }
  return is_over ? MemoryAccess::kGone : MemoryAccess::kNotNow;
}

}  // namespace hostnic
