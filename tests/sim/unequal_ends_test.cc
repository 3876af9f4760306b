// SPDX-License-Identifier: BSD-3-Clause
// Two ends of a connection that were told different things: another path MTU, fewer responder
// resources than the requester uses. Whatever the statuses are, SUCCESS means that all bytes are
// there, and an adapter's errors are ours (docs/transport.md rules 16 and 17;
// InfiniBand 9.7.4.1, 9.9.2).
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/sim/pair.h"

namespace hostnic::sim {
namespace {

using driver::AsyncEvent;
using driver::Completion;

bool raised(const Endpoint& end, AsyncEvent event) {
  const auto& events = end.host->events;
  return std::any_of(events.begin(), events.end(),
                     [&](const Event& e) { return e.event == event; });
}

struct Mtus {
  uint32_t near_bytes, far_bytes;
};
struct MixedCase {
  SendOp op;
  Mtus mtus;
  uint32_t message_bytes;
  bool segmentation, icrc;
  const char* loss;
};

std::string name_of(const testing::TestParamInfo<MixedCase>& info) {
  static constexpr const char* kOps[] = {"None", "Write", "WriteImm", "Send", "SendImm", "Read"};
  const MixedCase& c = info.param;
  return fmt::format("{}_{}_{}_{}bytes{}{}{}", kOps[static_cast<size_t>(c.op)], c.mtus.near_bytes,
                     c.mtus.far_bytes, c.message_bytes, c.segmentation ? "_bundles" : "",
                     c.icrc ? "_icrc" : "", c.loss[0] != '\0' ? "_loss" : "");
}

std::vector<MixedCase> mixed_cases() {
  std::vector<MixedCase> all;
  for (const SendOp op :
       {SendOp::kWrite, SendOp::kWriteImm, SendOp::kSend, SendOp::kSendImm, SendOp::kRead})
    for (const Mtus mtus : {Mtus{4096, 1024}, Mtus{1024, 4096}, Mtus{4096, 256}, Mtus{256, 512}})
      for (const uint32_t bytes : {200u, 256u, 1024u, 2000u, 4096u, 16384u, 65536u + 17})
        for (const int way : {0, 1, 2, 3})
          all.push_back({op, mtus, bytes, way == 1, way == 2, way == 3 ? "rx drop 5%" : ""});
  return all;
}

class UnequalPathMtus : public testing::TestWithParam<MixedCase> {
 protected:
  static constexpr uint32_t kCount = 4;

  static WorldSettings world_of(const MixedCase& c) {
    WorldSettings settings;
    settings.segmentation = c.segmentation;
    settings.always_icrc = c.icrc;
    return settings;
  }
};

// Connects two queue pairs of a host each, whose path MTUs differ.
struct MixedPair {
  MixedPair(const WorldSettings& settings, QpType type, Mtus mtus)
      : world(settings), local(kBytes), remote(kBytes) {
    QpSettings qp;
    qp.type = type;
    qp.path_mtu_bytes = mtus.near_bytes;
    near = world.make_endpoint(0, qp);
    qp.path_mtu_bytes = mtus.far_bytes;
    far = world.make_endpoint(1, qp);
    lkey = near->host->add_mr(local);
    rkey = far->host->add_mr(remote);
    world.connect(*near, *far);
  }
  ~MixedPair() {
    if (world.failed() || testing::Test::HasFailure()) ADD_FAILURE() << world.report();
  }
  static constexpr size_t kBytes = 512 * 1024;

  World world;
  std::unique_ptr<Endpoint> near, far;
  Memory local, remote;
  uint32_t lkey, rkey;
};

void fill(Memory& memory) {
  for (size_t i = 0; i < memory.size(); ++i)
    memory.data()[i] = static_cast<uint8_t>(i * 7 + i / 251 + 1);
}

bool takes_receive(SendOp op) {
  return op == SendOp::kSend || op == SendOp::kSendImm || op == SendOp::kWriteImm;
}

TEST_P(UnequalPathMtus, SuccessMeansAllBytes) {
  const MixedCase& c = GetParam();
  MixedPair pair(world_of(c), QpType::kRc, c.mtus);
  const bool read = c.op == SendOp::kRead;
  fill(read ? pair.remote : pair.local);
  if (c.loss[0] != '\0')
    for (const uint32_t host : {0u, 1u}) pair.world.impair(host, c.loss, 7 + host);
  const auto offset = [&](uint64_t i) { return i * c.message_bytes; };
  for (uint64_t i = 0; i < kCount && takes_receive(c.op); ++i) {
    const Sge sge{pair.remote.address(offset(i)), c.message_bytes, pair.rkey};
    ASSERT_EQ(pair.far->post_recv({.wr_id = i, .sges = {&sge, 1}}), 0);
  }
  for (uint64_t i = 0; i < kCount; ++i) {
    const Sge sge{pair.local.address(offset(i)), c.message_bytes, pair.lkey};
    ASSERT_EQ(pair.near->post_send(
                  Pair::request(c.op, i, sge, pair.remote.address(offset(i)), pair.rkey)),
              0);
  }
  const auto done =
      take_completions(pair.world, *pair.near, *pair.near->send_cq, kCount, 3 * kSecond);
  ASSERT_EQ(done.size(), kCount) << "every request completes";
  const bool fits = c.message_bytes <= std::min(c.mtus.near_bytes, c.mtus.far_bytes);
  for (const Completion& completion : done) {
    if (completion.status != WcStatus::kSuccess) continue;
    EXPECT_TRUE(fits) << "request " << completion.wr_id;
    EXPECT_TRUE(equal(pair.local, offset(completion.wr_id), pair.remote, offset(completion.wr_id),
                      c.message_bytes));
  }
  EXPECT_EQ(done[0].status, fits   ? WcStatus::kSuccess
                            : read ? WcStatus::kBadRespErr
                                   : WcStatus::kRemInvReqErr);
  EXPECT_EQ(done[kCount - 1].status, fits ? WcStatus::kSuccess : WcStatus::kWrFlushErr);
  if (!fits && !read) {
    EXPECT_TRUE(raised(*pair.far, AsyncEvent::kQpReqErr));
  }
  for (const Completion& completion : pair.far->poll(*pair.far->recv_cq)) {
    if (completion.status != WcStatus::kSuccess) continue;
    EXPECT_TRUE(fits);
    EXPECT_EQ(completion.byte_len, c.message_bytes);
  }
}

INSTANTIATE_TEST_SUITE_P(Rc, UnequalPathMtus, testing::ValuesIn(mixed_cases()), name_of);

// What a peer answers in units of its own path MTU is refused also where it comes ahead of a hole,
// and READs before it that were answered in time complete.
TEST(UnequalEnds, AnswersOfAnotherPathMtuAfterGoodOnes) {
  MixedPair pair({}, QpType::kRc, {4096, 1024});
  fill(pair.remote);
  const Sge small{pair.local.address(0), 1000, pair.lkey};
  const Sge large{pair.local.address(8192), 8192, pair.lkey};
  pair.world.impair(0, "rx drop first 1 kind read-response");
  pair.near->post_send(Pair::request(SendOp::kRead, 1, small, pair.remote.address(0), pair.rkey));
  pair.near->post_send(
      Pair::request(SendOp::kRead, 2, large, pair.remote.address(8192), pair.rkey));
  const auto done = take_completions(pair.world, *pair.near, *pair.near->send_cq, 2, kSecond);
  ASSERT_EQ(done.size(), 2u);
  EXPECT_EQ(done[0].status, WcStatus::kSuccess);
  EXPECT_TRUE(equal(pair.local, 0, pair.remote, 0, 1000));
  EXPECT_EQ(done[1].status, WcStatus::kBadRespErr);
}

TEST(UnequalEnds, UcMessagesOfAnotherPathMtuAreDropped) {
  for (const Mtus mtus : {Mtus{4096, 1024}, Mtus{1024, 4096}}) {
    for (const SendOp op : {SendOp::kSend, SendOp::kWriteImm}) {
      MixedPair pair({}, QpType::kUc, mtus);
      fill(pair.local);
      for (uint64_t i = 0; i < 4; ++i) {
        const Sge sge{pair.remote.address(i * 16384), 16384, pair.rkey};
        ASSERT_EQ(pair.far->post_recv({.wr_id = i, .sges = {&sge, 1}}), 0);
      }
      // Those that are one packet for both ends arrive, the others don't.
      const uint32_t lengths[] = {1024, 5000, 1000, 16384};
      for (uint64_t i = 0; i < 4; ++i) {
        const Sge sge{pair.local.address(i * 16384), lengths[i], pair.lkey};
        ASSERT_EQ(pair.near->post_send(Pair::request(
                      op, i, sge, pair.remote.address(128 * 1024 + i * 16384), pair.rkey)),
                  0);
      }
      pair.world.run_for(5 * kMillisecond);
      const auto received = pair.far->poll(*pair.far->recv_cq);
      ASSERT_EQ(received.size(), 2u);
      EXPECT_EQ(received[0].byte_len, 1024u);
      EXPECT_EQ(received[1].byte_len, 1000u);
      EXPECT_EQ(pair.far->state(), QpState::kRts);
    }
  }
}

// ---- responder resources

class ResponderResources : public testing::TestWithParam<std::tuple<SendOp, int>> {};

TEST_P(ResponderResources, MoreThanThePeerServesAreRefused) {
  const auto [op, resources] = GetParam();
  QpSettings qp;
  qp.max_rd_atomic = 16;
  qp.max_dest_rd_atomic = static_cast<uint8_t>(resources);
  Pair pair(qp);
  // The answers of the first stay away, so that the peer counts as many as are sent.
  pair.world.impair(1, "tx delay 1ms kind read-response");
  for (uint64_t i = 0; i < 16; ++i) ASSERT_EQ(pair.post(op, i, pair.at(i * 8, 8), i * 8), 0);
  const auto done = pair.sent(16);
  ASSERT_EQ(done.size(), 16u);
  if (resources == 0) {
    EXPECT_EQ(done[0].status, WcStatus::kRemInvReqErr);
    EXPECT_EQ(done[15].status, WcStatus::kWrFlushErr);
    EXPECT_TRUE(raised(*pair.far, AsyncEvent::kQpReqErr));
    EXPECT_EQ(pair.far->state(), QpState::kErr);
    EXPECT_EQ(pair.far_counter(Counter::atomics_executed), 0u);
    return;
  }
  for (const Completion& completion : done)
    EXPECT_EQ(completion.status, WcStatus::kSuccess) << completion.wr_id;
}

INSTANTIATE_TEST_SUITE_P(UnequalEnds, ResponderResources,
                         testing::Combine(testing::Values(SendOp::kRead, SendOp::kFetchAdd,
                                                          SendOp::kCompareSwap),
                                          testing::Values(0, 16)));

// READs that the responder has no time to answer pile up beyond what it said.
TEST(UnequalEnds, MoreReadsThanTheResponderServesAtATimeAreRefused) {
  QpSettings qp;
  qp.max_rd_atomic = 16;
  qp.max_dest_rd_atomic = 2;
  WorldSettings settings;
  settings.link.gigabits = 1;
  settings.link.queue_packets = 16;
  Pair pair(qp, settings);
  for (uint64_t i = 0; i < 16; ++i)
    ASSERT_EQ(pair.post(SendOp::kRead, i, pair.at(0, 64 * 1024), 0), 0);
  const auto done = pair.sent(16);
  ASSERT_EQ(done.size(), 16u);
  EXPECT_EQ(std::count_if(done.begin(), done.end(),
                          [](const Completion& c) { return c.status == WcStatus::kRemInvReqErr; }),
            1);
  EXPECT_TRUE(raised(*pair.far, AsyncEvent::kQpReqErr));
}

// A requester that keeps to what its peer said is never refused, whatever is lost or repeated, nor
// is one that rounds it up to a power of two.
class AsManyReadsAsTheResponderServes : public testing::TestWithParam<Transport> {};

TEST_P(AsManyReadsAsTheResponderServes, AreNeverRefused) {
  struct Numbers {
    uint8_t requester, responder;
  };
  for (const auto& [requester, responder] : {Numbers{1, 1}, {2, 2}, {4, 3}, {5, 5}, {8, 5}}) {
    for (uint64_t seed = 1; seed <= 5; ++seed) {
      QpSettings qp;
      qp.max_rd_atomic = requester;
      qp.max_dest_rd_atomic = responder;
      WorldSettings settings;
      settings.transport = GetParam();
      Pair pair(qp, settings);
      for (const uint32_t host : {0u, 1u})
        pair.world.impair(host, "drop 5%; duplicate 10%; reorder 10% distance 8", seed * 2 + host);
      for (uint64_t i = 0; i < 60; ++i) {
        const SendOp op = i % 5 == 4 ? SendOp::kFetchAdd : SendOp::kRead;
        const uint32_t bytes = op == SendOp::kRead ? (i % 7 == 0 ? 0 : 1 + (i * 3001) % 20000) : 8;
        ASSERT_EQ(pair.post(op, i, pair.at(0, bytes), 0), 0);
      }
      const auto done = pair.sent(60);
      ASSERT_EQ(done.size(), 60u);
      for (const Completion& completion : done)
        ASSERT_EQ(completion.status, WcStatus::kSuccess) << completion.wr_id;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(UnequalEnds, AsManyReadsAsTheResponderServes,
                         testing::Values(Transport::kHostnic, Transport::kRoce),
                         [](const auto& info) {
                           return info.param == Transport::kRoce ? "Roce" : "Hostnic";
                         });

}  // namespace
}  // namespace hostnic::sim
