// SPDX-License-Identifier: BSD-3-Clause
// What packets of bundles are for a turn's budget: they cost little but their bytes' copy.
#pragma once

#include <cstdint>

#include "dataplane/nic/limits.h"

namespace hostnic {

inline constexpr uint32_t kBundlePacketsPerTurnPacket = 4;
static_assert(kTxBudget * kBundlePacketsPerTurnPacket <= kMaxBundlePackets);
inline uint32_t turn_packets(uint32_t bundle_packets) {
  return (bundle_packets + kBundlePacketsPerTurnPacket - 1) / kBundlePacketsPerTurnPacket;
}

}  // namespace hostnic
