// SPDX-License-Identifier: BSD-3-Clause
// Segment trains: whatever bytes come, DeltaParser says what parse() says, and step() makes what
// build() makes.
#include "protocol/wire/hostnic/segment_train.h"

#include <gtest/gtest.h>

#include <functional>
#include <initializer_list>
#include <vector>

#include "tests/unit/wire/samples.h"

namespace hostnic::wire {
namespace {

using samples::Bytes;

constexpr Opcode kTrainOpcodes[] = {Opcode::kWriteOnly, Opcode::kSend, Opcode::kReadResponse};
// Of which one of another queue pair may be like the one before.
constexpr Opcode kAlikeOpcodes[] = {Opcode::kWriteOnly, Opcode::kSend, Opcode::kReadResponse,
                                    Opcode::kReadRequest, Opcode::kAck};

Packet middle_of_train(Opcode opcode) {
  Packet packet = samples::packet(opcode, 256);
  packet.more = true;
  if (opcode == Opcode::kSend) packet.reth.length_bytes += 0x100000;
  return packet;
}

// What the parsers say of one packet after the other.
void expect_same_answers(std::initializer_list<std::reference_wrapper<const Bytes>> packets,
                         bool has_icrc) {
  DeltaParser parser;
  for (const Bytes& bytes : packets) {
    const samples::ExactCopy copy(bytes);
    const ParseError answer =
        parser.parse(copy.bytes(), bytes.size(), has_icrc, samples::by_opcode);
    Packet packet;
    ASSERT_EQ(answer, parse(copy.bytes(), bytes.size(), has_icrc, packet));
    if (answer != ParseError::kNone) continue;
    EXPECT_EQ(parser.packet().psn, packet.psn);
    EXPECT_EQ(parser.packet().header_bytes, packet.header_bytes);
    EXPECT_EQ(parser.packet().payload_bytes, packet.payload_bytes);
    EXPECT_EQ(parser.packet().src_qpn, packet.src_qpn);
    EXPECT_EQ(parser.packet().unread_headers, packet.unread_headers);
    EXPECT_EQ(samples::rebuild(parser.packet(), has_icrc), samples::rebuild(packet, has_icrc));
  }
}

Packet of_another_qp(const Packet& packet) {
  Packet other = packet;
  other.dest_qpn = Qpn{0xf1f2f3};
  if (opcode_info(packet.opcode).has_neth) other.src_qpn = Qpn{0xe1e2e3};
  other.psn += 0x345678;
  other.reth.va -= 0x8000;
  other.reth.key ^= 0x5a5a5a5a;
  other.more = !packet.more;
  if (packet.opcode == Opcode::kSend) other.reth.length_bytes = 0x8000 + packet.payload_bytes;
  other.response_epoch ^= 1;
  other.read.read_number += 1;
  other.read.first_response_psn += 0x123456;
  other.read.epoch ^= 1;
  other.read.length_bytes -= 1;
  return other;
}

// Not the sample's: as one that another connection has chosen.
Bytes with_another_port(Bytes bytes) {
  store_be16(bytes.data() + kEthernetBytes + kIpv4Bytes + udp_offset::kSrcPort, 0xc010);
  return bytes;
}

TEST(SegmentTrain, AnyByteOfANextPacketIsLookedAt) {
  for (const Opcode opcode : kAlikeOpcodes) {
    for (const bool has_icrc : {false, true}) {
      const Bytes before = samples::frame(middle_of_train(opcode), has_icrc);
      for (size_t at = 0; at < header_bytes(middle_of_train(opcode)); ++at) {
        for (int bit = 0; bit < 8; ++bit) {
          Bytes changed = before;
          changed[at] ^= std::byte(1 << bit);
          SCOPED_TRACE(testing::Message() << to_string(opcode) << " byte " << at << " bit " << bit);
          expect_same_answers({before, changed, before, changed}, has_icrc);
          samples::fix_ip_checksum(changed);
          expect_same_answers({before, changed, before, changed}, has_icrc);
        }
      }
    }
  }
}

TEST(SegmentTrain, AnyByteOfAnotherQueuePairsPacketIsLookedAt) {
  for (const Opcode opcode : kAlikeOpcodes) {
    for (const bool has_icrc : {false, true}) {
      const Packet first = middle_of_train(opcode);
      const Bytes before = samples::frame(first, has_icrc);
      const Bytes other = with_another_port(samples::frame(of_another_qp(first), has_icrc));
      expect_same_answers({before, other, before, other, other}, has_icrc);
      for (size_t at = 0; at < header_bytes(first); ++at) {
        for (int bit = 0; bit < 8; ++bit) {
          Bytes changed = other;
          changed[at] ^= std::byte(1 << bit);
          SCOPED_TRACE(testing::Message() << to_string(opcode) << " byte " << at << " bit " << bit);
          expect_same_answers({before, changed, before, other, changed}, has_icrc);
          samples::fix_ip_checksum(changed);
          expect_same_answers({before, changed, before, other, changed}, has_icrc);
        }
      }
    }
  }
}

TEST(SegmentTrain, ATrainMayBeginBehindAnotherQueuePairs) {
  for (const Opcode opcode : kTrainOpcodes) {
    const Packet first = middle_of_train(opcode);
    Packet other = of_another_qp(first);
    DeltaParser parser;
    const Bytes before = samples::frame(first, false);
    Bytes bytes = with_another_port(samples::frame(other, false));
    ASSERT_EQ(parser.parse(before, before.size(), false, samples::by_opcode), ParseError::kNone);
    EXPECT_FALSE(parser.follow(bytes, bytes.size(), false));
    ASSERT_EQ(parser.begin(bytes, bytes.size(), false, samples::by_opcode), ParseError::kNone);
    EXPECT_FALSE(parser.follow(before, before.size(), false));
    ASSERT_EQ(parser.begin(before, before.size(), false, samples::by_opcode), ParseError::kNone);
    ASSERT_EQ(parser.begin(bytes, bytes.size(), false, samples::by_opcode), ParseError::kNone);
    other.psn += 1;
    bytes = with_another_port(samples::frame(other, false));
    EXPECT_TRUE(parser.follow(bytes, bytes.size(), false));
    EXPECT_EQ(parser.packet().psn, other.psn);
    EXPECT_EQ(parser.packet().dest_qpn, other.dest_qpn);
  }
}

// Each is looked at by itself, whatever it repeats.
TEST(SegmentTrain, AcksAndReadRequestsDoNotFollow) {
  for (const Opcode opcode : {Opcode::kAck, Opcode::kReadRequest}) {
    const Bytes packet = samples::frame(samples::packet(opcode, 0), false);
    DeltaParser parser;
    ASSERT_EQ(parser.parse(packet, packet.size(), false, samples::by_opcode), ParseError::kNone);
    EXPECT_FALSE(parser.follow(packet, packet.size(), false)) << to_string(opcode);
  }
}

// What it asks for may lie outside of the READ, though the one before was right.
TEST(SegmentTrain, ARangeOfAReadMayBeWrong) {
  Packet first = samples::packet(Opcode::kReadRequest, 0), beyond = first;
  beyond.read.offset_bytes = beyond.reth.length_bytes;
  beyond.read.length_bytes = 1;
  const Bytes right = samples::frame(first, false), wrong = samples::frame(beyond, false);
  DeltaParser parser;
  ASSERT_EQ(parser.parse(right, right.size(), false, samples::by_opcode), ParseError::kNone);
  EXPECT_EQ(parser.parse(wrong, wrong.size(), false, samples::by_opcode), ParseError::kBadLength);
  ASSERT_EQ(parser.parse(right, right.size(), false, samples::by_opcode), ParseError::kNone);
  EXPECT_EQ(parser.packet().read, first.read);
}

TEST(SegmentTrain, AcksMayHaveOtherBitmaps) {
  std::vector<Bytes> acks;
  for (const uint8_t words : {0, 1, 3, 64}) {
    Packet ack = samples::packet(Opcode::kAck, 0);
    ack.sack.word_count = words;
    acks.push_back(samples::frame(ack, true));
    // As long as the one before it, but says that its bitmap is another.
    if (words != 0) {
      acks.push_back(acks.back());
      acks.back()[header_bytes(ack) - words * kSackWordBytes - kSackEthBytes +
                  sack_eth_offset::kWordCount] ^= std::byte{1};
    }
  }
  for (const Bytes& first : acks)
    for (const Bytes& second : acks) expect_same_answers({first, second, first}, true);
}

TEST(SegmentTrain, ANextPacketOfAnotherLengthIsParsed) {
  for (const Opcode opcode : kAlikeOpcodes) {
    const Bytes before = samples::frame(middle_of_train(opcode), false);
    for (size_t bytes = 0; bytes <= before.size() + 4; ++bytes) {
      Bytes other = before;
      other.resize(bytes);
      expect_same_answers({before, other, before}, false);
    }
  }
}

TEST(SegmentTrain, EveryOpcodeMayFollowEveryOther) {
  for (const OpcodeInfo& first : kOpcodes) {
    for (const OpcodeInfo& second : kOpcodes) {
      SCOPED_TRACE(testing::Message() << first.name << " then " << second.name);
      const Bytes one = samples::frame(samples::packet(first.opcode, 64), true);
      const Bytes other = samples::frame(samples::packet(second.opcode, 64), true);
      expect_same_answers({one, other, one}, true);
    }
  }
}

TEST(SegmentTrain, ATrainGoesOnBehindAPacketThatWasRefused) {
  const Packet first = middle_of_train(Opcode::kSend);
  Packet beyond = first, next = first;
  beyond.reth.va = first.reth.length_bytes - 1;  // the payload would leave the message
  next.psn += 1;
  DeltaParser parser;
  const auto parse = [&](const Packet& packet) {
    const Bytes bytes = samples::frame(packet, false);
    return parser.parse(bytes, bytes.size(), false, samples::by_opcode);
  };
  EXPECT_EQ(parse(first), ParseError::kNone);
  EXPECT_EQ(parse(beyond), ParseError::kBadLength);
  EXPECT_EQ(parse(next), ParseError::kNone);
  EXPECT_EQ(parser.packet().psn, next.psn);
  EXPECT_EQ(parser.packet().reth, next.reth);
}

TEST(SegmentTrain, TheSegmentMayEndBehindTheHeaders) {
  for (const Opcode opcode : kAlikeOpcodes) {
    const Packet packet = middle_of_train(opcode);
    const Bytes whole = samples::frame(packet, false);
    const size_t headers = header_bytes(packet);
    DeltaParser parser;
    for (int i = 0; i < 2; ++i) {
      const samples::ExactCopy exact(std::span<const std::byte>(whole).first(headers));
      EXPECT_EQ(parser.parse(exact.bytes(), whole.size(), false, samples::by_opcode),
                ParseError::kNone);
      EXPECT_EQ(parser.packet().payload_bytes, packet.payload_bytes);
      const samples::ExactCopy cut(std::span<const std::byte>(whole).first(headers - 1));
      DeltaParser after = parser;
      EXPECT_EQ(after.parse(cut.bytes(), whole.size(), false, samples::by_opcode),
                ParseError::kTruncated);
    }
  }
}

TEST(SegmentTrain, RestepsAreWhatBuildMakes) {
  for (const Opcode opcode : {Opcode::kWriteOnly, Opcode::kSend}) {
    const Packet first = samples::packet(opcode, 64);
    Bytes headers(header_bytes(first));
    build(samples::flow(), first, false, {}, headers);
    for (unsigned bits = 0; bits < 64; ++bits) {
      Packet next = first;
      next.psn += 0xfffff0 + bits;
      next.solicited = (bits & 1) != 0;
      next.ack_request = (bits & 2) != 0;
      next.cont = (bits & 4) != 0;
      next.attempt = bits >> 3 & 3;
      next.policy = (bits & 32) != 0 ? Policy::kWholeMessage : Policy::kSelective;
      next.reth.va += 0x123456789a * bits;
      next.reth.key ^= bits << 20;
      restep(next, headers);
      Bytes built(headers.size());
      build(samples::flow(), next, false, {}, built);
      ASSERT_EQ(headers, built) << to_string(opcode) << " bits " << bits;
    }
  }
}

TEST(SegmentTrain, StepsAreWhatBuildMakes) {
  for (const Opcode opcode : kTrainOpcodes) {
    Packet packet = middle_of_train(opcode);
    Bytes headers(header_bytes(packet));
    build(samples::flow(), packet, false, {}, headers);
    for (int i = 0; i < 5; ++i) {  // the PSN wraps
      Packet next = packet;
      next.psn += 1;
      next.reth.va += next.payload_bytes;
      step(packet, headers);
      Bytes built(headers.size());
      build(samples::flow(), next, false, {}, built);
      EXPECT_EQ(headers, built);
      EXPECT_EQ(packet.psn, next.psn);
      EXPECT_EQ(packet.reth, next.reth);
    }
  }
}

}  // namespace
}  // namespace hostnic::wire
