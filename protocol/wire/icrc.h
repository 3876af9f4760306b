// SPDX-License-Identifier: BSD-3-Clause
// The Invariant CRC that ends a RoCEv2 packet (InfiniBand annex A17.3.3): the CRC-32 of Ethernet
// over
//   64 one bits, standing for the LRH that RoCEv2 does not have,
//   the packet from the IPv4 header to the end of the pad, in which everything a router or switch
//   may change counts as ones: IPv4 TOS, TTL and checksum, or IPv6 traffic class, flow label and
//   hop limit, UDP checksum, and BTH's byte 4 (FECN, BECN, reserved).
// The four bytes follow the pad in little-endian order: the CRC's least significant byte first.
// Pure functions, any thread.
#pragma once

#include <array>
#include <cassert>
#include <cstdint>
#include <span>

#include "protocol/wire/ipv6.h"
#include "protocol/wire/packet.h"

namespace hostnic::wire {

// The ICRC covers this many bytes of ones before the IP header.
inline constexpr size_t kIcrcPrefixBytes = 8;
// Everything that is masked lies in the first bytes of the packet: IPv4, UDP and BTH.
inline constexpr size_t kIcrcMaskedBytes = kIpv4Bytes + kUdpBytes + kBthBytes;

// The number of bytes from the IPv4 header on that the ICRC of a parsed packet, or of one about to
// be built, covers. The ICRC itself lies directly behind them.
inline size_t icrc_covered_bytes(const Packet& packet) {
  return header_bytes(packet) - kEthernetBytes + packet.payload_bytes +
         pad_bytes(packet.payload_bytes);
}

inline void store_icrc(std::byte* behind_pad, uint32_t icrc) { store_le32(behind_pad, icrc); }
inline uint32_t load_icrc(const std::byte* behind_pad) { return load_le32(behind_pad); }

// The CRC-32 of Ethernet (reflected polynomial 0xedb88320, initially all ones, finally inverted) in
// portable software. `previous` continues an earlier result, 0 starts: crc(ab) == crc(b, crc(a)).
uint32_t crc32_eth(std::span<const std::byte> bytes, uint32_t previous = 0);

// The ICRC in portable software, leaving the packet untouched: the reference for tests and for
// hosts without a fast CRC. `packet_from_ip` reaches from the IPv4 header to the end of the pad,
// without the ICRC. Fewer than kIcrcMaskedBytes are no RoCEv2 packet; the result is then defined
// but useless.
uint32_t icrc_reference(std::span<const std::byte> packet_from_ip);

// Sets to ones the fields that the ICRC does not protect. `ip_header` is kIcrcMaskedBytes writable
// bytes.
inline void mask_variant_fields(std::byte* ip_header) {
  constexpr size_t kUdp = kIpv4Bytes;
  constexpr size_t kBth = kIpv4Bytes + kUdpBytes;
  store_u8(ip_header + ipv4_offset::kTrafficClass, 0xff);
  store_u8(ip_header + ipv4_offset::kHopLimit, 0xff);
  store_be16(ip_header + ipv4_offset::kChecksum, 0xffff);
  store_be16(ip_header + kUdp + udp_offset::kChecksum, 0xffff);
  store_u8(ip_header + kBth + bth_offset::kCongestion, 0xff);
}

namespace icrc_detail {
template <size_t MaskedBytes, typename Mask, typename Crc>
uint32_t in_place(std::byte* ip_header, size_t bytes, const Mask& mask, Crc& crc) {
  assert(bytes >= MaskedBytes);
  std::byte* const start = ip_header - kIcrcPrefixBytes;
  std::array<std::byte, kIcrcPrefixBytes + MaskedBytes> saved;
  std::memcpy(saved.data(), start, saved.size());
  std::memset(start, 0xff, kIcrcPrefixBytes);
  mask(ip_header);
  const uint32_t icrc = crc(static_cast<const std::byte*>(start), bytes + kIcrcPrefixBytes);
  std::memcpy(start, saved.data(), saved.size());
  return icrc;
}
}  // namespace icrc_detail

// The bytes that are masked of a packet with an IPv6 header.
inline constexpr size_t kIcrcMaskedIpv6Bytes = kIpv6Bytes + kUdpBytes + kBthBytes;
// As mask_variant_fields(), of a packet with an IPv6 header: `ip_header` is kIcrcMaskedIpv6Bytes.
inline void mask_variant_fields_ipv6(std::byte* ip_header) {
  store_be32(ip_header + ipv6_offset::kVersion, kIpv6MaskedFirstWord);
  store_u8(ip_header + ipv6_offset::kHopLimit, 0xff);
  store_be16(ip_header + kIpv6Bytes + udp_offset::kChecksum, 0xffff);
  store_u8(ip_header + kIpv6Bytes + kUdpBytes + bth_offset::kCongestion, 0xff);
}

// The ICRC by a caller's one-shot CRC function over one contiguous range, for instance DPDK's
// vectorised one: `uint32_t crc(const std::byte* data, size_t bytes)`, equal to crc32_eth().
// `ip_header`: `bytes` (>= kIcrcMaskedBytes, which any packet that parse() accepts has) up to the
// end of the pad, writable, and so are the 8 bytes before it: the Ethernet header's tail. Both are
// changed while crc runs and restored before the return, so nobody else may look meanwhile.
template <typename Crc>
uint32_t icrc_in_place(std::byte* ip_header, size_t bytes, Crc&& crc) {
  return icrc_detail::in_place<kIcrcMaskedBytes>(ip_header, bytes, mask_variant_fields, crc);
}
// As icrc_in_place(), of a packet with an IPv6 header; `bytes` >= kIcrcMaskedIpv6Bytes.
template <typename Crc>
uint32_t icrc_ipv6_in_place(std::byte* ip_header, size_t bytes, Crc&& crc) {
  return icrc_detail::in_place<kIcrcMaskedIpv6Bytes>(ip_header, bytes, mask_variant_fields_ipv6,
                                                     crc);
}

}  // namespace hostnic::wire
