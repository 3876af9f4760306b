// SPDX-License-Identifier: BSD-3-Clause
// IPv6 header without extension headers, 40 bytes (RFC 8200). Before a RoCEv2 packet it is what the
// GRH is in InfiniBand, and datagrams' receives begin with it.
#pragma once

#include <algorithm>

#include "protocol/gid.h"
#include "protocol/wire/bytes.h"

namespace hostnic::wire {

inline constexpr size_t kIpv6Bytes = 40;

namespace ipv6_offset {
inline constexpr size_t kVersion = 0;  // 4 bits; traffic class 8 bits, flow label 20
inline constexpr size_t kPayloadLength = 4;
inline constexpr size_t kNextHeader = 6;
inline constexpr size_t kHopLimit = 7;
inline constexpr size_t kSrc = 8;
inline constexpr size_t kDst = 24;
}  // namespace ipv6_offset

// The first word of a header with the traffic class and flow label that ICRCs are made with: ones.
inline constexpr uint32_t kIpv6MaskedFirstWord = 0x6fffffff;

struct Ipv6 {
  uint8_t traffic_class = 0;
  uint32_t flow_label = 0;     // 20 bits
  uint16_t payload_bytes = 0;  // what follows the header
  uint8_t next_header = 17;    // UDP
  uint8_t hop_limit = 64;
  Gid src{}, dst{};
  bool operator==(const Ipv6&) const = default;
};

inline void emit(const Ipv6& header, std::span<std::byte, kIpv6Bytes> out) {
  constexpr uint32_t kVersion = 6u << 28, kFlowLabelMask = 0xfffff;
  store_be32(out.data() + ipv6_offset::kVersion, kVersion | uint32_t{header.traffic_class} << 20 |
                                                     (header.flow_label & kFlowLabelMask));
  store_be16(out.data() + ipv6_offset::kPayloadLength, header.payload_bytes);
  store_u8(out.data() + ipv6_offset::kNextHeader, header.next_header);
  store_u8(out.data() + ipv6_offset::kHopLimit, header.hop_limit);
  std::copy(header.src.begin(), header.src.end(), out.begin() + ipv6_offset::kSrc);
  std::copy(header.dst.begin(), header.dst.end(), out.begin() + ipv6_offset::kDst);
}

}  // namespace hostnic::wire
