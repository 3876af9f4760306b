// SPDX-License-Identifier: BSD-3-Clause
// Thread domains and parent domains: the second extend a protection domain by the first, and are
// the same domain to whoever is checked against it.
#include <cerrno>
#include <cstring>

#include "tests/conformance/bench.h"

namespace hostnic::conformance {
namespace {

class Domains : public Conformance {
 protected:
  void SetUp() override {
    Conformance::SetUp();
    if (HasFatalFailure()) return;
    ibv_td_init_attr attr{};
    td_ = ibv_alloc_td(near_host->context, &attr);
    ASSERT_NE(td_, nullptr) << strerror(errno);
    parent_ = extend(near_host->pd, td_);
    ASSERT_NE(parent_, nullptr) << strerror(errno);
  }
  void TearDown() override {
    near.reset();
    if (parent_ != nullptr) {
      EXPECT_EQ(ibv_dealloc_pd(parent_), 0);
    }
    if (td_ != nullptr) {
      EXPECT_EQ(ibv_dealloc_td(td_), 0);
    }
    Conformance::TearDown();
  }
  ibv_pd* extend(ibv_pd* pd, ibv_td* td, uint32_t comp_mask = 0) {
    ibv_parent_domain_init_attr attr{};
    attr.pd = pd;
    attr.td = td;
    attr.comp_mask = comp_mask;
    errno = 0;
    return ibv_alloc_parent_domain(near_host->context, &attr);
  }
  // Near's queue pair is of the parent domain.
  void connect_in_parent() {
    create();
    ASSERT_EQ(ibv_destroy_qp(near->qp), 0);
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = near->cq;
    init.cap = near->options.caps;
    init.qp_type = IBV_QPT_RC;
    near->qp = ibv_create_qp(parent_, &init);
    ASSERT_NE(near->qp, nullptr);
    EXPECT_EQ(near->qp->pd, parent_);
    connect_endpoints(*near, *far);
  }

  ibv_td* td_ = nullptr;
  ibv_pd* parent_ = nullptr;
};

TEST_F(Domains, QueuePairsOfAParentUseMemoryOfTheProtectionDomain) {
  connect_in_parent();
  ibv_sge sge = near_host->sge(64);
  ASSERT_EQ(near->post(request(1, IBV_WR_RDMA_WRITE, &sge, *far_host)), 0);
  near->expect(1);
}

TEST_F(Domains, MemoryOfAParentIsTheProtectionDomains) {
  connect();
  ibv_mr* mr = ibv_reg_mr(parent_, near_host->bytes().data(), 4096, kAllAccess);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(mr->pd, parent_);
  ibv_sge sge{near_host->address(), 64, mr->lkey};
  ASSERT_EQ(near->post(request(1, IBV_WR_RDMA_WRITE, &sge, *far_host)), 0);
  near->expect(1);
  EXPECT_EQ(ibv_dealloc_pd(parent_), EBUSY);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(Domains, AParentOfAnotherProtectionDomainIsAnother) {
  ibv_pd* other = ibv_alloc_pd(near_host->context);
  ibv_pd* stranger = extend(other, nullptr);
  ASSERT_NE(stranger, nullptr);
  connect();
  ibv_mr* mr = ibv_reg_mr(stranger, near_host->bytes().data(), 4096, kAllAccess);
  ASSERT_NE(mr, nullptr);
  ibv_sge sge{near_host->address(), 64, mr->lkey};
  ASSERT_EQ(near->post(request(1, IBV_WR_RDMA_WRITE, &sge, *far_host)), 0);
  near->expect(1, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  EXPECT_EQ(ibv_dealloc_pd(stranger), 0);
  EXPECT_EQ(ibv_dealloc_pd(other), 0);
}

TEST_F(Domains, AddressHandlesAndWindowsFit) {
  ConnectOptions options;
  options.type = IBV_QPT_UD;
  connect(options);
  ibv_ah_attr attr{};
  attr.is_global = 1;
  attr.port_num = 1;
  attr.grh.dgid = far_host->gid();
  ibv_ah* ah = ibv_create_ah(parent_, &attr);
  ASSERT_NE(ah, nullptr);
  ibv_sge sge = near_host->sge(16);
  ibv_send_wr wr = request(1, IBV_WR_SEND, &sge, *far_host);
  wr.wr.ud.ah = ah;
  wr.wr.ud.remote_qpn = far->qp->qp_num;
  wr.wr.ud.remote_qkey = 0x11111111;
  ASSERT_EQ(near->post(wr), 0);
  near->expect(1);
  EXPECT_EQ(ibv_destroy_ah(ah), 0);

  connect_in_parent();
  ibv_mr* mr =
      ibv_reg_mr(near_host->pd, near_host->bytes().data(), 4096, kAllAccess | IBV_ACCESS_MW_BIND);
  ibv_mw* mw = ibv_alloc_mw(near_host->pd, IBV_MW_TYPE_1);
  ASSERT_TRUE(mr != nullptr && mw != nullptr);
  ibv_mw_bind bind{2, IBV_SEND_SIGNALED, {mr, near_host->address(), 64, IBV_ACCESS_REMOTE_WRITE}};
  EXPECT_EQ(ibv_bind_mw(near->qp, mw, &bind), 0);
  near->expect(2);
  EXPECT_EQ(ibv_dealloc_mw(mw), 0);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(Domains, CompletionQueuesOfAParent) {
  ibv_cq_init_attr_ex attr{};
  attr.cqe = 10;
  attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
  attr.parent_domain = parent_;
  ibv_cq_ex* cq = ibv_create_cq_ex(near_host->context, &attr);
  ASSERT_NE(cq, nullptr) << strerror(errno);
  EXPECT_EQ(ibv_dealloc_pd(parent_), EBUSY);
  EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
  for (ibv_pd* none : {near_host->pd, far_host->pd, static_cast<ibv_pd*>(nullptr)}) {
    attr.parent_domain = none;
    errno = 0;
    EXPECT_EQ(ibv_create_cq_ex(near_host->context, &attr), nullptr);
    EXPECT_EQ(errno, none == near_host->pd ? EINVAL : ENOENT);
  }
}

TEST_F(Domains, AreInUse) {
  errno = 0;
  EXPECT_EQ(ibv_dealloc_td(td_), EBUSY);
  EXPECT_EQ(errno, EBUSY);
  ibv_pd* pd = ibv_alloc_pd(near_host->context);
  ibv_pd* second = extend(pd, td_);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(ibv_dealloc_pd(pd), EBUSY) << "a parent domain extends it";
  EXPECT_EQ(ibv_dealloc_pd(second), 0);
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
}

TEST_F(Domains, ThatCantBe) {
  EXPECT_EQ(extend(nullptr, td_), nullptr);
  EXPECT_EQ(errno, ENOENT);
  EXPECT_EQ(extend(far_host->pd, nullptr), nullptr) << "of another device";
  EXPECT_EQ(errno, ENOENT);
  EXPECT_EQ(extend(near_host->pd, reinterpret_cast<ibv_td*>(near_host->pd)), nullptr);
  EXPECT_EQ(errno, ENOENT);
  EXPECT_EQ(extend(near_host->pd, nullptr, IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(extend(near_host->pd, nullptr, 1u << 20), nullptr) << "of a newer library";
  EXPECT_EQ(errno, EOPNOTSUPP);
  ibv_td_init_attr attr{.comp_mask = 1};
  errno = 0;
  EXPECT_EQ(ibv_alloc_td(near_host->context, &attr), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

}  // namespace
}  // namespace hostnic::conformance
