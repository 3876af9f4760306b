// SPDX-License-Identifier: BSD-3-Clause
#include "protocol/wire/icrc_identification.h"

#include <algorithm>
#include <cassert>

#include "protocol/wire/icrc.h"

namespace hostnic::wire {

// The effect of a bit is the CRC, without its usual start and end values, of a packet that is zero
// but for that bit.
void IcrcIdentification::learn(size_t covered_bytes) {
  constexpr size_t kLowByte = ipv4_offset::kIdentification + 1;
  assert(covered_bytes >= kIcrcMaskedBytes);
  covered_bytes_ = covered_bytes;
  constexpr std::array<std::byte, 64> kZeros{};
  for (size_t bit = 0; bit < effects_.size(); ++bit) {
    const std::array<std::byte, 1> byte{static_cast<std::byte>(1u << bit)};
    uint32_t with = crc32_eth(byte), without = crc32_eth(std::span(kZeros).first(1));
    for (size_t left = covered_bytes - kLowByte - 1; left != 0;) {
      const size_t part = std::min(left, kZeros.size());
      with = crc32_eth(std::span(kZeros).first(part), with);
      without = crc32_eth(std::span(kZeros).first(part), without);
      left -= part;
    }
    effects_[bit] = with ^ without;
  }
}

std::optional<uint16_t> IcrcIdentification::find(uint32_t difference, uint16_t assumed,
                                                 size_t covered_bytes) {
  if (covered_bytes != covered_bytes_) learn(covered_bytes);
  for (uint32_t number = 0; number < kNumbers; ++number) {
    uint32_t effect = 0;
    for (uint32_t bits = number ^ assumed, bit = 0; bit < effects_.size(); ++bit)
      if ((bits >> bit & 1) != 0) effect ^= effects_[bit];
    if (effect == difference) return static_cast<uint16_t>(number);
  }
  return std::nullopt;
}

}  // namespace hostnic::wire
