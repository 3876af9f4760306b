// SPDX-License-Identifier: BSD-3-Clause
// Which bytes newer PSNs have written, against a map of single bytes.
#include "protocol/transport/early_writes.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <utility>

namespace hostnic {
namespace {

using Parts = std::vector<std::pair<uint64_t, uint64_t>>;  // offset, length

Parts unwritten(const EarlyWrites& ranges, const EarlyWritePool& pool, Psn psn, uint32_t space,
                uint64_t offset, uint64_t length, uint64_t* skipped = nullptr) {
  Parts parts;
  const uint64_t bytes =
      ranges.for_each_unwritten(pool, psn, space, offset, length,
                                [&parts](uint64_t at, uint64_t n) { parts.emplace_back(at, n); });
  if (skipped != nullptr) *skipped = bytes;
  return parts;
}

TEST(EarlyWrites, NothingRememberedNothingSkipped) {
  EarlyWritePool pool(4);
  const EarlyWrites ranges;
  EXPECT_TRUE(ranges.empty());
  EXPECT_EQ(unwritten(ranges, pool, Psn(1), 0, 100, 50), (Parts{{100, 50}}));
  EXPECT_EQ(unwritten(ranges, pool, Psn(1), 0, 100, 0), Parts{});
}

TEST(EarlyWrites, ConsecutivePsnsThatContinueEachOtherMerge) {
  EarlyWritePool pool(4);
  EarlyWrites ranges;
  for (uint32_t i = 0; i < 100; ++i) {
    ASSERT_TRUE(ranges.add(pool, Psn(0xffffd0) + i, 7, 4096 + uint64_t{i} * 256, 256));
  }
  EXPECT_EQ(pool.available(), 3u);
  EXPECT_EQ(unwritten(ranges, pool, Psn(0xffffcf), 7, 4000, 26'000),
            (Parts{{4000, 96}, {4096 + 25'600, 26'000 - 96 - 25'600}}));
  // Pieces of one packet merge, too.
  ASSERT_TRUE(ranges.add(pool, Psn(0xffffd0) + 99, 7, 4096 + 25'600, 8));
  EXPECT_EQ(pool.available(), 3u);
}

TEST(EarlyWrites, WhatIsNotARunDoesNotMerge) {
  EarlyWritePool pool(8);
  EarlyWrites ranges;
  ASSERT_TRUE(ranges.add(pool, Psn(10), 1, 0, 100));
  ASSERT_TRUE(ranges.add(pool, Psn(12), 1, 100, 100));  // PSN 11 may still come
  EXPECT_EQ(pool.available(), 6u);
  ASSERT_TRUE(ranges.add(pool, Psn(13), 1, 300, 100));  // a gap in memory
  EXPECT_EQ(pool.available(), 5u);
  ASSERT_TRUE(ranges.add(pool, Psn(14), 2, 400, 100));  // other memory
  EXPECT_EQ(pool.available(), 4u);
  ASSERT_TRUE(ranges.add(pool, Psn(15), 2, 500, 0));  // no bytes
  EXPECT_EQ(pool.available(), 4u);
}

TEST(EarlyWrites, OnlyLaterPsnsCount) {
  EarlyWritePool pool(8);
  EarlyWrites ranges;
  ASSERT_TRUE(ranges.add(pool, Psn(0xffffff), 1, 0, 64));
  ASSERT_TRUE(ranges.add(pool, Psn(3), 1, 128, 64));
  EXPECT_EQ(unwritten(ranges, pool, Psn(1), 1, 0, 256), (Parts{{0, 128}, {192, 64}}));
  EXPECT_EQ(unwritten(ranges, pool, Psn(0xfffffe), 1, 0, 256), (Parts{{64, 64}, {192, 64}}));
  EXPECT_EQ(unwritten(ranges, pool, Psn(3), 1, 0, 256), (Parts{{0, 256}})) << "its own bytes";
  EXPECT_EQ(unwritten(ranges, pool, Psn(1), 2, 0, 256), (Parts{{0, 256}})) << "other memory";
}

TEST(EarlyWrites, ExhaustedPoolRefusesButStillMerges) {
  EarlyWritePool pool(2);
  EarlyWrites mine, others;
  ASSERT_TRUE(mine.add(pool, Psn(1), 1, 0, 10));
  ASSERT_TRUE(others.add(pool, Psn(1), 1, 500, 10));
  EXPECT_EQ(pool.available(), 0u);
  EXPECT_FALSE(mine.add(pool, Psn(5), 1, 1000, 10));
  EXPECT_TRUE(mine.add(pool, Psn(6), 1, 2000, 0)) << "no bytes need no entry";
  EXPECT_TRUE(mine.add(pool, Psn(2), 1, 10, 10)) << "a merge needs no entry";
  EXPECT_EQ(unwritten(mine, pool, Psn(0), 1, 0, 2000), (Parts{{20, 1980}}));
  others.clear(pool);
  EXPECT_TRUE(mine.add(pool, Psn(5), 1, 1000, 10));
  mine.clear(pool);
  EXPECT_EQ(pool.available(), 2u);
  EXPECT_TRUE(mine.empty());

  EarlyWritePool none(0);
  EXPECT_FALSE(mine.add(none, Psn(1), 1, 0, 1));
}

TEST(EarlyWrites, ReleaseFollowsTheExpectedPsn) {
  EarlyWritePool pool(8);
  EarlyWrites ranges;
  ASSERT_TRUE(ranges.add(pool, Psn(0xfffffe), 1, 0, 10));
  ASSERT_TRUE(ranges.add(pool, Psn(0xffffff), 1, 10, 10));  // merges: ends at 0xffffff
  ASSERT_TRUE(ranges.add(pool, Psn(2), 1, 100, 10));
  ASSERT_TRUE(ranges.add(pool, Psn(5), 1, 200, 10));
  ranges.release_before(pool, Psn(0xffffff));
  EXPECT_EQ(pool.available(), 5u) << "a run is kept until its last PSN is passed";
  ranges.release_before(pool, Psn(0));
  EXPECT_EQ(pool.available(), 6u);
  ranges.release_before(pool, Psn(2));
  EXPECT_EQ(pool.available(), 6u) << "the base itself is not before the base";
  ranges.release_before(pool, Psn(6));
  EXPECT_EQ(pool.available(), 8u);
  EXPECT_TRUE(ranges.empty());
}

TEST(EarlyWrites, ReleaseFromForgetsAnOldEpoch) {
  EarlyWritePool pool(8);
  EarlyWrites ranges;
  ASSERT_TRUE(ranges.add(pool, Psn(0xfffff0), 1, 0, 10));
  ASSERT_TRUE(ranges.add(pool, Psn(4), 1, 100, 10));
  ASSERT_TRUE(ranges.add(pool, Psn(8), 1, 200, 10));
  ranges.release_from(pool, Psn(4));
  EXPECT_EQ(pool.available(), 7u);
  EXPECT_EQ(unwritten(ranges, pool, Psn(0xffff00), 1, 0, 300), (Parts{{10, 290}}));
}

// Random packets arrive out of order; each byte knows the newest PSN that wrote it.
TEST(EarlyWrites, AgreesWithAByteMap) {
  for (uint32_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    const auto below = [&random](uint32_t n) { return random() % n; };
    constexpr uint32_t kBytes = 600, kSpaces = 2;
    const Psn base(0xfffff0 + below(32));
    EarlyWritePool pool(64);
    EarlyWrites ranges;
    std::array<std::array<int, kBytes>, kSpaces> newest;  // PSN as distance from the base; -1: none
    for (auto& space : newest) space.fill(-1);
    for (int step = 0; step < 200; ++step) {
      const uint32_t d = below(64), space = below(kSpaces);
      const uint32_t offset = below(kBytes), length = below(std::min(kBytes - offset, 90u) + 1);
      std::array<bool, kBytes> written{};
      uint64_t skipped = 0, passed = 0;
      Parts parts = unwritten(ranges, pool, base + d, space, offset, length, &skipped);
      uint64_t position = offset;
      for (const auto& [at, n] : parts) {
        ASSERT_GE(at, position) << "in order and disjoint";
        ASSERT_GT(n, 0u);
        ASSERT_LE(at + n, offset + length);
        for (uint64_t i = at; i < at + n; ++i) written[i] = true;
        position = at + n;
        passed += n;
      }
      ASSERT_EQ(passed + skipped, length);
      for (uint32_t i = offset; i < offset + length; ++i) {
        ASSERT_EQ(written[i], newest[space][i] <= static_cast<int>(d)) << "byte " << i;
      }
      const bool added = ranges.add(pool, base + d, space, offset, length);
      if (added) {
        for (uint32_t i = offset; i < offset + length; ++i)
          newest[space][i] = std::max(newest[space][i], static_cast<int>(d));
      } else {
        ASSERT_EQ(pool.available(), 0u);
        ranges.clear(pool);
        ASSERT_EQ(pool.available(), 64u);
        for (auto& each : newest) each.fill(-1);
      }
    }
  }
}

}  // namespace
}  // namespace hostnic
