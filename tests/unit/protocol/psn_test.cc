// SPDX-License-Identifier: BSD-3-Clause
// 24-bit PSNs and 32-bit receive SNs as serial numbers, above all where they wrap.
#include "protocol/psn.h"

#include <gtest/gtest.h>

namespace hostnic {
namespace {

constexpr uint32_t kHalf = 1u << 23;

TEST(Psn, KeepsOnly24Bits) {
  EXPECT_EQ(Psn{0x01000000}.value(), 0u);
  EXPECT_EQ(Psn{0xfffffffe}.value(), 0xfffffeu);
}

TEST(Psn, AdditionWraps) {
  EXPECT_EQ(Psn{0xffffff} + 1, Psn{0});
  EXPECT_EQ(Psn{0xfffff0} + 0x20, Psn{0x10});
  EXPECT_EQ(Psn{5} + 0xffffffff, Psn{4}) << "adding -1";
  Psn psn{0xfffffe};
  psn += 3;
  EXPECT_EQ(psn, Psn{1});
}

TEST(Psn, DistanceAcrossTheWrap) {
  EXPECT_EQ(distance(Psn{0xffffff}, Psn{0}), 1);
  EXPECT_EQ(distance(Psn{0}, Psn{0xffffff}), -1);
  EXPECT_EQ(distance(Psn{0xfff000}, Psn{0x000fff}), 0x1fff);
  EXPECT_EQ(distance(Psn{7}, Psn{7}), 0);
}

TEST(Psn, DistanceRangeIsHalfOpen) {
  for (uint32_t start : {0u, 1u, kHalf - 1, kHalf, 0xffffffu}) {
    EXPECT_EQ(distance(Psn{start}, Psn{start} + (kHalf - 1)), int32_t{kHalf} - 1) << start;
    EXPECT_EQ(distance(Psn{start}, Psn{start} + kHalf), -int32_t{kHalf}) << start;
    EXPECT_EQ(distance(Psn{start}, Psn{start} + (kHalf + 1)), -int32_t{kHalf} + 1) << start;
  }
}

TEST(Psn, DistanceInvertsAddition) {
  for (uint32_t start = 0; start <= Psn::kMask; start += 0x10001) {
    for (int32_t step : {-8388608, -4096, -1, 0, 1, 127, 4096, 8388607}) {
      EXPECT_EQ(distance(Psn{start}, Psn{start} + static_cast<uint32_t>(step)), step) << start;
    }
  }
}

TEST(Psn, BeforeIsStrictAndWraps) {
  EXPECT_TRUE(before(Psn{0xffffff}, Psn{0}));
  EXPECT_FALSE(before(Psn{0}, Psn{0xffffff}));
  EXPECT_FALSE(before(Psn{3}, Psn{3}));
}

TEST(ReceiveSn, SerialDistanceWrapsAt32Bits) {
  EXPECT_EQ(serial_distance(0xffffffff, 0), 1);
  EXPECT_EQ(serial_distance(0, 0xffffffff), -1);
  EXPECT_EQ(serial_distance(0x80000000, 0x7fffffff), -1);
  EXPECT_EQ(serial_distance(5, 5), 0);
}

}  // namespace
}  // namespace hostnic
