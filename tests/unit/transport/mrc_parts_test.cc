// SPDX-License-Identifier: BSD-3-Clause
// Pieces of MRC that windows are not: congestion window, entropy values, retries (docs/mrc.md).
#include <gtest/gtest.h>

#include <set>

#include "protocol/transport/mrc/entropy_set.h"
#include "protocol/transport/mrc/nscc.h"
#include "protocol/transport/mrc/retry_schedule.h"

namespace hostnic::mrc {
namespace {

using wire::mrc::PathMark;

// ---- NSCC

constexpr uint32_t kMtu = 4096;
constexpr uint64_t kRtt = 10'000, kTarget = 20'000, kMost = 256 * kMtu;

Nscc window_at(uint64_t bytes) {
  Nscc nscc;
  nscc.reset({.mtu_bytes = kMtu, .most_bytes = kMost, .least_target_ns = kTarget});
  nscc.on_sack(0, kRtt, false, 1);
  while (nscc.window_bytes() > bytes) nscc.on_timeout();
  return nscc;
}
// Takes SACKs of all that the window holds; returns how much it has grown.
uint64_t round_trip(Nscc& nscc, uint64_t rtt_ns, Nscc::Case expected) {
  const uint64_t before = nscc.window_bytes();
  for (uint64_t acked = 0; acked < before; acked += kMtu)
    EXPECT_EQ(nscc.on_sack(kMtu, rtt_ns, false, 1), expected);
  return nscc.window_bytes() - before;
}

TEST(MrcNscc, BeginsWithAllAndNeverHasMoreNorLessThanAPacket) {
  Nscc nscc = window_at(kMost);
  EXPECT_EQ(nscc.window_bytes(), kMost);
  EXPECT_EQ(nscc.window_psns(), 256u);
  nscc.on_sack(kMost, kRtt, false, 2);
  EXPECT_EQ(nscc.window_bytes(), kMost);
  for (int i = 0; i < 20; ++i) nscc.on_timeout();
  EXPECT_EQ(nscc.window_psns(), 1u);
}

TEST(MrcNscc, GrowsInProportionToTheDelayThatIsLeft) {
  Nscc nscc = window_at(32 * kMtu);
  const uint64_t most = round_trip(nscc, kRtt, Nscc::Case::kProportional);
  EXPECT_NEAR(static_cast<double>(most), 4 * kMtu, kMtu / 2);
  Nscc half = window_at(32 * kMtu);
  const uint64_t less = round_trip(half, kRtt + kTarget / 2, Nscc::Case::kProportional);
  EXPECT_NEAR(static_cast<double>(less), 2 * kMtu, kMtu / 2);
}

TEST(MrcNscc, GrowsFairlyAtTheTarget) {
  Nscc nscc = window_at(32 * kMtu);
  const uint64_t grown = round_trip(nscc, kRtt + kTarget, Nscc::Case::kFair);
  EXPECT_NEAR(static_cast<double>(grown), kMtu, kMtu / 16);
}

TEST(MrcNscc, DoesNothingForAMarkWithoutDelay) {
  Nscc nscc = window_at(32 * kMtu);
  EXPECT_EQ(nscc.on_sack(kMtu, kRtt, true, 2), Nscc::Case::kNothing);
  EXPECT_EQ(nscc.window_bytes(), 32u * kMtu);
}

// SACKs of packets of which each is marked, until one of them makes the window smaller.
uint32_t marks_until_decrease(Nscc& nscc, uint64_t rtt_ns, TimeNs now_ns) {
  const uint64_t before = nscc.window_bytes();
  for (uint32_t marks = 1; marks <= 100; ++marks) {
    nscc.on_sack(kMtu, rtt_ns, true, now_ns);
    if (nscc.window_bytes() < before) return marks;
  }
  return UINT32_MAX;
}

TEST(MrcNscc, DecreasesOnceARoundTripByHalfAtMost) {
  Nscc nscc = window_at(64 * kMtu);
  constexpr uint64_t kLate = kRtt + 10 * kTarget;
  EXPECT_LT(marks_until_decrease(nscc, kLate, 1'000'000), 12u);
  const uint64_t once = nscc.window_bytes();
  EXPECT_GE(once, 32u * kMtu);
  EXPECT_EQ(nscc.on_sack(kMtu, kLate, true, 1'000'000 + kLate - 1), Nscc::Case::kDecrease);
  EXPECT_EQ(nscc.window_bytes(), once) << "that packet left before the window shrank";
  nscc.on_sack(kMtu, kLate, true, 1'000'000 + kLate);
  EXPECT_LT(nscc.window_bytes(), once);
}

// The choice of paths leaves out one of four that marks all: the window has no part in that.
TEST(MrcNscc, MarksOfOnePathOfFourShrinkNothing) {
  Nscc nscc = window_at(64 * kMtu);
  for (uint32_t i = 0; i < 400; ++i)
    nscc.on_sack(kMtu, i % 4 == 0 ? kRtt + 10 * kTarget : kRtt, i % 4 == 0, 1'000'000 + i * kRtt);
  EXPECT_GE(nscc.window_bytes(), 64u * kMtu);
  EXPECT_LT(marks_until_decrease(nscc, kRtt + 10 * kTarget, 100'000'000), 12u);
}

// A sender that began behind a full queue takes that for the path's length: marks tell better.
TEST(MrcNscc, LastingMarksShrinkAWindowThatKnowsNoShorterRoundTrip) {
  Nscc nscc;
  nscc.reset({.mtu_bytes = kMtu, .most_bytes = kMost, .least_target_ns = kTarget});
  EXPECT_LT(marks_until_decrease(nscc, kRtt + kTarget, 1'000'000), 32u);
}

// The queue's threshold is where the target is, if that is nearer.
TEST(MrcNscc, TheTargetIsNotAboveTheDelayThatMarksComeWith) {
  Nscc nscc = window_at(64 * kMtu);
  EXPECT_EQ(nscc.target_ns(), kTarget);
  for (uint32_t i = 0; i < 100; ++i) nscc.on_sack(kMtu, kRtt + kTarget / 2, true, 1'000'000);
  EXPECT_NEAR(static_cast<double>(nscc.target_ns()), kTarget * 7 / 16, kTarget / 20);
  for (uint32_t i = 0; i < 100; ++i) nscc.on_sack(kMtu, kRtt, true, 1'000'000);
  EXPECT_LT(nscc.target_ns(), kTarget / 16) << "it follows";
  EXPECT_EQ(nscc.on_sack(kMtu, kRtt, true, 2'000'000), Nscc::Case::kDecrease) << "lasting marks";
}

TEST(MrcNscc, AllGrowAlikeForSomeRoundTripsAfterADecrease) {
  Nscc nscc = window_at(64 * kMtu);
  ASSERT_LT(marks_until_decrease(nscc, kRtt + 10 * kTarget, 1'000'000), 12u);
  EXPECT_EQ(nscc.on_sack(kMtu, kRtt, false, 1'000'000 + 15 * kRtt), Nscc::Case::kFair);
  EXPECT_EQ(nscc.on_sack(kMtu, kRtt, false, 1'000'000 + 16 * kRtt), Nscc::Case::kProportional);
}

// A trimmed packet found a queue full: no more is to be on its way than came.
TEST(MrcNscc, ATrimmedPacketShrinksTheWindowToWhatComes) {
  Nscc nscc = window_at(kMost);
  for (uint32_t i = 0; i < 10; ++i) nscc.on_sack(kMtu, kRtt, false, 1'000'000 + i);
  nscc.on_loss(true, 1'000'000, 1'000'100);
  const uint64_t once = nscc.window_bytes();
  EXPECT_LE(once, 11u * kMtu);
  EXPECT_GE(once, 9u * kMtu);
  nscc.on_loss(true, 1'000'050, 1'000'200);
  EXPECT_EQ(nscc.window_bytes(), once) << "that one had left before";
}

TEST(MrcNscc, LossesShrinkTheWindowIfTheyAreMany) {
  Nscc few = window_at(kMost), many = few;
  for (uint32_t i = 0; i < 1000; ++i) {
    few.on_sack(kMtu, kRtt, false, 1'000'000 + i * kRtt / 100);
    many.on_sack(kMtu, kRtt, false, 1'000'000 + i * kRtt / 100);
    const TimeNs now_ns = 1'000'000 + i * kRtt / 100;
    if (i % 100 == 0) few.on_loss(false, now_ns - 1, now_ns);
    if (i % 4 == 0) many.on_loss(false, now_ns - 1, now_ns);
  }
  EXPECT_EQ(few.window_bytes(), kMost);
  EXPECT_LT(many.window_bytes(), kMost / 2);
}

TEST(MrcNscc, APenaltyLeavesAPacketAtLeastAndGoesAgain) {
  Nscc nscc = window_at(64 * kMtu);
  nscc.on_penalty(127);
  EXPECT_EQ(nscc.window_psns(), 1u);
  nscc.on_penalty(64);
  EXPECT_NEAR(nscc.window_psns(), 32, 1);
  nscc.on_penalty(0);
  EXPECT_EQ(nscc.window_psns(), 64u);
}

// ---- entropy values

EntropySet set_of(uint32_t count, uint64_t seed = 1) {
  EntropySet set;
  set.reset(count, seed);
  return set;
}
uint32_t taken(EntropySet& set, uint32_t other_than = EntropySet::kNone) {
  const uint32_t index = set.next(other_than);
  set.take();
  return index;
}

// Each plane has as many, and one plane follows the other, whatever their order in it.
TEST(MrcEntropy, ValuesAreSpreadOverPlanes) {
  for (const uint32_t planes : {1u, 2u, 4u, 16u})
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      EntropySet set;
      set.reset(64, seed, planes);
      std::set<uint16_t> values;
      for (uint32_t i = 0; i < set.size(); ++i) {
        values.insert(set.value(i));
        EXPECT_GE(set.value(i), wire::kFlowTagBase);
        EXPECT_EQ(set.value(i) % planes, (set.value(0) + i) % planes);
      }
      EXPECT_EQ(values.size(), 64u);
    }
  // Queue pairs begin with different ones, and have different orders.
  std::set<uint32_t> first, steps;
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    EntropySet set;
    set.reset(16, seed, 4);
    first.insert(set.value(0) % 4);
    steps.insert(set.value(4) > set.value(0) ? 1 : 0);
  }
  EXPECT_EQ(first.size(), 4u);
  EXPECT_EQ(steps.size(), 2u);
}

TEST(MrcEntropy, ValuesAreDifferentPortsInAnOrderOfTheSeeds) {
  for (const uint32_t count : {1u, 2u, 16u, 256u}) {
    for (uint64_t seed = 0; seed < 50; ++seed) {
      const EntropySet set = set_of(count, seed);
      std::set<uint16_t> values;
      for (uint32_t i = 0; i < count; ++i) values.insert(set.value(i));
      EXPECT_EQ(values.size(), count);
      EXPECT_GE(*values.begin(), 0xc000);
      EXPECT_EQ(set.find(set.value(count - 1)), count - 1);
    }
  }
  EXPECT_NE(set_of(16, 1).value(0), set_of(16, 2).value(0));
  EXPECT_EQ(set_of(4).find(80), EntropySet::kNone);
}

TEST(MrcEntropy, AllAreTakenInTurn) {
  EntropySet set = set_of(4);
  for (uint32_t i = 0; i < 12; ++i) EXPECT_EQ(taken(set), i % 4);
  EXPECT_EQ(set.next(), set.next()) << "nothing has left";
}

TEST(MrcEntropy, ASkippedOneIsLeftOutOnce) {
  EntropySet set = set_of(4);
  set.note_mark(1, PathMark::kSkipOnce);
  EXPECT_EQ(set.state(1), EvState::kSkip);
  EXPECT_EQ(taken(set), 0u);
  EXPECT_EQ(taken(set), 2u);
  EXPECT_EQ(taken(set), 3u);
  EXPECT_EQ(taken(set), 0u);
  EXPECT_EQ(taken(set), 1u);
}

TEST(MrcEntropy, ABadOneComesBackByAProbeAlone) {
  EntropySet set = set_of(4);
  set.note_silence(2, 0);
  set.note_mark(2, PathMark::kNone);
  set.note_mark(2, PathMark::kSkipOnce);
  EXPECT_EQ(set.state(2), EvState::kAssumedBad);
  EXPECT_EQ(set.next_bad(3), 2u);
  for (int i = 0; i < 12; ++i) EXPECT_NE(taken(set), 2u);
  set.note_probe_answer(2, PathMark::kAlwaysSkip);
  EXPECT_EQ(set.state(2), EvState::kAssumedBad);
  set.note_probe_answer(2, PathMark::kSkipOnce);
  EXPECT_EQ(set.state(2), EvState::kSkip);
  set.note_mark(2, PathMark::kAlwaysSkip);
  set.note_probe_answer(2, PathMark::kNone);
  EXPECT_EQ(set.state(2), EvState::kGood);
  EXPECT_EQ(set.next_bad(0), EntropySet::kNone);
}

TEST(MrcEntropy, ADeniedOneIsNobodysToBringBack) {
  EntropySet set = set_of(2);
  set.deny(0, mrc::Denier::kController, true);
  set.note_silence(0, 0);
  set.note_probe_answer(0, PathMark::kNone);
  EXPECT_EQ(set.state(0), EvState::kDenied);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(taken(set), 1u);
  set.note_silence(1, 0);
  EXPECT_EQ(taken(set), 1u) << "rather a bad one";
  set.deny(0, mrc::Denier::kController, false);
  EXPECT_EQ(set.state(0), EvState::kGood);
}

TEST(MrcEntropy, ARepetitionGoesAnotherWayIfThereIsOne) {
  EntropySet set = set_of(4);
  EXPECT_NE(taken(set, 0), 0u);
  EntropySet one = set_of(1);
  EXPECT_EQ(taken(one, 0), 0u);
  EntropySet two = set_of(2);
  two.note_silence(1, 0);
  EXPECT_EQ(taken(two, 0), 1u) << "a bad one rather than the same";
}

TEST(MrcEntropy, WhereAllAreBadOneIsTaken) {
  EntropySet set = set_of(4);
  for (uint32_t i = 0; i < 4; ++i) set.note_silence(i, 0);
  std::set<uint32_t> seen;
  for (int i = 0; i < 4; ++i) seen.insert(taken(set));
  EXPECT_EQ(seen.size(), 4u);
}

// ---- retries

TEST(MrcRetries, SomeAreEquallyFarApartAndThenTwiceAsFarEach) {
  const RetrySchedule schedule{.timeout = 10, .linear = 2, .exponential = 3};
  constexpr uint64_t kTimeout = 1024ull << 10;
  EXPECT_EQ(schedule.timeout_ns(), kTimeout);
  for (uint32_t retry = 0; retry <= 2; ++retry) EXPECT_EQ(schedule.wait_ns(retry), kTimeout);
  EXPECT_EQ(schedule.wait_ns(3), 2 * kTimeout);
  EXPECT_EQ(schedule.wait_ns(5), 8 * kTimeout);
  EXPECT_EQ(schedule.limit_ns(), (3 + 2 + 4 + 8) * kTimeout);
}

TEST(MrcRetries, SomeConnectionsNeverEnd) {
  EXPECT_EQ((RetrySchedule{.timeout = 0}.limit_ns()), UINT64_MAX);
  EXPECT_EQ((RetrySchedule{.exponential = 25}.limit_ns()), UINT64_MAX);
  EXPECT_NE((RetrySchedule{.timeout = 31, .exponential = 24}.limit_ns()), UINT64_MAX);
}

}  // namespace
}  // namespace hostnic::mrc
