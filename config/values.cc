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

bool is_plain_name(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  });
}

ValueResult set_gids(Gids& out, const Value& value) {
  return set_choice(out, "gids", value,
                    {{"auto", Gids::kAuto},
                     {"one", Gids::kOne},
                     {"mlx5", Gids::kMlx5},
                     {"rxe", Gids::kRxe},
                     {"link-local", Gids::kLinkLocal}});
}

ValueResult set_vendor_number(uint32_t& out, std::string_view key, const Value& value) {
  constexpr int64_t kMost = 0xffffff;
  if (!std::holds_alternative<std::string>(value)) return set_integer(out, key, value, 0, kMost);
  const std::string& text = std::get<std::string>(value);
  const size_t prefix = text.starts_with("0x") ? 2 : 0;
  const char* const end = text.data() + text.size();
  uint32_t number = 0;
  const auto [at, code] = std::from_chars(text.data() + prefix, end, number, prefix == 0 ? 10 : 16);
  if (text.size() == prefix || code != std::errc{} || at != end || number > kMost)
    return bad_value(key, fmt::format("\"{}\"", text), "use a number up to 0xffffff");
  out = number;
  return std::nullopt;
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
