// SPDX-License-Identifier: BSD-3-Clause
// The congestion window follows marks and grown round trips, not losses (docs/transport.md rule
// 27).
#include "protocol/transport/congestion_window.h"

#include <gtest/gtest.h>

namespace hostnic {
namespace {

constexpr uint32_t kCap = 1024;
constexpr uint64_t kBase = 10'000, kAllowance = 50'000;

class Rule27 : public testing::Test {
 protected:
  Rule27() { window_.reset(Psn(0xfffff0), kCap, kAllowance); }
  // One round trip, in which these samples are taken.
  void round(std::initializer_list<uint64_t> rtts_ns = {kBase}) {
    for (const uint64_t rtt : rtts_ns) window_.on_rtt(rtt);
    next_ += 64;
    window_.on_ack(una_, next_);
    una_ = next_;
    window_.on_ack(una_, next_);
  }
  CongestionWindow window_;
  Psn una_{0xfffff0}, next_{0xfffff0};
};

TEST_F(Rule27, StartsAtTheCapAndNeverExceedsIt) {
  EXPECT_EQ(window_.psns(), kCap);
  for (int i = 0; i < 100; ++i) round();
  EXPECT_EQ(window_.psns(), kCap);
}

TEST_F(Rule27, MarksShrinkItOncePerRoundTrip) {
  round();
  window_.on_mark();
  window_.on_mark();
  round();
  EXPECT_EQ(window_.psns(), kCap * 3 / 4);
  round();
  EXPECT_EQ(window_.psns(), kCap * 3 / 4 + kCap / 32) << "additive up";
}

TEST_F(Rule27, AStandingQueueShrinksItASlowSampleDoesNot) {
  round();
  round({kBase + 100 * kAllowance, kBase + kAllowance});
  EXPECT_EQ(window_.psns(), kCap) << "one packet came in time: a thread was late, no queue stands";
  round({kBase + kAllowance + 1, kBase + 2 * kAllowance});
  EXPECT_EQ(window_.psns(), kCap * 3 / 4);
  round({kBase + 4 * kAllowance + 1});
  EXPECT_EQ(window_.psns(), kCap * 3 / 8) << "a long queue";
}

TEST_F(Rule27, TimeoutsHalveItAndOnePacketIsTheFloor) {
  round();
  window_.on_timeout();
  EXPECT_EQ(window_.psns(), kCap / 2);
  for (int i = 0; i < 20; ++i) window_.on_timeout();
  EXPECT_EQ(window_.psns(), 1u);
  window_.on_mark();
  round();
  EXPECT_EQ(window_.psns(), 1u);
  for (int i = 0; i < 200; ++i) round();
  EXPECT_EQ(window_.psns(), kCap) << "it recovers";
}

TEST_F(Rule27, ALongerPathIsBelievedInTheEnd) {
  round();
  for (int i = 0; i < 9000; ++i) round({3 * kAllowance});
  EXPECT_EQ(window_.psns(), kCap);
}

}  // namespace
}  // namespace hostnic
