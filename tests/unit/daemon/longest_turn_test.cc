// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/longest_turn.h"

#include <gtest/gtest.h>

namespace hostnic {
namespace {

constexpr uint64_t kUs = 1000, kMs = 1000 * kUs;

uint64_t cpu_ns = 0;
unsigned looks = 0;
uint64_t fake_cpu_now_ns() {
  ++looks;
  return cpu_ns;
}

class LongestTurnTest : public testing::Test {
 protected:
  // A turn of which the lcore has had the processor for this part.
  void turn(uint64_t length_ns, uint64_t busy_ns) {
    cpu_ns += busy_ns;
    longest_.note(now_ns_, now_ns_ + length_ns);
    now_ns_ += length_ns;
  }
  void SetUp() override {
    turn(1, 1);
    longest_.clear();
    looks = 0;
  }

  LongestTurn longest_{fake_cpu_now_ns};
  TimeNs now_ns_ = 100 * kMs;
};

TEST_F(LongestTurnTest, IsTheLongestSinceItWasCleared) {
  turn(30 * kUs, 30 * kUs);
  turn(50 * kUs, 50 * kUs);
  turn(40 * kUs, 40 * kUs);
  EXPECT_EQ(longest_.ns(), 50 * kUs);
  longest_.clear();
  turn(20 * kUs, 20 * kUs);
  EXPECT_EQ(longest_.ns(), 20 * kUs);
}

// However the turns before it lie, a preempted one counts by at most a millisecond more than it
// had, and a long one by all of it.
TEST_F(LongestTurnTest, LeavesOutWhatOthersDidWithTheProcessor) {
  for (unsigned before = 0; before < 50; ++before) {
    for (unsigned i = 0; i < before; ++i) turn(30 * kUs, 30 * kUs);
    longest_.clear();
    turn(70 * kMs, 2 * kMs);
    EXPECT_GE(longest_.ns(), 2 * kMs) << before;
    EXPECT_LT(longest_.ns(), 3 * kMs) << before;
    turn(70 * kMs, 70 * kMs);
    EXPECT_EQ(longest_.ns(), 70 * kMs) << before;
  }
}

TEST_F(LongestTurnTest, AsksSeldomForTheProcessorsTime) {
  for (unsigned i = 0; i < 10'000; ++i) turn(10 * kUs, 10 * kUs);
  EXPECT_LE(looks, 102u);
}

}  // namespace
}  // namespace hostnic
