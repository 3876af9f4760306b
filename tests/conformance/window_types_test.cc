// SPDX-License-Identifier: BSD-3-Clause
// What is different between memory windows of type 1 and of type 2, and how many there are.
#include "tests/conformance/windows.h"

namespace hostnic::conformance {
namespace {

// ---- type 1

using Type1 = Windows;

TEST_F(Type1, EachBindMakesAnotherKey) {
  connect();
  ibv_mw* mw = make(IBV_MW_TYPE_1);
  bind(mw, info());
  const uint32_t before = mw->rkey;
  opens(before);
  bind(mw, info(0, 128));
  EXPECT_NE(mw->rkey, before);
  opens(mw->rkey, 64);
  refuses(before);
}

TEST_F(Type1, LengthZeroUnbinds) {
  connect();
  ibv_mw* mw = make(IBV_MW_TYPE_1);
  bind(mw, info());
  bind(mw, info(kAt, 0));
  EXPECT_EQ(ibv_dereg_mr(mr_), 0);
  mr_ = nullptr;
  refuses(mw->rkey);
}

TEST_F(Type1, AnyQueuePairOfTheDomainMayUseIt) {
  connect();
  ibv_mw* mw = make(IBV_MW_TYPE_1);
  bind(mw, info());
  const auto near_before = std::move(near), far_before = std::move(far);
  connect();
  opens(mw->rkey);
}

TEST_F(Type1, IsBoundByItsOwnVerbOnly) {
  connect();
  EXPECT_EQ(post_bind_as(1, make(IBV_MW_TYPE_1), 0, info()), EINVAL);
  ibv_mw_bind bind{1, IBV_SEND_SIGNALED, info()};
  EXPECT_EQ(ibv_bind_mw(far->qp, make(IBV_MW_TYPE_2), &bind), EINVAL);
}

TEST_F(Type1, IsNotInvalidated) {
  connect();
  ibv_mw* mw = make(IBV_MW_TYPE_1);
  bind(mw, info());
  ASSERT_EQ(far->post(with_key(1, IBV_WR_LOCAL_INV, mw->rkey)), 0);
  far->expect(1, IBV_WC_MW_BIND_ERR);
}

// ---- type 2

using Type2 = Windows;

TEST_F(Type2, TheProgramChoosesTheLowByte) {
  connect();
  ibv_mw* mw = make(IBV_MW_TYPE_2);
  const uint32_t made = mw->rkey, chosen = made ^ 0x5a;
  ASSERT_EQ(post_bind_as(1, mw, chosen, info()), 0);
  far->expect(1);
  opens(chosen);
  refuses(made);
}

TEST_F(Type2, TheRestOfTheKeyIsGiven) {
  connect();
  ibv_mw* mw = make(IBV_MW_TYPE_2);
  const uint32_t made = mw->rkey;
  EXPECT_EQ(made & 0xff, 0u);
  ibv_send_wr wr = request(1, IBV_WR_BIND_MW, nullptr, *far_host);
  wr.bind_mw = {mw, 0x12345678, info()};
  ASSERT_EQ(far->post(wr), 0);
  far->expect(1);
  EXPECT_EQ(mw->rkey, made | 0x78);
  opens(mw->rkey);
  refuses(made);
}

TEST_F(Windows, TakeTheRightsOfTheirRegion) {
  connect();
  for (const ibv_mw_type type : {IBV_MW_TYPE_1, IBV_MW_TYPE_2}) {
    ibv_mw* mw = make(type);
    bind(mw, info(kAt, kBytes, kAllRemote | IBV_ACCESS_LOCAL_WRITE));
    opens(mw->rkey);
  }
}

TEST_F(Type2, IsInvalidatedBeforeItIsBoundAgain) {
  connect();
  ibv_mw* mw = make(IBV_MW_TYPE_2);
  bind(mw, info());
  bind_fails(mw, info());
}

TEST_F(Type2, LocallyInvalidatedOpensNothing) {
  connect();
  ibv_mw* mw = make(IBV_MW_TYPE_2);
  bind(mw, info());
  opens(mw->rkey);
  for (uint64_t i = 1; i <= 2; ++i) {  // once more is no error
    ASSERT_EQ(far->post(with_key(i, IBV_WR_LOCAL_INV, mw->rkey)), 0);
    EXPECT_EQ(far->expect(i).opcode, IBV_WC_LOCAL_INV);
  }
  const uint32_t before = mw->rkey;
  bind(mw, info(0, 128));
  opens(mw->rkey, 0);
  refuses(before, 0);
}

TEST_F(Type2, LocallyInvalidatedFreesItsRegion) {
  connect();
  ibv_mw* mw = make(IBV_MW_TYPE_2);
  bind(mw, info());
  ASSERT_EQ(far->post(with_key(1, IBV_WR_LOCAL_INV, mw->rkey)), 0);
  far->expect(1);
  EXPECT_EQ(ibv_dereg_mr(mr_), 0);
  mr_ = nullptr;
}

TEST_F(Type2, InvalidatingWhatIsNone) {
  connect();
  ASSERT_EQ(far->post(with_key(1, IBV_WR_LOCAL_INV, mr_->rkey)), 0);
  far->expect(1, IBV_WC_MW_BIND_ERR);
}

TEST_F(Type2, InvalidatedByAPeersSend) {
  connect();
  ibv_mw* mw = make(IBV_MW_TYPE_2);
  bind(mw, info());
  ASSERT_EQ(far->post_receive(1, 5000, 100'000), 0);
  ibv_sge sge = near_host->sge(5000);
  std::memset(near_host->bytes().data(), 0x11, 5000);
  ASSERT_EQ(near->post(with_key(2, IBV_WR_SEND_WITH_INV, mw->rkey, &sge)), 0);
  near->expect(2);
  const ibv_wc wc = far->expect(1);
  EXPECT_EQ(wc.byte_len, 5000u);
  EXPECT_NE(wc.wc_flags & IBV_WC_WITH_INV, 0u);
  EXPECT_EQ(wc.wc_flags & IBV_WC_WITH_IMM, 0u);
  EXPECT_EQ(wc.invalidated_rkey, mw->rkey);
  EXPECT_EQ(std::memcmp(near_host->bytes().data(), far_host->bytes().data() + 100'000, 5000), 0);
  refuses(mw->rkey);
}

TEST_F(Type2, APeersWritesBeforeItsInvalidationArrive) {
  connect();
  ibv_mw* mw = make(IBV_MW_TYPE_2);
  bind(mw, info());
  ASSERT_EQ(far->post_receive(1), 0);
  ibv_sge sge = near_host->sge(kBytes);
  for (uint64_t i = 2; i < 10; ++i) {
    ibv_send_wr wr = request(i, IBV_WR_RDMA_WRITE, &sge, *far_host);
    set_remote(wr, far_host->address(kAt), mw->rkey);
    ASSERT_EQ(near->post(wr), 0);
  }
  ASSERT_EQ(near->post(with_key(10, IBV_WR_SEND_WITH_INV, mw->rkey)), 0);
  for (uint64_t i = 2; i <= 10; ++i) near->expect(i);
  far->expect(1);
}

TEST_F(Type2, APeerInvalidatesNothingElse) {
  connect();
  ASSERT_EQ(far->post_receive(1), 0);
  ASSERT_EQ(near->post(with_key(2, IBV_WR_SEND_WITH_INV, mr_->rkey)), 0);
  near->expect(2, IBV_WC_REM_ACCESS_ERR);
  far->expect(1, IBV_WC_LOC_ACCESS_ERR);
  ibv_async_event event{};
  EXPECT_TRUE(far_host->wait_async(IBV_EVENT_QP_ACCESS_ERR, event));
}

TEST_F(Type2, BelongsToItsQueuePair) {
  connect();
  ibv_mw* mw = make(IBV_MW_TYPE_2);
  bind(mw, info());
  const auto near_before = std::move(near);
  auto far_before = std::move(far);
  connect();
  refuses(mw->rkey);
  ASSERT_NO_FATAL_FAILURE(reconnect());
  ASSERT_EQ(far->post(with_key(1, IBV_WR_LOCAL_INV, mw->rkey)), 0);
  far->expect(1, IBV_WC_MW_BIND_ERR);
  EXPECT_EQ(ibv_dereg_mr(mr_), EBUSY);
  far_before.reset();  // with it goes the binding
  EXPECT_EQ(ibv_dereg_mr(mr_), 0);
  mr_ = nullptr;
}

TEST_F(Type2, OfConnectedReliableQueuePairs) {
  ConnectOptions options;
  options.type = IBV_QPT_UC;
  connect(options);
  EXPECT_EQ(near->post(with_key(1, IBV_WR_SEND_WITH_INV, 1)), EINVAL) << "UC";
  options.type = IBV_QPT_UD;
  connect(options);
  EXPECT_EQ(far->post(with_key(1, IBV_WR_LOCAL_INV, 1)), EINVAL) << "UD";
  EXPECT_EQ(post_bind(1, make(IBV_MW_TYPE_2), info()), EINVAL) << "UD";
}

// Far's queue pair again, with the calls of ibv_wr_start().
TEST_F(Type2, ByTheBuilder) {
  create();
  ASSERT_EQ(ibv_destroy_qp(far->qp), 0);
  ibv_qp_init_attr_ex init{};
  init.send_cq = init.recv_cq = far->cq;
  init.cap = {16, 16, 1, 1, 0};
  init.qp_type = IBV_QPT_RC;
  init.pd = far_host->pd;
  init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  init.send_ops_flags =
      IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_SEND_WITH_INV;
  far->qp = ibv_create_qp_ex(far_host->context, &init);
  ASSERT_NE(far->qp, nullptr) << strerror(errno);
  ASSERT_NO_FATAL_FAILURE(connect_endpoints(*near, *far));
  ibv_mw* mw = make(IBV_MW_TYPE_2);
  const uint32_t key = ibv_inc_rkey(mw->rkey);
  ibv_qp_ex* qp = ibv_qp_to_qp_ex(far->qp);
  const ibv_mw_bind_info all = info();
  const auto post = [&](uint64_t wr_id, auto call) {
    ibv_wr_start(qp);
    qp->wr_id = wr_id;
    qp->wr_flags = IBV_SEND_SIGNALED;
    call();
    ASSERT_EQ(ibv_wr_complete(qp), 0);
  };
  post(1, [&] { ibv_wr_bind_mw(qp, mw, key, &all); });
  far->expect(1);
  opens(key);
  post(2, [&] { ibv_wr_local_inv(qp, key); });
  far->expect(2);
  post(3, [&] { ibv_wr_send_inv(qp, key); });  // near has no such window
  ASSERT_EQ(near->post_receive(4), 0);
  far->expect(3, IBV_WC_REM_ACCESS_ERR);
  near->expect(4, IBV_WC_LOC_ACCESS_ERR);
}

// ---- limits

TEST_F(Windows, AsManyAsAdvertised) {
  ibv_device_attr attr{};
  ASSERT_EQ(ibv_query_device(far_host->context, &attr), 0);
  EXPECT_NE(attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW, 0u);
  EXPECT_NE(attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B, 0u);
  ASSERT_GT(attr.max_mw, 0);
  for (int i = 0; i < attr.max_mw; ++i)
    ASSERT_NE(make(i % 2 == 0 ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2), nullptr) << i;
  errno = 0;
  EXPECT_EQ(ibv_alloc_mw(far_host->pd, IBV_MW_TYPE_1), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  drop(windows_.front());
  EXPECT_NE(make(IBV_MW_TYPE_2), nullptr);
}

TEST_F(Windows, UnknownTypes) {
  errno = 0;
  EXPECT_EQ(ibv_alloc_mw(far_host->pd, static_cast<ibv_mw_type>(3)), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

}  // namespace
}  // namespace hostnic::conformance
