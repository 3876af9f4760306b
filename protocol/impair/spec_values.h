// SPDX-License-Identifier: BSD-3-Clause
// Numbers with units as an impairment spec writes them, and back. All values are integers (ppb, ns,
// bit/s), so that printing and parsing again is exact.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "protocol/types.h"

namespace hostnic::impair {

struct Unit {
  std::string_view name;
  unsigned decimals;  // one unit is 10^decimals base units
};
inline constexpr std::array<Unit, 4> kTimeUnits{{{"ns", 0}, {"us", 3}, {"ms", 6}, {"s", 9}}};
inline constexpr std::array<Unit, 5> kRateUnits{
    {{"bit", 0}, {"Kbit", 3}, {"Mbit", 6}, {"Gbit", 9}, {"Tbit", 12}}};
inline constexpr unsigned kPercentDecimals = 7;  // 1 % is 10^7 parts per billion

// Parses a decimal number: "1.25" with 3 decimals is 1250. Returns none if the text is no decimal
// number, needs more decimals, or does not fit.
std::optional<uint64_t> parse_decimal(std::string_view text, unsigned decimals);
// Prints a decimal number without trailing zeros.
std::string format_decimal(uint64_t value, unsigned decimals);

// Prints a value in the largest unit that leaves no leading zero.
template <size_t N>
std::string with_unit(uint64_t value, const std::array<Unit, N>& units) {
  const Unit* best = &units[0];
  uint64_t one = 1;
  unsigned decimals = 0;
  for (const Unit& unit : units) {
    for (; decimals < unit.decimals; ++decimals) one *= 10;
    if (value >= one) best = &unit;
  }
  return format_decimal(value, best->decimals) + std::string(best->name);
}

// Parses a decimal or 0x hexadecimal number.
std::optional<uint64_t> parse_integer(std::string_view text);
std::optional<Ipv4Address> parse_ipv4(std::string_view text);
std::string format_ipv4(Ipv4Address address);

}  // namespace hostnic::impair
