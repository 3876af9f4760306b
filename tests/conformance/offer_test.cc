// SPDX-License-Identifier: BSD-3-Clause
// What a device offers holds, whatever it is: limits that it advertises can be had and are refused
// beyond, and what it says that it lacks is refused as adapters refuse it. Run under each
// personality by tests/lab/like_cases.py.
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "tests/conformance/bench.h"

namespace hostnic::conformance {
namespace {

class Offer : public Conformance {
 protected:
  void SetUp() override {
    Conformance::SetUp();
    if (HasFatalFailure()) return;
    ASSERT_EQ(ibv_query_device_ex(near_host->context, nullptr, &all_), 0);
    cq_ = ibv_create_cq(near_host->context, 64, nullptr, nullptr, 0);
    ASSERT_NE(cq_, nullptr);
  }
  void TearDown() override {
    near.reset();
    far.reset();
    if (cq_ != nullptr) {
      EXPECT_EQ(ibv_destroy_cq(cq_), 0);
    }
    Conformance::TearDown();
  }
  // Makes a queue pair of this shape and destroys it; returns 0 or an errno value.
  int queue_pair(ibv_qp_cap cap, ibv_qp_type type = IBV_QPT_RC) {
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq_;
    init.cap = cap;
    init.qp_type = type;
    errno = 0;
    ibv_qp* const qp = ibv_create_qp(near_host->pd, &init);
    return qp == nullptr ? errno : ibv_destroy_qp(qp);
  }
  int shared_queue(uint32_t max_wr, uint32_t max_sge) {
    ibv_srq_init_attr init{};
    init.attr = {.max_wr = max_wr, .max_sge = max_sge, .srq_limit = 0};
    errno = 0;
    ibv_srq* const srq = ibv_create_srq(near_host->pd, &init);
    return srq == nullptr ? errno : ibv_destroy_srq(srq);
  }
  int completion_queue(int entries) {
    errno = 0;
    ibv_cq* const cq = ibv_create_cq(near_host->context, entries, nullptr, nullptr, 0);
    return cq == nullptr ? errno : ibv_destroy_cq(cq);
  }

  ibv_device_attr_ex all_{};
  const ibv_device_attr& device_ = all_.orig_attr;
  ibv_cq* cq_ = nullptr;
};

constexpr ibv_qp_cap kSmall{1, 1, 1, 1, 0};

TEST_F(Offer, QueuePairsAsDeepAndWideAsSaidAndNoMore) {
  const auto wr = static_cast<uint32_t>(device_.max_qp_wr);
  const auto sge = static_cast<uint32_t>(device_.max_sge);
  EXPECT_EQ(queue_pair({wr, wr, sge, sge, 0}), 0);
  EXPECT_EQ(queue_pair({wr + 1, 1, 1, 1, 0}), EINVAL);
  EXPECT_EQ(queue_pair({1, wr + 1, 1, 1, 0}), EINVAL);
  EXPECT_EQ(queue_pair({1, 1, sge + 1, 1, 0}), EINVAL);
  EXPECT_EQ(queue_pair({1, 1, 1, sge + 1, 0}), EINVAL);
}

TEST_F(Offer, CompletionQueuesAsLongAsSaidAndNoLonger) {
  EXPECT_EQ(completion_queue(device_.max_cqe), 0);
  EXPECT_EQ(completion_queue(device_.max_cqe + 1), EINVAL);
}

TEST_F(Offer, SharedReceiveQueuesOrNone) {
  if (device_.max_srq == 0) {
    EXPECT_EQ(device_.max_srq_wr, 0);
    EXPECT_EQ(shared_queue(1, 1), EOPNOTSUPP);
    return;
  }
  const auto wr = static_cast<uint32_t>(device_.max_srq_wr);
  const auto sge = static_cast<uint32_t>(device_.max_srq_sge);
  EXPECT_EQ(shared_queue(wr, sge), 0);
  EXPECT_EQ(shared_queue(wr + 1, 1), EINVAL);
  EXPECT_EQ(shared_queue(1, sge + 1), EINVAL);
}

// No device says which types it has: programs try.
TEST_F(Offer, QueuePairsOfATypeThatIsMissingAreNotSupported) {
  EXPECT_EQ(queue_pair(kSmall), 0);
  for (const ibv_qp_type type : {IBV_QPT_UC, IBV_QPT_UD}) {
    const int error = queue_pair(kSmall, type);
    EXPECT_TRUE(error == 0 || error == EOPNOTSUPP) << error;
    std::printf("%s: %s\n", type == IBV_QPT_UC ? "UC" : "UD", error == 0 ? "yes" : "no");
  }
}

TEST_F(Offer, SendOpsFlagsOrNone) {
  ibv_qp_init_attr_ex init{};
  init.send_cq = init.recv_cq = cq_;
  init.cap = kSmall;
  init.qp_type = IBV_QPT_RC;
  init.pd = near_host->pd;
  init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  init.send_ops_flags = IBV_QP_EX_WITH_SEND;
  errno = 0;
  ibv_qp* qp = ibv_create_qp_ex(near_host->context, &init);
  std::printf("send_ops_flags: %s\n", qp != nullptr ? "yes" : strerror(errno));
  if (qp == nullptr) {
    EXPECT_EQ(errno, EOPNOTSUPP);
    init.comp_mask = IBV_QP_INIT_ATTR_PD;
    qp = ibv_create_qp_ex(near_host->context, &init);
    ASSERT_NE(qp, nullptr) << "without them it can be had";
    EXPECT_EQ(ibv_qp_to_qp_ex(qp), nullptr);
  }
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
}

TEST_F(Offer, ReadsAndMessagesAsSaidAndNoMore) {
  ASSERT_NO_FATAL_FAILURE(create());
  ASSERT_EQ(near->to_init(), 0);
  ASSERT_EQ(far->to_init(), 0);
  ibv_qp_attr attr = near->rtr_attributes(*far);
  attr.max_dest_rd_atomic = static_cast<uint8_t>(device_.max_qp_rd_atom + 1);
  EXPECT_EQ(ibv_modify_qp(near->qp, &attr, near->rtr_mask()), EINVAL);
  attr.max_dest_rd_atomic = static_cast<uint8_t>(device_.max_qp_rd_atom);
  EXPECT_EQ(ibv_modify_qp(near->qp, &attr, near->rtr_mask()), 0);
  attr = near->rts_attributes();
  attr.max_rd_atomic = static_cast<uint8_t>(device_.max_qp_init_rd_atom + 1);
  EXPECT_EQ(ibv_modify_qp(near->qp, &attr, near->rts_mask()), EINVAL);
  attr.max_rd_atomic = static_cast<uint8_t>(device_.max_qp_init_rd_atom);
  EXPECT_EQ(ibv_modify_qp(near->qp, &attr, near->rts_mask()), 0);
  ibv_port_attr port{};
  ASSERT_EQ(ibv_query_port(near_host->context, 1, &port), 0);
  ibv_sge sge = near_host->sge(port.max_msg_sz + 1);
  EXPECT_EQ(near->post(request(1, IBV_WR_RDMA_WRITE, &sge, *far_host)), EINVAL);
  EXPECT_EQ(near->post(request(2, IBV_WR_RDMA_READ, &sge, *far_host)), EINVAL);
}

TEST_F(Offer, MemoryWindowsTimestampsAndOnDemandPagingOrNone) {
  ibv_mw* const mw = ibv_alloc_mw(near_host->pd, IBV_MW_TYPE_2);
  EXPECT_EQ(mw != nullptr, device_.max_mw != 0);
  EXPECT_EQ(mw != nullptr, (device_.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B) != 0);
  if (mw != nullptr) {
    EXPECT_EQ(ibv_dealloc_mw(mw), 0);
  }
  ibv_cq_init_attr_ex init{};
  init.cqe = 1;
  init.wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
  errno = 0;
  ibv_cq_ex* const cq = ibv_create_cq_ex(near_host->context, &init);
  EXPECT_EQ(cq != nullptr, all_.completion_timestamp_mask != 0);
  EXPECT_TRUE(cq != nullptr || errno == EOPNOTSUPP) << errno;
  if (cq != nullptr) {
    EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
  }
  errno = 0;
  ibv_mr* const mr = ibv_reg_mr(near_host->pd, near_host->bytes().data(), 4096,
                                IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
  EXPECT_EQ(mr != nullptr, (all_.odp_caps.general_caps & IBV_ODP_SUPPORT) != 0);
  EXPECT_TRUE(mr != nullptr || errno == EOPNOTSUPP) << errno;
  if (mr != nullptr) {
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
  }
}

// A device that takes SEND_WITH_INV and does not do it ends the queue pair; one that does it ends
// it, too, at the peer, which has no such window. The program tells which it was.
TEST_F(Offer, SendWithInvalidateIsDoneOrEndsTheQueuePair) {
  connect();
  ASSERT_EQ(far->post_receive(1), 0);
  ibv_sge sge = near_host->sge(8);
  ASSERT_EQ(near->post(request(1, IBV_WR_RDMA_WRITE, &sge, *far_host)), 0);
  ibv_send_wr wr = request(2, IBV_WR_SEND_WITH_INV, nullptr, *far_host);
  wr.invalidate_rkey = kBadKey;
  ASSERT_EQ(near->post(wr), 0) << "it is taken";
  ASSERT_EQ(near->post(request(3, IBV_WR_RDMA_WRITE, &sge, *far_host)), 0);
  near->expect(1);
  const ibv_wc wc = near->next();
  EXPECT_EQ(wc.wr_id, 2u);
  EXPECT_TRUE(wc.status == IBV_WC_LOC_QP_OP_ERR || wc.status == IBV_WC_REM_ACCESS_ERR);
  near->expect(3, IBV_WC_WR_FLUSH_ERR);
  EXPECT_TRUE(near->reaches(IBV_QPS_ERR));
  ibv_async_event event{};
  const bool here = wc.status == IBV_WC_LOC_QP_OP_ERR;
  if (here) {
    EXPECT_TRUE(near_host->wait_async(IBV_EVENT_QP_REQ_ERR, event));
  }
  std::printf("SEND_WITH_INV: advertised %d, status %d, vendor_err %u\n",
              (device_.device_cap_flags & IBV_DEVICE_MEM_MGT_EXTENSIONS) != 0, wc.status,
              wc.vendor_err);
}

// An idle queue pair: nothing of the peer's is waited for.
TEST_F(Offer, SendWithInvalidateAloneEndsTheQueuePair) {
  connect();
  ASSERT_EQ(far->post_receive(1), 0);
  ibv_send_wr wr = request(2, IBV_WR_SEND_WITH_INV, nullptr, *far_host);
  wr.invalidate_rkey = kBadKey;
  ASSERT_EQ(near->post(wr), 0);
  EXPECT_NE(near->next().status, IBV_WC_SUCCESS);
  EXPECT_TRUE(near->reaches(IBV_QPS_ERR));
}

}  // namespace
}  // namespace hostnic::conformance
