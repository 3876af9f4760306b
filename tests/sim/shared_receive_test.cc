// SPDX-License-Identifier: BSD-3-Clause
// docs/transport.md rule 13 with shared receive queues: which queue pair gets which receive, what
// an ending one leaves to the others, and the events.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tests/sim/pair.h"

namespace hostnic::sim {
namespace {

using driver::AsyncEvent;
using driver::Completion;

constexpr uint32_t kMtu = 4096;
constexpr uint32_t kSlotBytes = 65536;  // of a receive
constexpr uint32_t kReceives = 16;

// Queue pairs of host 0, each connected to one of host 1; those share a receive queue.
class SharedReceives {
 public:
  explicit SharedReceives(uint32_t qps, QpSettings qp = {}, const WorldSettings& settings = {},
                          uint32_t srq_pd = 1)
      : world(settings),
        local(1 << 20),
        remote(kReceives * kSlotBytes),
        lkey(world.host(0).add_mr(local)),
        rkey(world.host(1).add_mr(remote, kAllAccess, Reach::kMapped, srq_pd)) {
    auto made =
        far_driver().create_srq({.pd = srq_pd, .max_wr = kReceives, .max_sge = 2, .user = this});
    require(made.has_value(), "create_srq");
    srq = *made;
    for (uint32_t i = 0; i < qps; ++i) {
      near.push_back(world.make_endpoint(0, qp));
      QpSettings far_qp = qp;
      far_qp.srq = srq;
      far.push_back(world.make_endpoint(1, far_qp));
      world.connect(*near[i], *far[i]);
    }
    for (size_t i = 0; i < local.size(); ++i)
      local.data()[i] = static_cast<uint8_t>(i * 7 + i / 251);
  }
  ~SharedReceives() {
    if (world.failed() || testing::Test::HasFailure()) ADD_FAILURE() << world.report();
  }

  driver::Driver& far_driver() { return world.host(1).driver(); }
  int post_receive(uint64_t wr_id) { return post_receive(wr_id, rkey); }
  int post_receive(uint64_t wr_id, uint32_t key) {
    const Sge sge{remote.address(wr_id % kReceives * kSlotBytes), kSlotBytes, key};
    return far_driver().post_srq_recv(srq, {.wr_id = wr_id, .sges = {&sge, 1}});
  }
  void post_receives(uint64_t first, uint64_t count) {
    for (uint64_t i = first; i < first + count; ++i) ASSERT_EQ(post_receive(i), 0);
  }
  int send(uint32_t qp, uint64_t wr_id, uint64_t offset, uint32_t bytes) {
    const Sge sge{local.address(offset), bytes, lkey};
    return near[qp]->post_send(Pair::request(SendOp::kSend, wr_id, sge, 0, 0));
  }
  std::vector<Completion> received(uint32_t qp, size_t count, uint64_t limit_ns = 2 * kSecond) {
    return take_completions(world, *far[qp], *far[qp]->recv_cq, count, limit_ns);
  }
  std::vector<Completion> sent(uint32_t qp, size_t count) {
    return take_completions(world, *near[qp], *near[qp]->send_cq, count, 2 * kSecond);
  }
  // wr_id of the one receive that completes, successfully; -1.
  int64_t received_one(uint32_t qp) {
    const auto done = received(qp, 1);
    if (done.size() != 1 || done[0].status != WcStatus::kSuccess) return -1;
    EXPECT_EQ(done[0].qpn, far[qp]->qpn());
    EXPECT_EQ(done[0].src_qpn, near[qp]->qpn());
    return static_cast<int64_t>(done[0].wr_id);
  }
  bool arrived(uint64_t wr_id, uint64_t offset, uint32_t bytes, uint32_t behind = 0) const {
    return equal(local, offset, remote, wr_id % kReceives * kSlotBytes + behind, bytes);
  }
  size_t events(AsyncEvent event, const void* user) {
    const auto& all = world.host(1).events;
    return static_cast<size_t>(std::count_if(all.begin(), all.end(), [&](const Event& e) {
      return e.event == event && e.user == user;
    }));
  }
  // How many more receives the queue takes.
  uint32_t room() {
    uint32_t posted = 0;
    while (post_receive(1000 + posted) == 0) ++posted;
    return posted;
  }

  World world;
  Memory local, remote;
  uint32_t lkey, rkey;
  driver::Srq* srq = nullptr;
  std::vector<std::unique_ptr<Endpoint>> near, far;
};

TEST(SharedReceive, Rule13_TakenAsMessagesArriveWhateverTheQueuePair) {
  SharedReceives shared(3);
  shared.post_receives(0, 6);
  uint64_t next = 0;
  for (const uint32_t qp : {1u, 0u, 2u, 1u, 0u, 0u}) {
    ASSERT_EQ(shared.send(qp, 1, next * 100, 10'000), 0);
    EXPECT_EQ(shared.received_one(qp), static_cast<int64_t>(next));
    EXPECT_TRUE(shared.arrived(next, next * 100, 10'000));
    ++next;
  }
  shared.world.check_at_rest();
}

TEST(SharedReceive, Rule13_TakenByAMessagesFirstPacket) {
  SharedReceives shared(2);
  shared.post_receives(0, 2);
  shared.world.impair(1, "rx drop nth 2 kind send");
  shared.world.impair(0, "rx delay 100us kind ack");
  ASSERT_EQ(shared.send(0, 1, 0, 3 * kMtu), 0);
  shared.world.run_for(20 * kMicrosecond);
  ASSERT_EQ(shared.send(1, 1, 500, 100), 0);
  EXPECT_EQ(shared.received_one(1), 1);
  EXPECT_TRUE(shared.received(0, 1, kMicrosecond).empty()) << "its second packet is missing";
  EXPECT_EQ(shared.received_one(0), 0);
  EXPECT_TRUE(shared.arrived(0, 0, 3 * kMtu));
  EXPECT_TRUE(shared.arrived(1, 500, 100));
}

TEST(SharedReceive, Rule15_AnEmptyQueueIsReceiverNotReady) {
  SharedReceives shared(2);
  ASSERT_EQ(shared.send(0, 1, 0, 100), 0);
  ASSERT_EQ(shared.send(1, 1, 100, 100), 0);
  shared.world.run_for(3 * kMillisecond);
  EXPECT_GE(shared.world.host(1).counter(Counter::rnr_nak_sent), 2u);
  shared.post_receives(0, 2);
  EXPECT_EQ(shared.received_one(0) + shared.received_one(1), 1) << "one each";
  EXPECT_EQ(shared.sent(0, 1)[0].status, WcStatus::kSuccess);

  QpSettings impatient;
  impatient.rnr_retry = 0;
  SharedReceives strict(1, impatient);
  ASSERT_EQ(strict.send(0, 1, 0, 100), 0);
  const auto done = strict.sent(0, 1);
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].status, WcStatus::kRnrRetryExcErr);
}

TEST(SharedReceive, Rule13_AQueuePairInErrorLeavesTheQueueToTheOthers) {
  SharedReceives shared(2);
  shared.post_receives(0, 4);
  ASSERT_EQ(shared.world.modify_state(*shared.far[0], QpState::kErr), 0);
  shared.world.run_for(kMillisecond);
  EXPECT_TRUE(shared.far[0]->poll(*shared.far[0]->recv_cq).empty());
  EXPECT_EQ(shared.events(AsyncEvent::kQpLastWqeReached, shared.far[0].get()), 1u);
  ASSERT_EQ(shared.send(0, 1, 0, 100), 0);  // nobody listens
  for (int64_t i = 0; i < 4; ++i) {
    ASSERT_EQ(shared.send(1, 1, 0, 100), 0);
    EXPECT_EQ(shared.received_one(1), i);
  }
  EXPECT_EQ(shared.events(AsyncEvent::kQpLastWqeReached, shared.far[1].get()), 0u);
}

// Three ways to end a queue pair in the middle of a message.
enum class End : uint8_t { kErr, kReset, kDestroy };
class EndOfSharer : public testing::TestWithParam<End> {};
INSTANTIATE_TEST_SUITE_P(SharedReceive, EndOfSharer,
                         testing::Values(End::kErr, End::kReset, End::kDestroy),
                         [](const auto& info) {
                           return info.param == End::kErr     ? "Err"
                                  : info.param == End::kReset ? "Reset"
                                                              : "Destroy";
                         });

TEST_P(EndOfSharer, Rule13_WhatItTookIsFlushedAndTheRoomComesBack) {
  WorldSettings settings;
  settings.link.gigabits = 1;
  SharedReceives shared(2, {}, settings);
  shared.post_receives(0, 4);
  // Message 1 is complete when message 2 ends in the middle; message 3 has taken nothing.
  ASSERT_EQ(shared.send(0, 1, 0, 100), 0);
  ASSERT_EQ(shared.received_one(0), 0);
  ASSERT_EQ(shared.send(0, 2, 0, 8 * kMtu), 0);
  ASSERT_EQ(shared.send(0, 3, 0, 8 * kMtu), 0);
  shared.world.run_for(150 * kMicrosecond);
  Endpoint& ending = *shared.far[0];
  if (GetParam() == End::kDestroy) {
    ASSERT_EQ(shared.far_driver().destroy_qp(ending.qp), 0);
  } else {
    ASSERT_EQ(shared.world.modify_state(ending,
                                        GetParam() == End::kErr ? QpState::kErr : QpState::kReset),
              0);
  }
  const auto flushed = ending.poll(*ending.recv_cq);
  if (GetParam() == End::kErr) {
    ASSERT_EQ(flushed.size(), 1u);
    EXPECT_EQ(flushed[0].status, WcStatus::kWrFlushErr);
    EXPECT_EQ(flushed[0].wr_id, 1u);
    EXPECT_EQ(flushed[0].qpn, ending.qpn());
    EXPECT_EQ(shared.events(AsyncEvent::kQpLastWqeReached, &ending), 1u);
    // Leaving the error state gives nothing back twice.
    ASSERT_EQ(shared.world.modify_state(ending, QpState::kReset), 0);
  } else {
    EXPECT_TRUE(flushed.empty());
    EXPECT_EQ(shared.events(AsyncEvent::kQpLastWqeReached, &ending), 0u);
  }
  EXPECT_EQ(shared.room(), kReceives - 2) << "two are posted and not taken";
  for (const int64_t expected : {2, 3, 1000}) {
    ASSERT_EQ(shared.send(1, 1, 0, 100), 0);
    EXPECT_EQ(shared.received_one(1), expected);
  }
}

TEST(SharedReceive, Rule13_AheadOfAHoleAQuarterIsLeftToTheOthers) {
  SharedReceives shared(2);
  shared.post_receives(0, kReceives);
  shared.world.impair(1, "rx drop first 1 kind send");
  shared.world.impair(0, "rx delay 300us kind ack");
  for (uint64_t i = 0; i < 30; ++i) ASSERT_EQ(shared.send(0, i, i * 64, 64), 0);
  shared.world.run_for(50 * kMicrosecond);
  ASSERT_EQ(shared.send(1, 1, 4000, 64), 0);
  EXPECT_EQ(shared.received_one(1), kReceives - kReceives / 4);
  // The front comes, and what was bound ahead of it completes in order, then the rest.
  uint64_t next = 0, posted = kReceives;
  while (next < 30) {
    const auto done = shared.received(0, 1);
    ASSERT_FALSE(done.empty());
    for (const Completion& c : done) {
      ASSERT_EQ(c.status, WcStatus::kSuccess);
      // The first to arrive took two, for itself and for what it had overtaken.
      if (next < 12) {
        EXPECT_EQ(c.wr_id, next);
      }
      EXPECT_TRUE(shared.arrived(c.wr_id, next * 64, 64)) << next;
      ++next;
      ASSERT_EQ(shared.post_receive(posted++), 0);
    }
  }
  shared.world.check_at_rest();
}

TEST(SharedReceive, LimitEventComesOncePerArming) {
  SharedReceives shared(2);
  const auto reached = [&] { return shared.events(AsyncEvent::kSrqLimitReached, &shared); };
  const auto consume = [&](uint32_t qp) {
    ASSERT_EQ(shared.send(qp, 1, 0, 64), 0);
    ASSERT_GE(shared.received_one(qp), 0);
  };
  shared.post_receives(0, 6);
  EXPECT_EQ(shared.far_driver().arm_srq(shared.srq, kReceives + 1), EINVAL);
  ASSERT_EQ(shared.far_driver().arm_srq(shared.srq, 4), 0);
  EXPECT_EQ(shared.far_driver().srq_limit(shared.srq), 4u);
  consume(0);
  consume(1);
  EXPECT_EQ(reached(), 0u) << "four are left";
  consume(0);
  EXPECT_EQ(reached(), 1u);
  EXPECT_EQ(shared.far_driver().srq_limit(shared.srq), 0u);
  consume(1);
  EXPECT_EQ(reached(), 1u) << "not armed any more";
  ASSERT_EQ(shared.far_driver().arm_srq(shared.srq, 3), 0);
  EXPECT_EQ(reached(), 2u) << "two are left already";
  ASSERT_EQ(shared.far_driver().arm_srq(shared.srq, 2), 0);
  ASSERT_EQ(shared.far_driver().arm_srq(shared.srq, 0), 0);
  consume(0);
  EXPECT_EQ(reached(), 2u) << "disarmed";
}

// Also while no message completes.
TEST(SharedReceive, LimitEventComesWhenReceivesAreTaken) {
  SharedReceives shared(1);
  shared.post_receives(0, 2);
  ASSERT_EQ(shared.far_driver().arm_srq(shared.srq, 2), 0);
  shared.world.impair(1, "rx drop nth 2 kind send");
  shared.world.impair(0, "rx delay 300us kind ack");
  ASSERT_EQ(shared.send(0, 1, 0, 3 * kMtu), 0);
  shared.world.run_for(50 * kMicrosecond);
  EXPECT_EQ(shared.events(AsyncEvent::kSrqLimitReached, &shared), 1u);
  EXPECT_TRUE(shared.far[0]->poll(*shared.far[0]->recv_cq).empty());
}

TEST(SharedReceive, ReceivesAreOfTheQueuesDomain) {
  SharedReceives shared(2, {}, {}, /*srq_pd=*/2);
  const uint32_t of_the_qps = shared.world.host(1).add_mr(shared.remote);
  ASSERT_EQ(shared.post_receive(0), 0);
  ASSERT_EQ(shared.post_receive(1, of_the_qps), 0);
  ASSERT_EQ(shared.send(0, 1, 0, 100), 0);
  EXPECT_EQ(shared.received_one(0), 0);
  ASSERT_EQ(shared.send(1, 1, 0, 100), 0);
  const auto refused = shared.received(1, 1);
  ASSERT_EQ(refused.size(), 1u);
  EXPECT_EQ(refused[0].status, WcStatus::kLocProtErr);
  EXPECT_EQ(refused[0].wr_id, 1u);
  EXPECT_EQ(shared.sent(1, 1)[0].status, WcStatus::kRemOpErr);
}

TEST(SharedReceive, PostsAndDestructionAreChecked) {
  SharedReceives shared(1);
  Sge sges[3] = {};
  EXPECT_EQ(shared.far_driver().post_srq_recv(shared.srq, {.wr_id = 1, .sges = sges}), EINVAL);
  EXPECT_EQ(shared.far[0]->post_recv({.wr_id = 1, .sges = {}}), EINVAL) << "it has no queue";
  EXPECT_EQ(shared.room(), kReceives);
  EXPECT_EQ(shared.post_receive(0), ENOMEM);
  EXPECT_EQ(shared.far_driver().destroy_srq(shared.srq), EBUSY);
  ASSERT_EQ(shared.far_driver().destroy_qp(shared.far[0]->qp), 0);
  EXPECT_EQ(shared.far_driver().destroy_srq(shared.srq), 0);
  for (const uint32_t max_wr : {0u, 16385u}) {
    const auto made = shared.far_driver().create_srq({.pd = 1, .max_wr = max_wr, .max_sge = 1});
    ASSERT_FALSE(made.has_value());
    EXPECT_EQ(made.error(), EINVAL);
  }
}

class SharedUnreliable : public testing::TestWithParam<QpType> {};
INSTANTIATE_TEST_SUITE_P(SharedReceive, SharedUnreliable, testing::Values(QpType::kUc, QpType::kUd),
                         [](const auto& info) { return info.param == QpType::kUc ? "Uc" : "Ud"; });

TEST_P(SharedUnreliable, Rule36_OneQueueForAll) {
  QpSettings qp;
  qp.type = GetParam();
  SharedReceives shared(2, qp);
  shared.post_receives(0, 2);
  const uint32_t grh_bytes = GetParam() == QpType::kUd ? kGrhBytes : 0;
  for (uint32_t i = 0; i < 3; ++i) {
    const uint32_t to = (i + 1) % 2;
    const Sge sge{shared.local.address(i * 100), 2000, shared.lkey};
    auto request = Pair::request(SendOp::kSend, i, sge, 0, 0);
    request.ud = {.ip = address_of(1), .qpn = shared.far[to]->qpn(), .qkey = qp.qkey};
    ASSERT_EQ(shared.near[to]->post_send(request), 0);
    ASSERT_EQ(shared.sent(to, 1).size(), 1u);
    if (i == 2) break;
    EXPECT_EQ(shared.received_one(to), i);
    EXPECT_TRUE(shared.arrived(i, i * 100, 2000, grh_bytes));
  }
  shared.world.run_for(kMillisecond);
  EXPECT_EQ(shared.world.host(1).counter(Counter::rx_no_receive), 1u) << "the third found none";
}

// Several queue pairs keep a short queue busy over a bad network. Each message goes to one receive,
// whole, in its queue pair's order.
TEST(SharedReceive, NothingIsLostOrMixedUnderLoss) {
  constexpr uint32_t kQps = 6;
  constexpr uint64_t kMessages = 150;  // per queue pair
  for (const uint64_t seed : {1, 2, 3}) {
    SharedReceives shared(kQps);
    Random random(seed);
    shared.world.impair(1, "rx drop 3%; reorder 5% distance 5; duplicate 2%", seed);
    shared.world.impair(0, "rx drop 3% kind ack; reorder 5% distance 3", seed + 10);
    struct Message {
      uint64_t offset;
      uint32_t bytes;
    };
    std::vector<std::vector<Message>> messages(kQps);
    std::vector<uint64_t> posted(kQps), done(kQps), acknowledged(kQps);
    for (auto& all : messages) {
      for (uint64_t i = 0; i < kMessages; ++i)
        all.push_back({random.below(900'000), static_cast<uint32_t>(random.below(40'000))});
    }
    uint64_t receives = 0, received = 0;
    const auto take_all = [&] {
      for (uint32_t q = 0; q < kQps; ++q) {
        for (const Completion& c : shared.far[q]->poll(*shared.far[q]->recv_cq)) {
          const Message& m = messages[q][done[q]++];
          ASSERT_EQ(c.status, WcStatus::kSuccess);
          ASSERT_EQ(c.byte_len, m.bytes);
          ASSERT_TRUE(shared.arrived(c.wr_id, m.offset, m.bytes)) << q << " " << done[q];
          // Its memory is the next receive's only now.
          std::memset(shared.remote.data() + c.wr_id % kReceives * kSlotBytes, 0, kSlotBytes);
          ASSERT_EQ(shared.post_receive(c.wr_id), 0);
          ++received;
        }
        for (const Completion& c : shared.near[q]->poll(*shared.near[q]->send_cq)) {
          ASSERT_EQ(c.status, WcStatus::kSuccess);
          ASSERT_EQ(c.wr_id, acknowledged[q]++);
        }
        while (posted[q] < kMessages && posted[q] - acknowledged[q] < 20) {
          const Message& m = messages[q][posted[q]];
          ASSERT_EQ(shared.send(q, posted[q]++, m.offset, m.bytes), 0);
        }
      }
    };
    for (; receives < kReceives; ++receives) ASSERT_EQ(shared.post_receive(receives), 0);
    const bool finished = shared.world.run_until(
        [&] {
          take_all();
          return testing::Test::HasFatalFailure() || received == kQps * kMessages;
        },
        60 * kSecond);
    ASSERT_FALSE(HasFatalFailure());
    EXPECT_TRUE(finished) << received << " of " << kQps * kMessages;
    EXPECT_TRUE(shared.remote.surroundings_intact());
    shared.world.check_at_rest();
  }
}

}  // namespace
}  // namespace hostnic::sim
