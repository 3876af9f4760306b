// SPDX-License-Identifier: BSD-3-Clause
// The ICRC against packets of other implementations, against its own definition bit by bit, and the
// in-place variant against the reference.
#include "protocol/wire/icrc.h"

#include <gtest/gtest.h>

#include <optional>
#include <random>

#include "protocol/wire/icrc_identification.h"
#include "tests/unit/wire/samples.h"

namespace hostnic::wire {
namespace {

using samples::Bytes;

template <size_t N>
Bytes bytes_of(const uint8_t (&values)[N]) {
  Bytes bytes;
  for (uint8_t v : values) bytes.push_back(std::byte{v});
  return bytes;
}

// CRC-32 one bit at a time, straight from the polynomial.
uint32_t crc32_by_bits(std::span<const std::byte> bytes) {
  uint32_t crc = 0xffffffff;
  for (std::byte b : bytes) {
    for (int bit = 0; bit < 8; ++bit) {
      const uint32_t in = std::to_integer<uint32_t>(b) >> bit & 1;
      crc = (crc ^ in) & 1 ? crc >> 1 ^ 0xedb88320 : crc >> 1;
    }
  }
  return ~crc;
}

uint32_t crc_function(const std::byte* data, size_t bytes) { return crc32_by_bits({data, bytes}); }

TEST(Crc32, CheckValue) {
  EXPECT_EQ(crc32_eth(std::as_bytes(std::span("123456789", 9))), 0xcbf43926u);
  EXPECT_EQ(crc32_eth({}), 0u);
}

TEST(Crc32, EqualsTheBitwiseDefinitionAtEveryLengthAndSplit) {
  Bytes bytes;
  for (size_t length = 0; length < 70; ++length) {
    ASSERT_EQ(crc32_eth(bytes), crc32_by_bits(bytes)) << length;
    const std::span<const std::byte> all(bytes);
    for (size_t split = 0; split <= length; ++split) {
      ASSERT_EQ(crc32_eth(all.subspan(split), crc32_eth(all.first(split))), crc32_eth(all));
    }
    bytes.push_back(std::byte(length * 37 + 11));
  }
}

// A congestion notification captured from a ConnectX-4 Lx (test vector of scapy's RoCE layer), from
// the IP header on, with its ICRC.
constexpr uint8_t kCapturedCnp[] = {
    0x45, 0xc2, 0x00, 0x3c, 0x71, 0x8c, 0x40, 0x00, 0x40, 0x11, 0x91, 0x61, 0x0a, 0x00, 0x11,
    0x01, 0x0a, 0x00, 0x12, 0x01, 0x00, 0x00, 0x12, 0xb7, 0x00, 0x28, 0x00, 0x00, 0x81, 0x00,
    0xff, 0xff, 0x40, 0x00, 0x01, 0x18, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x82, 0xfd, 0x00, 0x2a};

// A UC SEND Only with 18 bytes of payload and 2 of pad (same source); its ICRC is 78 f3 53 f3.
constexpr uint8_t kUcSend[] = {
    0x45, 0x01, 0x00, 0x40, 0x04, 0x78, 0x40, 0x00, 0x40, 0x11, 0xb4, 0xd5, 0xc0, 0xa8, 0x00, 0x07,
    0xc0, 0xa8, 0x00, 0x07, 0xc0, 0x00, 0x12, 0xb7, 0x00, 0x2c, 0xac, 0xa2, 0x24, 0x60, 0xff, 0xff,
    0x00, 0x00, 0x00, 0xd3, 0x00, 0xcf, 0x17, 0x10, 'F',  '0',  0x81, 0x8b, 0xe2, 0x89, '5',  0xd9,
    0x0e, 0x9a, 0x95, 'P',  'T',  0x01, 0xbe, 0x88, '^',  'P',  0x00, 0x00, 0x78, 0xf3, 0x53, 0xf3};

class KnownPacket : public testing::TestWithParam<Bytes> {};

TEST_P(KnownPacket, IcrcMatches) {
  const Bytes& packet = GetParam();
  const auto covered = std::span(packet).first(packet.size() - kIcrcBytes);
  const uint32_t icrc = icrc_reference(covered);
  EXPECT_EQ(icrc, load_icrc(packet.data() + covered.size()));
  std::array<std::byte, kIcrcBytes> stored;
  store_icrc(stored.data(), icrc);
  EXPECT_TRUE(std::equal(stored.begin(), stored.end(), packet.begin() + covered.size()));
}

TEST_P(KnownPacket, InPlaceEqualsReferenceAndRestoresEverything) {
  Bytes memory(kEthernetBytes, std::byte{0x5c});
  memory.insert(memory.end(), GetParam().begin(), GetParam().end());
  const Bytes before = memory;
  const size_t covered = GetParam().size() - kIcrcBytes;
  const uint32_t icrc = icrc_in_place(memory.data() + kEthernetBytes, covered, crc_function);
  EXPECT_EQ(icrc, load_icrc(GetParam().data() + covered));
  EXPECT_EQ(memory, before);
}

INSTANTIATE_TEST_SUITE_P(Wire, KnownPacket,
                         testing::Values(bytes_of(kCapturedCnp), bytes_of(kUcSend)));

// Which bytes of the 40 that the mask can touch the ICRC leaves out: TOS, TTL, IP checksum, UDP
// checksum, BTH byte 4. Everything else, above all BTH byte 8 with our flags, is protected.
TEST(Icrc, CoversAllButTheVariantFields) {
  const Bytes frame = samples::frame(samples::packet(Opcode::kSend, 13), true);
  const Bytes packet(frame.begin() + kEthernetBytes, frame.end() - kIcrcBytes);
  const uint32_t good = icrc_reference(packet);
  for (size_t bit = 0; bit < packet.size() * 8; ++bit) {
    const size_t at = bit / 8;
    const bool variant =
        at == 1 || at == 8 || at == 10 || at == 11 || at == 26 || at == 27 || at == 32;
    Bytes changed = packet;
    changed[at] ^= std::byte(1 << bit % 8);
    EXPECT_EQ(icrc_reference(changed) == good, variant) << "byte " << at;
  }
}

TEST(Icrc, InPlaceEqualsReferenceForEveryOpcodeAndSize) {
  for (const OpcodeInfo& info : samples::kPlainOpcodes) {
    for (const uint16_t payload_bytes : {0, 1, 2, 3, 4, 5, 255, 1024}) {
      const Packet p = samples::packet(info.opcode, payload_bytes);
      Bytes frame = samples::frame(p, true);
      const Bytes before = frame;
      ASSERT_EQ(frame.size(), kEthernetBytes + icrc_covered_bytes(p) + kIcrcBytes);
      const uint32_t icrc =
          icrc_in_place(frame.data() + kEthernetBytes, icrc_covered_bytes(p), crc_function);
      EXPECT_EQ(icrc, load_icrc(frame.data() + frame.size() - kIcrcBytes)) << info.name;
      EXPECT_EQ(frame, before);
    }
  }
}

TEST(Icrc, FewerBytesThanAPacketAreNotReadBeyond) {
  const Bytes frame = samples::frame(samples::packet(Opcode::kSend, 13), true);
  for (size_t length = 0; length <= kIcrcMaskedBytes; ++length) {
    const samples::ExactCopy copy{std::span(frame).subspan(kEthernetBytes, length)};
    Bytes masked(kIcrcPrefixBytes + kIcrcMaskedBytes, std::byte{0xff});
    std::copy_n(frame.begin() + kEthernetBytes, length, masked.begin() + kIcrcPrefixBytes);
    mask_variant_fields(masked.data() + kIcrcPrefixBytes);
    masked.resize(kIcrcPrefixBytes + length);
    EXPECT_EQ(icrc_reference(copy.bytes()), crc32_by_bits(masked)) << length;
  }
}

// Packets as Linux numbers those of one segmented send, whose receiver assumes another number.
TEST(IcrcIdentification, IsFoundFromTheIcrc) {
  IcrcIdentification finder;
  std::mt19937 random(1);
  for (const size_t covered : {size_t{40}, size_t{44}, size_t{104}, size_t{1104}, size_t{4176}}) {
    std::vector<std::byte> packet(covered);
    for (std::byte& byte : packet) byte = static_cast<std::byte>(random());
    const auto icrc_as = [&](uint16_t number) {
      store_be16(packet.data() + ipv4_offset::kIdentification, number);
      return icrc_reference(packet);
    };
    for (const uint16_t number : {0, 1, 2, 63, 64, 127}) {
      const uint32_t icrc = icrc_as(number);
      for (const uint16_t assumed : {0, 5, 127})
        EXPECT_EQ(finder.find(icrc_as(assumed) ^ icrc, assumed, covered), number) << covered;
      // A damaged packet is right for no number.
      for (int i = 0; i < 200; ++i) {
        const size_t at = kIcrcMaskedBytes + random() % (covered - kIcrcMaskedBytes + 1);
        if (at >= covered) continue;
        packet[at] ^= static_cast<std::byte>(1 + random() % 255);
        EXPECT_EQ(finder.find(icrc_as(0) ^ icrc, 0, covered), std::nullopt) << covered << " " << at;
        icrc_as(number);
        packet[at] = static_cast<std::byte>(random());  // another packet, whose ICRC differs
      }
    }
    EXPECT_EQ(finder.find(icrc_as(0) ^ icrc_as(128), 0, covered), std::nullopt) << "too large";
  }
}

}  // namespace
}  // namespace hostnic::wire
