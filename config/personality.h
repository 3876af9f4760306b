// SPDX-License-Identifier: BSD-3-Clause
// Personalities: what programs see of a device, as a TOML file says it (config/like/). Some are
// shipped; their files are part of the program.
//
// Any thread; nothing throws on bad input.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "config/config.h"

namespace hostnic::config {

struct ShippedPersonality {
  std::string_view name;
  std::string_view text;  // the file
};
// All of them, by name.
std::span<const ShippedPersonality> shipped_personalities();

// Finds one that is shipped, by its name, or reads a file: whatever has a '/' or ends with ".toml".
// An error names the file, the key and the remedy.
Expected<Personality, ConfigError> find_personality(const std::string& name_or_file);
// Parses a file's text; `source_name` stands in errors for the file's name.
Expected<Personality, ConfigError> parse_personality(std::string_view text,
                                                     const std::string& source_name);

}  // namespace hostnic::config
