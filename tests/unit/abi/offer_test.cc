// SPDX-License-Identifier: BSD-3-Clause
// A device that offers less than hostnic has: what it lacks is refused, and its limits hold.
#include <cstring>

#include "tests/unit/abi/testing.h"

namespace hostnic {
namespace {

class AbiOffer : public AbiTest {
 protected:
  // Has the device that the test opens again offer this.
  void offer(const DeviceOffer& offered) {
    ASSERT_EQ(ibv_close_device(context_), 0);
    fake::behaviour().offer = offered;
    context_ = ibv_open_device(list_[0]);
    ASSERT_NE(context_, nullptr);
    pd_ = ibv_alloc_pd(context_);
    cq_ = ibv_create_cq(context_, 64, nullptr, nullptr, 0);
    ASSERT_TRUE(pd_ != nullptr && cq_ != nullptr);
  }
  void miss(uint32_t features) {
    DeviceOffer offered;
    offered.missing = features;
    offer(offered);
  }
  int create_of(ibv_qp_type type) {
    ibv_qp_init_attr init = init_attr(cq_);
    init.qp_type = type;
    errno = 0;
    return ibv_create_qp(pd_, &init) == nullptr ? errno : 0;
  }
  ibv_device_attr_ex attributes() {
    ibv_device_attr_ex attr{};
    EXPECT_EQ(ibv_query_device_ex(context_, nullptr, &attr), 0);
    return attr;
  }
};

TEST_F(AbiOffer, HostnicsOwnIsWhatItAlwaysWas) {
  const ibv_device_attr attr = attributes().orig_attr;
  EXPECT_EQ(attr.vendor_id, 0x02484eu);
  EXPECT_EQ(attr.vendor_part_id, 0x720u);
  EXPECT_EQ(attr.max_qp_wr, 16384);
  EXPECT_EQ(attr.max_sge, 16);
  EXPECT_EQ(attr.max_cqe, 4'194'303);
  EXPECT_EQ(attr.max_srq, 16384);
  EXPECT_EQ(attr.max_srq_wr, 16384);
  EXPECT_EQ(attr.max_qp_rd_atom, 16);
  EXPECT_EQ(attr.max_ah, 65536);
  EXPECT_EQ(attr.local_ca_ack_delay, 15);
  EXPECT_EQ(attr.device_cap_flags & IBV_DEVICE_MEM_MGT_EXTENSIONS, 0u);
  ibv_port_attr port{};
  ASSERT_EQ(ibv_query_port(context_, 1, &port), 0);
  EXPECT_EQ(port.max_msg_sz, 1u << 30);
}

TEST_F(AbiOffer, TypesOfQueuePairsCanBeMissing) {
  miss(kMissingUc);
  EXPECT_EQ(create_of(IBV_QPT_UC), EOPNOTSUPP);
  EXPECT_EQ(create_of(IBV_QPT_UD), 0);
  EXPECT_EQ(create_of(IBV_QPT_RC), 0);
  EXPECT_EQ(attributes().odp_caps.per_transport_caps.uc_odp_caps, 0u);
  miss(kMissingUd);
  EXPECT_EQ(create_of(IBV_QPT_UD), EOPNOTSUPP);
  EXPECT_EQ(create_of(IBV_QPT_UC), 0);
}

TEST_F(AbiOffer, SharedReceiveQueuesCanBeMissing) {
  miss(kMissingSrq);
  ibv_srq_init_attr init{};
  init.attr = {.max_wr = 1, .max_sge = 1, .srq_limit = 0};
  errno = 0;
  EXPECT_EQ(ibv_create_srq(pd_, &init), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  const ibv_device_attr_ex attr = attributes();
  EXPECT_EQ(attr.orig_attr.max_srq, 0);
  EXPECT_EQ(attr.orig_attr.max_srq_wr, 0);
  EXPECT_EQ(attr.orig_attr.max_srq_sge, 0);
  EXPECT_EQ(attr.odp_caps.per_transport_caps.rc_odp_caps & IBV_ODP_SUPPORT_SRQ_RECV, 0u);
}

TEST_F(AbiOffer, TheBuilderCanBeMissing) {
  miss(kMissingSendOps);
  ibv_qp_init_attr_ex init{};
  const ibv_qp_init_attr plain = init_attr(cq_);
  init.send_cq = init.recv_cq = cq_;
  init.cap = plain.cap;
  init.qp_type = IBV_QPT_RC;
  init.pd = pd_;
  init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  errno = 0;
  EXPECT_EQ(ibv_create_qp_ex(context_, &init), nullptr) << "even for no operation";
  EXPECT_EQ(errno, EOPNOTSUPP);
  init.comp_mask = IBV_QP_INIT_ATTR_PD;
  EXPECT_NE(ibv_create_qp_ex(context_, &init), nullptr);
}

TEST_F(AbiOffer, ExtendedQueuesAndTheirClocksCanBeMissing) {
  ibv_cq_init_attr_ex init{};
  init.cqe = 64;
  miss(kMissingExtendedCq);
  errno = 0;
  EXPECT_EQ(ibv_create_cq_ex(context_, &init), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  miss(kMissingTimestamps);
  EXPECT_NE(ibv_create_cq_ex(context_, &init), nullptr);
  init.wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
  errno = 0;
  EXPECT_EQ(ibv_create_cq_ex(context_, &init), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(attributes().completion_timestamp_mask, 0u);
  EXPECT_EQ(attributes().hca_core_clock, 0u);
}

TEST_F(AbiOffer, WindowsAndOnDemandPagingCanBeMissing) {
  miss(uint32_t{kMissingWindows} | kMissingOnDemand);
  errno = 0;
  EXPECT_EQ(ibv_alloc_mw(pd_, IBV_MW_TYPE_1), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  const ibv_device_attr_ex attr = attributes();
  EXPECT_EQ(attr.orig_attr.max_mw, 0);
  EXPECT_EQ(
      attr.orig_attr.device_cap_flags & (IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B),
      0u);
  EXPECT_EQ(attr.odp_caps.general_caps, 0u);
  static char memory[64];
  errno = 0;
  EXPECT_EQ(ibv_reg_mr(pd_, memory, sizeof memory, IBV_ACCESS_ON_DEMAND), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

TEST_F(AbiOffer, ItsLimitsHold) {
  DeviceOffer small;
  small.max_qp_wr = 20;
  small.max_sge = 3;
  small.max_inline_bytes = 40;
  small.max_cqe = 100;
  small.max_cqs = 2;
  small.max_pds = 2;
  small.max_srqs = 1;
  small.max_srq_wr = 8;
  small.max_srq_sge = 2;
  offer(small);
  const auto create = [this](ibv_qp_cap cap) {
    ibv_qp_init_attr init = init_attr(cq_);
    init.cap = cap;
    errno = 0;
    return ibv_create_qp(pd_, &init) == nullptr ? errno : 0;
  };
  EXPECT_EQ(create({20, 20, 3, 3, 40}), 0);
  EXPECT_EQ(create({21, 1, 1, 1, 0}), EINVAL);
  EXPECT_EQ(create({1, 21, 1, 1, 0}), EINVAL);
  EXPECT_EQ(create({1, 1, 4, 1, 0}), EINVAL);
  EXPECT_EQ(create({1, 1, 1, 4, 0}), EINVAL);
  EXPECT_EQ(create({1, 1, 1, 1, 41}), EINVAL);
  errno = 0;
  EXPECT_EQ(ibv_create_cq(context_, 101, nullptr, nullptr, 0), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_resize_cq(cq_, 101), EINVAL);
  EXPECT_NE(ibv_create_cq(context_, 100, nullptr, nullptr, 0), nullptr);
  EXPECT_EQ(ibv_create_cq(context_, 100, nullptr, nullptr, 0), nullptr) << "max_cqs";
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_NE(ibv_alloc_pd(context_), nullptr);
  EXPECT_EQ(ibv_alloc_pd(context_), nullptr) << "max_pds";
  const auto shared = [this](uint32_t max_wr, uint32_t max_sge) {
    ibv_srq_init_attr init{};
    init.attr = {.max_wr = max_wr, .max_sge = max_sge, .srq_limit = 0};
    errno = 0;
    return ibv_create_srq(pd_, &init) == nullptr ? errno : 0;
  };
  EXPECT_EQ(shared(9, 1), EINVAL);
  EXPECT_EQ(shared(1, 3), EINVAL);
  EXPECT_EQ(shared(8, 2), 0);
  EXPECT_EQ(shared(1, 1), ENOMEM) << "max_srqs";
}

}  // namespace
}  // namespace hostnic
