// SPDX-License-Identifier: BSD-3-Clause
// Reads traces in CTF as DPDK writes them, i.e. one kind of metadata and one layout of streams, in
// this machine's byte order: what hostnicd's `trace points save` leaves. Files come from anywhere:
// whatever does not agree is an error of one line, and nothing is taken for a length or an offset
// that has not been compared with what is there. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "protocol/expected.h"

namespace hostnic::cli {

struct CtfField {
  std::string name;
  uint32_t offset = 0, bytes = 0;  // in the payload of its event
};
struct CtfEventKind {
  std::string name;
  std::vector<CtfField> fields;
  uint32_t bytes = 0;  // of its payload

  const CtfField* find(std::string_view field) const;
};

struct CtfMetadata {
  static constexpr size_t kMaxKinds = 4096, kMaxFields = 64;

  uint64_t frequency_hz = 0;
  std::map<uint16_t, CtfEventKind> kinds;
  uint64_t missed = 0;  // events that hostnicd has counted and not recorded

  static Expected<CtfMetadata, std::string> parse(std::string_view text);
};

// An event of a stream; its payload is as long as its kind says.
struct CtfEvent {
  const CtfEventKind* kind = nullptr;
  std::span<const std::byte> payload;

  // A field of at most 8 bytes, as a number without sign; nothing: it has no such field.
  std::optional<uint64_t> number(std::string_view field) const;
};

// The events of one stream, which outlives it together with the metadata.
class CtfStream {
 public:
  CtfStream(const CtfMetadata& metadata, std::span<const std::byte> bytes)
      : metadata_(metadata), bytes_(bytes) {}
  // The next event; nothing: there are no more. What is cut off at the end is left out.
  Expected<std::optional<CtfEvent>, std::string> next();

 private:
  const CtfMetadata& metadata_;
  std::span<const std::byte> bytes_;
  size_t at_ = 0;  // 0: the header has not been read
};

}  // namespace hostnic::cli
