// SPDX-License-Identifier: BSD-3-Clause
// The standard's RC (docs/roce.md): what it does with single packets that are lost, repeated or
// wrong. Random networks are random_test.cc's.
#include <gtest/gtest.h>

#include <cstring>

#include "dataplane/nic/packet/packet.h"
#include "tests/sim/forged_packet.h"
#include "tests/sim/roce_pair.h"

namespace hostnic::sim {
namespace {

using wire::Opcode;

constexpr uint32_t kMtu = 4096;

bool untouched(const Pair& pair, size_t bytes) {
  return equal(pair.remote, 0, Memory(bytes), 0, bytes);
}

TEST(Roce, OnlyTheStandardsPacketsLeave) {
  Pair pair({}, roce());
  uint32_t foreign = 0, packets = 0;
  pair.world.wire().set_tap([&](uint32_t, uint32_t, rte_mbuf* packet) {
    const auto opcode = Opcode{rte_pktmbuf_mtod(packet, const uint8_t*)[wire::kFlowBytes]};
    const uint8_t reserved = rte_pktmbuf_mtod(packet, const uint8_t*)[wire::kFlowBytes + 8] & 0x7f;
    ++packets;
    foreign += wire::find_opcode(wire::Dialect::kRocev2, opcode) == nullptr || reserved != 0;
  });
  pair.post_receive(1, 0, 3 * kMtu);
  pair.post_receive(2, 8 * kMtu, kMtu);
  pair.post(SendOp::kSend, 1, pair.at(0, 2 * kMtu + 5));
  pair.post(SendOp::kWrite, 2, pair.at(0, 3 * kMtu), 16 * kMtu);
  pair.post(SendOp::kWriteImm, 3, pair.at(0, 9), 32 * kMtu);
  pair.post(SendOp::kRead, 4, pair.at(64 * kMtu, 5 * kMtu), 16 * kMtu);
  pair.post(SendOp::kFetchAdd, 5, pair.at(80 * kMtu, 8), 0);
  for (const auto& done : pair.sent(5)) EXPECT_EQ(done.status, WcStatus::kSuccess) << done.wr_id;
  EXPECT_EQ(pair.received(2).size(), 2u);
  EXPECT_GE(packets, 12u);
  EXPECT_EQ(foreign, 0u);
  pair.world.wire().set_tap(nullptr);
}

TEST(Roce, AMissingPacketIsNakedOnceAndComesAtOnce) {
  Pair pair(from_psn(0xfffffa), roce());
  pair.world.impair(1, "rx drop nth 3 kind write");
  pair.post(SendOp::kWrite, 1, pair.at(0, 40 * kMtu));
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  EXPECT_TRUE(equal(pair.local, 0, pair.remote, 0, 40 * kMtu));
  EXPECT_EQ(pair.near_counter(Counter::nak_received), 1u);
  EXPECT_EQ(pair.far_counter(Counter::packet_seq_err), 1u);
  EXPECT_EQ(timeouts(pair), 0u);
  EXPECT_LE(pair.near_counter(Counter::retransmitted_packets), 38u) << "from where it was missing";
}

TEST(Roce, ALostEndIsFoundByTime) {
  Pair pair({}, roce());
  pair.world.impair(1, "rx drop first 1 kind write");
  pair.post(SendOp::kWrite, 1, pair.at(0, 100));
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  EXPECT_TRUE(equal(pair.local, 0, pair.remote, 0, 100));
  EXPECT_EQ(timeouts(pair), 1u);
}

// Once it is known how long the peer takes.
TEST(Roce, APeerThatTakesItsTimeIsNotAskedAgain) {
  WorldSettings settings = roce();
  settings.link.delay_ns = 25 * kMillisecond;
  Pair pair({}, settings);
  const auto write = [&pair](uint64_t wr_id) {
    pair.post(SendOp::kWrite, wr_id, pair.at(0, kMtu));
    EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess) << wr_id;
  };
  for (uint64_t i = 0; i < 4; ++i) write(i);
  const uint64_t before = timeouts(pair);
  EXPECT_GT(before, 0u) << "it was not known";
  for (uint64_t i = 4; i < 12; ++i) write(i);
  EXPECT_EQ(timeouts(pair), before);
}

TEST(Roce, ALostAckIsSaidAgainAndNothingExecutesTwice) {
  Pair pair({}, roce());
  pair.world.impair(0, "rx drop first 1 kind ack");
  pair.post_receive(1, 0, kMtu);
  pair.post_receive(2, kMtu, kMtu);
  pair.post(SendOp::kSend, 1, pair.at(0, 100));
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  EXPECT_EQ(pair.received(2, 10 * kMillisecond).size(), 1u);
  EXPECT_GE(pair.far_counter(Counter::duplicate_request), 1u);
}

TEST(Roce, ALostAnswerOfAReadComesAgain) {
  for (const int lost : {1, 2, 16, 17, 40}) {
    Pair pair(from_psn(0xfffff0), roce());
    std::memset(pair.remote.data(), 0x5a, 40 * kMtu);
    pair.world.impair(0, "rx drop nth " + std::to_string(lost) + " kind read-response");
    pair.post(SendOp::kRead, 1, pair.at(0, 40 * kMtu));
    pair.post(SendOp::kWrite, 2, pair.at(512 * 1024, 100), 512 * 1024);
    EXPECT_EQ(pair.sent(2).size(), 2u) << lost;
    EXPECT_TRUE(equal(pair.local, 0, pair.remote, 0, 40 * kMtu)) << lost;
    EXPECT_EQ(timeouts(pair), 0u) << "the ACK behind it says that it was sent: " << lost;
  }
}

TEST(Roce, ALostAtomicAnswerIsSaidAgainFromTheRecord) {
  Pair pair({}, roce());
  pair.world.impair(0, "rx drop first 1 kind atomic-response");
  for (uint64_t i = 0; i < 3; ++i) pair.post(SendOp::kFetchAdd, i, pair.at(i * 8, 8));
  EXPECT_EQ(pair.sent(3).size(), 3u);
  for (uint64_t i = 0; i < 3; ++i) {
    uint64_t before = 99;
    std::memcpy(&before, pair.local.data() + i * 8, 8);
    EXPECT_EQ(before, i);
  }
  EXPECT_EQ(pair.far_counter(Counter::atomics_executed), 3u);
  EXPECT_GE(pair.far_counter(Counter::atomics_replayed), 1u);
}

// The peer has the answer and has taken its key back: what the network repeats is nobody's fault.
TEST(Roce, ALateRepetitionOfAReadEndsNothing) {
  Pair pair({}, roce());
  pair.world.impair(1,
                    "rx reorder first 1 delay 2ms kind read-request; "
                    "duplicate first 1 kind read-request");
  const uint32_t key = pair.far->host->add_mr(pair.remote);
  pair.near->post_send(
      Pair::request(SendOp::kRead, 1, pair.at(0, 100), pair.remote.address(0), key));
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  pair.far->host->remove_mr(key);
  pair.world.run_for(5 * kMillisecond);
  EXPECT_EQ(pair.far->state(), QpState::kRts);
  pair.post(SendOp::kWrite, 2, pair.at(0, 100));
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
}

TEST(Roce, AReceiverThatIsNotReadyIsWaitedFor) {
  QpSettings qp;
  qp.min_rnr_timer = 14;  // 1 ms
  Pair pair(qp, roce());
  pair.post(SendOp::kSend, 1, pair.at(0, 3 * kMtu));
  pair.post(SendOp::kWrite, 2, pair.at(0, 100), 64 * kMtu);
  pair.world.run_for(500 * kMicrosecond);
  EXPECT_EQ(pair.far_counter(Counter::rnr_nak_sent), 1u);
  EXPECT_TRUE(pair.sent(1, kMicrosecond).empty());
  pair.post_receive(1, 0, 4 * kMtu);
  EXPECT_EQ(pair.sent(2).size(), 2u);
  EXPECT_TRUE(equal(pair.local, 0, pair.remote, 0, 3 * kMtu));
  EXPECT_EQ(timeouts(pair), 0u) << "the RNR timer says when";
}

TEST(Roce, AnswersWaitForASlowPort) {
  WorldSettings settings = roce();
  settings.link.gigabits = 1;
  settings.link.queue_packets = 8;
  Pair pair({}, settings);
  std::memset(pair.remote.data(), 0x5a, 64 * kMtu);
  pair.post(SendOp::kRead, 1, pair.at(0, 64 * kMtu));
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  EXPECT_TRUE(equal(pair.local, 0, pair.remote, 0, 64 * kMtu));
  EXPECT_EQ(timeouts(pair), 0u);
}

TEST(Roce, RnrRetriesEnd) {
  QpSettings qp;
  qp.rnr_retry = 2;
  qp.min_rnr_timer = 1;
  Pair pair(qp, roce());
  pair.post(SendOp::kSend, 1, pair.at(0, 8));
  EXPECT_EQ(pair.status_of_one(), WcStatus::kRnrRetryExcErr);
  EXPECT_EQ(pair.far_counter(Counter::rnr_nak_sent), 3u);
}

TEST(Roce, ADeadPeerIsGivenUp) {
  Pair pair({}, roce());
  pair.world.cut(1, true);
  pair.post(SendOp::kWrite, 1, pair.at(0, 8));
  EXPECT_EQ(pair.status_of_one(5 * kSecond), WcStatus::kRetryExcErr);
}

TEST(Roce, WhatIsRefusedSaysWhy) {
  const struct {
    SendOp op;
    uint32_t bytes, capacity_bytes, wrong_key;
    WcStatus near, far;
  } cases[] = {
      {SendOp::kWrite, 100, 0, 1, WcStatus::kRemAccessErr, WcStatus::kWrFlushErr},
      {SendOp::kRead, 100, 0, 1, WcStatus::kRemAccessErr, WcStatus::kWrFlushErr},
      {SendOp::kFetchAdd, 8, 0, 1, WcStatus::kRemAccessErr, WcStatus::kWrFlushErr},
      {SendOp::kSend, 100, 99, 0, WcStatus::kRemInvReqErr, WcStatus::kLocLenErr},
      {SendOp::kSend, 2 * kMtu, kMtu + 1, 0, WcStatus::kRemInvReqErr, WcStatus::kLocLenErr},
  };
  for (const auto& c : cases) {
    Pair pair({}, roce());
    pair.post_receive(7, 0, c.capacity_bytes == 0 ? kMtu : c.capacity_bytes);
    pair.post_to(c.op, 1, pair.at(0, c.bytes), pair.remote.address(0), pair.rkey ^ c.wrong_key);
    EXPECT_EQ(pair.status_of_one(), c.near);
    const auto received = pair.received(1);
    ASSERT_EQ(received.size(), 1u);
    EXPECT_EQ(received[0].status, c.far);
  }
}

TEST(Roce, AnOperationThatTheQueuePairHasNoRightToIsAnInvalidRequest) {
  const struct {
    SendOp op;
    uint32_t bytes;
  } cases[] = {{SendOp::kWrite, 3 * kMtu}, {SendOp::kWrite, 0},      {SendOp::kWriteImm, 8},
               {SendOp::kWriteImm, 0},     {SendOp::kRead, 8},       {SendOp::kRead, 0},
               {SendOp::kFetchAdd, 8},     {SendOp::kCompareSwap, 8}};
  for (const auto& c : cases) {
    QpSettings qp;
    qp.access = kAccessLocalWrite;
    Pair pair(qp, roce());
    pair.post_receive(7, 0, kMtu);
    pair.post(c.op, 1, pair.at(0, c.bytes));
    EXPECT_EQ(pair.status_of_one(), WcStatus::kRemInvReqErr);
    const auto received = pair.received(1);
    ASSERT_EQ(received.size(), 1u);
    EXPECT_EQ(received[0].status, WcStatus::kWrFlushErr);
    EXPECT_TRUE(raised(*pair.far, driver::AsyncEvent::kQpReqErr));
    EXPECT_FALSE(raised(*pair.far, driver::AsyncEvent::kQpAccessErr));
  }
}

TEST(Roce, WhatCantBeInOrderEndsTheConnection) {
  for (const Forged& wrong :
       {Forged{.opcode = Opcode::kRcWriteMiddle, .payload_bytes = kMtu},
        Forged{.opcode = Opcode::kRcWriteLast, .payload_bytes = 8},
        Forged{.opcode = Opcode::kRcSendMiddle, .payload_bytes = kMtu},
        Forged{.opcode = Opcode::kRcSendLast, .payload_bytes = 8},
        Forged{.opcode = Opcode::kRcWriteFirst, .length_bytes = 2 * kMtu, .payload_bytes = 8},
        Forged{.opcode = Opcode::kWriteOnly, .length_bytes = 16, .payload_bytes = 8},
        Forged{.opcode = Opcode::kWriteOnly, .length_bytes = 4, .payload_bytes = 8},
        Forged{.opcode = Opcode::kRcReadRequest, .length_bytes = 0xffffffff}}) {
    Pair pair({}, roce());
    pair.post_receive(1, 0, 4 * kMtu);
    Forged packet = wrong;
    packet.va = pair.remote.address(0);
    packet.rkey = pair.rkey;
    forge(pair, packet);
    EXPECT_EQ(pair.far->state(), QpState::kErr) << wire::to_string(wrong.opcode);
    EXPECT_TRUE(untouched(pair, 4 * kMtu)) << wire::to_string(wrong.opcode);
  }
}

TEST(Roce, ARepeatedReadThatWasNeverAskedForIsNotAnswered) {
  Pair pair({}, roce());
  pair.post(SendOp::kWrite, 1, pair.at(0, 64));
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  for (const uint32_t length_bytes : {kMtu + 1, 0x7fffffffu, 0xfffff002u, 0xffffffffu})
    forge(pair, {.opcode = Opcode::kRcReadRequest,
                 .va = pair.remote.address(0),
                 .rkey = pair.rkey,
                 .length_bytes = length_bytes});
  EXPECT_EQ(pair.far_counter(Counter::read_requests_served), 0u);
  EXPECT_EQ(pair.far->state(), QpState::kRts);
}

TEST(Roce, AStrangersPacketsPlaceNothing) {
  WorldSettings settings = roce();
  settings.hosts = 3;
  Pair pair(from_psn(1000), settings);
  const Forged good{.opcode = Opcode::kWriteOnly,
                    .psn = 1000,
                    .va = pair.remote.address(0),
                    .rkey = pair.rkey,
                    .length_bytes = 64,
                    .payload_bytes = 64};
  forge(pair, good, /*source_host=*/2);
  Forged ahead = good, behind = good;
  ahead.psn = 1001;
  behind.psn = 999;
  forge(pair, ahead);
  forge(pair, behind);
  EXPECT_TRUE(untouched(pair, kMtu));
  EXPECT_EQ(pair.far->state(), QpState::kRts);
  Forged wrong_key = good;
  wrong_key.rkey ^= 0x10;
  forge(pair, wrong_key);
  EXPECT_TRUE(untouched(pair, kMtu));
  EXPECT_EQ(pair.far->state(), QpState::kErr) << "whoever guesses has one guess";
}

TEST(Roce, AnAckOfWhatWasNotSentChangesNothing) {
  Pair pair({}, roce());
  pair.world.cut(1, true);
  pair.post(SendOp::kWrite, 1, pair.at(0, 2 * kMtu));
  pair.post(SendOp::kRead, 2, pair.at(0, 4 * kMtu));
  pair.world.run_for(20 * kMicrosecond);
  for (const uint32_t psn : {6u, 100u, 0x800000u, 0xffffffu}) {
    rte_mbuf* packet = rte_pktmbuf_alloc(pair.world.pools().data);
    ASSERT_NE(packet, nullptr);
    wire::Packet p;
    p.opcode = Opcode::kRcAck;
    p.psn = Psn(psn);
    p.dest_qpn = Qpn{pair.near->qpn()};
    const auto flow = wire::make_flow_template({}, {}, pair.world.host(1).nic().settings().ip,
                                               pair.world.host(0).nic().settings().ip, 0xc123, 0);
    const size_t bytes = wire::build(flow, p, false, {},
                                     {rte_pktmbuf_mtod(packet, std::byte*), wire::kMaxHeaderBytes});
    packet->data_len = static_cast<uint16_t>(bytes);
    packet->pkt_len = packet->data_len;
    pair.world.wire().inject(0, packet);
  }
  pair.world.run_for(100 * kMicrosecond);
  EXPECT_TRUE(pair.sent(1, kMicrosecond).empty());
  EXPECT_EQ(pair.near->host->channel().qp_status(0).una_psn, 0u);
  pair.world.cut(1, false);
  EXPECT_EQ(pair.sent(2).size(), 2u);
  EXPECT_TRUE(equal(pair.local, 4 * kMtu, Memory(kMtu), 0, 0));
}

TEST(Roce, MarksOfTheNetworkAreAnsweredAndHeeded) {
  Pair pair({}, roce());
  pair.world.impair(1, "rx mark all kind write");
  for (uint64_t i = 0; i < 8; ++i) {
    pair.post(SendOp::kWrite, i, pair.at(0, 32 * kMtu));
    pair.world.run_for(100 * kMicrosecond);
  }
  EXPECT_EQ(pair.sent(8).size(), 8u);
  EXPECT_GE(pair.far_counter(Counter::cnp_sent), 2u);
  EXPECT_EQ(pair.near_counter(Counter::cnp_received), pair.far_counter(Counter::cnp_sent));
  EXPECT_GE(pair.near_counter(Counter::rate_cuts), 2u);
  EXPECT_EQ(driver::congestion_window(*pair.near->qp), 512u) << "it is the rate that changes";
}

// A NIC may speak the one to some peers and the other to the rest; a peer speaks it to all.
TEST(Roce, BothTransportsInOneWorld) {
  WorldSettings settings;
  settings.hosts = 3;
  settings.roce_hosts = {1};
  World world(settings);
  for (const uint32_t peer : {1u, 2u}) {
    auto near = world.make_endpoint(0), far = world.make_endpoint(peer);
    world.connect(*near, *far);
    Memory memory(3 * kMtu), remote(3 * kMtu);
    std::memset(memory.data(), static_cast<int>(0x70 + peer), memory.size());
    const uint32_t lkey = near->host->add_mr(memory), rkey = far->host->add_mr(remote);
    uint32_t standard = 0, packets = 0;
    world.wire().set_tap([&](uint32_t, uint32_t, rte_mbuf* packet) {
      const auto opcode = Opcode{rte_pktmbuf_mtod(packet, const uint8_t*)[wire::kFlowBytes]};
      ++packets;
      standard += wire::dialect_of(opcode) == wire::Dialect::kRocev2;
    });
    const Sge sge{memory.address(0), 3 * kMtu, lkey};
    near->post_send(Pair::request(SendOp::kWrite, 1, sge, remote.address(0), rkey));
    EXPECT_EQ(take_completions(world, *near, *near->send_cq, 1, kSecond).size(), 1u);
    world.wire().set_tap(nullptr);
    EXPECT_TRUE(equal(memory, 0, remote, 0, 3 * kMtu));
    EXPECT_EQ(standard, peer == 1 ? packets : 0);
  }
  EXPECT_FALSE(world.failed()) << world.report();
}

// A connection whose ends speak differently, by mistake: only the counters say why it fails
// (docs/roce.md).
WorldSettings at_cross_purposes(bool far_speaks_it) {
  WorldSettings settings;
  settings.roce_hosts = {far_speaks_it ? 1u : 0u};
  settings.told_of_roce = false;
  return settings;
}

TEST(Roce, PacketsOfTheOtherTransportAreOfAnotherService) {
  for (const bool far_speaks_it : {false, true}) {
    for (const SendOp op : {SendOp::kSend, SendOp::kWriteImm, SendOp::kRead, SendOp::kFetchAdd}) {
      Pair pair({}, at_cross_purposes(far_speaks_it));
      pair.post_receive(1, 8 * kMtu, kMtu);
      pair.post(op, 1, pair.at(0, 8));
      EXPECT_EQ(pair.status_of_one(20 * kSecond), WcStatus::kRetryExcErr);
      EXPECT_GT(pair.far_counter(Counter::rx_wrong_service), 0u);
      EXPECT_EQ(pair.far_counter(Counter::rx_wrong_tag), 0u);
      EXPECT_EQ(pair.near_counter(Counter::rx_packets), 0u) << "an answer to what was dropped";
      EXPECT_TRUE(pair.received(1, kMillisecond).empty());
      EXPECT_TRUE(untouched(pair, Pair::kBytes));
    }
  }
}

// It is the one packet that both have, so the standard's end takes it for its own.
TEST(Roce, AnotherTransportsPlainWriteIsExecutedByTheStandardsEnd) {
  Pair pair({}, at_cross_purposes(true));
  pair.post(SendOp::kWrite, 1, pair.at(0, 2 * kMtu));
  EXPECT_EQ(pair.status_of_one(20 * kSecond), WcStatus::kRetryExcErr);
  EXPECT_TRUE(equal(pair.local, 0, pair.remote, 0, 2 * kMtu));
  EXPECT_EQ(pair.far_counter(Counter::rx_wrong_service), 0u);
  EXPECT_EQ(pair.far_counter(Counter::rx_wrong_tag), 0u);
  EXPECT_GT(pair.near_counter(Counter::rx_wrong_service), 0u) << "its acknowledgements";
  EXPECT_EQ(pair.near_counter(Counter::rx_wrong_tag), 0u);
}

TEST(Roce, ItsPlainWriteHasTheWrongTagForTheOtherTransport) {
  Pair pair({}, at_cross_purposes(false));
  pair.post(SendOp::kWrite, 1, pair.at(0, kMtu));
  EXPECT_EQ(pair.status_of_one(20 * kSecond), WcStatus::kRetryExcErr);
  EXPECT_GT(pair.far_counter(Counter::rx_wrong_tag), 0u);
  EXPECT_EQ(pair.far_counter(Counter::rx_wrong_service), 0u);
  EXPECT_TRUE(untouched(pair, kMtu));
}

}  // namespace
}  // namespace hostnic::sim
