// SPDX-License-Identifier: BSD-3-Clause
// Two hosts, one queue pair on each, some memory: the bench of the directed tests.
#pragma once

#include <gtest/gtest.h>

#include "dataplane/simulation/world.h"

namespace hostnic::sim {

// Runs until `count` completions have come out of a queue (all there are, if fewer come).
inline std::vector<driver::Completion> take_completions(World& world, Endpoint& end, driver::Cq& cq,
                                                        size_t count, uint64_t limit_ns) {
  std::vector<driver::Completion> all;
  world.run_until(
      [&] {
        for (auto& c : end.poll(cq)) all.push_back(c);
        return all.size() >= count;
      },
      limit_ns, /*idle_is_a_bug=*/false);
  return all;
}

class Pair {
 public:
  // With `cut` the hosts don't hear each other while their queue pairs are connected, nor then.
  explicit Pair(const QpSettings& qp = {}, const WorldSettings& settings = {},
                uint32_t remote_access = kAllAccess, bool cut = false)
      : local(kBytes),
        remote(kBytes),
        world(settings),
        near(world.make_endpoint(0, qp)),
        far(world.make_endpoint(settings.hosts > 1 ? 1 : 0, qp)),
        lkey(near->host->add_mr(local)),
        rkey(far->host->add_mr(remote, remote_access)) {
    if (cut) world.cut(1, true);
    world.connect(*near, *far);
    for (size_t i = 0; i < kBytes; ++i) local.data()[i] = static_cast<uint8_t>(i * 7 + i / 251);
  }
  ~Pair() {
    if (world.failed() || testing::Test::HasFailure()) ADD_FAILURE() << world.report();
  }

  static constexpr size_t kBytes = 1024 * 1024;
  static constexpr uint64_t kLimitNs = 2 * kSecond;

  Sge at(uint64_t offset, uint32_t bytes) const { return {local.address(offset), bytes, lkey}; }

  int post(SendOp op, uint64_t wr_id, Sge sge, uint64_t remote_offset = 0, bool signalled = true) {
    return post_to(op, wr_id, sge, remote.address(remote_offset), rkey, signalled);
  }
  int post_to(SendOp op, uint64_t wr_id, Sge sge, uint64_t va, uint32_t key,
              bool signalled = true) {
    return near->post_send(request(op, wr_id, sge, va, key, signalled));
  }
  // For what post_to() can't say. `sge` must outlive it.
  static driver::SendRequest request(SendOp op, uint64_t wr_id, const Sge& sge, uint64_t va,
                                     uint32_t key, bool signalled = true) {
    driver::SendRequest request;
    request.op = op;
    request.wr_id = wr_id;
    request.signalled = signalled;
    if (sge.length_bytes != 0 || sge.lkey != 0) request.sges = {&sge, 1};
    request.remote_va = va;
    request.rkey = key;
    request.imm_data = 0x1234;
    request.compare_add = 1;
    request.swap = 99;
    return request;
  }
  int post_receive(uint64_t wr_id, uint64_t offset, uint32_t bytes) {
    return post_receive_with(wr_id, {remote.address(offset), bytes, rkey});
  }
  int post_receive_with(uint64_t wr_id, Sge sge) {
    return far->post_recv({.wr_id = wr_id, .sges = {&sge, 1}});
  }

  std::vector<driver::Completion> take(Endpoint& end, driver::Cq& cq, size_t count,
                                       uint64_t limit_ns = kLimitNs) {
    return take_completions(world, end, cq, count, limit_ns);
  }
  std::vector<driver::Completion> sent(size_t count, uint64_t limit_ns = kLimitNs) {
    return take(*near, *near->send_cq, count, limit_ns);
  }
  std::vector<driver::Completion> received(size_t count, uint64_t limit_ns = kLimitNs) {
    return take(*far, *far->recv_cq, count, limit_ns);
  }
  driver::WcStatus status_of_one(uint64_t limit_ns = kLimitNs) {
    const auto done = sent(1, limit_ns);
    EXPECT_EQ(done.size(), 1u);
    return done.empty() ? driver::WcStatus::kGeneralErr : done[0].status;
  }
  uint64_t near_counter(Counter c) { return near->host->counter(c); }
  uint64_t far_counter(Counter c) { return far->host->counter(c); }

  Memory local, remote;  // which the NICs may write to until they end
  World world;
  std::unique_ptr<Endpoint> near, far;
  uint32_t lkey, rkey;
};

using driver::WcStatus;

inline bool equal(const Memory& a, uint64_t a_offset, const Memory& b, uint64_t b_offset,
                  size_t bytes) {
  return std::equal(a.data() + a_offset, a.data() + a_offset + bytes, b.data() + b_offset);
}

}  // namespace hostnic::sim
