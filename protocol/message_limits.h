// SPDX-License-Identifier: BSD-3-Clause
// Limits that both halves keep and the device advertises.
#pragma once

#include <cstdint>

namespace hostnic {

// The most bytes of one message, as adapters have it (the specification allows twice that).
inline constexpr uint32_t kMaxMessageBytes = 1u << 30;

}  // namespace hostnic
