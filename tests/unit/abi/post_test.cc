// SPDX-License-Identifier: BSD-3-Clause
// Posting by list and by builder, polling plain and extended.
#include <arpa/inet.h>

#include "tests/unit/abi/testing.h"

namespace hostnic {
namespace {

class AbiPost : public AbiTest {
 protected:
  void SetUp() override {
    AbiTest::SetUp();
    qp_ = create_qp();
    ASSERT_NE(qp_, nullptr);
    connect(qp_);
  }
  int poll(ibv_wc* wc, int count) { return ibv_poll_cq(cq_, count, wc); }
  ibv_qp* qp_ = nullptr;
};

TEST_F(AbiPost, BadWrIsTheOneThatDidNotFit) {
  ibv_send_wr wrs[6];
  for (int i = 0; i < 6; ++i) {
    wrs[i] = send_wr(i);
    wrs[i].next = i < 5 ? &wrs[i + 1] : nullptr;
  }
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_send(qp_, wrs, &bad), ENOMEM);
  EXPECT_EQ(bad, &wrs[4]) << "max_send_wr is 4";
  ibv_wc wc[8];
  ASSERT_EQ(poll(wc, 8), 4);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(wc[i].wr_id, static_cast<uint64_t>(i));
  EXPECT_EQ(ibv_post_send(qp_, bad, &bad), 0);
}

TEST_F(AbiPost, UnknownOpcodeAndTooManySges) {
  ibv_send_wr wr = send_wr(1, IBV_WR_TSO);
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_send(qp_, &wr, &bad), EINVAL);
  EXPECT_EQ(bad, &wr);
  ibv_sge sges[3] = {};
  ibv_recv_wr recv{1, nullptr, sges, 17};
  ibv_recv_wr* bad_recv = nullptr;
  EXPECT_EQ(ibv_post_recv(qp_, &recv, &bad_recv), EINVAL);
  EXPECT_EQ(bad_recv, &recv);
}

TEST_F(AbiPost, ReceiveQueueOverflow) {
  ibv_recv_wr wrs[5];
  for (int i = 0; i < 5; ++i)
    wrs[i] = {static_cast<uint64_t>(i), i < 4 ? &wrs[i + 1] : nullptr, nullptr, 0};
  ibv_recv_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_recv(qp_, wrs, &bad), ENOMEM);
  EXPECT_EQ(bad, &wrs[4]);
}

TEST_F(AbiPost, PollsMoreThanOneBatch) {
  ibv_qp_init_attr init = init_attr(cq_);
  init.cap.max_send_wr = 60;
  ibv_qp* qp = ibv_create_qp(pd_, &init);
  connect(qp);
  for (int i = 0; i < 60; ++i) {
    ibv_send_wr wr = send_wr(i);
    ibv_send_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_send(qp, &wr, &bad), 0);
  }
  ibv_wc wc[64];
  ASSERT_EQ(poll(wc, 64), 60);
  EXPECT_EQ(wc[59].wr_id, 59u);
  EXPECT_EQ(poll(wc, 64), 0);
}

class AbiBuilder : public AbiTest {
 protected:
  static constexpr uint64_t kOps = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_SEND |
                                   IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_SEND_WITH_IMM |
                                   IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
  ibv_qp* create(uint64_t ops,
                 uint32_t mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) {
    ibv_qp_init_attr_ex init{};
    const ibv_qp_init_attr plain = init_attr(cq_);
    memcpy(&init, &plain, offsetof(ibv_qp_init_attr, sq_sig_all));
    init.comp_mask = mask;
    init.pd = pd_;
    init.send_ops_flags = ops;
    return ibv_create_qp_ex(context_, &init);
  }
  void SetUp() override {
    AbiTest::SetUp();
    ibv_qp* qp = create(kOps);
    ASSERT_NE(qp, nullptr);
    connect(qp);
    qp_ = ibv_qp_to_qp_ex(qp);
    ASSERT_NE(qp_, nullptr);
    qp_->wr_flags = IBV_SEND_SIGNALED;
  }
  ibv_qp_ex* qp_ = nullptr;
};

TEST_F(AbiBuilder, OnlyForQueuePairsThatAskedForIt) {
  EXPECT_EQ(ibv_qp_to_qp_ex(create_qp()), nullptr);
  EXPECT_EQ(create(kOps | IBV_QP_EX_WITH_TSO), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(create(1ull << 40), nullptr);
  EXPECT_EQ(create(kOps, IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

TEST_F(AbiBuilder, PostsWhatWasBuilt) {
  const ibv_sge list[2] = {{0x1000, 8, 1}, {0x2000, 9, 2}};
  ibv_wr_start(qp_);
  qp_->wr_id = 11;
  ibv_wr_rdma_write(qp_, 77, 0xabc000);
  ibv_wr_set_sge_list(qp_, 2, list);
  qp_->wr_id = 12;
  ibv_wr_send_imm(qp_, htonl(5));
  ibv_wr_set_sge(qp_, 3, 0x3000, 10);
  ASSERT_EQ(ibv_wr_complete(qp_), 0);
  EXPECT_EQ(fake::seen().posts, 2u);
  EXPECT_EQ(fake::seen().send.op, SendOp::kSendImm);
  EXPECT_EQ(fake::seen().send.imm_data, htonl(5));
  ASSERT_EQ(fake::seen().sges.size(), 1u);
  EXPECT_EQ(fake::seen().sges[0].lkey, 3u);
  ibv_wc wc[4];
  ASSERT_EQ(ibv_poll_cq(cq_, 4, wc), 2);
  EXPECT_EQ(wc[0].wr_id, 11u);
  EXPECT_EQ(wc[0].opcode, IBV_WC_RDMA_WRITE);
  EXPECT_EQ(wc[1].wr_id, 12u);
}

TEST_F(AbiBuilder, InlineDataIsTakenAtTheCall) {
  char first[] = "hello ", second[] = "world";
  const ibv_data_buf buffers[2] = {{first, 6}, {second, 5}};
  ibv_wr_start(qp_);
  ibv_wr_send(qp_);
  ibv_wr_set_inline_data_list(qp_, 2, buffers);
  memset(first, 0, sizeof first);
  ASSERT_EQ(ibv_wr_complete(qp_), 0);
  EXPECT_TRUE(fake::seen().send.inline_data);
  const auto& bytes = fake::seen().inline_bytes;
  EXPECT_EQ(std::string(bytes.begin(), bytes.end()), "hello world");
}

TEST_F(AbiBuilder, AtomicAndRead) {
  ibv_wr_start(qp_);
  ibv_wr_atomic_fetch_add(qp_, 5, 0x8000, 123);
  ibv_wr_set_sge(qp_, 1, 0x10, 8);
  ASSERT_EQ(ibv_wr_complete(qp_), 0);
  EXPECT_EQ(fake::seen().send.op, SendOp::kFetchAdd);
  EXPECT_EQ(fake::seen().send.compare_add, 123u);
  EXPECT_EQ(fake::seen().send.remote_va, 0x8000u);
  ibv_wr_start(qp_);
  ibv_wr_rdma_read(qp_, 6, 0x9000);
  ibv_wr_set_sge(qp_, 1, 0x10, 8);
  ASSERT_EQ(ibv_wr_complete(qp_), 0);
  EXPECT_EQ(fake::seen().send.op, SendOp::kRead);
  EXPECT_EQ(fake::seen().send.rkey, 6u);
}

// After each error nothing is posted, and the next batch works.
TEST_F(AbiBuilder, ErrorsPostNothing) {
  const ibv_sge sges[3] = {};
  char bytes[33] = {};
  auto batch = [&](auto build) {
    ibv_wr_start(qp_);
    ibv_wr_send(qp_);
    build();
    return ibv_wr_complete(qp_);
  };
  EXPECT_EQ(batch([&] { ibv_wr_set_sge_list(qp_, 3, sges); }), EINVAL) << "max_send_sge is 2";
  EXPECT_EQ(batch([&] { ibv_wr_set_inline_data(qp_, bytes, 33); }), EINVAL) << "max_inline is 32";
  EXPECT_EQ(batch([&] { ibv_wr_send_tso(qp_, bytes, 1, 1); }), EOPNOTSUPP);
  EXPECT_EQ(batch([&] {
              for (int i = 0; i < 4; ++i) ibv_wr_send(qp_);
            }),
            ENOMEM)
      << "max_send_wr is 4";
  EXPECT_EQ(batch([&] {
              ibv_wr_rdma_read(qp_, 1, 1);
              ibv_wr_set_inline_data(qp_, bytes, 1);
            }),
            EINVAL);
  EXPECT_EQ(fake::seen().posts, 0u);
  EXPECT_EQ(batch([] {}), 0);
  EXPECT_EQ(fake::seen().posts, 1u);
}

TEST_F(AbiBuilder, AllOrNothingWhenTheQueueIsNearlyFull) {
  fake::behaviour().send_slots_free = 1;
  ibv_wr_start(qp_);
  ibv_wr_send(qp_);
  ibv_wr_send(qp_);
  EXPECT_EQ(ibv_wr_complete(qp_), ENOMEM);
  EXPECT_EQ(fake::seen().posts, 0u);
}

TEST_F(AbiBuilder, AbortForgets) {
  ibv_wr_start(qp_);
  ibv_wr_send(qp_);
  ibv_wr_abort(qp_);
  ibv_wr_start(qp_);
  EXPECT_EQ(ibv_wr_complete(qp_), 0);
  EXPECT_EQ(fake::seen().posts, 0u);
}

class AbiCqEx : public AbiTest {
 protected:
  ibv_cq_ex* create(uint64_t wc_flags, uint32_t flags = 0) {
    ibv_cq_init_attr_ex attr{};
    attr.cqe = 16;
    attr.wc_flags = wc_flags;
    attr.comp_mask = flags ? IBV_CQ_INIT_ATTR_MASK_FLAGS : 0;
    attr.flags = flags;
    return ibv_create_cq_ex(context_, &attr);
  }
};

TEST_F(AbiCqEx, RefusesFieldsThatItDoesNotHave) {
  EXPECT_EQ(create(IBV_WC_EX_WITH_TM_INFO), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(create(1ull << 50), nullptr);
  EXPECT_EQ(create(0, IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN), nullptr);
  EXPECT_NE(create(IBV_WC_STANDARD_FLAGS, IBV_CREATE_CQ_ATTR_SINGLE_THREADED), nullptr);
}

TEST_F(AbiCqEx, ReadsCompletionsOneByOne) {
  ibv_cq_ex* cq = create(uint64_t{IBV_WC_STANDARD_FLAGS} | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP);
  ASSERT_NE(cq, nullptr);
  ibv_qp_init_attr init = init_attr(ibv_cq_ex_to_cq(cq));
  ibv_qp* qp = ibv_create_qp(pd_, &init);
  connect(qp);
  ibv_poll_cq_attr attr{};
  EXPECT_EQ(ibv_start_poll(cq, &attr), ENOENT);
  ibv_recv_wr recv{7, nullptr, nullptr, 0};
  ibv_recv_wr* bad_recv = nullptr;
  ASSERT_EQ(ibv_post_recv(qp, &recv, &bad_recv), 0);
  ibv_send_wr wr = send_wr(8, IBV_WR_SEND_WITH_IMM);
  wr.imm_data = htonl(0x55);
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_send(qp, &wr, &bad), 0);
  ASSERT_EQ(ibv_start_poll(cq, &attr), 0);
  EXPECT_EQ(cq->wr_id, 7u);
  EXPECT_EQ(cq->status, IBV_WC_SUCCESS);
  EXPECT_EQ(ibv_wc_read_opcode(cq), IBV_WC_RECV);
  EXPECT_EQ(ibv_wc_read_wc_flags(cq), static_cast<unsigned>(IBV_WC_WITH_IMM));
  EXPECT_EQ(ibv_wc_read_imm_data(cq), htonl(0x55));
  EXPECT_EQ(ibv_wc_read_qp_num(cq), qp->qp_num);
  EXPECT_GT(ibv_wc_read_completion_ts(cq), 0u);
  ASSERT_EQ(ibv_next_poll(cq), 0);
  EXPECT_EQ(cq->wr_id, 8u);
  EXPECT_EQ(ibv_next_poll(cq), ENOENT);
  ibv_end_poll(cq);
  attr.comp_mask = 1;
  EXPECT_EQ(ibv_start_poll(cq, &attr), EINVAL);
}

// What was not read stays for whoever polls next.
TEST_F(AbiCqEx, EndsInTheMiddle) {
  ibv_cq_ex* cq = create(0);
  ibv_qp_init_attr init = init_attr(ibv_cq_ex_to_cq(cq));
  ibv_qp* qp = ibv_create_qp(pd_, &init);
  connect(qp);
  for (int i = 0; i < 3; ++i) {
    ibv_send_wr wr = send_wr(i);
    ibv_send_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_send(qp, &wr, &bad), 0);
  }
  ibv_poll_cq_attr attr{};
  ASSERT_EQ(ibv_start_poll(cq, &attr), 0);
  ibv_end_poll(cq);
  ibv_wc wc[4];
  ASSERT_EQ(ibv_poll_cq(ibv_cq_ex_to_cq(cq), 4, wc), 2);
  EXPECT_EQ(wc[0].wr_id, 1u);
}

}  // namespace
}  // namespace hostnic
