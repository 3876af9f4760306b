// SPDX-License-Identifier: BSD-3-Clause
// The sender's view: what counts as lost, when, and what an ACK may change.
#include <random>

#include "tests/unit/transport/send_tracker_fixture.h"

namespace hostnic {
namespace {

INSTANTIATE_TEST_SUITE_P(SendTracker, Tracker, testing::Values(1000u, 0xfffffcu, 0u),
                         [](const auto& info) { return "From" + std::to_string(info.param); });

TEST_P(Tracker, InOrderAcknowledgement) {
  start(10, 64, 5);
  EXPECT_EQ(tracker_.in_flight(), 10u);
  EXPECT_EQ(tracker_.last_send_ns(), 5u);
  EXPECT_EQ(tracker_.on_ack(at(4), {}), 4u);
  EXPECT_EQ(tracker_.una(), at(4));
  EXPECT_TRUE(tracker_.acknowledged(at(3)));
  EXPECT_FALSE(tracker_.acknowledged(at(4)));
  EXPECT_EQ(tracker_.last_unacknowledged(), at(9));
  EXPECT_EQ(tracker_.on_ack(at(10), {}), 6u);
  EXPECT_EQ(tracker_.in_flight(), 0u);
  EXPECT_EQ(tracker_.detect_losses(1'000'000'000, kRtt), 0u);
  EXPECT_EQ(tracker_.reorder_deadline_ns(kRtt), UINT64_MAX);
}

TEST_P(Tracker, CountsEachAcknowledgementOnce) {
  start(200);
  EXPECT_EQ(tracker_.on_ack(at(0), bits(at(1), 130)), 130u);
  EXPECT_EQ(tracker_.on_ack(at(0), bits(at(1), 130)), 0u);
  EXPECT_EQ(tracker_.on_ack(at(0), bits(at(1), 140)), 10u);
  EXPECT_EQ(tracker_.on_ack(at(141), {}), 1u) << "only the front was fresh";
  EXPECT_EQ(tracker_.last_unacknowledged(), at(199));
  EXPECT_EQ(tracker_.on_ack(at(141), bits(at(150), 50)), 50u);
  EXPECT_EQ(tracker_.last_unacknowledged(), at(149));
}

TEST_P(Tracker, Rule22_ImpossibleAcksChangeNothing) {
  start(20, 64);
  ASSERT_EQ(tracker_.on_ack(at(5), bits({at(7)})), 6u);
  const PsnBits all = bits(at(0), 64);
  EXPECT_EQ(tracker_.on_ack(at(21), all), 0u) << "beyond what was sent";
  EXPECT_EQ(tracker_.on_ack(at(4), all), 0u) << "older than what is known";
  EXPECT_EQ(tracker_.on_ack(at(0x800000), all), 0u);
  EXPECT_EQ(tracker_.una(), at(5));
  EXPECT_EQ(tracker_.next(), at(20));
  EXPECT_FALSE(tracker_.acknowledged(at(6)));
  EXPECT_TRUE(tracker_.acknowledged(at(7)));
  // Bits of what was never sent are not taken either.
  EXPECT_EQ(tracker_.on_ack(at(5), all), 14u);
  tracker_.on_first_send(1, 0);
  EXPECT_FALSE(tracker_.acknowledged(at(20)));
}

TEST_P(Tracker, LostAfterThresholdLaterTransmissions) {
  start(64);
  constexpr uint32_t kThreshold = SendTracker::kMinThreshold;
  ASSERT_EQ(tracker_.threshold(), kThreshold);
  tracker_.on_ack(at(0), bits(at(1), kThreshold - 1));
  EXPECT_EQ(tracker_.detect_losses(0, 0), 0u) << "one short of the threshold";
  tracker_.on_ack(at(0), bits(at(1), kThreshold));
  EXPECT_EQ(tracker_.detect_losses(0, 0), 1u);
  EXPECT_EQ(lost(tracker_), Psns{at(0).value()});
  EXPECT_EQ(tracker_.detect_losses(0, 0), 0u) << "marked once";
}

TEST_P(Tracker, OnlyWhatIsMissingIsLost) {
  start(100);
  PsnBits received = bits(at(1), 99);
  for (const uint32_t hole : {3u, 4u, 5u, 40u, 92u, 95u}) received.clear(at(hole));
  tracker_.on_ack(at(0), received);
  EXPECT_EQ(tracker_.detect_losses(0, 0), 5u);
  EXPECT_EQ(lost(tracker_),
            (Psns{at(0).value(), at(3).value(), at(4).value(), at(5).value(), at(40).value()}))
      << "what has fewer than the threshold after it waits";
  // A late arrival takes the mark away.
  received.set(at(4));
  tracker_.on_ack(at(1), received);
  EXPECT_EQ(lost(tracker_), (Psns{at(3).value(), at(5).value(), at(40).value()}));
}

TEST_P(Tracker, LostByTimeWhenSomethingLaterArrived) {
  start(1, 64, 1000);
  tracker_.on_first_send(1, 2000);
  EXPECT_EQ(tracker_.reorder_deadline_ns(kRtt), UINT64_MAX) << "nothing has arrived";
  EXPECT_EQ(tracker_.detect_losses(1'000'000'000, kRtt), 0u) << "silence is not reordering";
  tracker_.on_ack(at(0), bits({at(1)}));
  EXPECT_EQ(tracker_.reorder_deadline_ns(0), UINT64_MAX) << "no round trip time is known";
  EXPECT_EQ(tracker_.detect_losses(1'000'000'000, 0), 0u);
  EXPECT_EQ(tracker_.reorder_deadline_ns(kRtt), 1000 + kReorderWindow);
  EXPECT_EQ(tracker_.detect_losses(1000 + kReorderWindow - 1, kRtt), 0u);
  EXPECT_EQ(tracker_.detect_losses(1000 + kReorderWindow, kRtt), 1u);
  EXPECT_EQ(lost(tracker_), Psns{at(0).value()});
  EXPECT_EQ(tracker_.reorder_deadline_ns(kRtt), UINT64_MAX) << "nothing more to wait for";
}

TEST_P(Tracker, LostRetransmissionIsDetected) {
  start(20);
  tracker_.on_ack(at(0), bits(at(1), 19));
  ASSERT_EQ(tracker_.detect_losses(0, 0), 1u);
  tracker_.on_resend(at(0), 1, 10);
  EXPECT_EQ(tracker_.lost_count(), 0u);
  EXPECT_EQ(tracker_.detect_losses(10, 0), 0u) << "its new transmission is the newest";
  tracker_.on_first_send(30, 20);
  tracker_.on_ack(at(0), bits(at(1), 19 + SendTracker::kMinThreshold - 1));
  EXPECT_EQ(tracker_.detect_losses(20, 0), 0u);
  tracker_.on_ack(at(0), bits(at(1), 19 + SendTracker::kMinThreshold));
  EXPECT_EQ(tracker_.detect_losses(20, 0), 1u) << "later transmissions overtook the resend";
  EXPECT_EQ(lost(tracker_), Psns{at(0).value()});
}

TEST_P(Tracker, LostRetransmissionIsDetectedByTime) {
  start(2, 64, 0);
  tracker_.on_ack(at(0), bits({at(1)}));
  ASSERT_EQ(tracker_.detect_losses(kReorderWindow, kRtt), 1u);
  tracker_.on_resend(at(0), 1, 200'000);
  tracker_.on_first_send(1, 200'100);
  tracker_.on_ack(at(0), bits({at(1), at(2)}));
  EXPECT_EQ(tracker_.reorder_deadline_ns(kRtt), 200'000 + kReorderWindow);
  EXPECT_EQ(tracker_.detect_losses(200'000 + kReorderWindow, kRtt), 1u);
}

// A resent PSN that becomes acknowledged may have been any of its transmissions: only the echo
// tells that it was the resend, and then what was sent before the resend is late.
TEST_P(Tracker, AnEchoNamesTheTransmission) {
  for (const bool echoed : {false, true}) {
    start(12);
    tracker_.mark_lost(at(11));
    for (uint32_t i = 0; i < 8; ++i) {
      tracker_.on_resend(at(11), 1, 100);
      EXPECT_EQ(tracker_.attempt(at(11)), 1 + i % 3);
    }
    if (echoed) tracker_.on_echo(at(11), tracker_.attempt(at(11)));
    tracker_.on_ack(at(0), bits({at(11)}));
    EXPECT_EQ(tracker_.detect_losses(100, 0), echoed ? 11u : 0u);
  }
}

TEST_P(Tracker, AnEchoOfAnotherAttemptSaysNothing) {
  start(20);
  tracker_.on_resend(at(19), 1, 0);
  tracker_.on_echo(at(19), 0);  // the first transmission, overtaken by its own resend
  tracker_.on_echo(at(19), 2);  // never sent
  tracker_.on_echo(at(20), 0);  // never sent
  tracker_.on_echo(at(0) + 0xfff000, 0);
  EXPECT_EQ(tracker_.detect_losses(0, 0), 0u);
  tracker_.on_echo(at(19), 1);
  EXPECT_EQ(tracker_.detect_losses(0, 0), 13u) << "0..12 are 8 and more transmissions older";
}

TEST_P(Tracker, AnAnswerToAResendTellsWhatIsMissingBeforeIt) {
  start(30);
  tracker_.mark_lost(at(29));
  tracker_.on_resend(at(29), 1, 5 * kRtt);
  // It came sooner than any answer can: the first transmission's, nothing follows.
  tracker_.on_ack(at(0), bits(at(29), 1), 5 * kRtt - 1);
  EXPECT_EQ(tracker_.detect_losses(6 * kRtt, 0), 0u);
  tracker_.reset(at(0), 1024);
  tracker_.on_first_send(30, 0);
  tracker_.mark_lost(at(29));
  tracker_.on_resend(at(29), 1, 5 * kRtt);
  tracker_.on_ack(at(0), bits(at(29), 1), 5 * kRtt);
  EXPECT_EQ(tracker_.detect_losses(6 * kRtt, 0), 30 - SendTracker::kMinThreshold + 1);
  EXPECT_EQ(lost(tracker_).front(), at(0).value());
}

TEST_P(Tracker, AttemptsCycleAndNeverReturnToZero) {
  start(3);
  EXPECT_EQ(tracker_.attempt(at(1)), 0);
  for (uint32_t i = 0; i < 30; ++i) {
    tracker_.mark_lost(at(1));
    EXPECT_EQ(tracker_.lost_count(), 1u);
    tracker_.on_resend(at(1), 1, i);
    EXPECT_EQ(tracker_.attempt(at(1)), 1 + i % 3);
    EXPECT_EQ(tracker_.lost_count(), 0u);
  }
  EXPECT_EQ(tracker_.attempt(at(0)), 0);
  EXPECT_EQ(tracker_.attempt(at(2)), 0);
  // The slot's next owner starts anew.
  tracker_.on_ack(at(3), {});
  tracker_.on_first_send(1024, 0);
  EXPECT_EQ(tracker_.attempt(at(1) + 1024), 0);
}

TEST_P(Tracker, SpuriousResendsRaiseTheThresholdAndQuietLowersIt) {
  start(500);
  tracker_.on_spurious_resend();
  EXPECT_EQ(tracker_.threshold(), 16u);
  tracker_.on_ack(at(0), bits(at(1), 15));
  EXPECT_EQ(tracker_.detect_losses(0, 0), 0u);
  tracker_.on_ack(at(0), bits(at(1), 16));
  EXPECT_EQ(tracker_.detect_losses(0, 0), 1u);
  for (int i = 0; i < 20; ++i) tracker_.on_spurious_resend();
  EXPECT_EQ(tracker_.threshold(), 1024u) << "never above the window";
  // ACKs without spurious resends: down again, never below the minimum.
  uint32_t before = tracker_.threshold(), falls = 0;
  for (int i = 0; i < 60 * 1024; ++i) {
    tracker_.on_ack(at(0), bits(at(1), 16));
    ASSERT_LE(tracker_.threshold(), before);
    if (tracker_.threshold() < before) ++falls;
    before = tracker_.threshold();
  }
  EXPECT_EQ(before, SendTracker::kMinThreshold);
  EXPECT_GT(falls, 8u) << "step by step";
}

TEST_P(Tracker, ASpuriousResendRestartsTheQuietTime) {
  start(4);
  tracker_.on_spurious_resend();
  for (int i = 0; i < 1000; ++i) tracker_.on_ack(at(0), {});
  tracker_.on_spurious_resend();
  for (int i = 0; i < 1000; ++i) tracker_.on_ack(at(0), {});
  EXPECT_EQ(tracker_.threshold(), 32u);
}

TEST_P(Tracker, TimeoutMarksAllThatIsMissing) {
  start(10);
  tracker_.on_ack(at(2), bits({at(4), at(9)}));
  tracker_.mark_all_lost();
  EXPECT_EQ(lost(tracker_), (Psns{at(2).value(), at(3).value(), at(5).value(), at(6).value(),
                                  at(7).value(), at(8).value()}));
  tracker_.mark_all_lost();
  EXPECT_EQ(tracker_.lost_count(), 6u);
}

// All bits are known but the base did not move: the ACK that moves it got lost, and only a repeated
// packet brings another.
TEST_P(Tracker, TimeoutRepeatsAFrontThatIsAcknowledged) {
  start(3);
  tracker_.on_ack(at(0), bits(at(0), 3));
  tracker_.mark_all_lost();
  EXPECT_EQ(lost(tracker_), Psns{at(0).value()});
  EXPECT_EQ(tracker_.last_unacknowledged(), at(0));
  tracker_.on_resend(at(0), 1, 0);
  EXPECT_EQ(tracker_.on_ack(at(3), {}), 0u);
  EXPECT_EQ(tracker_.in_flight(), 0u);
  EXPECT_EQ(tracker_.lost_count(), 0u);
  tracker_.mark_una_lost();
  EXPECT_EQ(tracker_.lost_count(), 0u) << "nothing is outstanding";
}

TEST_P(Tracker, RunsHaveEqualAttempts) {
  start(12);
  tracker_.on_resend(at(4), 3, 0);
  tracker_.mark_all_lost();
  Psn first;
  uint32_t count = 0;
  ASSERT_TRUE(tracker_.next_lost_run(at(0), 100, first, count));
  EXPECT_EQ(first, at(0));
  EXPECT_EQ(count, 4u);
  ASSERT_TRUE(tracker_.next_lost_run(at(4), 100, first, count));
  EXPECT_EQ(first, at(4));
  EXPECT_EQ(count, 3u);
  ASSERT_TRUE(tracker_.next_lost_run(at(7), 2, first, count));
  EXPECT_EQ(first, at(7));
  EXPECT_EQ(count, 2u) << "no longer than asked for";
  EXPECT_FALSE(tracker_.next_lost_run(at(12), 2, first, count));
}

TEST_P(Tracker, RewindForgetsTheTail) {
  start(30);
  tracker_.on_ack(at(2), bits({at(5), at(25)}));
  tracker_.mark_lost(at(3));
  tracker_.mark_lost(at(21));
  tracker_.on_resend(at(22), 2, 0);
  tracker_.rewind(at(40));
  EXPECT_EQ(tracker_.next(), at(30)) << "beyond what was sent";
  tracker_.rewind(at(1));
  EXPECT_EQ(tracker_.next(), at(30)) << "before what is outstanding";
  tracker_.rewind(at(20));
  EXPECT_EQ(tracker_.next(), at(20));
  EXPECT_EQ(tracker_.in_flight(), 18u);
  EXPECT_EQ(lost(tracker_), Psns{at(3).value()});
  EXPECT_TRUE(tracker_.acknowledged(at(5)));
  tracker_.on_first_send(10, 100);
  EXPECT_FALSE(tracker_.acknowledged(at(25)));
  EXPECT_EQ(tracker_.attempt(at(22)), 0);
  EXPECT_EQ(tracker_.on_ack(at(30), {}), 27u);
  EXPECT_EQ(tracker_.lost_count(), 0u);
  tracker_.rewind(at(30));
  EXPECT_EQ(tracker_.in_flight(), 0u);
}

// A window of traffic over a lossy, reordering path, against what the receiver really has. Checks
// that the bookkeeping agrees, that all arrives, and that the price is about one resend per loss.
TEST_P(Tracker, ADeadlineThatWouldHaveNoEffectIsNone) {
  // What waits in the NIC was handed over before the front went again, and overtaken by it: its
  // arrival says nothing about the front, now or later. (A deadline in the past kept the driver
  // evaluating, and its timeout from ever firing.)
  start(8);
  tracker_.note_transmitted(at(4));
  tracker_.on_resend(at(0), 1, 100);
  tracker_.on_echo(at(4), 0);
  EXPECT_EQ(tracker_.reorder_deadline_ns(kRtt), kReorderWindow) << "of the PSN after the front";
  EXPECT_EQ(tracker_.detect_losses(kReorderWindow, kRtt), 3u);
  tracker_.on_resend(at(1), 3, kReorderWindow);
  EXPECT_EQ(tracker_.detect_losses(100 * kRtt, kRtt), 0u);
  EXPECT_EQ(tracker_.reorder_deadline_ns(kRtt), UINT64_MAX);
}

TEST(SendTrackerTraffic, EverythingArrivesForOneResendPerLoss) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    constexpr uint32_t kTotal = 20'000, kDelaySteps = 16;
    const uint32_t window = 256u << seed % 4;  // several round trips, so that it does not stall
    const uint32_t loss_percent = seed % 3 * 5;
    const Psn start(0xffffff - random() % 4096);
    SendTracker tracker;
    tracker.reset(start, window);
    ReceiveWindow receiver;
    receiver.reset(start, window);
    std::vector<std::vector<Psn>> wire(kDelaySteps);
    uint32_t sent = 0, resent = 0, dropped = 0, timeouts = 0, quiet_steps = 0, arrived = 0;
    const auto transmit = [&](Psn psn, uint32_t step) {
      if (random() % 100 < loss_percent) {
        ++dropped;
      } else {
        wire[(step + kDelaySteps / 2) % kDelaySteps].push_back(psn);
      }
    };
    uint32_t step = 0;
    for (; tracker.una() != start + kTotal; ++step) {
      ASSERT_LT(step, 1'000'000u);
      for (uint32_t i = 0; i < 4 && sent < kTotal && tracker.in_flight() < window; ++i, ++sent) {
        transmit(tracker.next(), step);
        tracker.on_first_send(1, step);
      }
      uint32_t fresh = 0;
      for (const Psn psn : std::exchange(wire[step % kDelaySteps], {})) {
        const auto place = receiver.classify(psn);
        if (place == ReceiveWindow::Place::kExpected || place == ReceiveWindow::Place::kAhead)
          receiver.set(psn);
        while (receiver.expected_received()) receiver.advance();
        fresh += tracker.on_ack(receiver.expected(), receiver.bits());
      }
      arrived += fresh;
      tracker.detect_losses(step, kDelaySteps / 2);
      quiet_steps = fresh != 0 ? 0 : quiet_steps + 1;
      if (quiet_steps > 64) {
        tracker.mark_all_lost();
        ++timeouts;
        quiet_steps = 0;
      }
      ASSERT_EQ(lost(tracker).size(), tracker.lost_count());
      for (const uint32_t psn : lost(tracker)) {
        ASSERT_FALSE(tracker.acknowledged(Psn(psn)));
        transmit(Psn(psn), step);
        tracker.on_resend(Psn(psn), 1, step);
        ++resent;
      }
      ASSERT_EQ(tracker.una(), receiver.expected());
      for (uint32_t i = 0; i < tracker.in_flight(); ++i) {
        const Psn psn = tracker.una() + i;
        ASSERT_EQ(tracker.acknowledged(psn), receiver.bits().test(psn));
      }
    }
    EXPECT_EQ(arrived, kTotal);
    EXPECT_EQ(tracker.lost_count(), 0u);
    EXPECT_GE(resent, dropped);
    EXPECT_LE(resent, dropped + timeouts * window) << "only what was lost goes again";
    EXPECT_LE(timeouts, 2u) << "timeouts are for the tail";
  }
}

}  // namespace
}  // namespace hostnic
