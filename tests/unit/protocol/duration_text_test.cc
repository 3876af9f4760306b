// SPDX-License-Identifier: BSD-3-Clause
#include "protocol/duration_text.h"

#include <gtest/gtest.h>

namespace hostnic {
namespace {

TEST(DurationText, HasTheUnitThatItsLengthAsksFor) {
  EXPECT_EQ(duration_text(0), "0 ns");
  EXPECT_EQ(duration_text(999), "999 ns");
  EXPECT_EQ(duration_text(1000), "1.000 us");
  EXPECT_EQ(duration_text(12'345), "12.345 us");
  EXPECT_EQ(duration_text(1'000'000), "1.000 ms");
  EXPECT_EQ(duration_text(1'234'000'000), "1.234 s");
  EXPECT_EQ(duration_text(UINT64_MAX), "18446744073.710 s");
}

TEST(DurationText, HasAsManyDigitsAsAreWanted) {
  EXPECT_EQ(duration_text(31'249, 1), "31.2 us");
  EXPECT_EQ(duration_text(2'500'000'000, 0), "2 s");
  EXPECT_EQ(duration_text(850, 1), "850 ns");
}

}  // namespace
}  // namespace hostnic
