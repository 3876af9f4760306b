// SPDX-License-Identifier: BSD-3-Clause
// What a device has for MRC, and how a function of libmrc.so is defined: all else in the library is
// hidden, and mrc.map has the versions.
#pragma once

#include <algorithm>
#include <cstdint>

#include "verbs-shim/libraries/mrc_door.h"

#define MRC_CALL extern "C" [[gnu::visibility("default")]]

namespace hostnic::libmrc {

// QP hints of a context: they are a few bytes each.
inline constexpr uint32_t kMostHints = 65536;

inline constexpr uint32_t kMprUnitPsns = 128;
// The largest window, in units of kMprUnitPsns.
constexpr uint8_t most_mpr(const MrcDevice& device) {
  return static_cast<uint8_t>(std::clamp<uint32_t>(device.window / kMprUnitPsns, 1, UINT8_MAX));
}
// WRITEs with immediate data that can be on their way: each has a PSN of the window.
constexpr uint16_t most_imms(const MrcDevice& device) {
  return static_cast<uint16_t>(std::min<uint32_t>(device.window, UINT16_MAX));
}

// Whether the device speaks MRC; if not, `call` has said so.
bool speaks_mrc(const char* call, ibv_context* context, MrcDevice& device);

}  // namespace hostnic::libmrc
