// SPDX-License-Identifier: BSD-3-Clause
// Memory that has just been written and registered, more than can be copied in the time: what
// arrives at once finds it as what arrives later, by every transport, and nothing else of it
// changes.
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "tests/conformance/bench.h"

namespace hostnic::conformance {
namespace {

constexpr size_t kLength = 64 << 20, kMessage = 1000;
constexpr std::byte kBefore{0x21}, kSent{0x55};

class LargeMemory : public Conformance, public testing::WithParamInterface<ibv_qp_type> {
 protected:
  void SetUp() override {
    Conformance::SetUp();
    if (HasFatalFailure()) return;
    options_.type = GetParam();
    memory_ = static_cast<std::byte*>(
        mmap(nullptr, kLength, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(memory_, MAP_FAILED);
    std::memset(memory_, static_cast<int>(kBefore), kLength);
    std::ranges::fill(near_host->bytes(), kSent);
  }
  void TearDown() override {
    EXPECT_EQ(mr_ == nullptr ? 0 : ibv_dereg_mr(mr_), 0);
    munmap(memory_, kLength);
    Conformance::TearDown();
  }
  bool is_datagram() const { return GetParam() == IBV_QPT_UD; }
  void register_memory() {
    mr_ = ibv_reg_mr(far_host->pd, memory_, kLength, kAllAccess);
    ASSERT_NE(mr_, nullptr) << strerror(errno);
  }
  void send_to(size_t offset) {
    ibv_sge place{address_of(offset), kMessage + kGrhBytes, mr_->lkey};
    ibv_recv_wr receive{}, *bad = nullptr;
    receive.wr_id = 1;
    receive.sg_list = &place;
    receive.num_sge = 1;
    ASSERT_EQ(ibv_post_recv(far->qp, &receive, &bad), 0);
    ibv_sge sge = near_host->sge(kMessage);
    ibv_send_wr wr = request(2, IBV_WR_SEND, &sge, *far_host);
    ibv_ah* ah = nullptr;
    if (is_datagram()) {
      ibv_ah_attr attr{};
      attr.is_global = 1;
      attr.port_num = 1;
      attr.grh.dgid = far_host->gid();
      ah = wr.wr.ud.ah = ibv_create_ah(near_host->pd, &attr);
      ASSERT_NE(ah, nullptr);
      wr.wr.ud.remote_qpn = far->qp->qp_num;
      wr.wr.ud.remote_qkey = kQkey;
    }
    ASSERT_EQ(near->post(wr), 0);
    near->expect(2);
    far->expect(1);
    EXPECT_EQ(ah == nullptr ? 0 : ibv_destroy_ah(ah), 0);
    expect_sent(offset + (is_datagram() ? kGrhBytes : 0));
  }
  void write_to(size_t offset) {
    ibv_sge sge = near_host->sge(kMessage);
    ibv_send_wr wr = request(3, IBV_WR_RDMA_WRITE, &sge, *far_host);
    set_remote(wr, address_of(offset), mr_->rkey);
    ASSERT_EQ(near->post(wr), 0);
    near->expect(3);
    const auto end = std::chrono::steady_clock::now() + kPatience;
    const volatile std::byte* last = memory_ + offset + kMessage - 1;
    while (*last != kSent && std::chrono::steady_clock::now() < end) {
    }
    expect_sent(offset);
  }
  void expect_sent(size_t offset) {
    const std::byte* at = memory_ + offset;
    EXPECT_EQ(std::count(at, at + kMessage, kSent), ptrdiff_t{kMessage}) << "at " << offset;
    EXPECT_EQ(at[kMessage], kBefore);
  }
  // Nothing else has changed.
  void expect_the_rest(size_t sent_bytes) {
    EXPECT_EQ(std::count(memory_, memory_ + kLength, kBefore),
              static_cast<ptrdiff_t>(kLength - sent_bytes));
  }

  uint64_t address_of(size_t offset) const { return reinterpret_cast<uint64_t>(memory_) + offset; }
  ConnectOptions options_;
  std::byte* memory_ = nullptr;
  ibv_mr* mr_ = nullptr;
};

TEST_P(LargeMemory, IsThereForWhatArrivesAtOnce) {
  for (const bool registered_first : {false, true}) {
    SCOPED_TRACE(registered_first);
    if (registered_first) register_memory();
    connect(options_);
    if (!registered_first) register_memory();
    size_t sent = 0;
    for (const size_t offset : {size_t{33} << 20, size_t{7} << 20, (size_t{12} << 20) - 500}) {
      send_to(offset);
      sent += kMessage + (is_datagram() ? kGrhBytes : 0);
      if (is_datagram()) continue;
      write_to(offset + (20 << 20));
      sent += kMessage;
    }
    expect_the_rest(sent);
    EXPECT_EQ(ibv_dereg_mr(mr_), 0);
    mr_ = nullptr;
    expect_the_rest(sent);
    std::memset(memory_, static_cast<int>(kBefore), kLength);
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, LargeMemory,
                         testing::Values(IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD), [](const auto& info) {
                           return info.param == IBV_QPT_RC   ? "Rc"
                                  : info.param == IBV_QPT_UC ? "Uc"
                                                             : "Ud";
                         });

}  // namespace
}  // namespace hostnic::conformance
