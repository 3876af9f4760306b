// SPDX-License-Identifier: BSD-3-Clause
// The two ends of a connection were told different things, as happens where they exchange less than
// they should: path MTUs, responder resources. An adapter ends such a connection with an error;
// what it never does is report success for bytes that are not there (InfiniBand 9.7.4.1, 9.9.2).
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "tests/conformance/bench.h"

namespace hostnic::conformance {
namespace {

struct Mtus {
  ibv_mtu near, far;
};

class UnequalPathMtus : public Conformance,
                        public testing::WithParamInterface<std::tuple<ibv_wr_opcode, Mtus>> {};

TEST_P(UnequalPathMtus, SuccessMeansAllBytes) {
  const auto [opcode, mtus] = GetParam();
  constexpr uint32_t kLength = 2000;  // more than one packet at one end, or at both
  ASSERT_NO_FATAL_FAILURE(create());
  near->options.mtu = mtus.near;
  far->options.mtu = mtus.far;
  connect_endpoints(*near, *far);
  const bool read = opcode == IBV_WR_RDMA_READ;
  const auto source = read ? far_host->bytes() : near_host->bytes();
  const auto target = read ? near_host->bytes() : far_host->bytes();
  for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<std::byte>(i * 7 + 3);
  std::fill(target.begin(), target.end(), std::byte{0});
  ASSERT_EQ(far->post_receive(1, kLength), 0);
  ibv_sge sge = near_host->sge(kLength);
  ASSERT_EQ(near->post(request(1, opcode, &sge, *far_host)), 0);
  const ibv_wc done = near->next();
  EXPECT_EQ(done.status, read ? IBV_WC_BAD_RESP_ERR : IBV_WC_REM_INV_REQ_ERR);
  EXPECT_TRUE(near->reaches(IBV_QPS_ERR));
  if (!read) {
    ibv_async_event event;
    EXPECT_TRUE(far_host->wait_async(IBV_EVENT_QP_REQ_ERR, event));
    EXPECT_TRUE(far->reaches(IBV_QPS_ERR));
  }
}

INSTANTIATE_TEST_SUITE_P(Operations, UnequalPathMtus,
                         testing::Combine(testing::Values(IBV_WR_RDMA_WRITE,
                                                          IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND,
                                                          IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_READ),
                                          testing::Values(Mtus{IBV_MTU_4096, IBV_MTU_1024},
                                                          Mtus{IBV_MTU_1024, IBV_MTU_4096},
                                                          Mtus{IBV_MTU_256, IBV_MTU_512})),
                         [](const auto& info) {
                           const Mtus mtus = std::get<1>(info.param);
                           return name_of(std::get<0>(info.param)) + "_" +
                                  std::to_string(128 << mtus.near) + "_" +
                                  std::to_string(128 << mtus.far);
                         });

// What is one packet for both ends works.
TEST_F(Conformance, MessagesThatAreOnePacketForBothEndsArrive) {
  ASSERT_NO_FATAL_FAILURE(create());
  near->options.mtu = IBV_MTU_4096;
  far->options.mtu = IBV_MTU_256;
  connect_endpoints(*near, *far);
  std::fill(near_host->bytes().begin(), near_host->bytes().end(), std::byte{7});
  for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
    ibv_sge sge = near_host->sge(256);
    ASSERT_EQ(near->post(request(1, opcode, &sge, *far_host)), 0);
    near->expect(1);
  }
  EXPECT_EQ(std::memcmp(near_host->bytes().data(), far_host->bytes().data(), 256), 0);
}

class NoResponderResources : public Conformance,
                             public testing::WithParamInterface<ibv_wr_opcode> {};

TEST_P(NoResponderResources, RefusesWhatWouldNeedThem) {
  ASSERT_NO_FATAL_FAILURE(create());
  far->options.rd_atomic = 0;
  connect_endpoints(*near, *far);
  const auto before = far_host->bytes()[0];
  ibv_sge sge = near_host->sge(8);
  ASSERT_EQ(near->post(request(1, GetParam(), &sge, *far_host)), 0);
  near->expect(1, IBV_WC_REM_INV_REQ_ERR);
  ibv_async_event event;
  EXPECT_TRUE(far_host->wait_async(IBV_EVENT_QP_REQ_ERR, event));
  EXPECT_TRUE(far->reaches(IBV_QPS_ERR));
  EXPECT_EQ(far_host->bytes()[0], before);
}

INSTANTIATE_TEST_SUITE_P(Operations, NoResponderResources,
                         testing::Values(IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD,
                                         IBV_WR_ATOMIC_CMP_AND_SWP),
                         [](const auto& info) { return name_of(info.param); });

// Programs that register a buffer for each message, and deregister it as soon as the message has
// completed, several of them at once: what the NIC still holds of a message is no error.
TEST_F(Conformance, EveryMessageFromARegionOfItsOwn) {
  ASSERT_NO_FATAL_FAILURE(create());
  constexpr int kThreads = 4, kMessages = 300;
  constexpr uint32_t kLength = 20'000;
  std::atomic<int> delivered{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      Endpoint from(*near_host, {}), to(*far_host, {});
      connect_endpoints(from, to);
      std::vector<std::byte> buffer(kLength);
      for (int i = 0; i < kMessages; ++i) {
        std::fill(buffer.begin(), buffer.end(), static_cast<std::byte>(i + t));
        const uint64_t offset = static_cast<uint64_t>(t) * kLength;
        if (to.post_receive(1, kLength, offset) != 0) return;
        ibv_mr* mr = ibv_reg_mr(near_host->pd, buffer.data(), kLength, 0);
        if (mr == nullptr) return;
        ibv_sge sge{reinterpret_cast<uint64_t>(buffer.data()), kLength, mr->lkey};
        if (from.post(request(2, IBV_WR_SEND, &sge, *far_host)) != 0) return;
        const bool good = from.next().status == IBV_WC_SUCCESS;
        if (ibv_dereg_mr(mr) != 0 || !good || to.next().status != IBV_WC_SUCCESS) return;
        if (std::memcmp(far_host->bytes().data() + offset, buffer.data(), kLength) != 0) return;
        ++delivered;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(delivered, kThreads * kMessages);
}

}  // namespace
}  // namespace hostnic::conformance
