// SPDX-License-Identifier: BSD-3-Clause
// Memory windows of side 1, through which side 0 writes until it may not any more.
#include <cerrno>
#include <cstring>

#include "tests/apps/verify/error_bench.h"

namespace hostnic::verify {
namespace {

constexpr uint64_t kWindowOffset = 8192, kWindowBytes = 16384;
constexpr uint64_t kReceiveOffset = 65536;
constexpr unsigned int kRights = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

void make_window(ErrorBench& b, ibv_mw_type type) {
  b.mw.reset(ibv_alloc_mw(b.device.pd(), type));
  expect_equal("ibv_alloc_mw succeeds", 1, b.mw != nullptr);
}

ibv_mw_bind_info binding(const ErrorBench& b, ibv_mr* mr) {
  return {mr, reinterpret_cast<uint64_t>(b.buffer()) + kWindowOffset, kWindowBytes, kRights};
}

ibv_send_wr type2_bind(const ErrorBench& b, uint64_t wr_id, uint32_t rkey, ibv_mr* mr) {
  ibv_send_wr wr{};
  wr.wr_id = wr_id;
  wr.opcode = IBV_WR_BIND_MW;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.bind_mw = {b.mw.get(), rkey, binding(b, mr)};
  return wr;
}

// The key lies at the start of the buffer, where the peer reads it.
void publish_key(ErrorBench& b, uint32_t rkey) { std::memcpy(b.buffer(), &rkey, sizeof rkey); }

uint32_t fetch_key(ErrorBench& b) {
  ibv_sge sge = b.sge(sizeof(uint32_t));
  b.post(b.request(1, IBV_WR_RDMA_READ, &sge));
  b.expect(1, IBV_WC_SUCCESS);
  uint32_t rkey = 0;
  std::memcpy(&rkey, b.buffer(), sizeof rkey);
  return rkey;
}

void write_through(ErrorBench& b, uint64_t wr_id, uint32_t rkey, uint64_t offset, uint32_t length,
                   ibv_wc_status status) {
  ibv_sge sge = b.sge(length);
  ibv_send_wr wr = b.request(wr_id, IBV_WR_RDMA_WRITE, &sge);
  wr.wr.rdma.rkey = rkey;
  wr.wr.rdma.remote_addr = b.peer.va + offset;
  b.post(wr);
  b.expect(wr_id, status);
}

ErrorCase invalidated_case() {
  ErrorCase c;
  c.name = "type 2 window: works, then SEND_WITH_INV ends it";
  c.prepare = [](ErrorBench& b) {
    make_window(b, IBV_MW_TYPE_2);
    const uint32_t rkey = ibv_inc_rkey(b.mw->rkey);
    b.post(type2_bind(b, 1, rkey, b.mr.get()));
    expect_equal("opcode of the bind", IBV_WC_BIND_MW, b.expect(1, IBV_WC_SUCCESS).opcode);
    expect_equal("ibv_dereg_mr with a window bound", EBUSY, ibv_dereg_mr(b.mr.get()));
    publish_key(b, rkey);
    ibv_sge sge = b.sge(4096, kReceiveOffset);
    b.post_receive(2, &sge);
  };
  c.act = [](ErrorBench& b) {
    const uint32_t rkey = fetch_key(b);
    write_through(b, 2, rkey, kWindowOffset, kWindowBytes, IBV_WC_SUCCESS);
    ibv_sge sge = b.sge(100);
    ibv_send_wr wr = b.request(3, IBV_WR_SEND_WITH_INV, &sge);
    wr.invalidate_rkey = rkey;
    b.post(wr);
    b.expect(3, IBV_WC_SUCCESS);
    write_through(b, 4, rkey, kWindowOffset, 8, IBV_WC_REM_ACCESS_ERR);
  };
  c.check = [](ErrorBench& b) {
    const ibv_wc wc = b.expect(2, IBV_WC_SUCCESS);
    expect_equal("wc_flags", IBV_WC_WITH_INV, wc.wc_flags);
    uint32_t rkey = 0;
    std::memcpy(&rkey, b.buffer(), sizeof rkey);
    expect_equal("invalidated_rkey", rkey, wc.invalidated_rkey);
    b.expect_async(IBV_EVENT_QP_ACCESS_ERR);
  };
  return c;
}

ErrorCase type1_case() {
  ErrorCase c;
  c.name = "type 1 window: its bounds count, not the region's";
  c.prepare = [](ErrorBench& b) {
    make_window(b, IBV_MW_TYPE_1);
    ibv_mw_bind bind{1, IBV_SEND_SIGNALED, binding(b, b.mr.get())};
    const uint32_t before = b.mw->rkey;
    expect_equal("ibv_bind_mw", 0, ibv_bind_mw(b.qp.get(), b.mw.get(), &bind));
    expect_equal("another rkey", 1, b.mw->rkey != before);
    b.expect(1, IBV_WC_SUCCESS);
    publish_key(b, b.mw->rkey);
  };
  c.act = [](ErrorBench& b) {
    const uint32_t rkey = fetch_key(b);
    write_through(b, 2, rkey, kWindowOffset, kWindowBytes, IBV_WC_SUCCESS);
    write_through(b, 3, rkey, kWindowOffset + 1, kWindowBytes, IBV_WC_REM_ACCESS_ERR);
  };
  c.check = [](ErrorBench& b) { b.expect_async(IBV_EVENT_QP_ACCESS_ERR); };
  return c;
}

ErrorCase local_invalidation_case() {
  ErrorCase c;
  c.name = "LOCAL_INV: the region is free, the window can be bound anew";
  c.act = [](ErrorBench& b) {
    make_window(b, IBV_MW_TYPE_2);
    ibv_send_wr invalidate{};
    invalidate.wr_id = 2;
    invalidate.opcode = IBV_WR_LOCAL_INV;
    invalidate.send_flags = IBV_SEND_SIGNALED;
    invalidate.invalidate_rkey = b.mw->rkey;
    for (int turn = 0; turn < 3; ++turn) {
      b.post(type2_bind(b, 1, b.mw->rkey, b.mr.get()));
      b.post(invalidate);
      b.expect(1, IBV_WC_SUCCESS);
      expect_equal("opcode", IBV_WC_LOCAL_INV, b.expect(2, IBV_WC_SUCCESS).opcode);
    }
    expect_equal("ibv_dereg_mr", 0, ibv_dereg_mr(b.mr.release()));
  };
  return c;
}

ErrorCase bad_bind_case() {
  ErrorCase c;
  c.name = "bind to a region without the MW_BIND right: MW_BIND_ERR";
  c.act = [](ErrorBench& b) {
    make_window(b, IBV_MW_TYPE_2);
    b.post(type2_bind(b, 1, b.mw->rkey, b.local_only.get()));
    b.expect(1, IBV_WC_MW_BIND_ERR);
    b.expect_state(IBV_QPS_ERR);
  };
  return c;
}

}  // namespace

std::vector<ErrorCase> window_cases() {
  return {invalidated_case(), type1_case(), local_invalidation_case(), bad_bind_case()};
}

}  // namespace hostnic::verify
