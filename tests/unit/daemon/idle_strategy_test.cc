// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/lcore/idle_strategy.h"

#include <gtest/gtest.h>

namespace hostnic {
namespace {

constexpr uint64_t kUs = 1'000, kMs = 1'000'000;

TEST(IdleTimes, AnLcoreLingersForWhatItIsToldWhereInterruptsAreCheap) {
  IdleTimes times(30 * kUs);
  EXPECT_EQ(times.linger_ns(), 30 * kUs) << "before it has slept once";
  times.fence_took(3 * kUs);
  EXPECT_EQ(times.linger_ns(), 30 * kUs);
}

TEST(IdleTimes, AnLcoreLingersForLongerThanGoingToSleepTakes) {
  IdleTimes times(30 * kUs);
  times.fence_took(45 * kUs);
  EXPECT_EQ(times.linger_ns(), 180 * kUs);
  times.fence_took(5 * kMs);  // somebody else had the core
  EXPECT_EQ(times.linger_ns(), 200 * kUs);
  times.fence_took(1 * kUs);
  EXPECT_EQ(times.linger_ns(), 30 * kUs);
}

TEST(IdleTimes, AnLcoreThatIsToldNotToLingerDoesNot) {
  IdleTimes times(0);
  times.fence_took(45 * kUs);
  EXPECT_EQ(times.linger_ns(), 0u);
}

class Patience : public testing::Test {
 protected:
  Patience() { times_.fence_took(50 * kUs); }
  IdleTimes times_{30 * kUs};
};

TEST_F(Patience, NoneIsNeededWhereYieldsComeBack) { EXPECT_EQ(times_.patience_ns(kMs), 0u); }

TEST_F(Patience, AYieldThatTookATimeSliceTeachesIt) {
  times_.yield_was_costly(10 * kMs);
  EXPECT_EQ(times_.patience_ns(10 * kMs), 100 * kUs) << "as long as a program is interrupted";
  EXPECT_EQ(times_.patience_ns(109 * kMs), 100 * kUs);
  EXPECT_EQ(times_.patience_ns(110 * kMs), 0u);
  times_.fence_took(2 * kUs);
  EXPECT_EQ(times_.patience_ns(11 * kMs), 4 * kUs);
}

TEST_F(Patience, ItEndsWhenNobodyAnswers) {
  times_.yield_was_costly(10 * kMs);
  for (int i = 0; i < 7; ++i) times_.waited(11 * kMs, 100 * kUs);
  EXPECT_NE(times_.patience_ns(11 * kMs), 0u);
  times_.waited(11 * kMs, 99 * kUs);  // an answer
  for (int i = 0; i < 7; ++i) times_.waited(11 * kMs, 200 * kUs);
  EXPECT_NE(times_.patience_ns(11 * kMs), 0u) << "only in a row";
  times_.waited(11 * kMs, 200 * kUs);
  EXPECT_EQ(times_.patience_ns(11 * kMs), 0u);
  times_.waited(11 * kMs, 1 * kUs);
  EXPECT_EQ(times_.patience_ns(11 * kMs), 0u) << "there was no waiting to be rewarded";
  times_.yield_was_costly(12 * kMs);
  EXPECT_NE(times_.patience_ns(12 * kMs), 0u);
}

// An lcore whose turns begin 1 us after each other.
class Strategy : public testing::Test {
 protected:
  using Step = IdleStrategy::Step;

  // The step after an empty turn.
  Step empty_turn(bool delivered_here = false) {
    strategy_.turned(now_ns_ += kUs, false);
    return strategy_.next(now_ns_, true, [&] { return delivered_here; });
  }
  void work_for(uint64_t duration_ns) {
    for (const TimeNs until_ns = now_ns_ + duration_ns; now_ns_ < until_ns;)
      strategy_.turned(now_ns_ += kUs, true);
  }
  uint32_t busy_cpu() const { return page_.busy_cpu.load(); }

  DoorbellPage page_{};
  LcoreIdle idle_;
  IdleStrategy strategy_{idle_, page_};
  TimeNs now_ns_ = kMs;
};

TEST_F(Strategy, AnLcoreThatGetsNoWorkGoesOnThenYieldsThenSleeps) {
  strategy_.turned(now_ns_, true);
  for (int turn = 1; turn < 8; ++turn) EXPECT_EQ(empty_turn(), Step::kGoOn) << turn;
  for (int turn = 8; turn < 30; ++turn) EXPECT_EQ(empty_turn(), Step::kYield) << turn;
  EXPECT_EQ(empty_turn(), Step::kSleep);
}

TEST_F(Strategy, ItMakesWayForAProgramOfItsCoreThatItHasDeliveredTo) {
  strategy_.turned(now_ns_, true);
  EXPECT_EQ(empty_turn(/*delivered_here=*/true), Step::kYield);
}

TEST_F(Strategy, ABusyLcoreSaysWhereItRunsMakesNoWayAndLingers) {
  EXPECT_EQ(busy_cpu(), 0u);
  work_for(kMs);
  EXPECT_NE(busy_cpu(), 0u);
  EXPECT_EQ(empty_turn(/*delivered_here=*/true), Step::kGoOn);
  now_ns_ += 100 * kUs;
  for (int turn = 2; turn < 8; ++turn) (void)empty_turn();
  EXPECT_EQ(empty_turn(), Step::kYield) << "it would sleep if it were not busy";
  now_ns_ += kMs;
  (void)empty_turn();
  EXPECT_EQ(busy_cpu(), 0u);
}

TEST_F(Strategy, ABusyLcoreThatDoesNotGetItsCoreSaysSo) {
  // The clock of this test goes on, the thread's processor time does not.
  work_for(5 * kMs);
  EXPECT_EQ(page_.crowded.load(), 1u);
  EXPECT_TRUE(strategy_.found_awake());
  EXPECT_FALSE(strategy_.found_awake()) << "told once";
}

TEST_F(Strategy, AfterARingItLingersAgainAndAfterATickItSleepsAtOnce) {
  strategy_.turned(now_ns_, true);
  now_ns_ += kMs;
  while (empty_turn() != Step::kSleep) {
  }
  strategy_.slept(now_ns_, now_ns_ + kMs, /*rung=*/false);
  now_ns_ += kMs;
  EXPECT_EQ(empty_turn(), Step::kSleep);
  strategy_.slept(now_ns_, now_ns_ + kMs, /*rung=*/true);
  now_ns_ += kMs;
  EXPECT_EQ(empty_turn(), Step::kGoOn);
}

TEST_F(Strategy, APollingLcoreNeitherYieldsNorSleepsButWhenItIsStopped) {
  idle_.policy = IdlePolicy::kPoll;
  IdleStrategy polls(idle_, page_);
  const auto nobody = [] { return false; };
  for (int turn = 0; turn < 100; ++turn) {
    polls.turned(now_ns_ += kMs, false);
    EXPECT_EQ(polls.next(now_ns_, true, nobody), Step::kGoOn);
  }
  Step step = Step::kGoOn;
  for (int turn = 0; turn < 8; ++turn) {
    polls.turned(now_ns_ += kMs, false);
    step = polls.next(now_ns_, false, nobody);
  }
  EXPECT_EQ(step, Step::kSleep);
}

}  // namespace
}  // namespace hostnic
