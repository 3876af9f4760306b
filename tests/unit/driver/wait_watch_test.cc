// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/driver/wait_watch.h"

#include <gtest/gtest.h>

namespace hostnic::driver {
namespace {

constexpr uint64_t kMs = 1'000'000, kSecond = 1000 * kMs;

TEST(WaitClock, TellsOnceWhenNothingHasMovedForLong) {
  WaitClock clock;
  EXPECT_FALSE(clock.due(7, 10 * kSecond, kSecond)) << "the first look is no wait";
  EXPECT_FALSE(clock.due(7, 10 * kSecond + 999 * kMs, kSecond));
  EXPECT_TRUE(clock.due(7, 11 * kSecond, kSecond));
  EXPECT_EQ(clock.waited_ns(), kSecond);
  EXPECT_FALSE(clock.due(7, 20 * kSecond, kSecond)) << "told already";
}

TEST(WaitClock, AStepForwardBeginsAnotherWait) {
  WaitClock clock;
  clock.due(7, 10 * kSecond, kSecond);
  EXPECT_FALSE(clock.due(8, 11 * kSecond, kSecond));
  EXPECT_TRUE(clock.due(8, 12 * kSecond, kSecond));
  EXPECT_FALSE(clock.due(9, 13 * kSecond, kSecond));
  EXPECT_TRUE(clock.due(9, 14 * kSecond, kSecond)) << "another wait is told, too";
}

TEST(WaitClock, RestForgetsWhatWasWaited) {
  WaitClock clock;
  clock.due(7, 10 * kSecond, kSecond);
  clock.due(7, 10 * kSecond + 900 * kMs, kSecond);
  clock.rest();
  EXPECT_FALSE(clock.due(7, 12 * kSecond, kSecond));
}

TEST(WaitClock, AStoppedProcessHasNotWaitedSoLong) {
  WaitClock clock;
  clock.due(7, 10 * kSecond, 3 * kSecond);
  EXPECT_FALSE(clock.due(7, 100 * kSecond, 3 * kSecond));
  EXPECT_EQ(clock.waited_ns(), 2 * kSecond);
}

}  // namespace
}  // namespace hostnic::driver
