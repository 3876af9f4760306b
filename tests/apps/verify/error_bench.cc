// SPDX-License-Identifier: BSD-3-Clause
#include "tests/apps/verify/error_bench.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>

namespace hostnic::verify {
namespace {

constexpr size_t kBufferBytes = 256u << 10;
constexpr auto kPatience = std::chrono::seconds(20);
constexpr auto kQuiet = std::chrono::milliseconds(50);
constexpr int kAccessAll = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                           IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;
constexpr uint32_t kFirstPsn = 0xfffffe;  // wraps early

using Clock = std::chrono::steady_clock;

void drain_async(const Device& device) {
  pollfd wait{device.context()->async_fd, POLLIN, 0};
  while (::poll(&wait, 1, 0) > 0) {
    ibv_async_event event{};
    if (ibv_get_async_event(device.context(), &event) != 0) return;
    ibv_ack_async_event(&event);
  }
}

// Empty if the step passed or there is none.
std::string run_step(const std::function<void(ErrorBench&)>& step, ErrorBench& bench) {
  if (!step) return {};
  try {
    step(bench);
  } catch (const Failure& failure) {
    return failure.text;
  }
  return {};
}

void set_up(ErrorBench& bench, Channel& channel) {
  StackArena none;
  bench.memory = allocate(MemoryKind::kMalloc, kBufferBytes, true, none);
  std::memset(bench.buffer(), 0x11, kBufferBytes);
  bench.mr = bench.device.register_memory(bench.memory->bytes(), kAccessAll);
  bench.local_only = bench.device.register_memory(bench.memory->bytes(), IBV_ACCESS_LOCAL_WRITE);
  bench.cq = bench.device.create_cq(256, nullptr);
  bench.qp = bench.device.create_qp(bench.cq.get(), bench.cq.get(), bench.caps);
  const PeerBuffer mine{reinterpret_cast<uint64_t>(bench.buffer()), bench.mr->rkey,
                        bench.local_only->rkey, kBufferBytes};
  bench.peer = channel.exchange(mine);
  const QpAddress peer = channel.exchange(bench.device.address_of(bench.qp.get(), kFirstPsn));
  if (!bench.which.connected) return;
  ConnectAttributes how = bench.which.how;
  how.rd_atomic = bench.device.rd_atomic();
  bench.device.to_init(bench.qp.get(), how);
  bench.device.to_ready(bench.qp.get(), how, kFirstPsn, peer);
}

std::string run_case(const ErrorCase& which, const Device& device, Channel& channel,
                     uint32_t side) {
  ErrorBench bench{device, which};
  set_up(bench, channel);
  std::string error = side == 1 ? run_step(which.prepare, bench) : "";
  channel.barrier(1001);
  if (side == 0) error = run_step(which.act, bench);
  channel.barrier(1002);
  if (side == 1 && error.empty()) error = run_step(which.check, bench);
  channel.barrier(1003);
  drain_async(device);
  return error;
}

}  // namespace

void expect_equal(const std::string& what, int64_t expected, int64_t found) {
  if (expected != found)
    throw Failure{fmt::format("{}: expected {}, found {}", what, expected, found)};
}

ibv_sge ErrorBench::sge(uint32_t length, uint64_t offset) const {
  return {reinterpret_cast<uint64_t>(buffer() + offset), length, mr->lkey};
}

ibv_send_wr ErrorBench::request(uint64_t wr_id, ibv_wr_opcode opcode, ibv_sge* sge) const {
  ibv_send_wr wr{};
  wr.wr_id = wr_id;
  wr.opcode = opcode;
  wr.sg_list = sge;
  wr.num_sge = sge == nullptr ? 0 : 1;
  wr.send_flags = IBV_SEND_SIGNALED;
  if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
    wr.wr.atomic.remote_addr = peer.va;
    wr.wr.atomic.rkey = peer.rkey;
    wr.wr.atomic.compare_add = 1;
  } else {
    wr.wr.rdma.remote_addr = peer.va;
    wr.wr.rdma.rkey = peer.rkey;
  }
  return wr;
}

void ErrorBench::post(ibv_send_wr wr) {
  ibv_send_wr* bad = nullptr;
  if (const int error = ibv_post_send(qp.get(), &wr, &bad); error != 0)
    throw Failure{fmt::format("ibv_post_send of wr_id {}: {}", wr.wr_id, strerror(error))};
}

void ErrorBench::post_receive(uint64_t wr_id, ibv_sge* sge) {
  ibv_recv_wr wr{wr_id, nullptr, sge, sge == nullptr ? 0 : 1};
  ibv_recv_wr* bad = nullptr;
  if (const int error = ibv_post_recv(qp.get(), &wr, &bad); error != 0)
    throw Failure{fmt::format("ibv_post_recv of wr_id {}: {}", wr_id, strerror(error))};
}

ibv_wc ErrorBench::next_completion(const std::string& awaited) {
  const auto give_up = Clock::now() + kPatience;
  ibv_wc wc{};
  int n;
  while ((n = ibv_poll_cq(cq.get(), 1, &wc)) == 0) {
    if (Clock::now() > give_up) throw Failure{"no completion of " + awaited};
    std::this_thread::yield();
  }
  if (n < 0) throw Failure{"ibv_poll_cq failed"};
  return wc;
}

ibv_wc ErrorBench::expect(uint64_t wr_id, ibv_wc_status status) {
  const ibv_wc wc =
      next_completion(fmt::format("wr_id {}, expected: {}", wr_id, ibv_wc_status_str(status)));
  if (wc.wr_id != wr_id || wc.status != status)
    throw Failure{fmt::format("completion of wr_id {} with '{}', expected wr_id {} with '{}'",
                              wc.wr_id, ibv_wc_status_str(wc.status), wr_id,
                              ibv_wc_status_str(status))};
  expect_equal("qp_num of a completion", qp->qp_num, wc.qp_num);
  return wc;
}

void ErrorBench::expect_nothing() {
  std::this_thread::sleep_for(kQuiet);
  ibv_wc wc{};
  if (ibv_poll_cq(cq.get(), 1, &wc) != 0)
    throw Failure{fmt::format("unexpected completion of wr_id {} with '{}'", wc.wr_id,
                              ibv_wc_status_str(wc.status))};
}

void ErrorBench::expect_state(ibv_qp_state state) {
  const auto give_up = Clock::now() + kPatience;
  ibv_qp_state found;
  while ((found = state_of(qp.get())) != state && Clock::now() < give_up)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  expect_equal("QP state", state, found);
}

void ErrorBench::expect_async(ibv_event_type type) {
  const auto give_up = Clock::now() + kPatience;
  while (Clock::now() < give_up) {
    pollfd wait{device.context()->async_fd, POLLIN, 0};
    if (::poll(&wait, 1, 100) <= 0) continue;
    ibv_async_event event{};
    if (ibv_get_async_event(device.context(), &event) != 0) continue;
    const bool ours = event.event_type == type && event.element.qp == qp.get();
    ibv_ack_async_event(&event);
    if (ours) return;
  }
  throw Failure{fmt::format("no asynchronous event '{}'", ibv_event_type_str(type))};
}

ErrorTotals run_error_cases(const Device& device, Channel& channel, uint32_t side,
                            Watchdog& watchdog) {
  std::vector<ErrorCase> cases;
  for (auto* make : {protection_cases, retry_cases, queue_cases, state_cases, window_cases})
    for (ErrorCase& one : make()) cases.push_back(std::move(one));
  ErrorTotals totals;
  for (const ErrorCase& one : cases) {
    watchdog.phase("checking errors");
    const std::string error = run_case(one, device, channel, side);
    if (!error.empty()) fmt::print(stderr, "side {}: {}: {}\n", side, one.name, error);
    const auto theirs = channel.exchange(static_cast<uint8_t>(!error.empty()));
    ++(error.empty() && theirs == 0 ? totals.passed : totals.failed);
  }
  return totals;
}

}  // namespace hostnic::verify
