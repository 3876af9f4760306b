// SPDX-License-Identifier: BSD-3-Clause
// On-demand regions and advice about them, at the verbs' edge.
#include "tests/unit/abi/testing.h"

namespace hostnic {
namespace {

class AbiAdvice : public AbiTest {
 protected:
  void SetUp() override {
    AbiTest::SetUp();
    mr_ = ibv_reg_mr(pd_, buffer_, sizeof buffer_, IBV_ACCESS_ON_DEMAND | IBV_ACCESS_LOCAL_WRITE);
    ASSERT_NE(mr_, nullptr);
  }
  static uint64_t address(const void* at) { return reinterpret_cast<uint64_t>(at); }
  int advise(ibv_sge sge, ibv_advise_mr_advice advice = IBV_ADVISE_MR_ADVICE_PREFETCH,
             uint32_t flags = 0) {
    return ibv_advise_mr(pd_, advice, flags, &sge, 1);
  }
  char buffer_[256]{};
  ibv_mr* mr_ = nullptr;
};

TEST_F(AbiAdvice, OnDemandReachesTheDriver) {
  EXPECT_EQ(fake::seen().access, uint32_t{kAccessOnDemand} | kAccessLocalWrite);
}

TEST_F(AbiAdvice, TheWholeAddressSpaceIsRefused) {
  errno = 0;
  EXPECT_EQ(ibv_reg_mr(pd_, nullptr, SIZE_MAX, IBV_ACCESS_ON_DEMAND), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(ibv_reg_mr(pd_, nullptr, SIZE_MAX, 0), nullptr);
  EXPECT_EQ(errno, EINVAL) << "which is no special case without on-demand paging";
}

TEST_F(AbiAdvice, TouchesThePagesForReadingOrWriting) {
  ibv_sge sges[] = {{address(buffer_ + 16), 32, mr_->lkey},
                    {address(buffer_), 0, mr_->lkey},
                    {address(buffer_), 256, mr_->lkey}};
  ASSERT_EQ(ibv_advise_mr(pd_, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, sges, 3), 0);
  using Prefetch = fake::Seen::Prefetch;
  EXPECT_EQ(fake::seen().prefetches, (std::vector<Prefetch>{{address(buffer_ + 16), 32, false},
                                                            {address(buffer_), 256, false}}));
  fake::seen().prefetches.clear();
  ASSERT_EQ(advise(sges[0], IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_FLAG_FLUSH), 0);
  EXPECT_EQ(fake::seen().prefetches, (std::vector<Prefetch>{{address(buffer_ + 16), 32, true}}));
  fake::seen().prefetches.clear();
  EXPECT_EQ(advise(sges[0], IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT), 0);
  EXPECT_TRUE(fake::seen().prefetches.empty());
}

TEST_F(AbiAdvice, AddressesAreTheRegions) {
  constexpr unsigned int kAccess = IBV_ACCESS_ON_DEMAND;
  ibv_mr* moved = ibv_reg_mr_iova(pd_, buffer_, 64, 0x10000, kAccess);
  ibv_mr* zero_based = ibv_reg_mr(pd_, buffer_, 64, kAccess | IBV_ACCESS_ZERO_BASED);
  ASSERT_TRUE(moved != nullptr && zero_based != nullptr);
  EXPECT_EQ(advise({0x10008, 8, moved->lkey}), 0);
  EXPECT_EQ(advise({8, 8, zero_based->lkey}), 0);
  ASSERT_EQ(fake::seen().prefetches.size(), 2u);
  for (const auto& prefetch : fake::seen().prefetches) EXPECT_EQ(prefetch.va, address(buffer_ + 8));
  EXPECT_EQ(advise({address(buffer_), 8, moved->lkey}), EFAULT);
}

TEST_F(AbiAdvice, WhatIsNotOfTheRegion) {
  EXPECT_EQ(advise({address(buffer_) - 1, 8, mr_->lkey}), EFAULT);
  EXPECT_EQ(advise({address(buffer_) + 250, 7, mr_->lkey}), EFAULT);
  EXPECT_EQ(advise({address(buffer_) + 257, 0, mr_->lkey}), EFAULT);
  EXPECT_EQ(advise({~uint64_t{0}, 8, mr_->lkey}), EFAULT);
  EXPECT_EQ(advise({address(buffer_) + 256, 0, mr_->lkey}), 0);
  EXPECT_TRUE(fake::seen().prefetches.empty());
  fake::behaviour().prefetch_error = EFAULT;
  EXPECT_EQ(advise({address(buffer_), 8, mr_->lkey}), EFAULT) << "memory that is not there";
}

TEST_F(AbiAdvice, KeysThatWontDo) {
  ibv_mr* plain = ibv_reg_mr(pd_, buffer_, 64, IBV_ACCESS_LOCAL_WRITE);
  ibv_mr* read_only = ibv_reg_mr(pd_, buffer_, 64, IBV_ACCESS_ON_DEMAND);
  ibv_mw* mw = ibv_alloc_mw(pd_, IBV_MW_TYPE_2);
  ibv_pd* other = ibv_alloc_pd(context_);
  ASSERT_TRUE(plain != nullptr && read_only != nullptr && mw != nullptr && other != nullptr);
  ibv_sge sge{address(buffer_), 8, mr_->lkey};
  EXPECT_EQ(advise({sge.addr, 8, plain->lkey}), EINVAL);
  EXPECT_EQ(advise({sge.addr, 8, mw->rkey | kWindowKeyBit}), EINVAL);
  EXPECT_EQ(advise({sge.addr, 8, 0x7fbadbad}), ENOENT);
  EXPECT_EQ(advise({sge.addr, 8, read_only->lkey}), 0);
  EXPECT_EQ(advise({sge.addr, 8, read_only->lkey}, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE), EPERM);
  EXPECT_EQ(ibv_advise_mr(other, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1), EPERM);
  ibv_context* second = ibv_open_device(list_[1]);
  ibv_pd* foreign = ibv_alloc_pd(second);
  EXPECT_EQ(ibv_advise_mr(foreign, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1), ENOENT);
  EXPECT_EQ(ibv_close_device(second), 0);
  EXPECT_EQ(ibv_dereg_mr(mr_), 0);
  EXPECT_EQ(advise(sge), ENOENT);
}

TEST_F(AbiAdvice, ParentDomainsAreTheirDomain) {
  ibv_parent_domain_init_attr init{.pd = pd_, .td = nullptr};
  ibv_pd* parent = ibv_alloc_parent_domain(context_, &init);
  ASSERT_NE(parent, nullptr);
  ibv_sge sge{address(buffer_), 8, mr_->lkey};
  EXPECT_EQ(ibv_advise_mr(parent, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1), 0);
}

TEST_F(AbiAdvice, ArgumentsThatWontDo) {
  ibv_sge sge{address(buffer_), 8, mr_->lkey};
  EXPECT_EQ(advise(sge, IBV_ADVISE_MR_ADVICE_PREFETCH, 2), EINVAL);
  EXPECT_EQ(advise(sge, static_cast<ibv_advise_mr_advice>(77)), EOPNOTSUPP);
  EXPECT_EQ(ibv_advise_mr(pd_, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 0), EINVAL);
  EXPECT_EQ(ibv_advise_mr(pd_, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, nullptr, 1), EINVAL);
  EXPECT_TRUE(fake::seen().prefetches.empty());
}

}  // namespace
}  // namespace hostnic
