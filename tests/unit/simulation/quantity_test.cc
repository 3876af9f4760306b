// SPDX-License-Identifier: BSD-3-Clause
// Lists and ranges as people write them, and what they are told when it is none.
#include "dataplane/simulation/study/quantity.h"

#include <gtest/gtest.h>

namespace hostnic::study {
namespace {

constexpr Quantity kLoss{"--loss", Unit::kPercent, 0, 1'000'000, "a percentage: 1%"};
constexpr Quantity kSize{"--message", Unit::kBytes, 1, 8 << 20, "a size: 64K", /*doubles=*/true};
constexpr Quantity kWindow{"--window",       Unit::kNumber,        32, 4096, "a power of two",
                           /*doubles=*/true, /*power_of_two=*/true};
constexpr Quantity kDelay{"--delay", Unit::kTime, 0, 1'000'000'000, "a time: 10us"};
constexpr Quantity kRate{"--rate", Unit::kRate, 1'000'000, 1'000'000'000'000, "a rate: 100Gbit"};

using Values = std::vector<uint64_t>;

Values values(const Quantity& quantity, std::string_view text, uint32_t points = 11) {
  auto parsed = parse_values(quantity, text, points);
  EXPECT_TRUE(parsed.has_value()) << parsed.error();
  return parsed ? *parsed : Values{};
}

std::string error(const Quantity& quantity, std::string_view text) {
  auto parsed = parse_values(quantity, text, 11);
  return parsed ? "" : parsed.error();
}

TEST(Quantity, ValuesHaveTheirUnits) {
  EXPECT_EQ(values(kLoss, "0"), Values{0});
  EXPECT_EQ(values(kLoss, "0.1%"), Values{1000});
  EXPECT_EQ(values(kLoss, "100%"), Values{1'000'000});
  EXPECT_EQ(values(kSize, "64K"), Values{65536});
  EXPECT_EQ(values(kSize, "1M"), Values{1 << 20});
  EXPECT_EQ(values(kSize, "100"), Values{100});
  EXPECT_EQ(values(kDelay, "1.5us"), Values{1500});
  EXPECT_EQ(values(kRate, "25Gbit"), Values{25'000'000'000});
}

TEST(Quantity, AListHasEachValueOnce) {
  EXPECT_EQ(values(kLoss, "1%,0,5%,1%"), (Values{10000, 0, 50000}));
}

TEST(Quantity, ARangeGoesInEqualSteps) {
  EXPECT_EQ(values(kLoss, "0..5%", 6), (Values{0, 10000, 20000, 30000, 40000, 50000}));
  EXPECT_EQ(values(kLoss, "0..5%").size(), 11u);
  EXPECT_EQ(values(kLoss, "1..2%,7%", 2), (Values{10000, 20000, 70000}));
  EXPECT_EQ(values(kDelay, "0..1us", 3), (Values{0, 500, 1000}));
}

TEST(Quantity, SizesDouble) {
  EXPECT_EQ(values(kSize, "4K..32K"), (Values{4096, 8192, 16384, 32768}));
  EXPECT_EQ(values(kSize, "3..10K"), (Values{3072, 6144, 10240}));
  EXPECT_EQ(values(kWindow, "32..128"), (Values{32, 64, 128}));
}

TEST(Quantity, ErrorsNameTheOptionAndTheRemedy) {
  EXPECT_EQ(error(kLoss, "7"), "--loss 7: use a percentage: 1%");
  EXPECT_EQ(error(kLoss, ""), "--loss \"\": use a percentage: 1%");
  EXPECT_EQ(error(kLoss, "1%,"), "--loss \"\": use a percentage: 1%");
  EXPECT_EQ(error(kLoss, "101%"), "--loss 101%: use 0% to 100%");
  EXPECT_EQ(error(kLoss, "5..1%"), "--loss 5..1%: a range begins with its smallest value");
  EXPECT_EQ(error(kWindow, "100"), "--window 100: use a power of two from 32 to 4096");
  EXPECT_EQ(error(kSize, "0"), "--message 0: use 1 to 8M");
  EXPECT_EQ(error(kSize, "64k"), "--message 64k: use a size: 64K");
  EXPECT_EQ(error(kDelay, "10"), "--delay 10: use a time: 10us");
  EXPECT_EQ(error(kRate, "1Kbit"), "--rate 1Kbit: use 1Mbit to 1Tbit");
  EXPECT_EQ(error(kDelay, std::string(1000, '9')).size(),
            std::string("--delay : use a time: 10us").size() + 40);
}

TEST(Quantity, TextsSayTheSame) {
  EXPECT_EQ(text_of(Unit::kPercent, 5000), "0.5%");
  EXPECT_EQ(text_of(Unit::kTime, 0), "0ns");
  EXPECT_EQ(text_of(Unit::kTime, 12'500), "12.5us");
  EXPECT_EQ(text_of(Unit::kRate, 100'000'000'000), "100Gbit");
  EXPECT_EQ(text_of(Unit::kBytes, 3 << 20), "3M");
  EXPECT_EQ(text_of(Unit::kBytes, 1500), "1500");
}

}  // namespace
}  // namespace hostnic::study
