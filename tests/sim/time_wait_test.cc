// SPDX-License-Identifier: BSD-3-Clause
// A connection whose receiver has gone: what had arrived is acknowledged all the same
// (dataplane/nic/transport/hostnic/time_wait.h), and nothing else.
#include "dataplane/nic/transport/hostnic/time_wait.h"

#include <gtest/gtest.h>

#include "tests/sim/pair.h"

namespace hostnic::sim {
namespace {

constexpr uint32_t kMessage = 40'000;
constexpr uint32_t kMtu = 4096;

enum class Ending { kDestroy, kReset, kError };

class TimeWait : public testing::TestWithParam<std::tuple<Ending, SendOp, wire::Policy>> {};

WorldSettings with(wire::Policy policy) {
  WorldSettings settings;
  settings.policies = {policy};
  return settings;
}

void end(Pair& pair, Ending how) {
  if (how == Ending::kDestroy) {
    EXPECT_EQ(pair.far->host->driver().destroy_qp(pair.far->qp), 0);
  } else {
    const QpState state = how == Ending::kReset ? QpState::kReset : QpState::kErr;
    EXPECT_EQ(pair.world.modify_state(*pair.far, state), 0);
  }
}

// All ACKs are lost from now on.
void deafen(Pair& pair) { pair.world.impair(0, "rx drop kind ack"); }
void hear_again(Pair& pair) { pair.world.impair(0, "rx none"); }

TEST_P(TimeWait, TheLastAckIsSaidAgain) {
  const auto [how, op, policy] = GetParam();
  QpSettings qp;
  qp.psn = 0xfffffc;  // the message wraps
  Pair pair(qp, with(policy));
  ASSERT_EQ(pair.post_receive(1, 0, kMessage), 0);
  deafen(pair);
  ASSERT_EQ(pair.post(op, 7, pair.at(0, kMessage)), 0);
  ASSERT_EQ(pair.received(1).size(), 1u);
  end(pair, how);
  pair.world.run_for(kMillisecond);
  hear_again(pair);
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  EXPECT_TRUE(equal(pair.local, 0, pair.remote, 0, kMessage));
  EXPECT_GE(pair.far_counter(Counter::time_wait_acks_sent), 1u);
  pair.world.check_at_rest();
}

INSTANTIATE_TEST_SUITE_P(
    All, TimeWait,
    testing::Combine(testing::Values(Ending::kDestroy, Ending::kReset, Ending::kError),
                     testing::Values(SendOp::kSend, SendOp::kWriteImm),
                     testing::Values(wire::Policy::kSelective, wire::Policy::kGoBackN,
                                     wire::Policy::kWholeMessage)));

TEST(TimeWaitConnection, WhatHadNotArrivedEndsInRetryExc) {
  QpSettings qp;
  qp.retry_cnt = 1;
  Pair pair(qp);
  ASSERT_EQ(pair.post_receive(1, 0, kMessage), 0);
  ASSERT_EQ(pair.post_receive(2, 0, kMessage), 0);
  deafen(pair);
  ASSERT_EQ(pair.post(SendOp::kSend, 1, pair.at(0, kMessage)), 0);
  ASSERT_EQ(pair.received(1).size(), 1u);
  end(pair, Ending::kDestroy);
  ASSERT_EQ(pair.post(SendOp::kSend, 2, pair.at(0, kMessage)), 0);
  hear_again(pair);
  const auto done = pair.sent(2);
  ASSERT_EQ(done.size(), 2u);
  EXPECT_EQ(done[0].status, WcStatus::kSuccess);
  EXPECT_EQ(done[1].status, WcStatus::kRetryExcErr);
}

// What a READ waits for is gone with its target's queue pair.
TEST(TimeWaitConnection, ReadsAreNotAnswered) {
  QpSettings qp;
  qp.retry_cnt = 1;
  Pair pair(qp);
  pair.world.impair(0, "rx drop kind read-response");
  ASSERT_EQ(pair.post(SendOp::kRead, 1, pair.at(0, kMessage)), 0);
  pair.world.run_for(kMillisecond);
  end(pair, Ending::kDestroy);
  hear_again(pair);
  EXPECT_EQ(pair.status_of_one(), WcStatus::kRetryExcErr);
  EXPECT_EQ(pair.far_counter(Counter::time_wait_acks_sent), 0u);
}

TEST(TimeWaitConnection, ANewConnectionOfTheSameQueuePairAnswersForTheOldOne) {
  Pair pair;
  auto other = pair.world.make_endpoint(0);
  ASSERT_EQ(pair.post_receive(1, 0, kMessage), 0);
  deafen(pair);
  ASSERT_EQ(pair.post(SendOp::kSend, 1, pair.at(0, kMessage)), 0);
  ASSERT_EQ(pair.received(1).size(), 1u);
  pair.world.reset_to_init(*pair.far);
  pair.world.connect(*other, *pair.far);
  hear_again(pair);
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  ASSERT_EQ(pair.post_receive(2, 0, kMessage), 0);
  const Sge sge = pair.at(kMtu, kMessage);
  ASSERT_EQ(other->post_send(Pair::request(SendOp::kSend, 2, sge, 0, 0)), 0);
  ASSERT_EQ(pair.received(1).size(), 1u);
  EXPECT_TRUE(equal(pair.local, kMtu, pair.remote, 0, kMessage));
}

TEST(TimeWaitConnection, IsForgottenAfterTenSeconds) {
  QpSettings qp;
  qp.timeout = 0;  // waits for ever
  Pair pair(qp);
  ASSERT_EQ(pair.post_receive(1, 0, kMessage), 0);
  deafen(pair);
  ASSERT_EQ(pair.post(SendOp::kSend, 1, pair.at(0, kMessage)), 0);
  ASSERT_EQ(pair.received(1).size(), 1u);
  end(pair, Ending::kDestroy);
  pair.world.run_for(TimeWaitTable::kRememberNs);
  hear_again(pair);
  EXPECT_TRUE(pair.sent(1, 5 * kSecond).empty());
  EXPECT_GE(pair.far_counter(Counter::rx_unknown_qp), 1u);
}

}  // namespace
}  // namespace hostnic::sim
