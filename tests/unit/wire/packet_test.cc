// SPDX-License-Identifier: BSD-3-Clause
// Whole packets: build() and parse() are inverses for every opcode, the bytes are those of the
// specification, and parse() accepts nothing whose lengths or values contradict each other.
#include <gtest/gtest.h>

#include "tests/unit/wire/samples.h"

namespace hostnic::wire {
namespace {

using samples::Bytes;
using samples::fix_ip_checksum;
using samples::frame;
using samples::parse_exactly;

constexpr size_t kIp = kEthernetBytes;
constexpr size_t kUdp = kIp + kIpv4Bytes;
constexpr size_t kBth = kUdp + kUdpBytes;
constexpr size_t kExtensions = kBth + kBthBytes;

void expect_same(const Packet& a, const Packet& b) {
  EXPECT_EQ(a.opcode, b.opcode);
  EXPECT_EQ(a.solicited, b.solicited);
  EXPECT_EQ(a.ack_request, b.ack_request);
  EXPECT_EQ(a.becn, b.becn);
  EXPECT_EQ(a.fecn, b.fecn);
  EXPECT_EQ(a.cont, b.cont);
  EXPECT_EQ(a.more, b.more);
  EXPECT_EQ(a.attempt, b.attempt);
  EXPECT_EQ(a.policy, b.policy);
  EXPECT_EQ(a.pkey, b.pkey);
  EXPECT_EQ(a.dest_qpn, b.dest_qpn);
  EXPECT_EQ(a.psn, b.psn);
  EXPECT_EQ(a.src_qpn, b.src_qpn);
  EXPECT_EQ(a.qkey, b.qkey);
  EXPECT_EQ(a.reth, b.reth);
  EXPECT_EQ(a.imm_data, b.imm_data);
  EXPECT_EQ(a.invalidate_rkey, b.invalidate_rkey);
  EXPECT_EQ(a.recv_sn, b.recv_sn);
  EXPECT_EQ(a.message_bytes, b.message_bytes);
  EXPECT_EQ(a.read, b.read);
  EXPECT_EQ(a.response_epoch, b.response_epoch);
  EXPECT_EQ(a.atomic, b.atomic);
  EXPECT_EQ(a.atomic_before, b.atomic_before);
  EXPECT_EQ(a.aeth, b.aeth);
  EXPECT_EQ(a.sack, b.sack);
  EXPECT_EQ(a.payload_bytes, b.payload_bytes);
}

// Opcode, payload size, with ICRC.
class EveryPacket : public testing::TestWithParam<std::tuple<OpcodeInfo, uint16_t, bool>> {
 protected:
  Packet sample() const {
    return samples::packet(std::get<0>(GetParam()).opcode, std::get<1>(GetParam()));
  }
  bool has_icrc() const { return std::get<2>(GetParam()); }
};

TEST_P(EveryPacket, ParsesToWhatWasBuilt) {
  const Packet sent = sample();
  const Bytes bytes = frame(sent, has_icrc());
  const samples::ExactCopy copy(bytes);
  Packet got;
  ASSERT_EQ(parse(copy.bytes(), bytes.size(), has_icrc(), got), ParseError::kNone);
  expect_same(sent, got);
  EXPECT_EQ(got.header_bytes, header_bytes(sent));
  EXPECT_EQ(got.src_ip, samples::kSrcIp);
  EXPECT_EQ(got.dst_ip, samples::kDstIp);
  EXPECT_EQ(got.src_port, samples::kSrcPort);
  EXPECT_EQ(got.traffic_class, samples::kTrafficClass);
  const auto words = samples::sack_words(sent);
  EXPECT_EQ(got.unread_headers != nullptr, sent.opcode == Opcode::kAck);
  for (size_t i = 0; i < words.size(); ++i) EXPECT_EQ(sack_word(got, i), words[i]) << i;
}

TEST_P(EveryPacket, LeavesNothingOfAReusedPacketThatItsHeadersSet) {
  const Bytes bytes = frame(sample(), has_icrc());
  Packet got = samples::packet(Opcode::kAck, 0);
  got.unread_headers = bytes.data();
  ASSERT_EQ(parse_exactly(bytes, has_icrc(), got), ParseError::kNone);
  EXPECT_EQ(got.opcode, sample().opcode);
  EXPECT_EQ(got.src_qpn, sample().src_qpn);
  EXPECT_EQ(got.unread_headers == nullptr, sample().opcode != Opcode::kAck);
}

TEST_P(EveryPacket, LengthsAndPadAreConsistent) {
  const Packet sent = sample();
  const Bytes bytes = frame(sent, has_icrc());
  const size_t ip_bytes = bytes.size() - kEthernetBytes;
  EXPECT_EQ(load_be16(&bytes[kIp + ipv4_offset::kTotalLength]), ip_bytes);
  EXPECT_EQ(load_be16(&bytes[kUdp + udp_offset::kLength]), ip_bytes - kIpv4Bytes);
  EXPECT_TRUE(view_front<Ipv4View>(std::span(bytes).subspan(kIp))->checksum_ok());
  EXPECT_EQ(load_be16(&bytes[kIp + ipv4_offset::kIdentification]), 0);
  EXPECT_EQ(load_be16(&bytes[kIp + ipv4_offset::kFragment]), kIpv4DontFragment);
  EXPECT_EQ(load_u8(&bytes[kIp + ipv4_offset::kHopLimit]), 64);
  const auto bth = view_front<BthView>(std::span(bytes).subspan(kBth));
  EXPECT_EQ(bth->pad_count(), has_icrc() ? pad_bytes(sent.payload_bytes) : 0);
  if (has_icrc()) {
    EXPECT_EQ((ip_bytes - kIpv4Bytes - kUdpBytes) % 4, 0u);
    EXPECT_EQ(icrc_covered_bytes(sent), ip_bytes - kIcrcBytes);
  }
}

TEST_P(EveryPacket, TruncatedAnywhereIsAnErrorAndReadsNothingBeyond) {
  const Bytes bytes = frame(sample(), has_icrc());
  Packet out;
  for (size_t length = 0; length < bytes.size(); ++length) {
    const ParseError error = parse_exactly(std::span(bytes).first(length), has_icrc(), out);
    ASSERT_EQ(error, ParseError::kTruncated) << length;
  }
}

TEST_P(EveryPacket, PayloadMayLieInASecondSegment) {
  const Packet sent = sample();
  const Bytes bytes = frame(sent, has_icrc());
  const samples::ExactCopy headers{std::span(bytes).first(header_bytes(sent))};
  Packet got;
  EXPECT_EQ(parse(headers.bytes(), bytes.size(), has_icrc(), got), ParseError::kNone);
  expect_same(sent, got);
  for (size_t length = 0; length < header_bytes(sent); ++length) {
    const samples::ExactCopy fewer{std::span(bytes).first(length)};
    EXPECT_EQ(parse(fewer.bytes(), bytes.size(), has_icrc(), got), ParseError::kTruncated);
  }
}

TEST_P(EveryPacket, BytesBehindThePacketEndAreNotItsOwn) {
  const Bytes bytes = frame(sample(), has_icrc());
  Bytes longer = bytes;
  longer.resize(bytes.size() + 100, std::byte{0xee});
  Packet got;
  EXPECT_EQ(parse(longer, bytes.size(), has_icrc(), got), ParseError::kNone);
  EXPECT_EQ(parse(longer, bytes.size() - 1, has_icrc(), got), ParseError::kTruncated);
}

TEST_P(EveryPacket, EthernetPaddingIsToleratedOnRealPortsOnly) {
  const Packet sent = sample();
  Bytes bytes = frame(sent, has_icrc());
  bytes.resize(bytes.size() + 6);
  Packet got;
  const ParseError error = parse_exactly(bytes, has_icrc(), got);
  EXPECT_EQ(error, has_icrc() ? ParseError::kNone : ParseError::kBadLength);
  if (has_icrc()) expect_same(sent, got);
}

// The whole frame is there, but IP and UDP claim fewer bytes: what lies behind them is padding,
// even if it looks like headers.
TEST_P(EveryPacket, HeadersInThePaddingAreNoHeaders) {
  const Packet sent = sample();
  const Bytes good = frame(sent, has_icrc());
  const size_t needed = header_bytes(sent) + pad_bytes(sent.payload_bytes) + kIcrcBytes;
  Packet got;
  for (size_t end = kFlowBytes; end < good.size(); ++end) {
    Bytes bytes = good;
    store_be16(&bytes[kIp + ipv4_offset::kTotalLength], static_cast<uint16_t>(end - kIp));
    store_be16(&bytes[kUdp + udp_offset::kLength], static_cast<uint16_t>(end - kUdp));
    fix_ip_checksum(bytes);
    // The in-process wire does not pad, so there the length itself is wrong.
    ParseError expected =
        has_icrc() && end < needed ? ParseError::kTruncated : ParseError::kBadLength;
    // Whole words less, where nothing says how many there are: a shorter packet.
    if (samples::length_is_free(sent.opcode) && has_icrc() && end >= needed &&
        (good.size() - end) % 4 == 0) {
      expected = ParseError::kNone;
    }
    ASSERT_EQ(parse_exactly(bytes, has_icrc(), got), expected) << end;
  }
}

// Nor is a BTH in the padding looked at: its version would be a different error.
TEST(PacketErrors, BthInThePaddingIsNotLookedAt) {
  Bytes bytes = frame(samples::packet(Opcode::kSend, 8), true);
  store_be16(&bytes[kIp + ipv4_offset::kTotalLength], kIpv4Bytes + kUdpBytes + kBthBytes - 1);
  store_be16(&bytes[kUdp + udp_offset::kLength], kUdpBytes + kBthBytes - 1);
  store_u8(&bytes[kBth + bth_offset::kFlags], 0x0f);
  fix_ip_checksum(bytes);
  Packet out;
  EXPECT_EQ(parse_exactly(bytes, true, out), ParseError::kTruncated);
}

TEST_P(EveryPacket, PayloadThatContradictsTheHeadersIsRejected) {
  Packet sent = sample();
  // RETH stays. A UC WRITE's first packet may have any length below its message's.
  const bool first = sent.opcode == Opcode::kUcWriteFirst;
  if (first) sent.reth.length_bytes = sent.payload_bytes + 4u;
  sent.payload_bytes += 4;
  Packet got;
  const bool good = samples::length_is_free(sent.opcode) && !first;
  EXPECT_EQ(parse_exactly(frame(sent, has_icrc()), has_icrc(), got),
            good ? ParseError::kNone : ParseError::kBadLength);
}

std::string case_name(const testing::TestParamInfo<EveryPacket::ParamType>& info) {
  return std::string(std::get<0>(info.param).name) + "_" + std::to_string(std::get<1>(info.param)) +
         (std::get<2>(info.param) ? "_icrc" : "_plain");
}
// A sender with one socket for all sends from port 4791, and BTH has the tag's upper bits.
TEST_P(EveryPacket, FlowTagIsFoundInBthWhereThePortIsNot) {
  const Packet sent = sample();
  for (const uint16_t tag : {0xc000, 0xc080, 0xd000, 0xfff0, 0xe7f0}) {
    Bytes bytes = frame(sent, has_icrc());
    store_be16(bytes.data() + kEthernetBytes + kIpv4Bytes + udp_offset::kSrcPort, kRoceUdpPort);
    carry_flow_tag(tag, bytes.data() + kFlowBytes);
    Packet got;
    ASSERT_EQ(parse(bytes, bytes.size(), has_icrc(), got), ParseError::kNone);
    expect_same(sent, got);
    EXPECT_EQ(got.src_port, tag & kCarriedTagMask);
    EXPECT_TRUE(has_flow_tag(got, tag));
    EXPECT_TRUE(has_flow_tag(got, tag ^ 0x70)) << "three bits are not carried";
    for (const uint16_t bit : {0x80, 0x100, 0x2000}) EXPECT_FALSE(has_flow_tag(got, tag ^ bit));
  }
}

INSTANTIATE_TEST_SUITE_P(Wire, EveryPacket,
                         testing::Combine(testing::ValuesIn(samples::kPlainOpcodes),
                                          testing::Values(0, 1, 3, 4, 4096), testing::Bool()),
                         case_name);

// The expected bytes were made by hand from the header diagrams, not by this code.
TEST(PacketBytes, Write) {
  Packet p;
  p.solicited = p.ack_request = p.cont = p.more = true;
  p.attempt = 2;
  p.policy = Policy::kGoBackN;
  p.dest_qpn = Qpn{0x010002};
  p.psn = Psn{0xfffffe};
  p.reth = {0x7f0011223344, 0xabcd1234, 5};
  p.payload_bytes = 5;
  const FlowTemplate flow = make_flow_template(samples::kSrcMac, samples::kDstMac, samples::kSrcIp,
                                               samples::kDstIp, samples::kSrcPort, 2, 64);
  std::array<std::byte, kMaxHeaderBytes> out;
  ASSERT_EQ(build(flow, p, true, {}, out), 70u);
  constexpr uint8_t kExpected[] = {
      0x02, 0,    0,    0,    0,    2,    0x02, 0,    0,    0,    0,    1,    0x08, 0x00,
      0x45, 0x02, 0x00, 0x44, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0x26, 0xa5, 10,   0,
      0,    1,    10,   0,    0,    2,    0xd0, 0x0d, 0x12, 0xb7, 0x00, 0x30, 0x00, 0x00,
      0x0a, 0xb0, 0xff, 0xff, 0x00, 0x01, 0x00, 0x02, 0xf2, 0xff, 0xff, 0xfe, 0x00, 0x00,
      0x7f, 0x00, 0x11, 0x22, 0x33, 0x44, 0xab, 0xcd, 0x12, 0x34, 0x00, 0x00, 0x00, 0x05};
  for (size_t i = 0; i < sizeof kExpected; ++i) EXPECT_EQ(load_u8(&out[i]), kExpected[i]) << i;
}

TEST(PacketBytes, Ack) {
  Packet p;
  p.opcode = Opcode::kAck;
  p.dest_qpn = Qpn{0x010002};
  p.src_qpn = Qpn{0x030004};
  p.psn = Psn{7};
  p.aeth = {AckKind::kRnrNak, 14, 0x000102};
  p.sack = {.base = Psn{0xfffff0},
            .highest_acceptable = Psn{0x00000f},
            .recv_sn_limit = 0x11223344,
            .echo_psn = Psn{0xfffff5},
            .echo_attempt = 3,
            .echo_valid = true,
            .echo_duplicate = true,
            .has_credit = true,
            .congestion_mark = true,
            .nak_sn = 0x55667788,
            .word_count = 2};
  const uint64_t words[] = {0x0123456789abcdee, 0x8000000000000001};
  std::array<std::byte, kMaxHeaderBytes> out;
  ASSERT_EQ(build(samples::flow(), p, false, words, out), 98u);
  constexpr uint8_t kExpected[] = {
      0xe8, 0x00, 0xff, 0xff, 0x00, 0x01, 0x00, 0x02, 0x00, 0x00, 0x00, 0x07, 0x03, 0x03,
      0x00, 0x04, 0x2e, 0x00, 0x01, 0x02, 0xff, 0xff, 0xf0, 0x02, 0x00, 0x00, 0x0f, 0x3f,
      0x11, 0x22, 0x33, 0x44, 0xff, 0xff, 0xf5, 0x00, 0x55, 0x66, 0x77, 0x88, 0x01, 0x23,
      0x45, 0x67, 0x89, 0xab, 0xcd, 0xee, 0x80, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01};
  for (size_t i = 0; i < sizeof kExpected; ++i)
    EXPECT_EQ(load_u8(&out[kBth + i]), kExpected[i]) << i;
}

// Changes a good packet and says what parse() thinks of it.
ParseError parse_changed(Opcode opcode, size_t at, uint8_t value, bool has_icrc = true) {
  Bytes bytes = frame(samples::packet(opcode, 8), has_icrc);
  store_u8(&bytes[at], value);
  if (at != kIp + ipv4_offset::kChecksum) fix_ip_checksum(bytes);
  Packet out;
  return parse_exactly(bytes, has_icrc, out);
}

TEST(PacketErrors, NetworkHeaders) {
  EXPECT_EQ(parse_changed(Opcode::kSend, 13, 0x06), ParseError::kNotIpv4) << "ARP";
  EXPECT_EQ(parse_changed(Opcode::kSend, 12, 0x86), ParseError::kNotIpv4);
  EXPECT_EQ(parse_changed(Opcode::kSend, kIp, 0x65), ParseError::kNotIpv4) << "version 6";
  EXPECT_EQ(parse_changed(Opcode::kSend, kIp, 0x46), ParseError::kNotIpv4) << "options";
  EXPECT_EQ(parse_changed(Opcode::kSend, kIp + 6, 0x20), ParseError::kNotRoce) << "fragment";
  EXPECT_EQ(parse_changed(Opcode::kSend, kIp + 7, 0x01), ParseError::kNotRoce) << "fragment";
  EXPECT_EQ(parse_changed(Opcode::kSend, kIp + 9, 6), ParseError::kNotRoce) << "TCP";
  EXPECT_EQ(parse_changed(Opcode::kSend, kIp + 10, 0x11), ParseError::kBadChecksum);
  EXPECT_EQ(parse_changed(Opcode::kSend, kUdp + 3, 0xb6), ParseError::kNotRoce) << "other port";
  EXPECT_EQ(parse_changed(Opcode::kSend, kUdp + 5, 0x01), ParseError::kBadLength) << "UDP length";
  EXPECT_EQ(parse_changed(Opcode::kSend, kIp + 2, 0x01), ParseError::kTruncated) << "IP length";
  EXPECT_EQ(parse_changed(Opcode::kSend, kIp + 3, 10), ParseError::kTruncated)
      << "IP length within its own header";
}

TEST(PacketErrors, ShortFramesOfOtherProtocolsAreNamedAsSuch) {
  Bytes arp(42);
  store_be16(&arp[12], kEtherTypeArp);
  Packet out;
  EXPECT_EQ(parse_exactly(arp, true, out), ParseError::kNotIpv4);
  Bytes icmp(42);
  emit(Ethernet{}, std::span(icmp).first<kEthernetBytes>());
  emit(Ipv4{.total_bytes = 28, .protocol = 1}, std::span(icmp).subspan<kIp, kIpv4Bytes>());
  EXPECT_EQ(parse_exactly(icmp, true, out), ParseError::kNotRoce);
}

TEST(PacketErrors, TransportHeaders) {
  EXPECT_EQ(parse_changed(Opcode::kSend, kBth + 1, 0x01), ParseError::kBadVersion) << "TVer";
  EXPECT_EQ(parse_changed(Opcode::kSend, kExtensions, kNativeVersion - 1), ParseError::kBadVersion)
      << "NETH";
  EXPECT_EQ(parse_changed(Opcode::kSend, kBth + 3, 0xfe), ParseError::kBadPkey);
  EXPECT_EQ(parse_changed(Opcode::kSend, kBth + 2, 0x7f), ParseError::kNone) << "limited member";
  EXPECT_EQ(parse_changed(Opcode::kSend, kBth + 8, 0x06), ParseError::kBadField) << "policy 3";
  EXPECT_EQ(parse_changed(Opcode::kSendImm, kBth + 8, 0x20), ParseError::kBadField) << "more";
  EXPECT_EQ(parse_changed(Opcode::kWriteImm, kBth + 8, 0x20), ParseError::kBadField) << "more";
  EXPECT_EQ(parse_changed(Opcode::kSendInv, kBth + 8, 0x20), ParseError::kBadField) << "more";
  EXPECT_EQ(parse_changed(Opcode::kWriteOnly, kBth + 8, 0x20), ParseError::kNone) << "more";
  EXPECT_EQ(parse_changed(Opcode::kAck, kExtensions + 4, 0x40), ParseError::kBadField) << "AETH";
  EXPECT_EQ(parse_changed(Opcode::kSend, kBth + 1, 0x20), ParseError::kBadLength) << "pad";
  EXPECT_EQ(parse_changed(Opcode::kSend, kBth + 1, 0x10, false), ParseError::kBadLength)
      << "pad without ICRC";
}

// The queue pair says which opcodes there are: another transport's are unknown on it, and BTH can
// be read without knowing.
TEST(PacketErrors, OpcodesOfAnotherDialectAreUnknown) {
  for (const OpcodeInfo& info : kOpcodes) {
    if (info.opcode == Opcode::kWriteOnly) continue;  // is of both
    const Dialect own = dialect_of(info.opcode);
    const Dialect other = own == Dialect::kHostnic ? Dialect::kRocev2 : Dialect::kHostnic;
    const Packet sent = samples::packet(info.opcode, 64);
    const Bytes bytes = frame(sent, true);
    Packet bth;
    ASSERT_EQ(parse_bth(bytes, bytes.size(), true, bth), ParseError::kNone) << info.name;
    EXPECT_EQ(bth.opcode, info.opcode);
    EXPECT_EQ(bth.dest_qpn, sent.dest_qpn) << info.name;
    EXPECT_EQ(bth.header_bytes + bth.payload_bytes, bytes.size()) << info.name;
    Packet got = bth;
    EXPECT_EQ(parse_extensions(other, bytes, true, got), ParseError::kUnknownOpcode) << info.name;
    got = bth;
    EXPECT_EQ(parse_extensions(own, bytes, true, got), ParseError::kNone) << info.name;
    EXPECT_EQ(got.header_bytes + got.payload_bytes + pad_bytes(got.payload_bytes) + kIcrcBytes,
              bytes.size())
        << info.name;
  }
}

// Version 2 had other numbers for four opcodes; Multipath Reliable Connection has those now.
TEST(PacketErrors, VersionTwosNumbersAreNotNative) {
  for (const uint8_t opcode : {0xc6, 0xc7, 0xc8, 0xc9})
    EXPECT_EQ(dialect_of(Opcode{opcode}), Dialect::kMrc) << +opcode;
}

TEST(PacketErrors, IgnoredFieldsAreIgnored) {
  EXPECT_EQ(parse_changed(Opcode::kSend, kIp + 4, 0x99), ParseError::kNone) << "identification";
  EXPECT_EQ(parse_changed(Opcode::kSend, kIp + 6, 0x00), ParseError::kNone) << "no DF";
  EXPECT_EQ(parse_changed(Opcode::kSend, kIp + 8, 1), ParseError::kNone) << "TTL";
  EXPECT_EQ(parse_changed(Opcode::kSend, kUdp + 6, 0x99), ParseError::kNone) << "UDP checksum";
  EXPECT_EQ(parse_changed(Opcode::kSend, kBth + 1, 0x40), ParseError::kNone) << "M";
  EXPECT_EQ(parse_changed(Opcode::kSend, kBth + 4, 0x3f), ParseError::kNone) << "reserved";
  EXPECT_EQ(parse_changed(Opcode::kSend, kBth + 8, 0x01), ParseError::kNone) << "reserved";
}

TEST(PacketErrors, EveryOtherOpcodeIsUnknown) {
  size_t known = 0;
  for (unsigned opcode = 0; opcode < 256; ++opcode) {
    const bool ours = std::any_of(std::begin(kOpcodes), std::end(kOpcodes), [&](const auto& info) {
      return static_cast<unsigned>(info.opcode) == opcode;
    });
    EXPECT_EQ(find_opcode(Opcode{static_cast<uint8_t>(opcode)}) != nullptr, ours) << opcode;
    known += ours;
    if (ours) continue;
    EXPECT_EQ(parse_changed(Opcode::kSend, kBth, static_cast<uint8_t>(opcode)),
              ParseError::kUnknownOpcode);
    EXPECT_STREQ(to_string(Opcode{static_cast<uint8_t>(opcode)}), "unknown opcode");
  }
  EXPECT_EQ(known, 60u);
}

ParseError parse_of(const Packet& p, bool has_icrc = false) {
  Packet out;
  return parse_exactly(frame(p, has_icrc), has_icrc, out);
}

TEST(PacketErrors, SendOffsetAndMessageLength) {
  Packet p = samples::packet(Opcode::kSend, 100);
  EXPECT_EQ(parse_of(p), ParseError::kNone);
  p.reth.length_bytes += 1;
  EXPECT_EQ(parse_of(p), ParseError::kBadLength) << "the last packet does not reach the end";
  p.more = true;
  EXPECT_EQ(parse_of(p), ParseError::kNone);
  p.reth.length_bytes -= 2;
  EXPECT_EQ(parse_of(p), ParseError::kBadLength) << "beyond the end";
  p.reth.va = ~uint64_t{0} - 99;  // offset + 100 is 0 in 64 bits
  p.reth.length_bytes = 100;
  EXPECT_EQ(parse_of(p), ParseError::kBadLength) << "wraps";
  p.more = false;
  EXPECT_EQ(parse_of(p), ParseError::kBadLength) << "wraps";
}

TEST(PacketErrors, ReadRangeLiesInTheRead) {
  Packet p = samples::packet(Opcode::kReadRequest, 0);
  p.reth.length_bytes = 5000;
  p.read.offset_bytes = 4096;
  p.read.length_bytes = 904;
  EXPECT_EQ(parse_of(p), ParseError::kNone);
  p.read.length_bytes = 905;
  EXPECT_EQ(parse_of(p), ParseError::kBadLength);
  p.read = {1, Psn{0}, 0, 0xffffffff, 2};  // 1 in 32 bits
  EXPECT_EQ(parse_of(p), ParseError::kBadLength) << "wraps";
}

TEST(PacketErrors, AtomicResponseHasEightBytes) {
  Packet p = samples::packet(Opcode::kAtomicResponse, 8);
  p.payload_bytes = 4;
  p.reth.length_bytes = 4;
  EXPECT_EQ(parse_of(p), ParseError::kBadLength);
}

TEST(PacketErrors, SackWordCount) {
  for (unsigned count : {0u, 1u, 63u, 64u}) {
    Packet p = samples::packet(Opcode::kAck, 0);
    p.sack.word_count = static_cast<uint8_t>(count);
    EXPECT_LE(header_bytes(p), kMaxHeaderBytes);
    EXPECT_EQ(parse_of(p, false), ParseError::kNone) << count;
    EXPECT_EQ(parse_of(p, true), ParseError::kNone) << count;
  }
  constexpr size_t kWordCount = kExtensions + kNethBytes + kAethBytes + sack_eth_offset::kWordCount;
  EXPECT_EQ(parse_changed(Opcode::kAck, kWordCount, 65), ParseError::kBadLength);
  EXPECT_EQ(parse_changed(Opcode::kAck, kWordCount, 255), ParseError::kBadLength);
  EXPECT_EQ(parse_changed(Opcode::kAck, kWordCount, 4), ParseError::kTruncated);
  EXPECT_EQ(parse_changed(Opcode::kAck, kWordCount, 2), ParseError::kBadLength) << "8 bytes left";
}

TEST(PacketErrors, EachHasItsOwnText) {
  std::vector<std::string> texts;
  for (int i = 0; i <= static_cast<int>(ParseError::kBadField); ++i) {
    texts.emplace_back(to_string(ParseError{static_cast<uint8_t>(i)}));
  }
  std::sort(texts.begin(), texts.end());
  EXPECT_EQ(std::adjacent_find(texts.begin(), texts.end()), texts.end());
  EXPECT_EQ(std::count(texts.begin(), texts.end(), "unknown parse error"), 0);
}

TEST(PacketPrinter, ReadsLikeTcpdump) {
  Packet p;
  p.opcode = Opcode::kSend;
  p.src_ip = samples::kSrcIp;
  p.dst_ip = samples::kDstIp;
  p.dest_qpn = Qpn{0x10001};
  p.psn = Psn{17};
  p.reth = {4096, 3, 8192};
  p.payload_bytes = 1024;
  p.more = true;
  p.attempt = 1;
  EXPECT_EQ(to_string(p),
            "10.0.0.1 > 10.0.0.2 qp 0x10001 SEND psn 17 sn 3 offset 4096 of 8192 len 1024 more "
            "attempt 1");
}

TEST(PacketPrinter, NamesWhatEachOpcodeCarries) {
  const auto expect_end = [](Opcode opcode, const std::string& end) {
    Packet p = samples::packet(opcode, 4);
    p.solicited = p.becn = false;
    if (opcode_info(opcode).service == Service::kReliable) p.cont = false;
    p.attempt = 0;
    p.policy = Policy::kSelective;
    std::memcpy(&p.imm_data, "\x01\x02\x03\x04", 4);
    EXPECT_EQ(to_string(p), "0.0.0.0 > 0.0.0.0 qp 0x10203 " + end);
  };
  expect_end(Opcode::kWriteOnly, "WRITE psn 16777214 va 0x1122334455667788 rkey 0x99aabbcc len 4");
  expect_end(Opcode::kWriteImm,
             "WRITE_IMM psn 16777214 sn 3789743076 va 0x1122334455667788 rkey 0x99aabbcc len 4 imm "
             "0x01020304");
  expect_end(Opcode::kSendImm,
             "SEND_IMM psn 16777214 sn 2578103244 offset 65536 of 65540 len 4 imm 0x01020304");
  expect_end(Opcode::kSendInv,
             "SEND_INV psn 16777214 sn 2578103244 offset 65536 of 65540 len 4 invalidates "
             "0xb5b6b7b8");
  expect_end(Opcode::kReadRequest,
             "READ psn 16777214 va 0x1122334455667788 rkey 0x99aabbcc len 1903326068 read "
             "825373492 response-psn 4276803 epoch 81 range 1633837924+4096");
  expect_end(Opcode::kReadResponse,
             "READ_RESPONSE psn 16777214 read 2578103244 offset 1234605616436508552 len 4 epoch "
             "129");
  expect_end(Opcode::kFetchAdd,
             "FETCH_ADD psn 16777214 va 0x102030405060708 rkey 0x11121314 swap-or-add "
             "0x2122232425262728 compare 0x31 read 825373492 response-psn 4276803 epoch 81 range "
             "1633837924+4096");
  expect_end(Opcode::kUcWriteFirst,
             "UC_WRITE_FIRST psn 16777214 va 0x1122334455667788 rkey 0x99aabbcc len 131076 packet "
             "len 4");
  expect_end(Opcode::kUcSendLastImm, "UC_SEND_LAST_IMM psn 16777214 len 4 imm 0x01020304");
  expect_end(Opcode::kUdSend, "UD_SEND psn 16777214 qkey 0x8a8b8c8d src-qp 0x40506 len 4");
  expect_end(Opcode::kAck,
             "ACK psn 16777214 nak remote-access msn 9540243 base 10592931 window-end 11645619 "
             "echo 13750995/1 credit 3250766788 nak-sn 4059231220 words 3");
}

TEST(OpcodeTable, RequestsAndResponses) {
  EXPECT_TRUE(is_request(Opcode::kWriteOnly));
  EXPECT_TRUE(is_request(Opcode::kFetchAdd));
  EXPECT_FALSE(is_request(Opcode::kReadResponse));
  EXPECT_TRUE(is_response(Opcode::kAtomicResponse));
  EXPECT_FALSE(is_request(Opcode::kAck) || is_response(Opcode::kAck));
}

}  // namespace
}  // namespace hostnic::wire
