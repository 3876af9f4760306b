// SPDX-License-Identifier: BSD-3-Clause
// A queue pair of a driver whose NIC is a FakeNic, connected to a peer that does not exist: what
// the tests of requesters have in common.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "tests/unit/driver/fake_nic.h"

namespace hostnic::driver {

class ConnectedQp : public testing::Test {
 protected:
  static constexpr uint32_t kMtu = 1024;
  static constexpr uint32_t kFirstPsn = 0xfffffa;

  // What differs between them.
  struct Kind {
    QpType type = QpType::kRc;
    Transport spoken = Transport::kHostnic;  // of RC
    uint8_t rnr_retry = 7;
    void (*on_event)(void*) = nullptr;  // of the completion queue, with the fixture
  };
  explicit ConnectedQp(const Kind& kind) {
    nic_.spoken = kind.spoken;
    driver_ = std::make_unique<Driver>(nic_, nic_.channel().memory(), DriverSettings{});
    cq_ = driver_->create_cq(64, kind.on_event, this);
    QpInit init;
    init.type = kind.type;
    init.send_cq = init.recv_cq = cq_.get();
    init.caps = {.max_send_wr = 64,
                 .max_recv_wr = 1,
                 .max_send_sge = 1,
                 .max_recv_sge = 1,
                 .max_inline_bytes = 0};
    init.signal_all = true;
    qp_ = driver_->create_qp(init).value_or(nullptr);
    QpAttr attr;
    attr.path_mtu_bytes = kMtu;
    attr.dest_qpn = 0x10003;
    attr.dest_ip = Ipv4Address{0x0a000002};
    attr.sq_psn = kFirstPsn;
    attr.max_rd_atomic = 2;
    attr.timeout = 14;
    attr.retry_cnt = 7;
    attr.rnr_retry = kind.rnr_retry;
    const bool is_reliable = kind.type == QpType::kRc;
    move(attr, QpState::kInit, kQpPkeyIndex | kQpPort | kQpAccessFlags);
    move(attr, QpState::kRtr,
         kQpAv | kQpPathMtu | kQpDestQpn | kQpRqPsn |
             (is_reliable ? kQpMaxDestRdAtomic | kQpMinRnrTimer : 0));
    move(attr, QpState::kRts,
         kQpSqPsn | (is_reliable ? kQpTimeout | kQpRetryCnt | kQpRnrRetry | kQpMaxQpRdAtomic : 0));
  }
  ~ConnectedQp() override { EXPECT_EQ(driver_->destroy_qp(qp_), 0); }

  static Psn at(uint32_t offset) { return Psn(kFirstPsn) + offset; }
  void move(QpAttr& attr, QpState state, uint32_t mask) {
    attr.state = state;
    EXPECT_EQ(driver_->modify_qp(qp_, attr, mask | kQpState), 0);
  }
  // Posts a request of so many packets, each somewhere else.
  [[nodiscard]] int post_request(SendOp op, uint64_t wr_id, uint32_t packets) {
    const Sge sge{0x10000, is_atomic(op) ? 8 : packets * kMtu, 1};
    SendRequest request;
    request.op = op;
    request.wr_id = wr_id;
    request.sges = {&sge, 1};
    request.remote_va = wr_id << 32;
    return driver_->post_send(qp_, request, now_ns_);
  }
  // Time goes by.
  void progress(uint64_t later_ns = 1000) {
    now_ns_ += later_ns;
    std::lock_guard lock(driver_->mutex());
    driver_->progress(now_ns_);
  }
  std::vector<Completion> completions() {
    std::vector<Completion> all(64);
    all.resize(static_cast<size_t>(cq_->poll(all.data(), 64)));
    return all;
  }

  FakeNic nic_;
  std::unique_ptr<Driver> driver_;
  std::unique_ptr<Cq> cq_;
  Qp* qp_ = nullptr;
  TimeNs now_ns_ = 1'000'000;
};

}  // namespace hostnic::driver
