// SPDX-License-Identifier: BSD-3-Clause
// Packets that arrive early, late, damaged, or at the wrong connection: what they must not do.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/sim/pair.h"

namespace hostnic::sim {
namespace {

constexpr uint32_t kMtu = 4096;

TEST(Arrivals, Rule5_ACorruptedPacketPlacesNothing) {
  Pair pair;
  pair.world.impair(1, "rx corrupt all kind write to 1ms");
  pair.post(SendOp::kWrite, 1, pair.at(0, 8 * kMtu));
  pair.world.run_for(kMillisecond);
  EXPECT_GE(pair.far_counter(Counter::rx_icrc_error) + pair.far_counter(Counter::rx_parse_error),
            8u);
  EXPECT_TRUE(equal(pair.remote, 0, Memory(8 * kMtu), 0, 8 * kMtu)) << "a byte was placed";
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  EXPECT_TRUE(equal(pair.local, 0, pair.remote, 0, 8 * kMtu));
}

TEST(Arrivals, Rule10_TheTailOfAReadIsBufferedUntilTheHoleIsFilled) {
  Pair pair;
  std::memset(pair.remote.data(), 0x5a, Pair::kBytes);
  pair.world.impair(0, "rx drop nth 2 kind read-response");
  pair.world.impair(0, "tx delay 200us kind read-request from 1us");  // what is pulled again
  pair.post(SendOp::kRead, 1, pair.at(0, 4 * kMtu));
  pair.world.run_for(20 * kMicrosecond);
  EXPECT_TRUE(equal(pair.local, 2 * kMtu, pair.remote, 0, kMtu));
  EXPECT_FALSE(equal(pair.local, 3 * kMtu, pair.remote, 0, kMtu)) << "the tail was not held";
  EXPECT_EQ(pair.near_counter(Counter::reorder_buffered), 1u);
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  EXPECT_TRUE(equal(pair.local, 0, pair.remote, 0, 4 * kMtu));
}

// The data's first answer is under way when the flag's is found lost and can't be given again, and
// both are pulled in a new epoch. It is older than what the flag's second answer will say.
TEST(Arrivals, Rule18_AnswersOfAnOldEpochDoNotCount) {
  Pair pair;
  std::memset(pair.remote.data(), 1, Pair::kBytes);
  pair.world.impair(0,
                    "rx drop nth 1 kind read-response; "
                    "reorder nth 1 distance 100 flush 300us kind read-response");
  for (uint64_t i = 0; i < 3; ++i) pair.post(SendOp::kRead, i, pair.at(i * kMtu, 64), i * kMtu);
  const auto pulled_again = [&] { return pair.far_counter(Counter::read_requests_served) > 3; };
  EXPECT_TRUE(pair.world.run_until(pulled_again, kMillisecond));
  pair.world.impair(0, "tx delay 600us kind read-request");  // what the new epoch pulls
  pair.world.run_for(20 * kMicrosecond);
  EXPECT_GE(pair.far_counter(Counter::read_pulls_refused), 1u);
  std::memset(pair.remote.data(), 2, Pair::kBytes);
  EXPECT_EQ(pair.sent(3).size(), 3u);
  EXPECT_GE(pair.near_counter(Counter::stale_epoch), 1u);
  for (uint64_t i = 0; i < 3; ++i) EXPECT_EQ(pair.local.data()[i * kMtu], 2) << "READ " << i;
}

// A connection's late packets find its successor, of the same two queue pairs, at PSNs that would
// fit.
TEST(Arrivals, PacketsOfADeadConnectionMatchNothing) {
  QpSettings qp;
  qp.psn = 1000;
  Pair pair(qp);
  // Longer than the end of the first connection waits for what was posted.
  pair.world.impair(1, "rx delay 200ms kind write");
  pair.post(SendOp::kWrite, 1, pair.at(0, 4 * kMtu));
  pair.world.run_for(100 * kMicrosecond);
  for (Endpoint* end : {pair.near.get(), pair.far.get()}) pair.world.reset_to_init(*end);
  pair.near->settings.psn = pair.far->settings.psn = 998;
  pair.world.connect(*pair.near, *pair.far);
  pair.world.run_for(250 * kMillisecond);
  EXPECT_GE(pair.far_counter(Counter::rx_wrong_tag), 4u);
  EXPECT_TRUE(equal(pair.remote, 0, Memory(4 * kMtu), 0, 4 * kMtu)) << "a byte was placed";
  pair.post(SendOp::kWrite, 2, pair.at(0, 4 * kMtu));
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  EXPECT_TRUE(equal(pair.local, 0, pair.remote, 0, 4 * kMtu));
}

}  // namespace
}  // namespace hostnic::sim
