// SPDX-License-Identifier: BSD-3-Clause
// Queue pairs: what verbs are told, and which attributes are taken when.
#include <cstring>

#include "tests/unit/libmrc/libmrc_test.h"

namespace hostnic::libmrc_test {
namespace {

TEST_F(Libmrc, AQueuePairIsOneOfRc) {
  mrc_qp_init_attr attr = init();
  attr.sq_sig_all = 1;
  attr.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE;
  qp_ = mrc_create_qp(context_, &attr);
  ASSERT_NE(qp_, nullptr);
  EXPECT_EQ(fake().created.qp_type, IBV_QPT_RC);
  EXPECT_EQ(fake().created.sq_sig_all, 1);
  EXPECT_EQ(attr.cap.max_inline_data, 64u);  // as verbs say
  uint32_t qpn = 0;
  EXPECT_EQ(mrc_get_qpn(qp_, &qpn), 0);
  EXPECT_EQ(qpn, 0x123u);
  mrc_qp_init_attr now{};
  ibv_qp_attr verbs{};
  EXPECT_EQ(mrc_query_qp(qp_, &verbs, IBV_QP_STATE, nullptr, 0, &now), 0);
  EXPECT_EQ(now.qp_context, &user_);
  EXPECT_EQ(now.send_cq, cq_);
  EXPECT_EQ(now.protocol_version, MRC_PROTOCOL_VERSION_1);
}

TEST_F(Libmrc, WhatMrcHasNotNoQueuePairIsMadeFor) {
  mrc_qp_init_attr attr = init();
  attr.send_ops_flags = IBV_QP_EX_WITH_SEND;
  EXPECT_EQ(mrc_create_qp(context_, &attr), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  attr = init();
  const int version = 2;
  std::memcpy(&attr.protocol_version, &version, sizeof version);
  EXPECT_EQ(mrc_create_qp(context_, &attr), nullptr);
  EXPECT_EQ(errno, EINVAL);
  attr = init();
  attr.pd = nullptr;
  EXPECT_EQ(mrc_create_qp(context_, &attr), nullptr);
}

// The masks are those of OCP's example, which sets attributes that MRC has not.
TEST_F(Libmrc, VerbsAreToldWhatTheyWantAndMrcHasNot) {
  create_qp();
  ibv_qp_attr verbs{};
  verbs.qp_state = IBV_QPS_INIT;
  verbs.port_num = 9;
  const int init_mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  ASSERT_EQ(mrc_modify_qp(qp_, &verbs, init_mask, nullptr, 0), 0);
  EXPECT_EQ(fake().modified_mask, static_cast<uint32_t>(init_mask));
  EXPECT_EQ(fake().modified.port_num, 1);
  verbs.qp_state = IBV_QPS_RTR;
  const int rtr_mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_PATH_MTU;
  ASSERT_EQ(mrc_modify_qp(qp_, &verbs, rtr_mask, nullptr, 0), 0);
  EXPECT_EQ(fake().modified_mask,
            static_cast<uint32_t>(rtr_mask | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
  EXPECT_EQ(fake().times_limited, 0u);
  verbs.qp_state = IBV_QPS_RTS;
  verbs.timeout = 7;
  verbs.retry_cnt = 14;
  ASSERT_EQ(mrc_modify_qp(
                qp_, &verbs,
                IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_TIMEOUT,
                nullptr, 0),
            0);
  EXPECT_EQ(fake().modified_mask,
            static_cast<uint32_t>(IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_RETRY_CNT |
                                  IBV_QP_RNR_RETRY | IBV_QP_TIMEOUT | IBV_QP_MAX_QP_RD_ATOMIC));
  // Not those of the verbs' masks, but MRC's, of which none was set.
  EXPECT_EQ(fake().modified.timeout, 14);
  EXPECT_EQ(fake().modified.retry_cnt, 7);
  EXPECT_EQ(fake().times_limited, 1u);
  EXPECT_EQ(fake().limits.exponential_retries, 3);
  EXPECT_EQ(fake().limits.mpr, 8);
}

TEST_F(Libmrc, AttributesReachTheDriver) {
  create_qp();
  mrc_qp_attr attr{};
  attr.wimm.max_wimm = 5;
  attr.mpr.mpr = 2;
  attr.timeout = 0;
  attr.retry = {4, 25};
  ASSERT_EQ(to(IBV_QPS_INIT), 0);
  // Earlier than they have to be, as OCP's description of the API has some.
  ASSERT_EQ(to(IBV_QPS_RTR, MRC_QP_MAX_WIMM | MRC_QP_MPR, attr), 0);
  ASSERT_EQ(to(IBV_QPS_RTS, MRC_QP_TIMEOUT | MRC_QP_RETRY_CNT, attr), 0);
  EXPECT_EQ(fake().limits.max_imm, 5);
  EXPECT_EQ(fake().limits.mpr, 2);
  EXPECT_EQ(fake().limits.exponential_retries, 25);
  EXPECT_EQ(fake().modified.timeout, 1);  // verbs' 0 is for ever
  EXPECT_EQ(fake().modified.retry_cnt, 4);
  const mrc_qp_attr now = attributes();
  EXPECT_EQ(now.timeout, 0);
  EXPECT_EQ(now.retry.exp_cnt, 25);
  // In RTS it is too late.
  attr.timeout = 3;
  EXPECT_EQ(mrc_modify_qp(qp_, nullptr, 0, &attr, MRC_QP_TIMEOUT), EINVAL);
  EXPECT_EQ(attributes().timeout, 0);
}

TEST_F(Libmrc, AttributesOutOfRangeChangeNothing) {
  create_qp();
  const mrc_qp_attr before = attributes();
  const auto refuses = [&](uint32_t mask, const mrc_qp_attr& attr) {
    return to(IBV_QPS_INIT, mask, attr) == EINVAL && fake().modifications == 0;
  };
  mrc_qp_attr attr{};
  attr.wimm = {1025, 1025};
  EXPECT_TRUE(refuses(MRC_QP_MAX_WIMM, attr));
  EXPECT_TRUE(refuses(MRC_QP_MAX_WIMM_DEST, attr));
  attr.mpr = {0, 9};
  EXPECT_TRUE(refuses(MRC_QP_MPR, attr));
  EXPECT_TRUE(refuses(MRC_QP_MPR_DEST, attr));
  attr.timeout = 25;
  EXPECT_TRUE(refuses(MRC_QP_TIMEOUT, attr));
  attr.retry = {8, 0};
  EXPECT_TRUE(refuses(MRC_QP_RETRY_CNT, attr));
  attr.retry = {0, 26};
  EXPECT_TRUE(refuses(MRC_QP_RETRY_CNT, attr));
  attr.profile = {1, 1};
  EXPECT_TRUE(refuses(MRC_QP_EV_PROFILE_ID, attr));
  EXPECT_TRUE(refuses(MRC_QP_CC_PROFILE_ID, attr));
  attr.cap = 8;
  EXPECT_TRUE(refuses(MRC_QP_CAP, attr));
  attr.vendor_cfg[127] = 1;
  EXPECT_TRUE(refuses(MRC_QP_VENDOR_CFG, attr));
  attr.qp_hint = reinterpret_cast<mrc_qp_hint*>(cq_);
  EXPECT_TRUE(refuses(MRC_QP_HINT, attr));
  EXPECT_TRUE(refuses(1 << 20, attr));
  const mrc_qp_attr after = attributes();
  EXPECT_EQ(std::memcmp(&before, &after, sizeof before), 0);
}

TEST_F(Libmrc, AVerbThatFailsLeavesTheAttributes) {
  create_qp();
  mrc_qp_attr attr{};
  attr.timeout = 5;
  fake().error = EIO;
  EXPECT_EQ(to(IBV_QPS_INIT, MRC_QP_TIMEOUT, attr), EIO);
  EXPECT_EQ(errno, EIO);
  fake().error = 0;
  EXPECT_EQ(attributes().timeout, 14);
}

TEST_F(Libmrc, AlternatePathsAreRefused) {
  create_qp();
  ibv_qp_attr verbs{};
  EXPECT_EQ(mrc_modify_qp(qp_, &verbs, IBV_QP_ALT_PATH, nullptr, 0), EINVAL);
  EXPECT_EQ(fake().modifications, 0u);
}

TEST_F(Libmrc, WithoutImmediateDataNonePasses) {
  create_qp();
  ibv_send_wr third{}, second{}, first{};
  first.opcode = third.opcode = IBV_WR_RDMA_WRITE;
  second.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  first.next = &second;
  second.next = &third;
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(mrc_post_send(qp_, &first, &bad), 0);
  EXPECT_EQ(fake().posted.size(), 3u);
  fake().posted.clear();
  ASSERT_EQ(to(IBV_QPS_INIT, MRC_QP_MAX_WIMM, mrc_qp_attr{}), 0);
  EXPECT_EQ(mrc_post_send(qp_, &first, &bad), EINVAL);
  EXPECT_EQ(bad, &second);
  ASSERT_EQ(fake().posted.size(), 1u);
  EXPECT_EQ(fake().posted[0], IBV_WR_RDMA_WRITE);
}

TEST_F(Libmrc, AReceiveThatFailsIsMinusOne) {
  create_qp();
  ibv_recv_wr wr{};
  ibv_recv_wr* bad = nullptr;
  EXPECT_EQ(mrc_post_recv(qp_, &wr, &bad), -1);
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_EQ(bad, &wr);
}

}  // namespace
}  // namespace hostnic::libmrc_test
