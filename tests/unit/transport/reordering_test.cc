// SPDX-License-Identifier: BSD-3-Clause
// The sender's view of a network that reorders: how late is lost, and what is still on its way.
#include <gtest/gtest.h>

#include "protocol/transport/send_tracker.h"

namespace hostnic {
namespace {

constexpr uint64_t kRtt = 100'000;

PsnBits bits(Psn from, uint32_t count) {
  PsnBits result;
  for (uint32_t i = 0; i < count; ++i) result.set(from + i);
  return result;
}

class Reordering : public testing::TestWithParam<uint32_t> {
 protected:
  Psn at(uint32_t offset) const { return Psn(GetParam()) + offset; }
  void start(uint32_t sent) {
    tracker_.reset(at(0), 1024);
    tracker_.on_first_send(sent, 0);
  }
  // How long after its sending a front is lost that one later packet has overtaken.
  uint64_t patience_ns() {
    tracker_.on_ack(at(0), bits(at(1), 1));
    return tracker_.reorder_deadline_ns(kRtt);
  }
  SendTracker tracker_;
};
INSTANTIATE_TEST_SUITE_P(SendTracker, Reordering, testing::Values(1000u, 0xfffffcu),
                         [](const auto& info) { return "From" + std::to_string(info.param); });

TEST_P(Reordering, Rule24_SpuriousResendsMakePatient) {
  start(4);
  EXPECT_EQ(patience_ns(), kRtt + kRtt / 4);
  tracker_.on_spurious_resend();
  EXPECT_EQ(patience_ns(), kRtt + kRtt / 2);
  EXPECT_EQ(tracker_.detect_losses(kRtt + kRtt / 2 - 1, kRtt), 0u);
  EXPECT_EQ(tracker_.detect_losses(kRtt + kRtt / 2, kRtt), 1u);
}

TEST_P(Reordering, Rule24_PatienceHasABoundAndWearsOff) {
  start(4);
  for (int i = 0; i < 20; ++i) tracker_.on_spurious_resend();
  EXPECT_EQ(patience_ns(), 5 * kRtt);
  uint64_t before_ns = 5 * kRtt;
  for (int i = 0; i < 60 * 1024; ++i) {
    const uint64_t patience = patience_ns();
    ASSERT_LE(patience, before_ns);
    before_ns = patience;
  }
  EXPECT_EQ(before_ns, kRtt + kRtt / 4);
}

TEST_P(Reordering, Rule24_ProbesAndTimeoutsAreGuesses) {
  start(20);
  tracker_.on_ack(at(0), bits(at(3), 10));
  EXPECT_EQ(tracker_.detect_losses(0, 0), 3u);
  tracker_.on_resend(at(0), 3, 0);
  EXPECT_FALSE(tracker_.guessed(at(1))) << "found lost";
  tracker_.mark_lost(at(19));
  tracker_.on_resend(at(19), 1, 0);
  EXPECT_TRUE(tracker_.guessed(at(19))) << "a probe";
  tracker_.mark_first_lost(2);
  tracker_.on_resend(at(0), 2, 0);
  EXPECT_TRUE(tracker_.guessed(at(1))) << "a timeout";
  EXPECT_FALSE(tracker_.guessed(at(2)));
  tracker_.on_ack(at(20), {});
  EXPECT_TRUE(tracker_.guessed(at(19))) << "also when its acknowledgement has come";
}

TEST_P(Reordering, Rule24_WhatCannotHaveComeYetIsNotLost) {
  start(20);
  EXPECT_EQ(tracker_.arrived_end(), at(0));
  tracker_.judge_before(at(4));
  tracker_.on_ack(at(2), bits(at(18), 1));
  EXPECT_EQ(tracker_.arrived_end(), at(19));
  EXPECT_EQ(tracker_.detect_losses(10 * kRtt, kRtt), 2u);
  EXPECT_EQ(tracker_.reorder_deadline_ns(kRtt), UINT64_MAX) << "nothing else will be";
  tracker_.judge_before(at(20));
  EXPECT_EQ(tracker_.reorder_deadline_ns(kRtt), kRtt + kRtt / 4);
  EXPECT_EQ(tracker_.detect_losses(10 * kRtt, kRtt), 14u);
  tracker_.rewind(at(10));
  EXPECT_EQ(tracker_.arrived_end(), at(10)) << "what is forgotten has not come";
}

TEST_P(Reordering, Rule27_WhatIsSettledIsNotOnItsWay) {
  start(100);
  EXPECT_EQ(tracker_.on_its_way(), 100u);
  tracker_.on_ack(at(10), bits(at(12), 20));
  EXPECT_EQ(tracker_.on_its_way(), 70u);
  EXPECT_EQ(tracker_.detect_losses(0, 0), 2u);
  EXPECT_EQ(tracker_.on_its_way(), 68u);
  tracker_.on_resend(at(10), 2, 0);
  EXPECT_EQ(tracker_.on_its_way(), 70u);
  tracker_.on_ack(at(100), {});
  EXPECT_EQ(tracker_.on_its_way(), 0u);
}

// A front that is acknowledged and repeated all the same counts once.
TEST_P(Reordering, Rule27_AnAcknowledgedFrontIsNotCountedTwice) {
  start(3);
  tracker_.on_ack(at(0), bits(at(0), 3));
  tracker_.mark_all_lost();
  EXPECT_EQ(tracker_.on_its_way(), 0u);
}

// A timeout lets a part of the message go, the next one finds the rest still waiting.
TEST_P(Reordering, Rule30_AMessageGoesAgainInOneAttempt) {
  tracker_.reset(at(0), 1024, wire::Policy::kWholeMessage);
  tracker_.on_first_send(8, 0);
  tracker_.mark_lost(at(7));
  tracker_.on_resend(at(0), 3, 0);
  tracker_.mark_lost(at(0));
  Psn first;
  uint32_t count = 0;
  ASSERT_TRUE(tracker_.next_lost_run(at(0), 64, first, count));
  EXPECT_EQ(first, at(0));
  EXPECT_EQ(count, 8u) << "in one run, for their attempts are equal";
  tracker_.on_resend(first, count, 0);
  for (uint32_t i = 0; i < 8; ++i) EXPECT_EQ(tracker_.attempt(at(i)), 2) << i;
  EXPECT_EQ(tracker_.lost_count(), 0u);
}

}  // namespace
}  // namespace hostnic
