// SPDX-License-Identifier: BSD-3-Clause
// docs/transport.md rules 2, 3 and 4: what a queue pair hands over, under which numbers, and in
// which order.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "protocol/wire/arp.h"
#include "tests/sim/pair.h"
#include "tests/sim/recorder.h"

namespace hostnic::sim {
namespace {

using wire::Opcode;
constexpr uint32_t kMtu = 4096;

struct Numbered {
  Opcode opcode;
  uint32_t psn;
  bool operator==(const Numbered&) const = default;
};

TEST(Rules, Rule2_PsnsAndReceiveNumbersFollowTheQueue) {
  QpSettings qp;
  qp.psn = 0xfffffc;
  Pair pair(qp);
  Recorder sent(pair.world);
  for (uint64_t i = 0; i < 3; ++i) pair.post_receive(i, i * 3 * kMtu, 3 * kMtu);
  pair.post(SendOp::kSend, 1, pair.at(0, 2 * kMtu));
  pair.post(SendOp::kWrite, 2, pair.at(0, 2 * kMtu + 1), 512 * 1024);
  pair.post(SendOp::kRead, 3, pair.at(256 * 1024, 3 * kMtu), 512 * 1024);
  pair.post(SendOp::kWriteImm, 4, pair.at(0, 8), 512 * 1024);
  pair.post(SendOp::kFetchAdd, 5, pair.at(8, 8), 600 * 1024);
  pair.post(SendOp::kSendImm, 6, pair.at(0, 0));
  ASSERT_EQ(pair.sent(6).size(), 6u);
  std::vector<Numbered> numbered;
  std::vector<uint32_t> receive_numbers;
  for (const SentPacket& p : sent.from(0, [](const auto& h) { return h.opcode != Opcode::kAck; })) {
    numbered.push_back({p.headers.opcode, p.headers.psn.value()});
    if (p.headers.opcode == Opcode::kWriteImm) receive_numbers.push_back(p.headers.recv_sn);
    if (p.headers.opcode == Opcode::kSend || p.headers.opcode == Opcode::kSendImm)
      receive_numbers.push_back(p.headers.reth.key);
  }
  // A READ takes one PSN, however long its answer.
  const std::vector<Numbered> expected = {
      {Opcode::kSend, 0xfffffc},      {Opcode::kSend, 0xfffffd}, {Opcode::kWriteOnly, 0xfffffe},
      {Opcode::kWriteOnly, 0xffffff}, {Opcode::kWriteOnly, 0},   {Opcode::kReadRequest, 1},
      {Opcode::kWriteImm, 2},         {Opcode::kFetchAdd, 3},    {Opcode::kSendImm, 4}};
  EXPECT_EQ(numbered, expected);
  // Rule 3: what consumes no receive takes no number.
  EXPECT_EQ(receive_numbers, (std::vector<uint32_t>{0, 0, 1, 2}));
}

TEST(Rules, Rule2_AFenceHoldsBackAllThatFollows) {
  Pair pair;
  Recorder sent(pair.world);
  pair.world.impair(0, "rx drop kind read-response to 5ms");
  pair.post(SendOp::kWrite, 1, pair.at(0, 100));
  pair.post(SendOp::kRead, 2, pair.at(kMtu, 100));
  const Sge sge = pair.at(0, 100);
  auto fenced = Pair::request(SendOp::kWrite, 3, sge, pair.remote.address(), pair.rkey);
  fenced.fence = true;
  ASSERT_EQ(pair.near->post_send(fenced), 0);
  pair.post(SendOp::kWrite, 4, pair.at(0, 100));
  pair.world.run_for(2 * kMillisecond);
  EXPECT_EQ(sent.of(0, Opcode::kWriteOnly).size(), 1u) << "what was posted before the READ";
  const auto done = pair.sent(4);
  ASSERT_EQ(done.size(), 4u);
  for (uint64_t i = 0; i < 4; ++i) EXPECT_EQ(done[i].wr_id, i + 1);
}

TEST(Rules, Rule2_TooManyReadsHoldBackAllThatFollows) {
  QpSettings qp;
  qp.max_rd_atomic = 2;
  Pair pair(qp);
  Recorder sent(pair.world);
  pair.world.impair(0, "rx drop kind read-response to 5ms");
  for (uint64_t i = 0; i < 4; ++i) pair.post(SendOp::kRead, i, pair.at(i * kMtu, 100));
  pair.post(SendOp::kWrite, 4, pair.at(0, 100));
  pair.world.run_for(2 * kMillisecond);
  std::set<uint32_t> reads;
  for (const SentPacket& p : sent.of(0, Opcode::kReadRequest)) reads.insert(p.headers.psn.value());
  EXPECT_EQ(reads, (std::set<uint32_t>{0, 1}));
  EXPECT_TRUE(sent.of(0, Opcode::kWriteOnly).empty());
  EXPECT_EQ(pair.sent(5).size(), 5u);
}

TEST(Rules, Rule2_MissingCreditHoldsBackAllThatFollows) {
  Pair pair;
  pair.post_receive(0, 0, kMtu);
  pair.post(SendOp::kSend, 0, pair.at(0, 100));
  ASSERT_EQ(pair.sent(1).size(), 1u);
  Recorder sent(pair.world);
  // One receive has been posted and is used up: the next SEND goes as the probe, nothing else.
  pair.post(SendOp::kSend, 1, pair.at(0, 100));
  pair.post(SendOp::kSend, 2, pair.at(0, 100));
  pair.post(SendOp::kWrite, 3, pair.at(0, 100));
  pair.world.run_for(20 * kMicrosecond);
  EXPECT_EQ(sent.of(0, Opcode::kSend).size(), 1u);
  EXPECT_TRUE(sent.of(0, Opcode::kWriteOnly).empty());
  for (uint64_t i = 1; i <= 2; ++i) pair.post_receive(i, 0, kMtu);
  EXPECT_EQ(pair.sent(3).size(), 3u);
}

TEST(Rules, Rule2_TheNicNeverWaitsForAQp) {
  // On Ethernet, and the first QP's peer does not answer ARP: its packets are lost, the other's go.
  WorldSettings settings;
  settings.hosts = 3;
  settings.link.is_wire = false;
  Pair pair({}, settings);
  auto lost = pair.world.make_endpoint(0), dead = pair.world.make_endpoint(2);
  pair.world.cut(2, true);
  pair.world.connect(*lost, *dead);
  const Sge sge = pair.at(0, 100);
  ASSERT_EQ(lost->post_send(Pair::request(SendOp::kWrite, 1, sge, 0, 1)), 0);
  pair.post(SendOp::kWrite, 2, pair.at(0, 100));
  EXPECT_EQ(pair.sent(1, 20 * kMillisecond).size(), 1u);
  EXPECT_GE(pair.near_counter(Counter::tx_unresolved), 1u);
}

// Somebody answers in a peer's name, once: what is repeated makes the NIC ask again, long before
// the minute after which it would anyway. The connection is still there.
TEST(Rules, Rule2_AFalseAddressIsFoundOutWithinASecond) {
  WorldSettings settings;
  settings.link.is_wire = false;
  Pair pair({}, settings);
  pair.post(SendOp::kWrite, 1, pair.at(0, 100));
  ASSERT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  constexpr wire::MacAddress kNobody = {0x02, 0, 0, 0, 0, 77};
  const wire::Arp question = wire::make_arp_request({}, address_of(0), address_of(1));
  rte_mbuf* lie = rte_pktmbuf_alloc(pair.world.pools().data);
  ASSERT_NE(lie, nullptr);
  auto* frame = rte_pktmbuf_mtod(lie, std::byte*);
  lie->data_len = static_cast<uint16_t>(
      wire::build_arp(wire::make_arp_reply(kNobody, question), {frame, wire::kArpFrameBytes}));
  lie->pkt_len = lie->data_len;
  pair.world.wire().inject(0, lie);
  pair.world.run_for(10 * kMicrosecond);
  const TimeNs start = pair.world.now();
  pair.post(SendOp::kWrite, 2, pair.at(0, 100));
  EXPECT_EQ(pair.status_of_one(5 * kSecond), WcStatus::kSuccess);
  EXPECT_GE(pair.world.now() - start, kMillisecond) << "nobody believed it: no test";
  EXPECT_LE(pair.world.now() - start, 1'200 * kMillisecond);
}

// A connection whose ends did not hear each other when they went to RTR, and do now: one of them
// will ask again.
std::unique_ptr<Pair> connected_unheard() {
  WorldSettings settings;
  settings.mtu_bytes = 1024;
  settings.link.is_wire = false;
  auto pair = std::make_unique<Pair>(QpSettings{}, settings, kAllAccess, /*cut=*/true);
  pair->world.cut(1, false);
  return pair;
}

// The first packets of a message are lost while ARP asks, the others go: with their own payload.
TEST(Rules, Rule2_WhatFindsNoAddressIsLostWithItsPayload) {
  constexpr uint32_t kPackets = 128;
  const auto first_pair = connected_unheard();
  Pair& first = *first_pair;
  const TimeNs start = first.world.now();
  ASSERT_TRUE(first.world.run_until(
      [&] {
        const NicView nic = first.near->host->nic().views().nic();
        return nic.has_neighbours && nic.neighbours_unanswered == 0;
      },
      2 * kSecond, /*idle_is_a_bug=*/false));
  const uint64_t answered_ns = first.world.now() - start;
  uint32_t partly = 0;
  // One of them makes the answer come amid the message.
  for (uint64_t before_ns = 0; before_ns <= 12'000; before_ns += 500) {
    const auto connected = connected_unheard();
    Pair& pair = *connected;
    pair.world.run_for(answered_ns - before_ns);
    const std::array<Sge, 3> sges = {pair.at(0, 5'001), pair.at(5'001, 20'000),
                                     pair.at(25'001, kPackets * 1024 - 25'001)};
    driver::SendRequest request =
        Pair::request(SendOp::kWrite, 1, sges[0], pair.remote.address(0), pair.rkey);
    request.sges = sges;
    ASSERT_EQ(pair.near->post_send(request), 0);
    ASSERT_EQ(pair.status_of_one(), WcStatus::kSuccess);
    EXPECT_TRUE(equal(pair.local, 0, pair.remote, 0, kPackets * 1024)) << before_ns;
    const uint64_t lost = pair.near_counter(Counter::tx_unresolved);
    partly += lost != 0 && lost < kPackets;
  }
  EXPECT_NE(partly, 0u);
}

TEST(Rules, Rule3_SlotsAreNumbersModuloAPowerOfTwo) {
  QpSettings qp;
  qp.caps.max_recv_wr = 5;  // 8 slots
  Pair pair(qp);
  std::memset(pair.remote.data(), 0, Pair::kBytes);
  uint64_t posted = 0;
  for (uint64_t i = 0; i < 40; ++i) {
    while (posted < i + 5) {
      ASSERT_EQ(pair.post_receive(posted, posted * kMtu, kMtu), 0);
      ++posted;
    }
    // WRITE_IMM consumes a receive and leaves its buffer alone.
    const bool write = i % 3 == 2;
    pair.post(write ? SendOp::kWriteImm : SendOp::kSend, i, pair.at(i * 64, 64), 512 * 1024);
    const auto received = pair.received(1);
    ASSERT_EQ(received.size(), 1u) << i;
    EXPECT_EQ(received[0].wr_id, i);
    EXPECT_EQ(equal(pair.local, i * 64, pair.remote, i * kMtu, 64), !write) << i;
  }
}

TEST(Rules, Rule4_RetransmissionsOvertakeWhatIsQueued) {
  WorldSettings settings;
  settings.link.gigabits = 1;
  settings.link.queue_packets = 8;
  Pair pair({}, settings);
  Recorder sent(pair.world);
  pair.world.impair(1, "rx drop nth 2 kind write");
  pair.post(SendOp::kWrite, 1, pair.at(0, 256 * kMtu));
  ASSERT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  uint32_t before = 0;
  for (const SentPacket& p : sent.of(0, Opcode::kWriteOnly)) {
    if (p.headers.attempt != 0) break;
    ++before;
  }
  // Some ten until the loss is known, and what is built already. Not the 256 KiB that the driver
  // has handed over, and its successors.
  EXPECT_LT(before, 80u);
  EXPECT_EQ(sent.of(0, Opcode::kWriteOnly).size(), 257u);
}

TEST(Rules, Rule4_QueuePairsTakeTurns) {
  WorldSettings settings;
  settings.link.gigabits = 10;
  settings.link.queue_packets = 8;
  Pair pair({}, settings);
  struct Other {
    std::unique_ptr<Endpoint> near, far;
  };
  std::vector<Other> others;
  for (int i = 0; i < 3; ++i) {
    others.push_back({pair.world.make_endpoint(0), pair.world.make_endpoint(1)});
    pair.world.connect(*others.back().near, *others.back().far);
  }
  Recorder sent(pair.world);
  const Sge sge = pair.at(0, Pair::kBytes);
  for (uint64_t i = 0; i < 4; ++i) pair.post(SendOp::kWrite, i, sge);
  for (const Other& other : others) {
    for (uint64_t i = 0; i < 4; ++i) {
      const auto request = Pair::request(SendOp::kWrite, i, sge, pair.remote.address(), pair.rkey);
      ASSERT_EQ(other.near->post_send(request), 0);
    }
  }
  pair.world.run_for(8 * kMillisecond);  // some 2,400 of 4,096 packets
  std::map<uint32_t, uint32_t> packets;
  for (const SentPacket& p : sent.of(0, Opcode::kWriteOnly)) ++packets[raw(p.headers.dest_qpn)];
  ASSERT_EQ(packets.size(), 4u);
  const auto [least, most] =
      std::minmax_element(packets.begin(), packets.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; });
  EXPECT_GT(least->second, most->second / 2);
}

// Who waits for room in the ring gets it in the order of waiting, whoever has just posted.
TEST(Rules, Rule4_RoomInTheRingGoesRound) {
  constexpr uint32_t kQps = 24, kDepth = 128;  // three times the ring
  Pair pair;
  struct Queue {
    std::unique_ptr<Endpoint> near, far;
    uint32_t posted = 0, completed = 0;
  };
  QpSettings settings;
  settings.caps.max_send_wr = kDepth;
  std::vector<Queue> queues(kQps);
  for (Queue& q : queues) {
    q.near = pair.world.make_endpoint(0, settings);
    q.far = pair.world.make_endpoint(1);
    pair.world.connect(*q.near, *q.far);
  }
  const Sge sge = pair.at(0, 64);
  const auto request = Pair::request(SendOp::kWrite, 0, sge, pair.remote.address(), pair.rkey);
  uint32_t completed = 0;
  const auto post_and_take = [&] {
    for (Queue& q : queues) {
      for (; q.posted - q.completed < kDepth; ++q.posted) EXPECT_EQ(q.near->post_send(request), 0);
      const auto taken = static_cast<uint32_t>(q.near->poll(*q.near->send_cq).size());
      q.completed += taken;
      completed += taken;
    }
    return completed >= kQps * kDepth * 10;
  };
  ASSERT_TRUE(pair.world.run_until(post_and_take, 20 * kSecond));
  const auto [least, most] =
      std::minmax_element(queues.begin(), queues.end(),
                          [](const Queue& a, const Queue& b) { return a.completed < b.completed; });
  EXPECT_LE(most->completed - least->completed, kDepth) << "and more the longer it went, once";
}

}  // namespace
}  // namespace hostnic::sim
