// SPDX-License-Identifier: BSD-3-Clause
// What MRC's requester knows of its paths (docs/mrc.md, "Paths that lose"): which lost what, and
// the states of entropy values, the latter by all sequences of what may happen to them.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "protocol/transport/mrc/entropy_set.h"
#include "protocol/transport/mrc/path_ledger.h"

namespace hostnic::mrc {
namespace {

using wire::mrc::PathMark;

// ---- what left by which path

constexpr uint64_t kShortestNs = 1000;

PathLedger ledger_of(uint32_t window = 64) {
  PathLedger ledger;
  ledger.reset(window);
  return ledger;
}
// Sends PSNs from `first` on, each by the next path of `paths`, a nanosecond apart.
void send(PathLedger& ledger, uint32_t first, const std::vector<uint32_t>& paths) {
  for (uint32_t i = 0; i < paths.size(); ++i) ledger.note_sent(Psn(first + i), paths[i], false, i);
}
uint32_t come(PathLedger& ledger, uint32_t psn, TimeNs now_ns = 10'000) {
  return ledger.note_come(Psn(psn), kShortestNs, now_ns);
}
std::vector<uint32_t> lost(PathLedger& ledger) {
  std::vector<uint32_t> psns;
  ledger.find_lost([&](Psn psn, uint32_t) { psns.push_back(psn.value()); });
  return psns;
}
using Psns = std::vector<uint32_t>;

TEST(MrcLedger, WhatComesByAPathSaysWhatThatPathHasLost) {
  PathLedger ledger = ledger_of();
  send(ledger, 100, {0, 1, 2, 0, 1, 2, 0, 1, 2});
  EXPECT_EQ(come(ledger, 106), 0u);
  EXPECT_EQ(lost(ledger), (Psns{100, 103}));
  EXPECT_EQ(lost(ledger), Psns{}) << "each is said once";
  EXPECT_FALSE(ledger.is_waited_for(Psn(100)));
  EXPECT_TRUE(ledger.is_waited_for(Psn(101))) << "other paths may be longer";
  EXPECT_EQ(come(ledger, 104), 1u);
  EXPECT_EQ(lost(ledger), (Psns{101}));
  EXPECT_EQ(come(ledger, 104), PathLedger::kNoPath) << "it had come";
}

// One SACK's bits are all taken before anything is found lost.
TEST(MrcLedger, WhatIsToldTogetherIsNotLostInBetween) {
  PathLedger ledger = ledger_of();
  send(ledger, 0xffffff, {0, 0, 0});
  for (const uint32_t psn : {1u, 0u, 0xffffffu}) come(ledger, psn);
  EXPECT_EQ(lost(ledger), Psns{});
}

TEST(MrcLedger, ARepetitionIsWaitedForOnItsOwnPath) {
  PathLedger ledger = ledger_of();
  send(ledger, 0, {0, 0, 1, 1});
  come(ledger, 1);
  EXPECT_EQ(lost(ledger), (Psns{0}));
  ledger.note_sent(Psn(0), 1, true, 20'000);
  EXPECT_EQ(ledger.path_of(Psn(0)), 1u);
  EXPECT_EQ(come(ledger, 0, 20'500), PathLedger::kNoPath)
      << "too soon for the repetition: the first one was only late";
  EXPECT_EQ(lost(ledger), Psns{}) << "which says nothing of the other path";
  ledger.note_sent(Psn(4), 1, true, 30'000);
  EXPECT_EQ(come(ledger, 4, 32'000), 1u);
  EXPECT_EQ(lost(ledger), (Psns{2, 3}));
}

TEST(MrcLedger, APathThatChangesOrderIsWaitedForLonger) {
  PathLedger ledger = ledger_of();
  ledger.note_spurious();
  EXPECT_EQ(ledger.overtakers(), 2u);
  send(ledger, 0, {0, 0, 0});
  come(ledger, 1);
  EXPECT_EQ(lost(ledger), Psns{});
  come(ledger, 2);
  EXPECT_EQ(lost(ledger), (Psns{0}));
  for (int i = 0; i < 10; ++i) ledger.note_spurious();
  EXPECT_EQ(ledger.overtakers(), PathLedger::kMostOvertakers);
  for (uint32_t psn = 3; psn < 5000; ++psn) {
    send(ledger, psn, {0});
    come(ledger, psn);
  }
  EXPECT_EQ(ledger.overtakers(), 1u);
}

TEST(MrcLedger, AScoreTellsABadPathFromOneThatLosesNowAndThen) {
  PathLedger ledger = ledger_of(1024);
  const auto run = [&](uint32_t every) {
    ledger.clear_score(0);
    for (uint32_t psn = 0; psn < 1000; ++psn) {
      ledger.note_sent(Psn(psn), 0, false, 1);
      if (psn % every == 0)
        EXPECT_EQ(ledger.give_up(Psn(psn)), 0u);
      else
        come(ledger, psn);
      if (ledger.score(0) >= PathLedger::kBadScore) return psn;
    }
    return UINT32_MAX;
  };
  EXPECT_EQ(run(100), UINT32_MAX) << "1 %";
  EXPECT_EQ(run(10), UINT32_MAX) << "10 %";
  EXPECT_LT(run(2), 16u) << "half";
  EXPECT_EQ(run(1), 2u) << "all: with the third";
}

TEST(MrcLedger, WhatWasRefusedIsNoLoss) {
  PathLedger ledger = ledger_of();
  send(ledger, 0, {0, 0});
  ledger.forget(Psn(0));
  EXPECT_EQ(ledger.score(0), 0u);
  EXPECT_EQ(ledger.give_up(Psn(0)), PathLedger::kNoPath);
  come(ledger, 1);
  EXPECT_EQ(lost(ledger), Psns{});
}

// PSNs of the window before leave their lines when their places are taken.
TEST(MrcLedger, PlacesAreUsedAgain) {
  PathLedger ledger = ledger_of(4);
  for (uint32_t psn = 0; psn < 1000; ++psn) ledger.note_sent(Psn(psn), psn % 3, psn % 7 == 0, psn);
  EXPECT_FALSE(ledger.is_waited_for(Psn(995)));
  EXPECT_TRUE(ledger.is_waited_for(Psn(996)));
  come(ledger, 999, 100'000);  // by path 0, as 996 went
  EXPECT_EQ(lost(ledger), (Psns{996}));
}

// ---- states

// All that may happen to three values, in all sequences of this length, against a plain model.
enum class Event : uint8_t {
  kMark,
  kBad,
  kSilence,
  kProbe,
  kMarkedProbe,
  kSlowProbe,
  kDeny,
  kAllow
};
constexpr uint32_t kEvents = 8, kValues = 3, kLength = 4;

EvState expected_after(EvState state, Event event) {
  using enum EvState;
  if (state == kDenied) return event == Event::kAllow ? kGood : kDenied;
  if (event == Event::kDeny) return kDenied;
  if (state == kAssumedBad) {
    if (event == Event::kProbe) return kGood;
    return event == Event::kMarkedProbe ? kSkip : kAssumedBad;
  }
  if (event == Event::kMark) return kSkip;
  return event == Event::kBad || event == Event::kSilence ? kAssumedBad : state;
}

void apply(EntropySet& set, uint32_t index, Event event) {
  switch (event) {
    case Event::kMark:
      return set.note_mark(index, PathMark::kSkipOnce);
    case Event::kBad:
      return set.note_mark(index, PathMark::kAlwaysSkip);
    case Event::kSilence:
      set.note_silence(index, 0);
      return;
    case Event::kProbe:
      return set.note_probe_answer(index, PathMark::kNone);
    case Event::kMarkedProbe:
      return set.note_probe_answer(index, PathMark::kSkipOnce);
    case Event::kSlowProbe:
      return set.note_probe_answer(index, PathMark::kNone, /*is_slow=*/true);
    case Event::kDeny:
      return set.deny(index, mrc::Denier::kController, true);
    case Event::kAllow:
      return set.deny(index, mrc::Denier::kController, false);
  }
}

// A packet takes a good value if there is one; else one that is skipped, which is good then; else a
// bad one; a denied one never, unless there is nothing else. Skipped ones that are passed are good.
void check_next(EntropySet& set, std::array<EvState, kValues>& states) {
  const bool any_usable = std::ranges::any_of(
      states, [](EvState s) { return s == EvState::kGood || s == EvState::kSkip; });
  const bool all_denied = std::ranges::count(states, EvState::kDenied) == kValues;
  const uint32_t taken = set.next();
  set.take();
  ASSERT_LT(taken, kValues);
  if (any_usable) {
    EXPECT_TRUE(states[taken] == EvState::kGood || states[taken] == EvState::kSkip);
  } else if (!all_denied) {
    EXPECT_EQ(states[taken], EvState::kAssumedBad);
  }
  for (uint32_t i = 0; i < kValues; ++i) {
    if (states[i] == EvState::kSkip && set.state(i) == EvState::kGood) states[i] = EvState::kGood;
    EXPECT_EQ(set.state(i), states[i]) << "a packet changes nothing else";
  }
}

TEST(MrcEntropy, AllSequencesOfEventsLeadWhereTheyShould) {
  constexpr uint32_t kChoices = kEvents * kValues + 1;  // the last: a packet leaves
  uint64_t sequences = 1;
  for (uint32_t i = 0; i < kLength; ++i) sequences *= kChoices;
  for (uint64_t sequence = 0; sequence < sequences; ++sequence) {
    EntropySet set;
    set.reset(kValues, 1);
    std::array<EvState, kValues> states{};
    uint64_t rest = sequence;
    for (uint32_t i = 0; i < kLength; ++i, rest /= kChoices) {
      const auto choice = static_cast<uint32_t>(rest % kChoices);
      if (choice == kChoices - 1) {
        check_next(set, states);
        continue;
      }
      const uint32_t index = choice / kEvents;
      const auto event = static_cast<Event>(choice % kEvents);
      apply(set, index, event);
      states[index] = expected_after(states[index], event);
      ASSERT_EQ(set.state(index), states[index]) << sequence << " " << i;
    }
    check_next(set, states);
    if (testing::Test::HasFailure()) FAIL() << "sequence " << sequence;
  }
}

// ---- when bad ones are probed

TEST(MrcEntropy, ProbesThatBringNothingAreFurtherAndFurtherApart) {
  EntropySet set;
  set.reset(4, 1);
  TimeNs now_ns = 1'000'000;
  EXPECT_TRUE(set.note_silence(2, now_ns));
  EXPECT_FALSE(set.note_silence(2, now_ns)) << "it was";
  EXPECT_EQ(set.next_bad(0, now_ns), EntropySet::kNone);
  uint64_t wait_ns = EntropySet::kFirstWaitNs;
  for (uint32_t i = 0; i < 10; ++i) {
    EXPECT_EQ(set.next_bad(0, now_ns + wait_ns - 1), EntropySet::kNone) << i;
    now_ns += wait_ns;
    EXPECT_EQ(set.next_bad(0, now_ns), 2u) << i;
    set.note_probed(2, now_ns);
    wait_ns = std::min(wait_ns * 2, EntropySet::kFirstWaitNs << EntropySet::kMostDoublings);
  }
}

TEST(MrcEntropy, OneThatComesBackInVainWaitsLongerAndOneThatProvesItselfDoesNot) {
  EntropySet set;
  set.reset(4, 1);
  set.note_silence(0, 0);
  set.note_probe_answer(0, PathMark::kNone);
  set.note_silence(0, 0);
  EXPECT_EQ(set.next_bad(0, 2 * EntropySet::kFirstWaitNs - 1), EntropySet::kNone);
  EXPECT_EQ(set.next_bad(0, 2 * EntropySet::kFirstWaitNs), 0u);
  set.note_probe_answer(0, PathMark::kNone);
  for (uint32_t i = 0; i < EntropySet::kProven; ++i) set.note_come(0);
  set.note_silence(0, 0);
  EXPECT_EQ(set.next_bad(0, EntropySet::kFirstWaitNs), 0u);
}

TEST(MrcEntropy, WhereThreeQuartersAreBadTheNetworkIs) {
  EntropySet set;
  set.reset(8, 1);
  for (uint32_t i = 0; i < 5; ++i) set.note_silence(i, 0);
  EXPECT_FALSE(set.is_most_bad());
  set.note_silence(5, 0);
  EXPECT_TRUE(set.is_most_bad());
}

}  // namespace
}  // namespace hostnic::mrc
