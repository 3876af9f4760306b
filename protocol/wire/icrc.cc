// SPDX-License-Identifier: BSD-3-Clause
#include "protocol/wire/icrc.h"

#include <algorithm>

namespace hostnic::wire {
namespace {

constexpr uint32_t kPolynomial = 0xedb88320;
constexpr size_t kSlices = 8;

// The tables of "slicing by 8": tables[s][b] is what byte b contributes to the CRC when s more
// bytes follow it.
using Tables = std::array<std::array<uint32_t, 256>, kSlices>;

constexpr Tables make_tables() {
  Tables tables{};
  for (uint32_t b = 0; b < 256; ++b) {
    uint32_t crc = b;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? kPolynomial : 0);
    tables[0][b] = crc;
  }
  for (size_t s = 1; s < kSlices; ++s) {
    for (size_t b = 0; b < 256; ++b) {
      const uint32_t shorter = tables[s - 1][b];
      tables[s][b] = shorter >> 8 ^ tables[0][shorter & 0xff];
    }
  }
  return tables;
}

constexpr Tables kTables = make_tables();

}  // namespace

uint32_t crc32_eth(std::span<const std::byte> bytes, uint32_t previous) {
  uint32_t crc = ~previous;
  const std::byte* at = bytes.data();
  size_t left = bytes.size();
  for (; left >= kSlices; left -= kSlices, at += kSlices) {
    const uint32_t low = load_le32(at) ^ crc;
    const uint32_t high = load_le32(at + 4);
    crc = kTables[7][low & 0xff] ^ kTables[6][low >> 8 & 0xff] ^ kTables[5][low >> 16 & 0xff] ^
          kTables[4][low >> 24] ^ kTables[3][high & 0xff] ^ kTables[2][high >> 8 & 0xff] ^
          kTables[1][high >> 16 & 0xff] ^ kTables[0][high >> 24];
  }
  for (; left > 0; --left, ++at) crc = crc >> 8 ^ kTables[0][(crc ^ load_u8(at)) & 0xff];
  return ~crc;
}

uint32_t icrc_reference(std::span<const std::byte> packet_from_ip) {
  std::array<std::byte, kIcrcPrefixBytes + kIcrcMaskedBytes> masked;
  masked.fill(std::byte{0xff});
  const auto head = packet_from_ip.first(std::min(packet_from_ip.size(), kIcrcMaskedBytes));
  std::copy(head.begin(), head.end(), masked.begin() + kIcrcPrefixBytes);
  mask_variant_fields(masked.data() + kIcrcPrefixBytes);
  const uint32_t crc = crc32_eth(std::span(masked).first(kIcrcPrefixBytes + head.size()));
  return crc32_eth(packet_from_ip.subspan(head.size()), crc);
}

}  // namespace hostnic::wire
