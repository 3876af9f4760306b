// SPDX-License-Identifier: BSD-3-Clause
#include "config/personality.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "config/shipped_personalities.h"
#include "config/values.h"

namespace hostnic::config {

namespace {

// A personality is some lines; whatever is longer, or no file, is something else.
constexpr off_t kLongestFileBytes = 65'536;

bool is_file_name(std::string_view text) {
  return text.find('/') != std::string_view::npos || text.ends_with(".toml");
}

// A path in one line, as errors have it.
std::string source_of(const std::string& path) {
  const auto printable = [](char c) { return c >= ' ' && c <= '~'; };
  return std::ranges::all_of(path, printable) ? path : shown(path);
}

Expected<Personality, ConfigError> load_file(const std::string& path) {
  const auto unreadable = [&](const char* why) {
    return Unexpected(ConfigError{source_of(path), 0, 0,
                                  fmt::format("can't be read: {} (give --like a personality's name "
                                              "or a readable file; `hostnic like` lists names)",
                                              why)});
  };
  struct stat about {};
  if (stat(path.c_str(), &about) != 0) return unreadable(std::strerror(errno));
  if (!S_ISREG(about.st_mode)) return unreadable("it is no regular file");
  if (about.st_size > kLongestFileBytes) return unreadable("it has more than 64 KiB");
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) return unreadable(std::strerror(errno != 0 ? errno : EIO));
  std::ostringstream text;
  text << file.rdbuf();
  return parse_personality(text.str(), source_of(path));
}

}  // namespace

std::span<const ShippedPersonality> shipped_personalities() { return kShipped; }

Expected<Personality, ConfigError> find_personality(const std::string& name_or_file) {
  if (is_file_name(name_or_file)) return load_file(name_or_file);
  const auto* const found = std::ranges::find(kShipped, name_or_file, &ShippedPersonality::name);
  if (found != std::end(kShipped))
    return parse_personality(found->text, std::string(found->name) + ".toml");
  std::string names;
  for (const ShippedPersonality& each : kShipped)
    names += (names.empty() ? "" : ", ") + std::string(each.name);
  return Unexpected(ConfigError{shown(name_or_file), 0, 0,
                                fmt::format("no such personality (use one of {}, or a file: "
                                            "./mine.toml)",
                                            names)});
}

}  // namespace hostnic::config
