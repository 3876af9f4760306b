// SPDX-License-Identifier: BSD-3-Clause
// Windows and atomics behind a READ of the same bytes, or by the same key, without a fence: the
// READ has what was there before, and by a key that was good then, though its first answers are
// lost (docs/transport.md rule 18). Other requests: Rule18_WhatFollowsWaitsForTheAnswer.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <tuple>

#include "tests/sim/pair.h"

namespace hostnic::sim {
namespace {

using driver::SendRequest;

constexpr uint32_t kMtu = 4096, kBytes = 20 * kMtu, kLanding = 64 * kMtu, kRounds = 20;
constexpr uint32_t kBindable = kAllAccess | kAccessMwBind;
constexpr uint32_t kAllRemote = kAccessRemoteWrite | kAccessRemoteRead | kAccessRemoteAtomic;

// The transport is the standard's, and answers are lost.
class BehindReads : public testing::TestWithParam<std::tuple<bool, bool>> {
 protected:
  static WorldSettings settings(uint32_t hosts = 2) {
    WorldSettings settings;
    settings.hosts = hosts;
    if (std::get<0>(GetParam())) settings.transport = Transport::kRoce;
    return settings;
  }
  static bool loses() { return std::get<1>(GetParam()); }
  static void lose(Pair& pair) {
    if (loses()) pair.world.impair(0, "rx drop first 3 kind read-response");
  }

  static uint32_t make_window(Endpoint& end, WindowType type) {
    const auto key = end.host->driver().create_window(1, type);
    EXPECT_TRUE(key.has_value());
    return key.value_or(0);
  }
  static SendRequest bind_request(uint64_t wr_id, uint32_t key, const Memory& memory,
                                  uint32_t mr_key) {
    SendRequest request;
    request.op = SendOp::kBindWindow;
    request.wr_id = wr_id;
    request.signalled = true;
    request.rkey = key;
    request.remote_va = memory.address();
    request.binding = {Pair::kBytes, mr_key, kAllRemote};
    return request;
  }
  static SendRequest invalidate_request(uint64_t wr_id, uint32_t key) {
    SendRequest request;
    request.op = SendOp::kLocalInvalidate;
    request.wr_id = wr_id;
    request.signalled = true;
    request.rkey = key;
    return request;
  }
  static void bind(Pair& pair, Endpoint& end, uint32_t key, const Memory& memory, uint32_t mr_key) {
    ASSERT_EQ(end.post_send(bind_request(1, key, memory, mr_key)), 0);
    const auto done = pair.take(end, *end.send_cq, 1);
    ASSERT_EQ(done.size(), 1u);
    ASSERT_EQ(done[0].status, WcStatus::kSuccess);
  }
  static uint32_t next_key(uint32_t key) {
    return (key & ~kWindowUserMask) | ((key + 1) & kWindowUserMask);
  }

  // What a READ finds, and what is written behind it.
  static void fill(Pair& pair) {
    std::memset(pair.remote.data(), 1, kBytes);
    std::memset(pair.local.data(), 2, 4 * kMtu);
    std::memset(pair.local.data() + kLanding, 0, kBytes);
  }
  static void expect_done(Pair& pair, size_t count) {
    const auto done = pair.sent(count);
    ASSERT_EQ(done.size(), count);
    for (size_t i = 0; i < count; ++i) {
      EXPECT_EQ(done[i].wr_id, i + 1);
      EXPECT_EQ(done[i].status, WcStatus::kSuccess) << "of request " << i + 1;
    }
    const auto* const read = pair.local.data() + kLanding;
    EXPECT_EQ(std::count(read, read + kBytes, 1), kBytes) << "old bytes of a READ";
  }
};

TEST_P(BehindReads, Rule18_ASwapWaitsForTheAnswer) {
  Pair pair({}, settings());
  constexpr uint64_t kElsewhere = 0x5000;
  const auto add = [&pair](uint64_t iova) {
    return pair.far->host->add_mr(pair.remote, kAllAccess, Reach::kMapped, 1, iova);
  };
  pair.rkey = add(pair.remote.address());
  const std::array<uint32_t, 3> keys = {pair.rkey, add(pair.remote.address()), add(kElsewhere)};
  lose(pair);
  for (uint32_t i = 0; i < kRounds; ++i) {
    fill(pair);
    pair.post(SendOp::kRead, 1, pair.at(kLanding, kBytes));
    const Sge old = pair.at(8 * kMtu, 8);
    const uint64_t to = i % 3 == 2 ? kElsewhere : pair.remote.address();
    SendRequest swap = Pair::request(SendOp::kCompareSwap, 2, old, to, keys[i % 3]);
    swap.compare_add = 0x0101010101010101;
    swap.swap = 0x0202020202020202;
    ASSERT_EQ(pair.near->post_send(swap), 0);
    expect_done(pair, 2);
    EXPECT_EQ(pair.remote.data()[0], 2) << "swapped in round " << i;
  }
}

// The message takes the key away that the READ before it names, and lands where it reads.
TEST_P(BehindReads, Rule18_ASendThatInvalidatesWaitsForTheAnswer) {
  Pair pair({}, settings(), kBindable);
  uint32_t key = make_window(*pair.far, WindowType::k2);
  lose(pair);
  for (uint32_t i = 0; i < kRounds; ++i) {
    ASSERT_NO_FATAL_FAILURE(bind(pair, *pair.far, key, pair.remote, pair.rkey));
    fill(pair);
    ASSERT_EQ(pair.post_receive(7, 0, 4 * kMtu), 0);
    pair.post_to(SendOp::kRead, 1, pair.at(kLanding, kBytes), pair.remote.address(), key);
    const Sge message = pair.at(0, 4 * kMtu);
    SendRequest request = Pair::request(SendOp::kSendInv, 2, message, 0, 0);
    request.imm_data = key;
    ASSERT_EQ(pair.near->post_send(request), 0);
    expect_done(pair, 2);
    const auto received = pair.received(1);
    ASSERT_EQ(received.size(), 1u);
    EXPECT_EQ(received[0].flags, uint32_t{driver::kWcWithInv});
    EXPECT_EQ(pair.remote.data()[0], 2);
    EXPECT_FALSE(pair.world.mrs().has_windows(pair.rkey, 2)) << "the key is good still";
    key = next_key(key);
  }
}

// The owner of a window is its user, too: a queue pair that is connected to itself.
TEST_P(BehindReads, Rule18_OnesOwnWindowsWaitForTheAnswer) {
  for (const WindowType type : {WindowType::k1, WindowType::k2}) {
    Pair pair({}, settings(1), kBindable);
    pair.world.reset_to_init(*pair.near);
    pair.world.to_rtr(*pair.near, *pair.near);
    pair.world.to_rts(*pair.near);
    uint32_t key = make_window(*pair.near, type);
    lose(pair);
    for (uint32_t i = 0; i < kRounds; ++i) {
      ASSERT_NO_FATAL_FAILURE(bind(pair, *pair.near, key, pair.remote, pair.rkey));
      fill(pair);
      pair.post_to(SendOp::kRead, 1, pair.at(kLanding, kBytes), pair.remote.address(), key);
      const uint32_t next = next_key(key);
      ASSERT_EQ(pair.near->post_send(type == WindowType::k1
                                         ? bind_request(2, next, pair.remote, pair.rkey)
                                         : invalidate_request(2, key)),
                0);
      pair.post(SendOp::kWrite, 3, pair.at(0, 4 * kMtu));
      expect_done(pair, 3);
      EXPECT_EQ(pair.remote.data()[0], 2);
      key = next_key(next);
    }
  }
}

std::string name_of(const testing::TestParamInfo<BehindReads::ParamType>& info) {
  return std::string(std::get<0>(info.param) ? "Roce" : "Hostnic") +
         (std::get<1>(info.param) ? "WithLoss" : "");
}

INSTANTIATE_TEST_SUITE_P(Transports, BehindReads,
                         testing::Combine(testing::Bool(), testing::Bool()), name_of);

}  // namespace
}  // namespace hostnic::sim
