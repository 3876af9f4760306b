// SPDX-License-Identifier: BSD-3-Clause
// IPv4 header without options, 20 bytes (RFC 791), and the Internet checksum (RFC 1071, RFC 1624).
#pragma once

#include <string>

#include "protocol/types.h"
#include "protocol/wire/bytes.h"

namespace hostnic::wire {

inline constexpr size_t kIpv4Bytes = 20;
inline constexpr uint8_t kIpProtocolUdp = 17;
inline constexpr uint8_t kDefaultHopLimit = 64;
inline constexpr uint8_t kEcnMask = 0x03;     // ECN bits of the TOS byte (RFC 3168)
inline constexpr uint8_t kEcnCapable = 0x02;  // ECT(0)
inline constexpr uint8_t kEcnCongestionExperienced = 0x03;

namespace ipv4_offset {
inline constexpr size_t kVersionIhl = 0;
inline constexpr size_t kTrafficClass = 1;  // DSCP 6 bits, ECN 2
inline constexpr size_t kTotalLength = 2;
inline constexpr size_t kIdentification = 4;
inline constexpr size_t kFragment = 6;  // reserved, DF, MF, offset 13 bits
inline constexpr size_t kHopLimit = 8;
inline constexpr size_t kProtocol = 9;
inline constexpr size_t kChecksum = 10;
inline constexpr size_t kSrc = 12;
inline constexpr size_t kDst = 16;
}  // namespace ipv4_offset

// The first byte of a header: version 4 and five words; no other is accepted or sent.
inline constexpr uint8_t kIpv4VersionIhl = 0x45;
inline constexpr uint16_t kIpv4DontFragment = 0x4000;
inline constexpr uint16_t kIpv4MoreFragmentsOrOffset = 0x3fff;

// The one's complement sum of the header's ten words, folded to 16 bits: 0xffff for a header whose
// checksum field is right; the complement of the checksum when that field is 0.
inline uint16_t ipv4_sum(std::span<const std::byte, kIpv4Bytes> header) {
  uint64_t sum = 0;
  for (size_t i = 0; i < kIpv4Bytes; i += 4) sum += load_be32(header.data() + i);
  sum = (sum & 0xffffffff) + (sum >> 32);
  sum = (sum & 0xffff) + (sum >> 16);
  sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<uint16_t>((sum & 0xffff) + (sum >> 16));
}

// The checksum after one 16-bit word changed from `before` to `after` (RFC 1624, equation 3).
inline uint16_t update_checksum(uint16_t checksum, uint16_t before, uint16_t after) {
  uint32_t sum =
      uint32_t{static_cast<uint16_t>(~checksum)} + static_cast<uint16_t>(~before) + uint32_t{after};
  sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<uint16_t>(~((sum & 0xffff) + (sum >> 16)));
}

// Identification is 0: with DF set it has no meaning (RFC 6864).
struct Ipv4 {
  uint8_t traffic_class = 0;
  uint16_t total_bytes = 0;  // header included
  uint8_t hop_limit = kDefaultHopLimit;
  uint8_t protocol = kIpProtocolUdp;
  Ipv4Address src{};
  Ipv4Address dst{};
  bool operator==(const Ipv4&) const = default;
};

class Ipv4View : public HeaderView<kIpv4Bytes> {
 public:
  using HeaderView::HeaderView;
  uint8_t version_ihl() const { return u8<ipv4_offset::kVersionIhl>(); }
  uint8_t traffic_class() const { return u8<ipv4_offset::kTrafficClass>(); }
  uint16_t total_bytes() const { return u16<ipv4_offset::kTotalLength>(); }
  bool is_fragment() const {
    return (u16<ipv4_offset::kFragment>() & kIpv4MoreFragmentsOrOffset) != 0;
  }
  uint8_t hop_limit() const { return u8<ipv4_offset::kHopLimit>(); }
  uint8_t protocol() const { return u8<ipv4_offset::kProtocol>(); }
  uint16_t checksum() const { return u16<ipv4_offset::kChecksum>(); }
  bool checksum_ok() const {
    return ipv4_sum(std::span<const std::byte, kIpv4Bytes>(field<0, kIpv4Bytes>(), kIpv4Bytes)) ==
           0xffff;
  }
  Ipv4Address src() const { return Ipv4Address{u32<ipv4_offset::kSrc>()}; }
  Ipv4Address dst() const { return Ipv4Address{u32<ipv4_offset::kDst>()}; }
  Ipv4 read() const {
    return {traffic_class(), total_bytes(), hop_limit(), protocol(), src(), dst()};
  }
};

// Writes a header with Don't Fragment set and the checksum filled in.
inline void emit(const Ipv4& header, std::span<std::byte, kIpv4Bytes> out) {
  const HeaderWriter<kIpv4Bytes> writer(out);
  writer.u8<ipv4_offset::kVersionIhl>(kIpv4VersionIhl);
  writer.u8<ipv4_offset::kTrafficClass>(header.traffic_class);
  writer.u16<ipv4_offset::kTotalLength>(header.total_bytes);
  writer.u16<ipv4_offset::kIdentification>(0);
  writer.u16<ipv4_offset::kFragment>(kIpv4DontFragment);
  writer.u8<ipv4_offset::kHopLimit>(header.hop_limit);
  writer.u8<ipv4_offset::kProtocol>(header.protocol);
  writer.u16<ipv4_offset::kChecksum>(0);
  writer.u32<ipv4_offset::kSrc>(raw(header.src));
  writer.u32<ipv4_offset::kDst>(raw(header.dst));
  writer.u16<ipv4_offset::kChecksum>(static_cast<uint16_t>(~ipv4_sum(out)));
}

// Prints "10.0.0.1".
std::string to_string(Ipv4Address address);
std::string to_string(const Ipv4& header);

}  // namespace hostnic::wire
