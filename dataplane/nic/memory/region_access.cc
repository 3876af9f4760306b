// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/memory/region_access.h"

#include <time.h>

namespace hostnic {
namespace {

// A client says what has moved as soon as one of its threads runs.
constexpr uint64_t kFaultPatienceNs = 100'000'000;

uint64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace

MemoryAccess judge_transfer(MemoryRegionEntry& region, MemFdResult result) {
  if (result == MemFdResult::kOk) {
    region.fault_since_ns = 0;
    return MemoryAccess::kDone;
  }
  if (result == MemFdResult::kGone) {
    if (region.client_gone != nullptr) region.client_gone->store(true, std::memory_order_release);
    return MemoryAccess::kGone;
  }
  if (region.gate == nullptr) return MemoryAccess::kGone;  // on demand: nobody says anything
  const uint64_t now = now_ns();
  if (region.fault_since_ns == 0) region.fault_since_ns = now;
  return now - region.fault_since_ns < kFaultPatienceNs ? MemoryAccess::kNotNow
                                                        : MemoryAccess::kGone;
}

}  // namespace hostnic
