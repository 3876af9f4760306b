// Rows of packets: whatever bytes come, RowParser says what parse() says, and step() makes what
// build() makes.
#include <gtest/gtest.h>

#include "protocol/wire/packet_row.h"
#include "tests/unit/wire_samples.h"

namespace hostnic::wire {
namespace {

using samples::Bytes;

constexpr Opcode kRowOpcodes[] = {Opcode::kWriteOnly, Opcode::kSend, Opcode::kReadResponse};

Packet middle_of_row(Opcode opcode) {
  Packet packet = samples::packet(opcode, 256);
  packet.more = true;
  if (opcode == Opcode::kSend) packet.reth.length_bytes += 0x100000;
  return packet;
}

// What the parsers say of `bytes` after they have said it of `before`.
void expect_same_answer(const Bytes& before, const Bytes& bytes, bool has_icrc) {
  RowParser row;
  row.parse(samples::ExactCopy(before).bytes(), before.size(), has_icrc);
  const samples::ExactCopy copy(bytes);
  const ParseError answer = row.parse(copy.bytes(), bytes.size(), has_icrc);
  Packet packet;
  ASSERT_EQ(answer, parse(copy.bytes(), bytes.size(), has_icrc, packet));
  if (answer != ParseError::kNone) return;
  EXPECT_EQ(row.packet().psn, packet.psn);
  EXPECT_EQ(row.packet().header_bytes, packet.header_bytes);
  EXPECT_EQ(row.packet().payload_bytes, packet.payload_bytes);
  EXPECT_EQ(samples::rebuild(row.packet(), has_icrc), samples::rebuild(packet, has_icrc));
}

TEST(PacketRow, AnyByteOfAFollowerIsLookedAt) {
  for (const Opcode opcode : kRowOpcodes) {
    for (const bool has_icrc : {false, true}) {
      const Bytes before = samples::frame(middle_of_row(opcode), has_icrc);
      for (size_t at = 0; at < header_bytes(middle_of_row(opcode)); ++at) {
        for (int bit = 0; bit < 8; ++bit) {
          Bytes changed = before;
          changed[at] ^= std::byte(1 << bit);
          SCOPED_TRACE(testing::Message() << to_string(opcode) << " byte " << at << " bit " << bit);
          expect_same_answer(before, changed, has_icrc);
          samples::fix_ip_checksum(changed);
          expect_same_answer(before, changed, has_icrc);
        }
      }
    }
  }
}

TEST(PacketRow, AFollowerOfAnotherLengthIsParsed) {
  for (const Opcode opcode : kRowOpcodes) {
    const Bytes before = samples::frame(middle_of_row(opcode), false);
    for (size_t bytes = 0; bytes <= before.size() + 4; ++bytes) {
      Bytes other = before;
      other.resize(bytes);
      expect_same_answer(before, other, false);
    }
  }
}

TEST(PacketRow, EveryOpcodeMayFollowEveryOther) {
  for (const OpcodeInfo& first : kOpcodes) {
    for (const OpcodeInfo& second : kOpcodes) {
      SCOPED_TRACE(testing::Message() << first.name << " then " << second.name);
      expect_same_answer(samples::frame(samples::packet(first.opcode, 64), true),
                         samples::frame(samples::packet(second.opcode, 64), true), true);
    }
  }
}

TEST(PacketRow, ARowGoesOnBehindAPacketThatWasRefused) {
  const Packet first = middle_of_row(Opcode::kSend);
  Packet beyond = first, next = first;
  beyond.reth.va = first.reth.length_bytes - 1;  // the payload would leave the message
  next.psn += 1;
  RowParser row;
  const auto parse_row = [&](const Packet& packet) {
    const Bytes bytes = samples::frame(packet, false);
    return row.parse(bytes, bytes.size(), false);
  };
  EXPECT_EQ(parse_row(first), ParseError::kNone);
  EXPECT_EQ(parse_row(beyond), ParseError::kBadLength);
  EXPECT_EQ(parse_row(next), ParseError::kNone);
  EXPECT_EQ(row.packet().psn, next.psn);
  EXPECT_EQ(row.packet().reth, next.reth);
}

TEST(PacketRow, TheSegmentMayEndBehindTheHeaders) {
  for (const Opcode opcode : kRowOpcodes) {
    const Packet packet = middle_of_row(opcode);
    const Bytes whole = samples::frame(packet, false);
    const size_t headers = header_bytes(packet);
    RowParser row;
    for (int i = 0; i < 2; ++i) {
      const samples::ExactCopy exact(std::span<const std::byte>(whole).first(headers));
      EXPECT_EQ(row.parse(exact.bytes(), whole.size(), false), ParseError::kNone);
      EXPECT_EQ(row.packet().payload_bytes, 256);
      const samples::ExactCopy cut(std::span<const std::byte>(whole).first(headers - 1));
      RowParser after = row;
      EXPECT_EQ(after.parse(cut.bytes(), whole.size(), false), ParseError::kTruncated);
    }
  }
}

TEST(PacketRow, RestepsAreWhatBuildMakes) {
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

TEST(PacketRow, StepsAreWhatBuildMakes) {
  for (const Opcode opcode : kRowOpcodes) {
    Packet packet = middle_of_row(opcode);
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
