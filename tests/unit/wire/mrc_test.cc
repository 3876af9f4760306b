// SPDX-License-Identifier: BSD-3-Clause
// MRC's packets: the hand-written bytes of mrc_samples.h mean what docs/mrc.md says, build() makes
// the same of that, every bit is a field or reserved, and parse() accepts nothing whose lengths or
// values contradict each other.
#include <gtest/gtest.h>

#include <algorithm>

#include "protocol/wire/mrc/entropy.h"
#include "tests/unit/wire/mrc_samples.h"

namespace hostnic::wire::mrc {
namespace {

using samples::Bytes;
using samples::kSamples;

ParseError parse_exactly(std::span<const std::byte> bytes, bool has_icrc, Packet& out) {
  return parse(samples::ExactCopy(bytes).bytes(), bytes.size(), has_icrc, out);
}

Packet parsed(std::string_view name) {
  Packet packet;
  EXPECT_EQ(parse_exactly(samples::bytes_of(samples::sample(name)), true, packet),
            ParseError::kNone)
      << name;
  return packet;
}

// What parse() says when the byte at `at` of a sample is another.
ParseError parse_changed(std::string_view name, size_t at, uint8_t value) {
  Bytes bytes = samples::bytes_of(samples::sample(name));
  bytes[at] = std::byte{value};
  Packet packet;
  return parse_exactly(bytes, true, packet);
}

constexpr size_t kSeth = kBthBytes, kErth = kBthBytes, kAeth = kBthBytes;

TEST(MrcOpcodes, NoneIsOfAnotherDialect) {
  for (const OpcodeInfo& info : mrc::kOpcodes) {
    // No queue pair takes those of endpoint requests.
    const auto* const known = wire::find_opcode(wire::Opcode{static_cast<uint8_t>(info.opcode)});
    if (known == nullptr) continue;
    EXPECT_EQ(wire::dialect_of(known->opcode), wire::Dialect::kMrc) << info.name;
    EXPECT_STREQ(known->name, info.name);
  }
}

TEST(MrcOpcodes, EachHasASampleAndNoOtherIsKnown) {
  for (unsigned value = 0; value < 256; ++value) {
    const Opcode opcode{static_cast<uint8_t>(value)};
    const bool has_sample = std::any_of(std::begin(kSamples), std::end(kSamples), [&](auto& each) {
      return samples::from_hex(each.headers)[0] == std::byte(value);
    });
    EXPECT_EQ(find_opcode(opcode) != nullptr, has_sample) << value;
    if (has_sample) continue;
    EXPECT_EQ(parse_changed("write", 0, static_cast<uint8_t>(value)), ParseError::kUnknownOpcode);
    EXPECT_STREQ(to_string(opcode), "unknown opcode");
  }
}

TEST(MrcPacket, AWritesFirstPacket) {
  const Packet p = parsed("write_first");
  EXPECT_EQ(p.opcode, Opcode::kWriteFirst);
  EXPECT_TRUE(p.solicited && p.ack_request && p.retransmission && p.has_timestamp);
  EXPECT_EQ(p.pkey, 0xffff);
  EXPECT_EQ(p.dest_qpn, Qpn{0x010203});
  EXPECT_EQ(p.psn, Psn{0xfffffe});
  EXPECT_EQ(p.meth, (Meth{.rqmsn = 0, .msn = 7}));
  EXPECT_EQ(p.timestamp, (Timestamp{0x1234, false, 1}));
  EXPECT_EQ(p.reth, (Reth{0x1122334455667788, 0x99aabbcc, 0x2000}));
  EXPECT_EQ(p.header_bytes, 12 + 4 + 4 + 16);
  EXPECT_EQ(p.payload_bytes, 4);
}

TEST(MrcPacket, AWritesOtherPackets) {
  const Packet middle = parsed("write_middle");
  EXPECT_FALSE(middle.solicited || middle.ack_request || middle.retransmission ||
               middle.has_timestamp);
  EXPECT_EQ(middle.reth.va, 0x1122334455668788u);
  EXPECT_EQ(middle.header_bytes, 12 + 4 + 16);
  const Packet last = parsed("write_last");
  EXPECT_TRUE(last.timestamp.is_coarse);
  EXPECT_EQ(last.timestamp.value, 0x1235);
  EXPECT_EQ(last.payload_bytes, 1);
  const Packet imm = parsed("write_last_imm");
  EXPECT_EQ(imm.meth, (Meth{.rqmsn = 5, .msn = 8}));
  EXPECT_EQ(0, std::memcmp(&imm.imm_data, "\1\2\3\4", 4)) << "as the application gave it";
  EXPECT_TRUE(imm.ack_request);
  EXPECT_EQ(imm.header_bytes, 12 + 4 + 16 + 4);
  const Packet only = parsed("write");
  EXPECT_TRUE(only.retransmission);
  EXPECT_EQ(only.payload_bytes, 2);
  const Packet empty = parsed("write_imm");
  EXPECT_EQ(empty.pkey, 0x7fff) << "a limited member";
  EXPECT_EQ(empty.payload_bytes, 0);
}

TEST(MrcPacket, Acks) {
  const Packet ack = parsed("ack");
  EXPECT_EQ(ack.psn, Psn{0x19});
  EXPECT_EQ(ack.aeth, (Aeth{AckKind::kAck, kNoCreditLimit, 0x102}));
  const Packet nak = parsed("nak");
  EXPECT_EQ(nak.aeth, (Aeth{AckKind::kNak, static_cast<uint8_t>(NakCode::kRemoteAccess), 0x103}));
}

TEST(MrcPacket, ASack) {
  const Packet p = parsed("sack");
  EXPECT_TRUE(p.retransmission) << "of what it answers";
  EXPECT_EQ(p.seth, (Seth{.mark = PathMark::kSkipOnce,
                          .answers_probe = false,
                          .ack_offset = -3,
                          .probe_id = 0,
                          .entropy = 0x1a2b3c4d,
                          .contexts = {0x0506, 0x0203},
                          .cumulative_psn = Psn{0x10},
                          .cc_type = 0,
                          .cc_flags = 7,
                          .mpr_units = 4,
                          .sack_offset = 9,
                          .bitmap = 0xc000000000000003}));
  EXPECT_EQ(p.seth.ack_psn(), Psn{0x0d});
  EXPECT_EQ(p.seth.bitmap_psn(), Psn{0x19});
  EXPECT_TRUE(p.has_cc_state);
  EXPECT_EQ(p.cc_state, (CcState{.timestamp = 0x5678,
                                 .out_of_order_count = 0x0abc,
                                 .restores_window = true,
                                 .window_penalty = 0x29,
                                 .received_units = 0x0d0e0f}));
}

TEST(MrcPacket, ASackThatAnswersAProbe) {
  const Packet p = parsed("sack_of_probe");
  EXPECT_EQ(p.seth.mark, PathMark::kAlwaysSkip);
  EXPECT_TRUE(p.seth.answers_probe);
  EXPECT_EQ(p.seth.probe_id, 0x7a7b);
  EXPECT_EQ(p.seth.sack_offset, -1);
  EXPECT_EQ(p.seth.bitmap_psn(), Psn{0xffffef});
}

// Offsets are about PSNs, which wrap.
TEST(MrcPacket, OffsetsWrap) {
  const Seth forward{.ack_offset = 0x20, .cumulative_psn = Psn{0xfffff0}, .sack_offset = 0x11};
  EXPECT_EQ(forward.ack_psn(), Psn{0x10});
  EXPECT_EQ(forward.bitmap_psn(), Psn{1});
  const Seth back{.ack_offset = -0x8000, .cumulative_psn = Psn{0}, .sack_offset = -1};
  EXPECT_EQ(back.ack_psn(), Psn{0xff8000});
  EXPECT_EQ(back.bitmap_psn(), Psn{0xffffff});
}

TEST(MrcPacket, ANack) {
  EXPECT_EQ(parsed("nack").neth, (Neth{.reason = NackReason::kTrimmedLastHop,
                                       .vendor = 0x33,
                                       .entropy = 0x1a2b3c4e,
                                       .contexts = {0x0506, 0x0203},
                                       .psn = Psn{0x0a0b0c},
                                       .cc_type = 2,
                                       .cc_flags = 5,
                                       .timestamp = 0x6789}));
}

TEST(MrcPacket, Probes) {
  EXPECT_EQ(parsed("probe").peth, (Peth{.vendor = 0x44,
                                        .probe_id = 0x7a7b,
                                        .contexts = {0x0506, 0x0203},
                                        .timestamp = {0x2468, true, 1}}));
  const Packet status = parsed("endpoint_request");
  EXPECT_EQ(status.psn, Psn{0xabcd}) << "its id";
  EXPECT_EQ(status.erth, (Erth{.operation = EndpointOperation::kPortStatus,
                               .vendor = 0x55,
                               .port_status_mask = 0x80000003,
                               .timestamp = {0x1357, false, 1}}));
  EXPECT_EQ(parsed("endpoint_probe").erth.operation, EndpointOperation::kPathProbe);
  EXPECT_EQ(parsed("endpoint_response").eeth,
            (Eeth{.operation = EndpointOperation::kPathProbe, .timestamp = 0x1358}));
}

TEST(MrcPacket, IsBuiltAsTheSamplesAreWritten) {
  for (const auto& sample : kSamples) {
    const Packet p = parsed(sample.name);
    EXPECT_EQ(samples::rebuild(p, true), samples::from_hex(sample.headers)) << sample.name;
    EXPECT_EQ(header_bytes(p), p.header_bytes) << sample.name;
    EXPECT_LE(header_bytes(p), kMaxHeaderBytes) << sample.name;
  }
}

// A bit that is changed is of a field, which then reads differently or is refused, or it is
// reserved and nothing reads differently.
TEST(MrcPacket, EveryBitIsAFieldOrReserved) {
  for (const auto& sample : kSamples) {
    const Bytes good = samples::bytes_of(sample);
    const Packet before = parsed(sample.name);
    for (size_t bit = 0; bit < before.header_bytes * 8u; ++bit) {
      Bytes bytes = good;
      bytes[bit / 8] ^= std::byte(0x80 >> bit % 8);
      Packet after;
      if (parse_exactly(bytes, true, after) != ParseError::kNone) continue;
      ASSERT_EQ(samples::canonical_headers(samples::rebuild(after, true), after),
                samples::canonical_headers(bytes, after))
          << sample.name << " bit " << bit;
      const bool is_field =
          samples::canonical_headers(bytes, after) != samples::canonical_headers(good, before);
      EXPECT_EQ(after != before, is_field) << sample.name << " bit " << bit;
    }
  }
}

TEST(MrcPacket, TruncatedAnywhereIsAnErrorAndReadsNothingBeyond) {
  for (const auto& sample : kSamples) {
    const Bytes bytes = samples::bytes_of(sample);
    const size_t headers = parsed(sample.name).header_bytes;
    Packet out;
    for (size_t length = 0; length < bytes.size(); ++length) {
      const ParseError error = parse_exactly(std::span(bytes).first(length), true, out);
      ASSERT_NE(error, ParseError::kNone) << sample.name << " " << length;
      if (length < headers) {
        ASSERT_EQ(error, ParseError::kTruncated) << sample.name;
      }
    }
    for (size_t length = 0; length < headers; ++length) {
      const samples::ExactCopy fewer{std::span(bytes).first(length)};
      EXPECT_EQ(parse(fewer.bytes(), bytes.size(), true, out), ParseError::kTruncated);
    }
    const samples::ExactCopy alone{std::span(bytes).first(headers)};
    EXPECT_EQ(parse(alone.bytes(), bytes.size(), true, out), ParseError::kNone)
        << "the payload may lie in a second segment";
  }
}

TEST(MrcPacket, WithoutIcrcThereIsNoPad) {
  for (const auto& sample : kSamples) {
    Packet expected = parsed(sample.name);
    Bytes bytes = samples::rebuild(expected, false);
    bytes.resize(bytes.size() + expected.payload_bytes);
    Packet got;
    ASSERT_EQ(parse_exactly(bytes, false, got), ParseError::kNone) << sample.name;
    EXPECT_EQ(got, expected) << sample.name;
  }
  Packet out;
  const Bytes padded = samples::bytes_of(samples::sample("write_last"), false);
  EXPECT_EQ(parse_exactly(padded, false, out), ParseError::kBadLength);
}

TEST(MrcErrors, Bth) {
  EXPECT_EQ(parse_changed("sack", 1, 0x01), ParseError::kBadVersion);
  EXPECT_EQ(parse_changed("sack", 3, 0xfe), ParseError::kBadPkey);
  EXPECT_EQ(parse_changed("sack", 1, 0x10), ParseError::kTruncated) << "pad of nothing";
  EXPECT_EQ(parse_changed("sack", 8, 0x10), ParseError::kNone) << "ts: WRITEs alone have a TSETH";
}

// Pad fills up to whole words, neither more nor less.
TEST(MrcErrors, Pad) {
  for (const uint8_t pad : {0, 1, 2, 3}) {
    Bytes bytes = samples::bytes_of(samples::sample("write_first"));
    bytes[1] = std::byte(pad << 4);
    Packet out;
    ASSERT_EQ(parse_exactly(bytes, true, out), ParseError::kNone) << +pad;
    EXPECT_EQ(out.payload_bytes, 4 - pad);
    bytes.resize(bytes.size() + 1);
    EXPECT_EQ(parse_exactly(bytes, true, out), ParseError::kBadLength) << +pad;
  }
}

TEST(MrcErrors, AWritesLengths) {
  const auto with = [](std::string_view name, uint32_t message_bytes, uint16_t payload_bytes) {
    Packet p = parsed(name);
    p.reth.length_bytes = message_bytes;
    p.payload_bytes = payload_bytes;
    Bytes bytes = samples::rebuild(p, true);
    bytes.resize(bytes.size() + payload_bytes + pad_bytes(payload_bytes) + kIcrcBytes);
    Packet out;
    return parse_exactly(bytes, true, out);
  };
  for (const auto name : {"write_first", "write_middle", "write_last", "write_last_imm"}) {
    EXPECT_EQ(with(name, 5, 4), ParseError::kNone) << name;
    EXPECT_EQ(with(name, 4, 4), ParseError::kBadLength) << name << ": the whole message";
    EXPECT_EQ(with(name, 3, 4), ParseError::kBadLength) << name;
    EXPECT_EQ(with(name, 5, 0), ParseError::kBadLength) << name << ": of no bytes";
  }
  for (const auto name : {"write", "write_imm"}) {
    EXPECT_EQ(with(name, 4, 4), ParseError::kNone) << name;
    EXPECT_EQ(with(name, 0, 0), ParseError::kNone) << name;
    EXPECT_EQ(with(name, 5, 4), ParseError::kBadLength) << name;
    EXPECT_EQ(with(name, 3, 4), ParseError::kBadLength) << name;
  }
}

TEST(MrcErrors, WhatHasNoPayloadHasNone) {
  for (const auto& sample : kSamples) {
    if (find_opcode(parsed(sample.name).opcode)->is_write) continue;
    Bytes bytes = samples::bytes_of(sample);
    bytes.resize(bytes.size() + 4);
    Packet out;
    EXPECT_EQ(parse_exactly(bytes, true, out), ParseError::kBadLength) << sample.name;
  }
}

TEST(MrcErrors, ReservedValues) {
  EXPECT_EQ(parse_changed("sack", kSeth + 1, 0x60), ParseError::kBadField) << "mark 3";
  EXPECT_EQ(parse_changed("ack", kAeth, 0x20), ParseError::kBadField) << "RNR NAK";
  EXPECT_EQ(parse_changed("ack", kAeth, 0x40), ParseError::kBadField);
  EXPECT_EQ(parse_changed("endpoint_request", kErth + 1, 2), ParseError::kBadField);
  EXPECT_EQ(parse_changed("endpoint_response", kErth + 1, 3 << 2), ParseError::kBadField);
  for (const auto name : {"endpoint_request", "endpoint_response"})
    EXPECT_EQ(parse_changed(name, 7, 3), ParseError::kBadField)
        << name << " for another QPN than 2";
  EXPECT_EQ(parse_changed("nack", kBthBytes + 2, 0x0c), ParseError::kNone) << "an unknown reason";
}

TEST(MrcPacket, AnotherCcStateIsNotRead) {
  Bytes bytes = samples::bytes_of(samples::sample("sack"));
  bytes[kSeth + 16] = std::byte{0x10};
  Packet out;
  ASSERT_EQ(parse_exactly(bytes, true, out), ParseError::kNone);
  EXPECT_EQ(out.seth.cc_type, 1);
  EXPECT_FALSE(out.has_cc_state);
  EXPECT_EQ(out.cc_state, CcState{});
}

TEST(MrcPacket, NothingOfAReusedPacketStays) {
  Packet p = parsed("sack");
  ASSERT_EQ(parse_exactly(samples::bytes_of(samples::sample("write")), true, p), ParseError::kNone);
  EXPECT_EQ(p, parsed("write"));
}

// BTH, METH and TSETH are enough of what a switch cut off; what is behind them says nothing.
TEST(MrcTrimmed, SaysWhatANackNeeds) {
  for (const auto& sample : kSamples) {
    const Bytes bytes = samples::bytes_of(sample);
    const Packet whole = parsed(sample.name);
    const size_t enough = kBthBytes + kMethBytes + whole.has_timestamp * kTsethBytes;
    for (size_t length = 0; length <= bytes.size(); ++length) {
      Packet out = parsed("sack");
      const samples::ExactCopy copy{std::span(bytes).first(length)};
      const ParseError error = parse_trimmed(copy.bytes(), out);
      if (length < kBthBytes) {
        EXPECT_EQ(error, ParseError::kTruncated);
      } else if (!find_opcode(whole.opcode)->is_write) {
        EXPECT_EQ(error, ParseError::kBadField) << sample.name;
      } else if (length < enough) {
        EXPECT_EQ(error, ParseError::kTruncated) << sample.name << " " << length;
      } else {
        ASSERT_EQ(error, ParseError::kNone) << sample.name << " " << length;
        EXPECT_EQ(out.psn, whole.psn);
        EXPECT_EQ(out.meth, whole.meth);
        EXPECT_EQ(out.timestamp, whole.timestamp);
        EXPECT_EQ(out.retransmission, whole.retransmission);
        EXPECT_EQ(out.reth, Reth{}) << "nobody may place by it";
        EXPECT_EQ(out.payload_bytes, 0);
      }
    }
  }
}

TEST(MrcTrimmed, BthIsChecked) {
  Bytes bytes = samples::bytes_of(samples::sample("write"));
  Packet out;
  bytes[1] = std::byte{0x02};
  EXPECT_EQ(parse_trimmed(bytes, out), ParseError::kBadVersion);
  bytes[1] = std::byte{0};
  bytes[0] = std::byte{0xcc};
  EXPECT_EQ(parse_trimmed(bytes, out), ParseError::kUnknownOpcode);
}

TEST(MrcPrinter, NamesWhatEachOpcodeCarries) {
  const auto expect = [](std::string_view name, const std::string& text) {
    EXPECT_EQ(to_string(parsed(name)), text);
  };
  expect("write_first",
         "qp 0x10203 MRC_WRITE_FIRST psn 16777214 msn 7 ts 4660 va 0x1122334455667788 rkey "
         "0x99aabbcc len 8192 packet len 4 solicited ack-request rtx");
  expect("write_last_imm",
         "qp 0x10203 MRC_WRITE_LAST_IMM psn 1 msn 8 rqmsn 5 va 0x1122334455669788 rkey 0x99aabbcc "
         "len 8192 packet len 4 imm 0x01020304 ack-request");
  expect("nak", "qp 0x10203 MRC_ACK psn 26 nak remote-access msn 259");
  expect("sack",
         "qp 0x10203 MRC_SACK psn 16 cumulative 16 acks 13 from 25 bitmap 0xc000000000000003 ev "
         "0x1a2b3c4d skip-once contexts 0x506/0x203 mpr 512 cc-flags 7 ts 22136 out-of-order 2748 "
         "penalty 41 restores-window received 219025152 rtx");
  expect("sack_of_probe",
         "qp 0x10203 MRC_SACK psn 16777200 cumulative 16777200 probe 31355 from 16777199 bitmap "
         "0x0000000000000001 ev 0x1a2b3c4f always-skip contexts 0x506/0x203 ts 9320 received 256");
  expect("nack",
         "qp 0x10203 MRC_NACK psn 658188 trimmed-last-hop refused 658188 ev 0x1a2b3c4e contexts "
         "0x506/0x203 ts 26505 vendor 51 cc-flags 5");
  expect("probe", "qp 0x10203 MRC_PROBE psn 0 probe 31355 contexts 0x506/0x203 ts 9320 coarse");
  expect("endpoint_request",
         "qp 0x2 MRC_ENDPOINT_REQUEST psn 43981 port-status ports 0x80000003 ts 4951");
  expect("endpoint_response", "qp 0x2 MRC_ENDPOINT_RESPONSE psn 43982 path-probe ts 4952");
  EXPECT_EQ(to_string(NackReason{12}), "reason 12");
}

TEST(MrcEntropy, IsInPortAndFlowLabel) {
  constexpr EntropyFields structured = fields_of(0x1a2b3c4d, EntropyFormat::kStructured);
  EXPECT_EQ(structured, (EntropyFields{0x1a2b, 0x3c4d}));
  EXPECT_EQ(entropy_of(structured, EntropyFormat::kStructured), 0x1a2b3c4du);
  constexpr EntropyFields port = fields_of(0x3c4d, EntropyFormat::kUdpPort);
  EXPECT_EQ(port, (EntropyFields{0x3c4d, 0x3c4d}));
  EXPECT_EQ(entropy_of(port, EntropyFormat::kUdpPort), 0x3c4du);
  EXPECT_EQ(entropy_of({0x3c4d, 0}, EntropyFormat::kUdpPort), 0x3c4du) << "IPv4 has no label";
}

}  // namespace
}  // namespace hostnic::wire::mrc
