// SPDX-License-Identifier: BSD-3-Clause
// The schema: which keys there are, of which type, and what sets them. One table serves the file
// and the command line. Internal to config/.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "config/config.h"

namespace hostnic::config {

using Value = std::variant<int64_t, bool, std::string>;
enum ValueType : unsigned { kInteger = 1, kBoolean = 2, kString = 4 };

struct ValueError {
  std::string message;
  // The place in a string value, bytes from 0, if the error is about a part of it.
  std::optional<size_t> offset;
};
using ValueResult = std::optional<ValueError>;  // nothing: the value was set

template <typename Target>
struct Key {
  std::string_view name;
  unsigned types;  // ValueType bits
  ValueResult (*set)(Target&, const Value&);
};

// A NIC before its defaults are filled in, some of which depend on other keys.
struct NicDraft {
  NicConfig nic;
  bool has_port = false, has_ip = false, has_mtu = false, has_gids = false;
};

std::span<const Key<HostnicdConfig>> hostnicd_keys();
std::span<const Key<Limits>> limits_keys();
std::span<const Key<NicDraft>> nic_keys();
std::span<const Key<Personality>> personality_keys();

// Fills in what was not given. An error says what must be given, or does not go together. `like` is
// the personality of a NIC that has none of its own, or null.
Expected<NicConfig, std::string> finish_nic(NicDraft draft, size_t index,
                                            const Personality* like = nullptr);

// The names of the keys for messages: "name, port, ip".
template <typename Target>
std::string key_names(std::span<const Key<Target>> keys) {
  std::string names;
  for (const auto& key : keys) names += (names.empty() ? "" : ", ") + std::string(key.name);
  return names;
}

template <typename Target>
const Key<Target>* find_key(std::span<const Key<Target>> keys, std::string_view name) {
  for (const auto& key : keys) {
    if (key.name == name) return &key;
  }
  return nullptr;
}

// The names of the types for messages: "an integer or a string".
std::string type_names(unsigned types);

}  // namespace hostnic::config
