// SPDX-License-Identifier: BSD-3-Clause
// Packets for the wire tests and the fuzzer: one distinctive sample per opcode, whole frames around
// them, and the comparison of two frames apart from what nobody reads.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <stdexcept>
#include <vector>

#include "protocol/wire/icrc.h"
#include "protocol/wire/mrc/packet.h"
#include "protocol/wire/packet.h"
#include "tests/unit/wire/mrc_samples.h"

namespace hostnic::wire::samples {

using Bytes = std::vector<std::byte>;

inline constexpr MacAddress kSrcMac = {2, 0, 0, 0, 0, 1};
inline constexpr MacAddress kDstMac = {2, 0, 0, 0, 0, 2};
inline constexpr Ipv4Address kSrcIp{0x0a000001};
inline constexpr Ipv4Address kDstIp{0x0a000002};
inline constexpr uint16_t kSrcPort = 0xd00d;
inline constexpr uint8_t kTrafficClass = 0x6a;

// The dialect in which parse() reads a packet.
inline constexpr auto by_opcode = [](const Packet& packet) { return dialect_of(packet.opcode); };

// The opcodes whose headers Packet has itself: all but MRC's, which mrc_test.cc is about.
inline constexpr std::span<const OpcodeInfo> kPlainOpcodes =
    std::span(kOpcodes).first(kFirstMrcOpcode);

inline FlowTemplate flow() {
  return make_flow_template(kSrcMac, kDstMac, kSrcIp, kDstIp, kSrcPort, kTrafficClass);
}

// Every field of the opcode's headers has a value of its own, so that a field read from the wrong
// place shows. `payload_bytes` is used if the opcode lets it vary.
inline Packet packet(Opcode opcode, uint16_t payload_bytes) {
  Packet p;
  p.opcode = opcode;
  p.solicited = true;
  const OpcodeInfo& info = opcode_info(opcode);
  const bool native = dialect_of(opcode) == Dialect::kHostnic;
  p.cont = native || info.cont;
  p.more = info.more;
  p.attempt = native ? 2 : 0;
  p.policy = native ? Policy::kGoBackN : Policy::kSelective;
  p.becn = true;
  const bool is_to_node =
      opcode == Opcode::kMrcEndpointRequest || opcode == Opcode::kMrcEndpointResponse;
  p.dest_qpn = is_to_node ? Qpn{2} : Qpn{0x010203};
  p.psn = Psn{0xfffffe};
  if (info.has_neth || info.has_deth) p.src_qpn = Qpn{0x040506};
  if (info.has_deth) p.qkey = 0x8a8b8c8d;
  p.payload_bytes = opcode == Opcode::kAtomicResponse ? 8 : info.has_payload ? payload_bytes : 0;
  if (info.has_reth) p.reth = {0x1122334455667788, 0x99aabbcc, p.payload_bytes};
  if (opcode == Opcode::kUcWriteFirst) p.reth.length_bytes += 0x20000;
  if (opcode == Opcode::kSend || opcode == Opcode::kSendImm || opcode == Opcode::kSendInv) {
    p.reth.va = 0x10000;
    p.reth.length_bytes = 0x10000u + p.payload_bytes;
  }
  if (info.has_imm) p.imm_data = 0xa1b2c3d4;
  if (info.has_ieth) p.invalidate_rkey = 0xb5b6b7b8;
  if (info.has_recv_eth) {
    p.recv_sn = 0xe1e2e3e4;
    p.message_bytes = 0xf1f2f3f4;
  }
  if (info.has_read_eth) p.read = {0x31323334, Psn{0x414243}, 0x51, 0x61626364, 0x1000};
  if (opcode == Opcode::kReadRequest) p.reth.length_bytes = 0x71727374;
  if (info.has_resp_eth) p.response_epoch = 0x81;
  if (info.has_atomic_eth) p.atomic = {0x0102030405060708, 0x11121314, 0x2122232425262728, 0x31};
  if (info.has_aeth) p.aeth = {AckKind::kRnrNak, 0x12, 0x959697};
  if (info.has_atomic_ack) p.atomic_before = 0x4142434445464748;
  if (info.has_ack) {
    p.aeth = {AckKind::kNak, static_cast<uint8_t>(NakCode::kRemoteAccess), 0x919293};
    p.sack = {.base = Psn{0xa1a2a3},
              .highest_acceptable = Psn{0xb1b2b3},
              .recv_sn_limit = 0xc1c2c3c4,
              .echo_psn = Psn{0xd1d2d3},
              .echo_attempt = 1,
              .echo_valid = true,
              .echo_duplicate = false,
              .has_credit = true,
              .congestion_mark = false,
              .nak_sn = 0xf1f2f3f4,
              .word_count = 3};
  }
  return p;
}

inline std::vector<uint64_t> sack_words(const Packet& p) {
  std::vector<uint64_t> words(opcode_info(p.opcode).has_ack ? p.sack.word_count : 0);
  for (size_t i = 0; i < words.size(); ++i) words[i] = 0x0123456789abcdee * (i + 1) & ~uint64_t{1};
  return words;
}

// Whether no header says how many bytes the packet has, or only an upper bound.
inline bool length_is_free(Opcode opcode) {
  if (opcode == Opcode::kUcWriteOnly || opcode == Opcode::kUcWriteOnlyImm) return false;
  return dialect_of(opcode) == Dialect::kRocev2 && opcode_info(opcode).has_payload;
}

// What build() makes an MRC packet of.
inline mrc::Packet mrc_headers(const Packet& p) {
  const OpcodeInfo& info = opcode_info(p.opcode);
  mrc::Packet headers;
  headers.opcode = static_cast<mrc::Opcode>(p.opcode);
  headers.has_timestamp = info.has_payload;
  headers.dest_qpn = p.dest_qpn;
  headers.psn = p.psn;
  headers.reth = {0x1122334455667788, 0x99aabbcc, p.payload_bytes};
  if (info.cont || info.more) headers.reth.length_bytes += 0x1000;
  headers.payload_bytes = p.payload_bytes;
  return headers;
}

// Headers, payload, and with has_icrc pad and ICRC.
inline Bytes frame(const Packet& packet, bool has_icrc, std::span<const uint64_t> words) {
  Packet p = packet;
  mrc::Packet headers;
  if (dialect_of(p.opcode) == Dialect::kMrc) {
    headers = mrc_headers(p);
    p.mrc = &headers;
  }
  Bytes bytes(header_bytes(p));
  if (build(flow(), p, has_icrc, words, bytes) != bytes.size()) {
    throw std::logic_error("build() and header_bytes() disagree");
  }
  for (size_t i = 0; i < p.payload_bytes; ++i) bytes.push_back(std::byte(i * 7 + 1));
  if (!has_icrc) return bytes;
  bytes.resize(bytes.size() + pad_bytes(p.payload_bytes));
  const uint32_t icrc = icrc_reference(std::span(bytes).subspan(kEthernetBytes));
  bytes.resize(bytes.size() + kIcrcBytes);
  store_icrc(bytes.data() + bytes.size() - kIcrcBytes, icrc);
  return bytes;
}
inline Bytes frame(const Packet& p, bool has_icrc) { return frame(p, has_icrc, sack_words(p)); }

// A copy in memory of exactly this size, so that AddressSanitizer sees the first byte read too far.
struct ExactCopy {
  explicit ExactCopy(std::span<const std::byte> from)
      : memory(new std::byte[from.size()]), size(from.size()) {
    std::copy(from.begin(), from.end(), memory.get());
  }
  std::span<const std::byte> bytes() const { return {memory.get(), size}; }
  std::unique_ptr<std::byte[]> memory;
  size_t size;
};

// Parses from memory of exactly this size.
inline ParseError parse_exactly(std::span<const std::byte> bytes, bool has_icrc, Packet& out) {
  return parse(ExactCopy(bytes).bytes(), bytes.size(), has_icrc, out);
}

// Recomputes the IP header checksum, so that a test reaches what lies behind it.
inline void fix_ip_checksum(Bytes& frame) {
  std::span<std::byte, kIpv4Bytes> ip(frame.data() + kEthernetBytes, kIpv4Bytes);
  store_be16(ip.data() + ipv4_offset::kChecksum, 0);
  store_be16(ip.data() + ipv4_offset::kChecksum, static_cast<uint16_t>(~ipv4_sum(ip)));
}

// The parsed headers of a frame with every byte and bit cleared that Packet does not carry: what
// build() normalises and what receivers ignore.
inline Bytes canonical_headers(std::span<const std::byte> frame, const Packet& p) {
  Bytes bytes(frame.begin(), frame.begin() + p.header_bytes);
  const auto clear = [&](size_t at, size_t count) {
    std::fill_n(bytes.begin() + at, count, std::byte{0});
  };
  const auto keep = [&](size_t at, uint8_t bits) { bytes[at] &= std::byte{bits}; };
  constexpr size_t kIp = kEthernetBytes, kUdp = kIp + kIpv4Bytes, kBth = kUdp + kUdpBytes;
  constexpr size_t kExtensions = kBth + kBthBytes;
  clear(0, ethernet_offset::kEtherType);
  clear(kIp + ipv4_offset::kIdentification, 5);  // identification, flags, TTL
  clear(kIp + ipv4_offset::kChecksum, 2);
  clear(kUdp + udp_offset::kChecksum, 2);
  keep(kBth + bth_offset::kFlags, 0xff & ~bth_bit::kMigration);
  keep(kBth + bth_offset::kCongestion, bth_bit::kFecn | bth_bit::kBecn);
  // The tag that BTH carried is as good as one in the port.
  store_be16(bytes.data() + kUdp + udp_offset::kSrcPort, p.src_port);
  if (dialect_of(p.opcode) == Dialect::kMrc) {
    const Bytes behind_udp = mrc::samples::canonical_headers(std::span(bytes).subspan(kBth),
                                                             mrc::headers_at(p.unread_headers));
    std::copy(behind_udp.begin(), behind_udp.end(), bytes.begin() + kBth);
    return bytes;
  }
  const bool native = dialect_of(p.opcode) == Dialect::kHostnic;
  keep(kBth + bth_offset::kAckRequest, native ? 0xfe : bth_bit::kAckRequest);
  if (opcode_info(p.opcode).has_aeth) keep(kExtensions + aeth_offset::kSyndrome, 0x7f);
  if (opcode_info(p.opcode).has_deth) clear(kExtensions + deth_offset::kReserved, 1);
  if (opcode_info(p.opcode).has_resp_eth) clear(kExtensions + kNethBytes + kRethBytes + 1, 3);
  if (opcode_info(p.opcode).has_ack) {
    keep(kExtensions + kNethBytes + aeth_offset::kSyndrome, 0x7f);
    constexpr size_t kSack = kExtensions + kNethBytes + kAethBytes;
    keep(kSack + sack_eth_offset::kFlags, 0x3f);
    clear(kSack + sack_eth_offset::kEchoPsn + 3, 1);
  }
  return bytes;
}

// The headers that build() makes of a parsed packet.
inline Bytes rebuild(const Packet& p, bool has_icrc) {
  const FlowTemplate same_flow =
      make_flow_template({}, {}, p.src_ip, p.dst_ip, p.src_port, p.traffic_class);
  std::array<uint64_t, kMaxSackWords> words{};
  const size_t count = opcode_info(p.opcode).has_ack ? p.sack.word_count : 0;
  for (size_t i = 0; i < count; ++i) words[i] = sack_word(p, i);
  Bytes bytes(header_bytes(p));
  Packet same = p;
  mrc::Packet headers;
  if (dialect_of(p.opcode) == Dialect::kMrc) {
    headers = mrc::headers_at(p.unread_headers);
    headers.payload_bytes = p.payload_bytes;
    same.mrc = &headers;
  }
  build(same_flow, same, has_icrc, std::span(words).first(count), bytes);
  return bytes;
}

}  // namespace hostnic::wire::samples
