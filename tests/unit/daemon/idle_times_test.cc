// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/idle_times.h"

#include <gtest/gtest.h>

namespace hostnic {
namespace {

constexpr uint64_t kUs = 1'000, kMs = 1'000'000;

TEST(IdleTimes, AnLcoreLingersForWhatItIsToldWhereInterruptsAreCheap) {
  IdleTimes times(30 * kUs);
  EXPECT_EQ(times.linger_ns(), 30 * kUs) << "before it has slept once";
  times.fence_took(3 * kUs);
  EXPECT_EQ(times.linger_ns(), 30 * kUs);
}

TEST(IdleTimes, AnLcoreLingersForLongerThanGoingToSleepTakes) {
  IdleTimes times(30 * kUs);
  times.fence_took(45 * kUs);
  EXPECT_EQ(times.linger_ns(), 180 * kUs);
  times.fence_took(5 * kMs);  // somebody else had the core
  EXPECT_EQ(times.linger_ns(), 200 * kUs);
  times.fence_took(1 * kUs);
  EXPECT_EQ(times.linger_ns(), 30 * kUs);
}

TEST(IdleTimes, AnLcoreThatIsToldNotToLingerDoesNot) {
  IdleTimes times(0);
  times.fence_took(45 * kUs);
  EXPECT_EQ(times.linger_ns(), 0u);
}

class Patience : public testing::Test {
 protected:
  Patience() { times_.fence_took(50 * kUs); }
  IdleTimes times_{30 * kUs};
};

TEST_F(Patience, NoneIsNeededWhereYieldsComeBack) { EXPECT_EQ(times_.patience_ns(kMs), 0u); }

TEST_F(Patience, AYieldThatTookATimeSliceTeachesIt) {
  times_.yield_was_costly(10 * kMs);
  EXPECT_EQ(times_.patience_ns(10 * kMs), 100 * kUs) << "as long as a program is interrupted";
  EXPECT_EQ(times_.patience_ns(109 * kMs), 100 * kUs);
  EXPECT_EQ(times_.patience_ns(110 * kMs), 0u);
  times_.fence_took(2 * kUs);
  EXPECT_EQ(times_.patience_ns(11 * kMs), 4 * kUs);
}

TEST_F(Patience, ItEndsWhenNobodyAnswers) {
  times_.yield_was_costly(10 * kMs);
  for (int i = 0; i < 7; ++i) times_.waited(11 * kMs, 100 * kUs);
  EXPECT_NE(times_.patience_ns(11 * kMs), 0u);
  times_.waited(11 * kMs, 99 * kUs);  // an answer
  for (int i = 0; i < 7; ++i) times_.waited(11 * kMs, 200 * kUs);
  EXPECT_NE(times_.patience_ns(11 * kMs), 0u) << "only in a row";
  times_.waited(11 * kMs, 200 * kUs);
  EXPECT_EQ(times_.patience_ns(11 * kMs), 0u);
  times_.waited(11 * kMs, 1 * kUs);
  EXPECT_EQ(times_.patience_ns(11 * kMs), 0u) << "there was no waiting to be rewarded";
  times_.yield_was_costly(12 * kMs);
  EXPECT_NE(times_.patience_ns(12 * kMs), 0u);
}

}  // namespace
}  // namespace hostnic
