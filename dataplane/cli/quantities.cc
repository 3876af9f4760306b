// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/cli/quantities.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <span>

namespace hostnic::cli {
namespace {

struct Unit {
  std::string_view name;
  uint64_t factor;
};

// A number with one of the units behind it; without one, of the first.
std::optional<uint64_t> parse_with_unit(std::string_view text, std::span<const Unit> units) {
  uint64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [at, code] = std::from_chars(text.data(), end, number);
  if (code != std::errc()) return std::nullopt;
  const std::string_view name(at, static_cast<size_t>(end - at));
  const auto unit = std::ranges::find(units, name, &Unit::name);
  if (!name.empty() && unit == units.end()) return std::nullopt;
  const uint64_t factor = name.empty() ? units.front().factor : unit->factor;
  uint64_t product = 0;
  if (__builtin_mul_overflow(number, factor, &product)) return std::nullopt;
  return product;
}

}  // namespace

std::optional<uint64_t> parse_duration_ns(std::string_view text) {
  static constexpr std::array kUnits = {Unit{"s", 1'000'000'000}, Unit{"ms", 1'000'000},
                                        Unit{"us", 1'000}, Unit{"m", 60'000'000'000},
                                        Unit{"h", 3'600'000'000'000}};
  return parse_with_unit(text, kUnits);
}

std::optional<uint64_t> parse_bytes(std::string_view text) {
  static constexpr std::array kUnits = {Unit{"B", 1}, Unit{"K", uint64_t{1} << 10},
                                        Unit{"M", uint64_t{1} << 20}, Unit{"G", uint64_t{1} << 30}};
  return parse_with_unit(text, kUnits);
}

}  // namespace hostnic::cli
