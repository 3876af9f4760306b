// SPDX-License-Identifier: BSD-3-Clause
#include "protocol/hostif/yield_cost.h"

#include <gtest/gtest.h>

namespace hostnic {
namespace {

constexpr uint64_t kUs = 1'000, kMs = 1'000'000;

TEST(YieldCost, AYieldToAPartnerIsCheap) {
  YieldCost cost(50 * kMs, 50 * kMs);
  EXPECT_FALSE(cost.costly(0));
  cost.took(10 * kMs, 10 * kMs + 900 * kUs);
  EXPECT_FALSE(cost.costly(10 * kMs + 900 * kUs)) << "where each interrupt takes 50 us";
}

TEST(YieldCost, ALostTimeSliceIsRememberedForAWhile) {
  YieldCost cost(50 * kMs, 50 * kMs);
  cost.took(10 * kMs, 13 * kMs);
  EXPECT_TRUE(cost.costly(13 * kMs));
  EXPECT_TRUE(cost.costly(62 * kMs));
  EXPECT_FALSE(cost.costly(63 * kMs)) << "then it is tried again";
  cost.took(63 * kMs, 63 * kMs + 1 * kUs);
  EXPECT_FALSE(cost.costly(64 * kMs));
}

TEST(YieldCost, AStrangerThatStaysIsRememberedLonger) {
  YieldCost cost(50 * kMs, 180 * kMs);
  uint64_t now = 10 * kMs;
  for (const uint64_t remembered : {50, 100, 180, 180}) {
    cost.took(now, now + 3 * kMs);
    now += 3 * kMs + remembered * kMs;
    EXPECT_TRUE(cost.costly(now - 1));
    EXPECT_FALSE(cost.costly(now)) << remembered;
  }
  now += 4 * kMs;
  cost.took(now, now + 1);  // it rests
  cost.took(now, now + 3 * kMs);
  EXPECT_TRUE(cost.costly(now + 182 * kMs)) << "and was still there";
  now += 183 * kMs + 6 * kMs;  // it has gone
  cost.took(now, now + 3 * kMs);
  EXPECT_FALSE(cost.costly(now + 53 * kMs));
}

}  // namespace
}  // namespace hostnic
