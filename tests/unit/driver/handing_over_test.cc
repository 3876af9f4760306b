// SPDX-License-Identifier: BSD-3-Clause
// How much of the posted work is handed to the NIC at a time: windows, the bound on what waits
// there, and when an ACK is asked for.
#include "tests/unit/driver/bench.h"

namespace hostnic::driver {
namespace {

class HandingOver : public DriverBench {};

uint32_t packets_of(const std::vector<Chunk>& chunks, uint32_t mtu) {
  uint32_t packets = 0;
  for (const Chunk& chunk : chunks)
    packets += chunk.d.length_bytes == 0 ? 1 : (chunk.d.length_bytes + mtu - 1) / mtu;
  return packets;
}

TEST_P(HandingOver, WindowBeforeAndAfterTheFirstAck) {
  DriverSettings settings;
  settings.queued_bytes_limit = settings.sole_queued_bytes_limit = UINT32_MAX;
  connect(settings);
  ASSERT_EQ(post_far_more_than_a_window(), 0);
  const auto take_all = [this] {
    std::vector<Chunk> chunks, more;
    do {
      progress();
      more = nic_.sends();
      chunks.insert(chunks.end(), more.begin(), more.end());
    } while (!more.empty());
    return chunks;
  };
  std::vector<Chunk> chunks = take_all();
  EXPECT_EQ(packets_of(chunks, mtu_), kInitialWindow) << "before the first ACK";
  EXPECT_NE(chunks.back().d.flags & kSendAckRequest, 0) << "the packet after which it pauses";
  next_psn_ += kInitialWindow;
  for (const uint32_t peer_window : {1u, 7u, 64u, 1024u}) {
    nic_.transmitted(next_psn_);
    nic_.acknowledge(next_psn_, peer_window);
    chunks = take_all();
    EXPECT_EQ(packets_of(chunks, mtu_), peer_window);
    EXPECT_NE(chunks.back().d.flags & kSendAckRequest, 0);
    next_psn_ += peer_window;
  }
  // A peer that would take more than our own window.
  nic_.transmitted(next_psn_);
  nic_.acknowledge(next_psn_, kWindowLimit);
  EXPECT_EQ(packets_of(take_all(), mtu_), settings.window);
}

TEST_P(HandingOver, Rule20_EveryQuarterWindowAsksForAnAck) {
  DriverSettings settings;
  settings.queued_bytes_limit = settings.sole_queued_bytes_limit = UINT32_MAX;
  connect(settings);
  nic_.acknowledge(next_psn_, kPeerWindow);
  progress();
  ASSERT_EQ(post_far_more_than_a_window(), 0);
  uint32_t unasked = 0, asked = 0;
  for (int turn = 0; turn < 40; ++turn) {
    for (const Chunk& chunk : nic_.sends()) {
      unasked += packets_of({chunk}, mtu_);
      EXPECT_LE(unasked, settings.window / 4);
      if ((chunk.d.flags & kSendAckRequest) == 0) continue;
      unasked = 0;
      ++asked;
    }
    progress();
  }
  EXPECT_EQ(asked, 4u);
}

TEST_P(HandingOver, UnsignalledRequestsAskOnlyWhenTheQueueEnds) {
  connect();
  ASSERT_NO_FATAL_FAILURE(fill_window());
  const Sge sge{0, 1, 1};
  for (int i = 0; i < 8; ++i) ASSERT_EQ(post(request_of(SendOp::kWrite, {&sge, 1})), 0);
  ASSERT_TRUE(nic_.sends().empty());
  acknowledge_all();
  const std::vector<Chunk> chunks = nic_.sends();
  ASSERT_EQ(chunks.size(), 8u);
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ((chunks[i].d.flags & kSendAckRequest) != 0, i == 7) << i;
}

TEST_P(HandingOver, Rule4_ABoundedAmountWaitsInTheNic) {
  DriverSettings settings;
  settings.queued_bytes_limit = settings.sole_queued_bytes_limit = 64 * 1024;
  connect(settings);
  nic_.acknowledge(next_psn_, kPeerWindow);
  progress();
  ASSERT_EQ(post_far_more_than_a_window(), 0);
  uint64_t handed_over = 0, transmitted = 0;
  const auto take_all = [&] {
    for (int i = 0; i < 20; ++i, progress()) {
      for (const Chunk& chunk : nic_.sends()) handed_over += chunk.d.length_bytes;
    }
  };
  take_all();
  EXPECT_GE(handed_over, std::min<uint64_t>(settings.queued_bytes_limit, kPeerWindow * mtu_));
  EXPECT_LT(handed_over, settings.queued_bytes_limit + 64 * 1024);
  EXPECT_TRUE(driver_->turn_wanted()) << "nobody reports transmission: it must look again";
  for (const uint32_t packets : {1u, 10u, 16u}) {
    transmitted += uint64_t{packets} * mtu_;
    nic_.transmitted(next_psn_ + static_cast<uint32_t>(transmitted / mtu_));
    take_all();
    EXPECT_GE(handed_over - transmitted, settings.queued_bytes_limit);
    EXPECT_LT(handed_over - transmitted, settings.queued_bytes_limit + 64 * 1024);
  }
}

TEST_P(HandingOver, Rule4_LessWaitsInTheNicWhileOthersSend) {
  DriverSettings settings;
  settings.queued_bytes_limit = 64 * 1024;
  settings.sole_queued_bytes_limit = 192 * 1024;
  connect(settings);
  Qp* other = make_qp(0xfffff0);
  ASSERT_NE(qp_, nullptr);
  ASSERT_NE(other, nullptr);
  nic_.acknowledge(next_psn_, kPeerWindow);
  progress();
  ASSERT_EQ(post_far_more_than_a_window(), 0);
  uint64_t handed_over = 0;
  const auto queued_when = [&](uint64_t transmitted_bytes) {
    nic_.transmitted(next_psn_ + static_cast<uint32_t>(transmitted_bytes / mtu_));
    for (int i = 0; i < 20; ++i, progress())
      for (const Chunk& chunk : nic_.sends())
        if (chunk.d.length_bytes != 1) handed_over += chunk.d.length_bytes;
    return handed_over - transmitted_bytes;
  };
  EXPECT_EQ(queued_when(0), settings.sole_queued_bytes_limit);
  const Sge sge{0, 1, 1};
  const SendRequest small = request_of(SendOp::kWrite, {&sge, 1});
  ASSERT_EQ(driver_->post_send(other, small, now_ns_), 0);
  EXPECT_EQ(queued_when(96 * 1024), 96u * 1024) << "more than the other's request may wait for";
  EXPECT_EQ(queued_when(160 * 1024), 32u * 1024 + 64 * 1024);
  now_ns_ += 20'000'000;
  EXPECT_EQ(queued_when(192 * 1024),
            std::min<uint64_t>(settings.sole_queued_bytes_limit, kPeerWindow * mtu_ - 192 * 1024))
      << "the other is done";
  EXPECT_EQ(driver_->destroy_qp(other), 0);
}

TEST_P(HandingOver, Rule4_ChunksAreLargerWhileNobodyElseSends) {
  const DriverSettings settings;
  connect(settings);
  Qp* other = make_qp(0xfffff0);
  ASSERT_NE(other, nullptr);
  nic_.acknowledge(next_psn_, kPeerWindow);
  progress();
  const auto largest_chunk = [&] {
    uint32_t largest = 0;
    for (int i = 0; i < 20; ++i, progress())
      for (const Chunk& chunk : nic_.sends()) largest = std::max(largest, chunk.d.length_bytes);
    return largest;
  };
  ASSERT_EQ(post_far_more_than_a_window(), 0);
  EXPECT_EQ(largest_chunk(), std::min(256u * 1024, settings.window / 4 * mtu_));
  const Sge sge{0, 1, 1};
  ASSERT_EQ(driver_->post_send(other, request_of(SendOp::kWrite, {&sge, 1}), now_ns_), 0);
  nic_.transmitted(next_psn_ + settings.window);
  nic_.acknowledge(next_psn_ + settings.window, kPeerWindow);
  EXPECT_EQ(largest_chunk(), 64u * 1024);
  EXPECT_EQ(driver_->destroy_qp(other), 0);
}

// A post asks the cache for the queue pair that came after this one last time: it may have been
// refused for its state then, and be gone now.
TEST_P(HandingOver, TheQueuePairThatIsExpectedNextMayBeUnconnectedOrGone) {
  connect();
  QpInit init;
  init.send_cq = init.recv_cq = cq_.get();
  const auto unconnected = driver_->create_qp(init);
  ASSERT_TRUE(unconnected);
  Qp* other = make_qp(0xfffff0);
  ASSERT_NE(other, nullptr);
  const Sge sge{0, 1, 1};
  const SendRequest small = request_of(SendOp::kWrite, {&sge, 1});
  for (int round = 0; round < 4; ++round) {
    EXPECT_EQ(driver_->post_send(qp_, small, now_ns_), 0);
    if (round < 2) {
      EXPECT_EQ(driver_->post_send(*unconnected, small, now_ns_), EINVAL);
    } else if (round == 2) {
      EXPECT_EQ(driver_->destroy_qp(*unconnected), 0);
    }
    EXPECT_EQ(driver_->post_send(other, small, now_ns_), 0);
  }
  EXPECT_EQ(nic_.sends().size(), 8u);
  EXPECT_EQ(driver_->destroy_qp(other), 0);
}

TEST_P(HandingOver, Rule4_WhoIsDestroyedLeavesTheLine) {
  connect();
  const Sge sge{0, 1, 1};
  const SendRequest small = request_of(SendOp::kWrite, {&sge, 1});
  std::vector<Qp*> qps;
  const auto make_one_that_posts = [&] {
    qps.push_back(make_qp(0));
    ASSERT_NE(qps.back(), nullptr);
    for (int i = 0; i < 16; ++i) ASSERT_EQ(driver_->post_send(qps.back(), small, now_ns_), 0);
  };
  while (!driver_->turn_wanted() && qps.size() < 90) ASSERT_NO_FATAL_FAILURE(make_one_that_posts());
  for (int i = 0; i < 2; ++i) ASSERT_NO_FATAL_FAILURE(make_one_that_posts());
  progress();
  ASSERT_TRUE(driver_->turn_wanted()) << "three are in line, and the ring is full";
  // From the midst of the line, its end, its front.
  for (const size_t from_end : {1, 0, 0}) {
    EXPECT_TRUE(driver_->turn_wanted());
    const auto leaves = qps.end() - 1 - static_cast<long>(from_end);
    EXPECT_EQ(driver_->destroy_qp(*leaves), 0);
    qps.erase(leaves);
    progress();
  }
  EXPECT_FALSE(driver_->turn_wanted()) << "nobody is in line";
  EXPECT_GE(nic_.sends().size(), qps.size() * 16);
  for (Qp* qp : qps) EXPECT_EQ(driver_->destroy_qp(qp), 0);
}

INSTANTIATE_TEST_SUITE_P(Driver, HandingOver, testing::ValuesIn(kMtus),
                         [](const auto& info) { return "Mtu" + std::to_string(info.param); });

}  // namespace
}  // namespace hostnic::driver
