// SPDX-License-Identifier: BSD-3-Clause
// What comes out of the stage, when, and in which order.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/unit/impair/testing.h"

namespace hostnic::impair {
namespace {

std::vector<int> numbers(int from, int to) {
  std::vector<int> sequence(static_cast<size_t>(to - from));
  std::iota(sequence.begin(), sequence.end(), from);
  return sequence;
}

TEST(ImpairStage, WithoutRulesIsIdleAndPassesPackets) {
  Network network("none");
  EXPECT_TRUE(network.stage.idle());
  EXPECT_EQ(network.stage.next_deadline_ns(), kForever);
  EXPECT_EQ(network.stream(10), numbers(0, 10));
  EXPECT_TRUE(network.stage.idle());
  EXPECT_FALSE(Network("drop 1%").stage.idle());
}

TEST(ImpairStage, PassingPacketsAreNotDetached) {
  Network network("drop 0%");
  network.stream(1);
  EXPECT_FALSE(network.last_out.detached);
}

TEST(ImpairStage, UniformDropHasItsRate) {
  Network network("drop 1%");
  network.stream(100'000);
  // Standard deviation 31.
  EXPECT_NEAR(static_cast<double>(network.stage.counters().dropped), 1000, 130);
  EXPECT_EQ(network.stage.counters().seen, 100'000u);
}

TEST(ImpairStage, CertainAndImpossible) {
  EXPECT_TRUE(Network("drop 100%").stream(100).empty());
  EXPECT_TRUE(Network("drop all").stream(100).empty());
  EXPECT_EQ(Network("drop 0%").stream(100), numbers(0, 100));
}

TEST(ImpairStage, BurstsHaveTheirRateAndLength) {
  Network network("drop burst p 1% r 20%");
  const std::vector<int> out = network.stream(200'000);
  size_t bursts = 0;
  for (size_t i = 1; i < out.size(); ++i) bursts += out[i] != out[i - 1] + 1;
  const double dropped = static_cast<double>(network.stage.counters().dropped);
  EXPECT_NEAR(dropped / 200'000, 0.01 / 0.21, 0.005);
  EXPECT_NEAR(dropped / static_cast<double>(bursts), 5.0, 0.5);
}

TEST(ImpairStage, BurstProbabilitiesWithinStates) {
  Network network("drop burst p 50% r 50% bad 40% good 10%");
  network.stream(100'000);
  EXPECT_NEAR(static_cast<double>(network.stage.counters().dropped), 25'000, 600);
}

TEST(ImpairStage, SameSeedSameDecisionsWhateverTheClock) {
  const char* spec =
      "drop 5%; duplicate 3%; corrupt 2%; reorder 4% distance 7 flush 10s; drop burst p 1% r 30%";
  const auto run = [&](uint64_t seed, TimeNs gap_ns) {
    Network network(spec, seed);
    std::vector<int> out = network.stream(5000, gap_ns);
    network.pop_into(out, network.clock_ns + 20'000'000'000);
    return std::pair(out, network.ops.corruptions);
  };
  EXPECT_EQ(run(7, 0), run(7, 1234));
  EXPECT_NE(run(7, 0).first, run(8, 0).first);
}

TEST(ImpairStage, DecisionsArePinned) {
  // The generator is part of the contract: a seed in a bug report must replay after an upgrade.
  Network network("drop 20%", 42);
  network.stream(32);
  EXPECT_EQ(network.ops.released, (std::vector<int>{0, 2, 6, 10, 11, 14, 17, 19, 29}));
}

TEST(ImpairStage, RulesDrawIndependently) {
  // The same first rule decides alike whether or not another rule stands behind it.
  Network alone("drop 10%"), followed("drop 10%; corrupt 50%; duplicate 10%");
  alone.stream(1000);
  followed.stream(1000);
  EXPECT_EQ(alone.ops.released, followed.ops.released);
}

TEST(ImpairStage, DerivedSeedsDiffer) {
  EXPECT_NE(derive_seed(1, 0, Direction::kRx), derive_seed(1, 0, Direction::kTx));
  EXPECT_NE(derive_seed(1, 0, Direction::kTx), derive_seed(1, 1, Direction::kRx));
  EXPECT_NE(derive_seed(1, 0, Direction::kRx), derive_seed(2, 0, Direction::kRx));
}

TEST(ImpairStage, DuplicateFollowsItsOriginal) {
  Network network("duplicate nth 2");
  EXPECT_EQ(network.stream(4), (std::vector<int>{0, 1, 1, 2, 3}));
  EXPECT_EQ(network.stage.counters().duplicated, 1u);
}

TEST(ImpairStage, CopiesAreNotCopiedAgainAndMeetLaterRules) {
  Network network("duplicate all; duplicate all; drop nth 2");
  EXPECT_EQ(network.stream(1), (std::vector<int>{0, 0}));  // three, less the second
  EXPECT_EQ(network.stage.counters().duplicated, 2u);
}

TEST(ImpairStage, CopiesDoNotCountForRulesBeforeThem) {
  Network network("reorder nth 1 distance 2; duplicate all");
  EXPECT_EQ(network.stream(3), (std::vector<int>{1, 1, 2, 0, 0, 2}));
}

TEST(ImpairStage, WithoutBuffersNothingIsDuplicated) {
  Network network("duplicate all");
  network.ops.clones_left = 1;
  EXPECT_EQ(network.stream(3), (std::vector<int>{0, 0, 1, 2}));
  EXPECT_EQ(network.stage.counters().duplicated, 1u);
}

TEST(ImpairStage, CorruptChangesTheChosenPacketsOnly) {
  Network network("corrupt every 3");
  network.stream(2);
  EXPECT_FALSE(network.last_out.corrupted);
  network.stream(1);
  EXPECT_TRUE(network.last_out.corrupted);
  network.stream(297);
  EXPECT_EQ(network.stage.counters().corrupted, 100u);
  // Every mask and all parts of a packet are reached.
  uint8_t masks = 0;
  uint32_t selectors = 0;
  for (const auto& [selector, mask] : network.ops.corruptions) masks |= mask, selectors |= selector;
  EXPECT_EQ(masks, 0xff);
  EXPECT_EQ(selectors, 0xffffffffu);
}

TEST(ImpairStage, MarkMarksTheChosenPacketsAndDropsNone) {
  Network network("mark every 3");
  EXPECT_EQ(network.stream(2), (std::vector<int>{0, 1}));
  EXPECT_FALSE(network.last_out.marked);
  EXPECT_EQ(network.stream(1), (std::vector<int>{2}));
  EXPECT_TRUE(network.last_out.marked);
  EXPECT_EQ(network.stage.counters().marked, 1u);
  network.ops.refuse_mark = true;
  EXPECT_EQ(network.stream(3), (std::vector<int>{3, 4, 5}));
  EXPECT_EQ(network.stage.counters().marked, 1u) << "its sender did not allow it";
}

TEST(ImpairStage, CorruptedCopyLeavesTheOriginalAlone) {
  Network network("duplicate all; corrupt nth 2");
  std::array<void*, 4> out;
  network.push(data_packet(0), 0);
  ASSERT_EQ(network.stage.pop(out, 0), 2u);
  EXPECT_FALSE(network.ops.leave(out[0])->corrupted);
  EXPECT_TRUE(network.ops.leave(out[1])->corrupted);
}

TEST(ImpairStage, ReorderByDistanceIsOvertakenByExactlyThatMany) {
  Network network("reorder nth 2 distance 3");
  EXPECT_EQ(network.stream(8), (std::vector<int>{0, 2, 3, 4, 1, 5, 6, 7}));
  EXPECT_EQ(network.stage.counters().reordered, 1u);
}

TEST(ImpairStage, ReorderDistanceHoldsForRandomChoice) {
  Network network("reorder 20% distance 16");
  std::vector<int> out = network.stream(5000);
  network.pop_into(out, network.clock_ns + kDefaultFlushNs);
  ASSERT_EQ(out.size(), 5000u);
  // A late packet has been overtaken by 16, and by packets released with it at most.
  int greatest = -1;
  size_t late = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    if (out[i] > greatest) {
      greatest = out[i];
      continue;
    }
    ++late;
    const auto overtaken_by = std::count_if(out.begin(), out.begin() + static_cast<long>(i),
                                            [&](int other) { return other > out[i]; });
    if (i < 4900) {
      EXPECT_GE(overtaken_by, 16);
    }
    EXPECT_LE(overtaken_by, 16 + 16);
  }
  EXPECT_NEAR(static_cast<double>(late), 1000, 120);
}

TEST(ImpairStage, ReorderCountsOnlyMatchingPackets) {
  Network network("reorder nth 1 distance 2 qpn 0x10011");
  PacketInfo foreign = data_packet(0);
  foreign.qpn = Qpn{5};
  std::vector<int> out;
  network.push(data_packet(0), 0);                       // 0, held
  for (int i = 0; i < 5; ++i) network.push(foreign, 0);  // 1 to 5
  network.push(data_packet(1), 0);
  network.push(data_packet(2), 0);
  EXPECT_EQ(network.pop(0), (std::vector<int>{1, 2, 3, 4, 5, 6, 7, 0}));
}

TEST(ImpairStage, HeldPacketIsFlushedWhenTrafficStops) {
  Network network("reorder nth 1 distance 8 flush 1ms");
  network.push(data_packet(0), 1000);
  EXPECT_TRUE(network.pop(1000).empty());
  EXPECT_EQ(network.stage.next_deadline_ns(), 1'001'000u);
  EXPECT_TRUE(network.pop(1'000'999).empty());
  EXPECT_EQ(network.pop(1'001'000), (std::vector<int>{0}));
  EXPECT_EQ(network.stage.next_deadline_ns(), kForever);
}

TEST(ImpairStage, OvertakingPacketsPostponeTheFlush) {
  Network network("reorder nth 1 distance 8 flush 1ms");
  network.push(data_packet(0), 0);
  network.push(data_packet(1), 900'000);
  EXPECT_EQ(network.pop(1'000'000), (std::vector<int>{1}));
  EXPECT_EQ(network.stage.next_deadline_ns(), 1'900'000u);
  // The flush was due before this packet arrived, so the order is kept.
  network.push(data_packet(2), 2'000'000);
  EXPECT_EQ(network.pop(2'000'000), (std::vector<int>{0, 2}));
}

TEST(ImpairStage, ReorderByDelayIsOvertaken) {
  Network network("reorder nth 1 delay 5us");
  EXPECT_EQ(network.stream(10, 1000), (std::vector<int>{1, 2, 3, 4, 0, 5, 6, 7, 8, 9}));
  EXPECT_EQ(network.stage.counters().reordered, 1u);
  EXPECT_EQ(network.stage.counters().delayed, 0u);
}

TEST(ImpairStage, DelayIsExactAndDeadlinesSaySo) {
  Network network("delay 50us");
  network.push(data_packet(0), 1000);
  network.push(data_packet(1), 2000);
  EXPECT_EQ(network.stage.next_deadline_ns(), 51'000u);
  EXPECT_TRUE(network.pop(50'999).empty());
  EXPECT_EQ(network.pop(51'000), (std::vector<int>{0}));
  EXPECT_EQ(network.stage.next_deadline_ns(), 52'000u);
  EXPECT_EQ(network.pop(60'000), (std::vector<int>{1}));
  EXPECT_EQ(network.stage.counters().delayed, 2u);
  EXPECT_TRUE(network.last_out.detached);
}

TEST(ImpairStage, JitterKeepsOrder) {
  for (const char* distribution : {"uniform", "normal", "exponential"}) {
    Network network(std::string("delay 20us jitter 10us ") + distribution);
    std::vector<int> out = network.stream(2000, 500);
    network.pop_into(out, network.clock_ns + 10'000'000);
    EXPECT_EQ(out, numbers(0, 2000)) << distribution;
  }
}

TEST(ImpairStage, LatePacketOfADelayRuleHoldsUpThoseBehind) {
  Network network("delay 10us nth 1");
  EXPECT_EQ(network.stream(3, 1000), std::vector<int>{});
  EXPECT_EQ(network.pop(10'000), (std::vector<int>{0, 1, 2}));
}

TEST(ImpairStage, RateLimitSpacesPackets) {
  Network network("rate 1Gbit queue 4");  // 1000 bytes: 8 us
  for (uint32_t i = 0; i < 6; ++i) network.push(data_packet(i), 0);
  EXPECT_EQ(network.stage.counters().rate_dropped, 2u);
  EXPECT_EQ(network.ops.released, (std::vector<int>{4, 5}));
  EXPECT_TRUE(network.pop(7'999).empty());
  EXPECT_EQ(network.pop(8'000), (std::vector<int>{0}));
  EXPECT_EQ(network.pop(31'999), (std::vector<int>{1, 2}));
  EXPECT_EQ(network.pop(32'000), (std::vector<int>{3}));
  // The link has been idle since: no credit was saved up.
  network.push(data_packet(6), 1'000'000);
  EXPECT_EQ(network.stage.next_deadline_ns(), 1'008'000u);
}

TEST(ImpairStage, ALongQueueMarks) {
  Network network("rate 1Gbit queue 4 ecn 2");  // 1000 bytes: 8 us
  for (uint32_t i = 0; i < 6; ++i) network.push(data_packet(i), 0);
  EXPECT_EQ(network.stage.counters().rate_dropped, 2u);
  EXPECT_EQ(network.stage.counters().marked, 2u) << "which found two and three";
  EXPECT_EQ(network.pop(24'000), (std::vector<int>{0, 1, 2}));
  EXPECT_TRUE(network.last_out.marked);
  // One is still there.
  network.push(data_packet(6), 24'000);
  EXPECT_EQ(network.stage.counters().marked, 2u);
}

TEST(ImpairStage, RateIsExactOverTime) {
  Network network("rate 3Gbit queue 3000");  // 2666 2/3 ns a packet
  for (uint32_t i = 0; i < 3000; ++i) network.push(data_packet(i), 0);
  EXPECT_EQ(network.pop(7'999'999).size(), 2999u);
  EXPECT_EQ(network.pop(8'000'000).size(), 1u);
}

TEST(ImpairStage, RateAndDelayAddUp) {
  Network network("rate 1Gbit; delay 50us");
  network.push(data_packet(0), 0);
  EXPECT_EQ(network.stage.next_deadline_ns(), 58'000u);
}

TEST(ImpairStage, LinkBehindAJitteryDelayKeepsOrder) {
  // Pairs: the second waits 16 us at the link, the first of the next pair 8.
  Network network("delay 50us jitter 20us; rate 1Gbit");
  std::vector<int> out;
  for (int i = 0; i < 400; ++i) {
    network.push(data_packet(0), static_cast<TimeNs>(i / 2) * 20'000);
    network.pop_into(out, static_cast<TimeNs>(i / 2) * 20'000);
  }
  network.pop_into(out, 100'000'000);
  EXPECT_EQ(out, numbers(0, 400));
}

TEST(ImpairStage, OvertakenPacketFollowsItsOvertakersThroughADelay) {
  Network network("reorder nth 1 distance 2; delay 10us");
  EXPECT_EQ(network.stream(12, 1000), (std::vector<int>{1}));
  EXPECT_EQ(network.pop(12'000), (std::vector<int>{2, 0}));
}

TEST(ImpairStage, QueueIsBounded) {
  Network network("delay 1ms", 1, 8);
  for (uint32_t i = 0; i < 20; ++i) network.push(data_packet(i), 0);
  EXPECT_EQ(network.stage.queued(), 8u);
  EXPECT_EQ(network.stage.counters().queue_dropped, 12u);
  EXPECT_EQ(network.stage.counters().delayed, 8u);
  EXPECT_EQ(network.pop(1'000'000), numbers(0, 8));
}

TEST(ImpairStage, HeldPacketsCountAgainstTheBound) {
  Network network("reorder all distance 4", 1, 3);
  network.stream(5);
  EXPECT_EQ(network.stage.queued(), 3u);
  EXPECT_EQ(network.stage.counters().queue_dropped, 2u);
  EXPECT_EQ(network.pop(kDefaultFlushNs), numbers(0, 3));
  EXPECT_EQ(network.stream(2).size(), 0u);  // the freed places serve again
  EXPECT_EQ(network.stage.queued(), 2u);
}

TEST(ImpairStage, PacketThatCannotBeDetachedIsDropped) {
  Network network("delay 1us; corrupt nth 2");
  network.ops.refuse_detach = true;
  network.stream(2);
  EXPECT_EQ(network.stage.counters().queue_dropped, 2u);
  EXPECT_EQ(network.stage.counters().corrupted, 0u);
  EXPECT_EQ(network.ops.inside(), 0u);
}

TEST(ImpairStage, ClockThatStepsBackIsHeld) {
  Network network("drop 0%");
  network.push(data_packet(0), 5000);
  network.push(data_packet(1), 3000);
  EXPECT_EQ(network.stage.next_deadline_ns(), 5000u);
  EXPECT_EQ(network.pop(3000), (std::vector<int>{0, 1}));
}

TEST(ImpairStage, DrainGivesEverythingHeldBurstByBurst) {
  Network network("reorder nth 2 distance 100; delay 1s");
  for (uint32_t i = 0; i < 5; ++i) network.push(data_packet(i), i);
  std::array<void*, 2> burst;
  std::vector<int> out;
  while (const size_t count = network.stage.drain(burst)) {
    for (size_t i = 0; i < count; ++i) out.push_back(network.ops.leave(burst[i])->number);
  }
  EXPECT_EQ(out, numbers(0, 5));  // not overtaken yet by enough: in order of their due times
  EXPECT_EQ(network.stage.queued(), 0u);
  EXPECT_EQ(network.stage.next_deadline_ns(), kForever);
}

TEST(ImpairStage, DestructionReleasesWhatIsHeld) {
  TestPacketOps ops;
  {
    ImpairmentStage stage(spec_of("delay 1s; reorder every 2 distance 9"), 1, ops);
    for (int i = 0; i < 10; ++i) stage.push(ops.make(i), data_packet(0), 0);
    EXPECT_EQ(ops.inside(), 10u);
  }
  EXPECT_EQ(ops.inside(), 0u);
  EXPECT_EQ(ops.released.size(), 10u);
}

TEST(ImpairStage, CountersClear) {
  Network network("drop all");
  network.stream(3);
  network.stage.clear_counters();
  EXPECT_EQ(network.stage.counters().seen, 0u);
  EXPECT_EQ(network.stage.counters().dropped, 0u);
}

// Each packet comes out or is released exactly once (TestPacketOps::leave checks twice), whatever
// the rules; and the counters agree.
class ImpairConservation : public testing::TestWithParam<const char*> {};

TEST_P(ImpairConservation, EveryPacketLeavesOnce) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Network network(GetParam(), seed, 64);
    Random random(seed);
    size_t popped = 0;
    for (uint32_t i = 0; i < 2000; ++i) {
      PacketInfo info = data_packet(i);
      info.qpn = Qpn{static_cast<uint32_t>(random.below(4))};
      info.kind = static_cast<PacketKind>(random.below(8));
      info.last_of_message = random.chance(kCertainPpb / 4);
      network.push(info, network.clock_ns);
      EXPECT_LE(network.stage.queued(), 64u);
      if (random.chance(kCertainPpb / 3)) network.clock_ns += random.below(300'000);
      if (random.chance(kCertainPpb / 2)) popped += network.pop(network.clock_ns).size();
    }
    popped += network.pop(network.clock_ns + 3'000'000'000).size();
    const Counters counters = network.stage.counters();
    EXPECT_EQ(network.stage.queued(), 0u);
    EXPECT_EQ(network.ops.inside(), 0u);
    EXPECT_EQ(counters.seen + counters.duplicated,
              popped + counters.dropped + counters.rate_dropped + counters.queue_dropped);
    EXPECT_EQ(counters.seen, 2000u);
  }
}

TEST_P(ImpairConservation, PassingIsPushingAndPopping) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Network passing(GetParam(), seed), pushing(GetParam(), seed);
    Random random(seed);
    for (uint32_t i = 0; i < 2000; ++i) {
      PacketInfo info = data_packet(i);
      info.qpn = Qpn{static_cast<uint32_t>(random.below(4))};
      info.last_of_message = random.chance(kCertainPpb / 4);
      ASSERT_EQ(passing.arrive(info, true), pushing.arrive(info, false)) << "packet " << i;
      if (random.chance(kCertainPpb / 3)) passing.clock_ns += random.below(300'000);
      pushing.clock_ns = passing.clock_ns;
    }
    EXPECT_EQ(passing.pop(passing.clock_ns + 3'000'000'000),
              pushing.pop(passing.clock_ns + 3'000'000'000));
    std::vector<uint64_t> a, b;
    passing.stage.counters().for_each([&](const char*, uint64_t value) { a.push_back(value); });
    pushing.stage.counters().for_each([&](const char*, uint64_t value) { b.push_back(value); });
    EXPECT_EQ(a, b);
    EXPECT_EQ(passing.ops.corruptions, pushing.ops.corruptions);
  }
}

TEST(ImpairStage, MostPacketsPass) {
  Network network("drop 10%; reorder 1% distance 5; corrupt 1%");
  for (uint32_t i = 0; i < 1000; ++i) network.arrive(data_packet(i), true);
  EXPECT_GT(network.passed, 800);
  EXPECT_FALSE(network.stage.looks_at_packets());
}

TEST(ImpairStage, LooksAtPacketsOnlyIfARuleDoes) {
  for (const char* spec : {"drop 1%; delay 1ms", "rate 1Gbit", "blackhole from 2s to 3s",
                           "duplicate every 7; drop burst p 1% r 10%"}) {
    EXPECT_FALSE(Network(spec).stage.looks_at_packets()) << spec;
  }
  for (const char* spec : {"drop 1% kind ack", "drop all peer 10.0.0.1", "drop 1% qpn 17",
                           "drop 1% last-packet", "drop 1% first-attempt", "drop 1% once",
                           "drop nth 3 per-qp", "drop 1%; drop 1% kind send"}) {
    EXPECT_TRUE(Network(spec).stage.looks_at_packets()) << spec;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Specs, ImpairConservation,
    testing::Values("drop 10%", "drop 10% from 5ms to 50ms",
                    "drop 10%; duplicate 10%; corrupt 5%; reorder 10% distance 5",
                    "drop 10%; duplicate 10%; reorder 20% distance 5; corrupt 5%; delay 50us",
                    "duplicate 50%; duplicate 50%; duplicate 50%; reorder 50% distance 64",
                    "reorder 30% distance 3 qpn 1; reorder 30% distance 9; reorder 10% delay 1ms",
                    "rate 100Mbit queue 8; delay 100us jitter 90us normal; drop last-packet once",
                    "reorder all distance 2 flush 1ns; duplicate all", "delay 1s; duplicate all"));

}  // namespace
}  // namespace hostnic::impair
