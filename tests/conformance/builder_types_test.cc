// SPDX-License-Identifier: BSD-3-Clause
// ibv_create_qp_ex: what can be asked for, and the builder calls of UC and UD queue pairs.
#include <endian.h>

#include "tests/conformance/builder.h"

namespace hostnic::conformance {
namespace {

// ---- creation

TEST_F(Builder, OperationsThatATypeHasNot) {
  create();
  constexpr uint64_t kNowhere[] = {IBV_QP_EX_WITH_TSO, IBV_QP_EX_WITH_ATOMIC_WRITE,
                                   uint64_t{1} << 40};
  for (const uint64_t op : kNowhere) {
    errno = 0;
    EXPECT_EQ(make_qp(*near, op, IBV_QPT_RC), nullptr) << op;
    EXPECT_EQ(errno, EOPNOTSUPP);
  }
  for (const uint64_t op : {IBV_QP_EX_WITH_RDMA_READ, IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP,
                            IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD, IBV_QP_EX_WITH_SEND_WITH_INV}) {
    errno = 0;
    EXPECT_EQ(make_qp(*near, op, IBV_QPT_UC), nullptr) << op;
    EXPECT_EQ(errno, EOPNOTSUPP);
    EXPECT_EQ(make_qp(*near, op, IBV_QPT_UD), nullptr) << op;
  }
  EXPECT_EQ(make_qp(*near, IBV_QP_EX_WITH_RDMA_WRITE, IBV_QPT_UD), nullptr);
}

TEST_F(Builder, OnlyForThoseWhoAskedForIt) {
  connect();
  EXPECT_EQ(ibv_qp_to_qp_ex(near->qp), nullptr);
}

TEST_F(Builder, ExtendedAttributesThatThereAreNot) {
  create();
  ibv_qp_init_attr_ex init{};
  init.send_cq = init.recv_cq = near->cq;
  init.cap = near->options.caps;
  init.qp_type = IBV_QPT_RC;
  init.pd = near_host->pd;
  for (const uint32_t mask : {IBV_QP_INIT_ATTR_XRCD, IBV_QP_INIT_ATTR_MAX_TSO_HEADER,
                              IBV_QP_INIT_ATTR_IND_TABLE, IBV_QP_INIT_ATTR_RX_HASH}) {
    init.comp_mask = IBV_QP_INIT_ATTR_PD | mask;
    errno = 0;
    EXPECT_EQ(ibv_create_qp_ex(near_host->context, &init), nullptr) << mask;
    EXPECT_EQ(errno, EOPNOTSUPP);
  }
  init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS;
  init.create_flags = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB;
  errno = 0;
  EXPECT_EQ(ibv_create_qp_ex(near_host->context, &init), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  init.comp_mask = 0;  // without a protection domain
  errno = 0;
  EXPECT_EQ(ibv_create_qp_ex(near_host->context, &init), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

// ---- the other types

TEST_F(Builder, OfUnreliableConnections) {
  build(kSends | kWrites, IBV_QPT_UC);
  fill(5000);
  ASSERT_EQ(far->post_receive(3, 100, 100'000), 0);
  start(1);
  ibv_wr_rdma_write(qp_, rkey(), there());
  data(5000);
  next(2);
  ibv_wr_send(qp_);
  data(100);
  ASSERT_EQ(ibv_wr_complete(qp_), 0);
  near->expect(1);
  near->expect(2);
  far->expect(3);
  EXPECT_TRUE(arrived(5000));
  start(4);
  ibv_wr_rdma_read(qp_, rkey(), there());
  data(8);
  EXPECT_NE(ibv_wr_complete(qp_), 0);
}

class DatagramBuilder : public Builder {
 protected:
  void SetUp() override {
    Builder::SetUp();
    if (HasFatalFailure()) return;
    build(kSends, IBV_QPT_UD);
    ibv_ah_attr attr{};
    attr.is_global = 1;
    attr.port_num = 1;
    attr.grh.dgid = far_host->gid();
    ah_ = ibv_create_ah(near_host->pd, &attr);
    ASSERT_NE(ah_, nullptr);
  }
  void TearDown() override {
    if (ah_ != nullptr) {
      EXPECT_EQ(ibv_destroy_ah(ah_), 0);
    }
    Builder::TearDown();
  }
  ibv_ah* ah_ = nullptr;
};

TEST_F(DatagramBuilder, SendsToAnAddress) {
  ASSERT_EQ(far->post_receive(2, 140), 0);
  ASSERT_EQ(far->post_receive(3, 140, 1000), 0);
  fill(100);
  start(1);
  ibv_wr_send(qp_);
  data(100);
  ibv_wr_set_ud_addr(qp_, ah_, far->qp->qp_num, 0x11111111);
  next(4);
  ibv_wr_send_imm(qp_, htobe32(9));
  ibv_wr_set_ud_addr(qp_, ah_, far->qp->qp_num, 0x11111111);
  data(50);
  ASSERT_EQ(ibv_wr_complete(qp_), 0) << "the order of the setters is the program's";
  near->expect(1);
  near->expect(4);
  EXPECT_EQ(far->expect(2).byte_len, 140u);
  const ibv_wc wc = far->expect(3);
  EXPECT_EQ(wc.byte_len, 90u);
  EXPECT_EQ(wc.imm_data, htobe32(9));
  EXPECT_EQ(wc.wc_flags, static_cast<unsigned int>(IBV_WC_GRH | IBV_WC_WITH_IMM));
  EXPECT_EQ(wc.src_qp, near->qp->qp_num);
  EXPECT_TRUE(arrived(100, 40));
}

TEST_F(DatagramBuilder, WithoutAnAddress) {
  start(1);
  ibv_wr_send(qp_);
  data(8);
  EXPECT_EQ(ibv_wr_complete(qp_), EINVAL);
  near->expect_nothing();
}

TEST_F(DatagramBuilder, AnAddressThatIsNone) {
  start(1);
  ibv_wr_send(qp_);
  data(8);
  ibv_wr_set_ud_addr(qp_, nullptr, far->qp->qp_num, 0x11111111);
  EXPECT_EQ(ibv_wr_complete(qp_), EINVAL);
}

}  // namespace
}  // namespace hostnic::conformance
