// SPDX-License-Identifier: BSD-3-Clause
// How long an answer may take before something goes again, by RFC 6298: the driver acts by it, and
// the NIC tells people of it.
#pragma once

#include <algorithm>
#include <cstdint>

namespace hostnic {

inline constexpr uint32_t kMaxBackoff = 6;  // doublings

// Without a round trip measured, `srtt_ns` and `rttvar_ns` are 0. `backoff` timeouts have passed
// since one was.
constexpr uint64_t retransmission_timeout_ns(uint64_t srtt_ns, uint64_t rttvar_ns, uint32_t backoff,
                                             uint64_t least_ns, uint64_t most_ns) {
  const uint64_t measured_ns = std::max(least_ns, srtt_ns + 4 * rttvar_ns);
  return std::min(measured_ns << std::min(backoff, kMaxBackoff), most_ns);
}

}  // namespace hostnic
