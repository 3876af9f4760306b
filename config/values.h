// SPDX-License-Identifier: BSD-3-Clause
// Setters shared by the schema's keys. Internal to config/.
#pragma once

#include <fmt/format.h>

#include <initializer_list>
#include <utility>

#include "config/keys.h"

namespace hostnic::config {

// Shows a value in one line, unprintable bytes as '?', cut when long: values come from people.
std::string shown(std::string_view text);

inline ValueError bad_value(std::string_view key, std::string_view value, std::string_view remedy) {
  return {fmt::format("{} is {} ({})", key, shown(value), remedy), std::nullopt};
}

template <typename Enum>
ValueResult set_choice(Enum& out, std::string_view key, const Value& value,
                       std::initializer_list<std::pair<std::string_view, Enum>> choices) {
  const std::string& text = std::get<std::string>(value);
  std::string names;
  for (const auto& [name, choice] : choices) {
    if (text == name) {
      out = choice;
      return std::nullopt;
    }
    names += (names.empty() ? "" : ", ") + std::string(name);
  }
  return bad_value(key, fmt::format("\"{}\"", text), "use one of: " + names);
}

template <typename Int>
ValueResult set_integer(Int& out, std::string_view key, const Value& value, int64_t least,
                        int64_t most) {
  const int64_t number = std::get<int64_t>(value);
  if (number < least || number > most) {
    return bad_value(key, fmt::format("{}", number), fmt::format("use {} to {}", least, most));
  }
  out = static_cast<Int>(number);
  return std::nullopt;
}

// The layouts of a GID table, for the NIC's key and the personality's.
ValueResult set_gids(Gids& out, const Value& value);
// A vendor's or a part's number: an integer, or text such as "0x2c9".
ValueResult set_vendor_number(uint32_t& out, std::string_view key, const Value& value);
// Whether a text has nothing but what names of devices may have: letters, digits, '-' and '_'.
bool is_plain_name(std::string_view text);

std::optional<wire::MacAddress> parse_mac(std::string_view text);

}  // namespace hostnic::config
