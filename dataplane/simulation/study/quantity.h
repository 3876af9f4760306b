// SPDX-License-Identifier: BSD-3-Clause
// Values of a study as people write them: lists and ranges of percentages, times, rates, sizes and
// numbers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "protocol/expected.h"

namespace hostnic::study {

enum class Unit : uint8_t {
  kPercent,  // in parts per million
  kTime,     // in ns
  kRate,     // in bit/s
  kBytes,
  kNumber,
};

// An option that has values. What it means is the sweep's business.
struct Quantity {
  const char* option;  // "--loss"
  Unit unit;
  uint64_t least, most;
  const char* example;  // of one value, or of a list
  // A range goes by doubling, not in equal steps.
  bool doubles = false;
  bool power_of_two = false;
};

// Parses "1%", "0,1%,5%", "0..5%", or a mixture. A range A..B has `points` values in equal steps,
// or A, 2A, 4A ... B; its beginning may lack the unit. Values are in the order written, each once.
// Errors are one line that names the option.
Expected<std::vector<uint64_t>, std::string> parse_values(const Quantity& quantity,
                                                          std::string_view text, uint32_t points);

// A value as people write it: "0.5%", "5us", "100Gbit", "64K", "16".
std::string text_of(Unit unit, uint64_t value);

}  // namespace hostnic::study
