// SPDX-License-Identifier: BSD-3-Clause
// On-demand regions: the memory that counts is what is mapped at the moment of the access, and
// pages that are missing then are errors as bad keys are. And advice about them.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tests/conformance/bench.h"

namespace hostnic::conformance {
namespace {

constexpr int kOnDemandAccess = kAllAccess | IBV_ACCESS_ON_DEMAND;

// Addresses of a host's, registered on demand while nothing is accessible there.
class Arena {
 public:
  static constexpr size_t kLength = 64 * 4096, kPage = 4096;

  explicit Arena(Host& host, int access = kOnDemandAccess)
      : at_(static_cast<std::byte*>(
            mmap(nullptr, kLength, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))),
        mr(ibv_reg_mr(host.pd, at_, kLength, access)) {
    EXPECT_NE(mr, nullptr) << std::strerror(errno);
  }
  ~Arena() {
    if (mr != nullptr) {
      EXPECT_EQ(ibv_dereg_mr(mr), 0);
    }
    munmap(at_, kLength);
  }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  // New, empty pages.
  std::span<std::byte> map(size_t length = kLength) const {
    EXPECT_EQ(
        mmap(at_, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
        at_);
    return {at_, length};
  }
  // Too small for anybody else's mappings to get there meanwhile, but for one of a page.
  void unmap_page(size_t index) const { EXPECT_EQ(munmap(at_ + index * kPage, kPage), 0); }
  uint64_t address(uint64_t offset = 0) const { return reinterpret_cast<uint64_t>(at_) + offset; }
  ibv_sge sge(uint32_t length, uint64_t offset = 0) const {
    return {address(offset), length, mr->lkey};
  }

 private:
  std::byte* const at_;

 public:
  ibv_mr* const mr;
};

class OnDemand : public Conformance {
 protected:
  static constexpr uint32_t kLength = 10'000;

  // Devices can be without (rdma_rxe, long): they refuse such regions (offer_test.cc).
  void SetUp() override {
    Conformance::SetUp();
    ibv_device_attr_ex attr{};
    ASSERT_EQ(ibv_query_device_ex(near_host->context, nullptr, &attr), 0);
    if ((attr.odp_caps.general_caps & IBV_ODP_SUPPORT) == 0) GTEST_SKIP() << "the device has none";
  }
  static void fill(std::span<std::byte> bytes, unsigned seed) {
    for (size_t i = 0; i < bytes.size(); ++i)
      bytes[i] = static_cast<std::byte>((i * 2654435761u >> 11) + seed);
  }
  static bool same(std::span<const std::byte> a, std::span<const std::byte> b) {
    return std::ranges::equal(a, b);
  }
  void expect_remote_error(const ibv_send_wr& wr) {
    ASSERT_EQ(near->post(wr), 0);
    near->expect(wr.wr_id, IBV_WC_REM_ACCESS_ERR);
    EXPECT_TRUE(near->reaches(IBV_QPS_ERR));
    EXPECT_TRUE(far->reaches(IBV_QPS_ERR));
    ibv_async_event event{};
    EXPECT_TRUE(far_host->wait_async(IBV_EVENT_QP_ACCESS_ERR, event));
    EXPECT_EQ(event.element.qp, far->qp);
  }
};

TEST_F(OnDemand, EachServiceSaysWhatItHas) {
  ibv_device_attr_ex attr{};
  ASSERT_EQ(ibv_query_device_ex(near_host->context, nullptr, &attr), 0);
  EXPECT_EQ(attr.odp_caps.general_caps, static_cast<uint64_t>(IBV_ODP_SUPPORT));
  constexpr uint32_t kMessages =
      IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV;
  const auto& caps = attr.odp_caps.per_transport_caps;
  EXPECT_EQ(caps.rc_odp_caps, kMessages | IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ);
  EXPECT_EQ(caps.uc_odp_caps, kMessages | IBV_ODP_SUPPORT_WRITE);
  EXPECT_EQ(caps.ud_odp_caps, kMessages);
  EXPECT_EQ(attr.xrc_odp_caps, 0u);
}

TEST_F(OnDemand, WriteAndReadBothWays) {
  connect();
  const Arena here(*near_host), there(*far_host);
  const auto local = here.map(), remote = there.map();
  fill(local, 1);
  ibv_sge sge = here.sge(kLength, 100);
  ibv_send_wr wr = request(1, IBV_WR_RDMA_WRITE, &sge, *far_host);
  set_remote(wr, there.address(5000), there.mr->rkey);
  ASSERT_EQ(near->post(wr), 0);
  near->expect(1);
  EXPECT_TRUE(same(local.subspan(100, kLength), remote.subspan(5000, kLength)));
  fill(remote, 2);
  wr.opcode = IBV_WR_RDMA_READ;
  wr.wr_id = 2;
  ASSERT_EQ(near->post(wr), 0);
  near->expect(2);
  EXPECT_TRUE(same(local.subspan(100, kLength), remote.subspan(5000, kLength)));
}

TEST_F(OnDemand, SendAndReceive) {
  for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC}) {
    ConnectOptions options;
    options.type = type;
    connect(options);
    {
      const Arena here(*near_host), there(*far_host);
      const auto local = here.map(), remote = there.map();
      fill(local, 3);
      ibv_sge into = there.sge(kLength, 77);
      ibv_recv_wr receive{1, nullptr, &into, 1}, *bad = nullptr;
      ASSERT_EQ(ibv_post_recv(far->qp, &receive, &bad), 0);
      ibv_sge from = here.sge(kLength);
      ASSERT_EQ(near->post(request(2, IBV_WR_SEND, &from, *far_host)), 0);
      near->expect(2);
      EXPECT_EQ(far->expect(1).byte_len, kLength);
      EXPECT_TRUE(same(local.first(kLength), remote.subspan(77, kLength)));
    }
    near.reset();
    far.reset();
  }
}

// What an ordinary region does not notice.
TEST_F(OnDemand, PagesThatWereReplacedAreUsed) {
  connect();
  const Arena here(*near_host), there(*far_host);
  ibv_sge sge = here.sge(kLength);
  ibv_send_wr wr = request(0, IBV_WR_RDMA_WRITE, &sge, *far_host);
  set_remote(wr, there.address(), there.mr->rkey);
  for (unsigned round = 1; round <= 3; ++round) {
    const auto local = here.map(), remote = there.map();
    fill(local, round);
    wr.wr_id = round;
    ASSERT_EQ(near->post(wr), 0);
    near->expect(round);
    EXPECT_TRUE(same(local.first(kLength), remote.first(kLength))) << "round " << round;
    // What is discarded in place is new as well.
    ASSERT_EQ(madvise(local.data(), local.size(), MADV_DONTNEED), 0);
    ASSERT_EQ(near->post(wr), 0);
    near->expect(round);
    EXPECT_TRUE(
        std::ranges::all_of(remote.first(kLength), [](std::byte b) { return b == std::byte{0}; }));
  }
}

// Also where an ordinary region of the same memory had it migrated.
TEST_F(OnDemand, BesideAnOrdinaryRegion) {
  connect();
  const Arena there(*far_host);
  auto remote = there.map();
  ibv_mr* plain = ibv_reg_mr(far_host->pd, remote.data(), remote.size(), kAllAccess);
  ibv_mr* on_demand = ibv_reg_mr(far_host->pd, far_host->bytes().data(), 4096, kOnDemandAccess);
  ASSERT_TRUE(plain != nullptr && on_demand != nullptr);
  fill(near_host->bytes(), 4);
  ibv_sge sge = near_host->sge(64);
  ibv_send_wr wr = request(1, IBV_WR_RDMA_WRITE, &sge, *far_host);
  for (const auto& [address, key, at] :
       {std::tuple{there.address(8), plain->rkey, remote.data() + 8},
        std::tuple{there.address(80), there.mr->rkey, remote.data() + 80},
        std::tuple{far_host->address(8), on_demand->rkey, far_host->bytes().data() + 8}}) {
    set_remote(wr, address, key);
    ASSERT_EQ(near->post(wr), 0);
    near->expect(1);
    EXPECT_TRUE(same(near_host->bytes().first(64), {at, 64}));
  }
  EXPECT_EQ(ibv_dereg_mr(plain), 0);
  EXPECT_EQ(ibv_dereg_mr(on_demand), 0);
  remote = there.map();
  set_remote(wr, there.address(8), there.mr->rkey);
  ASSERT_EQ(near->post(wr), 0);
  near->expect(1);
  EXPECT_TRUE(same(near_host->bytes().first(64), remote.subspan(8, 64)));
}

class OnDemandMissing : public OnDemand, public testing::WithParamInterface<ibv_wr_opcode> {};

TEST_P(OnDemandMissing, RemotePage) {
  connect();
  ASSERT_EQ(far->post_receive(9), 0);
  const Arena there(*far_host);
  there.map();
  there.unmap_page(1);
  // The last packet is what takes the receive.
  const bool takes_receive = GetParam() == IBV_WR_RDMA_WRITE_WITH_IMM;
  ibv_sge sge = near_host->sge(takes_receive ? 64 : 2 * Arena::kPage);
  ibv_send_wr wr = request(1, GetParam(), &sge, *far_host);
  set_remote(wr, there.address(takes_receive ? Arena::kPage : 0), there.mr->rkey);
  expect_remote_error(wr);
  far->expect(9, takes_receive ? IBV_WC_LOC_ACCESS_ERR : IBV_WC_WR_FLUSH_ERR);
}

TEST_P(OnDemandMissing, OwnPage) {
  connect();
  ASSERT_EQ(far->post_receive(9), 0);
  const Arena here(*near_host);
  here.map();
  here.unmap_page(1);
  ibv_sge sge = here.sge(2 * Arena::kPage);
  ASSERT_EQ(near->post(request(1, GetParam(), &sge, *far_host)), 0);
  near->expect(1, IBV_WC_LOC_PROT_ERR);
  EXPECT_TRUE(near->reaches(IBV_QPS_ERR));
  EXPECT_EQ(far->state(), IBV_QPS_RTS);
}
INSTANTIATE_TEST_SUITE_P(Operations, OnDemandMissing,
                         testing::Values(IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,
                                         IBV_WR_RDMA_READ),
                         [](const auto& info) { return name_of(info.param); });

TEST_F(OnDemand, ReceiveIntoAMissingPage) {
  connect();
  const Arena there(*far_host);
  there.map();
  there.unmap_page(2);
  ibv_sge into = there.sge(kLength);
  ibv_recv_wr receive{1, nullptr, &into, 1}, *bad = nullptr;
  ASSERT_EQ(ibv_post_recv(far->qp, &receive, &bad), 0);
  ibv_sge from = near_host->sge(kLength);
  ASSERT_EQ(near->post(request(2, IBV_WR_SEND, &from, *far_host)), 0);
  near->expect(2, IBV_WC_REM_OP_ERR);
  far->expect(1, IBV_WC_LOC_PROT_ERR);
  EXPECT_TRUE(near->reaches(IBV_QPS_ERR));
  EXPECT_TRUE(far->reaches(IBV_QPS_ERR));
}

TEST_F(OnDemand, AtomicsAreRefused) {
  for (const ibv_wr_opcode opcode : {IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP}) {
    connect();
    const Arena there(*far_host);
    there.map();
    ibv_sge sge = near_host->sge(8);
    ibv_send_wr wr = request(1, opcode, &sge, *far_host);
    set_remote(wr, there.address(), there.mr->rkey);
    expect_remote_error(wr);
    near.reset();
    far.reset();
  }
}

TEST_F(OnDemand, MemoryThatMayOnlyBeRead) {
  void* page = mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  errno = 0;
  EXPECT_EQ(ibv_reg_mr(near_host->pd, page, 4096, kOnDemandAccess), nullptr);
  EXPECT_EQ(errno, EFAULT);
  ibv_mr* mr = ibv_reg_mr(near_host->pd, page, 4096, IBV_ACCESS_ON_DEMAND | IBV_ACCESS_REMOTE_READ);
  EXPECT_NE(mr, nullptr);
  EXPECT_TRUE(mr == nullptr || ibv_dereg_mr(mr) == 0);
  munmap(page, 4096);
}

TEST_F(OnDemand, ReregistrationChangesBothWays) {
  connect();
  ibv_mr* mr = ibv_reg_mr(far_host->pd, far_host->bytes().data(), 4096, kAllAccess);
  ASSERT_NE(mr, nullptr);
  ibv_sge sge = near_host->sge(64);
  ibv_send_wr wr = request(1, IBV_WR_RDMA_WRITE, &sge, *far_host);
  for (const int access : {kOnDemandAccess, kAllAccess}) {
    ASSERT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, access), 0);
    fill(near_host->bytes(), static_cast<unsigned>(access));
    set_remote(wr, far_host->address(), mr->rkey);
    ASSERT_EQ(near->post(wr), 0);
    near->expect(1);
    EXPECT_TRUE(same(near_host->bytes().first(64), far_host->bytes().first(64)));
  }
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

// ---- advice

class Advice : public OnDemand {
 protected:
  int advise(ibv_sge sge, ibv_advise_mr_advice advice = IBV_ADVISE_MR_ADVICE_PREFETCH,
             uint32_t flags = 0) const {
    return ibv_advise_mr(near_host->pd, advice, flags, &sge, 1);
  }
};

TEST_F(Advice, PrefetchingKeepsTheBytes) {
  const Arena arena(*near_host);
  const auto bytes = arena.map();
  fill(bytes.first(4096), 5);
  for (const auto advice : {IBV_ADVISE_MR_ADVICE_PREFETCH, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE,
                            IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT}) {
    for (const uint32_t flags : {uint32_t{0}, uint32_t{IBV_ADVISE_MR_FLAG_FLUSH}})
      EXPECT_EQ(advise(arena.sge(Arena::kLength), advice, flags), 0) << advice;
  }
  std::byte expected[4096];
  fill(expected, 5);
  EXPECT_TRUE(same(bytes.first(4096), expected));
  EXPECT_EQ(bytes[4096], std::byte{0});
}

TEST_F(Advice, MemoryThatIsNotThere) {
  const Arena arena(*near_host);
  arena.map();
  arena.unmap_page(1);
  EXPECT_EQ(advise(arena.sge(4096)), 0);
  EXPECT_EQ(advise(arena.sge(2 * 4096)), EFAULT);
  EXPECT_EQ(advise(arena.sge(64, Arena::kLength - 63)), EFAULT) << "beyond the region";
}

TEST_F(Advice, KeysThatWontDo) {
  const Arena arena(*near_host), read_only(*near_host, IBV_ACCESS_ON_DEMAND);
  arena.map();
  EXPECT_EQ(advise(near_host->sge(64)), EINVAL) << "not on demand";
  ibv_sge sge = arena.sge(64);
  sge.lkey = kBadKey;
  EXPECT_EQ(advise(sge), ENOENT);
  EXPECT_EQ(advise(read_only.sge(64), IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE), EPERM);
  ibv_pd* other = ibv_alloc_pd(near_host->context);
  ASSERT_NE(other, nullptr);
  sge = arena.sge(64);
  EXPECT_EQ(ibv_advise_mr(other, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1), EPERM);
  EXPECT_EQ(ibv_dealloc_pd(other), 0);
}

TEST_F(Advice, ArgumentsThatWontDo) {
  const Arena arena(*near_host);
  arena.map();
  ibv_sge sge = arena.sge(64);
  EXPECT_EQ(advise(sge, IBV_ADVISE_MR_ADVICE_PREFETCH, 2), EINVAL);
  EXPECT_EQ(advise(sge, static_cast<ibv_advise_mr_advice>(77)), EOPNOTSUPP);
  EXPECT_EQ(ibv_advise_mr(near_host->pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 0), EINVAL);
}

}  // namespace
}  // namespace hostnic::conformance
