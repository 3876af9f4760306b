// SPDX-License-Identifier: BSD-3-Clause
// UC's and UD's packets: the standard's bytes. (What holds for every opcode is in
// packet_test.cc.)
#include <gtest/gtest.h>

#include <cstring>

#include "tests/unit/wire/samples.h"

namespace hostnic::wire {
namespace {

using samples::Bytes;
using samples::frame;
using samples::parse_exactly;

constexpr size_t kBth = kEthernetBytes + kIpv4Bytes + kUdpBytes;

ParseError parse_of(const Packet& p) {
  Packet out;
  return parse_exactly(frame(p, false), false, out);
}

TEST(UnreliablePackets, DatagramWithImmediate) {
  Packet p;
  p.opcode = Opcode::kUdSendImm;
  p.solicited = true;
  p.cont = p.more = true;  // not this service's: the bits are reserved
  p.attempt = 3;
  p.policy = Policy::kWholeMessage;
  p.dest_qpn = Qpn{0x010002};
  p.psn = Psn{0x030405};
  p.qkey = 0x11223344;
  p.src_qpn = Qpn{0x060708};
  std::memcpy(&p.imm_data, "\x01\x02\x03\x04", 4);
  p.payload_bytes = 6;
  std::array<std::byte, kMaxHeaderBytes> out;
  ASSERT_EQ(build(samples::flow(), p, true, {}, out), 66u);
  constexpr uint8_t kExpected[] = {0x65, 0xa0, 0xff, 0xff, 0x00, 0x01, 0x00, 0x02,
                                   0x00, 0x03, 0x04, 0x05, 0x11, 0x22, 0x33, 0x44,
                                   0x00, 0x06, 0x07, 0x08, 0x01, 0x02, 0x03, 0x04};
  for (size_t i = 0; i < sizeof kExpected; ++i)
    EXPECT_EQ(load_u8(&out[kBth + i]), kExpected[i]) << i;
}

// The standard's numbers, position by position (InfiniBand table 38).
TEST(UnreliablePackets, OpcodesSayWhereInTheMessageAPacketBelongs) {
  struct Position {
    uint8_t send, write;
    bool cont, more, imm, write_has_reth;
  };
  constexpr Position kPositions[] = {
      {0x20, 0x26, false, true, false, true},  {0x21, 0x27, true, true, false, false},
      {0x22, 0x28, true, false, false, false}, {0x23, 0x29, true, false, true, false},
      {0x24, 0x2a, false, false, false, true}, {0x25, 0x2b, false, false, true, true}};
  for (const Position& position : kPositions) {
    for (const uint8_t number : {position.send, position.write}) {
      const OpcodeInfo* info = find_opcode(Opcode{number});
      ASSERT_NE(info, nullptr);
      EXPECT_EQ(info->service, Service::kUnreliable);
      EXPECT_EQ(info->cont, position.cont) << info->name;
      EXPECT_EQ(info->more, position.more) << info->name;
      EXPECT_EQ(info->has_imm, position.imm) << info->name;
      EXPECT_EQ(info->has_reth, number == position.write && position.write_has_reth);
      // Whatever the reserved bits say.
      Bytes bytes = frame(samples::packet(info->opcode, 8), false);
      store_u8(&bytes[kBth + bth_offset::kAckRequest], 0x7f);
      Packet got;
      ASSERT_EQ(parse_exactly(bytes, false, got), ParseError::kNone);
      EXPECT_EQ(got.cont, position.cont);
      EXPECT_EQ(got.more, position.more);
      EXPECT_EQ(got.attempt, 0);
      EXPECT_EQ(got.policy, Policy::kSelective);
    }
  }
  EXPECT_EQ(service_of(Opcode::kUdSend), Service::kDatagram);
  EXPECT_EQ(service_of(Opcode::kWriteOnly), Service::kReliable);
}

TEST(UnreliablePackets, UcWriteLength) {
  Packet p = samples::packet(Opcode::kUcWriteFirst, 100);
  EXPECT_EQ(parse_of(p), ParseError::kNone);
  p.reth.length_bytes = 101;
  EXPECT_EQ(parse_of(p), ParseError::kNone);
  p.reth.length_bytes = 100;
  EXPECT_EQ(parse_of(p), ParseError::kBadLength) << "nothing would be left for the last packet";
  p = samples::packet(Opcode::kUcWriteOnlyImm, 100);
  p.reth.length_bytes = 101;
  EXPECT_EQ(parse_of(p), ParseError::kBadLength);
}

}  // namespace
}  // namespace hostnic::wire
