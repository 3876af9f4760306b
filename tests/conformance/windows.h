// SPDX-License-Identifier: BSD-3-Clause
// Memory windows: far binds them to its memory and invalidates them, near uses them.
#pragma once

#include <cerrno>
#include <cstring>

#include "tests/conformance/bench.h"

namespace hostnic::conformance {

inline constexpr unsigned int kAllRemote =
    IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
inline constexpr uint64_t kAt = 8192, kBytes = 4096;  // of the region: what is bound

class Windows : public Conformance {
 protected:
  void SetUp() override {
    Conformance::SetUp();
    if (HasFatalFailure()) return;
    mr_ = region(kAllAccess | IBV_ACCESS_MW_BIND);
    ASSERT_NE(mr_, nullptr);
  }
  void TearDown() override {
    far.reset();
    for (ibv_mw* mw : windows_) EXPECT_EQ(ibv_dealloc_mw(mw), 0);
    if (mr_ != nullptr) {
      EXPECT_EQ(ibv_dereg_mr(mr_), 0);
    }
    Conformance::TearDown();
  }
  ibv_mr* region(int access) {
    return ibv_reg_mr(far_host->pd, far_host->bytes().data(), Host::kBytes, access);
  }
  ibv_mw* make(ibv_mw_type type) {
    ibv_mw* mw = ibv_alloc_mw(far_host->pd, type);
    if (mw == nullptr) {
      ADD_FAILURE() << strerror(errno);
    } else {
      windows_.push_back(mw);
    }
    return mw;
  }
  void drop(ibv_mw* mw) {
    std::erase(windows_, mw);
    EXPECT_EQ(ibv_dealloc_mw(mw), 0);
  }
  ibv_mw_bind_info info(uint64_t offset = kAt, uint64_t bytes = kBytes,
                        unsigned int access = kAllRemote) {
    return {mr_, far_host->address(offset), bytes, access};
  }
  // What posting the bind answers. Type 2 windows get another key each time.
  int post_bind(uint64_t wr_id, ibv_mw* mw, const ibv_mw_bind_info& info) {
    if (mw->type == IBV_MW_TYPE_1) {
      ibv_mw_bind bind{wr_id, IBV_SEND_SIGNALED, info};
      return ibv_bind_mw(far->qp, mw, &bind);
    }
    return post_bind_as(wr_id, mw, ibv_inc_rkey(mw->rkey), info);
  }
  int post_bind_as(uint64_t wr_id, ibv_mw* mw, uint32_t key, const ibv_mw_bind_info& info) {
    ibv_send_wr wr = request(wr_id, IBV_WR_BIND_MW, nullptr, *far_host);
    wr.bind_mw = {mw, key, info};
    const int error = far->post(wr);
    if (error == 0) mw->rkey = key;  // the program's to keep (man ibv_post_send)
    return error;
  }
  void bind(ibv_mw* mw, const ibv_mw_bind_info& info) {
    ASSERT_EQ(post_bind(50, mw, info), 0);
    EXPECT_EQ(far->expect(50).opcode, IBV_WC_BIND_MW);
  }
  void bind_fails(ibv_mw* mw, const ibv_mw_bind_info& info) {
    ASSERT_EQ(post_bind(51, mw, info), 0);
    ASSERT_EQ(far->post_receive(52), 0);
    far->expect(51, IBV_WC_MW_BIND_ERR);
    far->expect(52, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(far->state(), IBV_QPS_ERR);
  }
  void reconnect() {
    ASSERT_EQ(near->to_reset(), 0);
    ASSERT_EQ(far->to_reset(), 0);
    connect_endpoints(*near, *far);
  }
  ibv_send_wr with_key(uint64_t wr_id, ibv_wr_opcode opcode, uint32_t key, ibv_sge* sge = nullptr) {
    ibv_send_wr wr = request(wr_id, opcode, sge, *far_host);
    wr.invalidate_rkey = key;
    return wr;
  }
  void access(ibv_wr_opcode opcode, uint32_t key, uint64_t address, uint32_t bytes,
              ibv_wc_status status) {
    ibv_sge sge = near_host->sge(bytes);
    ibv_send_wr wr = request(60, opcode, &sge, *far_host);
    set_remote(wr, address, key);
    ASSERT_EQ(near->post(wr), 0);
    near->expect(60, status);
  }
  void opens(uint32_t key, uint64_t offset = kAt, uint32_t bytes = 64) {
    access(IBV_WR_RDMA_WRITE, key, far_host->address(offset), bytes, IBV_WC_SUCCESS);
  }
  void refuses(uint32_t key, uint64_t offset = kAt, uint32_t bytes = 64) {
    access(IBV_WR_RDMA_WRITE, key, far_host->address(offset), bytes, IBV_WC_REM_ACCESS_ERR);
  }

  ibv_mr* mr_ = nullptr;
  std::vector<ibv_mw*> windows_;
};

}  // namespace hostnic::conformance
