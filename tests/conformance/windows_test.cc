// SPDX-License-Identifier: BSD-3-Clause
// What memory windows of both types have in common.
#include "tests/conformance/windows.h"

namespace hostnic::conformance {
namespace {

class EveryWindow : public Windows, public testing::WithParamInterface<ibv_mw_type> {};

INSTANTIATE_TEST_SUITE_P(Types, EveryWindow, testing::Values(IBV_MW_TYPE_1, IBV_MW_TYPE_2),
                         [](const auto& type) {
                           return type.param == IBV_MW_TYPE_1 ? "Type1" : "Type2";
                         });

TEST_P(EveryWindow, OpensToAllOperations) {
  connect();
  ibv_mw* mw = make(GetParam());
  bind(mw, info());
  std::memset(near_host->bytes().data(), 0x5a, kBytes);
  opens(mw->rkey, kAt, kBytes);
  EXPECT_EQ(std::memcmp(near_host->bytes().data(), far_host->bytes().data() + kAt, kBytes), 0);
  for (const ibv_wr_opcode opcode :
       {IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP})
    access(opcode, mw->rkey, far_host->address(kAt + 8), 8, IBV_WC_SUCCESS);
}

TEST_P(EveryWindow, UnboundOpensNothing) {
  connect();
  refuses(make(GetParam())->rkey);
}

TEST_P(EveryWindow, ItsBoundsCount) {
  connect();
  ibv_mw* mw = make(GetParam());
  bind(mw, info());
  opens(mw->rkey, kAt + kBytes - 64);
  refuses(mw->rkey, kAt + kBytes - 63);
}

TEST_P(EveryWindow, ItsBeginningCounts) {
  connect();
  ibv_mw* mw = make(GetParam());
  bind(mw, info());
  refuses(mw->rkey, kAt - 1);
}

TEST_P(EveryWindow, ItsRightsCount) {
  connect();
  ibv_mw* mw = make(GetParam());
  bind(mw, info(kAt, kBytes, IBV_ACCESS_REMOTE_READ));
  access(IBV_WR_RDMA_READ, mw->rkey, far_host->address(kAt), 64, IBV_WC_SUCCESS);
  refuses(mw->rkey);
}

TEST_P(EveryWindow, TheQueuePairsRightsCountToo) {
  ConnectOptions options;
  options.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
  connect(options);
  ibv_mw* mw = make(GetParam());
  bind(mw, info());
  access(IBV_WR_RDMA_WRITE, mw->rkey, far_host->address(kAt), 64, IBV_WC_REM_INV_REQ_ERR);
}

TEST_P(EveryWindow, ZeroBasedCountsFromItsBeginning) {
  connect();
  ibv_mw* mw = make(GetParam());
  bind(mw, info(kAt, kBytes, kAllRemote | IBV_ACCESS_ZERO_BASED));
  std::memset(near_host->bytes().data(), 0x77, 64);
  access(IBV_WR_RDMA_WRITE, mw->rkey, 16, 64, IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(near_host->bytes().data(), far_host->bytes().data() + kAt + 16, 64), 0);
  refuses(mw->rkey);
}

TEST_P(EveryWindow, DeallocatedOpensNothing) {
  connect();
  ibv_mw* mw = make(GetParam());
  bind(mw, info());
  const uint32_t key = mw->rkey;
  opens(key);
  drop(mw);
  refuses(key);
}

TEST_P(EveryWindow, KeepsItsRegion) {
  connect();
  ibv_mw* mw = make(GetParam());
  bind(mw, info());
  errno = 0;
  EXPECT_EQ(ibv_dereg_mr(mr_), EBUSY);
  EXPECT_EQ(errno, EBUSY);
  errno = 0;
  EXPECT_EQ(ibv_rereg_mr(mr_, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, kAllAccess),
            IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(errno, EBUSY);
  opens(mw->rkey);  // nothing has changed
  drop(mw);
  EXPECT_EQ(ibv_dereg_mr(mr_), 0);
  mr_ = nullptr;
}

TEST_P(EveryWindow, KeepsItsDomain) {
  ibv_pd* pd = ibv_alloc_pd(far_host->context);
  ibv_mw* mw = ibv_alloc_mw(pd, GetParam());
  ASSERT_NE(mw, nullptr);
  EXPECT_EQ(ibv_dealloc_pd(pd), EBUSY);
  EXPECT_EQ(ibv_dealloc_mw(mw), 0);
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
}

// That a type 1 window and its region are of one domain, <infiniband/verbs.h> sees to; the rest is
// found out when the bind is executed, as on adapters.
TEST_P(EveryWindow, OfAnotherDomainIsNotBound) {
  connect();
  ibv_pd* pd = ibv_alloc_pd(far_host->context);
  ibv_mw* mw = ibv_alloc_mw(pd, GetParam());
  ASSERT_NE(mw, nullptr);
  ibv_mr* mr =
      ibv_reg_mr(pd, far_host->bytes().data(), Host::kBytes, kAllAccess | IBV_ACCESS_MW_BIND);
  ASSERT_NE(mr, nullptr);
  ibv_mw_bind_info both = info();
  both.mr = mr;
  bind_fails(mw, both);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  EXPECT_EQ(ibv_dealloc_mw(mw), 0);
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
}

TEST_P(EveryWindow, IsNotBoundToARegionOfAnotherDomain) {
  connect();
  ibv_pd* pd = ibv_alloc_pd(far_host->context);
  ibv_mr* mr =
      ibv_reg_mr(pd, far_host->bytes().data(), Host::kBytes, kAllAccess | IBV_ACCESS_MW_BIND);
  ASSERT_NE(mr, nullptr);
  ibv_mw_bind_info wrong = info();
  wrong.mr = mr;
  if (GetParam() == IBV_MW_TYPE_1) {
    EXPECT_EQ(post_bind(1, make(GetParam()), wrong), EPERM);
  } else {
    bind_fails(make(GetParam()), wrong);
  }
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
}

TEST_P(EveryWindow, WantsARegionThatAllowsIt) {
  connect();
  ibv_mw* mw = make(GetParam());
  ibv_mw_bind_info wrong = info();
  wrong.mr = far_host->mr;  // without IBV_ACCESS_MW_BIND
  bind_fails(mw, wrong);
  ASSERT_NO_FATAL_FAILURE(reconnect());
  refuses(mw->rkey);
}

TEST_P(EveryWindow, StaysInItsRegion) {
  connect();
  bind_fails(make(GetParam()), info(Host::kBytes - 64, 65));
}

TEST_P(EveryWindow, IsNotWrittenWhereTheProgramMayNot) {
  connect();
  ibv_mr* mr = region(IBV_ACCESS_REMOTE_READ | IBV_ACCESS_MW_BIND);
  ASSERT_NE(mr, nullptr);
  ibv_mw_bind_info wrong = info();
  wrong.mr = mr;
  bind_fails(make(GetParam()), wrong);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_P(EveryWindow, UnknownRights) {
  connect();
  EXPECT_EQ(post_bind(1, make(GetParam()), info(kAt, kBytes, 1u << 15)), EINVAL);
  far->expect_nothing();
}

TEST_P(EveryWindow, BindsInTheOrderOfTheSendQueue) {
  connect();
  ibv_mw* mw = make(GetParam());
  ibv_sge sge = far_host->sge(100'000);
  for (uint64_t i = 0; i < 4; ++i)
    ASSERT_EQ(far->post(request(i, IBV_WR_RDMA_WRITE, &sge, *near_host)), 0);
  ASSERT_EQ(post_bind(4, mw, info()), 0);
  ASSERT_EQ(far->post(request(5, IBV_WR_RDMA_WRITE, &sge, *near_host)), 0);
  for (uint64_t i = 0; i < 6; ++i) far->expect(i);
  opens(mw->rkey);
}

TEST_P(EveryWindow, BindsAreFlushed) {
  connect();
  ASSERT_EQ(far->to(IBV_QPS_ERR), 0);
  ASSERT_EQ(post_bind(1, make(GetParam()), info()), 0);
  far->expect(1, IBV_WC_WR_FLUSH_ERR);
}

TEST_P(EveryWindow, WorksOnUc) {
  ConnectOptions options;
  options.type = IBV_QPT_UC;
  connect(options);
  ibv_mw* mw = make(GetParam());
  bind(mw, info());
  ASSERT_EQ(far->post_receive(1), 0);
  std::memset(near_host->bytes().data(), 0x33, 64);
  access(IBV_WR_RDMA_WRITE_WITH_IMM, mw->rkey, far_host->address(kAt), 64, IBV_WC_SUCCESS);
  far->expect(1);
  EXPECT_EQ(std::memcmp(near_host->bytes().data(), far_host->bytes().data() + kAt, 64), 0);
}

}  // namespace
}  // namespace hostnic::conformance
