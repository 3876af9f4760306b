// SPDX-License-Identifier: BSD-3-Clause
// What every device advertises and the ABI layer enforces, whatever its offer
// (protocol/hostif/device_offer.h). Honest numbers: programs create until it fails and compare.
#pragma once

#include <cstdint>

#include "protocol/hostif/device_facts.h"
#include "protocol/hostif/segment.h"

namespace hostnic::abi {

inline constexpr uint64_t kMaxMrBytes = uint64_t{1} << 47;  // the user half of an address space
// The number of completion vectors, over which programs spread their queues. One thread serves all
// queues of an open device, whatever their vector.
inline constexpr int kCompletionVectors = 8;
inline constexpr uint8_t kPortNumber = kDevicePort;
inline constexpr uint32_t kHardwareVersion = kHostAbiVersion;
inline constexpr uint16_t kDefaultPkey = 0xffff;

}  // namespace hostnic::abi
