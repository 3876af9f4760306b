// SPDX-License-Identifier: BSD-3-Clause
// The time base of the library, CLOCK_MONOTONIC as in hostnicd, and pauses in it.
#pragma once

#include <cstdint>

#include "protocol/types.h"

namespace hostnic {

// The time of CLOCK_MONOTONIC.
TimeNs monotonic_ns();
// Reads the same clock, or returns what the calling thread read at most about a microsecond ago,
// where that is cheaper: reading the clock waits for all loads before it.
TimeNs recent_ns();
// Puts the calling thread to sleep; no cancellation point.
void pause_for(uint32_t pause_ns);

}  // namespace hostnic
