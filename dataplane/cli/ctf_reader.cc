// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/cli/ctf_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <utility>

namespace hostnic::cli {
namespace {

constexpr uint32_t kMagic = 0xC1FC1FC1;
// magic, UUID, lcore and its name; an event's time and kind.
constexpr size_t kStreamHeaderBytes = 4 + 16 + 4 + 32, kEventHeaderBytes = 8;
constexpr int kKindShift = 48;

Unexpected<std::string> bad(std::string_view what) {
  return Unexpected(fmt::format("no trace of DPDK's that can be read: {}", what));
}

// The metadata's words and marks, one after the other; "" is its end.
class Tokens {
 public:
  explicit Tokens(std::string_view text) : rest_(text) {}

  std::string_view next() {
    skip_space();
    if (rest_.empty()) return {};
    size_t length = 1;
    if (rest_[0] == '"') {
      length = std::min(rest_.find('"', 1), rest_.size() - 1) + 1;
    } else if (is_word(rest_[0])) {
      while (length < rest_.size() && is_word(rest_[length])) ++length;
    }
    const std::string_view token = rest_.substr(0, length);
    rest_.remove_prefix(length);
    return token;
  }
  // Skips to the end of a block whose `{` was the last token. False: it has none.
  bool skip_block() {
    for (int depth = 1; depth != 0;) {
      const std::string_view token = next();
      if (token.empty()) return false;
      depth += token == "{" ? 1 : token == "}" ? -1 : 0;
    }
    return true;
  }

 private:
  static bool is_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.';
  }
  void skip_space() {
    for (;;) {
      const size_t begin = rest_.find_first_not_of(" \t\r\n");
      rest_.remove_prefix(std::min(begin, rest_.size()));
      if (!rest_.starts_with("/*")) return;
      const size_t end = rest_.find("*/", 2);
      rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 2);
    }
  }

  std::string_view rest_;
};

std::optional<uint64_t> number_in(std::string_view text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// The types of fields that DPDK's trace points can have.
std::optional<uint32_t> bytes_of(std::string_view type) {
  struct Type {
    std::string_view name;
    uint32_t bytes;
  };
  static constexpr Type kTypes[] = {
      {"uint8_t", 1}, {"int8_t", 1},    {"uint16_t", 2}, {"int16_t", 2}, {"uint32_t", 4},
      {"int32_t", 4}, {"uint64_t", 8},  {"int64_t", 8},  {"float", 4},   {"double", 8},
      {"size_t", 8},  {"uintptr_t", 8}, {"long", 8},     {"char", 1},    {"string_bounded_t", 1}};
  for (const Type& known : kTypes)
    if (known.name == type) return known.bytes;
  return std::nullopt;
}

std::string_view unquoted(std::string_view text) {
  if (text.size() < 2 || text.front() != '"' || text.back() != '"') return text;
  return text.substr(1, text.size() - 2);
}

// The fields of an event, behind the `{` of their structure.
Expected<void, std::string> parse_fields(Tokens& tokens, CtfEventKind& kind) {
  constexpr uint32_t kMostElements = 4096;
  for (;;) {
    const std::string_view type = tokens.next();
    if (type == "}") return {};
    const std::optional<uint32_t> bytes = bytes_of(type);
    if (!bytes) return bad("a field of a type that is none of trace points'");
    CtfField field{.name = std::string(tokens.next()), .offset = kind.bytes, .bytes = *bytes};
    std::string_view mark = tokens.next();
    // A string's length may stand behind its name or its type.
    if (mark == "[") {
      const std::optional<uint64_t> count = number_in(tokens.next());
      if (!count || *count > kMostElements || tokens.next() != "]")
        return bad("a field of unknown length");
      field.bytes *= static_cast<uint32_t>(*count);
      mark = tokens.next();
    }
    if (mark != ";") return bad("a field that does not end");
    if (kind.fields.size() == CtfMetadata::kMaxFields) return bad("an event with too many fields");
    kind.bytes += field.bytes;
    kind.fields.push_back(std::move(field));
  }
}

// An event, behind its `{`.
Expected<void, std::string> parse_event(Tokens& tokens, CtfMetadata& metadata) {
  CtfEventKind kind;
  std::optional<uint64_t> id;
  for (;;) {
    const std::string_view name = tokens.next();
    if (name == "}") break;
    if (name.empty()) return bad("an event that does not end");
    if (name == ";" || name == "=" || name == ":") continue;
    if (name == "fields") {
      std::string_view token = tokens.next();
      while (!token.empty() && token != "{") token = tokens.next();
      if (auto fields = parse_fields(tokens, kind); !fields) return fields;
    } else if (name == "id" || name == "name") {
      if (tokens.next() != "=") return bad("an event's id or name");
      const std::string_view value = tokens.next();
      if (name == "id")
        id = number_in(value);
      else
        kind.name = unquoted(value);
    }
  }
  if (!id || *id > UINT16_MAX) return bad("an event without id");
  if (metadata.kinds.size() == CtfMetadata::kMaxKinds) return bad("too many kinds of events");
  if (!metadata.kinds.emplace(static_cast<uint16_t>(*id), std::move(kind)).second)
    return bad("two kinds of events with one id");
  return {};
}

// A clock, behind its `{`.
Expected<void, std::string> parse_clock(Tokens& tokens, CtfMetadata& metadata) {
  for (std::string_view token = tokens.next(); token != "}"; token = tokens.next()) {
    if (token.empty()) return bad("a clock that does not end");
    if (token != "freq" || tokens.next() != "=") continue;
    metadata.frequency_hz = number_in(tokens.next()).value_or(0);
  }
  return {};
}

}  // namespace

const CtfField* CtfEventKind::find(std::string_view field) const {
  const auto found = std::ranges::find(fields, field, &CtfField::name);
  return found == fields.end() ? nullptr : &*found;
}

Expected<CtfMetadata, std::string> CtfMetadata::parse(std::string_view text) {
  CtfMetadata metadata;
  if (!text.starts_with("/* CTF 1.8 */")) return bad("its metadata is not of CTF 1.8");
  constexpr std::string_view kMissed = "/* hostnic: not traced: ";
  if (const size_t at = text.rfind(kMissed); at != std::string_view::npos) {
    const std::string_view rest = text.substr(at + kMissed.size());
    metadata.missed = number_in(rest.substr(0, rest.find(' '))).value_or(0);
  }
  Tokens tokens(text);
  std::string_view before;
  for (std::string_view token = tokens.next(); !token.empty();
       before = token, token = tokens.next()) {
    if (token != "{") continue;
    if (before == "event") {
      if (auto event = parse_event(tokens, metadata); !event) return Unexpected(event.error());
    } else if (before == "clock") {
      if (auto clock = parse_clock(tokens, metadata); !clock) return Unexpected(clock.error());
    } else if (!tokens.skip_block()) {
      return bad("its metadata does not end");
    }
  }
  if (metadata.frequency_hz == 0) return bad("a clock without frequency");
  return metadata;
}

std::optional<uint64_t> CtfEvent::number(std::string_view name) const {
  const CtfField* const field = kind->find(name);
  uint64_t value = 0;
  if (field == nullptr || field->bytes > sizeof(value)) return std::nullopt;
  std::memcpy(&value, payload.data() + field->offset, field->bytes);
  return value;
}

Expected<std::optional<CtfEvent>, std::string> CtfStream::next() {
  if (at_ == 0) {
    uint32_t magic = 0;
    if (bytes_.size() < kStreamHeaderBytes) return bad("a stream without header");
    std::memcpy(&magic, bytes_.data(), sizeof(magic));
    if (magic != kMagic) return bad("a stream of another kind, or another byte order");
    at_ = kStreamHeaderBytes;
  }
  // Events begin at multiples of 8, as seen from the first.
  const size_t begin = at_ + (kStreamHeaderBytes - at_) % 8;
  if (begin > bytes_.size() || bytes_.size() - begin < kEventHeaderBytes)
    return std::optional<CtfEvent>();
  uint64_t header = 0;
  std::memcpy(&header, bytes_.data() + begin, sizeof(header));
  const auto kind = metadata_.kinds.find(static_cast<uint16_t>(header >> kKindShift));
  if (kind == metadata_.kinds.end())
    return bad(fmt::format("an event of unknown kind {}", header >> kKindShift));
  const size_t payload = begin + kEventHeaderBytes;
  if (bytes_.size() - payload < kind->second.bytes) return std::optional<CtfEvent>();
  at_ = payload + kind->second.bytes;
  return std::optional(CtfEvent{&kind->second, bytes_.subspan(payload, kind->second.bytes)});
}

}  // namespace hostnic::cli
