// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/driver/wait_watch.h"

#include <gtest/gtest.h>

#include "tests/unit/driver/connected_qp.h"

namespace hostnic::driver {
namespace {

constexpr uint64_t kMs = 1'000'000, kSecond = 1000 * kMs;

TEST(WaitClock, TellsOnceWhenNothingHasMovedForLong) {
  WaitClock clock;
  EXPECT_FALSE(clock.due(7, 10 * kSecond, kSecond)) << "the first look is no wait";
  EXPECT_FALSE(clock.due(7, 10 * kSecond + 999 * kMs, kSecond));
  EXPECT_TRUE(clock.due(7, 11 * kSecond, kSecond));
  EXPECT_EQ(clock.waited_ns(), kSecond);
  EXPECT_FALSE(clock.due(7, 20 * kSecond, kSecond)) << "told already";
}

TEST(WaitClock, AStepForwardBeginsAnotherWait) {
  WaitClock clock;
  clock.due(7, 10 * kSecond, kSecond);
  EXPECT_FALSE(clock.due(8, 11 * kSecond, kSecond));
  EXPECT_TRUE(clock.due(8, 12 * kSecond, kSecond));
  EXPECT_FALSE(clock.due(9, 13 * kSecond, kSecond));
  EXPECT_TRUE(clock.due(9, 14 * kSecond, kSecond)) << "another wait is told, too";
}

TEST(WaitClock, RestForgetsWhatWasWaited) {
  WaitClock clock;
  clock.due(7, 10 * kSecond, kSecond);
  clock.due(7, 10 * kSecond + 900 * kMs, kSecond);
  clock.rest();
  EXPECT_FALSE(clock.due(7, 12 * kSecond, kSecond));
}

TEST(WaitClock, AStoppedProcessHasNotWaitedSoLong) {
  WaitClock clock;
  clock.due(7, 10 * kSecond, 3 * kSecond);
  EXPECT_FALSE(clock.due(7, 100 * kSecond, 3 * kSecond));
  EXPECT_EQ(clock.waited_ns(), 2 * kSecond);
}

class Waits : public ConnectedQp {
 protected:
  Waits() : ConnectedQp({}) {}
  // What is asked about requests of which nothing has been heard for a second.
  std::vector<Question> asked_after_a_second() {
    EXPECT_TRUE(driver_->try_look_at_waits(now_ns_));
    now_ns_ += kSecond;
    EXPECT_TRUE(driver_->try_look_at_waits(now_ns_));
    EXPECT_TRUE(nic_.asked_with_lock.empty()) << "hostnicd may take long to answer";
    return nic_.questions;
  }
};

TEST_F(Waits, AWriteWithoutAnAnswerMeetsSilence) {
  ASSERT_EQ(post_request(SendOp::kWrite, 1, 1), 0);
  EXPECT_EQ(asked_after_a_second(), std::vector{Question::kSilent});
}

// Nothing of it is in flight any more but its answers, and a READ needs no receive.
TEST_F(Waits, AReadWithoutAnswersMeetsSilence) {
  ASSERT_EQ(post_request(SendOp::kRead, 1, 1), 0);
  nic_.transmitted(at(1));
  nic_.acknowledge(at(1), 1024);
  progress();
  EXPECT_EQ(asked_after_a_second(), std::vector{Question::kSilent});
}

TEST_F(Waits, ASendThatIsRefusedWaitsForAReceive) {
  ASSERT_EQ(post_request(SendOp::kSend, 1, 1), 0);
  nic_.transmitted(at(1));
  constexpr uint32_t kRnr = 1, kOneMs = 14;
  QpStatus& status = nic_.qp_status();
  status.nak = make_nak(kRnr, kOneMs);
  status.nak_psn = at(0).value();
  status.nak_sn = 0;
  ++status.nak_count;
  nic_.acknowledge(at(0), 1024);
  progress();
  EXPECT_EQ(asked_after_a_second(), std::vector{Question::kNotReady});
}

}  // namespace
}  // namespace hostnic::driver
