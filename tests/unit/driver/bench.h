// SPDX-License-Identifier: BSD-3-Clause
// One queue pair of the driver half on a fake NIC, for each path MTU.
#pragma once

#include "tests/unit/driver/fake_nic.h"

namespace hostnic::driver {

inline constexpr uint32_t kPeerWindow = 1024;
inline constexpr uint32_t kMtus[] = {256, 512, 1024, 2048, 4096};

class DriverBench : public testing::TestWithParam<uint32_t> {
 protected:
  void connect(const DriverSettings& settings = {}, uint32_t sq_psn = 0xfffff0) {
    mtu_ = GetParam();
    driver_ = std::make_unique<Driver>(nic_, nic_.channel().memory(), settings);
    ASSERT_EQ(driver_->error(), 0);
    cq_ = driver_->create_cq(64, nullptr, nullptr);
    qp_ = make_qp(sq_psn);
    next_psn_ = Psn(sq_psn);
  }
  // In RTS.
  Qp* make_qp(uint32_t sq_psn) {
    QpInit init;
    init.send_cq = init.recv_cq = cq_.get();
    init.caps = {.max_send_wr = 16,
                 .max_recv_wr = 1,
                 .max_send_sge = kMaxSge,
                 .max_recv_sge = 1,
                 .max_inline_bytes = kMaxInlineBytes};
    auto made = driver_->create_qp(init);
    EXPECT_TRUE(made);
    if (!made) return nullptr;
    QpAttr attr;
    attr.path_mtu_bytes = mtu_;
    attr.dest_qpn = 0x10003;
    attr.dest_ip = Ipv4Address{0x0a000002};
    attr.sq_psn = sq_psn;
    attr.max_rd_atomic = attr.max_dest_rd_atomic = 16;
    attr.timeout = 14;
    attr.retry_cnt = 7;
    const auto move = [&](QpState state, uint32_t mask) {
      attr.state = state;
      EXPECT_EQ(driver_->modify_qp(*made, attr, mask | kQpState), 0);
    };
    move(QpState::kInit, kQpPkeyIndex | kQpPort | kQpAccessFlags);
    move(QpState::kRtr,
         kQpAv | kQpPathMtu | kQpDestQpn | kQpRqPsn | kQpMaxDestRdAtomic | kQpMinRnrTimer);
    move(QpState::kRts, kQpTimeout | kQpRetryCnt | kQpRnrRetry | kQpSqPsn | kQpMaxQpRdAtomic);
    return *made;
  }
  ~DriverBench() override {
    if (qp_ != nullptr) {
      EXPECT_EQ(driver_->destroy_qp(qp_), 0);
    }
  }
  void progress() {
    std::lock_guard lock(driver_->mutex());
    driver_->progress(now_ns_ += 1000);
  }
  int post(const SendRequest& request) { return driver_->post_send(qp_, request, now_ns_); }
  int post_far_more_than_a_window() {
    const Sge sge{0, 1u << 26, 1};
    SendRequest request;
    request.op = SendOp::kWrite;
    request.sges = {&sge, 1};
    return post(request);
  }
  void acknowledge_all() {
    nic_.transmitted(next_psn_);
    nic_.acknowledge(next_psn_, kPeerWindow);
    progress();
  }
  // What is posted after this waits in the driver until acknowledge_all().
  void fill_window() {
    const Sge sge{0, kInitialWindow * mtu_, 1};
    SendRequest request;
    request.op = SendOp::kWrite;
    request.sges = {&sge, 1};
    ASSERT_EQ(post(request), 0);
    for (int turn = 0; turn < 16; ++turn) {
      for (const Chunk& chunk : nic_.sends()) next_psn_ += chunk.d.length_bytes / mtu_;
      nic_.transmitted(next_psn_);
      progress();
    }
    ASSERT_EQ(next_psn_, Psn(0xfffff0) + kInitialWindow);
  }
  bool completed(uint64_t wr_id) {
    Completion completion;
    if (cq_->poll(&completion, 1) != 1) return false;
    EXPECT_EQ(completion.wr_id, wr_id);
    EXPECT_EQ(completion.status, WcStatus::kSuccess);
    return true;
  }

  FakeNic nic_;
  std::unique_ptr<Driver> driver_;
  std::unique_ptr<Cq> cq_;
  Qp* qp_ = nullptr;
  uint32_t mtu_ = 0;
  TimeNs now_ns_ = 1'000'000;
  Psn next_psn_;
  uint32_t next_recv_sn_ = 0;
};

inline SendRequest request_of(SendOp op, std::span<const Sge> sges) {
  SendRequest request;
  request.op = op;
  request.sges = sges;
  request.remote_va = 0x7000'0000'0123;
  request.rkey = 0xabc123;
  request.imm_data = 0x11223344;
  return request;
}

}  // namespace hostnic::driver
