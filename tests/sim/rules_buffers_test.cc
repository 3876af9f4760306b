// SPDX-License-Identifier: BSD-3-Clause
// docs/transport.md rules 31, 32 and 33: which memory packets refer to, until when, and that nobody
// waits for anybody.
#include <gtest/gtest.h>

#include <cstring>
#include <stdexcept>

#include "dataplane/nic/packet/packet_release.h"
#include "tests/sim/pair.h"
#include "tests/sim/recorder.h"

namespace hostnic::sim {
namespace {

using wire::Opcode;
constexpr uint32_t kMtu = 4096;

// What the far side has at `offset`: all bytes alike, or -1.
int far_byte(const Pair& pair, uint64_t offset, uint32_t bytes) {
  const uint8_t* at = pair.remote.data() + offset;
  for (uint32_t i = 1; i < bytes; ++i)
    if (at[i] != at[0]) return -1;
  return at[0];
}

WorldSettings slow_wire(bool icrc) {
  WorldSettings settings;
  settings.link.delay_ns = 100 * kMicrosecond;
  settings.always_icrc = icrc;
  return settings;
}

// A frame that nobody understands.
rte_mbuf* anything(const Pair& pair) {
  rte_mbuf* packet = rte_pktmbuf_alloc(pair.world.pools().data);
  if (packet == nullptr) throw std::runtime_error("no packet buffer");
  packet->data_len = 60;
  packet->pkt_len = 60;
  std::memset(rte_pktmbuf_mtod(packet, void*), 0, 60);
  return packet;
}

TEST(Rules, Rule31_RegionsCountThePacketsThatReferToThem) {
  Pair pair({}, slow_wire(false));
  ASSERT_EQ(pair.post_receive(1, 512 * 1024, kMtu), 0);
  pair.post(SendOp::kWrite, 1, pair.at(0, 3 * kMtu));
  pair.post(SendOp::kSend, 2, pair.at(0, 1000));
  pair.world.run_for(50 * kMicrosecond);
  EXPECT_EQ(pair.world.mrs().find(pair.lkey)->mbufs_out.load(), 4u);
  EXPECT_EQ(pair.sent(2).size(), 2u);
  EXPECT_EQ(pair.world.mrs().find(pair.lkey)->mbufs_out.load(), 0u);
}

TEST(Rules, Rule31_PacketsWithIcrcAreCopies) {
  Pair pair({}, slow_wire(true));
  std::memset(pair.local.data(), 1, kMtu);
  pair.post(SendOp::kWrite, 1, pair.at(0, 100));
  pair.world.run_for(50 * kMicrosecond);
  EXPECT_FALSE(pair.world.mrs().referenced(pair.lkey));
  std::memset(pair.local.data(), 2, kMtu);
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  EXPECT_EQ(far_byte(pair, 0, 100), 1);
  EXPECT_EQ(pair.far_counter(Counter::rx_icrc_error), 0u);
}

// What a READ says is read when its answers are placed: as good as any moment before it completes.
TEST(Rules, Rule31_ReadAnswersAreExternalAndAreReadWhenPlaced) {
  for (const uint32_t bytes : {100u, 5 * kMtu + 100}) {
    Pair pair({}, slow_wire(false));
    std::memset(pair.remote.data(), 1, bytes);
    pair.post(SendOp::kRead, 1, pair.at(0, bytes));
    pair.world.run_for(150 * kMicrosecond);  // the request has arrived, the answer has not
    ASSERT_EQ(pair.far_counter(Counter::read_requests_served), 1u);
    EXPECT_TRUE(pair.world.mrs().referenced(pair.rkey));
    std::memset(pair.remote.data(), 2, bytes);
    EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
    EXPECT_EQ(pair.local.data()[0], 2);
    EXPECT_EQ(pair.local.data()[bytes - 1], 2);
    EXPECT_FALSE(pair.world.mrs().referenced(pair.rkey));
  }
}

TEST(Rules, Rule31_ReadAnswersWithIcrcAreCopies) {
  Pair pair({}, slow_wire(true));
  std::memset(pair.remote.data(), 1, 3 * kMtu);
  pair.post(SendOp::kRead, 1, pair.at(0, 3 * kMtu));
  pair.world.run_for(150 * kMicrosecond);
  ASSERT_EQ(pair.far_counter(Counter::read_requests_served), 1u);
  EXPECT_FALSE(pair.world.mrs().referenced(pair.rkey));
  std::memset(pair.remote.data(), 2, 3 * kMtu);
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  EXPECT_EQ(pair.local.data()[0], 1);
  EXPECT_EQ(pair.local.data()[3 * kMtu - 1], 1);
}

// A program that reads a lock, then data, then the lock again must not see an older lock than data.
TEST(Rules, Rule18_ReadsAreReadInOrderWhereverTheirMemoryLies) {
  Pair pair({}, slow_wire(false));
  Memory lock(kMtu);
  const uint32_t lock_key = pair.far->host->add_mr(lock, kAllAccess, Reach::kMemFd);
  std::memset(lock.data(), 1, 8);
  std::memset(pair.remote.data(), 1, 4 * kMtu);
  pair.post(SendOp::kRead, 1, pair.at(0, 4 * kMtu));
  pair.post_to(SendOp::kRead, 2, pair.at(8 * kMtu, 8), lock.address(0), lock_key);
  pair.world.run_for(150 * kMicrosecond);
  ASSERT_EQ(pair.far_counter(Counter::read_requests_served), 2u);
  std::memset(lock.data(), 2, 8);
  std::memset(pair.remote.data(), 2, 4 * kMtu);
  EXPECT_EQ(pair.sent(2).size(), 2u);
  EXPECT_EQ(pair.local.data()[3 * kMtu], 2);
  EXPECT_EQ(pair.local.data()[8 * kMtu], 2);
}

// The second of two answers is held back, and so copied, while the first is still on its way.
TEST(Rules, Rule18_ReadsAreReadInOrderWhereOneAnswerIsHeldBack) {
  Pair pair({}, slow_wire(false));
  pair.world.impair(1, "tx delay 100us nth 2 kind read-response");
  const auto set = [&](int value) {
    std::memset(pair.remote.data(), value, 64);
    std::memset(pair.remote.data() + 8 * kMtu, value, 64);
  };
  set(1);
  pair.post(SendOp::kRead, 1, pair.at(0, 64));
  pair.post(SendOp::kRead, 2, pair.at(8 * kMtu, 64), 8 * kMtu);
  pair.world.run_for(150 * kMicrosecond);
  ASSERT_EQ(pair.far_counter(Counter::read_requests_served), 2u);
  set(2);
  EXPECT_EQ(pair.sent(2).size(), 2u);
  EXPECT_LE(pair.local.data()[0], pair.local.data()[8 * kMtu]) << "the first is the younger one";
}

// A lock that protects what a READ reads may be released by an atomic behind it.
TEST(Rules, Rule18_AnAtomicExecutesAfterTheReadsBeforeIt) {
  for (const bool icrc : {false, true}) {
    Pair pair({}, slow_wire(icrc));
    std::memset(pair.remote.data(), 0, 8 * kMtu);
    pair.post(SendOp::kRead, 1, pair.at(0, 8 * kMtu));
    pair.post(SendOp::kFetchAdd, 2, pair.at(8 * kMtu, 8), 7 * kMtu);
    const auto done = pair.sent(2);
    ASSERT_EQ(done.size(), 2u);
    EXPECT_EQ(done[1].status, WcStatus::kSuccess);
    EXPECT_EQ(pair.local.data()[7 * kMtu], 0) << "read after the addition";
    EXPECT_EQ(pair.remote.data()[7 * kMtu], 1);
    EXPECT_EQ(pair.near_counter(Counter::retransmitted_packets), 0u);
  }
}

// The requester does not hold back an atomic on other bytes, so that the responder keeps the order:
// whoever sees the lock released may change what the READ reads.
TEST(Rules, Rule18_WhatAnAtomicReleasesIsReadBefore) {
  for (const bool icrc : {false, true}) {
    Pair pair({}, slow_wire(icrc));
    std::memset(pair.remote.data(), 1, 8 * kMtu);
    std::memset(pair.remote.data() + 9 * kMtu, 0, 8);
    pair.post(SendOp::kRead, 1, pair.at(0, 8 * kMtu));
    pair.post(SendOp::kFetchAdd, 2, pair.at(8 * kMtu, 8), 9 * kMtu);
    ASSERT_TRUE(pair.world.run_until([&] { return pair.remote.data()[9 * kMtu] == 1; },
                                     Pair::kLimitNs, /*idle_is_a_bug=*/false));
    std::memset(pair.remote.data(), 2, 8 * kMtu);
    ASSERT_EQ(pair.sent(2).size(), 2u);
    for (uint32_t i = 0; i < 8 * kMtu; ++i) ASSERT_EQ(pair.local.data()[i], 1) << "byte " << i;
  }
}

TEST(Rules, Rule31_DelayedPacketsAreCopies) {
  for (const bool receive_side : {true, false}) {
    Pair pair;
    std::memset(pair.local.data(), 1, kMtu);
    pair.world.impair(receive_side ? 1 : 0, receive_side ? "rx delay 100us" : "tx delay 100us");
    pair.post(SendOp::kWrite, 1, pair.at(0, 100));
    pair.world.run_for(50 * kMicrosecond);
    EXPECT_FALSE(pair.world.mrs().referenced(pair.lkey));
    std::memset(pair.local.data(), 2, kMtu);
    EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
    EXPECT_EQ(far_byte(pair, 0, 100), 1);
  }
}

TEST(Rules, Rule31_BufferedPacketsAreCopies) {
  Pair pair;
  std::memset(pair.local.data(), 1, 2 * kMtu);
  pair.world.impair(1, "rx drop nth 1 kind write");
  pair.world.impair(0, "rx delay 100us kind ack");
  pair.post(SendOp::kWrite, 1, pair.at(0, 2 * kMtu));
  pair.world.run_for(50 * kMicrosecond);
  ASSERT_EQ(pair.far_counter(Counter::reorder_buffered), 1u);
  EXPECT_FALSE(pair.world.mrs().referenced(pair.lkey));
  std::memset(pair.local.data(), 2, 2 * kMtu);
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  EXPECT_EQ(far_byte(pair, 0, kMtu), 2) << "sent again";
  EXPECT_EQ(far_byte(pair, kMtu, kMtu), 1) << "held since the first time";
}

TEST(Rules, Rule31_CorruptionSparesTheOwnersMemory) {
  Pair pair;
  std::memset(pair.local.data(), 1, kMtu);
  pair.world.impair(1, "rx corrupt first 2 kind write");
  pair.post(SendOp::kWrite, 1, pair.at(0, kMtu));
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  EXPECT_GE(pair.far_counter(Counter::rx_icrc_error), 1u);
  for (uint32_t i = 0; i < kMtu; ++i) ASSERT_EQ(pair.local.data()[i], 1) << i;
  EXPECT_EQ(far_byte(pair, 0, kMtu), 1);
}

// Three ways to end a queue pair while three packets of a WRITE are on their way.
enum class End : uint8_t { kErr, kReset, kDestroy };
class EndOfQp : public testing::TestWithParam<End> {
 protected:
  static int end(Pair& pair, Endpoint& end) {
    switch (GetParam()) {
      case End::kErr:
        return pair.world.modify_state(end, QpState::kErr);
      case End::kReset:
        return pair.world.modify_state(end, QpState::kReset);
      default:
        return end.host->driver().destroy_qp(end.qp);
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Rules, EndOfQp, testing::Values(End::kErr, End::kReset, End::kDestroy),
                         [](const auto& info) {
                           return info.param == End::kErr     ? "Err"
                                  : info.param == End::kReset ? "Reset"
                                                              : "Destroy";
                         });

TEST_P(EndOfQp, Rule32_AnsweredWhenNoPacketRefersToTheMemory) {
  Pair pair({}, slow_wire(false));
  std::memset(pair.local.data(), 1, 3 * kMtu);
  pair.post(SendOp::kWrite, 1, pair.at(0, 3 * kMtu));
  pair.world.run_for(20 * kMicrosecond);
  ASSERT_TRUE(pair.world.mrs().referenced(pair.lkey));
  const TimeNs start_ns = pair.world.now();
  ASSERT_EQ(end(pair, *pair.near), 0);
  EXPECT_FALSE(pair.world.mrs().referenced(pair.lkey));
  EXPECT_LT(pair.world.now() - start_ns, kMillisecond);
  // The memory is the program's again.
  std::memset(pair.local.data(), 2, 3 * kMtu);
  pair.world.run_for(kMillisecond);
  EXPECT_EQ(far_byte(pair, 0, 3 * kMtu), 1);
}

TEST_P(EndOfQp, Rule32_AnsweredWhenTheRingsHoldNothingOfIt) {
  // Its WRITE lies in the send ring behind another QP's, which wait for the port.
  WorldSettings settings;
  settings.link.gigabits = 1;
  settings.link.queue_packets = 8;
  Pair pair({}, settings);
  auto near = pair.world.make_endpoint(0), far = pair.world.make_endpoint(1);
  pair.world.connect(*near, *far);
  pair.post(SendOp::kWrite, 1, pair.at(0, 64 * kMtu));
  const Sge sge = pair.at(8, kMtu);
  ASSERT_EQ(near->post_send(
                Pair::request(SendOp::kWrite, 2, sge, pair.remote.address(512 * 1024), pair.rkey)),
            0);
  pair.world.run_for(20 * kMicrosecond);
  ASSERT_EQ(pair.remote.data()[512 * 1024], 0);
  ASSERT_EQ(end(pair, *near), 0);
  // It is sent before the queue pair ends (rule 28).
  EXPECT_EQ(pair.near_counter(Counter::descriptors_discarded), 0u);
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess) << "the other QP goes on";
  EXPECT_TRUE(equal(pair.local, 8, pair.remote, 512 * 1024, kMtu));
}

TEST_P(EndOfQp, Rule32_APortThatTakesNothingHangsNobody) {
  WorldSettings settings;
  settings.link.queue_packets = 8;
  Pair pair({}, settings);
  for (int i = 0; i < 8; ++i) pair.world.wire().inject(1, anything(pair), 60 * kSecond);
  pair.post(SendOp::kWrite, 1, pair.at(0, 3 * kMtu));
  pair.world.run_for(20 * kMicrosecond);
  const TimeNs start_ns = pair.world.now();
  ASSERT_EQ(end(pair, *pair.near), 0);
  EXPECT_TRUE(pair.world.mrs().referenced(pair.lkey)) << "what deregistration waits for";
  EXPECT_LE(pair.world.now() - start_ns, kSecond);
}

TEST(Rules, Rule32_FlushCompletionsComeAfterThat) {
  WorldSettings settings;
  settings.link.gigabits = 0.1;
  Pair pair({}, settings);
  Recorder sent(pair.world);
  std::memset(pair.local.data(), 1, 32 * kMtu);
  // The first one is refused while the second one's packets queue on the slow link.
  pair.post_to(SendOp::kWrite, 1, pair.at(0, 64), pair.remote.address(), 0x7777777);
  pair.post(SendOp::kWrite, 2, pair.at(0, 32 * kMtu));
  const auto refused = pair.sent(1);
  ASSERT_EQ(refused.size(), 1u);
  EXPECT_EQ(refused[0].status, WcStatus::kRemAccessErr);
  EXPECT_TRUE(pair.world.mrs().referenced(pair.lkey)) << "they are still on their way";
  const auto flushed = pair.sent(1);
  ASSERT_EQ(flushed.size(), 1u);
  EXPECT_EQ(flushed[0].status, WcStatus::kWrFlushErr);
  EXPECT_FALSE(pair.world.mrs().referenced(pair.lkey));
}

TEST(Rules, Rule33_AFullPortLeavesPacketsWhereTheyAre) {
  WorldSettings settings;
  settings.link.queue_packets = 1;
  settings.link.gigabits = 10;
  Pair pair({}, settings);
  Recorder sent(pair.world);
  pair.post(SendOp::kWrite, 1, pair.at(0, 256 * kMtu));
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  EXPECT_TRUE(equal(pair.local, 0, pair.remote, 0, 256 * kMtu));
  const auto packets = sent.of(0, Opcode::kWriteOnly);
  ASSERT_EQ(packets.size(), 256u) << "nothing was lost, nothing sent twice";
  for (uint32_t i = 0; i < 256; ++i) EXPECT_EQ(packets[i].headers.psn, Psn(i));
}

TEST(Rules, Rule33_AFullPortHoldsUpNoOtherPeer) {
  WorldSettings settings;
  settings.hosts = 3;
  settings.link.queue_packets = 8;
  Pair pair({}, settings);
  // Host 2's queue is full of our own packets, which nobody takes before 20 ms have passed.
  auto near = pair.world.make_endpoint(0), stuck = pair.world.make_endpoint(2);
  pair.world.connect(*near, *stuck);
  for (int i = 0; i < 8; ++i) pair.world.wire().inject(2, anything(pair), 20 * kMillisecond);
  const Sge sge = pair.at(0, 100);
  ASSERT_EQ(near->post_send(Pair::request(SendOp::kWrite, 1, sge, 0, 1)), 0);
  pair.post(SendOp::kWrite, 2, pair.at(0, 4 * kMtu));
  EXPECT_EQ(pair.sent(1, kMillisecond).size(), 1u);
}

// A slow port takes a packet now and then. What its own program sends without end and what others
// read here take turns.
TEST(Rules, Rule33_AnswersAndRequestsShareAFullPort) {
  WorldSettings settings;
  settings.link.gigabits = 1;
  settings.link.queue_packets = 8;
  Pair pair({}, settings);
  auto reader = pair.world.make_endpoint(1), target = pair.world.make_endpoint(0);
  pair.world.connect(*reader, *target);
  const uint32_t here = pair.near->host->add_mr(pair.local);
  for (uint64_t i = 0; i < 4; ++i) pair.post(SendOp::kWrite, i, pair.at(0, 200 * kMtu));
  pair.world.run_for(kMillisecond);
  const Sge landing{pair.remote.address(Pair::kBytes - 100), 100, pair.rkey};
  ASSERT_EQ(
      reader->post_send(Pair::request(SendOp::kRead, 9, landing, pair.local.address(0), here)), 0);
  EXPECT_EQ(pair.take(*reader, *reader->send_cq, 1, 10 * kMillisecond).size(), 1u);
  EXPECT_LT(pair.sent(4, 0).size(), 4u) << "the port was free: no test";
  EXPECT_TRUE(equal(pair.local, 0, pair.remote, Pair::kBytes - 100, 100));
}

TEST(Rules, Rule33_LoopbackGoesThroughAQueue) {
  WorldSettings settings;
  settings.hosts = 1;
  Pair pair({}, settings);
  pair.post(SendOp::kWrite, 1, pair.at(0, kMtu));
  pair.world.poll_nics();
  EXPECT_EQ(pair.near_counter(Counter::tx_packets), 1u);
  EXPECT_EQ(pair.near_counter(Counter::rx_packets), 0u) << "received inside its own transmission";
  pair.world.poll_nics();
  EXPECT_TRUE(equal(pair.local, 0, pair.remote, 0, kMtu));
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
}

// A port that says when it has room is waited for asleep: no turn is worth anything meanwhile.
TEST(Rules, Rule33_AFullPortThatAnnouncesRoomIsNoWork) {
  for (const SendOp op : {SendOp::kWrite, SendOp::kRead}) {
    WorldSettings settings;
    settings.link.gigabits = 0.05;
    settings.link.queue_packets = 8;
    settings.link.announces_room = true;
    Pair pair({}, settings);
    pair.post(op, 1, pair.at(0, 64 * kMtu));
    pair.world.run_for(5 * kMillisecond);
    Nic& sender = (op == SendOp::kWrite ? pair.near : pair.far)->host->nic();
    ASSERT_NE(sender.gauges().output_packets, 0u) << "the port is not full: no test";
    EXPECT_TRUE(sender.waits_for_port());
    // What the driver has handed over, up to what finds no room.
    for (int turns = 0; turns < 10; ++turns) sender.poll(pair.world.now());
    EXPECT_EQ(sender.poll(pair.world.now()), 0u);
    EXPECT_FALSE(sender.work_waiting());
    EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
    pair.world.run_for(200 * kMillisecond);
    EXPECT_FALSE(sender.waits_for_port());
    EXPECT_TRUE(op == SendOp::kWrite ? equal(pair.local, 0, pair.remote, 0, 64 * kMtu)
                                     : equal(pair.remote, 0, pair.local, 0, 64 * kMtu));
  }
}

TEST(Rules, Rule33_AcksThatFindNoBufferAreNotSent) {
  Pair pair;
  std::vector<rte_mbuf*> taken;
  while (rte_mbuf* packet = rte_pktmbuf_alloc(pair.world.pools().control)) taken.push_back(packet);
  pair.post(SendOp::kWrite, 1, pair.at(0, 100));
  pair.world.run_for(100 * kMicrosecond);
  EXPECT_GE(pair.far_counter(Counter::acks_dropped), 1u);
  EXPECT_TRUE(equal(pair.local, 0, pair.remote, 0, 100));
  for (rte_mbuf* packet : taken) release_packet(packet);
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess) << "the probe brings the ACK";
}

}  // namespace
}  // namespace hostnic::sim
