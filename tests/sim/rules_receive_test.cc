// SPDX-License-Identifier: BSD-3-Clause
// docs/transport.md rules 6, 7, 8, 13, 16 and 23: what a responder makes of packets that arrive
// ahead of a missing one.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/sim/pair.h"
#include "tests/sim/recorder.h"

namespace hostnic::sim {
namespace {

using wire::Opcode;
constexpr uint32_t kMtu = 4096;
constexpr uint32_t kBadKey = 0x7777777;

TEST(Rules, Rule6_ErrorsAreRaisedOnlyAtTheFront) {
  Pair pair;
  pair.world.impair(1, "rx drop nth 1 kind write");
  pair.world.impair(0, "rx delay 200us kind ack");  // recovery comes later than our look
  pair.post(SendOp::kWrite, 1, pair.at(0, 2 * kMtu));
  pair.post_to(SendOp::kWrite, 2, pair.at(0, 4 * kMtu), pair.remote.address(), kBadKey);
  pair.world.run_for(50 * kMicrosecond);
  EXPECT_EQ(pair.far_counter(Counter::nak_sent), 0u) << "before the hole is filled";
  const auto done = pair.sent(2);
  ASSERT_EQ(done.size(), 2u);
  EXPECT_EQ(done[0].status, WcStatus::kSuccess);
  EXPECT_EQ(done[1].status, WcStatus::kRemAccessErr);
  EXPECT_EQ(pair.far_counter(Counter::nak_sent), 1u);
}

// Who guesses keys sends a packet once, and the connection's own sender knows nothing of it: its
// repetitions can't be what ends the connection.
TEST(Rules, Rule6_AWrongKeyAheadOfTheFrontEndsTheConnection) {
  Pair pair;
  pair.world.impair(1, "rx drop nth 1 kind write");
  pair.world.impair(0, "rx delay 200us kind ack");
  pair.post(SendOp::kWrite, 1, pair.at(0, kMtu));
  pair.post_to(SendOp::kWrite, 2, pair.at(0, 64), pair.remote.address(), kBadKey);
  const auto done = pair.sent(2);
  ASSERT_EQ(done.size(), 2u);
  EXPECT_EQ(done[0].status, WcStatus::kSuccess);
  EXPECT_EQ(done[1].status, WcStatus::kRemAccessErr);
  EXPECT_EQ(pair.near->host->counter(Counter::retransmitted_packets), 1u)
      << "the missing packet; the wrong one waited";
}

TEST(Rules, Rule6_AMissingReceiveIsNoErrorAheadOfTheFront) {
  Pair pair;
  pair.world.impair(1, "rx drop nth 1 kind write");
  pair.world.impair(0, "rx delay 200us kind ack");
  pair.post(SendOp::kWrite, 1, pair.at(0, 100));
  pair.post(SendOp::kSend, 2, pair.at(0, 100));
  pair.world.run_for(50 * kMicrosecond);
  EXPECT_EQ(pair.far_counter(Counter::rnr_nak_sent), 0u);
  pair.post_receive(1, 0, kMtu);
  EXPECT_EQ(pair.sent(2).size(), 2u);
  EXPECT_EQ(pair.far_counter(Counter::rnr_nak_sent), 0u);
}

TEST(Rules, Rule7_OnlyTheBaseCompletes) {
  Pair pair;
  Recorder sent(pair.world);
  pair.world.impair(1, "rx drop to 2ms kind write first-attempt; drop from 0us to 2ms kind data");
  pair.world.impair(1, "rx drop first 30 kind read-request");
  pair.post(SendOp::kRead, 1, pair.at(0, 64));
  for (uint64_t i = 2; i <= 9; ++i) pair.post(SendOp::kWrite, i, pair.at(0, 64), i * kMtu, true);
  pair.world.run_for(kMillisecond);
  bool sacked = false;
  for (const SentPacket& ack : sent.acks_of(1)) sacked = sacked || !ack.sack.empty();
  ASSERT_TRUE(sacked) << "the WRITEs are there, and the sender knows";
  EXPECT_TRUE(pair.sent(1, kMicrosecond).empty());
  // A WRITE of one packet is a tail: it waits for the READ before it.
  EXPECT_FALSE(equal(pair.local, 0, pair.remote, 2 * kMtu, 64));
  const auto done = pair.sent(9);
  ASSERT_EQ(done.size(), 9u);
  for (uint64_t i = 0; i < 9; ++i) EXPECT_EQ(done[i].wr_id, i + 1);
}

TEST(Rules, Rule7_ASackedPsnMayStillBeRefused) {
  Pair pair;
  Recorder sent(pair.world);
  pair.world.impair(1, "rx drop nth 1 kind write");
  pair.world.impair(0, "rx delay 100us kind ack");
  pair.post(SendOp::kWrite, 1, pair.at(0, 64));
  pair.post_to(SendOp::kWrite, 2, pair.at(0, 64), pair.remote.address(), kBadKey);
  pair.world.run_for(50 * kMicrosecond);
  const auto acks = sent.acks_of(1);
  ASSERT_FALSE(acks.empty());
  ASSERT_EQ(acks[0].sack, std::vector<uint64_t>{2}) << "held, and acknowledged as received";
  const auto done = pair.sent(2);
  ASSERT_EQ(done.size(), 2u);
  EXPECT_EQ(done[0].status, WcStatus::kSuccess);
  EXPECT_EQ(done[1].status, WcStatus::kRemAccessErr);
}

TEST(Rules, Rule8_WhatWaitedExecutesInPsnOrder) {
  Pair pair;
  // Each swaps only if its predecessor has.
  pair.world.impair(1, "rx reorder nth 1 distance 4; reorder nth 3 distance 9; drop nth 8");
  for (uint64_t i = 0; i < 16; ++i) {
    const Sge sge = pair.at(i * 8, 8);
    auto request = Pair::request(SendOp::kCompareSwap, i, sge, pair.remote.address(), pair.rkey);
    request.compare_add = i;
    request.swap = i + 1;
    ASSERT_EQ(pair.near->post_send(request), 0);
  }
  ASSERT_EQ(pair.sent(16).size(), 16u);
  uint64_t value;
  std::memcpy(&value, pair.remote.data(), 8);
  EXPECT_EQ(value, 16u);
}

// How far at most the base of one ACK lies from that of the ACK before, where the first of 250
// packets is lost and all others have come before it goes again.
int32_t longest_advance(Ordering ordering) {
  WorldSettings settings;
  settings.ordering = ordering;
  Pair pair({}, settings);
  pair.post(SendOp::kWrite, 1, pair.at(0, 64));  // from now on the whole window may be used
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  Recorder sent(pair.world);
  pair.world.impair(1, "rx drop nth 1 kind write");
  pair.world.impair(0, "rx delay 300us kind ack");  // all are there before the first goes again
  pair.post(SendOp::kWrite, 2, pair.at(0, 250 * kMtu));
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  Psn base(1);
  int32_t longest = 0;
  for (const SentPacket& ack : sent.acks_of(1)) {
    longest = std::max(longest, distance(base, ack.headers.sack.base));
    base = ack.headers.sack.base;
  }
  EXPECT_EQ(base, Psn(251));
  return longest;
}

TEST(Rules, Rule8_AtMost64PacketsThatWaitExecutePerTurn) {
  const int32_t longest = longest_advance(Ordering::kStrict);
  EXPECT_GT(longest, 1) << "there was a hole, and much behind it";
  EXPECT_LE(longest, 65) << "the one that filled the hole, and 64";
}

TEST(Rules, Rule8_WhatHasBeenPlacedIsPassedAtOnce) {
  EXPECT_EQ(longest_advance(Ordering::kRelaxed), 250);
}

TEST(Rules, Rule13_ReceivesBindInOrderAheadOfTheFront) {
  Pair pair;
  for (uint64_t i = 0; i < 40; ++i) pair.post_receive(i, i * kMtu, kMtu);
  pair.world.impair(1, "rx drop nth 1 kind send");
  pair.world.impair(0, "rx delay 200us kind ack");
  for (uint64_t i = 0; i < 40; ++i) pair.post(SendOp::kSend, i, pair.at(i * 64, 64));
  pair.world.run_for(50 * kMicrosecond);
  // Each has gone to the receive of its number; none completes before the front's.
  for (uint64_t i = 0; i < 40; ++i) {
    EXPECT_EQ(equal(pair.local, i * 64, pair.remote, i * kMtu, 64), i != 0) << i;
  }
  EXPECT_TRUE(pair.received(1, kMicrosecond).empty());
  const auto received = pair.received(40);
  ASSERT_EQ(received.size(), 40u);
  for (uint64_t i = 0; i < 40; ++i) {
    EXPECT_EQ(received[i].wr_id, i);
    EXPECT_TRUE(equal(pair.local, i * 64, pair.remote, i * kMtu, 64)) << i;
  }
}

TEST(Rules, Rule16_NoTargetProcessNeedRun) {
  Pair pair;
  std::memset(pair.remote.data(), 0x5a, 64 * kMtu);
  std::memset(pair.remote.data() + 512 * 1024, 0, 8);
  pair.far->host->stopped_until_ns = pair.world.now() + 60 * kSecond;
  pair.post(SendOp::kRead, 1, pair.at(0, 64 * kMtu));
  pair.post(SendOp::kFetchAdd, 2, pair.at(512 * 1024, 8), 512 * 1024);
  EXPECT_EQ(pair.sent(2, 10 * kMillisecond).size(), 2u);
  EXPECT_TRUE(equal(pair.local, 0, pair.remote, 0, 64 * kMtu));
  EXPECT_EQ(pair.remote.data()[512 * 1024], 1);
}

TEST(Rules, Rule16_ServedWhenTheBaseReachesTheRequest) {
  Pair pair;
  std::memset(pair.remote.data(), 0x11, 2 * kMtu);
  pair.world.impair(1, "rx drop nth 1 kind write");
  pair.post(SendOp::kWrite, 1, pair.at(0, kMtu));
  pair.post(SendOp::kRead, 2, pair.at(512 * 1024, kMtu));
  ASSERT_EQ(pair.sent(2).size(), 2u);
  EXPECT_TRUE(equal(pair.local, 0, pair.local, 512 * 1024, kMtu)) << "read before what precedes it";
}

TEST(Rules, Rule23_AReceiveMeansThatAllEarlierWritesAreThere) {
  Pair pair;
  pair.post_receive(1, 512 * 1024, kMtu);
  pair.world.impair(1, "rx drop nth 2 kind write; drop nth 5 kind write");
  pair.world.impair(0, "rx delay 100us kind ack");
  pair.post(SendOp::kWrite, 1, pair.at(0, 4 * kMtu));
  pair.post(SendOp::kWrite, 2, pair.at(4 * kMtu, 100), 4 * kMtu);
  pair.post(SendOp::kSend, 3, pair.at(0, 64));
  ASSERT_EQ(pair.received(1).size(), 1u);
  EXPECT_TRUE(equal(pair.local, 0, pair.remote, 0, 4 * kMtu + 100));
  EXPECT_EQ(pair.sent(3).size(), 3u);
}

TEST(Rules, Rule23_ACompletionMeansPlaced) {
  Pair pair;
  pair.world.impair(1, "rx drop 20%", 11);
  pair.world.impair(0, "rx drop 20%", 12);
  for (uint64_t i = 0; i < 32; ++i) {
    const auto bytes = static_cast<uint32_t>(1 + i * 997 % (3 * kMtu));
    pair.post(SendOp::kWrite, i, pair.at(i * 4 * kMtu, bytes), i * 4 * kMtu);
  }
  for (uint64_t i = 0; i < 32; ++i) {
    const auto done = pair.sent(1);
    ASSERT_FALSE(done.empty());
    for (const auto& c : done) {
      const uint64_t at = c.wr_id * 4 * kMtu;
      EXPECT_TRUE(equal(pair.local, at, pair.remote, at, 1 + c.wr_id * 997 % (3 * kMtu)));
    }
    i += done.size() - 1;
  }
}

}  // namespace
}  // namespace hostnic::sim
