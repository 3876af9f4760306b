// SPDX-License-Identifier: BSD-3-Clause
// What a lab says at its end: what its NICs carried, what was done to packets on purpose, what was
// repaired, and which queue pairs ended badly. Pure: made of what hostnicd's commands show.
#pragma once

#include <string>
#include <string_view>

namespace hostnic::cli {

// `counters` is what `show counters` shows, `dead` what `show dead` does; `impaired` says whether
// packets were to be impaired. Lines, each with its newline.
std::string lab_summary(std::string_view counters, std::string_view dead, bool impaired);

}  // namespace hostnic::cli
