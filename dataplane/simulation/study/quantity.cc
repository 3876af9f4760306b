// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/simulation/study/quantity.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <span>

#include "protocol/impair/spec_values.h"

namespace hostnic::study {
namespace {

constexpr unsigned kPpmDecimals = 4;  // 1 % is 10^4 parts per million
constexpr uint64_t kKiB = 1024;
// Text of a value that is longer is none, and not repeated in errors.
constexpr size_t kLongestText = 40;

// The unit behind a number.
std::string_view unit_in(std::string_view text) {
  const size_t end = text.find_last_of("0123456789.");
  return end == std::string_view::npos ? text : text.substr(end + 1);
}

std::optional<uint64_t> with_unit(std::string_view number, std::string_view unit,
                                  std::span<const impair::Unit> units) {
  for (const impair::Unit& each : units)
    if (each.name == unit) return impair::parse_decimal(number, each.decimals);
  return std::nullopt;
}

std::optional<uint64_t> bytes_of(std::string_view number, std::string_view unit) {
  const auto count = impair::parse_decimal(number, 0);
  if (!count || *count > UINT32_MAX) return std::nullopt;
  if (unit.empty()) return *count;
  if (unit == "K") return *count * kKiB;
  if (unit == "M") return *count * kKiB * kKiB;
  return std::nullopt;
}

std::optional<uint64_t> parse_value(Unit kind, std::string_view text) {
  if (text.size() > kLongestText) return std::nullopt;
  const std::string_view unit = unit_in(text);
  const std::string_view number = text.substr(0, text.size() - unit.size());
  switch (kind) {
    case Unit::kPercent:
      if (unit == "%") return impair::parse_decimal(number, kPpmDecimals);
      return text == "0" ? std::optional<uint64_t>(0) : std::nullopt;
    case Unit::kTime:
      return text == "0" ? std::optional<uint64_t>(0) : with_unit(number, unit, impair::kTimeUnits);
    case Unit::kRate:
      return with_unit(number, unit, impair::kRateUnits);
    case Unit::kBytes:
      return bytes_of(number, unit);
    default:
      return unit.empty() ? impair::parse_decimal(number, 0) : std::nullopt;
  }
}

std::string wrong(const Quantity& quantity, std::string_view text, std::string_view expected) {
  return fmt::format("{} {}: {}", quantity.option,
                     text.empty() ? std::string_view("\"\"") : text.substr(0, kLongestText),
                     expected);
}

Expected<uint64_t, std::string> checked(const Quantity& quantity, std::string_view text) {
  const auto value = parse_value(quantity.unit, text);
  if (!value) return Unexpected(wrong(quantity, text, fmt::format("use {}", quantity.example)));
  if (*value < quantity.least || *value > quantity.most)
    return Unexpected(wrong(quantity, text,
                            fmt::format("use {} to {}", text_of(quantity.unit, quantity.least),
                                        text_of(quantity.unit, quantity.most))));
  if (quantity.power_of_two && !std::has_single_bit(*value))
    return Unexpected(wrong(
        quantity, text,
        fmt::format("use a power of two from {} to {}", text_of(quantity.unit, quantity.least),
                    text_of(quantity.unit, quantity.most))));
  return *value;
}

void add_range(const Quantity& quantity, uint64_t from, uint64_t to, uint32_t points,
               std::vector<uint64_t>& values) {
  if (quantity.doubles) {
    for (uint64_t value = std::max<uint64_t>(from, 1); value < to; value *= 2)
      values.push_back(value);
    values.push_back(to);
    return;
  }
  for (uint32_t i = 0; i < points; ++i)
    values.push_back(points == 1 ? from : from + (to - from) * i / (points - 1));
}

Expected<void, std::string> add_item(const Quantity& quantity, std::string_view item,
                                     uint32_t points, std::vector<uint64_t>& values) {
  const size_t dots = item.find("..");
  if (dots == std::string_view::npos) {
    auto value = checked(quantity, item);
    if (!value) return Unexpected(value.error());
    values.push_back(*value);
    return {};
  }
  const std::string_view end = item.substr(dots + 2);
  std::string begin(item.substr(0, dots));
  if (!begin.empty() && unit_in(begin).empty()) begin += unit_in(end);
  auto from = checked(quantity, begin);
  if (!from) return Unexpected(from.error());
  auto to = checked(quantity, end);
  if (!to) return Unexpected(to.error());
  if (*from > *to)
    return Unexpected(wrong(quantity, item, "a range begins with its smallest value"));
  add_range(quantity, *from, *to, points, values);
  return {};
}

}  // namespace

Expected<std::vector<uint64_t>, std::string> parse_values(const Quantity& quantity,
                                                          std::string_view text, uint32_t points) {
  std::vector<uint64_t> values;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    if (auto added = add_item(quantity, text.substr(at, end - at), points, values); !added)
      return Unexpected(added.error());
    at = end + 1;
  }
  std::vector<uint64_t> once;
  for (const uint64_t value : values)
    if (std::find(once.begin(), once.end(), value) == once.end()) once.push_back(value);
  return once;
}

std::string text_of(Unit unit, uint64_t value) {
  const auto scaled = [value](std::span<const impair::Unit> units) {
    const impair::Unit* best = units.data();
    uint64_t step = 1;
    for (const impair::Unit& each : units) {
      step = 1;
      for (unsigned i = 0; i < each.decimals; ++i) step *= 10;
      if (value >= step) best = &each;
    }
    return impair::format_decimal(value, best->decimals) + std::string(best->name);
  };
  switch (unit) {
    case Unit::kPercent:
      return impair::format_decimal(value, kPpmDecimals) + "%";
    case Unit::kTime:
      return scaled(impair::kTimeUnits);
    case Unit::kRate:
      return scaled(impair::kRateUnits);
    case Unit::kBytes:
      if (value != 0 && value % (kKiB * kKiB) == 0) return fmt::format("{}M", value / kKiB / kKiB);
      return value != 0 && value % kKiB == 0 ? fmt::format("{}K", value / kKiB)
                                             : fmt::format("{}", value);
    default:
      return fmt::format("{}", value);
  }
}

}  // namespace hostnic::study
