// SPDX-License-Identifier: BSD-3-Clause
// What the two ends must report when a request can't be carried out: keys, bounds, lengths, and
// peers that don't answer.
#include <fmt/format.h>

#include <chrono>
#include <cstring>

#include "tests/apps/verify/error_bench.h"

namespace hostnic::verify {
namespace {

using Clock = std::chrono::steady_clock;
constexpr uint32_t kBadKey = 0x00badbad;

bool is_atomic(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
}

void set_rkey(ibv_send_wr& wr, uint32_t rkey) {
  if (is_atomic(wr.opcode))
    wr.wr.atomic.rkey = rkey;
  else
    wr.wr.rdma.rkey = rkey;
}

// Posts `bad` between good work: 3 WRITEs before it that must succeed, then 3 requests behind it,
// one of them unsignalled, that must be flushed in order; what is posted later, too.
void expect_failure_amid_work(ErrorBench& b, ibv_send_wr bad, ibv_wc_status status) {
  ibv_sge large = b.sge(40000);
  for (uint64_t i = 1; i <= 3; ++i) b.post(b.request(i, IBV_WR_RDMA_WRITE, &large));
  for (uint64_t i = 1; i <= 3; ++i) b.expect(i, IBV_WC_SUCCESS);
  b.post_receive(50, nullptr);
  bad.wr_id = 4;
  ibv_sge small = b.sge(64);
  ibv_send_wr behind[3];
  for (uint64_t i = 0; i < 3; ++i) behind[i] = b.request(5 + i, IBV_WR_RDMA_WRITE, &small);
  behind[1].send_flags = 0;
  bad.next = &behind[0];
  behind[0].next = &behind[1];
  behind[1].next = &behind[2];
  b.post(bad);
  b.expect(4, status);
  // Sends and receives flush each in order; the two orders may interleave.
  uint64_t next_send = 5;
  bool receive_flushed = false;
  for (int i = 0; i < 4; ++i) {
    const ibv_wc wc = b.next_completion("a flushed request");
    expect_equal(fmt::format("status of wr_id {}", wc.wr_id), IBV_WC_WR_FLUSH_ERR, wc.status);
    expect_equal("qp_num of a flushed request", b.qp->qp_num, wc.qp_num);
    if (wc.wr_id == 50 && !receive_flushed)
      receive_flushed = true;
    else
      expect_equal("wr_id of a flushed request", static_cast<int64_t>(next_send++),
                   static_cast<int64_t>(wc.wr_id));
  }
  b.expect_state(IBV_QPS_ERR);
  b.post(b.request(60, IBV_WR_RDMA_WRITE, &small));
  b.expect(60, IBV_WC_WR_FLUSH_ERR);
  b.post_receive(61, nullptr);
  b.expect(61, IBV_WC_WR_FLUSH_ERR);
  b.expect_nothing();
}

struct Keys {
  bool bad_lkey, bad_rkey;
};

ErrorCase key_case(const char* name, ibv_wr_opcode opcode, Keys keys, ibv_wc_status status) {
  ErrorCase c;
  c.name = name;
  c.act = [=](ErrorBench& b) {
    ibv_sge sge = b.sge(8);
    if (keys.bad_lkey) sge.lkey = kBadKey;
    ibv_send_wr wr = b.request(0, opcode, &sge);
    if (keys.bad_rkey) set_rkey(wr, kBadKey);
    expect_failure_amid_work(b, wr, status);
  };
  // A local mistake never leaves the requester; a remote one is told to the responder's program.
  if (status == IBV_WC_LOC_PROT_ERR && opcode != IBV_WR_RDMA_READ)
    c.check = [](ErrorBench& b) { b.expect_state(IBV_QPS_RTS); };
  if (status == IBV_WC_REM_ACCESS_ERR)
    c.check = [](ErrorBench& b) { b.expect_async(IBV_EVENT_QP_ACCESS_ERR); };
  return c;
}

ErrorCase access_case(const char* name, ibv_wr_opcode opcode,
                      const std::function<void(const ErrorBench&, ibv_send_wr&)>& spoil,
                      ibv_wc_status status = IBV_WC_REM_ACCESS_ERR) {
  ErrorCase c;
  c.name = name;
  c.act = [=](ErrorBench& b) {
    ibv_sge sge = b.sge(8);
    ibv_send_wr wr = b.request(0, opcode, &sge);
    spoil(b, wr);
    expect_failure_amid_work(b, wr, status);
  };
  if (status == IBV_WC_REM_INV_REQ_ERR)
    c.check = [](ErrorBench& b) { b.expect_state(IBV_QPS_ERR); };
  return c;
}

void lack_access(const ErrorBench& b, ibv_send_wr& wr) { set_rkey(wr, b.peer.local_only_rkey); }
void go_out_of_bounds(const ErrorBench& b, ibv_send_wr& wr) {
  wr.wr.rdma.remote_addr = b.peer.va + b.peer.length - 7;
}
void misalign(const ErrorBench& b, ibv_send_wr& wr) { wr.wr.atomic.remote_addr = b.peer.va + 4; }

ErrorCase zero_length_case(const char* name, ibv_wr_opcode opcode) {
  ErrorCase c;
  c.name = name;
  c.act = [=](ErrorBench& b) {
    ibv_send_wr wr = b.request(1, opcode, nullptr);
    wr.wr.rdma.rkey = kBadKey;
    wr.wr.rdma.remote_addr = 0x10;
    b.post(wr);
    b.expect(1, IBV_WC_SUCCESS);
    b.expect_state(IBV_QPS_RTS);
  };
  return c;
}

// The receive is too small, or its key is bad.
ErrorCase bad_receive_case(const char* name, bool bad_key, ibv_wc_status requester,
                           ibv_wc_status responder) {
  ErrorCase c;
  c.name = name;
  c.prepare = [=](ErrorBench& b) {
    ibv_sge sge = b.sge(bad_key ? 8192 : 5000);
    if (bad_key) sge.lkey = kBadKey;
    b.post_receive(1, &sge);
    b.post_receive(2, nullptr);
  };
  c.act = [=](ErrorBench& b) {
    ibv_sge sge = b.sge(5001);
    b.post(b.request(1, IBV_WR_SEND, &sge));
    b.expect(1, requester);
    b.expect_state(IBV_QPS_ERR);
  };
  c.check = [=](ErrorBench& b) {
    b.expect(1, responder);
    b.expect(2, IBV_WC_WR_FLUSH_ERR);
    b.expect_state(IBV_QPS_ERR);
  };
  return c;
}

ErrorCase write_imm_bad_rkey_case() {
  ErrorCase c;
  c.name = "WRITE_WITH_IMM with a bad rkey";
  c.prepare = [](ErrorBench& b) { b.post_receive(1, nullptr); };
  c.act = [](ErrorBench& b) {
    ibv_sge sge = b.sge(64);
    ibv_send_wr wr = b.request(1, IBV_WR_RDMA_WRITE_WITH_IMM, &sge);
    wr.wr.rdma.rkey = kBadKey;
    b.post(wr);
    b.expect(1, IBV_WC_REM_ACCESS_ERR);
  };
  c.check = [](ErrorBench& b) {
    const ibv_wc wc = b.next_completion("the receive");
    if (wc.status != IBV_WC_LOC_ACCESS_ERR && wc.status != IBV_WC_LOC_PROT_ERR)
      throw Failure{fmt::format("the receive completed with '{}'", ibv_wc_status_str(wc.status))};
  };
  return c;
}

// Bytes that a failed WRITE must not have placed.
ErrorCase untouched_case() {
  ErrorCase c;
  c.name = "a WRITE that is refused places nothing";
  c.act = [](ErrorBench& b) {
    std::memset(b.buffer(), 0x77, 100000);
    ibv_sge sge = b.sge(100000);
    ibv_send_wr wr = b.request(1, IBV_WR_RDMA_WRITE, &sge);
    wr.wr.rdma.rkey = b.peer.local_only_rkey;
    b.post(wr);
    b.expect(1, IBV_WC_REM_ACCESS_ERR);
  };
  c.check = [](ErrorBench& b) {
    for (size_t i = 0; i < b.memory->bytes().size(); ++i)
      expect_equal(fmt::format("byte {}", i), 0x11, static_cast<int>(b.buffer()[i]));
  };
  return c;
}

ErrorCase rnr_case(uint8_t retries) {
  ErrorCase c;
  c.name = fmt::format("SEND without a receive, rnr_retry {}", retries);
  c.how.rnr_retry = retries;
  c.how.min_rnr_timer = 1;  // 10 us
  c.act = [](ErrorBench& b) {
    ibv_sge sge = b.sge(64);
    b.post(b.request(1, IBV_WR_SEND, &sge));
    b.post(b.request(2, IBV_WR_RDMA_WRITE, &sge));
    b.expect(1, IBV_WC_RNR_RETRY_EXC_ERR);
    b.expect(2, IBV_WC_WR_FLUSH_ERR);
    b.expect_state(IBV_QPS_ERR);
  };
  c.check = [](ErrorBench& b) { b.expect_nothing(); };
  return c;
}

// With rnr_retry 7 the SEND waits until the program posts a receive.
ErrorCase rnr_forever_case() {
  ErrorCase c;
  c.name = "SEND waits for its receive with rnr_retry 7";
  c.how.min_rnr_timer = 1;
  c.act = [](ErrorBench& b) {
    ibv_sge sge = b.sge(64);
    b.post(b.request(1, IBV_WR_SEND, &sge));
    b.expect_nothing();
    b.expect_nothing();
    b.expect_state(IBV_QPS_RTS);
  };
  c.check = [](ErrorBench& b) {
    ibv_sge sge = b.sge(64);
    b.post_receive(1, &sge);
    expect_equal("byte_len", 64, b.expect(1, IBV_WC_SUCCESS).byte_len);
  };
  return c;
}

// The peer's QP is gone or silent: (retry_cnt + 1) timeouts, each 4.096 us * 2^timeout and up to
// four times that, then the error.
ErrorCase silent_peer_case(const char* name, std::function<void(ErrorBench&)> silence) {
  ErrorCase c;
  c.name = name;
  c.how.timeout = 15;
  c.how.retry_cnt = 1;
  c.prepare = std::move(silence);
  c.act = [](ErrorBench& b) {
    constexpr double kLeastMs = 2 * 4.096e-3 * (1 << 15);
    ibv_sge sge = b.sge(20000);
    const auto start = Clock::now();
    b.post(b.request(1, IBV_WR_RDMA_WRITE, &sge));
    b.post(b.request(2, IBV_WR_RDMA_WRITE, &sge));
    b.expect(1, IBV_WC_RETRY_EXC_ERR);
    const double ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
    b.expect(2, IBV_WC_WR_FLUSH_ERR);
    // That it is not later than promised is seen in simulation: time in which this process or the
    // NIC gets no CPU counts for nothing, and on a busy machine that is without bound.
    if (ms < kLeastMs)
      throw Failure{
          fmt::format("RETRY_EXC_ERR after {:.0f} ms, expected {:.0f} at least", ms, kLeastMs)};
  };
  return c;
}

void move_to(ErrorBench& b, ibv_qp_state state) {
  ibv_qp_attr attributes{};
  attributes.qp_state = state;
  if (const int error = ibv_modify_qp(b.qp.get(), &attributes, IBV_QP_STATE); error != 0)
    throw Failure{fmt::format("ibv_modify_qp to {}: {}", static_cast<int>(state), strerror(error))};
}

}  // namespace

std::vector<ErrorCase> protection_cases() {
  constexpr auto kProtection = IBV_WC_LOC_PROT_ERR;
  constexpr auto kAccess = IBV_WC_REM_ACCESS_ERR;
  constexpr auto kInvalid = IBV_WC_REM_INV_REQ_ERR;
  constexpr auto kAdd = IBV_WR_ATOMIC_FETCH_AND_ADD;
  constexpr auto kSwap = IBV_WR_ATOMIC_CMP_AND_SWP;
  std::vector<ErrorCase> cases;
  cases.push_back(key_case("WRITE, bad rkey", IBV_WR_RDMA_WRITE, {false, true}, kAccess));
  cases.push_back(key_case("READ, bad rkey", IBV_WR_RDMA_READ, {false, true}, kAccess));
  cases.push_back(key_case("FETCH_AND_ADD, bad rkey", kAdd, {false, true}, kAccess));
  cases.push_back(key_case("CMP_AND_SWP, bad rkey", kSwap, {false, true}, kAccess));
  cases.push_back(key_case("WRITE, bad lkey", IBV_WR_RDMA_WRITE, {true, false}, kProtection));
  cases.push_back(key_case("SEND, bad lkey", IBV_WR_SEND, {true, false}, kProtection));
  cases.push_back(key_case("READ, bad lkey", IBV_WR_RDMA_READ, {true, false}, kProtection));
  cases.push_back(key_case("WRITE, both keys bad", IBV_WR_RDMA_WRITE, {true, true}, kProtection));
  cases.push_back(key_case("READ, both keys bad", IBV_WR_RDMA_READ, {true, true}, kAccess));
  cases.push_back(access_case("WRITE out of bounds", IBV_WR_RDMA_WRITE, go_out_of_bounds));
  cases.push_back(access_case("READ out of bounds", IBV_WR_RDMA_READ, go_out_of_bounds));
  cases.push_back(access_case("WRITE without the right", IBV_WR_RDMA_WRITE, lack_access));
  cases.push_back(access_case("READ without the right", IBV_WR_RDMA_READ, lack_access));
  cases.push_back(access_case("atomic without the right", kAdd, lack_access));
  cases.push_back(access_case("misaligned FETCH_AND_ADD", kAdd, misalign, kInvalid));
  cases.push_back(access_case("misaligned CMP_AND_SWP", kSwap, misalign, kInvalid));
  cases.push_back(zero_length_case("empty WRITE, bad rkey", IBV_WR_RDMA_WRITE));
  cases.push_back(zero_length_case("empty READ, bad rkey", IBV_WR_RDMA_READ));
  cases.push_back(bad_receive_case("receive too small", false, kInvalid, IBV_WC_LOC_LEN_ERR));
  cases.push_back(
      bad_receive_case("receive with a bad lkey", true, IBV_WC_REM_OP_ERR, kProtection));
  cases.push_back(write_imm_bad_rkey_case());
  cases.push_back(untouched_case());
  return cases;
}

std::vector<ErrorCase> retry_cases() {
  std::vector<ErrorCase> cases;
  for (uint8_t retries = 0; retries <= 6; ++retries) cases.push_back(rnr_case(retries));
  cases.push_back(rnr_forever_case());
  cases.push_back(silent_peer_case("peer QP destroyed", [](ErrorBench& b) { b.qp.reset(); }));
  cases.push_back(
      silent_peer_case("peer QP in RESET", [](ErrorBench& b) { move_to(b, IBV_QPS_RESET); }));
  return cases;
}

}  // namespace hostnic::verify
