// SPDX-License-Identifier: BSD-3-Clause
// What a NIC is told when it is made.
#pragma once

#include <cstdint>
#include <string>

#include "protocol/types.h"
#include "protocol/wire/packet.h"

namespace hostnic {

enum class Ordering : uint8_t {
  kTail,
  kRelaxed,
  kStrict
};  // docs/transport.md rule 10 (tails
    // wait)

struct NicSettings {
  std::string name = "hnic0";
  uint32_t index = 0;
  Ipv4Address ip{};
  uint32_t prefix_length = 24;
  Ipv4Address gateway{};  // 0: there is none
  wire::MacAddress mac{};
  uint32_t mtu_bytes = 4096;  // IB MTU
  uint32_t window = 1024;     // PSNs, power of two, 32..4096
  wire::Policy policy = wire::Policy::kSelective;
  // How much a round trip may grow before senders slow down (rule 27, congestion window); drivers
  // are told.
  uint32_t congestion_allowance_us = 250;
  Ordering ordering = Ordering::kTail;
  uint32_t max_qps = 16384;
  bool always_icrc = false;  // also on the in-process wire
  // Segmentation offload (bundle.h) where nobody needs packets one by one.
  bool segmentation = true;
};

}  // namespace hostnic
