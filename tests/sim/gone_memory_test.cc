// SPDX-License-Identifier: BSD-3-Clause
// Memory that a client said it has unmapped, and mappings that are just changing: what is reached
// through the mem fd must not be touched then, and no connection ends for that (docs/transport.md
// rule 26).
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "tests/sim/pair.h"

namespace hostnic::sim {
namespace {

constexpr uint32_t kPage = 4096;

void set_gate(Host& host, bool closed) {
  host.channel().header().memory_gate.closed.store(closed ? 1 : 0);
}

// Regions that the mem fd reaches, all of them or in part.
class GoneMemory : public testing::TestWithParam<Reach> {
 protected:
  GoneMemory()
      : rkey(pair.far->host->add_mr(pair.remote, kAllAccess, GetParam())),
        lkey(pair.near->host->add_mr(pair.local, kAllAccess, GetParam())) {}
  void post(SendOp op, uint64_t wr_id, uint64_t offset, uint32_t bytes) {
    pair.post_to(op, wr_id, {pair.local.address(offset), bytes, lkey}, pair.remote.address(offset),
                 rkey);
  }
  // The whole of it: mapped pieces stay what they were.
  void revoke_all(Host& host, const Memory& memory) {
    host.revoke(memory.address(), memory.size());
  }

  Pair pair;
  uint32_t rkey, lkey;
};

TEST_P(GoneMemory, WritesAreRefusedAndChangeNothing) {
  revoke_all(*pair.far->host, pair.remote);
  const std::vector<uint8_t> before(pair.remote.data() + kPage, pair.remote.data() + 2 * kPage);
  post(SendOp::kWrite, 1, kPage, kPage);  // by the mem fd, also where pieces are mixed
  EXPECT_EQ(pair.status_of_one(), WcStatus::kRemAccessErr);
  EXPECT_TRUE(std::ranges::equal(before, std::span(pair.remote.data() + kPage, kPage)));
}

TEST_P(GoneMemory, ReadsAreRefused) {
  revoke_all(*pair.far->host, pair.remote);
  post(SendOp::kRead, 1, 0, 8 * kPage);
  EXPECT_EQ(pair.status_of_one(), WcStatus::kRemAccessErr);
}

TEST_P(GoneMemory, SendsFailHere) {
  revoke_all(*pair.near->host, pair.local);
  pair.post_receive(1, 0, 8 * kPage);
  post(SendOp::kSend, 1, 0, 8 * kPage);
  EXPECT_EQ(pair.status_of_one(), WcStatus::kLocProtErr);
}

TEST_P(GoneMemory, ReceivesFailThere) {
  revoke_all(*pair.far->host, pair.remote);
  pair.post_receive_with(7, {pair.remote.address(), 8 * kPage, rkey});
  post(SendOp::kSend, 1, 0, 8 * kPage);
  EXPECT_EQ(pair.status_of_one(), WcStatus::kRemOpErr);
  const auto received = pair.received(1);
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].status, WcStatus::kLocProtErr);
}

// Regions of the same addresses that come later, other clients', on-demand ones, and the parts that
// are still there.
TEST_P(GoneMemory, NothingElseIsConcerned) {
  const uint32_t on_demand =
      pair.far->host->add_mr(pair.remote, kAllAccess | kAccessOnDemand, Reach::kMemFd);
  pair.far->host->revoke(pair.remote.address(2 * kPage) + 100, 500);
  const uint32_t later = pair.far->host->add_mr(pair.remote, kAllAccess, GetParam());
  for (const uint32_t key : {on_demand, later}) {
    pair.post_to(SendOp::kWrite, 1, pair.at(0, 8 * kPage), pair.remote.address(), key);
    ASSERT_EQ(pair.status_of_one(), WcStatus::kSuccess);
    EXPECT_TRUE(equal(pair.local, 0, pair.remote, 0, 8 * kPage));
  }
  for (const uint64_t at : {uint64_t{kPage}, 2 * uint64_t{kPage} + 600}) {
    post(SendOp::kWrite, 2, at, at == kPage ? kPage + 100 : 2 * kPage);
    ASSERT_EQ(pair.status_of_one(), WcStatus::kSuccess);
    EXPECT_TRUE(equal(pair.local, at, pair.remote, at, kPage));
  }
  revoke_all(*pair.near->host, pair.remote);  // the other host's addresses
  post(SendOp::kRead, 3, 3 * kPage, 8 * kPage);
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
}

TEST_P(GoneMemory, ClosedGatesPutEverythingOff) {
  for (const SendOp op : {SendOp::kWrite, SendOp::kRead, SendOp::kSend, SendOp::kWriteImm}) {
    for (const bool at_far : {false, true}) {
      SCOPED_TRACE(testing::Message() << static_cast<int>(op) << (at_far ? " far" : " near"));
      Endpoint& end = at_far ? *pair.far : *pair.near;
      const uint64_t offset = 16 * kPage * (1 + static_cast<uint64_t>(op));
      const Memory& target = op == SendOp::kRead ? pair.local : pair.remote;
      for (size_t i = 0; i < 8 * kPage; ++i) {
        pair.local.data()[offset + i] = static_cast<uint8_t>(i * 3 + at_far);
        pair.remote.data()[offset + i] = static_cast<uint8_t>(i * 5 + 9 + at_far);
      }
      if (op == SendOp::kSend || op == SendOp::kWriteImm)
        pair.post_receive_with(5, {pair.remote.address(offset), 8 * kPage, rkey});
      set_gate(*end.host, true);
      const uint64_t put_off = end.host->counter(Counter::mem_fd_put_off);
      const uint64_t by_mem_fd = end.host->counter(Counter::bytes_copied_mem_fd);
      const std::vector<uint8_t> before(target.data() + offset, target.data() + offset + 8 * kPage);
      post(op, 1, offset, 8 * kPage);
      pair.world.run_for(kMillisecond);
      EXPECT_TRUE(pair.sent(1, kMillisecond).empty());
      EXPECT_GT(end.host->counter(Counter::mem_fd_put_off), put_off);
      EXPECT_EQ(end.host->counter(Counter::bytes_copied_mem_fd), by_mem_fd);
      set_gate(*end.host, false);
      ASSERT_EQ(pair.status_of_one(), WcStatus::kSuccess);
      EXPECT_TRUE(equal(pair.local, offset, pair.remote, offset, 8 * kPage));
      pair.received(1, kMillisecond);
    }
  }
}

// On a busy machine it takes long until mappings have changed: what waits for that is no dead peer.
TEST_P(GoneMemory, NoConnectionEndsBecauseAGateIsClosedForLong) {
  QpSettings impatient;
  impatient.timeout = 8;  // with 7 repetitions, silence ends a connection after 64 ms
  Pair other(impatient);
  const uint32_t far_key = other.far->host->add_mr(other.remote, kAllAccess, GetParam());
  const uint32_t near_key = other.near->host->add_mr(other.local, kAllAccess, GetParam());
  for (const SendOp op : {SendOp::kWrite, SendOp::kRead, SendOp::kSend, SendOp::kWriteImm}) {
    for (const bool at_far : {false, true}) {
      if (op == SendOp::kRead && at_far) continue;  // no answer says that it is put off
      SCOPED_TRACE(testing::Message() << static_cast<int>(op) << (at_far ? " far" : " near"));
      Host& host = at_far ? *other.far->host : *other.near->host;
      const uint64_t offset = 16 * kPage * (1 + static_cast<uint64_t>(op)), bytes = 8 * kPage;
      if (op == SendOp::kSend || op == SendOp::kWriteImm)
        other.post_receive_with(5, {other.remote.address(offset), bytes, far_key});
      set_gate(host, true);
      other.post_to(op, 1, {other.local.address(offset), bytes, near_key},
                    other.remote.address(offset), far_key);
      EXPECT_TRUE(other.sent(1, 200 * kMillisecond).empty());
      set_gate(host, false);
      ASSERT_EQ(other.status_of_one(), WcStatus::kSuccess);
      EXPECT_TRUE(equal(other.local, offset, other.remote, offset, bytes));
      other.received(1, kMillisecond);
    }
  }
}

TEST_P(GoneMemory, GatesThatCloseNowAndThenLoseNothing) {
  pair.world.impair(0, "drop 2%");
  pair.world.impair(1, "drop 2%");
  uint32_t done = 0;
  for (uint32_t i = 0; i < 64; ++i)
    post(i % 2 == 0 ? SendOp::kWrite : SendOp::kRead, i, uint64_t{i} * 4 * kPage, 4 * kPage);
  for (int turn = 0; done < 64 && turn < 20'000; ++turn) {
    set_gate(*pair.far->host, turn % 3 == 0);
    set_gate(*pair.near->host, turn % 5 == 0);
    for (const auto& completion : pair.sent(64, 20 * kMicrosecond)) {
      ASSERT_EQ(completion.status, WcStatus::kSuccess);
      ++done;
    }
  }
  EXPECT_EQ(done, 64u);
  EXPECT_TRUE(equal(pair.local, 0, pair.remote, 0, 64 * 4 * kPage));
}

// A packet that is ahead, and of which one part is placed and another put off, comes again: nothing
// of it is remembered as newer than what is missing.
TEST_P(GoneMemory, NothingIsLeftOfPacketsThatCameAgain) {
  const std::array parts = {Sge{pair.remote.address(), 4 * kPage + 100, pair.rkey},  // mapped
                            Sge{pair.remote.address(8 * kPage), 4 * kPage - 100, rkey}};
  ASSERT_EQ(pair.far->post_recv({.wr_id = 5, .sges = parts}), 0);
  pair.world.impair(1, "rx drop first 1 kind send");
  set_gate(*pair.far->host, true);
  post(SendOp::kSend, 1, 0, 8 * kPage);
  pair.world.run_for(20 * kMillisecond);
  EXPECT_GT(pair.far->host->counter(Counter::mem_fd_put_off), 0u);
  set_gate(*pair.far->host, false);
  ASSERT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  EXPECT_TRUE(equal(pair.local, 0, pair.remote, 0, 4 * kPage + 100));
  EXPECT_TRUE(equal(pair.local, 4 * kPage + 100, pair.remote, 8 * kPage, 4 * kPage - 100));
  pair.received(1);
  pair.world.check_at_rest();
}

TEST_P(GoneMemory, AtomicsWaitForTheGateAndAreDoneOnce) {
  auto* word = reinterpret_cast<uint64_t*>(pair.remote.data() + kPage);
  *word = 40;
  set_gate(*pair.far->host, true);
  post(SendOp::kFetchAdd, 1, kPage, 8);
  pair.world.run_for(kMillisecond);
  EXPECT_EQ(*word, 40u);
  set_gate(*pair.far->host, false);
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  EXPECT_EQ(*word, 41u);
}

// A program that is killed takes its memory with it, before anybody knows that it is dead.
TEST(MemoryOfTheDead, DropsThemAndIsNothingImpossible) {
  Pair pair;
  ClientChannel& channel = pair.far->host->channel();
  channel.memory_taken.store(true);
  pair.world.run_for(kMillisecond);
  EXPECT_EQ(channel.dropped.load(), DropReason::kMemoryGone);
  EXPECT_EQ(pair.far_counter(Counter::clients_dropped), 0u);
}

INSTANTIATE_TEST_SUITE_P(Reaches, GoneMemory, testing::Values(Reach::kMemFd, Reach::kMixed),
                         [](const auto& info) {
                           return info.param == Reach::kMemFd ? "mem_fd" : "mixed";
                         });

}  // namespace
}  // namespace hostnic::sim
