#include <gtest/gtest.h>

#include "protocol/hostif/yield_cost.h"

namespace hostnic {
namespace {

constexpr uint64_t kUs = 1'000, kMs = 1'000'000;

TEST(YieldCost, AYieldToAPartnerIsCheap) {
  YieldCost cost(50 * kMs, 50 * kMs);
  EXPECT_FALSE(cost.dear(0));
  cost.took(10 * kMs, 10 * kMs + 900 * kUs);
  EXPECT_FALSE(cost.dear(10 * kMs + 900 * kUs)) << "where each interrupt takes 50 us";
}

TEST(YieldCost, ALostTimeSliceIsRememberedForAWhile) {
  YieldCost cost(50 * kMs, 50 * kMs);
  cost.took(10 * kMs, 13 * kMs);
  EXPECT_TRUE(cost.dear(13 * kMs));
  EXPECT_TRUE(cost.dear(62 * kMs));
  EXPECT_FALSE(cost.dear(63 * kMs)) << "then it is tried again";
  cost.took(63 * kMs, 63 * kMs + 1 * kUs);
  EXPECT_FALSE(cost.dear(64 * kMs));
}

TEST(YieldCost, AStrangerThatStaysIsRememberedLonger) {
  YieldCost cost(50 * kMs, 180 * kMs);
  uint64_t now = 10 * kMs;
  for (const uint64_t remembered : {50, 100, 180, 180}) {
    cost.took(now, now + 3 * kMs);
    now += 3 * kMs + remembered * kMs;
    EXPECT_TRUE(cost.dear(now - 1));
    EXPECT_FALSE(cost.dear(now)) << remembered;
  }
  now += 4 * kMs;
  cost.took(now, now + 1);  // it rests
  cost.took(now, now + 3 * kMs);
  EXPECT_TRUE(cost.dear(now + 182 * kMs)) << "and was still there";
  now += 183 * kMs + 6 * kMs;  // it has gone
  cost.took(now, now + 3 * kMs);
  EXPECT_FALSE(cost.dear(now + 53 * kMs));
}

}  // namespace
}  // namespace hostnic
