// SPDX-License-Identifier: BSD-3-Clause
// MRC's two windows: what is accepted and reported, what may leave and is missing, against a plain
// model of each, and one against the other over a network that loses and reorders.
#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <set>
#include <vector>

#include "protocol/transport/mrc/arrival_window.h"
#include "protocol/transport/mrc/send_window.h"

namespace hostnic::mrc {
namespace {

using Place = ArrivalWindow::Place;
using wire::mrc::Seth;

constexpr uint32_t kUnit = wire::mrc::kMprUnitPsns;

ArrivalWindow arrivals(Psn first, uint8_t units = 1) {
  ArrivalWindow window;
  window.reset(first, units);
  return window;
}
SendWindow sender(Psn first, uint32_t sent, uint8_t units = 1, bool is_dynamic = false) {
  SendWindow window;
  window.reset(first, units, is_dynamic);
  for (uint32_t i = 0; i < sent; ++i) EXPECT_EQ(window.take(), first + i);
  return window;
}
Seth report(ArrivalWindow& window, Psn answered) {
  Seth sack;
  window.report(answered, sack);
  return sack;
}
std::set<uint32_t> shown(const Seth& sack) {
  std::set<uint32_t> psns;
  for (uint32_t bit = 0; bit < 64; ++bit)
    if ((sack.bitmap >> bit & 1) != 0) psns.insert((sack.bitmap_psn() + bit).value());
  return psns;
}
std::vector<uint32_t> missing(const SendWindow& window, uint32_t most = 1000) {
  std::vector<uint32_t> psns;
  window.for_each_missing(most, [&](Psn psn) { psns.push_back(psn.value()); });
  return psns;
}

TEST(MrcArrivals, TheWindowsEdges) {
  for (const uint32_t value : {0u, 1000u, 0xffffc0u, 0xffffffu}) {
    const Psn first{value};
    ArrivalWindow window = arrivals(first);
    EXPECT_EQ(window.classify(first), Place::kNew);
    EXPECT_EQ(window.classify(first + (kUnit - 1)), Place::kNew);
    EXPECT_EQ(window.classify(first + kUnit), Place::kBeyond);
    EXPECT_EQ(window.classify(first + 0x7fffff), Place::kBeyond);
    EXPECT_EQ(window.classify(first + Psn::kMask), Place::kOld);
    EXPECT_EQ(window.classify(first + 0x800000), Place::kOld);
    window.receive(first);
    EXPECT_EQ(window.classify(first), Place::kOld);
    EXPECT_EQ(window.classify(first + kUnit), Place::kNew);
    EXPECT_EQ(window.cumulative(), first);
  }
}

TEST(MrcArrivals, AGapIsFilled) {
  ArrivalWindow window = arrivals(Psn{0xfffffe});
  window.receive(Psn{0});
  window.receive(Psn{1});
  window.receive(Psn{0xffffff});
  EXPECT_EQ(window.out_of_order_count(), 3u);
  EXPECT_EQ(window.expected(), Psn{0xfffffe});
  EXPECT_EQ(window.classify(Psn{0}), Place::kReceived);
  window.receive(Psn{0xfffffe});
  EXPECT_EQ(window.expected(), Psn{2});
  EXPECT_EQ(window.out_of_order_count(), 0u);
  EXPECT_FALSE(window.has_unreported()) << "the cumulative PSN says it";
}

TEST(MrcArrivals, AreAsAPlainModelSays) {
  std::mt19937 random(1);
  for (uint8_t units = 1; units <= 3; ++units) {
    ArrivalWindow window = arrivals(Psn{0xffff00}, units);
    uint64_t expected = 0xffff00;
    std::set<uint64_t> ahead;
    for (int step = 0; step < 60000; ++step) {
      // Mostly near the left edge, which otherwise would wait for long.
      const uint64_t spread = random() % 4 == 0 ? units * kUnit + 20 : 12;
      const uint64_t value = expected + random() % spread - random() % 8;
      const Psn psn{static_cast<uint32_t>(value)};
      const Place place = value < expected                    ? Place::kOld
                          : value >= expected + units * kUnit ? Place::kBeyond
                          : ahead.count(value) != 0           ? Place::kReceived
                                                              : Place::kNew;
      ASSERT_EQ(window.classify(psn), place) << step;
      if (place == Place::kNew) {
        window.receive(psn);
        ahead.insert(value);
        while (ahead.erase(expected) != 0) ++expected;
      }
      ASSERT_EQ(window.expected(), Psn{static_cast<uint32_t>(expected)});
      ASSERT_EQ(window.out_of_order_count(), ahead.size());
      if (random() % 4 != 0) continue;
      const Seth sack = report(window, psn);
      ASSERT_EQ(sack.cumulative_psn, window.cumulative());
      ASSERT_EQ(sack.ack_psn(), psn);
      std::set<uint32_t> inside;
      for (const uint64_t each : ahead) {
        const int32_t bit = distance(sack.bitmap_psn(), Psn{static_cast<uint32_t>(each)});
        if (bit >= 0 && bit < 64) inside.insert(each & Psn::kMask);
      }
      ASSERT_EQ(shown(sack), inside) << step;
    }
    EXPECT_GT(expected, 0x1000000u) << "it went round";
  }
}

TEST(MrcArrivals, ASackShowsWhatHasComeBehindAGap) {
  ArrivalWindow window = arrivals(Psn{0});
  for (const uint32_t psn : {0, 1, 2, 3, 4, 6, 7, 9, 10, 11}) window.receive(Psn{psn});
  const Seth sack = report(window, Psn{11});
  EXPECT_EQ(sack.cumulative_psn, Psn{4});
  EXPECT_EQ(sack.ack_offset, 7);
  EXPECT_EQ(sack.sack_offset, 2) << "the first that has come behind the gap";
  EXPECT_EQ(sack.bitmap, 0b111011u);
  EXPECT_FALSE(window.has_unreported());
}

// A window is longer than a bitmap: what did not fit is reported next, and once.
TEST(MrcArrivals, EachIsReportedAndAgainWhileThereIsRoom) {
  ArrivalWindow window = arrivals(Psn{0xffffff}, 4);
  for (const uint32_t psn : {2, 100, 101, 300, 400}) window.receive(Psn{psn});
  EXPECT_EQ(shown(report(window, Psn{400})), (std::set<uint32_t>{2}));
  EXPECT_TRUE(window.has_unreported());
  EXPECT_EQ(shown(report(window, Psn{400})), (std::set<uint32_t>{100, 101}));
  EXPECT_EQ(shown(report(window, Psn{400})), (std::set<uint32_t>{300}));
  EXPECT_EQ(shown(report(window, Psn{400})), (std::set<uint32_t>{400}));
  EXPECT_FALSE(window.has_unreported());
  window.receive(Psn{3});
  EXPECT_EQ(shown(report(window, Psn{3})), (std::set<uint32_t>{2, 3}))
      << "the SACK of the one before may be lost";
  EXPECT_FALSE(window.has_unreported()) << "the others have been";
  EXPECT_EQ(shown(report(window, Psn{300})), (std::set<uint32_t>{300}))
      << "a duplicate is answered";
}

// The bitmap's bits behind the last that has come would be others' of the ring.
TEST(MrcArrivals, ABitmapAtTheRightEdgeShowsNothingOfTheLeftOne) {
  ArrivalWindow window = arrivals(Psn{0}, kMaxMprUnits);
  window.receive(Psn{10});
  EXPECT_EQ(shown(report(window, Psn{10})), (std::set<uint32_t>{10}));
  window.receive(Psn{4095});
  EXPECT_EQ(shown(report(window, Psn{4095})), (std::set<uint32_t>{4095}));
  EXPECT_EQ(shown(report(window, Psn{4095})), (std::set<uint32_t>{4095})) << "of a duplicate";
}

TEST(MrcArrivals, AShrinkingWindowTakesWhatItHadPromised) {
  ArrivalWindow window = arrivals(Psn{0}, 2);
  window.resize(1);
  EXPECT_EQ(window.limit(), Psn{256});
  EXPECT_EQ(window.classify(Psn{255}), Place::kNew);
  for (uint32_t psn = 0; psn < 100; ++psn) window.receive(Psn{psn});
  EXPECT_EQ(window.limit(), Psn{256});
  for (uint32_t psn = 100; psn < 200; ++psn) window.receive(Psn{psn});
  EXPECT_EQ(window.limit(), Psn{328});
  window.resize(kMaxMprUnits);
  EXPECT_EQ(window.limit(), Psn{200 + 4096});
  window.resize(255);
  EXPECT_EQ(window.mpr_units(), kMaxMprUnits) << "no more than is tracked";
}

TEST(MrcSends, AWindowIsFull) {
  SendWindow window = sender(Psn{0xfffff0}, 0);
  EXPECT_EQ(window.room(), kUnit);
  window = sender(Psn{0xfffff0}, kUnit);
  EXPECT_EQ(window.room(), 0u);
  const auto result = window.on_sack({.cumulative_psn = Psn{0xfffff9}});
  EXPECT_TRUE(result.is_valid);
  EXPECT_EQ(result.newly_come, 10u);
  EXPECT_EQ(window.room(), 10u);
  EXPECT_EQ(window.una(), Psn{0xfffffa});
}

TEST(MrcSends, WhatIsMissingIsKnown) {
  SendWindow window = sender(Psn{0}, 12);
  EXPECT_TRUE(missing(window).empty());
  const Seth sack{.cumulative_psn = Psn{4}, .sack_offset = 2, .bitmap = 0b111011};
  EXPECT_EQ(window.on_sack(sack).newly_come, 5u + 5u);
  EXPECT_EQ(missing(window), (std::vector<uint32_t>{5, 8}));
  EXPECT_EQ(missing(window, 1), (std::vector<uint32_t>{5}));
  EXPECT_EQ(window.on_sack(sack).newly_come, 0u) << "says nothing new";
  EXPECT_TRUE(window.has_come(Psn{4}) && window.has_come(Psn{11}));
  EXPECT_FALSE(window.has_come(Psn{5}) || window.has_come(Psn{12}));
  // An older SACK, whose bitmap lies before its cumulative PSN's gap, fills one.
  EXPECT_EQ(window.on_sack({.cumulative_psn = Psn{3}, .sack_offset = 2, .bitmap = 1}).newly_come,
            1u);
  EXPECT_EQ(missing(window), (std::vector<uint32_t>{8}));
  EXPECT_EQ(window.una(), Psn{8});
  EXPECT_EQ(window.on_sack({.cumulative_psn = Psn{11}}).newly_come, 1u);
  EXPECT_TRUE(missing(window).empty());
}

TEST(MrcSends, ASackOfWhatNeverLeftChangesNothing) {
  SendWindow window = sender(Psn{10}, 5);
  EXPECT_FALSE(window.on_sack({.cumulative_psn = Psn{15}}).is_valid);
  EXPECT_FALSE(
      window.on_sack({.cumulative_psn = Psn{9}, .sack_offset = 1, .bitmap = 0b100001}).is_valid);
  EXPECT_FALSE(window.on_sack({.cumulative_psn = Psn{0x800100}}).is_valid);
  EXPECT_FALSE(
      window.on_sack({.cumulative_psn = Psn{0xb00000}, .sack_offset = 1, .bitmap = 1}).is_valid);
  EXPECT_EQ(window.una(), Psn{10});
  EXPECT_TRUE(missing(window).empty());
  EXPECT_TRUE(
      window.on_sack({.cumulative_psn = Psn{9}, .sack_offset = 1, .bitmap = 0b10001}).is_valid);
  EXPECT_EQ(window.una(), Psn{11});
}

// The first layer says what has come, the second what is done.
TEST(MrcSends, ASackIsNoCompletion) {
  SendWindow window = sender(Psn{0}, 10);
  window.on_sack({.cumulative_psn = Psn{9}});
  EXPECT_EQ(window.una(), Psn{10});
  EXPECT_EQ(window.done(), Psn{0});
  EXPECT_EQ(window.on_transport_ack(Psn{3}), 4u);
  EXPECT_EQ(window.done(), Psn{4});
  EXPECT_EQ(window.on_transport_ack(Psn{2}), 0u) << "an old one";
  EXPECT_EQ(window.on_transport_ack(Psn{10}), 0u) << "of what never left";
  EXPECT_EQ(window.done(), Psn{4});
  // What is done has come, whatever became of the SACKs.
  SendWindow unheard = sender(Psn{0}, 10);
  EXPECT_EQ(unheard.on_transport_ack(Psn{6}), 7u);
  EXPECT_EQ(unheard.una(), Psn{7});
}

TEST(MrcSends, TheMprMovesWhereThatIsAgreedUpon) {
  SendWindow window = sender(Psn{0}, 200, 2, true);
  window.on_sack({.cumulative_psn = Psn{9}, .mpr_units = 1});
  EXPECT_EQ(window.mpr_units(), 1);
  EXPECT_EQ(window.room(), 0u) << "190 are out";
  EXPECT_TRUE(window.may_repeat(Psn{10}) && window.may_repeat(Psn{137}));
  EXPECT_FALSE(window.may_repeat(Psn{138}) || window.may_repeat(Psn{9}));
  window.on_sack({.cumulative_psn = Psn{9}, .mpr_units = 0});
  EXPECT_EQ(window.mpr_units(), 1) << "0 says nothing";
  window.on_sack({.cumulative_psn = Psn{9}, .mpr_units = 255});
  EXPECT_EQ(window.mpr_units(), kMaxMprUnits);
  SendWindow fixed = sender(Psn{0}, 10, 2, false);
  fixed.on_sack({.cumulative_psn = Psn{0}, .mpr_units = 1});
  EXPECT_EQ(fixed.mpr_units(), 2);
}

// SACKs overtake each other; an older one does not bring the window back.
TEST(MrcSends, AnOlderSackDoesNotMoveTheWindow) {
  SendWindow window = sender(Psn{0}, 100, 2, true);
  window.on_sack({.cumulative_psn = Psn{49}, .mpr_units = 1});
  EXPECT_EQ(window.room(), 50 + kUnit - 100);
  EXPECT_TRUE(window.on_sack({.cumulative_psn = Psn{9}, .mpr_units = 4}).is_valid);
  EXPECT_EQ(window.mpr_units(), 1);
  EXPECT_EQ(window.room(), 50 + kUnit - 100);
}

// The places of PSNs that are done are free for others, 4096 later.
TEST(MrcSends, WhatIsDoneIsForgotten) {
  SendWindow window = sender(Psn{0}, 12, kMaxMprUnits);
  window.on_sack({.cumulative_psn = Psn{4}, .sack_offset = 2, .bitmap = 0b111011});
  EXPECT_EQ(window.on_transport_ack(Psn{11}), 12u);
  EXPECT_TRUE(missing(window).empty());
  for (uint32_t i = 0; i < 4096; ++i) window.take();
  window.on_sack({.cumulative_psn = Psn{4096}, .sack_offset = 9, .bitmap = 1});
  EXPECT_TRUE(window.has_come(Psn{4105}));
  EXPECT_EQ(missing(window),
            (std::vector<uint32_t>{4097, 4098, 4099, 4100, 4101, 4102, 4103, 4104}));
}

// A network that loses a third of everything and delivers in any order; the responder changes its
// window's size now and then.
class BothEnds {
 public:
  BothEnds(uint32_t seed, Psn first) : random_(seed) {
    sends_.reset(first, 2, true);
    arrivals_.reset(first, 2);
  }
  void run(uint32_t psns) {
    const Psn end = sends_.next() + psns;
    for (int step = 0; sends_.una() != end; ++step) {
      ASSERT_LT(step, 200000);
      if (random_() % 500 == 0) arrivals_.resize(static_cast<uint8_t>(1 + random_() % 4));
      while (sends_.room() != 0 && sends_.next() != end && random_() % 8 != 0) post(sends_.take());
      repeat();
      if (!packets_.empty()) arrive(taken(packets_));
      if (!sacks_.empty()) {
        ASSERT_TRUE(sends_.on_sack(taken(sacks_)).is_valid);
      }
      ASSERT_GE(distance(sends_.una(), arrivals_.expected()), 0) << "nothing is said to have come";
    }
    EXPECT_EQ(arrivals_.expected(), end);
    EXPECT_EQ(arrivals_.out_of_order_count(), 0u);
  }

 private:
  void post(Psn psn) {
    if (random_() % 3 != 0) packets_.push_back(psn);
  }
  void repeat() {
    if (random_() % 16 != 0) return;
    // The oldest after a timeout; where nothing is out, what was last stands for a probe.
    if (random_() % 4 == 0)
      post(sends_.una() == sends_.next() ? sends_.una() + Psn::kMask : sends_.una());
    sends_.for_each_missing(4, [&](Psn psn) { post(psn); });
  }
  void arrive(Psn psn) {
    const Place place = arrivals_.classify(psn);
    ASSERT_NE(place, Place::kBeyond) << "the sender keeps to the window";
    if (place == Place::kNew) arrivals_.receive(psn);
    Seth sack;
    arrivals_.report(psn, sack);
    sack.mpr_units = arrivals_.mpr_units();
    if (random_() % 3 != 0) sacks_.push_back(sack);
  }
  template <typename T>
  T taken(std::deque<T>& from) {
    const size_t at = random_() % from.size();
    const T value = from[at];
    from[at] = from.back();
    from.pop_back();
    return value;
  }

  std::mt19937 random_;
  SendWindow sends_;
  ArrivalWindow arrivals_;
  std::deque<Psn> packets_;
  std::deque<Seth> sacks_;
};

TEST(MrcWindows, EverythingComesOverABadNetwork) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    BothEnds(seed, Psn{0xfffe00}).run(3000);
  }
}

}  // namespace
}  // namespace hostnic::mrc
