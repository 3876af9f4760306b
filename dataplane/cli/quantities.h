// SPDX-License-Identifier: BSD-3-Clause
// Durations and numbers of bytes as options have them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace hostnic::cli {

// Parses a duration such as "10s", "500ms" or "2m"; a number without a unit is seconds.
std::optional<uint64_t> parse_duration_ns(std::string_view text);
// Parses a number of bytes such as "64M", "512K" or "4096".
std::optional<uint64_t> parse_bytes(std::string_view text);

}  // namespace hostnic::cli
