// SPDX-License-Identifier: BSD-3-Clause
#include "protocol/transport/path_table.h"

#include <gtest/gtest.h>

#include <array>
#include <set>

#include "tests/unit/transport/send_tracker_fixture.h"

namespace hostnic {
namespace {

constexpr TimeNs kMs = 1'000'000;

class Paths : public testing::Test {
 protected:
  Paths() { table_.reset(4); }
  // Takes a whole run; returns its path.
  uint8_t run() {
    const PathTable::Choice by = table_.next();
    table_.take(by.most_packets);
    return by.path;
  }
  void lose(uint8_t path, uint32_t packets, bool in_silence = true) {
    for (uint32_t i = 0; i < packets; ++i) table_.note_lost(path, in_silence);
  }
  void arrive(uint8_t path, uint32_t packets) {
    for (uint32_t i = 0; i < packets; ++i) table_.note_arrived(path);
  }
  // Sends the next probe when it is due; returns how long that took.
  uint64_t probe(uint8_t path) {
    const TimeNs from_ns = now_ns_;
    while (table_.due_probe(now_ns_) == PathTable::kNone) now_ns_ += kMs;
    EXPECT_EQ(table_.due_probe(now_ns_), path);
    table_.note_probe(path, Psn(++probes_), 2, now_ns_);
    return now_ns_ - from_ns;
  }
  bool answer() { return table_.take_echo(Psn(probes_), 2, now_ns_) != PathTable::kNone; }

  PathTable table_;
  TimeNs now_ns_ = 0;
  uint32_t probes_ = 0;
};

TEST_F(Paths, TakeTurnsByRuns) {
  for (uint32_t round = 0; round < 3; ++round) {
    std::set<uint8_t> taken;
    for (uint32_t i = 0; i < 4; ++i) taken.insert(run());
    EXPECT_EQ(taken.size(), 4u);
  }
}

TEST_F(Paths, ARunIsSoManyPackets) {
  const PathTable::Choice first = table_.next();
  EXPECT_EQ(first.most_packets, PathTable::kRunPackets);
  table_.take(5);
  const PathTable::Choice rest = table_.next();
  EXPECT_EQ(rest.path, first.path);
  EXPECT_EQ(rest.most_packets, PathTable::kRunPackets - 5);
  table_.take(rest.most_packets);
  EXPECT_NE(table_.next().path, first.path);
}

// One that delivers late gets less, and one that is empty its turn.
TEST_F(Paths, TheEmptiestIsTaken) {
  for (uint32_t i = 0; i < 20; ++i) table_.note_sent(2);
  for (uint32_t i = 0; i < 6; ++i) EXPECT_NE(run(), 2);
  for (const uint8_t path : {0, 1, 3})
    for (uint32_t i = 0; i < 21; ++i) table_.note_sent(path);
  EXPECT_EQ(run(), 2);
  for (uint32_t i = 0; i < 20; ++i) table_.note_settled(2);
  EXPECT_EQ(run(), 2);
  EXPECT_EQ(table_.other_than(2), 1) << "the first, of equals";
}

TEST_F(Paths, ASilentOneIsAvoided) {
  lose(2, PathTable::kSilentPackets - 1);
  EXPECT_TRUE(table_.is_good(2));
  lose(2, 1);
  EXPECT_FALSE(table_.is_good(2));
  EXPECT_EQ(table_.lost(2), PathTable::kSilentPackets);
  for (uint32_t i = 0; i < 8; ++i) EXPECT_NE(run(), 2);
}

TEST_F(Paths, WhatArrivesInBetweenIsNoSilence) {
  for (uint32_t i = 0; i < 10; ++i) {
    lose(2, 1);
    arrive(2, 40);
  }
  EXPECT_TRUE(table_.is_good(2));
  EXPECT_EQ(table_.lost(2), 10u);
}

// Losses are found later than what has arrived behind them.
TEST_F(Paths, WhatOthersHaveOvertakenByThePathIsNoSilence) {
  arrive(2, 200);
  lose(2, 12, /*in_silence=*/false);
  EXPECT_TRUE(table_.is_good(2));
}

TEST_F(Paths, OneThatLosesMoreThanAnEighthIsAvoided) {
  for (uint32_t i = 0; i < 200; ++i) {
    for (uint8_t path = 0; path < 4; ++path) arrive(path, 3);
    lose(1, 1);
  }
  EXPECT_FALSE(table_.is_good(1));
}

TEST_F(Paths, OneInTwentyIsKept) {
  for (uint32_t i = 0; i < 1000; ++i) {
    for (uint8_t path = 0; path < 4; ++path) arrive(path, 19);
    lose(1, 1);
  }
  EXPECT_TRUE(table_.is_good(1));
}

TEST_F(Paths, WhatHitsAllAlikeIsNoneOfTheirs) {
  for (uint32_t i = 0; i < 400; ++i)
    for (uint8_t path = 0; path < 4; ++path) {
      lose(path, 1);
      arrive(path, 2);
    }
  EXPECT_EQ(table_.good_count(), 4u);
}

TEST_F(Paths, TheLastGoodOneStays) {
  for (uint8_t path = 0; path < 4; ++path) lose(path, 100);
  EXPECT_EQ(table_.good_count(), 1u);
  EXPECT_TRUE(table_.is_good(run()));
}

TEST_F(Paths, OneOfOneIsNeverAvoided) {
  table_.reset(1);
  lose(0, 500);
  EXPECT_TRUE(table_.is_good(0));
  EXPECT_EQ(run(), 0);
  EXPECT_EQ(table_.other_than(0), 0);
}

TEST_F(Paths, ProbesBringAnAvoidedOneBack) {
  lose(3, PathTable::kSilentPackets);
  EXPECT_EQ(table_.due_probe(5 * kMs), PathTable::kNone) << "the time to the first begins now";
  EXPECT_EQ(table_.due_probe(5 * kMs + PathTable::kProbeNs - 1), PathTable::kNone);
  EXPECT_EQ(table_.due_probe(5 * kMs + PathTable::kProbeNs), 3u);
  for (uint32_t i = 0; i < PathTable::kTrialPackets; ++i) {
    EXPECT_FALSE(table_.is_good(3));
    probe(3);
    EXPECT_EQ(table_.due_probe(now_ns_), PathTable::kNone) << "one at a time";
    EXPECT_EQ(table_.take_echo(Psn(probes_), 1, now_ns_), PathTable::kNone)
        << "another transmission";
    EXPECT_TRUE(answer());
    EXPECT_FALSE(answer()) << "twice";
  }
  EXPECT_TRUE(table_.is_good(3));
  EXPECT_TRUE(table_.rtt(3).valid()) << "whoever takes it knows how long to wait";
}

TEST_F(Paths, LostProbesComeSeldomer) {
  lose(3, PathTable::kSilentPackets);
  uint64_t last_ns = 0;
  for (uint32_t i = 0; i < 10; ++i) {
    const uint64_t waited_ns = probe(3);
    EXPECT_GE(waited_ns, last_ns);
    last_ns = waited_ns;
  }
  EXPECT_EQ(last_ns, PathTable::kProbeNs << PathTable::kMostProbeShift);
}

// A probe that is lost begins the trial anew.
TEST_F(Paths, ATrialIsOneProbeBehindTheOther) {
  lose(3, PathTable::kSilentPackets);
  for (uint32_t i = 0; i + 1 < PathTable::kTrialPackets; ++i) {
    probe(3);
    answer();
  }
  probe(3);
  probe(3);
  answer();
  EXPECT_FALSE(table_.is_good(3));
}

// A packet that went before the path was avoided is found lost after that, and is no probe.
TEST_F(Paths, OldLossesDelayNoProbe) {
  lose(3, PathTable::kSilentPackets);
  table_.due_probe(0);
  lose(3, 50);
  EXPECT_EQ(table_.due_probe(PathTable::kProbeNs), 3u);
}

TEST_F(Paths, WhatGoesAgainTakesAnother) {
  std::set<uint8_t> taken;
  for (uint32_t i = 0; i < 12; ++i) taken.insert(table_.other_than(1));
  EXPECT_EQ(taken, (std::set<uint8_t>{0, 2, 3}));
  lose(0, PathTable::kSilentPackets);
  taken.clear();
  for (uint32_t i = 0; i < 12; ++i) taken.insert(table_.other_than(1));
  EXPECT_EQ(taken, (std::set<uint8_t>{2, 3}));
}

TEST_F(Paths, ASuspectEndsItsRun) {
  const PathTable::Choice by = table_.next();
  table_.take(1);
  table_.suspect(by.path);
  EXPECT_NE(table_.next().path, by.path);
  EXPECT_EQ(table_.lost(by.path), 0u) << "nobody knows";
  for (uint32_t i = 1; i < PathTable::kSilentPackets; ++i) table_.suspect(by.path);
  EXPECT_FALSE(table_.is_good(by.path));
}

TEST_F(Paths, AQueueIsWhatComesOnTopOfTheShortest) {
  EXPECT_EQ(table_.note_rtt(1, 500'000), 0u);
  EXPECT_EQ(table_.note_rtt(2, 20'000), 0u);
  EXPECT_EQ(table_.note_rtt(1, 530'000), 30'000u);
  EXPECT_EQ(table_.note_rtt(2, 25'000), 5'000u);
  EXPECT_TRUE(table_.rtt(1).valid());
  EXPECT_FALSE(table_.rtt(0).valid());
}

// ---- what was overtaken, path by path

class PathTracker : public testing::Test {
 protected:
  static constexpr uint8_t kFast = 0, kSlow = 1;
  PathTracker() {
    table_.reset(2);
    tracker_.reset(Psn(0xffff00), 1024);
    tracker_.use_paths(table_);
  }
  Psn at(uint32_t offset) const { return Psn(0xffff00) + offset; }
  void send(uint8_t path, uint32_t count, TimeNs now_ns) {
    tracker_.on_first_send(count, now_ns);
    tracker_.note_first_path(count, path);
  }
  void ack(uint32_t base, const PsnBits& acked, TimeNs now_ns) {
    tracker_.on_ack(at(base), acked);
    tracker_.end_report(now_ns);
    tracker_.detect_losses(now_ns, kRtt);
  }
  PathTable table_;
  SendTracker tracker_;
};

// Each packet is on its way once, whatever becomes of it.
TEST_F(PathTracker, WhatIsOnItsWayIsCounted) {
  send(kSlow, 16, 0);
  send(kFast, 16, 0);
  EXPECT_EQ(table_.out(kSlow), 16u);
  ack(0, bits(at(4), 12), kRtt);
  EXPECT_EQ(table_.out(kSlow), 0u) << "four are lost, twelve have come";
  tracker_.on_resend(at(0), 4, kRtt, kFast);
  EXPECT_EQ(table_.out(kFast), 20u);
  tracker_.mark_una_lost();
  tracker_.mark_una_lost();
  EXPECT_EQ(table_.out(kFast), 19u);
  tracker_.rewind(at(24));
  EXPECT_EQ(table_.out(kFast), 11u);
  tracker_.on_ack(at(24));
  EXPECT_EQ(table_.out(kFast), 0u);
  EXPECT_EQ(table_.out(kSlow), 0u);
}

TEST_F(PathTracker, AFastPathOvertakesASlowOne) {
  send(kSlow, 16, 0);
  send(kFast, 64, 0);
  ack(0, bits(at(16), 64), kRtt);
  EXPECT_EQ(tracker_.lost_count(), 0u) << "four runs of another path say nothing";
  EXPECT_EQ(table_.lost(kSlow), 0u);
}

TEST_F(PathTracker, WithinAPathTheOrderCounts) {
  send(kSlow, 16, 0);
  send(kFast, 16, 0);
  ack(0, bits(at(8), 8), kRtt);
  EXPECT_EQ(tracker_.lost_count(), 8u);
  EXPECT_EQ(table_.lost(kSlow), tracker_.lost_count());
  EXPECT_EQ(table_.lost(kFast), 0u);
}

TEST_F(PathTracker, APathThatIsSilentLosesByTime) {
  send(kSlow, 16, 0);
  send(kFast, 16, 0);
  ack(0, bits(at(16), 16), kRtt);
  const TimeNs due_ns = tracker_.reorder_deadline_ns(kRtt);
  ASSERT_NE(due_ns, UINT64_MAX);
  tracker_.detect_losses(due_ns - 1, kRtt);
  EXPECT_EQ(tracker_.lost_count(), 0u);
  tracker_.detect_losses(due_ns, kRtt);
  EXPECT_EQ(tracker_.lost_count(), 16u);
  EXPECT_FALSE(table_.is_good(kSlow));
}

// The wait is the path's own: one that takes ten round trips of the other is given them.
TEST_F(PathTracker, ASlowPathIsGivenItsTime) {
  for (uint32_t i = 0; i < 30; ++i) {
    table_.note_rtt(kSlow, 10 * kRtt);
    table_.note_rtt(kFast, kRtt);
  }
  send(kSlow, 4, 0);
  send(kFast, 4, 0);
  ack(0, bits(at(4), 4), kRtt);
  tracker_.detect_losses(10 * kRtt, kRtt);
  EXPECT_EQ(tracker_.lost_count(), 0u);
  tracker_.detect_losses(20 * kRtt, kRtt);
  EXPECT_EQ(tracker_.lost_count(), 4u);
}

// A packet that waits in the NIC for long is not late for that: only what comes after it tells.
TEST_F(PathTracker, TheTimeBeginsWhenItIsOvertaken) {
  table_.note_rtt(kSlow, kRtt);
  table_.note_rtt(kFast, kRtt);
  send(kSlow, 4, 0);
  send(kFast, 4, 0);
  ack(0, bits(at(4), 1), 100 * kRtt);
  EXPECT_EQ(tracker_.lost_count(), 0u);
  const TimeNs due_ns = tracker_.reorder_deadline_ns(kRtt);
  EXPECT_GT(due_ns, 100 * kRtt);
  EXPECT_LT(due_ns, 104 * kRtt);
  ack(0, bits(at(4), 4), 100 * kRtt + kRtt / 2);
  EXPECT_EQ(tracker_.reorder_deadline_ns(kRtt), due_ns) << "what comes later changes nothing";
}

TEST_F(PathTracker, ALossIsThePathsByWhichItWentLast) {
  send(kSlow, 1, 0);
  send(kFast, 16, 0);
  tracker_.mark_lost(at(0), RepeatCause::timeout);
  EXPECT_EQ(table_.lost(kSlow), 0u) << "a guess";
  tracker_.on_resend(at(0), 1, kRtt, kFast);
  EXPECT_EQ(tracker_.path(at(0)), kFast);
  send(kFast, 16, 2 * kRtt);
  ack(0, bits(at(1), 32), 3 * kRtt);
  EXPECT_EQ(tracker_.lost_count(), 1u);
  EXPECT_EQ(table_.lost(kFast), 1u);
  EXPECT_EQ(table_.lost(kSlow), 0u);
}

// A repetition that arrives says nothing about what waits in the NIC, which it has overtaken.
TEST_F(PathTracker, ARepetitionOvertakesWhatWaitsInTheNic) {
  send(kFast, 8, 0);
  tracker_.note_transmitted(at(1));
  tracker_.mark_lost(at(0), RepeatCause::probe);
  tracker_.on_resend(at(0), 1, kRtt, kFast);
  tracker_.on_echo(at(0), 1);
  ack(1, PsnBits(), 2 * kRtt);
  EXPECT_EQ(tracker_.lost_count(), 0u);
  EXPECT_EQ(tracker_.reorder_deadline_ns(kRtt), UINT64_MAX);
}

}  // namespace
}  // namespace hostnic
