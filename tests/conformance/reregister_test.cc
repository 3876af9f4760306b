// SPDX-License-Identifier: BSD-3-Clause
// ibv_rereg_mr: what each flag changes for those who use the region, and what is refused and leaves
// it as it was.
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

#include "tests/conformance/bench.h"

namespace hostnic::conformance {
namespace {

// The region under test is far's, and near writes to it.
class Reregister : public Conformance {
 protected:
  void SetUp() override {
    Conformance::SetUp();
    if (HasFatalFailure()) return;
    connect();
    mr_ = ibv_reg_mr(far_host->pd, far_host->bytes().data(), 4096, kAllAccess);
    ASSERT_NE(mr_, nullptr);
    other_pd_ = ibv_alloc_pd(far_host->context);
    ASSERT_NE(other_pd_, nullptr);
  }
  void TearDown() override {
    far.reset();
    if (mr_ != nullptr) {
      EXPECT_EQ(ibv_dereg_mr(mr_), 0);
    }
    if (other_pd_ != nullptr) {
      EXPECT_EQ(ibv_dealloc_pd(other_pd_), 0);
    }
    Conformance::TearDown();
  }
  void write(uint32_t rkey, uint64_t offset, ibv_wc_status status) {
    const auto value = std::byte(++writes_);
    std::ranges::fill(near_host->bytes().first(8), value);
    ibv_sge sge = near_host->sge(8);
    ibv_send_wr wr = request(1, IBV_WR_RDMA_WRITE, &sge, *far_host);
    set_remote(wr, far_host->address(offset), rkey);
    ASSERT_EQ(near->post(wr), 0);
    near->expect(1, status);
    EXPECT_EQ(far_host->bytes()[offset] == value, status == IBV_WC_SUCCESS);
  }
  void works(uint64_t offset = 0) { write(mr_->rkey, offset, IBV_WC_SUCCESS); }
  int again(int flags, ibv_pd* pd = nullptr, void* address = nullptr, size_t length = 0,
            int access = 0) {
    errno = 0;
    return ibv_rereg_mr(mr_, flags, pd, address, length, access);
  }

  ibv_mr* mr_ = nullptr;
  ibv_pd* other_pd_ = nullptr;
  uint8_t writes_ = 0;
};

TEST_F(Reregister, AccessIsTakenAway) {
  works();
  ASSERT_EQ(again(IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_LOCAL_WRITE), 0);
  write(mr_->rkey, 0, IBV_WC_REM_ACCESS_ERR);
}

TEST_F(Reregister, AccessIsGiven) {
  ASSERT_EQ(again(IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_LOCAL_WRITE), 0);
  ASSERT_EQ(again(IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, kAllAccess), 0);
  works();
}

TEST_F(Reregister, AnotherPlace) {
  ASSERT_EQ(again(IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, far_host->bytes().data() + 65536, 100),
            0);
  EXPECT_EQ(mr_->addr, far_host->bytes().data() + 65536);
  EXPECT_EQ(mr_->length, 100u);
  works(65536);
  write(mr_->rkey, 0, IBV_WC_REM_ACCESS_ERR);
}

TEST_F(Reregister, BeyondTheNewEnd) {
  ASSERT_EQ(again(IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, far_host->bytes().data(), 12), 0);
  works(4);
  write(mr_->rkey, 8, IBV_WC_REM_ACCESS_ERR);
}

TEST_F(Reregister, AnotherProtectionDomain) {
  ASSERT_EQ(again(IBV_REREG_MR_CHANGE_PD, other_pd_), 0);
  EXPECT_EQ(mr_->pd, other_pd_);
  EXPECT_EQ(ibv_dealloc_pd(other_pd_), EBUSY);
  write(mr_->rkey, 0, IBV_WC_REM_ACCESS_ERR);
}

TEST_F(Reregister, EverythingAtOnceAndBack) {
  constexpr int kAll =
      IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS;
  ASSERT_EQ(again(kAll, other_pd_, far_host->bytes().data() + 8192, 512, IBV_ACCESS_LOCAL_WRITE),
            0);
  ASSERT_EQ(again(kAll, far_host->pd, far_host->bytes().data(), 4096, kAllAccess), 0);
  works();
  EXPECT_EQ(ibv_dealloc_pd(other_pd_), 0) << "it is free again";
  other_pd_ = nullptr;
}

TEST_F(Reregister, KeysStay) {
  const uint32_t lkey = mr_->lkey, rkey = mr_->rkey;
  const auto stayed = [&] {
    EXPECT_EQ(mr_->lkey, lkey);
    EXPECT_EQ(mr_->rkey, rkey);
  };
  ASSERT_EQ(again(IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_LOCAL_WRITE), 0);
  stayed();
  ASSERT_EQ(again(IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, kAllAccess), 0);
  stayed();
  write(rkey, 0, IBV_WC_SUCCESS);
  ASSERT_EQ(again(IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, far_host->bytes().data() + 8192, 100),
            0);
  stayed();
  write(rkey, 8192, IBV_WC_SUCCESS);
}

TEST_F(Reregister, TheLocalKeyCounts) {
  ASSERT_EQ(again(IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, kAllAccess), 0);
  ibv_sge sge{far_host->address(), 8, mr_->lkey};
  ASSERT_EQ(far->post(request(3, IBV_WR_RDMA_WRITE, &sge, *near_host)), 0);
  far->expect(3);
}

// ---- refused, and everything is as it was

TEST_F(Reregister, FlagsThatThereAreNot) {
  for (const int flags : {0, 1 << 8}) {
    EXPECT_EQ(again(flags), IBV_REREG_MR_ERR_INPUT) << flags;
    EXPECT_EQ(errno, EINVAL);
  }
  works();
}

TEST_F(Reregister, ArgumentsThatContradictTheFlags) {
  EXPECT_EQ(again(IBV_REREG_MR_CHANGE_TRANSLATION), IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(again(IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, far_host->bytes().data(), 0),
            IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(again(IBV_REREG_MR_CHANGE_PD, other_pd_, nullptr, 0, kAllAccess),
            IBV_REREG_MR_ERR_INPUT);
  works();
}

TEST_F(Reregister, AccessThatCantBe) {
  EXPECT_EQ(again(IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_REMOTE_WRITE),
            IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(again(IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 1 << 10),
            IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(errno, EINVAL);
  works();
}

TEST_F(Reregister, MemoryThatIsNone) {
  void* nothing = mmap(nullptr, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(nothing, MAP_FAILED);
  ASSERT_EQ(munmap(nothing, 8192), 0);
  EXPECT_EQ(again(IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, nothing, 8192), IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(errno, EFAULT);
  EXPECT_EQ(mr_->addr, far_host->bytes().data());
  works();
}

TEST_F(Reregister, AProtectionDomainOfAnotherDevice) {
  EXPECT_EQ(again(IBV_REREG_MR_CHANGE_PD, near_host->pd), IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(errno, EINVAL);
  works();
}

TEST_F(Reregister, MemoryWindowsHoldIt) {
  ASSERT_EQ(again(IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, kAllAccess | IBV_ACCESS_MW_BIND),
            0);
  ibv_mw* mw = ibv_alloc_mw(far_host->pd, IBV_MW_TYPE_1);
  ASSERT_NE(mw, nullptr);
  ibv_mw_bind bind{4, IBV_SEND_SIGNALED, {mr_, far_host->address(), 64, IBV_ACCESS_REMOTE_WRITE}};
  ASSERT_EQ(ibv_bind_mw(far->qp, mw, &bind), 0);
  far->expect(4);
  EXPECT_EQ(again(IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_LOCAL_WRITE),
            IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(errno, EBUSY);
  works();
  write(mw->rkey, 0, IBV_WC_SUCCESS);
  EXPECT_EQ(ibv_dealloc_mw(mw), 0);
  EXPECT_EQ(again(IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_LOCAL_WRITE), 0);
}

}  // namespace
}  // namespace hostnic::conformance
