// SPDX-License-Identifier: BSD-3-Clause
// Memory windows at the verbs' edge: handles, keys, and what a bind hands to the driver.
#include <cstring>

#include "tests/unit/abi/testing.h"

namespace hostnic {
namespace {

class AbiWindows : public AbiTest {
 protected:
  void SetUp() override {
    AbiTest::SetUp();
    mr_ = ibv_reg_mr(pd_, buffer_, sizeof buffer_, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
    qp_ = create_qp();
    ASSERT_TRUE(mr_ != nullptr && qp_ != nullptr);
    connect(qp_);
  }
  ibv_mw_bind_info info(unsigned int access = IBV_ACCESS_REMOTE_WRITE) {
    return {mr_, reinterpret_cast<uintptr_t>(buffer_) + 8, 16, access};
  }
  int post_bind(ibv_mw* mw, uint32_t rkey, const ibv_mw_bind_info& what) {
    ibv_send_wr wr = send_wr(4, IBV_WR_BIND_MW), *bad = nullptr;
    wr.bind_mw = {mw, rkey, what};
    return ibv_post_send(qp_, &wr, &bad);
  }
  char buffer_[64]{};
  ibv_mr* mr_ = nullptr;
  ibv_qp* qp_ = nullptr;
};

TEST_F(AbiWindows, HoldTheirDomain) {
  ibv_pd* pd = ibv_alloc_pd(context_);
  ibv_mw* mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
  ASSERT_NE(mw, nullptr);
  EXPECT_EQ(mw->type, IBV_MW_TYPE_2);
  EXPECT_EQ(mw->pd, pd);
  EXPECT_EQ(mw->context, context_);
  EXPECT_NE(mw->rkey, 0u);
  EXPECT_EQ(ibv_dealloc_pd(pd), EBUSY);
  EXPECT_EQ(ibv_dealloc_mw(mw), 0);
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
  errno = 0;
  EXPECT_EQ(ibv_alloc_mw(pd_, static_cast<ibv_mw_type>(3)), nullptr);
  EXPECT_EQ(errno, EINVAL);
  fake::behaviour().window_error = ENOMEM;
  EXPECT_EQ(ibv_alloc_mw(pd_, IBV_MW_TYPE_1), nullptr);
  EXPECT_EQ(errno, ENOMEM);
}

TEST_F(AbiWindows, CloseDeviceTakesThemAlong) {
  ASSERT_NE(ibv_alloc_mw(pd_, IBV_MW_TYPE_1), nullptr);
  EXPECT_EQ(fake::seen().windows, 1u);  // TearDown looks for 0
}

TEST_F(AbiWindows, Type1BindsGiveNewKeysOfTheSameWindow) {
  ibv_mw* mw = ibv_alloc_mw(pd_, IBV_MW_TYPE_1);
  ASSERT_NE(mw, nullptr);
  ibv_mw_bind bind{9, IBV_SEND_SIGNALED, info()};
  for (int i = 0; i < 8; ++i) {
    const uint32_t before = mw->rkey;
    ASSERT_EQ(ibv_bind_mw(qp_, mw, &bind), 0);
    EXPECT_NE(mw->rkey, before);
    EXPECT_EQ((mw->rkey ^ before) & ~kWindowTagMask, 0u) << "the window's own";
    const driver::SendRequest& seen = fake::seen().send;
    EXPECT_EQ(seen.op, SendOp::kBindWindow);
    EXPECT_EQ(seen.wr_id, 9u);
    EXPECT_TRUE(seen.signalled);
    EXPECT_EQ(seen.rkey, mw->rkey);
    EXPECT_EQ(seen.remote_va, reinterpret_cast<uintptr_t>(buffer_) + 8);
    EXPECT_EQ(seen.binding.length_bytes, 16u);
    EXPECT_EQ(seen.binding.mr_key, mr_->lkey);
    EXPECT_EQ(seen.binding.access, uint32_t{kAccessRemoteWrite});
    ibv_wc wc;
    ASSERT_EQ(ibv_poll_cq(cq_, 1, &wc), 1);
    EXPECT_EQ(wc.opcode, IBV_WC_BIND_MW);
  }
  bind.bind_info = {};  // unbinds
  EXPECT_EQ(ibv_bind_mw(qp_, mw, &bind), 0);
  EXPECT_EQ(fake::seen().send.binding.length_bytes, 0u);
}

TEST_F(AbiWindows, ABindThatIsRefusedKeepsTheKey) {
  ibv_mw* mw = ibv_alloc_mw(pd_, IBV_MW_TYPE_1);
  const uint32_t key = mw->rkey;
  ibv_mw_bind bind{9, 0, info()};
  fake::behaviour().post_error = ENOMEM;
  EXPECT_EQ(ibv_bind_mw(qp_, mw, &bind), ENOMEM);
  EXPECT_EQ(mw->rkey, key);
  fake::behaviour().post_error = 0;
  bind.bind_info = info(1u << 30);
  EXPECT_EQ(ibv_bind_mw(qp_, mw, &bind), EINVAL) << "no right of anything";
  ibv_mr dead = *mr_;
  bind.bind_info = info();
  bind.bind_info.mr = &dead;
  EXPECT_EQ(ibv_bind_mw(qp_, mw, &bind), EINVAL) << "no region of ours";
  EXPECT_EQ(mw->rkey, key);
}

TEST_F(AbiWindows, Type2IsBoundByWorkRequests) {
  ibv_mw* mw = ibv_alloc_mw(pd_, IBV_MW_TYPE_2);
  const uint32_t key = ibv_inc_rkey(mw->rkey);
  ASSERT_EQ(post_bind(mw, key, info()), 0);
  EXPECT_EQ(fake::seen().send.op, SendOp::kBindWindow);
  EXPECT_EQ(fake::seen().send.rkey, key);
  EXPECT_TRUE(fake::seen().sges.empty());
  ibv_mw_bind bind{9, 0, info()};
  EXPECT_EQ(ibv_bind_mw(qp_, mw, &bind), EINVAL) << "type 1's call";
  ibv_mw* type1 = ibv_alloc_mw(pd_, IBV_MW_TYPE_1);
  EXPECT_EQ(post_bind(type1, key, info()), EINVAL);
  ibv_pd* pd = ibv_alloc_pd(context_);
  ibv_mw* stranger = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
  EXPECT_EQ(post_bind(stranger, key, info()), 0) << "the NIC finds out";
  EXPECT_EQ(post_bind(reinterpret_cast<ibv_mw*>(buffer_), key, info()), EINVAL);
}

TEST_F(AbiWindows, Type2KeysTakeTheLowByteOfWhatIsAskedFor) {
  ibv_mw* mw = ibv_alloc_mw(pd_, IBV_MW_TYPE_2);
  const uint32_t made = mw->rkey;
  EXPECT_EQ(made & kWindowUserMask, 0u);
  ASSERT_EQ(post_bind(mw, 0x12345678, info()), 0);
  EXPECT_EQ(fake::seen().send.rkey, made | 0x78);
  EXPECT_EQ(mw->rkey, made | 0x78) << "the window's from now on";
  fake::behaviour().post_error = ENOMEM;
  EXPECT_EQ(post_bind(mw, 0x99, info()), ENOMEM);
  EXPECT_EQ(mw->rkey, made | 0x78);
}

TEST_F(AbiWindows, RightsOfRegionsAreTakenAndDropped) {
  ibv_mw* mw = ibv_alloc_mw(pd_, IBV_MW_TYPE_2);
  ASSERT_EQ(post_bind(mw, 1,
                      info(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND |
                           IBV_ACCESS_RELAXED_ORDERING | IBV_ACCESS_REMOTE_READ)),
            0);
  EXPECT_EQ(fake::seen().send.binding.access, uint32_t{kAccessRemoteRead});
  ibv_mw* type1 = ibv_alloc_mw(pd_, IBV_MW_TYPE_1);
  ibv_mw_bind bind{9, 0, info(IBV_ACCESS_LOCAL_WRITE)};
  ASSERT_EQ(ibv_bind_mw(qp_, type1, &bind), 0);
  EXPECT_EQ(fake::seen().send.binding.access, 0u);
}

TEST_F(AbiWindows, Invalidations) {
  ibv_send_wr wr = send_wr(5, IBV_WR_LOCAL_INV), *bad = nullptr;
  wr.invalidate_rkey = 0x80001234;
  ASSERT_EQ(ibv_post_send(qp_, &wr, &bad), 0);
  EXPECT_EQ(fake::seen().send.op, SendOp::kLocalInvalidate);
  EXPECT_EQ(fake::seen().send.rkey, 0x80001234u);
  ibv_recv_wr receive{7, nullptr, nullptr, 0}, *bad_receive = nullptr;
  ASSERT_EQ(ibv_post_recv(qp_, &receive, &bad_receive), 0);
  wr = send_wr(6, IBV_WR_SEND_WITH_INV);
  wr.invalidate_rkey = 0x80005678;
  ASSERT_EQ(ibv_post_send(qp_, &wr, &bad), 0);
  ibv_wc wc[3];
  ASSERT_EQ(ibv_poll_cq(cq_, 3, wc), 3);
  EXPECT_EQ(wc[0].opcode, IBV_WC_LOCAL_INV);
  EXPECT_EQ(wc[1].opcode, IBV_WC_RECV);
  EXPECT_EQ(wc[1].wc_flags, static_cast<unsigned int>(IBV_WC_WITH_INV));
  EXPECT_EQ(wc[1].invalidated_rkey, 0x80005678u);
  EXPECT_EQ(wc[2].opcode, IBV_WC_SEND);
}

TEST_F(AbiWindows, BuilderCalls) {
  ibv_qp_init_attr plain = init_attr(cq_);
  ibv_qp_init_attr_ex init{};
  init.send_cq = init.recv_cq = cq_;
  init.cap = plain.cap;
  init.qp_type = IBV_QPT_RC;
  init.pd = pd_;
  init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  init.send_ops_flags =
      IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_SEND_WITH_INV;
  ibv_qp* base = ibv_create_qp_ex(context_, &init);
  ASSERT_NE(base, nullptr);
  connect(base);
  ibv_qp_ex* qp = ibv_qp_to_qp_ex(base);
  ibv_mw* mw = ibv_alloc_mw(pd_, IBV_MW_TYPE_2);
  const ibv_mw_bind_info what = info();
  ibv_wr_start(qp);
  const uint32_t made = mw->rkey;
  ibv_wr_bind_mw(qp, mw, 0x33, &what);
  EXPECT_EQ(mw->rkey, made) << "nothing is posted yet";
  ASSERT_EQ(ibv_wr_complete(qp), 0);
  EXPECT_EQ(mw->rkey, made | 0x33);
  EXPECT_EQ(fake::seen().send.rkey, made | 0x33);
  EXPECT_EQ(fake::seen().send.op, SendOp::kBindWindow);
  EXPECT_EQ(fake::seen().send.binding.mr_key, mr_->lkey);
  ibv_wr_start(qp);
  ibv_wr_local_inv(qp, mw->rkey);
  ASSERT_EQ(ibv_wr_complete(qp), 0);
  EXPECT_EQ(fake::seen().send.op, SendOp::kLocalInvalidate);
  EXPECT_EQ(fake::seen().send.rkey, mw->rkey);
  ibv_wr_start(qp);
  ibv_wr_send_inv(qp, 0x80001111);
  ASSERT_EQ(ibv_wr_complete(qp), 0);
  EXPECT_EQ(fake::seen().send.op, SendOp::kSendInv);
  EXPECT_EQ(fake::seen().send.imm_data, 0x80001111u);
  ibv_wr_start(qp);
  ibv_wr_bind_mw(qp, reinterpret_cast<ibv_mw*>(buffer_), 1, &what);
  EXPECT_EQ(ibv_wr_complete(qp), EINVAL);
  init.qp_type = IBV_QPT_UC;
  EXPECT_EQ(ibv_create_qp_ex(context_, &init), nullptr) << "no SEND_WITH_INV on UC";
  init.send_ops_flags = IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV;
  EXPECT_NE(ibv_create_qp_ex(context_, &init), nullptr);
}

TEST_F(AbiWindows, ARegionThatIsBoundStays) {
  const uint32_t key = mr_->lkey;
  fake::behaviour().deregister_error = EBUSY;
  EXPECT_EQ(ibv_dereg_mr(mr_), EBUSY);
  EXPECT_EQ(errno, EBUSY);
  EXPECT_EQ(ibv_rereg_mr(mr_, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 0),
            IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(mr_->lkey, key);
  fake::behaviour().deregister_error = 0;
  fake::seen().mrs = 1;  // the fake forgets none while it refuses
  EXPECT_EQ(ibv_dereg_mr(mr_), 0) << "it is still one";
  EXPECT_EQ(ibv_dereg_mr(mr_), ENOENT);
}

}  // namespace
}  // namespace hostnic
