// SPDX-License-Identifier: BSD-3-Clause
// docs/transport.md rule 36: UC and UD. What arrives, what is dropped silently, and which receive
// is kept.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/sim/pair.h"

namespace hostnic::sim {
namespace {

using driver::Completion;

constexpr uint32_t kMtu = 4096;
constexpr uint32_t kGrh = kGrhBytes;

QpSettings uc() {
  QpSettings settings;
  settings.type = QpType::kUc;
  settings.psn = 0xfffffd;  // wraps soon
  return settings;
}

TEST(Unreliable, Rule36_UcSendsAndWritesArriveInOrder) {
  Pair pair(uc());
  for (uint64_t i = 0; i < 3; ++i) ASSERT_EQ(pair.post_receive(i, i * 65536, 65536), 0);
  pair.post(SendOp::kWrite, 1, pair.at(0, 5 * kMtu + 7), 512 * 1024);
  pair.post(SendOp::kSend, 2, pair.at(0, 3 * kMtu));
  pair.post(SendOp::kSendImm, 3, pair.at(8192, 100));
  pair.post(SendOp::kWriteImm, 4, pair.at(100, 2 * kMtu + 1), 600 * 1024);
  const auto sent = pair.sent(4);
  ASSERT_EQ(sent.size(), 4u);
  for (const Completion& c : sent) EXPECT_EQ(c.status, WcStatus::kSuccess);
  const auto received = pair.received(3);
  ASSERT_EQ(received.size(), 3u);
  for (uint64_t i = 0; i < 3; ++i) EXPECT_EQ(received[i].wr_id, i);
  EXPECT_EQ(received[0].byte_len, 3 * kMtu);
  EXPECT_EQ(received[0].flags, 0u);
  EXPECT_EQ(received[1].byte_len, 100u);
  EXPECT_EQ(received[1].imm_data, 0x1234u);
  EXPECT_EQ(received[1].flags, uint32_t{driver::kWcWithImm});
  EXPECT_EQ(received[2].opcode, driver::WcOpcode::kRecvRdmaWithImm);
  EXPECT_EQ(received[2].byte_len, 2 * kMtu + 1);
  EXPECT_EQ(received[2].src_qpn, pair.near->qpn());
  EXPECT_TRUE(equal(pair.local, 0, pair.remote, 512 * 1024, 5 * kMtu + 7));
  EXPECT_TRUE(equal(pair.local, 0, pair.remote, 0, 3 * kMtu));
  EXPECT_TRUE(equal(pair.local, 8192, pair.remote, 65536, 100));
  EXPECT_TRUE(equal(pair.local, 100, pair.remote, 600 * 1024, 2 * kMtu + 1));
  EXPECT_EQ(pair.far_counter(Counter::acks_sent), 0u);
  EXPECT_EQ(pair.near->host->driver().next_deadline_ns(), UINT64_MAX) << "nobody to wait for";
}

TEST(Unreliable, Rule36_UcMessagesLongerThanAllWindows) {
  WorldSettings settings;
  settings.windows = {64};
  Pair pair(uc(), settings);
  pair.post(SendOp::kWrite, 1, pair.at(0, Pair::kBytes));
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  pair.world.run_for(kMillisecond);
  EXPECT_TRUE(equal(pair.local, 0, pair.remote, 0, Pair::kBytes));
}

TEST(Unreliable, Rule36_UcGapDropsTheMessageAndKeepsTheReceive) {
  for (const char* lost :
       {"rx drop nth 1 kind send", "rx drop nth 2 kind send", "rx drop nth 3 kind send"}) {
    Pair pair(uc());
    pair.world.impair(1, lost);
    ASSERT_EQ(pair.post_receive(7, 0, 65536), 0);
    pair.post(SendOp::kSend, 1, pair.at(0, 3 * kMtu));
    pair.post(SendOp::kSend, 2, pair.at(65536, 3 * kMtu));
    EXPECT_EQ(pair.sent(2).size(), 2u) << "the sender is none the wiser";
    const auto received = pair.received(2, 10 * kMillisecond);
    ASSERT_EQ(received.size(), 1u) << lost;
    EXPECT_EQ(received[0].wr_id, 7u);
    EXPECT_TRUE(equal(pair.local, 65536, pair.remote, 0, 3 * kMtu)) << lost;
    EXPECT_EQ(pair.far_counter(Counter::uc_incomplete), 1u) << lost;
  }
}

TEST(Unreliable, Rule36_UcRepeatedAndOvertakenPacketsAreDropped) {
  Pair pair(uc());
  pair.world.impair(1, "rx duplicate all");
  for (uint64_t i = 0; i < 8; ++i) ASSERT_EQ(pair.post_receive(i, i * 65536, 65536), 0);
  pair.post(SendOp::kSend, 1, pair.at(0, 2 * kMtu));
  pair.post(SendOp::kSend, 2, pair.at(0, 10));
  EXPECT_EQ(pair.received(3, 10 * kMillisecond).size(), 2u);
  EXPECT_TRUE(equal(pair.local, 0, pair.remote, 0, 2 * kMtu));
  EXPECT_EQ(pair.far_counter(Counter::duplicate_request), 3u);
  EXPECT_EQ(pair.far_counter(Counter::uc_incomplete), 0u);
}

TEST(Unreliable, Rule36_UcErrorsAreSilent) {
  Pair pair(uc());
  pair.post(SendOp::kSend, 1, pair.at(0, 2 * kMtu));  // no receive
  pair.sent(1);
  pair.world.run_for(kMillisecond);
  EXPECT_EQ(pair.far_counter(Counter::rx_no_receive), 1u);
  ASSERT_EQ(pair.post_receive(1, 0, kMtu), 0);
  pair.post(SendOp::kSend, 2, pair.at(0, 2 * kMtu));  // too long
  pair.post_to(SendOp::kWrite, 3, pair.at(0, 3 * kMtu), pair.remote.address(), /*key=*/0x12345);
  pair.post(SendOp::kSend, 4, pair.at(kMtu, 1000));
  const auto sent = pair.sent(3);
  ASSERT_EQ(sent.size(), 3u);
  for (const Completion& c : sent) EXPECT_EQ(c.status, WcStatus::kSuccess);
  const auto received = pair.received(2, 10 * kMillisecond);
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].byte_len, 1000u);
  EXPECT_TRUE(equal(pair.local, kMtu, pair.remote, 0, 1000));
  EXPECT_EQ(pair.far_counter(Counter::rx_too_long), 1u);
  EXPECT_EQ(pair.far_counter(Counter::uc_access_refused), 1u);
  EXPECT_EQ(pair.far->state(), QpState::kRts);
  EXPECT_EQ(pair.far_counter(Counter::nak_sent), 0u);
}

// Whoever asks why nothing comes is told.
TEST(Unreliable, Rule36_WhatWasDroppedLastIsRemembered) {
  Pair pair(uc());
  const auto drops = [&] { return pair.far->host->nic().views().qp(pair.far->qpn())->drops; };
  const auto send = [&](size_t bytes) {
    pair.post(SendOp::kSend, 1, pair.at(0, bytes));
    pair.sent(1);
    pair.world.run_for(kMillisecond);
  };
  EXPECT_EQ(drops().last, SilentDrop::kNone);
  send(100);
  EXPECT_EQ(drops().last, SilentDrop::kNoReceive);
  send(100);
  EXPECT_EQ(drops().count, 2u);
  ASSERT_EQ(pair.post_receive(1, 0, kMtu), 0);
  send(2 * kMtu);
  EXPECT_EQ(drops().last, SilentDrop::kTooLong);
  EXPECT_EQ(drops().count, 1u);
  EXPECT_EQ(drops().room_bytes, uint64_t{kMtu});
  pair.post_to(SendOp::kWrite, 3, pair.at(0, 64), pair.remote.address(), /*key=*/0x12345);
  pair.sent(1);
  pair.world.run_for(kMillisecond);
  EXPECT_EQ(drops().last, SilentDrop::kAccess);
  const auto fault = pair.far->host->nic().views().qp(pair.far->qpn())->drop_fault;
  EXPECT_EQ(fault.fault, KeyFault::kUnknown);
  EXPECT_EQ(fault.key, 0x12345u);
}

// Also where there is nothing to write, and the receive of immediate data stays.
TEST(Unreliable, Rule36_UcWritesNeedTheRightOfTheQueuePair) {
  QpSettings qp = uc();
  qp.access = kAccessLocalWrite;
  Pair pair(qp);
  ASSERT_EQ(pair.post_receive(7, 0, kMtu), 0);
  pair.post(SendOp::kWrite, 1, pair.at(0, 3 * kMtu));
  pair.post(SendOp::kWriteImm, 2, pair.at(0, 8));
  pair.post(SendOp::kWriteImm, 3, pair.at(0, 0));
  pair.post(SendOp::kSend, 4, pair.at(kMtu, 100));
  for (const Completion& c : pair.sent(4)) EXPECT_EQ(c.status, WcStatus::kSuccess);
  const auto received = pair.received(2, 10 * kMillisecond);
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].byte_len, 100u) << "the SEND";
  EXPECT_EQ(pair.far_counter(Counter::uc_access_refused), 3u);
  EXPECT_EQ(pair.far->state(), QpState::kRts);
}

TEST(Unreliable, Rule36_UcSendErrorStopsSendsOnly) {
  Pair pair(uc());
  pair.post_receive(1, 0, kMtu);
  pair.post(SendOp::kWrite, 1, pair.at(0, 100), 0, /*signalled=*/false);
  pair.post(SendOp::kWrite, 2, {pair.local.address(), 3 * kMtu, /*lkey=*/0x777});
  pair.post(SendOp::kWrite, 3, pair.at(0, 100));
  const auto sent = pair.sent(2);
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[0].wr_id, 2u);
  EXPECT_EQ(sent[0].status, WcStatus::kLocProtErr);
  EXPECT_EQ(sent[1].status, WcStatus::kWrFlushErr);
  EXPECT_EQ(pair.near->state(), QpState::kSqe);
  // It still receives, flushes what is posted, and sends again after RTS.
  pair.near->post_recv({.wr_id = 9, .sges = {}});
  driver::SendRequest empty;
  empty.signalled = true;
  ASSERT_EQ(pair.far->post_send(empty), 0);
  EXPECT_EQ(pair.take(*pair.near, *pair.near->recv_cq, 1).size(), 1u);
  pair.post(SendOp::kSend, 4, pair.at(0, 100));
  EXPECT_EQ(pair.status_of_one(), WcStatus::kWrFlushErr);
  ASSERT_EQ(pair.world.modify_state(*pair.near, QpState::kRts), 0);
  pair.post(SendOp::kSend, 5, pair.at(kMtu, 100));
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  EXPECT_EQ(pair.received(1).size(), 1u);
  EXPECT_TRUE(equal(pair.local, kMtu, pair.remote, 0, 100));
}

// After a completion the memory is the program's again, whatever is still on the wire.
TEST(Unreliable, Rule36_SentBytesAreThoseAtTheTimeOfPosting) {
  WorldSettings settings;
  settings.link.delay_ns = kMillisecond;
  Pair pair(uc(), settings);
  pair.post(SendOp::kWrite, 1, pair.at(0, kMtu));
  ASSERT_EQ(pair.sent(1, 100 * kMicrosecond).size(), 1u);
  const std::vector<uint8_t> before(pair.local.data(), pair.local.data() + kMtu);
  std::memset(pair.local.data(), 0xee, kMtu);
  pair.world.run_for(2 * kMillisecond);
  EXPECT_TRUE(std::equal(before.begin(), before.end(), pair.remote.data()));
}

TEST(Unreliable, Rule36_ServicesDoNotMix) {
  Pair pair(uc());
  QpSettings rc;
  rc.psn = uc().psn;
  auto reliable = pair.world.make_endpoint(1, rc);
  pair.world.to_rtr(*reliable, *pair.near);
  // The UC queue pair sends to the RC one.
  pair.world.reset_to_init(*pair.near);
  pair.world.to_rtr(*pair.near, *reliable);
  pair.world.to_rts(*pair.near);
  pair.post(SendOp::kWrite, 1, pair.at(0, 100));
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  pair.world.run_for(kMillisecond);
  EXPECT_EQ(pair.far_counter(Counter::rx_wrong_service), 1u);
  EXPECT_EQ(pair.remote.data()[1], 0);
}

TEST(Unreliable, Rule36_ReadsAndAtomicsAreNotUcs) {
  Pair pair(uc());
  EXPECT_EQ(pair.post(SendOp::kRead, 1, pair.at(0, 8)), EINVAL);
  EXPECT_EQ(pair.post(SendOp::kFetchAdd, 1, pair.at(0, 8)), EINVAL);
}

// ---- UD

QpSettings ud(uint32_t qkey = 0x11111111) {
  QpSettings settings;
  settings.type = QpType::kUd;
  settings.qkey = qkey;
  return settings;
}

WorldSettings three_hosts() {
  WorldSettings settings;
  settings.hosts = 3;
  return settings;
}

int post_datagram(Pair& pair, const Endpoint& to, Sge sge, uint64_t wr_id = 1,
                  SendOp op = SendOp::kSend, uint32_t qkey = 0x11111111) {
  driver::SendRequest request;
  request.op = op;
  request.wr_id = wr_id;
  request.signalled = true;
  request.sges = {&sge, 1};
  request.imm_data = 0x1234;
  request.ud = {.ip = address_of(to.host->index()),
                .traffic_class = 0x48,
                .hop_limit = 7,
                .qpn = to.qpn(),
                .qkey = qkey};
  return pair.near->post_send(request);
}

TEST(Unreliable, Rule36_UdReceivesStartWithTheNetworkHeader) {
  Pair pair(ud());
  std::memset(pair.remote.data(), 0xee, kGrh);
  ASSERT_EQ(pair.post_receive(5, 0, kGrh + kMtu), 0);
  ASSERT_EQ(post_datagram(pair, *pair.far, pair.at(0, kMtu), 3, SendOp::kSendImm), 0);
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  const auto received = pair.received(1);
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].wr_id, 5u);
  EXPECT_EQ(received[0].byte_len, kGrh + kMtu);
  EXPECT_EQ(received[0].flags, uint32_t{driver::kWcGrh | driver::kWcWithImm});
  EXPECT_EQ(received[0].imm_data, 0x1234u);
  EXPECT_EQ(received[0].src_qpn, pair.near->qpn());
  EXPECT_TRUE(equal(pair.local, 0, pair.remote, kGrh, kMtu));
  for (uint32_t i = 0; i < 20; ++i) EXPECT_EQ(pair.remote.data()[i], 0) << i;
  std::array<std::byte, wire::kIpv4Bytes> header;
  std::memcpy(header.data(), pair.remote.data() + 20, header.size());
  const wire::Ipv4View ip{std::span<const std::byte, wire::kIpv4Bytes>(header)};
  EXPECT_EQ(ip.version_ihl(), wire::kIpv4VersionIhl);
  EXPECT_EQ(ip.src(), address_of(0));
  EXPECT_EQ(ip.dst(), address_of(1));
  EXPECT_EQ(ip.traffic_class(), 0x48);
  EXPECT_EQ(ip.hop_limit(), 7);
  EXPECT_TRUE(ip.checksum_ok());
}

TEST(Unreliable, Rule36_UdReachesEverybodyItselfIncluded) {
  Pair pair(ud(), three_hosts());
  auto third = pair.world.make_endpoint(2, ud());
  pair.world.to_rtr(*third, *third);
  pair.world.to_rts(*third);
  Memory memory(65536);
  const uint32_t key = third->host->add_mr(memory);
  const Sge there{memory.address(), 4096, key};
  ASSERT_EQ(third->post_recv({.wr_id = 1, .sges = {&there, 1}}), 0);
  const Sge here = pair.at(512 * 1024, 4096);
  ASSERT_EQ(pair.near->post_recv({.wr_id = 2, .sges = {&here, 1}}), 0);
  ASSERT_EQ(pair.post_receive(3, 0, 4096), 0);
  ASSERT_EQ(pair.post_receive(4, 4096, 4096), 0);
  ASSERT_EQ(post_datagram(pair, *third, pair.at(0, 100)), 0);
  ASSERT_EQ(post_datagram(pair, *pair.far, pair.at(200, 100)), 0);
  ASSERT_EQ(post_datagram(pair, *pair.near, pair.at(300, 100)), 0);
  ASSERT_EQ(post_datagram(pair, *pair.far, pair.at(400, 100)), 0);
  EXPECT_EQ(pair.sent(4).size(), 4u);
  EXPECT_EQ(pair.received(2).size(), 2u);
  EXPECT_EQ(pair.take(*third, *third->recv_cq, 1).size(), 1u);
  EXPECT_EQ(pair.take(*pair.near, *pair.near->recv_cq, 1).size(), 1u);
  EXPECT_TRUE(equal(pair.local, 0, memory, kGrh, 100));
  EXPECT_TRUE(equal(pair.local, 200, pair.remote, kGrh, 100));
  EXPECT_TRUE(equal(pair.local, 300, pair.local, 512 * 1024 + kGrh, 100));
  EXPECT_TRUE(equal(pair.local, 400, pair.remote, 4096 + kGrh, 100));
}

TEST(Unreliable, Rule36_UdDropsSilently) {
  Pair pair(ud());
  ASSERT_EQ(post_datagram(pair, *pair.far, pair.at(0, 100)), 0);  // no receive
  ASSERT_EQ(pair.sent(1).size(), 1u);
  pair.world.run_for(kMillisecond);
  EXPECT_EQ(pair.far_counter(Counter::rx_no_receive), 1u);
  ASSERT_EQ(pair.post_receive(1, 0, kGrh + 100), 0);
  ASSERT_EQ(post_datagram(pair, *pair.far, pair.at(0, 100), 1, SendOp::kSend, 0x222), 0);
  ASSERT_EQ(post_datagram(pair, *pair.far, pair.at(0, 101)), 0);
  ASSERT_EQ(post_datagram(pair, *pair.far, pair.at(500, 100)), 0);
  EXPECT_EQ(pair.sent(3).size(), 3u);
  EXPECT_EQ(pair.received(2, 10 * kMillisecond).size(), 1u);
  EXPECT_TRUE(equal(pair.local, 500, pair.remote, kGrh, 100));
  EXPECT_EQ(pair.far_counter(Counter::rx_wrong_qkey), 1u);
  EXPECT_EQ(pair.far_counter(Counter::rx_too_long), 1u);
  EXPECT_EQ(pair.far->state(), QpState::kRts);
}

TEST(Unreliable, Rule36_UdReceivesWithABadKeyAreThisSidesError) {
  Pair pair(ud());
  ASSERT_EQ(pair.post_receive_with(1, {pair.remote.address(), 4096, /*lkey=*/0x777}), 0);
  ASSERT_EQ(post_datagram(pair, *pair.far, pair.at(0, 100)), 0);
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  const auto received = pair.received(1);
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].status, WcStatus::kLocProtErr);
  EXPECT_EQ(pair.far->state(), QpState::kErr);
}

TEST(Unreliable, Rule36_UdMessagesHaveOnePacket) {
  Pair pair(ud());
  ASSERT_EQ(post_datagram(pair, *pair.far, pair.at(0, kMtu + 1), 1), 0);
  ASSERT_EQ(post_datagram(pair, *pair.far, pair.at(0, 10), 2), 0);
  const auto sent = pair.sent(2);
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[0].status, WcStatus::kLocLenErr);
  EXPECT_EQ(sent[1].status, WcStatus::kWrFlushErr);
  EXPECT_EQ(pair.near->state(), QpState::kSqe);
  EXPECT_EQ(post_datagram(pair, *pair.far, pair.at(0, 8), 3, SendOp::kWrite), EINVAL);
  ASSERT_EQ(pair.world.modify_state(*pair.near, QpState::kRts), 0);
  ASSERT_EQ(pair.post_receive(1, 0, kMtu), 0);
  ASSERT_EQ(post_datagram(pair, *pair.far, pair.at(0, 10), 4), 0);
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  EXPECT_EQ(pair.received(1).size(), 1u);
}

TEST(Unreliable, Rule36_UdOnEthernetResolvesEachDestination) {
  WorldSettings settings = three_hosts();
  settings.link.is_wire = false;
  Pair pair(ud(), settings);
  auto third = pair.world.make_endpoint(2, ud());
  pair.world.to_rtr(*third, *third);
  pair.world.to_rts(*third);
  for (uint64_t i = 0; i < 2; ++i) ASSERT_EQ(pair.post_receive(i, i * 4096, 4096), 0);
  // The first datagram to an unknown neighbour is lost and asks for it.
  ASSERT_EQ(post_datagram(pair, *pair.far, pair.at(0, 100)), 0);
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  pair.world.run_for(50 * kMillisecond);
  EXPECT_EQ(pair.near_counter(Counter::tx_unresolved), 1u);
  ASSERT_EQ(post_datagram(pair, *pair.far, pair.at(100, 101)), 0);
  ASSERT_EQ(post_datagram(pair, *third, pair.at(0, 100)), 0);
  ASSERT_EQ(post_datagram(pair, *pair.far, pair.at(300, 103)), 0);
  EXPECT_EQ(pair.sent(3).size(), 3u);
  EXPECT_EQ(pair.received(2).size(), 2u);
  EXPECT_EQ(pair.near_counter(Counter::tx_unresolved), 2u);
  EXPECT_TRUE(equal(pair.local, 100, pair.remote, kGrh, 101));
  EXPECT_TRUE(equal(pair.local, 300, pair.remote, 4096 + kGrh, 103));
}

TEST(Unreliable, Rule36_BuffersComeBackFromALossyNetwork) {
  for (const QpSettings& settings : {uc(), ud()}) {
    Pair pair(settings);
    pair.world.impair(1, "rx drop 10%; reorder 10% distance 4; duplicate 5%", 3);
    uint64_t posted = 0, done = 0;
    for (uint64_t i = 0; i < 64; ++i) ASSERT_EQ(pair.post_receive(i, 0, 16384), 0);
    while (done < 500) {
      while (posted - done < 32) {
        const int error =
            settings.type == QpType::kUd
                ? post_datagram(pair, *pair.far, pair.at(posted % 7 * 100, 2000), posted)
                : pair.post(posted % 2 != 0 ? SendOp::kSend : SendOp::kWrite, posted,
                            pair.at(0, 3 * kMtu), 512 * 1024);
        ASSERT_EQ(error, 0);
        ++posted;
      }
      const auto sent = pair.sent(1);
      ASSERT_FALSE(sent.empty());
      for (const Completion& c : sent) ASSERT_EQ(c.status, WcStatus::kSuccess);
      done += sent.size();
      for (const Completion& c : pair.far->poll(*pair.far->recv_cq)) {
        ASSERT_EQ(c.status, WcStatus::kSuccess);
        ASSERT_EQ(pair.post_receive(c.wr_id, 0, 16384), 0);
      }
    }
    pair.world.check_at_rest();
  }
}

}  // namespace
}  // namespace hostnic::sim
