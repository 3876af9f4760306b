// SPDX-License-Identifier: BSD-3-Clause
// Completion statuses from the cause that gives them, on both sides, and what becomes of what was
// posted behind: RC, beyond keys and rights (access_test.cc).
#include <algorithm>
#include <set>

#include "tests/conformance/bench.h"

namespace hostnic::conformance {
namespace {

using Errors = Conformance;

TEST_F(Errors, ReceiveTooSmall) {
  connect();
  ASSERT_EQ(far->post_receive(1, 63), 0);
  ibv_sge sge = near_host->sge(64);
  ASSERT_EQ(near->post(request(2, IBV_WR_SEND, &sge, *far_host)), 0);
  near->expect(2, IBV_WC_REM_INV_REQ_ERR);
  far->expect(1, IBV_WC_LOC_LEN_ERR);
  EXPECT_TRUE(near->reaches(IBV_QPS_ERR));
  EXPECT_TRUE(far->reaches(IBV_QPS_ERR));
}

TEST_F(Errors, ReceiveTooSmallForSeveralPackets) {
  connect();
  ASSERT_EQ(far->post_receive(1, 2000), 0);
  ibv_sge sge = near_host->sge(10'000);
  ASSERT_EQ(near->post(request(2, IBV_WR_SEND, &sge, *far_host)), 0);
  near->expect(2, IBV_WC_REM_INV_REQ_ERR);
  far->expect(1, IBV_WC_LOC_LEN_ERR);
}

TEST_F(Errors, ReceiveOfJustTheSize) {
  connect();
  ASSERT_EQ(far->post_receive(1, 10'000), 0);
  ibv_sge sge = near_host->sge(10'000);
  ASSERT_EQ(near->post(request(2, IBV_WR_SEND, &sge, *far_host)), 0);
  near->expect(2);
  EXPECT_EQ(far->expect(1).byte_len, 10'000u);
}

TEST_F(Errors, ReceiveWithABadLkey) {
  connect();
  ibv_sge bad_sge = far_host->sge(64);
  bad_sge.lkey = kBadKey;
  ibv_recv_wr receive{1, nullptr, &bad_sge, 1};
  ibv_recv_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_recv(far->qp, &receive, &bad), 0);
  ibv_sge sge = near_host->sge(64);
  ASSERT_EQ(near->post(request(2, IBV_WR_SEND, &sge, *far_host)), 0);
  near->expect(2, IBV_WC_REM_OP_ERR);
  far->expect(1, IBV_WC_LOC_PROT_ERR);
}

TEST_F(Errors, ReceiveOfAnotherProtectionDomain) {
  connect();
  ibv_pd* pd = ibv_alloc_pd(far_host->context);
  ibv_mr* mr = ibv_reg_mr(pd, far_host->bytes().data(), 4096, kAllAccess);
  ASSERT_NE(mr, nullptr);
  ibv_sge other = far_host->sge(64);
  other.lkey = mr->lkey;
  ibv_recv_wr receive{1, nullptr, &other, 1};
  ibv_recv_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_recv(far->qp, &receive, &bad), 0);
  ibv_sge sge = near_host->sge(64);
  EXPECT_EQ(near->post(request(2, IBV_WR_SEND, &sge, *far_host)), 0);
  near->expect(2, IBV_WC_REM_OP_ERR);
  far->expect(1, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
}

TEST_F(Errors, ReceiveWithoutTheRightToWrite) {
  connect();
  ibv_mr* mr = ibv_reg_mr(far_host->pd, far_host->bytes().data(), 4096, 0);
  ASSERT_NE(mr, nullptr);
  ibv_sge other = far_host->sge(64);
  other.lkey = mr->lkey;
  ibv_recv_wr receive{1, nullptr, &other, 1};
  ibv_recv_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_recv(far->qp, &receive, &bad), 0);
  ibv_sge sge = near_host->sge(64);
  EXPECT_EQ(near->post(request(2, IBV_WR_SEND, &sge, *far_host)), 0);
  near->expect(2, IBV_WC_REM_OP_ERR);
  far->expect(1, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(Errors, SendWithABadLkeyStaysAtHome) {
  connect();
  ASSERT_EQ(far->post_receive(1, 64), 0);
  ibv_sge sge = near_host->sge(64);
  sge.lkey = kBadKey;
  ASSERT_EQ(near->post(request(2, IBV_WR_SEND, &sge, *far_host)), 0);
  near->expect(2, IBV_WC_LOC_PROT_ERR);
  EXPECT_TRUE(near->reaches(IBV_QPS_ERR));
  EXPECT_EQ(far->state(), IBV_QPS_RTS);
}

TEST_F(Errors, WriteWithImmRefusedTellsTheReceive) {
  connect();
  ASSERT_EQ(far->post_receive(1), 0);
  ibv_sge sge = near_host->sge(64);
  ibv_send_wr wr = request(2, IBV_WR_RDMA_WRITE_WITH_IMM, &sge, *far_host);
  set_remote(wr, far_host->address(), kBadKey);
  ASSERT_EQ(near->post(wr), 0);
  near->expect(2, IBV_WC_REM_ACCESS_ERR);
  far->expect(1, IBV_WC_LOC_ACCESS_ERR);
}

TEST_F(Errors, NoReceiveAndNoRnrRetry) {
  ConnectOptions options;
  options.rnr_retry = 0;
  connect(options);
  ibv_sge sge = near_host->sge(64);
  ASSERT_EQ(near->post(request(1, IBV_WR_SEND, &sge, *far_host)), 0);
  near->expect(1, IBV_WC_RNR_RETRY_EXC_ERR);
  EXPECT_TRUE(near->reaches(IBV_QPS_ERR));
  EXPECT_EQ(far->state(), IBV_QPS_RTS);
}

TEST_F(Errors, NoReceiveForAWriteWithImm) {
  ConnectOptions options;
  options.rnr_retry = 1;
  options.min_rnr_timer = 1;
  connect(options);
  ibv_sge sge = near_host->sge(64);
  ASSERT_EQ(near->post(request(1, IBV_WR_RDMA_WRITE_WITH_IMM, &sge, *far_host)), 0);
  near->expect(1, IBV_WC_RNR_RETRY_EXC_ERR);
}

TEST_F(Errors, RnrRetrySevenWaitsForEver) {
  connect();
  ibv_sge sge = near_host->sge(64);
  ASSERT_EQ(near->post(request(1, IBV_WR_SEND, &sge, *far_host)), 0);
  for (int i = 0; i < 5; ++i) near->expect_nothing();
  ASSERT_EQ(far->post_receive(2, 64), 0);
  near->expect(1);
  far->expect(2);
}

class DeadPeer : public Conformance, public testing::WithParamInterface<ibv_qp_state> {};

TEST_P(DeadPeer, RetriesRunOut) {
  ConnectOptions options;
  options.timeout = 8;  // 1 ms
  options.retry_cnt = 2;
  connect(options);
  ASSERT_EQ(far->to_reset(), 0);
  if (GetParam() == IBV_QPS_INIT) {
    ASSERT_EQ(far->to_init(), 0);
  }
  if (GetParam() == IBV_QPS_ERR) {
    ASSERT_EQ(far->to(IBV_QPS_ERR), 0);
  }
  ibv_sge sge = near_host->sge(64);
  ASSERT_EQ(near->post(request(1, IBV_WR_RDMA_WRITE, &sge, *far_host)), 0);
  ASSERT_EQ(near->post(request(2, IBV_WR_RDMA_WRITE, &sge, *far_host)), 0);
  near->expect(1, IBV_WC_RETRY_EXC_ERR);
  near->expect(2, IBV_WC_WR_FLUSH_ERR);
  EXPECT_TRUE(near->reaches(IBV_QPS_ERR));
}

INSTANTIATE_TEST_SUITE_P(States, DeadPeer,
                         testing::Values(IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_ERR),
                         [](const auto& info) { return name_of(info.param); });

TEST_F(Errors, DestroyedPeer) {
  ConnectOptions options;
  options.timeout = 8;
  options.retry_cnt = 1;
  connect(options);
  far.reset();
  ibv_sge sge = near_host->sge(64);
  ASSERT_EQ(near->post(request(1, IBV_WR_RDMA_WRITE, &sge, *far_host)), 0);
  near->expect(1, IBV_WC_RETRY_EXC_ERR);
}

// ---- what is behind an error

TEST_F(Errors, EverythingBehindFlushesInOrder) {
  connect();
  ibv_sge sge = near_host->sge(64);
  for (uint64_t i = 1; i <= 3; ++i)
    ASSERT_EQ(near->post(request(i, IBV_WR_RDMA_WRITE, &sge, *far_host)), 0);
  ibv_send_wr bad = request(4, IBV_WR_RDMA_READ, &sge, *far_host);
  set_remote(bad, far_host->address(), kBadKey);
  ASSERT_EQ(near->post(bad), 0);
  const ibv_wr_opcode behind[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_SEND,
                                  IBV_WR_ATOMIC_FETCH_AND_ADD};
  ibv_sge eight = near_host->sge(8);
  for (uint64_t i = 0; i < 8; ++i)
    ASSERT_EQ(near->post(request(5 + i, behind[i % 4], &eight, *far_host)), 0);
  for (uint64_t i = 1; i <= 3; ++i) near->expect(i);
  near->expect(4, IBV_WC_REM_ACCESS_ERR);
  for (uint64_t i = 5; i <= 12; ++i) near->expect(i, IBV_WC_WR_FLUSH_ERR);
}

TEST_F(Errors, UnsignalledRequestsFlushSignalled) {
  connect();
  ibv_sge sge = near_host->sge(64);
  ibv_send_wr bad = request(1, IBV_WR_RDMA_WRITE, &sge, *far_host);
  set_remote(bad, far_host->address(), kBadKey);
  bad.send_flags = 0;
  ASSERT_EQ(near->post(bad), 0);
  for (uint64_t i = 2; i <= 4; ++i) {
    ibv_send_wr wr = request(i, IBV_WR_RDMA_WRITE, &sge, *far_host);
    wr.send_flags = 0;
    ASSERT_EQ(near->post(wr), 0);
  }
  near->expect(1, IBV_WC_REM_ACCESS_ERR);
  for (uint64_t i = 2; i <= 4; ++i) near->expect(i, IBV_WC_WR_FLUSH_ERR);
}

TEST_F(Errors, ReceivesFlushInOrder) {
  connect();
  for (uint64_t i = 1; i <= 10; ++i) ASSERT_EQ(near->post_receive(i, 64), 0);
  ASSERT_EQ(near->to(IBV_QPS_ERR), 0);
  for (uint64_t i = 1; i <= 10; ++i) {
    const ibv_wc wc = near->expect(i, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(wc.wc_flags, 0u);
  }
}

TEST_F(Errors, WhatIsPostedInErrFlushesAtOnce) {
  connect();
  ASSERT_EQ(near->to(IBV_QPS_ERR), 0);
  ASSERT_EQ(near->post_receive(1, 64), 0);
  near->expect(1, IBV_WC_WR_FLUSH_ERR);
  ibv_sge sge = near_host->sge(64);
  ASSERT_EQ(near->post(request(2, IBV_WR_SEND, &sge, *far_host)), 0);
  near->expect(2, IBV_WC_WR_FLUSH_ERR);
}

TEST_F(Errors, StatusesHaveAVendorsReason) {
  connect();
  ibv_sge sge = near_host->sge(64);
  ibv_send_wr bad = request(1, IBV_WR_RDMA_WRITE, &sge, *far_host);
  set_remote(bad, far_host->address(), kBadKey);
  ASSERT_EQ(near->post(bad), 0);
  EXPECT_NE(near->expect(1, IBV_WC_REM_ACCESS_ERR).vendor_err, 0u);
}

TEST_F(Errors, TheOtherQueuePairsGoOn) {
  connect();
  Endpoint near2(*near_host, {}), far2(*far_host, {});
  for (Endpoint* one : {&near2, &far2}) {
    ASSERT_EQ(one->to_init(), 0);
    ASSERT_EQ(one->to_rtr(one == &near2 ? far2 : near2), 0);
    ASSERT_EQ(one->to_rts(), 0);
  }
  ibv_sge sge = near_host->sge(64);
  ibv_send_wr bad = request(1, IBV_WR_RDMA_WRITE, &sge, *far_host);
  set_remote(bad, far_host->address(), kBadKey);
  ASSERT_EQ(near->post(bad), 0);
  near->expect(1, IBV_WC_REM_ACCESS_ERR);
  ASSERT_EQ(near2.post(request(2, IBV_WR_RDMA_WRITE, &sge, *far_host)), 0);
  near2.expect(2);
}

}  // namespace
}  // namespace hostnic::conformance
