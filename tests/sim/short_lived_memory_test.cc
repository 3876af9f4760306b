// SPDX-License-Identifier: BSD-3-Clause
// Memory that is deregistered the moment its request has completed, while repetitions that turned
// out to be needless still wait in the rings or travel (docs/transport.md rules 16 and 28).
#include <gtest/gtest.h>

#include "tests/sim/pair.h"

namespace hostnic::sim {
namespace {

constexpr uint32_t kMtu = 4096;

// A SEND or WRITE is repeated for want of an ACK, the ACK comes before the NIC has taken the
// repetition, the program deregisters: the queue pair goes on. Another queue pair keeps the slow
// port full, so that repetitions wait in their ring, and the ACKs' delay is tried out in small
// steps.
TEST(ShortLivedMemory, ALateRepetitionThatFindsNoMemoryIsNoError) {
  WorldSettings settings;
  settings.link.gigabits = 0.1;
  settings.link.queue_packets = 4;
  settings.always_icrc = true;  // the payload is read when the packet is built
  for (const SendOp op : {SendOp::kWrite, SendOp::kSend}) {
    for (uint64_t delay_us = 1200; delay_us <= 2000; delay_us += 200) {
      Pair pair(QpSettings{}, settings);
      const auto other_near = pair.world.make_endpoint(0), other_far = pair.world.make_endpoint(1);
      pair.world.connect(*other_near, *other_far);
      const Sge stream = pair.at(0, Pair::kBytes);
      for (uint64_t i = 0; i < 4; ++i)
        other_near->post_send(
            Pair::request(SendOp::kWrite, i, stream, pair.remote.address(), pair.rkey));
      pair.world.impair(0, fmt::format("rx delay {}us qpn {}", delay_us, pair.near->qpn()));
      for (uint64_t i = 0; i < 8; ++i) {
        const uint32_t key = pair.near->host->add_mr(pair.local);
        if (op == SendOp::kSend) {
          ASSERT_EQ(pair.post_receive(i, 0, kMtu), 0);
        }
        ASSERT_EQ(pair.post(op, i, {pair.local.address(), 1000, key}), 0);
        ASSERT_EQ(pair.status_of_one(), WcStatus::kSuccess)
            << "message " << i << ", ACKs " << delay_us << " us late";
        pair.near->host->remove_mr(key);
      }
      ASSERT_EQ(pair.near->state(), QpState::kRts);
    }
  }
}

// A program that takes the memory away before its request has completed has made an error, and is
// told so: it never waits for ever.
TEST(ShortLivedMemory, DeregisteringTooEarlyEndsInAnError) {
  WorldSettings settings;
  settings.always_icrc = true;
  Pair pair(QpSettings{}, settings);
  pair.world.impair(1, "rx drop to 5ms");
  const uint32_t key = pair.near->host->add_mr(pair.local);
  pair.post(SendOp::kWrite, 1, {pair.local.address(), 8 * kMtu, key});
  pair.post(SendOp::kWrite, 2, pair.at(0, 64));
  pair.world.run_for(kMillisecond / 10);
  pair.near->host->remove_mr(key);
  const auto done = pair.sent(2);
  ASSERT_EQ(done.size(), 2u);
  EXPECT_EQ(done[0].status, WcStatus::kLocProtErr);
  EXPECT_EQ(done[1].status, WcStatus::kWrFlushErr);
}

// The network repeats a READ's request so late that the target has deregistered what was read: the
// connection lives on.
TEST(ShortLivedMemory, ALatePullThatFindsNoMemoryIsNoError) {
  Pair pair;
  pair.world.impair(
      1, "rx duplicate first 1 kind read-request; reorder nth 2 delay 5ms kind read-request");
  const uint32_t key = pair.far->host->add_mr(pair.remote);
  pair.post_to(SendOp::kRead, 1, pair.at(0, 2 * kMtu), pair.remote.address(), key);
  ASSERT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  pair.far->host->remove_mr(key);
  // One request is under way when the echo of the refused one arrives, and is not taken for it.
  pair.world.impair(0, "rx delay 3ms kind ack");
  pair.world.run_for(5200 * kMicrosecond);
  EXPECT_EQ(pair.far_counter(Counter::nak_sent), 1u) << "the test is about that";
  pair.post(SendOp::kWrite, 2, pair.at(0, 64));
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  pair.world.run_for(40 * kMillisecond);
  EXPECT_EQ(pair.far->state(), QpState::kRts);
  pair.post(SendOp::kRead, 3, pair.at(0, kMtu));
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  EXPECT_EQ(pair.near->state(), QpState::kRts);
}

}  // namespace
}  // namespace hostnic::sim
