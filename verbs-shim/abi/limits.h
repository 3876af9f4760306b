// SPDX-License-Identifier: BSD-3-Clause
// What the device advertises and the ABI layer enforces. Honest numbers: programs create until it
// fails and compare.
#pragma once

#include <cstdint>

#include "protocol/hostif/device_facts.h"
#include "protocol/hostif/segment.h"
#include "protocol/message_limits.h"

namespace hostnic::abi {

inline constexpr uint32_t kMaxQpWr = 16384;
inline constexpr uint32_t kMaxSrqs = 16384;
inline constexpr uint32_t kMaxSrqWr = 16384;
// Adapters have this limit: libfabric's rxm asks for 262,144, ib_write_bw -q 10000 for 1,280,000.
inline constexpr uint32_t kMaxCqe = 4'194'303;
inline constexpr uint32_t kMaxCqs = 65536;
inline constexpr uint32_t kMaxPds = 65536;
inline constexpr uint32_t kMaxAhs = 65536;
inline constexpr uint32_t kMaxRdAtomic = 16;
inline constexpr uint64_t kMaxMrBytes = uint64_t{1} << 47;  // the user half of an address space
// The number of completion vectors, over which programs spread their queues. One thread serves all
// queues of an open device, whatever their vector.
inline constexpr int kCompletionVectors = 8;
inline constexpr uint8_t kPortNumber = kDevicePort;
// A vendor id that nobody can be assigned (locally administered OUI).
inline constexpr uint32_t kVendorId = 0x02484e;
// Debian's perftest looks at this number alone, whoever the vendor, and ignores -I where it does
// not know it. Among the ids that it knows, this one makes no other difference.
inline constexpr uint32_t kVendorPartId = 0x720;
inline constexpr uint32_t kHardwareVersion = kHostAbiVersion;
inline constexpr uint16_t kDefaultPkey = 0xffff;

}  // namespace hostnic::abi
