// SPDX-License-Identifier: BSD-3-Clause
#include "tests/apps/verify/content.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "tests/apps/verify/rng.h"

namespace hostnic::verify {
namespace {

uint64_t word_of(Content content, uint64_t index) {
  if (content.stream == Content::kLiteralStream) return index == 0 ? content.literal : 0;
  return mix64(mix64(content.stream + 0x632be59bd9b4e019ULL) + index);
}

}  // namespace

void generate(Content content, std::span<std::byte> out) {
  const uint64_t key = mix64(content.stream + 0x632be59bd9b4e019ULL);
  const bool literal = content.stream == Content::kLiteralStream;
  uint64_t index = content.position / 8;
  size_t done = 0;
  if (size_t skip = content.position % 8; skip != 0 && !out.empty()) {
    const uint64_t word = word_of(content, index++);
    done = std::min<size_t>(8 - skip, out.size());
    std::memcpy(out.data(), reinterpret_cast<const std::byte*>(&word) + skip, done);
  }
  while (out.size() - done >= 8) {
    const uint64_t word = literal ? word_of(content, index) : mix64(key + index);
    std::memcpy(out.data() + done, &word, 8);
    ++index;
    done += 8;
  }
  if (done < out.size()) {
    const uint64_t word = word_of(content, index);
    std::memcpy(out.data() + done, &word, out.size() - done);
  }
}

std::optional<uint64_t> first_difference(std::span<const std::byte> memory, Content content) {
  std::array<std::byte, 4096> expected;
  for (uint64_t at = 0; at < memory.size(); at += expected.size()) {
    const size_t n = std::min<size_t>(expected.size(), memory.size() - at);
    generate(content.advanced(at), {expected.data(), n});
    if (std::memcmp(expected.data(), memory.data() + at, n) == 0) continue;
    const auto here = memory.subspan(at, n);
    return at + (std::mismatch(here.begin(), here.end(), expected.begin()).first - here.begin());
  }
  return std::nullopt;
}

ContentMap::ContentMap(uint64_t base_stream, uint64_t length) : length_(length) {
  map_.emplace(0, Content{base_stream, 0, 0});
}

void ContentMap::split(uint64_t offset) {
  if (offset >= length_) return;
  auto it = std::prev(map_.upper_bound(offset));
  if (it->first != offset)
    map_.emplace_hint(std::next(it), offset, it->second.advanced(offset - it->first));
}

void ContentMap::write(uint64_t offset, Extent extent) {
  if (extent.length == 0) return;
  const uint64_t end = offset + extent.length;
  split(offset);
  split(end);
  map_.erase(map_.lower_bound(offset), map_.lower_bound(end));
  map_.emplace(offset, extent.content);
}

void ContentMap::read(uint64_t offset, uint64_t length, std::vector<Extent>& out) const {
  const uint64_t end = offset + length;
  auto it = std::prev(map_.upper_bound(offset));
  while (offset < end) {
    const auto next = std::next(it);
    const uint64_t stop = std::min(end, next == map_.end() ? length_ : next->first);
    out.push_back({it->second.advanced(offset - it->first), stop - offset});
    offset = stop;
    it = next;
  }
}

std::optional<ContentMap::Difference> ContentMap::check(std::span<const std::byte> memory,
                                                        uint64_t offset, uint64_t length) const {
  std::vector<Extent> extents;
  read(offset, length, extents);
  for (const Extent& e : extents) {
    if (auto at = first_difference(memory.subspan(offset, e.length), e.content))
      return Difference{offset + *at, e.content.advanced(*at)};
    offset += e.length;
  }
  return std::nullopt;
}

void scatter(std::span<const Extent> extents, std::span<const Piece> pieces, ContentMap& into) {
  size_t piece = 0;
  uint64_t used = 0;
  for (Extent e : extents) {
    while (e.length > 0 && piece < pieces.size()) {
      const uint64_t n = std::min(e.length, pieces[piece].length - used);
      into.write(pieces[piece].offset + used, {e.content, n});
      e = {e.content.advanced(n), e.length - n};
      used += n;
      if (used == pieces[piece].length) {
        ++piece;
        used = 0;
      }
    }
  }
}

}  // namespace hostnic::verify
