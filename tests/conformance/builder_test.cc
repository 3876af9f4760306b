// SPDX-License-Identifier: BSD-3-Clause
// The ibv_wr_* builder calls: each operation, each way to name data, what is refused, and that a
// batch is posted whole or not at all.
#include "tests/conformance/builder.h"

#include <endian.h>

#include <algorithm>
#include <thread>

namespace hostnic::conformance {
namespace {

TEST_F(Builder, Write) {
  build();
  fill(5000);
  start(1);
  ibv_wr_rdma_write(qp_, rkey(), there(100));
  data(5000);
  ASSERT_EQ(ibv_wr_complete(qp_), 0);
  EXPECT_EQ(near->expect(1).opcode, IBV_WC_RDMA_WRITE);
  EXPECT_TRUE(arrived(5000, 100));
}

TEST_F(Builder, WriteWithImm) {
  build();
  ASSERT_EQ(far->post_receive(2), 0);
  fill(300);
  start(1);
  ibv_wr_rdma_write_imm(qp_, rkey(), there(), htobe32(77));
  data(300);
  ASSERT_EQ(ibv_wr_complete(qp_), 0);
  near->expect(1);
  const ibv_wc wc = far->expect(2);
  EXPECT_EQ(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(wc.imm_data, htobe32(77));
  EXPECT_TRUE(arrived(300));
}

TEST_F(Builder, Send) {
  build();
  ASSERT_EQ(far->post_receive(2, 300), 0);
  fill(300);
  start(1);
  ibv_wr_send(qp_);
  data(300);
  ASSERT_EQ(ibv_wr_complete(qp_), 0);
  EXPECT_EQ(near->expect(1).opcode, IBV_WC_SEND);
  EXPECT_EQ(far->expect(2).byte_len, 300u);
  EXPECT_TRUE(arrived(300));
}

TEST_F(Builder, SendWithImm) {
  build();
  ASSERT_EQ(far->post_receive(2, 300), 0);
  start(1);
  ibv_wr_send_imm(qp_, htobe32(0xabcd));
  data(17);
  ASSERT_EQ(ibv_wr_complete(qp_), 0);
  near->expect(1);
  const ibv_wc wc = far->expect(2);
  EXPECT_EQ(wc.wc_flags, static_cast<unsigned int>(IBV_WC_WITH_IMM));
  EXPECT_EQ(wc.imm_data, htobe32(0xabcd));
  EXPECT_EQ(wc.byte_len, 17u);
}

TEST_F(Builder, Read) {
  build();
  std::ranges::fill(far_host->bytes().subspan(64, 3000), std::byte{0x3c});
  start(1);
  ibv_wr_rdma_read(qp_, rkey(), there(64));
  data(3000);
  ASSERT_EQ(ibv_wr_complete(qp_), 0);
  const ibv_wc wc = near->expect(1);
  EXPECT_EQ(wc.opcode, IBV_WC_RDMA_READ);
  EXPECT_TRUE(arrived(3000, 64));
}

TEST_F(Builder, CompareAndSwap) {
  build();
  word(*far_host, 8) = 5;
  start(1);
  ibv_wr_atomic_cmp_swp(qp_, rkey(), there(8), 5, 9);
  data(8);
  next(2);
  ibv_wr_atomic_cmp_swp(qp_, rkey(), there(8), 5, 11);
  data(8, 64);
  ASSERT_EQ(ibv_wr_complete(qp_), 0);
  EXPECT_EQ(near->expect(1).opcode, IBV_WC_COMP_SWAP);
  near->expect(2);
  EXPECT_EQ(word(*near_host), 5u);
  EXPECT_EQ(word(*near_host, 64), 9u);
  EXPECT_EQ(word(*far_host, 8), 9u);
}

TEST_F(Builder, FetchAndAdd) {
  build();
  word(*far_host, 8) = 40;
  start(1);
  ibv_wr_atomic_fetch_add(qp_, rkey(), there(8), 2);
  data(8);
  ASSERT_EQ(ibv_wr_complete(qp_), 0);
  EXPECT_EQ(near->expect(1).opcode, IBV_WC_FETCH_ADD);
  EXPECT_EQ(word(*near_host), 40u);
  EXPECT_EQ(word(*far_host, 8), 42u);
}

// Far binds and invalidates by its own builder, near invalidates by a SEND.
TEST_F(Builder, BindAndBothInvalidations) {
  build();
  ibv_mw* mw = make(IBV_MW_TYPE_2);
  ibv_qp_ex* owner = ibv_qp_to_qp_ex(far->qp);
  const auto bind = [&] {
    const ibv_mw_bind_info what = info();
    mw->rkey = ibv_inc_rkey(mw->rkey);
    ibv_wr_start(owner);
    owner->wr_id = 5;
    owner->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_bind_mw(owner, mw, mw->rkey, &what);
    ASSERT_EQ(ibv_wr_complete(owner), 0);
    EXPECT_EQ(far->expect(5).opcode, IBV_WC_BIND_MW);
  };
  ASSERT_NO_FATAL_FAILURE(bind());
  opens(mw->rkey);
  ibv_wr_start(owner);
  owner->wr_id = 6;
  ibv_wr_local_inv(owner, mw->rkey);
  ASSERT_EQ(ibv_wr_complete(owner), 0);
  EXPECT_EQ(far->expect(6).opcode, IBV_WC_LOCAL_INV);

  ASSERT_NO_FATAL_FAILURE(bind());
  opens(mw->rkey);
  ASSERT_EQ(far->post_receive(7, 64), 0);
  start(8);
  ibv_wr_send_inv(qp_, mw->rkey);
  data(10);
  ASSERT_EQ(ibv_wr_complete(qp_), 0);
  near->expect(8);
  const ibv_wc wc = far->expect(7);
  EXPECT_EQ(wc.wc_flags, static_cast<unsigned int>(IBV_WC_WITH_INV));
  EXPECT_EQ(wc.invalidated_rkey, mw->rkey);
  refuses(mw->rkey);
}

// ---- data

TEST_F(Builder, SgeList) {
  build();
  fill(200);
  const ibv_sge list[] = {near_host->sge(50, 0), near_host->sge(0, 9), near_host->sge(100, 50)};
  start(1);
  ibv_wr_rdma_write(qp_, rkey(), there());
  ibv_wr_set_sge_list(qp_, 3, list);
  ASSERT_EQ(ibv_wr_complete(qp_), 0);
  near->expect(1);
  EXPECT_TRUE(arrived(150));
}

TEST_F(Builder, InlineDataMayChangeAtOnce) {
  build();
  char text[] = "inline";
  start(1);
  ibv_wr_rdma_write(qp_, rkey(), there());
  ibv_wr_set_inline_data(qp_, text, sizeof text);
  text[0] = 'X';  // the call has taken it
  ASSERT_EQ(ibv_wr_complete(qp_), 0);
  near->expect(1);
  EXPECT_EQ(std::memcmp(far_host->bytes().data(), "inline", 7), 0);
}

TEST_F(Builder, InlineDataList) {
  build();
  char one[] = "abc", two[] = "defg";
  const ibv_data_buf list[] = {{one, 3}, {two, 0}, {two, 4}};
  start(1);
  ibv_wr_rdma_write(qp_, rkey(), there());
  ibv_wr_set_inline_data_list(qp_, 3, list);
  ASSERT_EQ(ibv_wr_complete(qp_), 0);
  near->expect(1);
  EXPECT_EQ(std::memcmp(far_host->bytes().data(), "abcdefg", 7), 0);
}

TEST_F(Builder, WithoutDataNothingIsSent) {
  build();
  ASSERT_EQ(far->post_receive(2, 64), 0);
  start(1);
  ibv_wr_send(qp_);
  ASSERT_EQ(ibv_wr_complete(qp_), 0);
  near->expect(1);
  EXPECT_EQ(far->expect(2).byte_len, 0u);
}

// ---- flags

TEST_F(Builder, UnsignalledRequestsDontComplete) {
  build();
  start(1, 0);
  ibv_wr_rdma_write(qp_, rkey(), there());
  data(8);
  next(2);
  ibv_wr_rdma_write(qp_, rkey(), there());
  data(8);
  ASSERT_EQ(ibv_wr_complete(qp_), 0);
  near->expect(2);
  near->expect_nothing();
}

TEST_F(Builder, AFenceWaitsForReads) {
  build();
  for (uint64_t i = 1; i <= 50; ++i) {
    word(*near_host) = 0;
    word(*far_host) = i;
    start(1);
    ibv_wr_rdma_read(qp_, rkey(), there());
    data(8);
    next(2, IBV_SEND_SIGNALED | IBV_SEND_FENCE);
    ibv_wr_rdma_write(qp_, rkey(), there(64));
    data(8);
    ASSERT_EQ(ibv_wr_complete(qp_), 0);
    near->expect(1);
    near->expect(2);
    ASSERT_EQ(word(*far_host, 64), i);
  }
}

// ---- batches

TEST_F(Builder, ABatchCompletesInOrder) {
  build();
  fill(64);
  ibv_wr_start(qp_);
  for (uint64_t i = 0; i < 40; ++i) {
    next(i);
    ibv_wr_rdma_write(qp_, rkey(), there(64 * i));
    data(64);
  }
  ASSERT_EQ(ibv_wr_complete(qp_), 0);
  for (uint64_t i = 0; i < 40; ++i) near->expect(i);
  for (uint64_t i = 0; i < 40; ++i) EXPECT_TRUE(arrived(64, 64 * i)) << i;
}

TEST_F(Builder, AnAbortedBatchIsNotPosted) {
  build();
  start(1);
  ibv_wr_rdma_write(qp_, rkey(), there());
  data(8);
  ibv_wr_abort(qp_);
  near->expect_nothing();
  start(2);
  ibv_wr_rdma_write(qp_, rkey(), there());
  data(8);
  ASSERT_EQ(ibv_wr_complete(qp_), 0);
  near->expect(2);
}

TEST_F(Builder, AnEmptyBatchIsNoError) {
  build();
  ibv_wr_start(qp_);
  EXPECT_EQ(ibv_wr_complete(qp_), 0);
  near->expect_nothing();
}

// The error of one of its requests is the batch's, and nothing of it is posted.
class BrokenBatch : public Builder {
 protected:
  void begin() {
    ASSERT_NO_FATAL_FAILURE(build());
    start(1);
    ibv_wr_rdma_write(qp_, rkey(), there());
    data(8);
    next(2);
  }
  void ends_with(int error) {
    next(3);
    ibv_wr_rdma_write(qp_, rkey(), there());
    data(8);
    errno = 0;
    EXPECT_EQ(ibv_wr_complete(qp_), error);
    EXPECT_EQ(errno, error);
    near->expect_nothing();
    EXPECT_EQ(near->state(), IBV_QPS_RTS);
    start(4);  // and the next one works
    ibv_wr_rdma_write(qp_, rkey(), there());
    data(8);
    EXPECT_EQ(ibv_wr_complete(qp_), 0);
    near->expect(4);
  }
};

TEST_F(BrokenBatch, TooManySges) {
  ASSERT_NO_FATAL_FAILURE(begin());
  const std::vector<ibv_sge> list(near->options.caps.max_send_sge + 1, near_host->sge(8));
  ibv_wr_rdma_write(qp_, rkey(), there());
  ibv_wr_set_sge_list(qp_, list.size(), list.data());
  ends_with(EINVAL);
}

TEST_F(BrokenBatch, TooMuchInlineData) {
  ASSERT_NO_FATAL_FAILURE(begin());
  std::vector<char> bytes(near->options.caps.max_inline_data + 1);
  ibv_wr_rdma_write(qp_, rkey(), there());
  ibv_wr_set_inline_data(qp_, bytes.data(), bytes.size());
  ends_with(EINVAL);
}

TEST_F(BrokenBatch, InlineDataOfARead) {
  ASSERT_NO_FATAL_FAILURE(begin());
  char byte = 0;
  ibv_wr_rdma_read(qp_, rkey(), there());
  ibv_wr_set_inline_data(qp_, &byte, 1);
  ends_with(EINVAL);
}

TEST_F(BrokenBatch, ADestinationWithoutDatagrams) {
  ASSERT_NO_FATAL_FAILURE(begin());
  ibv_wr_send(qp_);
  ibv_wr_set_ud_addr(qp_, nullptr, 1, 2);
  ends_with(EINVAL);
}

TEST_F(BrokenBatch, AWindowThatIsNone) {
  ASSERT_NO_FATAL_FAILURE(begin());
  const ibv_mw_bind_info what = info();
  ibv_wr_bind_mw(qp_, nullptr, 1, &what);
  ends_with(EINVAL);
}

TEST_F(BrokenBatch, WhatThereIsNot) {
  ASSERT_NO_FATAL_FAILURE(begin());
  char header[14] = {};
  ibv_wr_send_tso(qp_, header, sizeof header, 1000);
  ends_with(EOPNOTSUPP);
}

TEST_F(Builder, MoreThanTheQueueHolds) {
  build();
  const uint32_t granted = near->options.caps.max_send_wr;
  ibv_wr_start(qp_);
  for (uint64_t i = 0; i <= granted; ++i) {
    next(i);
    ibv_wr_rdma_write(qp_, rkey(), there());
    data(8);
  }
  errno = 0;
  EXPECT_EQ(ibv_wr_complete(qp_), ENOMEM);
  EXPECT_EQ(errno, ENOMEM);
  near->expect_nothing();
}

TEST_F(Builder, OnlyInRtsAndBeyond) {
  build();
  ASSERT_EQ(near->to_reset(), 0);
  start(1);
  ibv_wr_rdma_write(qp_, rkey(), there());
  data(8);
  EXPECT_EQ(ibv_wr_complete(qp_), EINVAL);
  ASSERT_EQ(near->to(IBV_QPS_ERR), 0);
  start(2);
  ibv_wr_rdma_write(qp_, rkey(), there());
  data(8);
  EXPECT_EQ(ibv_wr_complete(qp_), 0);
  near->expect(2, IBV_WC_WR_FLUSH_ERR);
}

TEST_F(Builder, AndTheListCallWorkTogether) {
  build();
  ibv_sge sge = near_host->sge(8);
  start(1);
  ibv_wr_rdma_write(qp_, rkey(), there());
  data(8);
  ASSERT_EQ(ibv_wr_complete(qp_), 0);
  ASSERT_EQ(near->post(request(2, IBV_WR_RDMA_WRITE, &sge, *far_host)), 0);
  near->expect(1);
  near->expect(2);
}

TEST_F(Builder, ThreadsTakeTurns) {
  build();
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t)
    threads.emplace_back([this, t] {
      ibv_wr_start(qp_);
      for (uint64_t i = 0; i < 10; ++i) {
        next(10 * t + i);
        ibv_wr_rdma_write(qp_, rkey(), there());
        data(8);
      }
      EXPECT_EQ(ibv_wr_complete(qp_), 0);
    });
  for (std::thread& one : threads) one.join();
  for (int batch = 0; batch < 4; ++batch) {
    const uint64_t first = near->next().wr_id;  // a batch is never torn apart
    EXPECT_EQ(first % 10, 0u);
    for (uint64_t i = 1; i < 10; ++i) near->expect(first + i);
  }
}

}  // namespace
}  // namespace hostnic::conformance
