// SPDX-License-Identifier: BSD-3-Clause
// A bundled packet's share of a turn's budget: it costs little but the copy of its bytes.
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
