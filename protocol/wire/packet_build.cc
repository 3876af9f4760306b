// SPDX-License-Identifier: BSD-3-Clause
#include "protocol/wire/cursor.h"
#include "protocol/wire/hostnic/extensions.h"
#include "protocol/wire/mrc/packet.h"
#include "protocol/wire/packet.h"
#include "protocol/wire/rocev2/extensions.h"

namespace hostnic::wire {
namespace {

constexpr size_t kIpTotalLengthOffset = kEthernetBytes + ipv4_offset::kTotalLength;
constexpr size_t kIpChecksumOffset = kEthernetBytes + ipv4_offset::kChecksum;
constexpr size_t kUdpLengthOffset = kEthernetBytes + kIpv4Bytes + udp_offset::kLength;

[[gnu::always_inline]] inline void put_flow(const FlowTemplate& flow, size_t ip_bytes,
                                            std::byte* out) {
  const auto total = static_cast<uint16_t>(ip_bytes);
  std::memcpy(out, flow.bytes.data(), kFlowBytes);
  store_be16(out + kIpTotalLengthOffset, total);
  // The template's checksum is that of length 0.
  const uint16_t checksum = load_be16(flow.bytes.data() + kIpChecksumOffset);
  store_be16(out + kIpChecksumOffset, update_checksum(checksum, 0, total));
  store_be16(out + kUdpLengthOffset, static_cast<uint16_t>(total - kIpv4Bytes));
}

// These functions are told the packet's opcode: of a call whose opcode is known at compile time
// nothing is left but what its headers need.
[[gnu::always_inline]] inline Bth bth_of(Opcode opcode, const Packet& packet, bool has_icrc) {
  // In the standard's packets the bits that hostnic uses are reserved and 0.
  const bool native = dialect_of(opcode) == Dialect::kHostnic;
  return {.opcode = static_cast<uint8_t>(opcode),
          .solicited = packet.solicited,
          .migration = false,
          .pad_count = static_cast<uint8_t>(has_icrc ? pad_bytes(packet.payload_bytes) : 0),
          .version = 0,
          .pkey = packet.pkey,
          .fecn = packet.fecn,
          .becn = packet.becn,
          .dest_qpn = packet.dest_qpn,
          .ack_request = packet.ack_request,
          .cont = native && packet.cont,
          .more = native && packet.more,
          .attempt = native ? packet.attempt : uint8_t{0},
          .policy = native ? packet.policy : Policy::kSelective,
          .psn = packet.psn};
}

[[gnu::always_inline]] inline void put_extensions(Opcode opcode, const Packet& packet,
                                                  std::span<const uint64_t> sack_words,
                                                  Appender& out) {
  if (dialect_of(opcode) == Dialect::kHostnic) {
    hostnic_dialect::put(opcode, packet, sack_words, out);
  } else {
    rocev2_dialect::put(opcode_info(opcode), packet, out);
  }
}

[[gnu::always_inline]] inline size_t header_bytes_of(Opcode opcode, const Packet& packet) {
  const OpcodeInfo& info = opcode_info(opcode);
  const size_t bitmap_bytes = info.has_ack ? packet.sack.word_count * kSackWordBytes : 0;
  return kFlowBytes + kBthBytes + extension_bytes(info) + bitmap_bytes;
}

[[gnu::always_inline]] inline size_t build_as(Opcode opcode, const FlowTemplate& flow,
                                              const Packet& packet, bool has_icrc,
                                              std::span<const uint64_t> sack_words,
                                              std::span<std::byte> out) {
  const size_t headers = header_bytes_of(opcode, packet);
  const size_t trailer = has_icrc ? pad_bytes(packet.payload_bytes) + kIcrcBytes : 0;
  const size_t ip_bytes = headers - kEthernetBytes + packet.payload_bytes + trailer;
  assert(out.size() >= headers);
  assert(ip_bytes <= UINT16_MAX);
  assert(opcode != Opcode::kAck ||
         (packet.sack.word_count <= kMaxSackWords && sack_words.size() >= packet.sack.word_count));
  put_flow(flow, ip_bytes, out.data());
  Appender appender(out.data() + kFlowBytes);
  appender.put<kBthBytes>(bth_of(opcode, packet, has_icrc));
  put_extensions(opcode, packet, sack_words, appender);
  assert(appender.at() == out.data() + headers);
  return headers;
}

size_t build_mrc(const FlowTemplate& flow, const mrc::Packet& packet, bool has_icrc,
                 std::span<std::byte> out) {
  const size_t headers = kFlowBytes + mrc::header_bytes(packet);
  const size_t trailer = has_icrc ? pad_bytes(packet.payload_bytes) + kIcrcBytes : 0;
  assert(out.size() >= headers);
  put_flow(flow, headers - kEthernetBytes + packet.payload_bytes + trailer, out.data());
  mrc::build(packet, has_icrc, out.subspan(kFlowBytes));
  return headers;
}

// Builds a packet of an opcode that is sent often; each such opcode has a function of its own,
// which saves no registers but its own.
template <Opcode opcode>
[[gnu::noinline]] size_t build_known(const FlowTemplate& flow, const Packet& packet, bool has_icrc,
                                     std::span<const uint64_t> sack_words,
                                     std::span<std::byte> out) {
  return build_as(opcode, flow, packet, has_icrc, sack_words, out);
}
[[gnu::noinline]] size_t build_any(const FlowTemplate& flow, const Packet& packet, bool has_icrc,
                                   std::span<const uint64_t> sack_words, std::span<std::byte> out) {
  if (dialect_of(packet.opcode) == Dialect::kMrc)
    return build_mrc(flow, *packet.mrc, has_icrc, out);
  return build_as(packet.opcode, flow, packet, has_icrc, sack_words, out);
}

}  // namespace

FlowTemplate make_flow_template(MacAddress src_mac, MacAddress dst_mac, Ipv4Address src_ip,
                                Ipv4Address dst_ip, uint16_t src_port, uint8_t traffic_class,
                                uint8_t hop_limit) {
  FlowTemplate flow;
  const std::span<std::byte, kFlowBytes> out(flow.bytes);
  emit(Ethernet{dst_mac, src_mac, kEtherTypeIpv4}, out.first<kEthernetBytes>());
  emit(Ipv4{.traffic_class = traffic_class,
            .total_bytes = 0,
            .hop_limit = hop_limit,
            .protocol = kIpProtocolUdp,
            .src = src_ip,
            .dst = dst_ip},
       out.subspan<kEthernetBytes, kIpv4Bytes>());
  emit(Udp{.src_port = src_port, .dst_port = kRoceUdpPort, .length_bytes = 0, .checksum = 0},
       out.subspan<kEthernetBytes + kIpv4Bytes, kUdpBytes>());
  return flow;
}

FlowTemplate flow_of(std::span<const std::byte, kFlowBytes> headers) {
  FlowTemplate flow;
  std::memcpy(flow.bytes.data(), headers.data(), kFlowBytes);
  const uint16_t checksum = load_be16(headers.data() + kIpChecksumOffset);
  const uint16_t total = load_be16(headers.data() + kIpTotalLengthOffset);
  store_be16(flow.bytes.data() + kIpTotalLengthOffset, 0);
  store_be16(flow.bytes.data() + kIpChecksumOffset, update_checksum(checksum, total, 0));
  store_be16(flow.bytes.data() + kUdpLengthOffset, 0);
  return flow;
}

void set_source_port(FlowTemplate& flow, uint16_t port) {
  store_be16(flow.bytes.data() + kEthernetBytes + kIpv4Bytes + udp_offset::kSrcPort, port);
}

void write_flow(const FlowTemplate& flow, size_t ip_bytes, std::byte* out) {
  put_flow(flow, ip_bytes, out);
}

size_t header_bytes(const Packet& packet) {
  if (dialect_of(packet.opcode) == Dialect::kMrc)
    return packet.mrc != nullptr ? kFlowBytes + mrc::header_bytes(*packet.mrc)
                                 : packet.header_bytes;
  return header_bytes_of(packet.opcode, packet);
}

size_t build(const FlowTemplate& flow, const Packet& packet, bool has_icrc,
             std::span<const uint64_t> sack_words, std::span<std::byte> out) {
  switch (packet.opcode) {
    case Opcode::kWriteOnly:
      return build_known<Opcode::kWriteOnly>(flow, packet, has_icrc, sack_words, out);
    case Opcode::kSend:
      return build_known<Opcode::kSend>(flow, packet, has_icrc, sack_words, out);
    case Opcode::kReadRequest:
      return build_known<Opcode::kReadRequest>(flow, packet, has_icrc, sack_words, out);
    case Opcode::kReadResponse:
      return build_known<Opcode::kReadResponse>(flow, packet, has_icrc, sack_words, out);
    case Opcode::kAck:
      return build_known<Opcode::kAck>(flow, packet, has_icrc, sack_words, out);
    default:
      return build_any(flow, packet, has_icrc, sack_words, out);
  }
}

}  // namespace hostnic::wire
