// SPDX-License-Identifier: BSD-3-Clause
// Each freedom that NICs take whose `ordering` is adversarial, by itself (docs/ordering.md); what
// they make of programs is in litmus_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <set>

#include "tests/sim/pair.h"

namespace hostnic::sim {
namespace {

constexpr uint32_t kMtu = 4096;

WorldSettings adversarial(uint64_t seed = 5) {
  WorldSettings settings;
  settings.ordering = Ordering::kAdversarial;
  settings.adversary_seed = seed;
  settings.trace = false;
  return settings;
}

// Messages of three packets.
class Parts : public testing::Test {
 protected:
  static constexpr uint32_t kParts = 3, kAll = (1u << kParts) - 1;
  // Which packets' last bytes are `value`, as bits.
  static uint32_t parts_of(const Memory& memory, uint8_t value) {
    uint32_t parts = 0;
    for (uint32_t i = 0; i < kParts; ++i)
      parts |= memory.data()[(i + 1) * kMtu - 1] == value ? 1u << i : 0;
    return parts;
  }
  // Posts an operation between the first bytes of both, and looks at one of them until it has
  // completed.
  void look_at(const Memory& memory, SendOp op, uint8_t round) {
    ASSERT_EQ(pair.post(op, round, pair.at(0, kParts * kMtu)), 0);
    const auto look = [&] {
      seen.insert(parts_of(memory, round));
      return !pair.near->poll(*pair.near->send_cq).empty();
    };
    ASSERT_TRUE(pair.world.run_until(look, Pair::kLimitNs));
  }

  Pair pair{{}, adversarial()};
  std::set<uint32_t> seen;
};

// Memory shows any set of a WRITE's packets at some moment.
TEST_F(Parts, OfAWriteAreSeenInAnyOrder) {
  for (uint8_t round = 1; round <= 100 && seen.size() <= kAll; ++round) {
    std::memset(pair.local.data(), round, kParts * kMtu);
    look_at(pair.remote, SendOp::kWrite, round);
    pair.world.run_for(kMillisecond);
    ASSERT_EQ(parts_of(pair.remote, round), kAll);
  }
  EXPECT_EQ(seen.size(), kAll + 1);
}

// So does the requester's of a READ's answers; what has completed is there.
TEST_F(Parts, OfAnAnswerAreSeenInAnyOrder) {
  for (uint8_t round = 1; round <= 200 && seen.size() <= kAll; ++round) {
    std::memset(pair.remote.data(), round, kParts * kMtu);
    look_at(pair.local, SendOp::kRead, round);
    ASSERT_EQ(parts_of(pair.local, round), kAll);
  }
  EXPECT_EQ(seen.size(), kAll + 1);
}

// A READ finds some of a WRITE that was posted behind it.
TEST_F(Parts, OfAWriteAreFoundByTheReadBefore) {
  constexpr uint32_t kSource = 64 * 1024;
  for (uint8_t round = 1; round <= 250; ++round) {
    std::memset(pair.local.data() + kSource, round, kParts * kMtu);
    ASSERT_EQ(pair.post(SendOp::kRead, 1, pair.at(0, kParts * kMtu)), 0);
    ASSERT_EQ(pair.post(SendOp::kWrite, 2, pair.at(kSource, kParts * kMtu)), 0);
    ASSERT_EQ(pair.sent(2).size(), 2u);
    pair.world.run_for(kMillisecond);
    seen.insert(parts_of(pair.local, round));
  }
  EXPECT_TRUE(seen.contains(0));
  EXPECT_TRUE(seen.contains(kAll));
  EXPECT_GT(seen.size(), 2u);
}

// WRITEs that have completed, and whose bytes may not have come into sight.
class UnseenWrites : public testing::Test {
 protected:
  static constexpr uint32_t kBytes = 100;
  // Writes something new, until it has completed. Returns whether it can be seen.
  bool write_is_seen() {
    std::memset(pair.local.data(), ++round_, kBytes);
    EXPECT_EQ(pair.post(SendOp::kWrite, round_, pair.at(0, kBytes)), 0);
    EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
    return is_seen();
  }
  bool is_seen() const { return equal(pair.local, 0, pair.remote, 0, kBytes); }
  // Until one is not seen. Returns whether there was one.
  bool write_unseen() {
    for (uint32_t i = 0; i < 100; ++i)
      if (!write_is_seen()) return true;
    return false;
  }

  Pair pair{{}, adversarial()};

 private:
  uint8_t round_ = 0;
};

TEST_F(UnseenWrites, ComeIntoSight) {
  uint32_t unseen = 0;
  constexpr uint32_t kRounds = 200;
  for (uint32_t i = 0; i < kRounds; ++i) {
    unseen += write_is_seen() ? 0 : 1;
    pair.world.run_for(kMillisecond);
    ASSERT_TRUE(is_seen());
  }
  EXPECT_GT(unseen, 0u);
  EXPECT_LT(unseen, kRounds / 2);
}

// What the same queue pair does next finds them.
TEST_F(UnseenWrites, AreFoundByWhatIsBehindThem) {
  for (uint32_t i = 0; i < 30; ++i) {
    ASSERT_TRUE(write_unseen());
    ASSERT_EQ(pair.post(SendOp::kRead, 1, pair.at(kMtu, kBytes)), 0);
    ASSERT_EQ(pair.status_of_one(), WcStatus::kSuccess);
    ASSERT_TRUE(equal(pair.local, 0, pair.local, kMtu, kBytes));
    ASSERT_TRUE(write_unseen());
    ASSERT_EQ(pair.post_receive(1, kMtu, kBytes), 0);
    ASSERT_EQ(pair.post(SendOp::kSend, 1, pair.at(0, kBytes)), 0);
    ASSERT_EQ(pair.received(1).size(), 1u);
    ASSERT_TRUE(is_seen());
    ASSERT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  }
}

TEST_F(UnseenWrites, AreNotLostWithTheirQueuePair) {
  for (const QpState state : {QpState::kErr, QpState::kReset}) {
    ASSERT_TRUE(write_unseen());
    ASSERT_EQ(pair.world.modify_state(*pair.far, state), 0);
    EXPECT_TRUE(is_seen());
    pair.world.modify_state(*pair.near, QpState::kReset);
    pair.world.modify_state(*pair.far, QpState::kReset);
    pair.world.reset_to_init(*pair.near);
    pair.world.reset_to_init(*pair.far);
    pair.world.connect(*pair.near, *pair.far);
  }
}

// A deregistration waits for what refers to the memory, as for packets.
TEST_F(UnseenWrites, AreNotLostWithTheirKey) {
  ASSERT_TRUE(write_unseen());
  pair.far->host->remove_mr(pair.rkey);
  EXPECT_TRUE(pair.world.mrs().referenced(pair.rkey));
  pair.world.run_for(kMillisecond);
  EXPECT_FALSE(pair.world.mrs().referenced(pair.rkey));
  EXPECT_TRUE(is_seen());
}

// A request that is refused ends the connection, and not what was acknowledged before.
TEST_F(UnseenWrites, AreNotLostByARefusal) {
  ASSERT_TRUE(write_unseen());
  pair.post_to(SendOp::kWrite, 1, pair.at(0, kBytes), pair.remote.address(), pair.rkey + 1);
  EXPECT_EQ(pair.status_of_one(), WcStatus::kRemAccessErr);
  EXPECT_TRUE(is_seen());
}

// What somebody else than the device writes between an atomic's two steps is lost, and nothing that
// another queue pair of the device adds.
TEST(Adversary, AtomicsAreAtomicAgainstTheirDevicesOnly) {
  Pair pair({}, adversarial());
  const auto second_near = pair.world.make_endpoint(0), second_far = pair.world.make_endpoint(1);
  pair.world.connect(*second_near, *second_far);
  const auto word = [&](uint64_t offset) {
    return reinterpret_cast<uint64_t*>(pair.remote.data() + offset);
  };
  constexpr uint64_t kRounds = 200;
  uint64_t by_processor = 0;
  for (uint64_t i = 0; i < kRounds; ++i) {
    // Both queue pairs count in one word, and one of them beside the processor in another.
    Sge sge = pair.at(0, 8);
    const auto add = [&](Endpoint& end, uint64_t offset) {
      EXPECT_EQ(end.post_send(Pair::request(SendOp::kFetchAdd, i, sge, pair.remote.address(offset),
                                            pair.rkey)),
                0);
    };
    add(*pair.near, 0), add(*second_near, 0), add(*pair.near, 8);
    size_t done = 0;
    const auto turn = [&] {
      ++*word(8), ++by_processor;
      done += pair.near->poll(*pair.near->send_cq).size();
      done += second_near->poll(*second_near->send_cq).size();
      return done == 3;
    };
    ASSERT_TRUE(pair.world.run_until(turn, Pair::kLimitNs));
  }
  EXPECT_EQ(*word(0), 2 * kRounds);
  EXPECT_LT(*word(8), by_processor + kRounds);
  EXPECT_EQ(pair.far_counter(Counter::atomics_executed), 3 * kRounds);
}

// What the NIC has reported becomes a completion at once, or some time later.
TEST(Adversary, CompletionsAreLate) {
  Pair pair({}, adversarial());
  constexpr uint32_t kRounds = 200;
  uint32_t late = 0;
  for (uint32_t i = 0; i < kRounds; ++i) {
    const uint64_t acks = pair.near_counter(Counter::acks_received);
    ASSERT_EQ(pair.post(SendOp::kWrite, i, pair.at(0, 8)), 0);
    ASSERT_TRUE(pair.world.run_until(
        [&] { return pair.near_counter(Counter::acks_received) != acks; }, Pair::kLimitNs));
    pair.world.run_for(kMicrosecond);
    const bool is_there = !pair.near->poll(*pair.near->send_cq).empty();
    late += is_there ? 0 : 1;
    if (!is_there) {
      ASSERT_EQ(pair.status_of_one(), WcStatus::kSuccess);
    }
    pair.world.run_for(kMillisecond);  // second copies of the ACK
  }
  EXPECT_GT(late, 0u);
  EXPECT_LT(late, kRounds / 2);
}

// A receive that is there is denied once, and the message comes again.
TEST(Adversary, ReceiversAreNotReadyThoughTheyAre) {
  Pair pair({}, adversarial());
  constexpr uint64_t kMessages = 200;
  for (uint64_t i = 0; i < kMessages; ++i) {
    ASSERT_EQ(pair.post_receive(i, 0, 64), 0);
    ASSERT_EQ(pair.post(SendOp::kSend, i, pair.at(0, 64)), 0);
    const auto sent = pair.sent(1), received = pair.received(1);
    ASSERT_TRUE(sent.size() == 1 && received.size() == 1);
    ASSERT_EQ(sent[0].status, WcStatus::kSuccess);
    ASSERT_EQ(received[0].wr_id, i);
  }
  EXPECT_GT(pair.far_counter(Counter::rnr_nak_sent), kMessages / 32);
  EXPECT_LT(pair.far_counter(Counter::rnr_nak_sent), kMessages / 2);
}

// Acknowledgements come twice, and are counted once.
TEST(Adversary, AcknowledgementsComeTwice) {
  Pair pair({}, adversarial());
  constexpr uint64_t kMessages = 200;
  for (uint64_t i = 0; i < kMessages; ++i) {
    ASSERT_EQ(pair.post(SendOp::kWrite, i, pair.at(0, 64)), 0);
    ASSERT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  }
  pair.world.run_for(kMillisecond);
  EXPECT_GT(pair.near_counter(Counter::acks_received), pair.far_counter(Counter::acks_sent));
}

}  // namespace
}  // namespace hostnic::sim
