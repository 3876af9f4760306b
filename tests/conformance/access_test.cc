// SPDX-License-Identifier: BSD-3-Clause
// Isolation: every operation against every reason to refuse it. The requester learns of it by the
// completion's status, the responder by an asynchronous event, and nothing is written.
#include <algorithm>
#include <cstring>

#include "tests/conformance/bench.h"

namespace hostnic::conformance {
namespace {

constexpr ibv_wr_opcode kRemoteOps[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,
                                        IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP,
                                        IBV_WR_ATOMIC_FETCH_AND_ADD};

unsigned int right_of(ibv_wr_opcode opcode) {
  if (is_atomic(opcode)) return IBV_ACCESS_REMOTE_ATOMIC;
  return opcode == IBV_WR_RDMA_READ ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE;
}

class Access : public Conformance, public testing::WithParamInterface<ibv_wr_opcode> {
 protected:
  static constexpr uint32_t kLength = 8;

  void SetUp() override {
    Conformance::SetUp();
    if (HasFatalFailure()) return;
    std::ranges::fill(far_host->bytes(), std::byte{0x55});
  }
  void TearDown() override {
    near.reset();
    far.reset();
    if (other_mr_ != nullptr) {
      EXPECT_EQ(ibv_dereg_mr(other_mr_), 0);
    }
    if (other_pd_ != nullptr) {
      EXPECT_EQ(ibv_dealloc_pd(other_pd_), 0);
    }
    Conformance::TearDown();
  }
  // A WRITE_WITH_IMM finds a receive.
  void connect(const ConnectOptions& options = {}) {
    Conformance::connect(options);
    if (GetParam() == IBV_WR_RDMA_WRITE_WITH_IMM) {
      ASSERT_EQ(far->post_receive(9), 0);
    }
  }
  ibv_send_wr wr(uint64_t wr_id = 1) {
    sge_ = near_host->sge(kLength);
    return request(wr_id, GetParam(), &sge_, *far_host);
  }
  // The start of far's memory once more, with these rights.
  void register_again(ibv_pd* pd, unsigned int access) {
    other_mr_ = ibv_reg_mr(pd, far_host->bytes().data(), 4096, static_cast<int>(access));
    ASSERT_NE(other_mr_, nullptr);
  }
  void expect_refused(const ibv_send_wr& wr, ibv_wc_status status = IBV_WC_REM_ACCESS_ERR,
                      ibv_event_type event_type = IBV_EVENT_QP_ACCESS_ERR) {
    ASSERT_EQ(near->post(wr), 0);
    near->expect(wr.wr_id, status);
    EXPECT_TRUE(near->reaches(IBV_QPS_ERR));
    EXPECT_TRUE(far->reaches(IBV_QPS_ERR));
    ibv_async_event event{};
    EXPECT_TRUE(far_host->wait_async(event_type, event));
    EXPECT_EQ(event.element.qp, far->qp);
    EXPECT_TRUE(std::ranges::all_of(far_host->bytes(), [](std::byte b) {
      return b == std::byte{0x55};
    })) << "a refused request has changed memory";
  }

  ibv_sge sge_{};
  ibv_pd* other_pd_ = nullptr;
  ibv_mr* other_mr_ = nullptr;
};

TEST_P(Access, WithEveryRightSucceeds) {
  connect();
  ASSERT_EQ(near->post(wr()), 0);
  near->expect(1);
}

TEST_P(Access, WithOnlyItsOwnRightSucceeds) {
  ConnectOptions options;
  options.access = right_of(GetParam());
  connect(options);
  register_again(far_host->pd, IBV_ACCESS_LOCAL_WRITE | right_of(GetParam()));
  ibv_send_wr one = wr();
  set_remote(one, far_host->address(), other_mr_->rkey);
  ASSERT_EQ(near->post(one), 0);
  near->expect(1);
}

TEST_P(Access, WithoutTheRightOfTheRegion) {
  connect();
  register_again(far_host->pd, kAllAccess & ~right_of(GetParam()));
  ibv_send_wr one = wr();
  set_remote(one, far_host->address(), other_mr_->rkey);
  expect_refused(one);
}

TEST_P(Access, WithoutTheRightOfTheQueuePair) {
  ConnectOptions options;
  options.access = kAllAccess & ~right_of(GetParam());
  connect(options);
  // The queue pair does not take the operation, as if it did not know it (InfiniBand, "responder
  // error behavior": unsupported opcode).
  expect_refused(wr(), IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
}

TEST_P(Access, UnknownRkey) {
  connect();
  ibv_send_wr one = wr();
  set_remote(one, far_host->address(), kBadKey);
  expect_refused(one);
}

TEST_P(Access, RkeyOfADeregisteredRegion) {
  connect();
  register_again(far_host->pd, kAllAccess);
  ibv_send_wr one = wr();
  set_remote(one, far_host->address(), other_mr_->rkey);
  ASSERT_EQ(ibv_dereg_mr(other_mr_), 0);
  other_mr_ = nullptr;
  expect_refused(one);
}

TEST_P(Access, RkeyOfAnotherProtectionDomain) {
  connect();
  other_pd_ = ibv_alloc_pd(far_host->context);
  ASSERT_NE(other_pd_, nullptr);
  register_again(other_pd_, kAllAccess);
  ibv_send_wr one = wr();
  set_remote(one, far_host->address(), other_mr_->rkey);
  expect_refused(one);
}

TEST_P(Access, EndsBehindTheRegion) {
  connect();
  ibv_send_wr one = wr();
  set_remote(one, far_host->address(Host::kBytes), far_host->mr->rkey);
  if (!is_atomic(GetParam())) one.wr.rdma.remote_addr -= kLength - 1;
  expect_refused(one);
}

TEST_P(Access, StartsBeforeTheRegion) {
  connect();
  ibv_send_wr one = wr();
  set_remote(one, far_host->address() - 8, far_host->mr->rkey);
  expect_refused(one);
}

TEST_P(Access, AddressWrapsAround) {
  connect();
  ibv_send_wr one = wr();
  set_remote(one, ~uint64_t{7}, far_host->mr->rkey);
  expect_refused(one);
}

// Local keys. With both keys bad, a WRITE fails at home and a READ or an atomic at the peer.
TEST_P(Access, UnknownLkey) {
  connect();
  ibv_send_wr one = wr();
  sge_.lkey = kBadKey;
  ASSERT_EQ(near->post(one), 0);
  near->expect(1, IBV_WC_LOC_PROT_ERR);
  EXPECT_TRUE(near->reaches(IBV_QPS_ERR));
  EXPECT_EQ(far->state(), IBV_QPS_RTS);
}

TEST_P(Access, UnknownLkeyAndRkey) {
  connect();
  ibv_send_wr one = wr();
  sge_.lkey = kBadKey;
  set_remote(one, far_host->address(), kBadKey);
  ASSERT_EQ(near->post(one), 0);
  const bool writes = GetParam() == IBV_WR_RDMA_WRITE || GetParam() == IBV_WR_RDMA_WRITE_WITH_IMM;
  near->expect(1, writes ? IBV_WC_LOC_PROT_ERR : IBV_WC_REM_ACCESS_ERR);
}

TEST_P(Access, LkeyOfAnotherProtectionDomain) {
  connect();
  ibv_pd* pd = ibv_alloc_pd(near_host->context);
  ibv_mr* mr = ibv_reg_mr(pd, near_host->bytes().data(), 4096, kAllAccess);
  ASSERT_NE(mr, nullptr);
  ibv_send_wr one = wr();
  sge_.lkey = mr->lkey;
  EXPECT_EQ(near->post(one), 0);
  near->expect(1, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
}

TEST_P(Access, LocalEndBehindTheRegion) {
  connect();
  ibv_send_wr one = wr();
  sge_.addr = near_host->address(Host::kBytes - kLength + 1);
  ASSERT_EQ(near->post(one), 0);
  near->expect(1, IBV_WC_LOC_PROT_ERR);
}

// What comes back is written: READs and atomics need the right to write at home.
TEST_P(Access, LocalRegionWithoutTheRightToWrite) {
  connect();
  ibv_mr* mr = ibv_reg_mr(near_host->pd, near_host->bytes().data(), 4096, 0);
  ASSERT_NE(mr, nullptr);
  std::ranges::fill(near_host->bytes().first(64), std::byte{0x77});
  ibv_send_wr one = wr();
  sge_.lkey = mr->lkey;
  EXPECT_EQ(near->post(one), 0);
  const bool writes = GetParam() == IBV_WR_RDMA_WRITE || GetParam() == IBV_WR_RDMA_WRITE_WITH_IMM;
  near->expect(1, writes ? IBV_WC_SUCCESS : IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(near_host->bytes()[0], std::byte{0x77});
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_P(Access, NoBytesNeedNoKeys) {
  if (is_atomic(GetParam())) GTEST_SKIP() << "an atomic is always 8 bytes";
  connect();
  ibv_send_wr one = request(1, GetParam(), nullptr, *far_host);
  set_remote(one, 0x10, kBadKey);
  ASSERT_EQ(near->post(one), 0);
  near->expect(1);
}

TEST_P(Access, MisalignedAtomic) {
  if (!is_atomic(GetParam())) GTEST_SKIP() << "only atomics are aligned";
  connect();
  ibv_send_wr one = wr();
  set_remote(one, far_host->address(4), far_host->mr->rkey);
  expect_refused(one, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
}

INSTANTIATE_TEST_SUITE_P(Operations, Access, testing::ValuesIn(kRemoteOps),
                         [](const auto& info) { return name_of(info.param); });

using Regions = Conformance;

TEST_F(Regions, RemoteRightsNeedTheLocalOne) {
  for (int access : {int{IBV_ACCESS_REMOTE_WRITE}, int{IBV_ACCESS_REMOTE_ATOMIC},
                     IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ}) {
    errno = 0;
    EXPECT_EQ(ibv_reg_mr(near_host->pd, near_host->bytes().data(), 4096, access), nullptr);
    EXPECT_EQ(errno, EINVAL) << access;
  }
}

TEST_F(Regions, OfNoBytesReachNothing) {
  connect();
  ibv_mr* empty = ibv_reg_mr(near_host->pd, near_host->bytes().data(), 0, kAllAccess);
  ASSERT_NE(empty, nullptr) << strerror(errno);
  ibv_mr* peers = ibv_reg_mr(far_host->pd, far_host->bytes().data(), 0, kAllAccess);
  ASSERT_NE(peers, nullptr);
  ibv_sge sge{near_host->address(), 0, empty->lkey}, one{near_host->address(), 1, empty->lkey};
  for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_SEND}) {
    ASSERT_EQ(far->post_receive(2), 0);
    ibv_send_wr wr = request(1, opcode, &sge, *far_host);
    if (opcode != IBV_WR_SEND) set_remote(wr, far_host->address(), peers->rkey);
    ASSERT_EQ(near->post(wr), 0);
    near->expect(1);
  }
  far->expect(2);
  ibv_sge good = near_host->sge(1);
  ibv_send_wr wr = request(1, IBV_WR_RDMA_WRITE, &good, *far_host);
  set_remote(wr, far_host->address(), peers->rkey);
  ASSERT_EQ(near->post(wr), 0);
  near->expect(1, IBV_WC_REM_ACCESS_ERR);
  connect();
  ASSERT_EQ(near->post(request(1, IBV_WR_RDMA_WRITE, &one, *far_host)), 0);
  near->expect(1, IBV_WC_LOC_PROT_ERR);
  near.reset();
  far.reset();
  EXPECT_EQ(ibv_dereg_mr(empty), 0);
  EXPECT_EQ(ibv_dereg_mr(peers), 0);
}

TEST_F(Regions, KeysAreNotUsedAgainAtOnce) {
  ibv_mr* first = ibv_reg_mr(near_host->pd, near_host->bytes().data(), 4096, kAllAccess);
  ASSERT_NE(first, nullptr);
  const uint32_t rkey = first->rkey;
  ASSERT_EQ(ibv_dereg_mr(first), 0);
  ibv_mr* second = ibv_reg_mr(near_host->pd, near_host->bytes().data(), 4096, kAllAccess);
  ASSERT_NE(second, nullptr);
  EXPECT_NE(second->rkey, rkey);
  EXPECT_EQ(ibv_dereg_mr(second), 0);
}

TEST_F(Regions, RkeysCantBeGuessedFromOneAnother) {
  std::vector<ibv_mr*> mrs;
  uint32_t equal_steps = 0, last_step = 0;
  for (int i = 0; i < 16; ++i) {
    mrs.push_back(ibv_reg_mr(near_host->pd, near_host->bytes().data(), 4096, kAllAccess));
    ASSERT_NE(mrs.back(), nullptr);
    if (i == 0) continue;
    const uint32_t step = mrs[static_cast<size_t>(i)]->rkey - mrs[static_cast<size_t>(i) - 1]->rkey;
    equal_steps += step == last_step;
    last_step = step;
  }
  EXPECT_LT(equal_steps, 8u) << "they follow each other at one distance";
  for (ibv_mr* mr : mrs) EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

}  // namespace
}  // namespace hostnic::conformance
