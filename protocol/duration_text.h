// SPDX-License-Identifier: BSD-3-Clause
// Durations for people.
#pragma once

#include <cstdint>
#include <string>

namespace hostnic {

// A duration with a unit and so many digits behind the point (at most 9), of nanoseconds none:
// "850 ns", "12.345 us", "1.234 s".
std::string duration_text(uint64_t duration_ns, int decimals = 3);

}  // namespace hostnic
