// SPDX-License-Identifier: BSD-3-Clause
// Every drop, duplicate and order of the first packets of messages of up to six packets, on two
// connections at once, in either direction; and every damaged byte.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tests/sim/exhaustive_bench.h"
#include "tests/sim/options.h"

namespace hostnic::sim {
namespace {

constexpr uint32_t kIcrcWorldOverhead =
    14 + 20 + 8;  // Ethernet, IPv4, UDP: not the ICRC's business

class Exhaustive : public testing::Test {
 protected:
  // False: something failed, and there is no point in going on.
  bool try_pattern(ExhaustiveBench& bench, const Works& works, const Pattern& pattern) {
    const uint64_t number = number_++;
    if (options().pattern >= 0 ? number != static_cast<uint64_t>(options().pattern)
                               : number % options().sample != 0) {
      return true;
    }
    ++tried_;
    if (bench.run(works, pattern) && (tried_ % 512 != 0 || at_rest(bench))) return true;
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    ADD_FAILURE() << "pattern " << number << ": " << bench.world().report()
                  << "repeat: " << options().program
                  << " --gtest_filter=" << info->test_suite_name() << "." << info->name()
                  << " --pattern " << number;
    return false;
  }
  static bool at_rest(ExhaustiveBench& bench) {
    bench.world().check_at_rest();
    return !bench.world().failed();
  }
  void finish(ExhaustiveBench& bench) {
    if (!HasFailure() && !at_rest(bench)) ADD_FAILURE() << bench.world().report();
    fmt::print("{} of {} patterns, the longest took {} us\n", tried_, number_,
               bench.longest_ns() / 1000);
    EXPECT_GT(tried_, 0u) << "no pattern " << options().pattern;
  }

  // One message of so many packets each.
  static Works message(SendOp op, uint32_t packets) {
    return {{op, packets * kExhaustiveMtu - 13}};
  }
  // Six messages of one packet each, of all kinds.
  static Works mixture() {
    return {{SendOp::kWrite, 100}, {SendOp::kSend, 31},    {SendOp::kFetchAdd, 8},
            {SendOp::kRead, 200},  {SendOp::kWriteImm, 9}, {SendOp::kFetchAdd, 8}};
  }

  // All subsets of the first `packets` packets of both connections meet `fate`.
  void all_subsets(ExhaustiveBench& bench, const Works& works, uint32_t packets, bool backward,
                   const Fate& fate) {
    Pattern pattern;
    pattern.backward = backward;
    for (uint32_t mask = 0; mask < 1u << (2 * packets); ++mask) {
      for (uint32_t i = 0; i < 2 * packets; ++i)
        pattern.fates[i / packets][i % packets] = (mask >> i & 1) != 0 ? fate : Fate{};
      if (!try_pattern(bench, works, pattern)) return;
    }
  }
  void all_subsets_of_messages(SendOp op, const Fate& fate) {
    ExhaustiveBench bench;
    for (uint32_t packets = 1; packets <= kPatternPackets && !HasFailure(); ++packets)
      all_subsets(bench, message(op, packets), packets, op == SendOp::kRead, fate);
    finish(bench);
  }
  void all_subsets_of_mixture(const Fate& fate) {
    ExhaustiveBench bench;
    for (const bool backward : {false, true}) {
      if (!HasFailure()) all_subsets(bench, mixture(), kPatternPackets, backward, fate);
    }
    finish(bench);
  }

  // Every order of the packets of one connection, with the other one's in order, in the same order
  // and in the opposite one; `step_ns` apart; with and without one of them lost.
  void all_orders(SendOp op, uint64_t step_ns) {
    ExhaustiveBench bench;
    for (uint32_t packets = 2; packets <= kPatternPackets && !HasFailure(); ++packets) {
      std::array<uint32_t, kPatternPackets> order{};
      std::iota(order.begin(), order.end(), 0);
      do {
        for (uint32_t other = 0; other < 3 && !HasFailure(); ++other)
          try_order(bench, op, packets, order, step_ns, other);
      } while (!HasFailure() && std::next_permutation(order.begin(), order.begin() + packets));
    }
    finish(bench);
  }
  void try_order(ExhaustiveBench& bench, SendOp op, uint32_t packets,
                 const std::array<uint32_t, kPatternPackets>& order, uint64_t step_ns,
                 uint32_t other) {
    Pattern pattern;
    pattern.backward = op == SendOp::kRead;
    for (uint32_t i = 0; i < packets; ++i) {
      pattern.fates[0][i].delay_ns = order[i] * step_ns;
      pattern.fates[1][i].delay_ns = (other == 0   ? i
                                      : other == 1 ? order[i]
                                                   : packets - 1 - order[i]) *
                                     step_ns;
    }
    if (!try_pattern(bench, message(op, packets), pattern)) return;
    // The same with the packet lost that comes first, and with the one that comes last twice.
    const auto first = std::min_element(order.begin(), order.begin() + packets) - order.begin();
    const auto last = std::max_element(order.begin(), order.begin() + packets) - order.begin();
    pattern.fates[other == 2 ? 1 : 0][static_cast<size_t>(first)].drop = true;
    pattern.fates[0][static_cast<size_t>(last)].duplicate = true;
    try_pattern(bench, message(op, packets), pattern);
  }

  // Passed, lost, or seen twice: all combinations for one connection, the other one the other way
  // round.
  void all_fates(SendOp op) {
    ExhaustiveBench bench;
    Pattern pattern;
    pattern.backward = op == SendOp::kRead;
    uint32_t all = 1;
    for (uint32_t i = 0; i < kPatternPackets; ++i) all *= 3;
    for (uint32_t code = 0; code < all && !HasFailure(); ++code) {
      for (uint32_t i = 0, rest = code; i < kPatternPackets; ++i, rest /= 3) {
        const Fate fate{.drop = rest % 3 == 1, .duplicate = rest % 3 == 2};
        pattern.fates[0][i] = pattern.fates[1][kPatternPackets - 1 - i] = fate;
      }
      try_pattern(bench, message(op, kPatternPackets), pattern);
    }
    finish(bench);
  }

 private:
  uint64_t number_ = 0, tried_ = 0;
};

constexpr Fate kLost{.drop = true};
constexpr Fate kTwice{.duplicate = true};
// Packets of one order arrive in turns of their own, or in one burst.
constexpr uint64_t kApartNs = 1000, kTogetherNs = 1;

TEST_F(Exhaustive, LostPacketsOfSends) { all_subsets_of_messages(SendOp::kSend, kLost); }
TEST_F(Exhaustive, LostPacketsOfWrites) { all_subsets_of_messages(SendOp::kWrite, kLost); }
TEST_F(Exhaustive, LostPacketsOfReads) { all_subsets_of_messages(SendOp::kRead, kLost); }
TEST_F(Exhaustive, LostPacketsOfSmallMessagesAndTheirAnswers) { all_subsets_of_mixture(kLost); }
TEST_F(Exhaustive, DuplicatesOfSends) { all_subsets_of_messages(SendOp::kSend, kTwice); }
TEST_F(Exhaustive, DuplicatesOfWrites) { all_subsets_of_messages(SendOp::kWrite, kTwice); }
TEST_F(Exhaustive, DuplicatesOfReads) { all_subsets_of_messages(SendOp::kRead, kTwice); }
TEST_F(Exhaustive, DuplicatesOfSmallMessagesAndTheirAnswers) { all_subsets_of_mixture(kTwice); }
TEST_F(Exhaustive, OrdersOfSends) { all_orders(SendOp::kSend, kApartNs); }
TEST_F(Exhaustive, OrdersOfWrites) { all_orders(SendOp::kWriteImm, kApartNs); }
TEST_F(Exhaustive, OrdersOfReads) { all_orders(SendOp::kRead, kApartNs); }
TEST_F(Exhaustive, OrdersOfSendsInOneBurst) { all_orders(SendOp::kSend, kTogetherNs); }
TEST_F(Exhaustive, OrdersOfWritesInOneBurst) { all_orders(SendOp::kWrite, kTogetherNs); }
TEST_F(Exhaustive, OrdersOfReadsInOneBurst) { all_orders(SendOp::kRead, kTogetherNs); }
TEST_F(Exhaustive, FatesOfSends) { all_fates(SendOp::kSend); }
TEST_F(Exhaustive, FatesOfWrites) { all_fates(SendOp::kWrite); }
TEST_F(Exhaustive, FatesOfReads) { all_fates(SendOp::kRead); }

// All swaps of two of the six small messages of both connections, and of their answers.
TEST_F(Exhaustive, SwapsOfSmallMessagesAndTheirAnswers) {
  ExhaustiveBench bench;
  constexpr uint32_t kAll = kPatternPackets * kPatternPackets;
  for (uint32_t code = 0; code < 2 * kAll * kAll && !HasFailure(); ++code) {
    Pattern pattern;
    pattern.backward = code % 2 != 0;
    uint32_t rest = code / 2;
    for (Fates& fates : pattern.fates) {
      for (uint32_t i = 0; i < kPatternPackets; ++i) fates[i].delay_ns = i * kApartNs;
      std::swap(fates[rest % kPatternPackets], fates[rest / kPatternPackets % kPatternPackets]);
      rest /= kAll;
    }
    try_pattern(bench, mixture(), pattern);
  }
  finish(bench);
}

// A packet with a wrong byte never places one: each byte behind the UDP header of each of the first
// packets in turn. BTH's fifth byte is no ICRC's business, and means nothing.
class DamagedBytes : public Exhaustive {
 protected:
  void damage(const Works& works, uint32_t packets, uint32_t byte) {
    for (uint32_t i = 0; i < 2 * packets && !HasFailure(); ++i) {
      Pattern pattern;
      pattern.backward = i % 2 != 0;
      pattern.fates[0][i / 2].flipped_byte = static_cast<int32_t>(byte);
      const uint64_t flipped = bench_.world().wire().flipped(), before = refused();
      if (!try_pattern(bench_, works, pattern)) return;
      const bool covered = byte != kRocev2Headers + 4;
      EXPECT_EQ(refused() - before, covered ? bench_.world().wire().flipped() - flipped : 0)
          << "byte " << byte << " of packet " << i / 2 << (pattern.backward ? " back" : "");
    }
  }
  uint64_t refused() {
    World& world = bench_.world();
    return world.sum(Counter::rx_icrc_error) + world.sum(Counter::rx_parse_error) +
           world.sum(Counter::rx_not_ours);
  }
  static constexpr uint32_t kRocev2Headers = 14 + 20 + 8;  // Ethernet, IPv4, UDP
  ExhaustiveBench bench_{/*with_icrc=*/true};
};

TEST_F(DamagedBytes, OfLongMessages) {
  constexpr uint32_t kLargest = kRocev2Headers + 12 + 36 + kExhaustiveMtu + 8;
  for (uint32_t byte = kRocev2Headers; byte < kLargest && !HasFailure(); ++byte) {
    for (const SendOp op : {SendOp::kSend, SendOp::kWriteImm, SendOp::kRead})
      damage({{op, 300}}, 2, byte);
  }
  finish(bench_);
  EXPECT_GT(bench_.world().wire().flipped(), 1000u / options().sample * (options().pattern < 0));
}

TEST_F(DamagedBytes, OfSmallMessagesAndTheirAnswers) {
  constexpr uint32_t kLargest = kRocev2Headers + 100;
  for (uint32_t byte = kRocev2Headers; byte < kLargest && !HasFailure(); ++byte)
    damage(mixture(), kPatternPackets, byte);
  finish(bench_);
}

}  // namespace
}  // namespace hostnic::sim
