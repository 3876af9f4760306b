// SPDX-License-Identifier: BSD-3-Clause
// What memory is expected to hold, without a copy of it: every byte is named by the stream of
// pseudo-random bytes it came from and its position there. A map of extents then stands for a
// gigabyte, and the NIC's work is modelled by copying names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

namespace hostnic::verify {

// A run of bytes: `stream` names a pseudo-random stream and `position` the first byte in it; a
// literal is a stream of 8 bytes, `literal` in host order (results of atomics).
struct Content {
  uint64_t stream = 0;
  uint64_t position = 0;
  uint64_t literal = 0;

  static constexpr uint64_t kLiteralStream = ~0ULL;
  static Content of_literal(uint64_t value) { return {kLiteralStream, 0, value}; }
  Content advanced(uint64_t bytes) const { return {stream, position + bytes, literal}; }
};

struct Extent {
  Content content;
  uint64_t length = 0;
};

// One piece of a gather or scatter list, as an offset into a region; length 0 is allowed.
struct Piece {
  uint64_t offset = 0;
  uint64_t length = 0;
};

// Fills `out` with the bytes that `content` names.
void generate(Content content, std::span<std::byte> out);

// Offset of the first byte of `memory` that differs from `content`, none if all are equal.
std::optional<uint64_t> first_difference(std::span<const std::byte> memory, Content content);

// The expected content of one region.
class ContentMap {
 public:
  // Every byte starts as `base`, position = offset.
  ContentMap(uint64_t base_stream, uint64_t length);

  uint64_t length() const { return length_; }
  void write(uint64_t offset, Extent extent);
  // Appends the extents of [offset, offset + length) to `out`.
  void read(uint64_t offset, uint64_t length, std::vector<Extent>& out) const;

  struct Difference {
    uint64_t offset;
    Content expected;
  };
  // First byte of [offset, offset + length) of `memory` (the whole region) that differs.
  std::optional<Difference> check(std::span<const std::byte> memory, uint64_t offset,
                                  uint64_t length) const;

 private:
  using Map = std::map<uint64_t, Content>;  // by first offset; an extent ends where the next begins
  void split(uint64_t offset);

  Map map_;
  uint64_t length_;
};

// Lays the message `extents` over the pieces in order, as a NIC scatters it; what exceeds either
// is left out.
void scatter(std::span<const Extent> extents, std::span<const Piece> pieces, ContentMap& into);

}  // namespace hostnic::verify
