// SPDX-License-Identifier: BSD-3-Clause
// Which memory a device still reaches: hostnicd is told of no other that goes.
#include "verbs-shim/runtime/registered_ranges.h"

#include <gtest/gtest.h>

namespace hostnic::runtime {
namespace {

constexpr uint64_t kPage = 4096, kBase = 0x7f0000000000;

TEST(RegisteredRanges, WhatIsRegisteredOverlapsByPages) {
  RegisteredRanges ranges;
  EXPECT_FALSE(ranges.overlaps(0, UINT64_MAX));
  ranges.add(kBase + 100, 2 * kPage);  // in three pages
  EXPECT_TRUE(ranges.overlaps(kBase, kPage)) << "its first page, up to the byte before it included";
  EXPECT_TRUE(ranges.overlaps(kBase + 2 * kPage, kPage)) << "its last page";
  EXPECT_TRUE(ranges.overlaps(kBase + kPage, 1));
  EXPECT_TRUE(ranges.overlaps(kBase - kPage, 8 * kPage));
  EXPECT_FALSE(ranges.overlaps(kBase - kPage, kPage));
  EXPECT_FALSE(ranges.overlaps(kBase + 3 * kPage, kPage));
}

TEST(RegisteredRanges, ALongRegionIsFoundBehindShortOnes) {
  RegisteredRanges ranges;
  ranges.add(kBase, 100 * kPage);
  for (uint64_t i = 0; i < 10; ++i) ranges.add(kBase + i * kPage, kPage);
  EXPECT_TRUE(ranges.overlaps(kBase + 50 * kPage, kPage));
  ranges.remove(kBase, 100 * kPage);
  EXPECT_FALSE(ranges.overlaps(kBase + 50 * kPage, kPage));
  EXPECT_TRUE(ranges.overlaps(kBase + 9 * kPage, kPage));
}

TEST(RegisteredRanges, OneOfTwoRegionsOfTheSameMemoryRemains) {
  RegisteredRanges ranges;
  ranges.add(kBase, kPage);
  ranges.add(kBase, kPage);
  ranges.add(kBase, 2 * kPage);
  ranges.remove(kBase, kPage);
  EXPECT_TRUE(ranges.overlaps(kBase, kPage));
  ranges.remove(kBase, 2 * kPage);
  EXPECT_TRUE(ranges.overlaps(kBase, kPage));
  EXPECT_FALSE(ranges.overlaps(kBase + kPage, kPage));
  ranges.remove(kBase, kPage);
  EXPECT_FALSE(ranges.overlaps(0, UINT64_MAX));
}

TEST(RegisteredRanges, TheWholeAddressSpace) {
  RegisteredRanges ranges;
  ranges.add(0, UINT64_MAX);  // on demand
  EXPECT_TRUE(ranges.overlaps(kBase, 1));
  EXPECT_TRUE(ranges.overlaps(0, kPage));
  ranges.remove(0, UINT64_MAX);
  EXPECT_FALSE(ranges.overlaps(kBase, 1));
}

}  // namespace
}  // namespace hostnic::runtime
