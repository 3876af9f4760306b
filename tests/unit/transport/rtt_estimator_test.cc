// SPDX-License-Identifier: BSD-3-Clause
// The smoothed round trip time.
#include <gtest/gtest.h>

#include "protocol/transport/send_tracker.h"

namespace hostnic {
namespace {

TEST(RttEstimator, FirstSampleThenSmoothing) {
  RttEstimator rtt;
  EXPECT_FALSE(rtt.valid());
  rtt.sample(8000);
  EXPECT_TRUE(rtt.valid());
  EXPECT_EQ(rtt.srtt_ns(), 8000u);
  EXPECT_EQ(rtt.rttvar_ns(), 4000u);
  rtt.sample(16'000);
  EXPECT_EQ(rtt.srtt_ns(), 9000u) << "7/8 of 8000 and 1/8 of 16000";
  EXPECT_EQ(rtt.rttvar_ns(), 5000u) << "3/4 of 4000 and 1/4 of 8000";
  for (int i = 0; i < 200; ++i) rtt.sample(1000);
  EXPECT_NEAR(static_cast<double>(rtt.srtt_ns()), 1000, 8);
  EXPECT_LT(rtt.rttvar_ns(), 16u);
}

}  // namespace
}  // namespace hostnic
