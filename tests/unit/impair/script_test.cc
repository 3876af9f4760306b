// SPDX-License-Identifier: BSD-3-Clause
// Which packets the selectors and scripts of impairments choose.
#include <gtest/gtest.h>

#include <cmath>

#include "protocol/impair/classify.h"
#include "tests/unit/impair/testing.h"

namespace hostnic::impair {
namespace {

PacketInfo of_kind(PacketKind kind) {
  PacketInfo info = data_packet(0);
  info.kind = kind;
  return info;
}

TEST(ImpairSelect, EveryKindName) {
  const std::map<std::string, std::vector<PacketKind>> cases = {
      {"write", {PacketKind::kWrite}},
      {"send", {PacketKind::kSend}},
      {"read-request", {PacketKind::kReadRequest}},
      {"read-response", {PacketKind::kReadResponse}},
      {"atomic-request", {PacketKind::kAtomicRequest}},
      {"atomic-response", {PacketKind::kAtomicResponse}},
      {"ack", {PacketKind::kAck}},
      {"other", {PacketKind::kOther}},
      {"data", {PacketKind::kWrite, PacketKind::kSend, PacketKind::kReadResponse}},
      {"atomic", {PacketKind::kAtomicRequest, PacketKind::kAtomicResponse}},
      {"ack,send", {PacketKind::kSend, PacketKind::kAck}}};
  for (const auto& [name, chosen] : cases) {
    Network network("drop all kind " + name);
    for (int k = 0; k <= static_cast<int>(PacketKind::kOther); ++k) {
      const auto kind = static_cast<PacketKind>(k);
      const bool is_chosen = std::find(chosen.begin(), chosen.end(), kind) != chosen.end();
      EXPECT_EQ(network.passes(of_kind(kind)), !is_chosen) << name << " and kind " << k;
    }
  }
  Network any("drop all kind any");
  for (int k = 0; k <= static_cast<int>(PacketKind::kOther); ++k) {
    EXPECT_FALSE(any.passes(of_kind(static_cast<PacketKind>(k))));
  }
}

TEST(ImpairSelect, Peer) {
  Network network("drop all peer 10.0.0.2");
  PacketInfo info = data_packet(0);
  EXPECT_FALSE(network.passes(info));
  info.peer = Ipv4Address{0x0a000003};
  EXPECT_TRUE(network.passes(info));
}

TEST(ImpairSelect, Qpn) {
  Network network("drop all qpn 0x10011");
  PacketInfo info = data_packet(0);
  EXPECT_FALSE(network.passes(info));
  info.qpn = Qpn{0x11};
  EXPECT_TRUE(network.passes(info));
}

TEST(ImpairSelect, FirstAttempt) {
  Network network("drop all first-attempt");
  PacketInfo info = data_packet(0);
  EXPECT_FALSE(network.passes(info));
  info.first_attempt = false;
  EXPECT_TRUE(network.passes(info));
}

TEST(ImpairSelect, SelectorsMustAllFit) {
  Network network("drop all kind write peer 10.0.0.2 qpn 0x10011");
  PacketInfo info = data_packet(0);
  EXPECT_FALSE(network.passes(info));
  info.kind = PacketKind::kAck;
  EXPECT_TRUE(network.passes(info));
}

TEST(ImpairScript, BlackHoleWindowCountsFromTheFirstPacket) {
  Network network("blackhole from 2s to 2.5s");
  constexpr TimeNs kStart = 77'000'000'000, kSecond = 1'000'000'000;
  EXPECT_TRUE(network.passes(data_packet(0), kStart));
  EXPECT_TRUE(network.passes(data_packet(0), kStart + 2 * kSecond - 1));
  EXPECT_FALSE(network.passes(data_packet(0), kStart + 2 * kSecond));
  EXPECT_FALSE(network.passes(data_packet(0), kStart + 2 * kSecond + kSecond / 2 - 1));
  EXPECT_TRUE(network.passes(data_packet(0), kStart + 2 * kSecond + kSecond / 2));
}

TEST(ImpairScript, NthCountsSelectedPacketsOnly) {
  Network network("drop nth 3 kind ack");
  EXPECT_TRUE(network.passes(of_kind(PacketKind::kAck)));
  EXPECT_TRUE(network.passes(of_kind(PacketKind::kAck)));
  EXPECT_TRUE(network.passes(of_kind(PacketKind::kWrite)));
  EXPECT_FALSE(network.passes(of_kind(PacketKind::kAck)));
  EXPECT_TRUE(network.passes(of_kind(PacketKind::kAck)));
}

TEST(ImpairScript, NthDoesNotCountWhatAnEarlierRuleDropped) {
  Network network("drop nth 1; drop nth 2");
  EXPECT_EQ(network.stream(4), (std::vector<int>{1, 3}));
}

TEST(ImpairScript, EveryAndFirst) {
  EXPECT_EQ(Network("drop every 3").stream(7), (std::vector<int>{0, 1, 3, 4, 6}));
  EXPECT_EQ(Network("drop first 3").stream(5), (std::vector<int>{3, 4}));
}

TEST(ImpairScript, ThirdAckOfEachQp) {
  Network network("drop nth 3 kind ack per-qp");
  PacketInfo ack = of_kind(PacketKind::kAck);
  for (int round = 1; round <= 5; ++round) {
    for (uint32_t qpn = 2; qpn < 500; ++qpn) {
      for (uint32_t peer : {1u, 2u}) {
        ack.qpn = Qpn{qpn};
        ack.peer = Ipv4Address{peer};
        EXPECT_EQ(network.passes(ack), round != 3) << "round " << round << " qpn " << qpn;
      }
    }
  }
  EXPECT_EQ(network.stage.counters().script_forgotten, 0u);
}

TEST(ImpairScript, LastPacketOfEveryMessageOnce) {
  Network network("drop last-packet once");
  for (uint32_t psn = 0; psn < 100; ++psn) {
    PacketInfo info = data_packet(psn);
    info.last_of_message = psn % 4 == 3;
    EXPECT_EQ(network.passes(info), !info.last_of_message);
  }
  for (uint32_t psn = 3; psn < 100; psn += 4) {  // the retransmissions
    PacketInfo info = data_packet(psn);
    info.last_of_message = true;
    EXPECT_TRUE(network.passes(info));
    EXPECT_TRUE(network.passes(info));
  }
  EXPECT_EQ(network.stage.counters().dropped, 25u);
}

TEST(ImpairScript, OnceTellsPsnSpacesQpsAndPeersApart) {
  Network network("drop once");
  PacketInfo info = data_packet(5);
  EXPECT_FALSE(network.passes(info));
  EXPECT_TRUE(network.passes(info));
  info.kind = PacketKind::kReadResponse;
  EXPECT_FALSE(network.passes(info));
  info.kind = PacketKind::kAck;
  EXPECT_FALSE(network.passes(info));
  info.qpn = Qpn{9};
  EXPECT_FALSE(network.passes(info));
  info.peer = Ipv4Address{9};
  EXPECT_FALSE(network.passes(info));
  EXPECT_TRUE(network.passes(info));
}

TEST(ImpairScript, OnceWithProbabilityLetsTheSecondAttemptPass) {
  Network network("drop 50% once");
  size_t hits = 0;
  for (uint32_t psn = 0; psn < 1000; ++psn) {
    if (network.passes(data_packet(psn))) continue;
    ++hits;
    EXPECT_TRUE(network.passes(data_packet(psn)));
  }
  EXPECT_NEAR(static_cast<double>(hits), 500, 65);
}

TEST(ImpairScript, MemoryIsBoundedAndSaysWhatItForgot) {
  Network network("drop last-packet once", 1, 4);
  PacketInfo info = data_packet(0);
  info.last_of_message = true;
  constexpr uint32_t kPackets = 4 * ScriptTable::kEntries;
  for (uint32_t psn = 0; psn < kPackets; ++psn) {
    info.psn = Psn(psn);
    network.push(info, 0);
  }
  const uint64_t forgotten = network.stage.counters().script_forgotten;
  EXPECT_GE(forgotten, kPackets - ScriptTable::kEntries);
  // The newest are remembered, the oldest are not.
  for (uint32_t psn = kPackets - 1000; psn < kPackets; ++psn) {
    info.psn = Psn(psn);
    EXPECT_TRUE(network.passes(info));
  }
  info.psn = Psn(0);
  EXPECT_FALSE(network.passes(info));
  network.stage.clear_counters();
  EXPECT_EQ(network.stage.counters().script_forgotten, 0u);
}

TEST(ImpairScript, NotesGoStaleBeforeAPsnIsUsedAgain) {
  ScriptTable table;
  table.insert({1, 2}, 100) = 7;
  ASSERT_NE(table.find({1, 2}, 200, 1000), nullptr);
  EXPECT_EQ(*table.find({1, 2}, 1200, 1000), 7u);  // used at 200, then at 1200
  EXPECT_EQ(table.find({1, 2}, 2201, 1000), nullptr);
  EXPECT_EQ(table.find({1, 2}, 2202, 1000), nullptr);
  EXPECT_EQ(table.find({1, 3}, 1200, 1000), nullptr);
}

TEST(ImpairRandom, DistributionsHaveTheirMoments) {
  Random random(3);
  const auto moments = [](auto draw) {
    double sum = 0, squares = 0;
    constexpr int kDraws = 100'000;
    for (int i = 0; i < kDraws; ++i) {
      const double x = static_cast<double>(draw());
      sum += x;
      squares += x * x;
    }
    const double mean = sum / kDraws;
    return std::pair(mean, std::sqrt(squares / kDraws - mean * mean));
  };
  const auto [uniform_mean, uniform_sd] = moments([&] { return random.uniform(10'000, 1'000); });
  EXPECT_NEAR(uniform_mean, 10'000, 10);
  EXPECT_NEAR(uniform_sd, 1'000 / std::sqrt(3), 5);
  const auto [normal_mean, normal_sd] = moments([&] { return random.normal(10'000, 1'000); });
  EXPECT_NEAR(normal_mean, 10'000, 15);
  EXPECT_NEAR(normal_sd, 1'000, 12);
  const auto [exp_mean, exp_sd] = moments([&] { return random.exponential(10'000, 1'000); });
  EXPECT_NEAR(exp_mean, 11'000, 15);
  EXPECT_NEAR(exp_sd, 1'000, 25);
}

TEST(ImpairRandom, DelaysAreNeverNegative) {
  Random random(4);
  bool zero_seen = false;
  for (int i = 0; i < 10'000; ++i) {
    const uint64_t uniform = random.uniform(10, 1000), normal = random.normal(10, 1000);
    EXPECT_LE(uniform, 1010u);
    EXPECT_LE(normal, 6010u);
    zero_seen |= uniform == 0 && normal == 0;
  }
  EXPECT_TRUE(zero_seen);
}

TEST(ImpairClassify, NativePackets) {
  EXPECT_EQ(kind_of(wire::Opcode::kWriteOnly), PacketKind::kWrite);
  EXPECT_EQ(kind_of(wire::Opcode::kUcWriteMiddle), PacketKind::kWrite);
  EXPECT_EQ(kind_of(wire::Opcode::kUcSendOnlyImm), PacketKind::kSend);
  EXPECT_EQ(kind_of(wire::Opcode::kUdSend), PacketKind::kSend);
  EXPECT_EQ(kind_of(wire::Opcode::kSendImm), PacketKind::kSend);
  EXPECT_EQ(kind_of(wire::Opcode::kReadResponse), PacketKind::kReadResponse);
  EXPECT_EQ(kind_of(wire::Opcode::kCompareSwap), PacketKind::kAtomicRequest);
  EXPECT_EQ(kind_of(wire::Opcode::kAtomicResponse), PacketKind::kAtomicResponse);
  EXPECT_EQ(kind_of(wire::Opcode::kAck), PacketKind::kAck);
  EXPECT_EQ(kind_of(wire::Opcode::kRcReadMiddle), PacketKind::kReadResponse);
  EXPECT_EQ(kind_of(wire::Opcode::kCnp), PacketKind::kOther);
  EXPECT_EQ(kind_of(static_cast<wire::Opcode>(0x15)), PacketKind::kOther);

  wire::Packet packet;
  packet.opcode = wire::Opcode::kSend;
  packet.attempt = 1;
  packet.psn = Psn(17);
  packet.dest_qpn = Qpn{3};
  const PacketInfo info = describe(packet, Ipv4Address{9}, 1024);
  EXPECT_TRUE(info.last_of_message);
  EXPECT_FALSE(info.first_attempt);
  EXPECT_EQ(info.psn, Psn(17));
  EXPECT_EQ(info.bytes, 1024u);
  packet.more = true;
  EXPECT_FALSE(describe(packet, Ipv4Address{9}, 1024).last_of_message);
  packet.more = false;
  packet.opcode = wire::Opcode::kAck;
  EXPECT_FALSE(describe(packet, Ipv4Address{9}, 64).last_of_message);
}

}  // namespace
}  // namespace hostnic::impair
