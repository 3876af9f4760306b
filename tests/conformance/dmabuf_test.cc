// SPDX-License-Identifier: BSD-3-Clause
// Regions of dma-bufs, for which memfds stand: all operations, addresses that are nobody's, and
// memory that its exporter takes away: then a peer's access ends with an error, and never with
// zeros.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tests/conformance/bench.h"

namespace hostnic::conformance {
namespace {

constexpr size_t kPage = 4096, kLength = 64 * kPage;
constexpr uint64_t kSkew = 100;
// Where no program has anything.
constexpr uint64_t kIova = 0x1234'5000'0000 + kSkew;

class DmaBuf : public Conformance {
 protected:
  void SetUp() override {
    Conformance::SetUp();
    file_ = memfd_create("dma-buf", MFD_CLOEXEC);
    ASSERT_EQ(ftruncate(file_, kLength), 0);
    memory_ = static_cast<std::byte*>(
        mmap(nullptr, kLength, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0));
    ASSERT_NE(memory_, MAP_FAILED);
    std::memset(memory_, 7, kLength);
  }
  void TearDown() override {
    munmap(memory_, kLength);
    close(file_);
    Conformance::TearDown();
  }
  // All of it from page 1 and a bit on.
  ibv_mr* add(const Host& host) {
    ibv_mr* mr = ibv_reg_dmabuf_mr(host.pd, kPage + kSkew, kLength - kPage - kSkew, kIova, file_,
                                   kAllAccess);
    EXPECT_NE(mr, nullptr) << std::strerror(errno);
    return mr;
  }
  std::byte* part(uint64_t offset = 0) const { return memory_ + kPage + kSkew + offset; }
  ibv_wc_status do_one(ibv_wr_opcode opcode, const ibv_mr* remote, uint64_t offset, size_t length) {
    ibv_sge sge = near_host->sge(static_cast<uint32_t>(length));
    ibv_send_wr wr = request(1, opcode, &sge, *far_host);
    if (is_atomic(opcode)) {
      wr.wr.atomic.remote_addr = kIova + offset;
      wr.wr.atomic.rkey = remote->rkey;
      wr.wr.atomic.compare_add = 1;
    } else {
      set_remote(wr, kIova + offset, remote->rkey);
    }
    EXPECT_EQ(near->post(wr), 0);
    return near->next().status;
  }

  int file_ = -1;
  std::byte* memory_ = nullptr;
};

TEST_F(DmaBuf, TakesWritesAndGivesReads) {
  connect();
  ibv_mr* mr = add(*far_host);
  close(std::exchange(file_, memfd_create("another", MFD_CLOEXEC)));  // the region stays
  std::ranges::fill(near_host->bytes(), std::byte{0x55});
  EXPECT_EQ(do_one(IBV_WR_RDMA_WRITE, mr, 1000, 20'000), IBV_WC_SUCCESS);
  EXPECT_EQ(part(999)[0], std::byte{7});
  EXPECT_TRUE(
      std::all_of(part(1000), part(21'000), [](std::byte b) { return b == std::byte{0x55}; }));
  EXPECT_EQ(part(21'000)[0], std::byte{7});
  EXPECT_EQ(do_one(IBV_WR_RDMA_READ, mr, 20'999, 10'000), IBV_WC_SUCCESS);
  EXPECT_EQ(near_host->bytes()[0], std::byte{0x55});
  EXPECT_EQ(near_host->bytes()[1], std::byte{7});
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(DmaBuf, HasAtomics) {
  ConnectOptions options;
  connect(options);
  ibv_mr* mr = add(*far_host);
  constexpr uint64_t kAt = 4096;
  const uint64_t aligned = kAt - (kIova + kAt) % 8;  // as an address of the region
  uint64_t before = 41, after = 0;
  std::memcpy(part(aligned), &before, sizeof(before));
  EXPECT_EQ(do_one(IBV_WR_ATOMIC_FETCH_AND_ADD, mr, aligned, 8), IBV_WC_SUCCESS);
  std::memcpy(&after, part(aligned), sizeof(after));
  EXPECT_EQ(after, 42u);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(DmaBuf, IsSentAndReceivedInto) {
  connect();
  ibv_mr* source = add(*near_host);
  ibv_mr* target = ibv_reg_dmabuf_mr(far_host->pd, 0, kPage, 0x5000, file_, kAllAccess);
  ASSERT_NE(target, nullptr);
  std::memset(part(), 9, 1000);
  ibv_sge into{0x5000 + 8, 1000, target->lkey};
  ibv_recv_wr receive{.wr_id = 5, .next = nullptr, .sg_list = &into, .num_sge = 1};
  ibv_recv_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_recv(far->qp, &receive, &bad), 0);
  ibv_sge from{kIova, 1000, source->lkey};
  ibv_send_wr wr = request(1, IBV_WR_SEND, &from, *far_host);
  ASSERT_EQ(near->post(wr), 0);
  near->expect(1);
  far->expect(5);
  EXPECT_EQ(memory_[8], std::byte{9});
  EXPECT_EQ(memory_[1007], std::byte{9});
  EXPECT_EQ(memory_[1008], std::byte{7});
  EXPECT_EQ(ibv_dereg_mr(source), 0);
  EXPECT_EQ(ibv_dereg_mr(target), 0);
}

TEST_F(DmaBuf, EndsWhereItEnds) {
  connect();
  ibv_mr* mr = add(*far_host);
  EXPECT_EQ(do_one(IBV_WR_RDMA_READ, mr, kLength - kPage - kSkew - 8, 9), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

// What an exporter may do.
enum class Way { kCutOff, kHole };
class RevokedDmaBuf : public DmaBuf, public testing::WithParamInterface<Way> {
 protected:
  // Takes away the second half.
  void revoke() const {
    if (GetParam() == Way::kCutOff) {
      ASSERT_EQ(ftruncate(file_, kLength / 2), 0);
    } else {
      ASSERT_EQ(
          fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, kLength / 2, kLength / 2),
          0);
    }
  }
};

TEST_P(RevokedDmaBuf, IsAnErrorAndNeverZeros) {
  for (const ibv_wr_opcode opcode :
       {IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_ATOMIC_FETCH_AND_ADD}) {
    for (const size_t length : {size_t{8}, size_t{1000}, 8 * kPage}) {
      if (is_atomic(opcode) && length != 8) continue;
      ASSERT_EQ(ftruncate(file_, kLength), 0);
      std::memset(memory_, 7, kLength);
      connect();
      ibv_mr* mr = add(*far_host);
      revoke();
      std::ranges::fill(near_host->bytes(), std::byte{0x55});
      const uint64_t offset = kLength / 2 + kPage - kIova % 8;  // aligned, for atomics
      EXPECT_EQ(do_one(opcode, mr, offset, length), IBV_WC_REM_ACCESS_ERR)
          << length << " bytes by " << name_of(opcode);
      // Nobody brings the region back, and it can be deregistered.
      connect();
      EXPECT_EQ(do_one(opcode, mr, offset, length), IBV_WC_REM_ACCESS_ERR);
      EXPECT_EQ(ibv_dereg_mr(mr), 0);
      connect();
      ASSERT_EQ(ftruncate(file_, kLength), 0);
      std::memset(memory_, 9, kLength);
      ibv_mr* again = add(*far_host);
      EXPECT_EQ(do_one(IBV_WR_RDMA_READ, again, offset, 8), IBV_WC_SUCCESS);
      EXPECT_EQ(near_host->bytes()[0], std::byte{9});
      EXPECT_EQ(ibv_dereg_mr(again), 0);
    }
  }
}

TEST_P(RevokedDmaBuf, IsNoSource) {
  connect();
  ibv_mr* mr = add(*near_host);
  revoke();
  ibv_sge sge{kIova + kLength / 2, 1000, mr->lkey};
  ibv_send_wr wr = request(1, IBV_WR_RDMA_WRITE, &sge, *far_host);
  ASSERT_EQ(near->post(wr), 0);
  EXPECT_EQ(near->next().status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

INSTANTIATE_TEST_SUITE_P(Ways, RevokedDmaBuf, testing::Values(Way::kCutOff, Way::kHole),
                         [](const auto& info) {
                           return info.param == Way::kCutOff ? "cut_off" : "hole";
                         });

}  // namespace
}  // namespace hostnic::conformance
