// SPDX-License-Identifier: BSD-3-Clause
// Order: completions of one queue pair across operation types, what a fence waits for, what a READ
// sees, and the fields of completions.
#include <endian.h>

#include <algorithm>
#include <cstring>
#include <tuple>

#include "tests/conformance/bench.h"

namespace hostnic::conformance {
namespace {

constexpr ibv_wr_opcode kOps[] = {
    IBV_WR_RDMA_WRITE,          IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND,
    IBV_WR_SEND_WITH_IMM,       IBV_WR_RDMA_READ,           IBV_WR_ATOMIC_CMP_AND_SWP,
    IBV_WR_ATOMIC_FETCH_AND_ADD};

bool takes_receive(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM ||
         opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

uint64_t& word(const Host& host, uint64_t offset = 0) {
  return *reinterpret_cast<uint64_t*>(host.bytes().data() + offset);
}

class Order : public Conformance,
              public testing::WithParamInterface<std::tuple<ibv_wr_opcode, ibv_wr_opcode>> {};

// A long one first, so that the second could overtake it.
TEST_P(Order, CompletionsComeAsPosted) {
  const auto [first, second] = GetParam();
  connect();
  for (uint64_t i = 100; i < 140; ++i) ASSERT_EQ(far->post_receive(i, 65536, 65536), 0);
  ibv_sge large = near_host->sge(is_atomic(first) ? 8 : 50'000);
  ibv_sge small = near_host->sge(8, 128 * 1024);
  for (uint64_t i = 0; i < 20; i += 2) {
    ASSERT_EQ(near->post(request(i, first, &large, *far_host)), 0);
    ASSERT_EQ(near->post(request(i + 1, second, &small, *far_host)), 0);
  }
  for (uint64_t i = 0; i < 20; ++i) near->expect(i);
  uint64_t receives = 0;
  for (ibv_wr_opcode one : {first, second}) receives += takes_receive(one) ? 10 : 0;
  for (uint64_t i = 100; i < 100 + receives; ++i) far->expect(i);
  far->expect_nothing();
}

INSTANTIATE_TEST_SUITE_P(Operations, Order,
                         testing::Combine(testing::ValuesIn(kOps), testing::ValuesIn(kOps)),
                         [](const auto& info) {
                           return name_of(std::get<0>(info.param)) + "Then" +
                                  name_of(std::get<1>(info.param));
                         });

using Ordering = Conformance;

TEST_F(Ordering, AReadSeesTheWriteBefore) {
  connect();
  ibv_sge from = near_host->sge(8), to = near_host->sge(8, 64);
  for (uint64_t i = 1; i <= 100; ++i) {
    word(*near_host) = i;
    ASSERT_EQ(near->post(request(1, IBV_WR_RDMA_WRITE, &from, *far_host)), 0);
    ASSERT_EQ(near->post(request(2, IBV_WR_RDMA_READ, &to, *far_host)), 0);
    near->expect(1);
    near->expect(2);
    ASSERT_EQ(word(*near_host, 64), i);
  }
}

// Requests execute in the order of the queue, without a fence: a READ has what was there before
// what is posted behind it.
class ReadsFirst : public Conformance, public testing::WithParamInterface<ibv_wr_opcode> {};

TEST_P(ReadsFirst, AReadDoesNotSeeWhatFollows) {
  const ibv_wr_opcode op = GetParam();
  connect();
  for (const uint32_t bytes : {8u, 4096u, 120'000u}) {
    for (uint64_t i = 1; i <= 30; ++i) {
      std::ranges::fill(far_host->bytes().first(bytes), std::byte{1});
      std::ranges::fill(near_host->bytes().first(bytes), std::byte{2});
      if (takes_receive(op)) {
        ASSERT_EQ(far->post_receive(7, bytes), 0);
      }
      ibv_sge landing = near_host->sge(bytes, 128 * 1024);
      ibv_sge from = near_host->sge(is_atomic(op) ? 8 : bytes);
      ASSERT_EQ(near->post(request(1, IBV_WR_RDMA_READ, &landing, *far_host)), 0);
      ibv_send_wr behind = request(2, op, &from, *far_host);
      if (is_atomic(op)) behind.wr.atomic.compare_add = 1;
      ASSERT_EQ(near->post(behind), 0);
      near->expect(1);
      near->expect(2);
      if (takes_receive(op)) far->expect(7);
      ASSERT_TRUE(std::ranges::all_of(near_host->bytes().subspan(128 * 1024, bytes),
                                      [](std::byte b) { return b == std::byte{1}; }))
          << bytes << " bytes, round " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Operations, ReadsFirst,
                         testing::Values(IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND,
                                         IBV_WR_SEND_WITH_IMM, IBV_WR_ATOMIC_FETCH_AND_ADD),
                         [](const auto& info) { return name_of(info.param); });

// The WRITE takes its bytes from where the READ lands: without the fence it could leave first.
TEST_F(Ordering, AFenceWaitsForReads) {
  connect();
  ibv_sge landing = near_host->sge(8);
  for (uint64_t i = 1; i <= 200; ++i) {
    word(*near_host) = 0;
    word(*far_host) = i;
    ASSERT_EQ(near->post(request(1, IBV_WR_RDMA_READ, &landing, *far_host)), 0);
    ibv_send_wr back = request(2, IBV_WR_RDMA_WRITE, &landing, *far_host);
    back.send_flags |= IBV_SEND_FENCE;
    set_remote(back, far_host->address(64), far_host->mr->rkey);
    ASSERT_EQ(near->post(back), 0);
    near->expect(1);
    near->expect(2);
    ASSERT_EQ(word(*far_host, 64), i);
  }
}

TEST_F(Ordering, AFenceWaitsForAtomics) {
  connect();
  ibv_sge landing = near_host->sge(8);
  for (uint64_t i = 1; i <= 200; ++i) {
    word(*near_host) = 0;
    word(*far_host) = i;
    ibv_send_wr add = request(1, IBV_WR_ATOMIC_FETCH_AND_ADD, &landing, *far_host);
    add.wr.atomic.compare_add = 1;
    ASSERT_EQ(near->post(add), 0);
    ibv_send_wr back = request(2, IBV_WR_RDMA_WRITE, &landing, *far_host);
    back.send_flags |= IBV_SEND_FENCE;
    set_remote(back, far_host->address(64), far_host->mr->rkey);
    ASSERT_EQ(near->post(back), 0);
    near->expect(1);
    near->expect(2);
    ASSERT_EQ(word(*far_host, 64), i);
    ASSERT_EQ(word(*far_host), i + 1);
  }
}

TEST_F(Ordering, WritesAreThereWhenTheSendBehindCompletes) {
  connect();
  ibv_sge large = near_host->sge(100'000);
  for (int i = 1; i <= 20; ++i) {
    std::ranges::fill(near_host->bytes().first(100'000), std::byte(i));
    ASSERT_EQ(far->post_receive(7, 8, 200'000), 0);
    ASSERT_EQ(near->post(request(1, IBV_WR_RDMA_WRITE, &large, *far_host)), 0);
    ibv_sge small = near_host->sge(8);
    ASSERT_EQ(near->post(request(2, IBV_WR_SEND, &small, *far_host)), 0);
    far->expect(7);
    ASSERT_TRUE(std::ranges::all_of(far_host->bytes().first(100'000),
                                    [i](std::byte b) { return b == std::byte(i); }));
    near->expect(1);
    near->expect(2);
  }
}

TEST_F(Ordering, MoreReadsThanMayBeOutstanding) {
  ConnectOptions options;
  options.rd_atomic = 1;
  connect(options);
  ibv_sge sge = near_host->sge(4096);
  for (uint64_t i = 0; i < 60; ++i)
    ASSERT_EQ(near->post(request(i, IBV_WR_RDMA_READ, &sge, *far_host)), 0);
  for (uint64_t i = 0; i < 60; ++i) near->expect(i);
}

TEST_F(Ordering, UnsignalledRequestsDontComplete) {
  connect();
  ibv_sge sge = near_host->sge(8);
  for (uint64_t i = 0; i < 30; ++i) {
    ibv_send_wr wr = request(i, IBV_WR_RDMA_WRITE, &sge, *far_host);
    if (i % 10 != 9) wr.send_flags = 0;
    ASSERT_EQ(near->post(wr), 0);
  }
  for (uint64_t i = 9; i < 30; i += 10) near->expect(i);
  near->expect_nothing();
}

TEST_F(Ordering, SqSigAllSignalsEverything) {
  ConnectOptions options;
  options.signal_all = true;
  connect(options);
  ibv_sge sge = near_host->sge(8);
  for (uint64_t i = 0; i < 10; ++i) {
    ibv_send_wr wr = request(i, IBV_WR_RDMA_WRITE, &sge, *far_host);
    wr.send_flags = 0;
    ASSERT_EQ(near->post(wr), 0);
  }
  for (uint64_t i = 0; i < 10; ++i) near->expect(i);
}

// ---- what operations do and completions say

using Completions = Conformance;

TEST_F(Completions, OfASendWithImm) {
  connect();
  ASSERT_EQ(far->post_receive(5, 64), 0);
  ibv_sge sge = near_host->sge(33);
  ibv_send_wr wr = request(1, IBV_WR_SEND_WITH_IMM, &sge, *far_host);
  wr.imm_data = htobe32(0x12345678);
  ASSERT_EQ(near->post(wr), 0);
  const ibv_wc sent = near->expect(1), received = far->expect(5);
  EXPECT_EQ(sent.opcode, IBV_WC_SEND);
  EXPECT_EQ(sent.wc_flags, 0u);
  EXPECT_EQ(received.opcode, IBV_WC_RECV);
  EXPECT_EQ(received.byte_len, 33u);
  EXPECT_EQ(received.wc_flags, static_cast<unsigned int>(IBV_WC_WITH_IMM));
  EXPECT_EQ(received.imm_data, htobe32(0x12345678));
  EXPECT_EQ(received.src_qp, near->qp->qp_num);
}

TEST_F(Completions, OfAWriteWithImm) {
  connect();
  ASSERT_EQ(far->post_receive(5), 0);
  ibv_sge sge = near_host->sge(3000);
  ibv_send_wr wr = request(1, IBV_WR_RDMA_WRITE_WITH_IMM, &sge, *far_host);
  wr.imm_data = htobe32(0xcafe);
  ASSERT_EQ(near->post(wr), 0);
  EXPECT_EQ(near->expect(1).opcode, IBV_WC_RDMA_WRITE);
  const ibv_wc received = far->expect(5);
  EXPECT_EQ(received.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(received.byte_len, 3000u);
  EXPECT_EQ(received.wc_flags, static_cast<unsigned int>(IBV_WC_WITH_IMM));
  EXPECT_EQ(received.imm_data, htobe32(0xcafe));
}

TEST_F(Completions, OfAPlainSendHaveNoFlags) {
  connect();
  ASSERT_EQ(far->post_receive(5, 64), 0);
  ibv_sge sge = near_host->sge(64);
  ASSERT_EQ(near->post(request(1, IBV_WR_SEND, &sge, *far_host)), 0);
  EXPECT_EQ(near->expect(1).wc_flags, 0u);
  EXPECT_EQ(far->expect(5).wc_flags, 0u);
}

TEST_F(Completions, OfReadsAndAtomicsSayTheLength) {
  connect();
  ibv_sge sge = near_host->sge(5000), eight = near_host->sge(8);
  ASSERT_EQ(near->post(request(1, IBV_WR_RDMA_READ, &sge, *far_host)), 0);
  ASSERT_EQ(near->post(request(2, IBV_WR_ATOMIC_FETCH_AND_ADD, &eight, *far_host)), 0);
  ASSERT_EQ(near->post(request(3, IBV_WR_ATOMIC_CMP_AND_SWP, &eight, *far_host)), 0);
  const ibv_wc read = near->expect(1), add = near->expect(2), swap = near->expect(3);
  EXPECT_EQ(read.opcode, IBV_WC_RDMA_READ);
  EXPECT_EQ(read.byte_len, 5000u);
  EXPECT_EQ(add.opcode, IBV_WC_FETCH_ADD);
  EXPECT_EQ(add.byte_len, 8u);
  EXPECT_EQ(swap.opcode, IBV_WC_COMP_SWAP);
  EXPECT_EQ(swap.byte_len, 8u);
}

TEST_F(Completions, CompareAndSwapSwapsOnlyWhatItExpects) {
  connect();
  ibv_sge sge = near_host->sge(8);
  word(*far_host) = 10;
  for (uint64_t expected : {uint64_t{11}, uint64_t{10}}) {
    ibv_send_wr wr = request(1, IBV_WR_ATOMIC_CMP_AND_SWP, &sge, *far_host);
    wr.wr.atomic.compare_add = expected;
    wr.wr.atomic.swap = 99;
    ASSERT_EQ(near->post(wr), 0);
    near->expect(1);
    EXPECT_EQ(word(*near_host), 10u) << "what was there before";
    EXPECT_EQ(word(*far_host), expected == 10 ? 99u : 10u);
  }
}

TEST_F(Completions, SgeListsAreGatheredAndScattered) {
  connect();
  for (size_t i = 0; i < 64; ++i) near_host->bytes()[i] = std::byte(i);
  ibv_sge out[] = {near_host->sge(1, 0), near_host->sge(0, 9), near_host->sge(30, 1),
                   near_host->sge(33, 31)};
  ibv_sge in[] = {far_host->sge(17, 0), far_host->sge(47, 100)};
  ibv_recv_wr receive{5, nullptr, in, 2};
  ibv_recv_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_recv(far->qp, &receive, &bad), 0);
  ibv_send_wr wr = request(1, IBV_WR_SEND, out, *far_host);
  wr.num_sge = 4;
  ASSERT_EQ(near->post(wr), 0);
  near->expect(1);
  EXPECT_EQ(far->expect(5).byte_len, 64u);
  EXPECT_EQ(std::memcmp(far_host->bytes().data(), near_host->bytes().data(), 17), 0);
  EXPECT_EQ(std::memcmp(far_host->bytes().data() + 100, near_host->bytes().data() + 17, 47), 0);
}

TEST_F(Completions, InlineDataMayChangeAtOnce) {
  connect();
  ibv_sge sge = near_host->sge(8);
  for (uint64_t i = 0; i < 50; ++i) {
    word(*near_host) = i;
    ibv_send_wr wr = request(i, IBV_WR_RDMA_WRITE, &sge, *far_host);
    wr.send_flags |= IBV_SEND_INLINE;
    set_remote(wr, far_host->address(8 * i), far_host->mr->rkey);
    ASSERT_EQ(near->post(wr), 0);
    word(*near_host) = ~i;
  }
  for (uint64_t i = 0; i < 50; ++i) near->expect(i);
  for (uint64_t i = 0; i < 50; ++i) EXPECT_EQ(word(*far_host, 8 * i), i);
}

}  // namespace
}  // namespace hostnic::conformance
