// SPDX-License-Identifier: BSD-3-Clause
// The TOML file: toml++ reads it, the schema's tables check it.
#include <toml++/toml.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "config/personality.h"
#include "config/values.h"

namespace hostnic::config {

namespace {

// Raised at the first error and caught in parse_config: toml++ reports by exception, too.
struct Failure {
  toml::source_position at;
  std::string message;
};

std::string type_of(const toml::node& node) {
  std::ostringstream name;
  name << node.type();
  return name.str();
}

template <typename Target>
Value checked_value(const Key<Target>& key, const toml::node& node) {
  if ((key.types & kString) && node.is_string()) return node.as_string()->get();
  if ((key.types & kInteger) && node.is_integer()) return node.as_integer()->get();
  if ((key.types & kBoolean) && node.is_boolean()) return node.as_boolean()->get();
  throw Failure{node.source().begin, fmt::format("{} is of type {} (use {})", key.name,
                                                 type_of(node), type_names(key.types))};
}

// The place in the file of a byte of a string value. It is exact only for one-line strings without
// escapes; otherwise it is where the string begins.
toml::source_position inside_string(const toml::node& node, size_t offset) {
  toml::source_position at = node.source().begin;
  const toml::source_position end = node.source().end;
  const size_t length = node.is_string() ? node.as_string()->get().size() : 0;
  if (at.line == end.line && end.column == at.column + length + 2) {
    at.column += 1 + static_cast<toml::source_index>(offset);
  }
  return at;
}

template <typename Target>
void set_key(std::span<const Key<Target>> keys, std::string_view place, Target& target,
             const toml::key& name, const toml::node& node) {
  const Key<Target>* key = find_key(keys, name.str());
  if (key == nullptr) {
    throw Failure{name.source().begin, fmt::format("unknown key \"{}\" in {} (it knows {})",
                                                   shown(name.str()), place, key_names(keys))};
  }
  const ValueResult error = key->set(target, checked_value(*key, node));
  if (!error) return;
  throw Failure{error->offset ? inside_string(node, *error->offset) : node.source().begin,
                error->message};
}

const toml::table& table_at(std::string_view name, const toml::node& node, const char* remedy) {
  if (const toml::table* table = node.as_table()) return *table;
  throw Failure{node.source().begin,
                fmt::format("{} is of type {} ({})", name, type_of(node), remedy)};
}

HostnicdConfig read_hostnicd(const toml::node& node) {
  HostnicdConfig config;
  for (const auto& [name, child] : table_at("hostnicd", node, "begin a table: [hostnicd]")) {
    if (name.str() != "limits") {
      set_key(hostnicd_keys(), "[hostnicd]", config, name, child);
      continue;
    }
    const auto& limits = table_at("limits", child, "begin a table: [hostnicd.limits]");
    for (const auto& [limit, value] : limits) {
      set_key(limits_keys(), "[hostnicd.limits]", config.limits, limit, value);
    }
  }
  return config;
}

std::vector<NicConfig> read_nics(const toml::node& node, const Personality* like) {
  constexpr const char* kRemedy = "begin each NIC with [[nic]]";
  const toml::array* array = node.as_array();
  if (array == nullptr) {
    throw Failure{node.source().begin,
                  fmt::format("nic is of type {} ({})", type_of(node), kRemedy)};
  }
  std::vector<NicConfig> nics;
  for (const toml::node& element : *array) {
    NicDraft draft;
    for (const auto& [name, child] : table_at("nic", element, kRemedy)) {
      set_key(nic_keys(), "[[nic]]", draft, name, child);
    }
    auto nic = finish_nic(std::move(draft), nics.size(), like);
    if (!nic) throw Failure{element.source().begin, nic.error()};
    nics.push_back(std::move(*nic));
    // Clashes are looked for here and not at the end, so that the error has the second NIC's place.
    if (const auto clash = check_nics(nics)) throw Failure{element.source().begin, *clash};
  }
  return nics;
}

Config read_config(const toml::table& root, const Personality* like) {
  Config config;
  for (const auto& [name, node] : root) {
    if (name.str() == "hostnicd") {
      config.hostnicd = read_hostnicd(node);
    } else if (name.str() == "nic") {
      config.nics = read_nics(node, like);
    } else {
      throw Failure{name.source().begin,
                    fmt::format("unknown key \"{}\" (a file has [hostnicd], [hostnicd.limits] and "
                                "[[nic]])",
                                shown(name.str()))};
    }
  }
  return config;
}

Personality read_personality(const toml::table& root) {
  Personality personality;
  for (const auto& [name, node] : root) {
    if (name.str() != "personality") {
      throw Failure{name.source().begin,
                    fmt::format("unknown key \"{}\" (a personality's file has [personality] alone)",
                                shown(name.str()))};
    }
    for (const auto& [key, child] : table_at("personality", node, "begin a table: [personality]")) {
      set_key(personality_keys(), "[personality]", personality, key, child);
    }
  }
  return personality;
}

ConfigError error_at(const std::string& source, toml::source_position at, std::string message) {
  return {source, at.line, at.column, std::move(message)};
}

}  // namespace

std::string ConfigError::text() const {
  if (line != 0) return fmt::format("{}:{}:{}: {}", source, line, column, message);
  if (column != 0) return fmt::format("{}: column {}: {}", source, column, message);
  return fmt::format("{}: {}", source, message);
}

namespace {

// Reads a text by `read`, which throws what is wrong with it.
template <typename Read>
auto parse(std::string_view text, const std::string& source_name, Read read)
    -> Expected<decltype(read(toml::table{})), ConfigError> {
  try {
    return read(toml::parse(text));
  } catch (const Failure& failure) {
    return Unexpected(error_at(source_name, failure.at, failure.message));
  } catch (const toml::parse_error& error) {
    return Unexpected(error_at(source_name, error.source().begin,
                               fmt::format("{} (this is not TOML)", shown(error.description()))));
  }
}

}  // namespace

Expected<Config, ConfigError> parse_config(std::string_view text, const std::string& source_name,
                                           const Personality* like) {
  return parse(text, source_name,
               [like](const toml::table& root) { return read_config(root, like); });
}

Expected<Personality, ConfigError> parse_personality(std::string_view text,
                                                     const std::string& source_name) {
  return parse(text, source_name, read_personality);
}

Expected<Config, ConfigError> load_config_file(const std::string& path, const Personality* like) {
  const auto unreadable = [&](int error) {
    return Unexpected(ConfigError{
        path, 0, 0,
        fmt::format("can't be read: {} (give --config a readable file)", std::strerror(error))});
  };
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) return unreadable(errno != 0 ? errno : EIO);
  std::ostringstream text;
  text << file.rdbuf();
  // A directory opens and then can't be read; an empty file sets failbit on `text` only.
  if (file.bad() || (text.fail() && errno != 0)) return unreadable(errno != 0 ? errno : EIO);
  return parse_config(text.str(), path, like);
}

}  // namespace hostnic::config
