// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>

#include "protocol/wire/hostnic/extensions.h"
#include "protocol/wire/mrc/packet.h"
#include "protocol/wire/packet.h"
#include "protocol/wire/rocev2/extensions.h"

namespace hostnic::wire {
namespace {

constexpr size_t kUdpOffset = kEthernetBytes + kIpv4Bytes;
constexpr size_t kExtensionOffset = kFlowBytes + kBthBytes;
constexpr uint16_t kPkeyValueMask = 0x7fff;  // the top bit is the sender's membership (10.9.1.1)

// Parses Ethernet, IPv4 and UDP. Sets out's addresses and the bytes behind the UDP header.
[[gnu::always_inline]] inline ParseError parse_network(std::span<const std::byte> bytes,
                                                       size_t packet_bytes, bool has_icrc,
                                                       Packet& out, size_t& udp_payload_bytes) {
  if (bytes.size() < kEthernetBytes) return ParseError::kTruncated;
  const EthernetView ethernet(bytes.first<kEthernetBytes>());
  if (ethernet.ether_type() != kEtherTypeIpv4) return ParseError::kNotIpv4;

  if (bytes.size() < kUdpOffset) return ParseError::kTruncated;
  const Ipv4View ip(bytes.subspan<kEthernetBytes, kIpv4Bytes>());
  if (ip.version_ihl() != kIpv4VersionIhl) return ParseError::kNotIpv4;
  if (!ip.checksum_ok()) return ParseError::kBadChecksum;
  if (ip.protocol() != kIpProtocolUdp || ip.is_fragment()) return ParseError::kNotRoce;

  if (bytes.size() < kFlowBytes) return ParseError::kTruncated;
  const UdpView udp(bytes.subspan<kUdpOffset, kUdpBytes>());
  if (udp.dst_port() != kRoceUdpPort) return ParseError::kNotRoce;

  const size_t ip_end = kEthernetBytes + ip.total_bytes();
  if (ip_end > packet_bytes) return ParseError::kTruncated;
  // Only real ports pad frames to the Ethernet minimum.
  if (ip_end < packet_bytes && !has_icrc) return ParseError::kBadLength;
  if (ip_end < kFlowBytes) return ParseError::kTruncated;
  if (kUdpOffset + udp.length_bytes() != ip_end) return ParseError::kBadLength;

  out.src_ip = ip.src();
  out.dst_ip = ip.dst();
  out.traffic_class = ip.traffic_class();
  out.src_port = udp.src_port();  // read_flow_tag() looks at it again
  udp_payload_bytes = ip_end - kFlowBytes;
  return ParseError::kNone;
}

// The functions of packet.h are made of the next two. `packet_end`: where pad and ICRC end.
[[gnu::always_inline]] inline ParseError read_to_bth(std::span<const std::byte> first_segment,
                                                     size_t packet_bytes, bool has_icrc,
                                                     Packet& out, size_t& packet_end) {
  const auto bytes = first_segment.first(std::min(first_segment.size(), packet_bytes));
  size_t udp_payload_bytes = 0;
  const ParseError error = parse_network(bytes, packet_bytes, has_icrc, out, udp_payload_bytes);
  if (error != ParseError::kNone) return error;
  if (udp_payload_bytes < kBthBytes || bytes.size() < kExtensionOffset)
    return ParseError::kTruncated;

  const BthView bth(bytes.subspan<kFlowBytes, kBthBytes>());
  if (bth.version() != 0) return ParseError::kBadVersion;
  out.pkey = bth.pkey();
  if ((out.pkey & kPkeyValueMask) != (kDefaultPkey & kPkeyValueMask)) return ParseError::kBadPkey;
  read_flow_tag(out.src_port, bytes.data() + kFlowBytes, out);
  out.opcode = Opcode{bth.opcode()};
  out.solicited = bth.solicited();
  out.ack_request = bth.ack_request();
  out.becn = bth.becn();
  out.fecn = bth.fecn();
  out.dest_qpn = bth.dest_qpn();
  out.psn = bth.psn();
  packet_end = kFlowBytes + udp_payload_bytes;
  return ParseError::kNone;
}

// Reads the standard's headers in a function of its own: for all that these may be, packets of the
// native transport, which are the many, need save no registers.
[[gnu::noinline]] ParseError read_rocev2(const OpcodeInfo& info, const std::byte* extensions,
                                         Packet& out) {
  return rocev2_dialect::read(info, Cursor(extensions), out);
}
[[gnu::noinline]] ParseError check_rocev2(const Packet& packet) {
  return rocev2_dialect::check_agreement(packet);
}

// Reads the headers of an MRC packet, which ends at `packet_end`: `out` gets those that all
// transports have, and knows where the others are.
[[gnu::noinline]] ParseError read_mrc(const OpcodeInfo& info,
                                      std::span<const std::byte> first_segment, size_t packet_end,
                                      bool has_icrc, Packet& out) {
  mrc::Packet packet;
  const ParseError error =
      mrc::parse(first_segment.subspan(kFlowBytes), packet_end - kFlowBytes, has_icrc, packet);
  if (error != ParseError::kNone) return error;
  out.src_qpn = Qpn{};
  out.unread_headers = first_segment.data() + kFlowBytes;
  out.cont = info.cont;
  out.more = info.more;
  out.attempt = packet.retransmission ? 1 : 0;
  out.policy = Policy::kSelective;
  out.reth = packet.reth;
  out.imm_data = packet.imm_data;
  out.aeth = packet.aeth;
  out.header_bytes = static_cast<uint16_t>(kFlowBytes + packet.header_bytes);
  out.payload_bytes = packet.payload_bytes;
  return ParseError::kNone;
}

[[gnu::always_inline]] inline ParseError read_extensions(const OpcodeInfo* info, Dialect dialect,
                                                         std::span<const std::byte> first_segment,
                                                         size_t packet_end, bool has_icrc,
                                                         Packet& out) {
  if (info == nullptr) return ParseError::kUnknownOpcode;
  const bool native = dialect == Dialect::kHostnic;
  if (!native && dialect == Dialect::kMrc)
    return read_mrc(*info, first_segment, packet_end, has_icrc, out);
  const std::byte* const bth = first_segment.data() + kFlowBytes;
  const size_t readable_bytes = std::min(first_segment.size(), packet_end);
  size_t headers_end = kExtensionOffset + extension_bytes(*info);
  if (headers_end > readable_bytes) return ParseError::kTruncated;

  out.src_qpn = Qpn{};
  out.unread_headers = nullptr;
  const std::byte* const extensions = first_segment.data() + kExtensionOffset;
  const ParseError error = native ? hostnic_dialect::read(*info, bth, Cursor(extensions), out)
                                  : read_rocev2(*info, extensions, out);
  if (error != ParseError::kNone) return error;
  if (info->has_ack) headers_end += out.sack.word_count * kSackWordBytes;
  if (headers_end > readable_bytes) return ParseError::kTruncated;

  const uint8_t pad_count =
      BthView(std::span<const std::byte, kBthBytes>(bth, kBthBytes)).pad_count();
  const size_t trailer_bytes = has_icrc ? pad_count + kIcrcBytes : 0;
  // Behind the IP length there is only padding, whatever it looks like.
  if (headers_end + trailer_bytes > packet_end) return ParseError::kTruncated;
  out.header_bytes = static_cast<uint16_t>(headers_end);
  out.payload_bytes = static_cast<uint16_t>(packet_end - headers_end - trailer_bytes);
  if (pad_count != (has_icrc ? pad_bytes(out.payload_bytes) : 0)) return ParseError::kBadLength;
  if (out.payload_bytes != 0 && !info->has_payload) return ParseError::kBadLength;
  return native ? hostnic_dialect::check_agreement(out) : check_rocev2(out);
}

}  // namespace

ParseError parse_bth(std::span<const std::byte> first_segment, size_t packet_bytes, bool has_icrc,
                     Packet& out) {
  size_t packet_end = 0;
  const ParseError error = read_to_bth(first_segment, packet_bytes, has_icrc, out, packet_end);
  out.header_bytes = kExtensionOffset;
  out.payload_bytes = static_cast<uint16_t>(packet_end - kExtensionOffset);
  return error;
}

ParseError parse_extensions(Dialect dialect, std::span<const std::byte> first_segment,
                            bool has_icrc, Packet& out) {
  return read_extensions(find_opcode(dialect, out.opcode), dialect, first_segment,
                         size_t{out.header_bytes} + out.payload_bytes, has_icrc, out);
}

ParseError parse(std::span<const std::byte> first_segment, size_t packet_bytes, bool has_icrc,
                 Packet& out) {
  size_t packet_end = 0;
  const ParseError error = read_to_bth(first_segment, packet_bytes, has_icrc, out, packet_end);
  if (error != ParseError::kNone) return error;
  return read_extensions(find_opcode(out.opcode), dialect_of(out.opcode), first_segment, packet_end,
                         has_icrc, out);
}

const char* to_string(ParseError error) {
  switch (error) {
    case ParseError::kNone:
      return "no error";
    case ParseError::kNotIpv4:
      return "not IPv4 without options";
    case ParseError::kNotRoce:
      return "not unfragmented UDP to port 4791";
    case ParseError::kBadChecksum:
      return "IPv4 header checksum is wrong";
    case ParseError::kTruncated:
      return "a length field reaches past the packet";
    case ParseError::kBadLength:
      return "length fields contradict each other";
    case ParseError::kUnknownOpcode:
      return "unknown BTH opcode";
    case ParseError::kBadVersion:
      return "unsupported BTH or native header version";
    case ParseError::kBadPkey:
      return "P_Key is not the default partition's";
    case ParseError::kBadField:
      return "a field holds a reserved value or contradicts the opcode";
  }
  return "unknown parse error";
}

const char* to_string(Opcode opcode) {
  const OpcodeInfo* info = find_opcode(opcode);
  return info != nullptr ? info->name : "unknown opcode";
}

}  // namespace hostnic::wire
