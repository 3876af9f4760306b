// SPDX-License-Identifier: BSD-3-Clause
#include "protocol/impair/spec_values.h"

#include <charconv>
#include <limits>

namespace hostnic::impair {

namespace {

// Appends a digit; returns false if the number no longer fits.
bool append_digit(uint64_t& value, unsigned digit) {
  constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();
  if (value > (kMax - digit) / 10) return false;
  value = value * 10 + digit;
  return true;
}

}  // namespace

std::optional<uint64_t> parse_decimal(std::string_view text, unsigned decimals) {
  uint64_t value = 0;
  unsigned decimals_seen = 0;
  bool after_point = false, any_digit = false;
  for (const char c : text) {
    if (c == '.') {
      if (after_point) return std::nullopt;
      after_point = true;
      continue;
    }
    if (c < '0' || c > '9') return std::nullopt;
    any_digit = true;
    if (after_point && decimals_seen == decimals) {
      if (c != '0') return std::nullopt;
      continue;
    }
    decimals_seen += after_point;
    if (!append_digit(value, static_cast<unsigned>(c - '0'))) return std::nullopt;
  }
  if (!any_digit) return std::nullopt;
  for (; decimals_seen < decimals; ++decimals_seen) {
    if (!append_digit(value, 0)) return std::nullopt;
  }
  return value;
}

std::string format_decimal(uint64_t value, unsigned decimals) {
  std::string digits = std::to_string(value);
  if (decimals == 0) return digits;
  if (digits.size() <= decimals) digits.insert(0, decimals + 1 - digits.size(), '0');
  digits.insert(digits.size() - decimals, ".");
  digits.erase(digits.find_last_not_of('0') + 1);
  if (digits.back() == '.') digits.pop_back();
  return digits;
}

std::optional<uint64_t> parse_integer(std::string_view text) {
  int base = 10;
  if (text.starts_with("0x") || text.starts_with("0X")) {
    text.remove_prefix(2);
    base = 16;
  }
  uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stopped_at, error] = std::from_chars(text.data(), end, value, base);
  if (error != std::errc() || stopped_at != end) return std::nullopt;
  return value;
}

std::optional<Ipv4Address> parse_ipv4(std::string_view text) {
  uint32_t address = 0;
  for (int part = 0; part < 4; ++part) {
    const size_t length = part < 3 ? text.find('.') : text.size();
    if (length == std::string_view::npos || length == 0 || length > 3) return std::nullopt;
    const auto byte = parse_decimal(text.substr(0, length), 0);
    const bool has_point = text.substr(0, length).find('.') != std::string_view::npos;
    if (!byte || *byte > 255 || has_point) return std::nullopt;
    address = address << 8 | static_cast<uint32_t>(*byte);
    text.remove_prefix(part < 3 ? length + 1 : length);
  }
  return Ipv4Address{address};
}

std::string format_ipv4(Ipv4Address address) {
  std::string text;
  for (int shift = 24; shift >= 0; shift -= 8) {
    text += std::to_string(raw(address) >> shift & 0xff);
    if (shift > 0) text += '.';
  }
  return text;
}

}  // namespace hostnic::impair
