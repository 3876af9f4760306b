// SPDX-License-Identifier: BSD-3-Clause
#include "config/values.h"

#include <charconv>

namespace hostnic::config {

std::string shown(std::string_view text) {
  constexpr size_t kLongest = 60;
  std::string line;
  for (const char c : text.substr(0, kLongest)) line += c >= ' ' && c <= '~' ? c : '?';
  return text.size() > kLongest ? line + "..." : line;
}

std::string type_names(unsigned types) {
  std::string names;
  const auto add = [&](unsigned type, const char* name) {
    if (types & type) names += (names.empty() ? "" : " or ") + std::string(name);
  };
  add(kInteger, "an integer");
  add(kBoolean, "true or false");
  add(kString, "a string");
  return names;
}

std::optional<wire::MacAddress> parse_mac(std::string_view text) {
  wire::MacAddress mac{};
  if (text.size() != 17) return std::nullopt;
  for (size_t i = 0; i < mac.size(); ++i) {
    const char* begin = text.data() + 3 * i;
    const auto [end, error] = std::from_chars(begin, begin + 2, mac[i], 16);
    if (error != std::errc() || end != begin + 2) return std::nullopt;
    if (i + 1 < mac.size() && begin[2] != ':') return std::nullopt;
  }
  return mac;
}

std::string to_string(const wire::MacAddress& mac) {
  return fmt::format("{:02x}", fmt::join(mac, ":"));
}

}  // namespace hostnic::config
