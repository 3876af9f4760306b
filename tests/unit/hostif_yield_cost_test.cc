#include <gtest/gtest.h>

#include "protocol/hostif/yield_cost.h"

namespace hostnic {
namespace {

constexpr uint64_t kUs = 1'000, kMs = 1'000'000;

TEST(YieldCost, AYieldToAPartnerIsCheap) {
  YieldCost cost;
  EXPECT_FALSE(cost.dear(0));
  cost.took(10 * kMs, 10 * kMs + 200 * kUs);
  EXPECT_FALSE(cost.dear(10 * kMs + 200 * kUs));
}

TEST(YieldCost, ALostTimeSliceIsRememberedForAWhile) {
  YieldCost cost;
  cost.took(10 * kMs, 13 * kMs);
  EXPECT_TRUE(cost.dear(13 * kMs));
  EXPECT_TRUE(cost.dear(62 * kMs));
  EXPECT_FALSE(cost.dear(63 * kMs)) << "then it is tried again";
  cost.took(63 * kMs, 63 * kMs + 1 * kUs);
  EXPECT_FALSE(cost.dear(64 * kMs));
}

}  // namespace
}  // namespace hostnic
