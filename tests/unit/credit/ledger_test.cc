// SPDX-License-Identifier: BSD-3-Clause
// The credit ledger of tests/apps/credit-channel: its arithmetic, and two of them against each
// other over a network that delays as it likes.
#include <gtest/gtest.h>

#include <array>
#include <random>
#include <string>
#include <unordered_set>
#include <vector>

#include "tests/apps/credit-channel/credit_ledger.h"

namespace hostnic::credit {
namespace {

TEST(CreditLedger, QueuesAndCqAreSumsOfShares) {
  constexpr Depths kDepths{32, 8, 4, 2};
  EXPECT_EQ(kDepths.max_send_wr(), 46U);
  EXPECT_EQ(kDepths.max_recv_wr(), 40U);
  EXPECT_EQ(kDepths.cq_entries(), 86U);
  constexpr Depths kLargest{UINT16_MAX, UINT16_MAX, UINT16_MAX, UINT16_MAX};
  EXPECT_EQ(kLargest.cq_entries(), 6U * UINT16_MAX);
}

TEST(CreditLedger, ThreeImmediatesAreTheLeast) {
  EXPECT_TRUE((Depths{1, 3, 0, 0}.valid()));
  EXPECT_FALSE((Depths{1, 2, 9, 9}.valid()));
  EXPECT_FALSE((Depths{0, 3, 9, 9}.valid()));
}

TEST(CreditLedger, AnAcknowledgementIsTwoCounts) {
  EXPECT_EQ((Acknowledgement{0x1234, 0x5678}.to_immediate()), 0x12345678U);
  const Acknowledgement ack{UINT16_MAX, 1};
  EXPECT_EQ(Acknowledgement::from_immediate(ack.to_immediate()), ack);
}

TEST(CreditLedger, DataNeedsItsShareAndThePeersCredit) {
  CreditLedger own({2, 3, 1, 1}, {9, 3, 1, 1});
  EXPECT_TRUE(own.take(Share::kData));
  EXPECT_TRUE(own.take(Share::kData));
  EXPECT_FALSE(own.take(Share::kData)) << "the send queue's share is used up";
  own.completed(Share::kData);
  EXPECT_TRUE(own.take(Share::kData));

  CreditLedger peer({9, 3, 1, 1}, {2, 3, 1, 1});
  EXPECT_TRUE(peer.take(Share::kData));
  EXPECT_TRUE(peer.take(Share::kData));
  peer.completed(Share::kData);
  EXPECT_FALSE(peer.take(Share::kData)) << "a completion returns no credit of the peer's";
  ASSERT_TRUE(peer.received_acknowledgement({1, 0}));
  EXPECT_TRUE(peer.take(Share::kData));
  EXPECT_FALSE(peer.take(Share::kData));
}

TEST(CreditLedger, ReadsAndWritesNeedTheirShareOnly) {
  CreditLedger ledger({1, 3, 2, 1}, {1, 3, 0, 0});
  EXPECT_TRUE(ledger.take(Share::kWrite));
  EXPECT_FALSE(ledger.take(Share::kWrite));
  EXPECT_TRUE(ledger.take(Share::kRead));
  EXPECT_TRUE(ledger.take(Share::kRead));
  EXPECT_FALSE(ledger.take(Share::kRead));
  EXPECT_EQ(ledger.posted(), 3U);
  ledger.completed(Share::kWrite);
  EXPECT_TRUE(ledger.take(Share::kWrite));
}

TEST(CreditLedger, HalfOfTheDataMakesAnAcknowledgementDue) {
  CreditLedger ledger({8, 4, 0, 0}, {8, 4, 0, 0});
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(ledger.received_data());
  ASSERT_TRUE(ledger.received_acknowledgement({}));
  EXPECT_EQ(ledger.take_acknowledgement(), std::nullopt);
  ASSERT_TRUE(ledger.received_data());
  EXPECT_EQ(ledger.take_acknowledgement(), (Acknowledgement{4, 1}));
  EXPECT_EQ(ledger.take_acknowledgement(), std::nullopt) << "each is counted once";
}

TEST(CreditLedger, HalfOfTheImmediatesMakesAnAcknowledgementDue) {
  CreditLedger ledger({8, 4, 0, 0}, {8, 4, 0, 0});
  ASSERT_TRUE(ledger.received_data());
  ASSERT_TRUE(ledger.received_acknowledgement({}));
  EXPECT_EQ(ledger.take_acknowledgement(), std::nullopt);
  ASSERT_TRUE(ledger.received_acknowledgement({}));
  EXPECT_EQ(ledger.take_acknowledgement(), (Acknowledgement{1, 2}));
}

TEST(CreditLedger, AnAcknowledgementNeedsThePeersCredit) {
  CreditLedger ledger({1, 9, 0, 0}, {1, 3, 0, 0});
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(ledger.received_data());
    ASSERT_NE(ledger.take_acknowledgement(), std::nullopt);
  }
  ASSERT_TRUE(ledger.received_data());
  EXPECT_EQ(ledger.take_acknowledgement(), std::nullopt);
  ASSERT_TRUE(ledger.received_acknowledgement({0, 1}));
  EXPECT_EQ(ledger.take_acknowledgement(), (Acknowledgement{1, 1}));
}

TEST(CreditLedger, AnAcknowledgementWaitsForItsShare) {
  CreditLedger ledger({1, 3, 0, 0}, {1, 9, 0, 0});
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(ledger.received_data());
    ASSERT_NE(ledger.take_acknowledgement(), std::nullopt);
  }
  ASSERT_TRUE(ledger.received_data());
  EXPECT_EQ(ledger.take_acknowledgement(), std::nullopt);
  ledger.completed(Share::kImmediate);
  EXPECT_NE(ledger.take_acknowledgement(), std::nullopt);
}

TEST(CreditLedger, APeerThatCountsWhatItNeverGotIsRefused) {
  CreditLedger ledger({4, 4, 0, 0}, {4, 4, 0, 0});
  EXPECT_FALSE(ledger.received_acknowledgement({1, 0}));
  EXPECT_FALSE(ledger.received_acknowledgement({0, 1}));
  ASSERT_TRUE(ledger.take(Share::kData));
  EXPECT_FALSE(ledger.received_acknowledgement({2, 0}));
  EXPECT_TRUE(ledger.received_acknowledgement({1, 0}));
}

TEST(CreditLedger, APeerThatSendsWithoutCreditIsRefused) {
  CreditLedger ledger({2, 3, 0, 0}, {2, 3, 0, 0});
  EXPECT_TRUE(ledger.received_data());
  EXPECT_TRUE(ledger.received_data());
  EXPECT_FALSE(ledger.received_data());
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(ledger.received_acknowledgement({}));
  EXPECT_FALSE(ledger.received_acknowledgement({}));
}

// ---- Two ledgers against each other ----

// One end: its ledger, what it still wants to send, what is on the way to it, and how many of its
// receives and CQ entries are in use.
struct End {
  CreditLedger ledger;
  Depths depths;
  int to_send = 0;
  int data_on_the_way = 0;  // to this end
  std::vector<Acknowledgement> acks_on_the_way;
  std::array<uint32_t, kShares> unpolled{};  // sent and not completed
  uint32_t acks_sent = 0, acks_of_acks = 0;

  uint32_t receives_taken() const {
    return static_cast<uint32_t>(data_on_the_way) + static_cast<uint32_t>(acks_on_the_way.size());
  }
  uint32_t completions_at_most() const {
    uint32_t sum = depths.max_recv_wr();
    for (const uint32_t n : unpolled) sum += n;
    return sum;
  }
};

// Both ends, and the steps that can happen next. Data and acknowledgements overtake each other,
// which is more than RC does: the proofs don't need its order.
class World {
 public:
  enum Step { kSendData, kDeliverData, kDeliverAck, kCompleteData, kCompleteAck, kSteps };

  World(const Depths& a, const Depths& b, int messages_a, int messages_b,
        bool completes_at_once = false)
      : completes_at_once_(completes_at_once),
        ends_{End{CreditLedger(a, b), a, messages_a}, End{CreditLedger(b, a), b, messages_b}} {}

  bool can(int which, Step step) const {
    const End& end = ends_[which];
    CreditLedger copy = end.ledger;
    switch (step) {
      case kSendData:
        return end.to_send > 0 && copy.take(Share::kData);
      case kDeliverData:
        return end.data_on_the_way > 0;
      case kDeliverAck:
        return !end.acks_on_the_way.empty();
      case kCompleteData:
        return end.unpolled[0] > 0;
      case kCompleteAck:
        return end.unpolled[1] > 0;
      case kSteps:
        break;
    }
    return false;
  }

  // What must hold fails the test with a word; steps that can be done are done.
  void make(int which, Step step) {
    End &end = ends_[which], &peer = ends_[1 - which];
    switch (step) {
      case kSendData:
        ASSERT_TRUE(end.ledger.take(Share::kData));
        --end.to_send;
        ++end.unpolled[0];
        ++peer.data_on_the_way;
        break;
      case kDeliverData:
        --end.data_on_the_way;
        ASSERT_TRUE(end.ledger.received_data());
        break;
      case kDeliverAck:
        ASSERT_TRUE(end.ledger.received_acknowledgement(end.acks_on_the_way.front()));
        end.acks_on_the_way.erase(end.acks_on_the_way.begin());
        break;
      case kCompleteData:
        --end.unpolled[0];
        end.ledger.completed(Share::kData);
        break;
      case kCompleteAck:
        --end.unpolled[1];
        end.ledger.completed(Share::kImmediate);
        break;
      case kSteps:
        FAIL();
    }
    acknowledge(end, peer);
    if (completes_at_once_) complete_all(end);
    check(end);
    check(peer);
  }

  std::vector<std::pair<int, Step>> possible() const {
    std::vector<std::pair<int, Step>> steps;
    for (int which = 0; which < 2; ++which)
      for (int step = 0; step < kSteps; ++step)
        if (can(which, static_cast<Step>(step))) steps.emplace_back(which, static_cast<Step>(step));
    return steps;
  }

  // Where nothing can happen any more, everything must have been sent, and the books agree.
  void check_the_end() const {
    uint32_t acks = 0, of_acks = 0;
    for (int which = 0; which < 2; ++which) {
      const End &end = ends_[which], &peer = ends_[1 - which];
      ASSERT_EQ(end.to_send, 0) << "deadlock";
      EXPECT_EQ(end.ledger.remote(Share::kData) + peer.ledger.uncounted().data, peer.depths.data);
      EXPECT_EQ(end.ledger.remote(Share::kImmediate) + peer.ledger.uncounted().acks,
                peer.depths.immediate);
      EXPECT_EQ(end.ledger.posted(), 0U);
      acks += end.acks_sent;
      of_acks += end.acks_of_acks;
    }
    EXPECT_LE(of_acks, acks - of_acks);
  }

  // All that decides what can happen; every number here is below 128.
  std::string text() const {
    std::string all;
    for (const End& end : ends_) {
      const Acknowledgement uncounted = end.ledger.uncounted();
      for (const auto n :
           {end.to_send, end.data_on_the_way, int(end.unpolled[0]), int(end.unpolled[1]),
            int{end.ledger.remote(Share::kData)}, int{end.ledger.remote(Share::kImmediate)},
            int{uncounted.data}, int{uncounted.acks}, int(end.acks_on_the_way.size())})
        all += static_cast<char>(n);
      for (const Acknowledgement ack : end.acks_on_the_way) {
        all += static_cast<char>(ack.data);
        all += static_cast<char>(ack.acks);
      }
    }
    return all;
  }

 private:
  static void acknowledge(End& end, End& peer) {
    for (;;) {
      const bool of_data = end.ledger.uncounted().data >= CreditLedger::half(end.depths.data);
      const auto ack = end.ledger.take_acknowledgement();
      if (!ack) return;
      ++end.acks_sent;
      if (!of_data) ++end.acks_of_acks;
      ++end.unpolled[1];
      peer.acks_on_the_way.push_back(*ack);
    }
  }

  static void complete_all(End& end) {
    for (; end.unpolled[0] > 0; --end.unpolled[0]) end.ledger.completed(Share::kData);
    for (; end.unpolled[1] > 0; --end.unpolled[1]) end.ledger.completed(Share::kImmediate);
  }

  static void check(const End& end) {
    ASSERT_LE(end.receives_taken(), end.depths.max_recv_wr()) << "RNR NAK";
    ASSERT_LE(end.data_on_the_way, end.depths.data);
    ASSERT_LE(end.acks_on_the_way.size(), end.depths.immediate);
    ASSERT_LE(end.completions_at_most(), end.depths.cq_entries()) << "CQ overflow";
  }

  bool completes_at_once_;
  std::array<End, 2> ends_;
};

using Random = std::mt19937_64;

Depths random_depths(Random& random, uint16_t most) {
  return {static_cast<uint16_t>(1 + random() % most), static_cast<uint16_t>(3 + random() % most), 0,
          0};
}

// Some steps are a hundred times as likely as others, others for each seed: all of a kind are late.
void run_at_random(uint64_t seed, uint16_t most_depth, int most_messages) {
  Random random(seed);
  const Depths a = random_depths(random, most_depth), b = random_depths(random, most_depth);
  const auto messages = [&] { return static_cast<int>(random() % (most_messages + 1)); };
  World world(a, b, messages(), messages());
  std::array<unsigned, 2 * World::kSteps> weights{};
  for (unsigned& weight : weights) weight = random() % 2 == 0 ? 1 : 100;
  // Per message: sent, delivered, completed, and as much for its acknowledgement and its share
  // of one of acknowledgements.
  const int limit = 2 * most_messages * 9 + 100;
  for (int made = 0;; ++made) {
    const auto steps = world.possible();
    if (steps.empty()) break;
    ASSERT_LT(made, limit) << "acknowledging does not end";
    unsigned sum = 0;
    for (const auto& [which, step] : steps) sum += weights[which * World::kSteps + step];
    uint64_t draw = random() % sum;
    for (const auto& [which, step] : steps) {
      const unsigned weight = weights[which * World::kSteps + step];
      if (draw < weight) {
        ASSERT_NO_FATAL_FAILURE(world.make(which, step));
        break;
      }
      draw -= weight;
    }
  }
  world.check_the_end();
}

TEST(CreditLedgers, RandomDelaysOfTinyQueues) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    ASSERT_NO_FATAL_FAILURE(run_at_random(seed, 3, 60));
  }
}

TEST(CreditLedgers, RandomDelaysOfUnequalQueues) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    ASSERT_NO_FATAL_FAILURE(run_at_random(seed, 40, 400));
  }
}

// Every order of every step but local completions, for queues and loads small enough.
void visit_all(const Depths& a, const Depths& b, int messages_a, int messages_b, size_t& states) {
  std::unordered_set<std::string> seen;
  std::vector<World> open{World(a, b, messages_a, messages_b, true)};
  while (!open.empty()) {
    const World world = open.back();
    open.pop_back();
    const auto steps = world.possible();
    if (steps.empty()) {
      world.check_the_end();
      if (::testing::Test::HasFatalFailure()) return;
    }
    for (const auto& [which, step] : steps) {
      World next = world;
      ASSERT_NO_FATAL_FAILURE(next.make(which, step));
      if (seen.insert(next.text()).second) open.push_back(std::move(next));
    }
  }
  states += seen.size();
}

TEST(CreditLedgers, EveryOrderOfTheSmallestQueues) {
  size_t states = 0;
  for (const auto& [a, b] : {std::pair{Depths{1, 3, 0, 0}, Depths{1, 3, 0, 0}},
                             std::pair{Depths{1, 3, 0, 0}, Depths{2, 4, 0, 0}},
                             std::pair{Depths{3, 3, 0, 0}, Depths{1, 5, 0, 0}}}) {
    ASSERT_NO_FATAL_FAILURE(visit_all(a, b, 8, 8, states));
    ASSERT_NO_FATAL_FAILURE(visit_all(a, b, 15, 0, states));
  }
  EXPECT_GT(states, 50'000U) << "the orders are not gone through";
}

// Why Depths::valid wants three: half of two is one, and each acknowledgement is answered by one.
TEST(CreditLedgers, WithTwoImmediatesAcknowledgingNeverEnds) {
  World world({1, 2, 0, 0}, {1, 2, 0, 0}, 1, 0);
  for (int made = 0; made < 10'000; ++made) {
    const auto steps = world.possible();
    ASSERT_FALSE(steps.empty());
    ASSERT_NO_FATAL_FAILURE(world.make(steps.front().first, steps.front().second));
  }
}

}  // namespace
}  // namespace hostnic::credit
