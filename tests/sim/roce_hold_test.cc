// SPDX-License-Identifier: BSD-3-Clause
// What the standard's RC holds that arrives ahead of a missing packet (docs/roce.md): it executes
// when its turn comes, as if it had arrived then.
#include <gtest/gtest.h>

#include <cstring>

#include "dataplane/nic/packet/packet.h"
#include "tests/sim/forged_packet.h"
#include "tests/sim/roce_pair.h"

namespace hostnic::sim {
namespace {

using wire::Opcode;

constexpr uint32_t kMtu = 4096;

uint32_t held(Pair& pair) { return pair.far->host->nic().gauges().reorder_packets; }
Forged send(uint32_t psn, uint16_t bytes) { return {.psn = psn, .payload_bytes = bytes}; }
Forged write(Pair& pair, uint32_t psn, uint64_t offset, uint16_t bytes) {
  return {.opcode = Opcode::kWriteOnly,
          .psn = psn,
          .va = pair.remote.address(offset),
          .rkey = pair.rkey,
          .length_bytes = bytes,
          .payload_bytes = bytes};
}

TEST(RoceHold, WhatIsAheadWaitsAndExecutesInOrder) {
  for (const uint32_t first : {0u, 0xfffffeu, 0xffffffu}) {
    Pair pair(from_psn(first), roce());
    for (uint64_t i = 0; i < 4; ++i) pair.post_receive(i, i * kMtu, kMtu);
    const auto psn = [first](uint32_t n) { return (first + n) & Psn::kMask; };
    for (const uint32_t n : {3u, 1u, 2u}) {
      Forged packet = send(psn(n), static_cast<uint16_t>(10 + n));
      packet.ack_request = false;
      forge(pair, packet);
    }
    EXPECT_TRUE(pair.received(1, kMicrosecond).empty()) << "nothing executes before its turn";
    EXPECT_TRUE(equal(pair.remote, 0, Memory(kMtu), 0, kMtu));
    EXPECT_EQ(held(pair), 3u);
    EXPECT_EQ(pair.far_counter(Counter::packet_seq_err), 1u) << "one NAK";
    EXPECT_EQ(pair.far_counter(Counter::acks_sent), 1u);
    Forged missing = send(psn(0), 10);
    missing.ack_request = false;
    forge(pair, missing);
    const auto done = pair.received(4);
    ASSERT_EQ(done.size(), 4u);
    for (uint32_t i = 0; i < 4; ++i) {
      EXPECT_EQ(done[i].wr_id, i);
      EXPECT_EQ(done[i].byte_len, 10 + i);
    }
    EXPECT_EQ(pair.far_counter(Counter::acks_sent), 2u) << "one ACK for all, asked for or not";
    EXPECT_EQ(held(pair), 0u);
    pair.world.check_at_rest();
  }
}

TEST(RoceHold, WhatIsHeldAlreadyIsNotHeldTwice) {
  Pair pair({}, roce());
  for (uint64_t i = 0; i < 3; ++i) pair.post_receive(i, i * kMtu, kMtu);
  for (int i = 0; i < 3; ++i) forge(pair, send(1, 11));
  EXPECT_EQ(held(pair), 1u);
  EXPECT_EQ(pair.far_counter(Counter::reorder_buffered), 1u);
  EXPECT_EQ(pair.far_counter(Counter::duplicate_request), 2u);
  EXPECT_EQ(pair.far_counter(Counter::packet_seq_err), 1u);
  forge(pair, send(0, 10));
  EXPECT_EQ(pair.received(3, kMillisecond).size(), 2u);
}

TEST(RoceHold, OnlyTheWindowIsHeld) {
  Pair pair({}, roce());
  pair.post_receive(1, 0, kMtu);
  forge(pair, send(511, 8));
  EXPECT_EQ(held(pair), 1u);
  for (const uint32_t psn : {512u, 513u, 4000u, 0x7fffffu}) forge(pair, send(psn, 8));
  EXPECT_EQ(held(pair), 1u);
  EXPECT_EQ(pair.far_counter(Counter::out_of_window), 4u);
  EXPECT_EQ(pair.far_counter(Counter::packet_seq_err), 1u);
}

TEST(RoceHold, AnErrorIsRaisedWhenItsTurnComes) {
  Pair pair({}, roce());
  pair.post_receive(1, 0, kMtu);
  Forged wrong = write(pair, 1, 16 * kMtu, 64);
  wrong.rkey ^= 0x10;
  forge(pair, wrong);
  forge(pair, write(pair, 2, 32 * kMtu, 64));
  EXPECT_EQ(pair.far->state(), QpState::kRts);
  forge(pair, send(0, 8));
  EXPECT_EQ(pair.far->state(), QpState::kErr);
  ASSERT_FALSE(pair.received(1).empty()) << "what is before it has executed";
  EXPECT_TRUE(equal(pair.remote, 16 * kMtu, Memory(kMtu), 0, 64));
  EXPECT_TRUE(equal(pair.remote, 32 * kMtu, Memory(kMtu), 0, 64)) << "what is behind it has not";
  EXPECT_EQ(held(pair), 0u);
  pair.world.check_at_rest();
}

TEST(RoceHold, BehindAReceiverThatIsNotReadyNothingIsHeld) {
  Pair pair({}, roce());
  pair.post_receive(0, 0, kMtu);
  for (const uint32_t psn : {1u, 2u, 3u}) forge(pair, send(psn, static_cast<uint16_t>(10 + psn)));
  forge(pair, send(0, 10));
  EXPECT_EQ(pair.far_counter(Counter::rnr_nak_sent), 1u) << "about the second";
  EXPECT_EQ(held(pair), 0u) << "the sender repeats everything after its wait";
  forge(pair, send(3, 13));
  EXPECT_EQ(held(pair), 0u);
  for (uint64_t i = 1; i < 4; ++i) pair.post_receive(i, i * kMtu, kMtu);
  forge(pair, send(3, 13));
  for (const uint32_t psn : {1u, 2u, 3u}) forge(pair, send(psn, static_cast<uint16_t>(10 + psn)));
  const auto done = pair.received(5, kMillisecond);
  ASSERT_EQ(done.size(), 4u);
  for (uint32_t i = 0; i < 4; ++i) EXPECT_EQ(done[i].byte_len, 10 + i);
}

TEST(RoceHold, AHeldReadIsAnsweredInItsTurnAndTakesItsPsns) {
  Pair pair({}, roce());
  pair.post_receive(1, 0, kMtu);
  std::vector<uint32_t> answered;
  pair.world.wire().set_tap([&](uint32_t from, uint32_t, rte_mbuf* packet) {
    wire::Packet p;
    if (from == 1 && parse_packet(packet, p) == wire::ParseError::kNone &&
        wire::is_response(p.opcode))
      answered.push_back(p.psn.value());
  });
  forge(pair, {.opcode = Opcode::kRcReadRequest,
               .psn = 1,
               .va = pair.remote.address(0),
               .rkey = pair.rkey,
               .length_bytes = 3 * kMtu});
  forge(pair, send(2, 8));  // among the READ's answers: no sender means that
  forge(pair, write(pair, 4, 16 * kMtu, 64));
  EXPECT_TRUE(answered.empty());
  forge(pair, write(pair, 0, 32 * kMtu, 64));
  EXPECT_EQ(answered, (std::vector<uint32_t>{1, 2, 3}));
  EXPECT_TRUE(pair.received(1, kMillisecond).empty());
  EXPECT_EQ(pair.remote.data()[16 * kMtu], 0xbd) << "the WRITE behind the READ";
  EXPECT_EQ(pair.far->state(), QpState::kRts);
  pair.world.wire().set_tap(nullptr);
  pair.world.check_at_rest();
}

TEST(RoceHold, AtMost64ExecuteInATurn) {
  Pair pair({}, roce());
  constexpr uint32_t kPackets = 200;
  for (uint32_t psn = 1; psn <= kPackets; ++psn)
    forge(pair, write(pair, psn, uint64_t{psn} * 64, 64));
  ASSERT_EQ(held(pair), kPackets);
  uint32_t before = kPackets, longest = 0;
  forge(pair, write(pair, 0, 0, 64), /*source_host=*/0, [&] {
    longest = std::max(longest, before - held(pair));
    before = held(pair);
    return before == 0;
  });
  EXPECT_EQ(held(pair), 0u);
  EXPECT_EQ(longest, 64u);
  EXPECT_TRUE(std::all_of(pair.remote.data(), pair.remote.data() + (kPackets + 1) * 64,
                          [](uint8_t byte) { return byte == 0xbd; }));
}

TEST(RoceHold, WhatIsHeldIsGivenBackWithItsConnection) {
  for (const int way : {0, 1, 2}) {
    Pair pair({}, roce());
    for (const uint32_t psn : {1u, 5u, 300u}) forge(pair, send(psn, kMtu));
    ASSERT_EQ(held(pair), 3u);
    if (way == 0) pair.world.modify_state(*pair.far, QpState::kErr);
    if (way == 1) pair.world.modify_state(*pair.far, QpState::kReset);
    if (way == 2) pair.far->host->driver().destroy_qp(pair.far->qp);
    pair.world.run_for(kMillisecond);
    EXPECT_EQ(held(pair), 0u);
    pair.world.check_at_rest();
  }
}

TEST(RoceHold, ANewConnectionHasNothingOfTheOldOne) {
  Pair pair({}, roce());
  pair.post_receive(1, 0, kMtu);
  forge(pair, send(1, 11));
  for (Endpoint* end : {pair.near.get(), pair.far.get()}) {
    pair.world.modify_state(*end, QpState::kReset);
    pair.world.reset_to_init(*end);
  }
  pair.world.to_rtr(*pair.near, *pair.far);
  pair.world.to_rtr(*pair.far, *pair.near);
  pair.world.to_rts(*pair.near);
  pair.world.to_rts(*pair.far);
  pair.post_receive(1, 0, kMtu);
  pair.post_receive(2, 0, kMtu);
  pair.post(SendOp::kSend, 1, pair.at(0, 10));
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  EXPECT_EQ(pair.received(2, kMillisecond).size(), 1u);
}

// By a sender that repeats everything: what it has handed to its NIC meanwhile does not leave.
TEST(RoceHold, WhatWasHeldIsNotRepeated) {
  WorldSettings settings = roce();
  settings.policies = {wire::Policy::kGoBackN, wire::Policy::kSelective};
  settings.link.gigabits = 1;
  settings.link.queue_packets = 8;  // the rest waits in the NIC
  Pair pair(from_psn(0xffffa0), settings);
  pair.world.impair(1, "rx drop nth 3 kind write");
  pair.post(SendOp::kWrite, 1, pair.at(0, 100 * kMtu));
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  EXPECT_TRUE(equal(pair.local, 0, pair.remote, 0, 100 * kMtu));
  EXPECT_GE(pair.far_counter(Counter::reorder_buffered), 30u);
  pair.world.run_for(5 * kMillisecond);
  EXPECT_LE(pair.near_counter(Counter::retransmitted_packets), 60u) << "what fits the queues";
  EXPECT_EQ(timeouts(pair), 0u);
}

TEST(RoceHold, EachGapIsNakedOnce) {
  Pair pair({}, roce());
  for (uint64_t i = 0; i < 8; ++i) pair.post_receive(i, i * kMtu, kMtu);
  for (const uint32_t psn : {1u, 3u, 4u, 6u}) forge(pair, send(psn, 8));
  EXPECT_EQ(pair.far_counter(Counter::packet_seq_err), 1u);
  forge(pair, send(0, 8));
  EXPECT_EQ(pair.received(8, kMicrosecond).size(), 2u);
  EXPECT_EQ(pair.far_counter(Counter::packet_seq_err), 1u) << "what is missing now goes again, too";
  forge(pair, send(3, 8));
  EXPECT_EQ(pair.far_counter(Counter::packet_seq_err), 2u) << "but did not arrive";
  forge(pair, send(4, 8));
  forge(pair, send(7, 8));
  EXPECT_EQ(pair.far_counter(Counter::packet_seq_err), 2u);
  forge(pair, send(2, 8));
  EXPECT_EQ(pair.received(8, kMicrosecond).size(), 3u);
  forge(pair, send(5, 8));
  EXPECT_EQ(pair.received(8, kMicrosecond).size(), 3u);
  EXPECT_EQ(pair.far_counter(Counter::packet_seq_err), 2u);
}

TEST(RoceHold, OnlyWhatIsMissingGoesAgain) {
  WorldSettings settings = roce();
  settings.link.delay_ns = 5 * kMicrosecond;
  Pair pair({}, settings);
  uint32_t lost = 0;
  pair.world.wire().set_judge([&lost](uint32_t to, const wire::Packet& p) {
    const uint32_t psn = p.psn.value();
    const bool drop = to == 1 && ((psn == 3 && lost == 0) || (psn == 40 && lost < 3));
    lost += drop ? 1 : 0;
    return Fate{.drop = drop};
  });
  pair.post(SendOp::kWrite, 1, pair.at(0, 100 * kMtu));
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  EXPECT_TRUE(equal(pair.local, 0, pair.remote, 0, 100 * kMtu));
  EXPECT_EQ(lost, 3u);
  EXPECT_EQ(pair.near_counter(Counter::retransmitted_packets), 3u);
  EXPECT_EQ(timeouts(pair), 0u);
  pair.world.wire().set_judge(nullptr);
}

TEST(RoceHold, APeerThatHoldsNothingGetsEverythingAgain) {
  WorldSettings settings = roce();
  settings.policies = {wire::Policy::kSelective, wire::Policy::kGoBackN};
  Pair pair({}, settings);
  for (uint64_t i = 0; i < 6; ++i) {
    pair.world.impair(1, "rx drop nth 3 kind write");
    pair.post(SendOp::kWrite, i, pair.at(0, 40 * kMtu));
    EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
    EXPECT_TRUE(equal(pair.local, 0, pair.remote, 0, 40 * kMtu));
    EXPECT_GE(pair.near_counter(Counter::retransmitted_packets), (i + 1) * 37);
    EXPECT_LE(pair.near_counter(Counter::retransmitted_packets), (i + 1) * 40);
  }
  EXPECT_EQ(pair.far_counter(Counter::reorder_buffered), 0u);
  EXPECT_EQ(timeouts(pair), 0u);
}

TEST(RoceHold, WhatFindsNoRoomComesAgain) {
  WorldSettings settings = roce();
  settings.pool_scale = 0.01;
  settings.link.delay_ns = 5 * kMicrosecond;
  Pair pair({}, settings);
  pair.world.impair(1, "rx drop nth 3 kind write");
  pair.post(SendOp::kWrite, 1, pair.at(0, 200 * kMtu));
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  EXPECT_TRUE(equal(pair.local, 0, pair.remote, 0, 200 * kMtu));
  EXPECT_GE(pair.far_counter(Counter::reorder_full), 1u);
  EXPECT_EQ(held(pair), 0u);
  EXPECT_EQ(timeouts(pair), 0u);
}

}  // namespace
}  // namespace hostnic::sim
