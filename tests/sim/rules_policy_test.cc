// SPDX-License-Identifier: BSD-3-Clause
// docs/transport.md rules 27, 30 and 33: how much is sent, what is repeated, and out of which
// buffers.
#include <gtest/gtest.h>

#include "dataplane/nic/packet/packet_release.h"
#include "tests/sim/pair.h"

namespace hostnic::sim {
namespace {

constexpr uint32_t kMtu = 4096;

WorldSettings with_policies(wire::Policy near, wire::Policy far) {
  WorldSettings settings;
  settings.policies = {near, far};
  return settings;
}
WorldSettings with_policy(wire::Policy policy) { return with_policies(policy, policy); }

// One packet of a 64-packet WRITE is lost: what each policy repeats.
uint64_t retransmitted_after_one_loss(wire::Policy policy) {
  Pair pair({}, with_policy(policy));
  pair.world.impair(1, "rx drop nth 20 kind write");
  pair.post(SendOp::kWrite, 1, pair.at(0, 64 * kMtu));
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  EXPECT_TRUE(equal(pair.local, 0, pair.remote, 0, 64 * kMtu));
  return pair.near->host->driver().counters().retransmitted_packets;
}

TEST(Rules, Rule30_WhatEachPolicyRepeats) {
  EXPECT_EQ(retransmitted_after_one_loss(wire::Policy::kSelective), 1u);
  // What had left when the ACK came, which is not all of it, but more than a few.
  const uint64_t go_back_n = retransmitted_after_one_loss(wire::Policy::kGoBackN);
  EXPECT_GE(go_back_n, 10u);
  EXPECT_LE(go_back_n, 45u);
  EXPECT_EQ(retransmitted_after_one_loss(wire::Policy::kWholeMessage), 64u);
}

TEST(Rules, Rule30_GoBackNTakesTheFrontOnly) {
  Pair pair({}, with_policy(wire::Policy::kGoBackN));
  pair.world.impair(1, "rx drop nth 1 kind write");
  pair.world.impair(0, "rx delay 200us kind ack");
  pair.post(SendOp::kWrite, 1, pair.at(0, 8 * kMtu));
  pair.world.run_for(20 * kMicrosecond);
  EXPECT_FALSE(equal(pair.local, kMtu, pair.remote, kMtu, kMtu));
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
}

TEST(Rules, Rule30_BothEndsMustAgree) {
  for (const auto& [near, far] :
       {std::pair{wire::Policy::kGoBackN, wire::Policy::kSelective},
        std::pair{wire::Policy::kSelective, wire::Policy::kWholeMessage}}) {
    Pair pair({}, with_policies(near, far));
    pair.post(SendOp::kWrite, 1, pair.at(0, 100));
    EXPECT_EQ(pair.status_of_one(), WcStatus::kRemInvReqErr);
    EXPECT_GE(pair.far_counter(Counter::policy_mismatch), 1u);
    EXPECT_EQ(pair.remote.data()[0], 0);
  }
}

class Policies : public testing::TestWithParam<wire::Policy> {};
INSTANTIATE_TEST_SUITE_P(Rules, Policies,
                         testing::Values(wire::Policy::kGoBackN, wire::Policy::kWholeMessage),
                         [](const auto& info) {
                           return info.param == wire::Policy::kGoBackN ? "GoBackN" : "WholeMessage";
                         });

TEST_P(Policies, Rule30_LongMessagesFinishOverSmallWindowsAndLoss) {
  WorldSettings settings = with_policy(GetParam());
  settings.windows = {64, 32};
  Pair pair({.timeout = 20}, settings);
  pair.world.impair(1, "rx drop 2%", 5);
  pair.world.impair(0, "rx drop 2%", 6);
  pair.post(SendOp::kWrite, 1, pair.at(0, 128 * kMtu));
  pair.post(SendOp::kRead, 2, pair.at(512 * 1024, 64 * kMtu));
  ASSERT_EQ(pair.sent(2, 60 * kSecond).size(), 2u);
  EXPECT_TRUE(equal(pair.local, 0, pair.remote, 0, 128 * kMtu));
  EXPECT_TRUE(equal(pair.local, 512 * 1024, pair.remote, 0, 64 * kMtu));
}

TEST_P(Policies, Rule30_ANakNamesTheRightRequest) {
  Pair pair({}, with_policy(GetParam()));
  pair.world.impair(1, "rx drop nth 2 kind write");
  pair.post(SendOp::kWrite, 1, pair.at(0, 4 * kMtu));
  pair.post_to(SendOp::kWrite, 2, pair.at(0, 4 * kMtu), pair.remote.address(), /*key=*/12345);
  pair.post(SendOp::kWrite, 3, pair.at(0, kMtu));
  const auto done = pair.sent(3);
  ASSERT_EQ(done.size(), 3u);
  EXPECT_EQ(done[0].status, WcStatus::kSuccess);
  EXPECT_EQ(done[1].status, WcStatus::kRemAccessErr);
  EXPECT_EQ(done[2].status, WcStatus::kWrFlushErr);
}

// 1 MiB WRITEs, eight outstanding. Gb/s.
double goodput(Pair& pair, uint64_t duration_ns) {
  const TimeNs start = pair.world.now();
  uint64_t done = 0;
  for (uint64_t i = 0; i < 8; ++i) pair.post(SendOp::kWrite, i, pair.at(0, Pair::kBytes));
  pair.world.run_until(
      [&] {
        for (const auto& c : pair.near->poll(*pair.near->send_cq)) {
          EXPECT_EQ(c.status, WcStatus::kSuccess);
          ++done;
          pair.post(SendOp::kWrite, c.wr_id, pair.at(0, Pair::kBytes));
        }
        return pair.world.now() - start >= duration_ns;
      },
      2 * duration_ns);
  return static_cast<double>(done * Pair::kBytes * 8) / static_cast<double>(duration_ns);
}

TEST(Rules, Rule27_ASlowReceiverShortensTheQueueNotTheGoodput) {
  WorldSettings settings;
  settings.windows = {4096};
  Pair pair({}, settings);
  pair.world.impair(1, "rx rate 10Gbit queue 4096");
  // 4096 packets at 10 Gb/s are 13 ms of queue; the allowance is 250 us, or 76 packets.
  EXPECT_GT(goodput(pair, 200 * kMillisecond), 9.0);
  EXPECT_LT(driver::packets_in_flight(*pair.near->qp), 500u);
}

TEST(Rules, Rule27_RandomLossDoesNotShrinkTheWindow) {
  Pair pair;
  pair.world.impair(1, "rx drop 1%", 7);
  goodput(pair, 20 * kMillisecond);
  EXPECT_GE(driver::congestion_window(*pair.near->qp), 512u);
}

TEST(Rules, Rule13_ManyMessagesArriveAheadOfAHole) {
  Pair pair({.caps = {.max_send_wr = 64,
                      .max_recv_wr = 64,
                      .max_send_sge = 1,
                      .max_recv_sge = 1,
                      .max_inline_bytes = 0}});
  pair.world.impair(1, "rx drop nth 1 kind send");
  for (uint64_t i = 0; i < 64; ++i) {
    ASSERT_EQ(pair.post_receive(i, i * 8192, 8192), 0);
    pair.post(SendOp::kSend, i, pair.at(i * 8192, 8192));
  }
  EXPECT_EQ(pair.sent(64).size(), 64u);
  EXPECT_EQ(pair.received(64).size(), 64u);
  EXPECT_TRUE(equal(pair.local, 0, pair.remote, 0, 64 * 8192));
  EXPECT_EQ(pair.near->host->driver().counters().retransmitted_packets, 1u);
}

TEST(Rules, Rule33_RetransmissionsHaveBuffersOfTheirOwn) {
  // The application's packets hold every data buffer: they wait behind a receiver's slow link.
  Pair pair;
  std::vector<rte_mbuf*> taken;
  for (rte_mempool* pool : {pair.world.pools().header, pair.world.pools().data}) {
    while (rte_mbuf* packet = rte_pktmbuf_alloc(pool)) taken.push_back(packet);
  }
  // Give back what one packet needs, and lose it.
  release_packet(taken.front());
  pair.world.impair(1, "rx drop nth 1 kind write");
  pair.post(SendOp::kWrite, 1, pair.at(0, 100));
  pair.world.run_for(10 * kMicrosecond);
  for (size_t i = 1; i < taken.size(); ++i) taken[i - 1] = taken[i];
  taken.pop_back();
  while (rte_mbuf* packet = rte_pktmbuf_alloc(pair.world.pools().header)) taken.push_back(packet);
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  EXPECT_TRUE(equal(pair.local, 0, pair.remote, 0, 100));
  for (rte_mbuf* packet : taken) release_packet(packet);
}

// A message that is complete is not promised before it is placed, which takes several turns.
TEST(Rules, Rule30_AWholeMessageIsPromisedWhenItIsPlaced) {
  WorldSettings settings = with_policy(wire::Policy::kWholeMessage);
  settings.mtu_bytes = 1024;
  settings.windows = {4096};
  Pair pair({}, settings);
  constexpr uint32_t kPackets = 1000;
  pair.world.impair(1, "rx reorder nth 1 distance 999 flush 1ms");
  pair.post(SendOp::kWrite, 1, pair.at(0, kPackets * 1024));
  ASSERT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  EXPECT_TRUE(equal(pair.local, 0, pair.remote, 0, kPackets * 1024));
}

}  // namespace
}  // namespace hostnic::sim
