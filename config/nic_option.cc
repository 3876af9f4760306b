// SPDX-License-Identifier: BSD-3-Clause
// --nic: our keys and the port's, in one comma-separated list as DPDK's devargs are written.
#include <bitset>

#include "config/values.h"
#include "protocol/impair/spec_values.h"

namespace hostnic::config {

namespace {

ConfigError error_at(size_t offset, std::string message) {
  return {"--nic", 0, static_cast<uint32_t>(offset + 1), std::move(message)};
}

std::optional<Value> to_value(unsigned types, std::string_view text) {
  if (types & kInteger) {
    const auto number = impair::parse_integer(text);
    if (number && *number <= INT64_MAX) return static_cast<int64_t>(*number);
  }
  if ((types & kBoolean) && (text == "true" || text == "false")) return text == "true";
  if (types & kString) return std::string(text);
  return std::nullopt;
}

// The length of the text's first item. Commas within [] belong to the item, as in
// "representor=[0,2]".
size_t item_length(std::string_view text) {
  int depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '[') ++depth;
    if (text[i] == ']' && depth > 0) --depth;
    if (text[i] == ',' && depth == 0) return i;
  }
  return text.size();
}

// The length of an impairment, which may have commas itself ("kind ack,data"): an item without '='
// behind one goes on with it.
size_t impairment_length(std::string_view text, size_t length) {
  while (length < text.size()) {
    const std::string_view rest = text.substr(length + 1);
    const size_t next = item_length(rest);
    if (rest.substr(0, next).find('=') != std::string_view::npos) break;
    length += 1 + next;
  }
  return length;
}

// Gathers the items: ours into the draft, the others unchanged.
class OptionReader {
 public:
  OptionReader(std::string_view text, const Personality* like) : text_(text), like_(like) {}

  Expected<NicConfig, ConfigError> read(size_t index) {
    size_t offset = 0;
    do {
      const std::string_view rest = text_.substr(offset);
      size_t length = item_length(rest);
      if (rest.starts_with("impair_")) length = impairment_length(rest, length);
      if (auto error = read_item(rest.substr(0, length), offset)) return Unexpected(*error);
      offset += length + 1;
    } while (offset <= text_.size());

    if (!port_arguments_.empty() && draft_.nic.on_wire()) {
      return Unexpected(
          error_at(first_unknown_,
                   fmt::format("\"{}\" is no key of a NIC on the wire (give a port=, or use {})",
                               shown(port_arguments_.substr(1)), key_names(nic_keys()))));
    }
    draft_.nic.port += port_arguments_;
    auto nic = finish_nic(std::move(draft_), index, like_);
    if (!nic) return Unexpected(error_at(0, nic.error()));
    return std::move(*nic);
  }

 private:
  std::optional<ConfigError> read_item(std::string_view item, size_t offset) {
    const size_t equals = item.find('=');
    const std::string_view name = item.substr(0, equals);
    if (name.empty()) return error_at(offset, "expected key=value (such as ip=10.0.0.1/24)");
    const Key<NicDraft>* key = find_key(nic_keys(), name);
    if (key != nullptr) return read_key(*key, item, equals, offset);
    if (port_arguments_.empty()) first_unknown_ = offset;
    port_arguments_ += "," + std::string(item);
    return std::nullopt;
  }

  std::optional<ConfigError> read_key(const Key<NicDraft>& key, std::string_view item,
                                      size_t equals, size_t offset) {
    if (equals == std::string_view::npos) {
      return error_at(offset, fmt::format("{} has no value (write {}=...)", key.name, key.name));
    }
    const size_t bit = static_cast<size_t>(&key - nic_keys().data());
    if (seen_[bit]) return error_at(offset, fmt::format("{} is given twice (drop one)", key.name));
    seen_[bit] = true;
    const std::string_view text = item.substr(equals + 1);
    const size_t value_offset = offset + equals + 1;
    const auto value = to_value(key.types, text);
    if (!value) {
      return error_at(value_offset, fmt::format("{} is \"{}\" (use {})", key.name, shown(text),
                                                type_names(key.types)));
    }
    const ValueResult error = key.set(draft_, *value);
    if (!error) return std::nullopt;
    return error_at(value_offset + error->offset.value_or(0), error->message);
  }

  std::string_view text_;
  const Personality* like_;
  NicDraft draft_;
  std::bitset<32> seen_;        // our keys, by place in the table
  std::string port_arguments_;  // ",iface=veth0"
  size_t first_unknown_ = 0;    // where the arguments in port_arguments_ begin in the text
};

}  // namespace

Expected<NicConfig, ConfigError> parse_nic_option(std::string_view text, size_t index,
                                                  const Personality* like) {
  return OptionReader(text, like).read(index);
}

}  // namespace hostnic::config
