// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/lcore/longest_turn.h"

#include <gtest/gtest.h>

namespace hostnic {
namespace {

constexpr uint64_t kUs = 1000, kMs = 1000 * kUs;

ThreadTimes times;
unsigned looks = 0;
ThreadTimes fake_times_now() {
  ++looks;
  return times;
}

class LongestTurnTest : public testing::Test {
 protected:
  // A turn of which the lcore has had the processor for this part, slept for that, and waited for a
  // processor otherwise.
  void turn(uint64_t length_ns, uint64_t busy_ns, uint64_t asleep_ns = 0) {
    times.cpu_ns += busy_ns;
    if (times.waited_ns != ThreadTimes::kUnknown)
      times.waited_ns += length_ns - busy_ns - asleep_ns;
    times.sleeps += asleep_ns != 0 ? 1 : 0;
    longest_.note(now_ns_, now_ns_ + length_ns);
    now_ns_ += length_ns;
  }
  void SetUp() override {
    times = {};
    turn(1, 1);
    longest_.clear();
    looks = 0;
  }

  LongestTurn longest_{fake_times_now};
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

// A client that punches holes has the lcore sleep while it touches them.
TEST_F(LongestTurnTest, HasWhatTheLcoreSleptInTheKernel) {
  turn(2 * kMs, 2 * kMs);
  turn(300 * kMs, 1 * kMs, 250 * kMs);
  EXPECT_GE(longest_.ns(), 251 * kMs);
  EXPECT_LT(longest_.ns(), 252 * kMs);
}

TEST_F(LongestTurnTest, GoesByTheProcessorsTimeWhereTheKernelDoesNotSayWhoWaited) {
  times.waited_ns = ThreadTimes::kUnknown;
  turn(2 * kMs, 2 * kMs);
  turn(300 * kMs, 1 * kMs, 250 * kMs);
  EXPECT_LT(longest_.ns(), 4 * kMs);
}

TEST_F(LongestTurnTest, AsksSeldomForTheProcessorsTime) {
  for (unsigned i = 0; i < 10'000; ++i) turn(10 * kUs, 10 * kUs);
  EXPECT_LE(looks, 102u);
}

}  // namespace
}  // namespace hostnic
