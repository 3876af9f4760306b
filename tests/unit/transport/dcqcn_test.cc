// SPDX-License-Identifier: BSD-3-Clause
// DCQCN's rates against sequences computed by hand from the paper's equations, and the bucket that
// holds packets to them.
#include "protocol/transport/dcqcn.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace hostnic {
namespace {

constexpr TimeNs kStart = 1'000'000'000;
constexpr uint64_t kMicrosecond = 1'000;
constexpr uint32_t kGigabit = 1'000'000;  // in kb/s

// A sender at 40 Gb/s that is cut twice, 50 us apart: its target is 20 Gb/s then, and its rate 10.
struct CutTwice {
  explicit CutTwice(TimeNs start = kStart) {
    rate.reset(40'000);
    EXPECT_TRUE(rate.on_cnp(start));
    now = start + 50 * kMicrosecond;
    EXPECT_TRUE(rate.on_cnp(now));
  }
  // The timer's next `count` events.
  void timers(uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) {
      now = rate.timer_due_ns();
      rate.on_timer();
    }
  }
  DcqcnRate rate;
  TimeNs now;
};

TEST(Dcqcn, UnlimitedUntilTheFirstNotification) {
  DcqcnRate rate;
  rate.reset(40'000);
  EXPECT_FALSE(rate.limited());
  EXPECT_TRUE(rate.on_cnp(kStart));
  EXPECT_TRUE(rate.limited());
  EXPECT_EQ(rate.target_kbps(), 40 * kGigabit);
  EXPECT_EQ(rate.kbps(), 20 * kGigabit) << "alpha begins at 1: half";
  EXPECT_EQ(rate.alpha_permille(), 1000u);
  EXPECT_EQ(rate.cuts(), 1u);
}

TEST(Dcqcn, AtMostOneCutIn50Microseconds) {
  DcqcnRate rate;
  rate.reset(40'000);
  EXPECT_TRUE(rate.on_cnp(kStart));
  for (const uint64_t later : {uint64_t{0}, uint64_t{1}, 49'999 * uint64_t{1}})
    EXPECT_FALSE(rate.on_cnp(kStart + later));
  EXPECT_EQ(rate.kbps(), 20 * kGigabit);
  EXPECT_TRUE(rate.on_cnp(kStart + 50'000));
  EXPECT_EQ(rate.kbps(), 10 * kGigabit);
  EXPECT_EQ(rate.target_kbps(), 20 * kGigabit);
}

TEST(Dcqcn, FiveFastRecoveriesThenAdditiveIncrease) {
  CutTwice cut;
  EXPECT_EQ(cut.rate.timer_due_ns(), cut.now + 55 * kMicrosecond);
  const std::vector<uint32_t> expected = {15'000'000, 17'500'000, 18'750'000, 19'375'000,
                                          19'687'500};
  for (const uint32_t kbps : expected) {
    cut.timers(1);
    EXPECT_EQ(cut.rate.kbps(), kbps);
    EXPECT_EQ(cut.rate.target_kbps(), 20 * kGigabit);
  }
  cut.timers(1);
  EXPECT_EQ(cut.rate.target_kbps(), 20'040'000u) << "40 Mb/s more";
  EXPECT_EQ(cut.rate.kbps(), 19'863'750u);
  cut.timers(1);
  EXPECT_EQ(cut.rate.target_kbps(), 20'080'000u);
  EXPECT_EQ(cut.rate.kbps(), 19'971'875u);
}

TEST(Dcqcn, TheByteCounterIncreasesAsTheTimerDoes) {
  CutTwice cut;
  cut.rate.on_sent(9'999'999);
  EXPECT_EQ(cut.rate.kbps(), 10 * kGigabit);
  cut.rate.on_sent(1);
  EXPECT_EQ(cut.rate.kbps(), 15 * kGigabit);
  cut.rate.on_sent(40'000'000);  // four events more
  EXPECT_EQ(cut.rate.kbps(), 19'687'500u);
  cut.timers(1);
  EXPECT_EQ(cut.rate.target_kbps(), 20 * kGigabit) << "neither has had more than five";
  cut.rate.on_sent(10'000'000);
  EXPECT_EQ(cut.rate.target_kbps(), 20'040'000u);
}

TEST(Dcqcn, HyperIncreaseWhenBothHaveHadMoreThanFive) {
  CutTwice cut;
  cut.rate.on_sent(60'000'000);  // the sixth is additive
  EXPECT_EQ(cut.rate.target_kbps(), 20'040'000u);
  cut.timers(5);
  EXPECT_EQ(cut.rate.target_kbps(), 20'240'000u) << "the timer's first five: additive by the bytes";
  cut.timers(1);
  EXPECT_EQ(cut.rate.target_kbps(), 20'640'000u) << "400 Mb/s";
  cut.timers(1);
  EXPECT_EQ(cut.rate.target_kbps(), 21'040'000u) << "the slower of both counts: 400 again";
  cut.rate.on_sent(10'000'000);
  EXPECT_EQ(cut.rate.target_kbps(), 21'840'000u) << "twice 400";
}

TEST(Dcqcn, ACutBeginsEverythingAnew) {
  CutTwice cut;
  cut.rate.on_sent(69'999'999);
  cut.timers(8);
  const uint32_t before = cut.rate.kbps();
  EXPECT_TRUE(cut.rate.on_cnp(cut.now + 1));
  EXPECT_EQ(cut.rate.target_kbps(), before);
  EXPECT_EQ(cut.rate.timer_due_ns(), cut.now + 1 + 55 * kMicrosecond);
  cut.timers(5);
  EXPECT_EQ(cut.rate.target_kbps(), before) << "five fast recoveries again";
  cut.rate.on_sent(9'999'999);
  EXPECT_EQ(cut.rate.target_kbps(), before) << "what was sent before the cut is not counted";
}

TEST(Dcqcn, AlphaDecaysEvery55MicrosecondsWithoutANotification) {
  CutTwice cut;
  cut.rate.decay_alpha(cut.now + 54'999);
  EXPECT_EQ(cut.rate.alpha_permille(), 1000u);
  cut.rate.decay_alpha(cut.now + 55'000);
  EXPECT_EQ(cut.rate.alpha_permille(), 996u);  // 255/256
  cut.rate.decay_alpha(cut.now + 100 * 55'000);
  EXPECT_EQ(cut.rate.alpha_permille(), 676u);  // (255/256)^100 = 0.67612
  const uint32_t before = cut.rate.kbps();
  EXPECT_TRUE(cut.rate.on_cnp(cut.now + 100 * 55'000 + 1));
  const double alpha = std::pow(255.0 / 256, 100);
  EXPECT_NEAR(cut.rate.kbps(), before * (1 - alpha / 2), before * 1e-5);
  EXPECT_EQ(cut.rate.alpha_permille(), 677u);  // alpha * 255/256 + 1/256 = 0.67739
}

TEST(Dcqcn, NeverBelowTheMinimum) {
  DcqcnRate rate;
  rate.reset(100'000);
  TimeNs now = kStart;
  for (uint32_t i = 0; i < 40; ++i, now += 50 * kMicrosecond) EXPECT_TRUE(rate.on_cnp(now));
  EXPECT_EQ(rate.kbps(), 1'000u);
  EXPECT_EQ(rate.target_kbps(), 1'000u);
}

TEST(Dcqcn, UnlimitedAgainAtTheLineRateAndAlphaIsNewThen) {
  DcqcnRate rate;
  rate.reset(40'000);
  rate.on_cnp(kStart);
  uint32_t events = 0;
  for (; rate.limited() && events < 1000; ++events) rate.on_timer();
  EXPECT_FALSE(rate.limited());
  EXPECT_LT(events, 40u) << "half of what is missing each time";
  EXPECT_EQ(rate.recoveries(), 1u);
  rate.on_cnp(kStart + 1'000'000'000);
  EXPECT_EQ(rate.kbps(), 20 * kGigabit);
  EXPECT_EQ(rate.cuts(), 2u);
}

TEST(Dcqcn, APortOfUnknownSpeedHas100Gigabits) {
  for (const auto& [port_mbps, line] : {std::pair{0u, 100 * kGigabit}, std::pair{1'000u, kGigabit},
                                        std::pair{4'000'000'000u, 4'000 * kGigabit}}) {
    DcqcnRate rate;
    rate.reset(port_mbps);
    rate.on_cnp(kStart);
    EXPECT_EQ(rate.target_kbps(), line);
  }
}

TEST(TokenBucket, FillsAtTheRateAndHoldsSoMuch) {
  constexpr uint32_t kByteEachNs = 8 * kGigabit;
  TokenBucket bucket;
  bucket.reset(kStart);
  EXPECT_EQ(bucket.bytes(), 0u);
  EXPECT_FALSE(bucket.owes());
  bucket.settle(kStart + 1'000, kByteEachNs);
  EXPECT_EQ(bucket.bytes(), 1'000u);
  bucket.settle(kStart + 2'000, kByteEachNs / 2);
  EXPECT_EQ(bucket.bytes(), 1'500u);
  bucket.settle(kStart + 1'000, kByteEachNs);
  EXPECT_EQ(bucket.bytes(), 1'500u) << "time does not go back";
  bucket.take(2'500);
  EXPECT_TRUE(bucket.owes());
  EXPECT_EQ(bucket.bytes(), 0u);
  EXPECT_EQ(bucket.paid_ns(kByteEachNs), kStart + 3'000);
  EXPECT_EQ(bucket.paid_ns(kByteEachNs / 8), kStart + 10'000);
  bucket.settle(kStart + 10'000'000'000, kByteEachNs);
  EXPECT_EQ(bucket.bytes(), 100'000u);
  bucket.settle(kStart + 10'000'000'001, kByteEachNs / 100);
  EXPECT_EQ(bucket.bytes(), 1'000u) << "what was saved up at a faster rate is not kept";
}

TEST(TokenBucket, TheFastestRateForTheLongestTimeIsNoOverflow) {
  TokenBucket bucket;
  bucket.reset(0);
  bucket.settle(UINT64_MAX / 2, 4'000'000'000u);
  EXPECT_EQ(bucket.bytes(), 50'000'000u);  // 100 us at 4 Tb/s
}

// Sends packets of 4096 bytes whenever one may leave; returns how many in `duration_ns`.
uint64_t sent_in(DcqcnLimiter& limiter, TimeNs& now, uint64_t duration_ns) {
  uint64_t packets = 0;
  for (const TimeNs end = now + duration_ns; static_cast<int64_t>(end - now) > 0;) {
    limiter.advance(now);
    if (!limiter.limited()) break;
    const uint32_t may = limiter.packets(12);
    if (may != 0) {
      limiter.take(may, uint64_t{may} * 4096);
      packets += may;
    }
    const TimeNs wake = limiter.wake_ns();
    EXPECT_GT(static_cast<int64_t>(wake - now), 0);
    now = wake;
  }
  return packets;
}

TEST(DcqcnLimiter, WhatLeavesIsTheRate) {
  DcqcnLimiter limiter;
  limiter.reset(100'000);
  TimeNs now = kStart;
  for (uint32_t i = 0; i < 7; ++i, now += 50 * kMicrosecond) EXPECT_TRUE(limiter.on_cnp(now));
  // 100 Gb/s halved seven times is 781.25 Mb/s; up to the next event that is what leaves, and one
  // packet more.
  EXPECT_EQ(limiter.rate().kbps(), 781'250u);
  now -= 50 * kMicrosecond;
  const uint32_t saved = limiter.packets(12);
  limiter.take(saved, uint64_t{saved} * 4096);
  const uint64_t packets = sent_in(limiter, now, 54 * kMicrosecond);
  EXPECT_NEAR(static_cast<double>(packets), 54e-6 * 781.25e6 / 8 / (4096 + 82), 1.1);
  // Then it grows: about 1562 Mb/s, its target, for the next millisecond, and more.
  const uint64_t more = sent_in(limiter, now, 1'000 * kMicrosecond);
  EXPECT_GT(more, 35u);
  EXPECT_LT(more, 60u);
}

TEST(DcqcnLimiter, AtMostOnePacketIsOwedAndItsTimeComes) {
  DcqcnLimiter limiter;
  limiter.reset(10'000);
  ASSERT_TRUE(limiter.on_cnp(kStart));  // 5 Gb/s
  limiter.advance(kStart);
  EXPECT_EQ(limiter.packets(12), 1u);
  limiter.take(1, 4096);
  EXPECT_EQ(limiter.packets(12), 0u);
  const TimeNs wake = limiter.wake_ns();
  EXPECT_GE(wake, kStart + 4178 * 8 / 5);
  EXPECT_LE(wake, kStart + 4178 * 8 / 5 + 16'384 + 1);
  limiter.advance(wake);
  EXPECT_GE(limiter.packets(12), 1u);
}

// At the least rate a packet takes 33 ms, in which the rate grows to gigabits: who looked again
// only then sent nothing for all of it, and came back at that rate, with all others.
TEST(DcqcnLimiter, WhoOwesAPacketFollowsTheRateAsItGrows) {
  DcqcnLimiter limiter;
  limiter.reset(10'000);
  TimeNs now = kStart;
  for (uint32_t i = 0; i < 30; ++i, now += 50 * kMicrosecond) EXPECT_TRUE(limiter.on_cnp(now));
  limiter.advance(now);
  limiter.take(1, 4096);
  ASSERT_EQ(limiter.packets(12), 0u);
  const TimeNs start = now;
  while (limiter.packets(12) == 0) {
    const TimeNs wake = limiter.wake_ns();
    ASSERT_GT(wake, now);
    ASSERT_LE(wake, now + 55 * kMicrosecond + 16'384 + 1);
    limiter.advance(now = wake);
  }
  EXPECT_LE(now, start + 1'000'000);
  EXPECT_LE(limiter.rate().kbps(), 300'000u);
}

TEST(DcqcnLimiter, ASenderThatIsSilentRecovers) {
  DcqcnLimiter limiter;
  limiter.reset(100'000);
  TimeNs now = kStart;
  for (uint32_t i = 0; i < 30; ++i, now += 50 * kMicrosecond) EXPECT_TRUE(limiter.on_cnp(now));
  EXPECT_EQ(limiter.rate().kbps(), 1'000u);
  uint32_t looks = 0;
  while (limiter.limited() && looks < 100) {
    limiter.advance(limiter.wake_ns());
    ++looks;
  }
  EXPECT_FALSE(limiter.limited());
  EXPECT_LE(looks, 20u) << "2,500 additive increases of 55 us";
}

// The sequence of rates is the same at any time, also where the clock wraps.
TEST(DcqcnLimiter, TimeMayWrap) {
  const auto run = [](TimeNs start) {
    DcqcnLimiter limiter;
    limiter.reset(100'000);
    TimeNs now = start;
    std::vector<uint64_t> seen;
    for (uint32_t i = 0; i < 5; ++i, now += 70 * kMicrosecond) {
      limiter.on_cnp(now);
      seen.push_back(limiter.rate().kbps());
    }
    for (uint32_t i = 0; i < 400; ++i, now += 16'384) {
      limiter.advance(now);
      const uint32_t may = limiter.packets(12);
      if (may != 0) limiter.take(may, uint64_t{may} * 4096);
      seen.insert(seen.end(), {may, limiter.rate().kbps(), limiter.rate().alpha_permille()});
    }
    return seen;
  };
  EXPECT_EQ(run(kStart), run(UINT64_MAX - 300 * kMicrosecond));
}

}  // namespace
}  // namespace hostnic
