// SPDX-License-Identifier: BSD-3-Clause
// parse() against damaged packets: it never reads outside the packet (AddressSanitizer watches),
// and what it accepts is what the bytes say.
#include <gtest/gtest.h>

#include <random>

#include "tests/unit/wire/samples.h"

namespace hostnic::wire {
namespace {

using samples::Bytes;

constexpr uint32_t kSeed = 20240613;
constexpr size_t kHeadersStart = kEthernetBytes;

// Counts what was accepted, so that a test can tell that it tests both ways.
struct Outcome {
  size_t accepted = 0;
  size_t rejected = 0;
};

void parse_and_compare(const Bytes& bytes, bool has_icrc, Outcome& outcome) {
  const samples::ExactCopy copy(bytes);
  Packet p;
  if (parse(copy.bytes(), bytes.size(), has_icrc, p) != ParseError::kNone) {
    ++outcome.rejected;
    return;
  }
  ++outcome.accepted;
  ASSERT_LE(p.header_bytes + p.payload_bytes, bytes.size());
  if (dialect_of(p.opcode) == Dialect::kMrc) return;  // tests/fuzz/mrc_fuzzer.cc builds them anew
  const Bytes rebuilt = samples::rebuild(p, has_icrc);
  ASSERT_EQ(samples::canonical_headers(rebuilt, p), samples::canonical_headers(bytes, p))
      << to_string(p);
}

TEST(WireRobustness, EverySingleBitFlip) {
  Outcome outcome;
  for (const OpcodeInfo& info : samples::kPlainOpcodes) {
    for (const bool has_icrc : {false, true}) {
      const Bytes good = samples::frame(samples::packet(info.opcode, 5), has_icrc);
      for (size_t bit = 0; bit < good.size() * 8; ++bit) {
        for (const bool fix_checksum : {false, true}) {
          Bytes bad = good;
          bad[bit / 8] ^= std::byte(1 << bit % 8);
          if (fix_checksum) samples::fix_ip_checksum(bad);
          parse_and_compare(bad, has_icrc, outcome);
        }
      }
    }
  }
  EXPECT_GT(outcome.accepted, 1000u);
  EXPECT_GT(outcome.rejected, 1000u);
}

TEST(WireRobustness, RandomBytesInRandomPlaces) {
  std::mt19937 random(kSeed);
  const auto below = [&](size_t n) {
    return std::uniform_int_distribution<size_t>(0, n - 1)(random);
  };
  Outcome outcome;
  for (int round = 0; round < 50000; ++round) {
    const OpcodeInfo& info = kOpcodes[below(kOpcodeCount)];
    const bool has_icrc = below(2) == 0;
    const uint16_t payload_bytes = static_cast<uint16_t>(below(40));
    Bytes bytes = samples::frame(samples::packet(info.opcode, payload_bytes), has_icrc);
    const size_t changes = 1 + below(6);
    for (size_t i = 0; i < changes; ++i) {
      const size_t at = kHeadersStart + below(bytes.size() - kHeadersStart);
      bytes[at] = std::byte(below(256));
    }
    if (below(4) == 0) bytes.resize(kEthernetBytes + kIpv4Bytes + below(bytes.size()));
    samples::fix_ip_checksum(bytes);
    parse_and_compare(bytes, has_icrc, outcome);
  }
  EXPECT_GT(outcome.accepted, 1000u);
  EXPECT_GT(outcome.rejected, 1000u);
}

TEST(WireRobustness, GarbageBehindAValidNetworkHeader) {
  std::mt19937 random(kSeed);
  Outcome outcome;
  for (int round = 0; round < 50000; ++round) {
    Bytes bytes(kFlowBytes + random() % 200);
    for (size_t i = kFlowBytes; i < bytes.size(); ++i) bytes[i] = std::byte(random());
    const auto length = static_cast<uint16_t>(bytes.size() - kEthernetBytes);
    emit(Ethernet{}, std::span(bytes).first<kEthernetBytes>());
    emit(Ipv4{.total_bytes = length}, std::span(bytes).subspan<kEthernetBytes, kIpv4Bytes>());
    emit(Udp{.length_bytes = static_cast<uint16_t>(length - kIpv4Bytes)},
         std::span(bytes).subspan<kEthernetBytes + kIpv4Bytes, kUdpBytes>());
    if (bytes.size() > kFlowBytes + 8) {  // else the P_Key alone rejects nearly all
      bytes[kFlowBytes] = std::byte(0xc0 + random() % 9);
      bytes[kFlowBytes + 1] &= std::byte{0xf0};
      store_be16(&bytes[kFlowBytes + bth_offset::kPkey], kDefaultPkey);
    }
    parse_and_compare(bytes, random() % 2 == 0, outcome);
  }
  EXPECT_GT(outcome.rejected, 40000u);
}

}  // namespace
}  // namespace hostnic::wire
