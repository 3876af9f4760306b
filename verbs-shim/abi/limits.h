// What the device advertises and the ABI layer enforces. Honest numbers: programs create until it
// fails and compare.
#pragma once

#include <cstdint>

#include "protocol/hostif/segment.h"

namespace hostnic::abi {

inline constexpr uint32_t kMaxQpWr = 16384;
inline constexpr uint32_t kMaxSrqs = 16384;
inline constexpr uint32_t kMaxSrqWr = 16384;
// As adapters have: libfabric's rxm asks for 262,144, ib_write_bw -q 10000 for 1,280,000.
inline constexpr uint32_t kMaxCqe = 4'194'303;
inline constexpr uint32_t kMaxCqs = 65536;
inline constexpr uint32_t kMaxPds = 65536;
inline constexpr uint32_t kMaxAhs = 65536;
inline constexpr uint32_t kMaxRdAtomic = 16;
inline constexpr uint32_t kMaxMessageBytes = 1u << 30;
inline constexpr uint64_t kMaxMrBytes = uint64_t{1} << 47;  // the user half of an address space
inline constexpr int kCompletionVectors = 1;
inline constexpr int kGidTableLength = 1;
inline constexpr uint8_t kPortNumber = 1;
inline constexpr uint16_t kDefaultPkey = 0xffff;

}  // namespace hostnic::abi
