// SPDX-License-Identifier: BSD-3-Clause
// Why packets are sent again, as the NIC counts it and tells of it: each cause, staged alone.
#include <gtest/gtest.h>

#include "tests/sim/roce_pair.h"

namespace hostnic::sim {
namespace {

constexpr uint32_t kMtu = 4096;

// What has been sent again for each cause; all of it has one, and the queue pair counts as its NIC.
std::array<uint64_t, kRepeatCauses> repeats_of(Pair& pair) {
  std::array<uint64_t, kRepeatCauses> repeats{};
  uint64_t sum = 0;
  for (size_t i = 0; i < kRepeatCauses; ++i)
    sum += repeats[i] = pair.near_counter(counter_of(static_cast<RepeatCause>(i + 1)));
  EXPECT_EQ(sum, pair.near_counter(Counter::retransmitted_packets));
  const auto view = pair.near->host->nic().views().qp(pair.near->qpn());
  EXPECT_TRUE(view && view->repeated == repeats);
  return repeats;
}

// Only this cause, so often.
void expect_only(Pair& pair, RepeatCause cause, uint64_t packets) {
  const auto repeats = repeats_of(pair);
  for (size_t i = 0; i < kRepeatCauses; ++i) {
    const auto each = static_cast<RepeatCause>(i + 1);
    EXPECT_EQ(repeats[i], each == cause ? packets : 0) << name_of(each);
  }
}

TEST(RepeatCauses, AGap) {
  Pair pair;
  pair.world.impair(1, "rx drop nth 20 kind write");
  pair.post(SendOp::kWrite, 1, pair.at(0, 64 * kMtu));
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  expect_only(pair, RepeatCause::gap, 1);
  const auto view = pair.near->host->nic().views().qp(pair.near->qpn());
  ASSERT_TRUE(view);
  EXPECT_EQ(view->last_repeat, RepeatCause::gap);
  EXPECT_EQ(view->last_repeat_psn, (view->sq_psn + 19) & Psn::kMask);
  EXPECT_TRUE(view->last_repeat_acknowledged);
  EXPECT_GT(view->last_repair_ns, 0u);
  EXPECT_EQ(view->waiting_ns, 0u) << "nothing is outstanding";
  EXPECT_GT(view->srtt_ns, 0u);
  EXPECT_GE(view->rto_ns, view->srtt_ns);
}

TEST(RepeatCauses, AProbe) {
  Pair pair;
  pair.world.impair(1, "rx drop nth 4 kind write");
  pair.post(SendOp::kWrite, 1, pair.at(0, 4 * kMtu));
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  expect_only(pair, RepeatCause::probe, 1);
}

// The probe is lost, too.
TEST(RepeatCauses, ATimeout) {
  Pair pair;
  pair.world.impair(1, "rx drop first 2 kind write");
  pair.post(SendOp::kWrite, 1, pair.at(0, 100));
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  const auto repeats = repeats_of(pair);
  EXPECT_EQ(repeats[static_cast<size_t>(RepeatCause::probe) - 1], 1u);
  EXPECT_EQ(repeats[static_cast<size_t>(RepeatCause::timeout) - 1], 1u);
}

TEST(RepeatCauses, NoReceive) {
  for (const WorldSettings& settings : {WorldSettings(), roce()}) {
    Pair pair({}, settings);
    pair.post(SendOp::kSend, 1, pair.at(0, 100));
    pair.world.run_for(100 * kMicrosecond);
    pair.post_receive(1, 0, kMtu);
    EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
    const auto repeats = repeats_of(pair);
    const uint64_t rnr = repeats[static_cast<size_t>(RepeatCause::rnr) - 1];
    EXPECT_GE(rnr, 1u);
    EXPECT_EQ(rnr, pair.near_counter(Counter::retransmitted_packets));
  }
}

TEST(RepeatCauses, ANak) {
  Pair pair({}, roce());
  pair.world.impair(1, "rx drop nth 3 kind write");
  pair.post(SendOp::kWrite, 1, pair.at(0, 40 * kMtu));
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  EXPECT_GE(repeats_of(pair)[static_cast<size_t>(RepeatCause::nak) - 1], 1u);
  EXPECT_EQ(pair.near_counter(Counter::repeated_timeout), 0u);
}

// What is outstanding is told with the time since when.
TEST(RepeatCauses, WhatIsOutstandingWaits) {
  Pair pair;
  pair.world.impair(1, "rx drop all kind write");
  pair.post(SendOp::kWrite, 1, pair.at(0, 100));
  pair.world.run_for(3 * kMillisecond);
  pair.near->host->nic().poll(pair.world.now());  // its clock stands still between its turns
  const auto view = pair.near->host->nic().views().qp(pair.near->qpn());
  ASSERT_TRUE(view);
  EXPECT_EQ(view->outstanding(), 1u);
  EXPECT_GE(view->waiting_ns, 2 * kMillisecond);
  EXPECT_LE(view->waiting_ns, 4 * kMillisecond);
  EXPECT_FALSE(view->last_repeat_acknowledged);
  EXPECT_EQ(view->srtt_ns, 0u);
  EXPECT_GT(view->rto_ns, 0u) << "doubled, but known";
}

}  // namespace
}  // namespace hostnic::sim
