// SPDX-License-Identifier: BSD-3-Clause
// What counts as lost, and what goes again with it, under go-back-N and whole messages (rule 30).
#include "tests/unit/transport/send_tracker_fixture.h"

namespace hostnic {
namespace {

class PolicyTracker : public Tracker {
 protected:
  void start(wire::Policy policy, std::initializer_list<uint32_t> messages) {
    tracker_.reset(at(0), 1024, policy);
    for (const uint32_t packets : messages) tracker_.on_first_send(packets, 0);
  }
  Psns psns(uint32_t from, uint32_t count) const {
    Psns result;
    for (uint32_t i = 0; i < count; ++i) result.push_back(at(from + i).value());
    return result;
  }
};
INSTANTIATE_TEST_SUITE_P(SendTracker, PolicyTracker, testing::Values(1000u, 0xfffffcu),
                         [](const auto& info) { return "From" + std::to_string(info.param); });

TEST_P(PolicyTracker, Rule30_GoBackNRepeatsEverythingFromTheHole) {
  start(wire::Policy::kGoBackN, {4, 4});
  tracker_.on_echo(at(3), 0);  // the receiver waits for 2 and got 3
  tracker_.on_ack(at(2), {});
  EXPECT_EQ(tracker_.detect_losses(1, kRtt), 6u);
  EXPECT_EQ(lost(tracker_), psns(2, 6));
  tracker_.on_resend(at(2), 6, 10);
  // Once per round trip: the rest of the first flight arrives, too.
  tracker_.on_echo(at(7), 0);
  EXPECT_EQ(tracker_.detect_losses(20, kRtt), 0u);
  EXPECT_EQ(tracker_.reorder_deadline_ns(kRtt), UINT64_MAX);
  // The front is lost again.
  tracker_.on_echo(at(3), 1);
  EXPECT_EQ(tracker_.detect_losses(30, kRtt), 6u);
}

// A burst behind the other may lose its front each time: less goes again until that has arrived,
// then more.
TEST_P(PolicyTracker, Rule30_GoBackNRepeatsLessOfAFrontThatIsLostAgain) {
  start(wire::Policy::kGoBackN, {64});
  TimeNs now_ns = 10 * kRtt;
  // Of what has gone again the second arrives.
  const auto repeats = [&](uint32_t count) {
    tracker_.on_echo(at(1), tracker_.attempt(at(1)));
    EXPECT_EQ(tracker_.detect_losses(now_ns, kRtt), count);
    EXPECT_EQ(lost(tracker_), psns(0, count));
    tracker_.on_resend(at(0), count, now_ns);
    now_ns += 10 * kRtt;
  };
  repeats(64);
  repeats(64);  // by chance
  repeats(32);
  repeats(16);
  // Those have arrived. The next ones had gone again before.
  tracker_.on_ack(at(16), {});
  tracker_.on_echo(at(15), tracker_.attempt(at(15)));
  EXPECT_EQ(tracker_.detect_losses(now_ns, kRtt), 32u);
  EXPECT_EQ(lost(tracker_), psns(16, 32));
}

// An atomic has arrived and waits for the READs before it: the base stays, and is acknowledged.
TEST_P(PolicyTracker, Rule30_GoBackNGoesBackOncePerRoundTripBehindAHeldFront) {
  start(wire::Policy::kGoBackN, {1, 8});
  tracker_.on_ack(at(0), bits({at(0)}));
  tracker_.on_echo(at(3), 0);
  EXPECT_EQ(tracker_.detect_losses(kRtt, kRtt), 8u) << "but for what was acknowledged";
  tracker_.on_resend(at(1), 8, kRtt);
  for (const uint32_t later : {4u, 5u, 6u}) {
    tracker_.on_echo(at(later), 0);
    EXPECT_EQ(tracker_.detect_losses(kRtt + later, kRtt), 0u) << "left before the repetition";
  }
  tracker_.on_echo(at(2), 1);
  EXPECT_EQ(tracker_.detect_losses(2 * kRtt, kRtt), 8u);
}

TEST_P(PolicyTracker, Rule30_GoBackNLeavesWhatHasNotLeft) {
  start(wire::Policy::kGoBackN, {8});
  tracker_.note_transmitted(at(5));
  tracker_.on_echo(at(1), 0);
  EXPECT_EQ(tracker_.detect_losses(1, kRtt), 5u);
  EXPECT_EQ(lost(tracker_), psns(0, 5));
}

TEST_P(PolicyTracker, Rule30_WholeMessagesGoAgainTogether) {
  start(wire::Policy::kWholeMessage, {4, 4, 4, 16});
  // The second message is incomplete, the third one complete.
  tracker_.on_ack(at(4), bits(at(8), 4));
  EXPECT_EQ(tracker_.detect_losses(1, kRtt), 0u) << "its last packet is not overdue";
  tracker_.on_echo(at(15), 0);
  EXPECT_EQ(tracker_.detect_losses(1, kRtt), 4u);
  EXPECT_EQ(lost(tracker_), psns(4, 4));
}

TEST_P(PolicyTracker, Rule30_TheLastPacketTellsAfterAReorderingWindow) {
  start(wire::Policy::kWholeMessage, {4});
  tracker_.on_echo(at(3), 0);
  EXPECT_EQ(tracker_.detect_losses(1, kRtt), 0u);
  EXPECT_EQ(tracker_.reorder_deadline_ns(kRtt), kReorderWindow);
  EXPECT_EQ(tracker_.detect_losses(kReorderWindow, kRtt), 4u);
  tracker_.on_resend(at(0), 4, kReorderWindow);
  EXPECT_EQ(tracker_.reorder_deadline_ns(kRtt), UINT64_MAX);
}

TEST_P(PolicyTracker, Rule30_ATimeoutRepeatsTheWholeFrontMessage) {
  // All of it was acknowledged ahead, and the base does not come.
  start(wire::Policy::kWholeMessage, {3, 2});
  tracker_.on_ack(at(0), bits(at(0), 5));
  tracker_.mark_first_lost(16);
  EXPECT_EQ(lost(tracker_), psns(0, 3));
  tracker_.on_resend(at(0), 3, 10);
  EXPECT_EQ(tracker_.attempt(at(0)), tracker_.attempt(at(2)));
  EXPECT_EQ(tracker_.on_ack(at(5), {}), 0u);
  EXPECT_EQ(tracker_.lost_count(), 0u);
}

TEST_P(PolicyTracker, Rule30_AProbeRepeatsTheWholeMessage) {
  start(wire::Policy::kWholeMessage, {2, 3});
  tracker_.mark_lost(tracker_.last_unacknowledged());
  EXPECT_EQ(lost(tracker_), psns(2, 3));
}

TEST_P(PolicyTracker, Rule30_TheRestOfARepeatedMessageBelongsToItsAttempt) {
  tracker_.reset(at(0), 1024, wire::Policy::kWholeMessage);
  tracker_.on_first_send(4, 0, /*ends_message=*/false);
  tracker_.mark_first_lost(1);
  EXPECT_EQ(lost(tracker_), psns(0, 4));
  tracker_.on_resend(at(0), 4, 1);
  tracker_.on_first_send(2, 2, /*ends_message=*/true, tracker_.attempt(at(0)));
  EXPECT_EQ(tracker_.attempt(at(5)), 1);
  tracker_.mark_lost(at(5));
  EXPECT_EQ(lost(tracker_), psns(0, 6));
  tracker_.on_resend(at(0), 6, 3);
  EXPECT_EQ(tracker_.on_ack(at(6), {}), 6u);
}

// What else differs, which the driver asks for instead of comparing policies.
TEST(RecoveryTraits, Rule30_FollowThePolicy) {
  SendTracker tracker;
  const auto traits = [&](wire::Policy policy) {
    tracker.reset(Psn(0), 64, policy);
    return tracker.traits();
  };
  const RecoveryTraits selective = traits(wire::Policy::kSelective);
  EXPECT_TRUE(selective.answers_acknowledge && selective.congestion_limits);
  EXPECT_FALSE(selective.follows_transmission || selective.one_attempt_per_message);
  const RecoveryTraits go_back_n = traits(wire::Policy::kGoBackN);
  EXPECT_TRUE(go_back_n.answers_acknowledge && go_back_n.congestion_limits);
  EXPECT_TRUE(go_back_n.follows_transmission);
  const RecoveryTraits whole = traits(wire::Policy::kWholeMessage);
  EXPECT_FALSE(whole.answers_acknowledge || whole.congestion_limits);
  EXPECT_TRUE(whole.follows_transmission && whole.one_attempt_per_message);
}

}  // namespace
}  // namespace hostnic
