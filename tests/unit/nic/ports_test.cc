// SPDX-License-Identifier: BSD-3-Clause
// The ports around a port: what a NIC sends to itself, and impairments. Without a NIC.
#include <algorithm>
#include <set>

#include "tests/unit/nic/ports_fixture.h"

namespace hostnic {
namespace {

TEST_F(Ports, WhatANicSendsToItselfComesBackAndIsCounted) {
  EXPECT_EQ(loopback_.peer_of(raw(kOwn)), kLoopbackPeer);
  EXPECT_EQ(loopback_.peer_of(raw(kOther)), 1);
  rte_mbuf* packet = make_packet(1);
  ASSERT_EQ(loopback_.transmit(kLoopbackPeer, &packet, 1), 1);
  EXPECT_TRUE(pipe_.sent.empty());
  EXPECT_EQ(loopback_.waiting(), 1u);
  EXPECT_EQ(receive_psns(loopback_), std::vector<uint32_t>{1});
  EXPECT_EQ(counters_.get(Counter::tx_packets), 1u);
  EXPECT_EQ(counters_.get(Counter::rx_packets), 1u);
  EXPECT_EQ(counters_.get(Counter::rx_bytes), counters_.get(Counter::tx_bytes));
}

TEST_F(Ports, ABusyPortKeepsNoOwnPacketWaiting) {
  for (uint32_t i = 0; i < 4 * kBurst; ++i) pipe_.arriving.push_back(make_packet(100 + i));
  rte_mbuf* own = make_packet(1);
  ASSERT_EQ(loopback_.transmit(kLoopbackPeer, &own, 1), 1);
  rte_mbuf* burst[kBurst];
  std::set<uint32_t> seen;
  for (int call = 0; call < 2; ++call) {
    const uint16_t count = loopback_.receive(0, burst, kBurst);
    ASSERT_EQ(count, kBurst);
    for (uint16_t i = 0; i < count; ++i) {
      seen.insert(psn_of(burst[i]));
      release_packet(burst[i], references_);
    }
  }
  EXPECT_TRUE(seen.contains(1)) << "with the second burst at the latest";
  receive_psns(loopback_);
}

TEST_F(Ports, AFullLoopbackTakesNoMore) {
  std::vector<rte_mbuf*> packets;
  for (uint32_t i = 0; i < LoopbackPort::kCapacity + 3; ++i) packets.push_back(make_packet(i));
  const auto count = static_cast<uint16_t>(packets.size());
  ASSERT_EQ(loopback_.transmit(kLoopbackPeer, packets.data(), count), LoopbackPort::kCapacity);
  EXPECT_EQ(counters_.get(Counter::tx_packets), LoopbackPort::kCapacity);
  for (size_t i = LoopbackPort::kCapacity; i < packets.size(); ++i)
    release_packet(packets[i], references_);
  EXPECT_EQ(receive_psns(loopback_).size(), LoopbackPort::kCapacity);
}

TEST_F(Ports, WithoutImpairmentsBundlesPassAsTheyAre) {
  EXPECT_TRUE(port_.capabilities().carries_bundles);
  pipe_.arriving.push_back(make_bundle_of(5, 10));
  rte_mbuf* packet = nullptr;
  ASSERT_EQ(port_.receive(0, &packet, 1), 1);
  EXPECT_EQ(packets_in(packet), 10u);
  EXPECT_EQ(counters_.get(Counter::rx_packets), 10u);
  release_packet(packet, references_);
}

TEST_F(Ports, BundlesThatArriveAreImpairedPacketByPacketAndStayTogether) {
  set(Direction::kRx, "drop nth 3");
  for (int i = 0; i < 40; ++i) pipe_.arriving.push_back(make_bundle_of(100 * i, 10));
  const std::vector<uint32_t> psns = receive_psns(port_);
  EXPECT_EQ(psns.size(), 399u);
  EXPECT_EQ(std::ranges::count(psns, 2u), 0) << "the third";
  EXPECT_TRUE(std::ranges::is_sorted(psns));
  EXPECT_EQ(port_.impairment_counters(Direction::kRx)->dropped, 1u);
  EXPECT_EQ(counters_.get(Counter::rx_packets), 400u) << "the port's, with what is dropped";
  EXPECT_EQ(buffers_, 41u) << "two of them are the first bundle's";
  EXPECT_EQ(counters_.get(Counter::bundle_parts), 1u);
}

// Whatever becomes of one packet of a bundle, in either direction: those in front of it, and those
// behind, are one buffer.
TEST_F(Ports, WhatIsLetThroughOfABundleStaysTogether) {
  struct {
    const char* impairments;
    std::vector<uint32_t> psns;
    uint32_t buffers;
    uint64_t parts;
  } const kCases[] = {{"drop nth 1", {1, 2, 3, 4, 5}, 1, 0},
                      {"drop nth 6", {0, 1, 2, 3, 4}, 1, 1},
                      {"drop all", {}, 0, 0},
                      {"drop every 2", {0, 2, 4}, 3, 3},
                      {"duplicate nth 3", {0, 1, 2, 2, 3, 4, 5}, 3, 2},
                      {"corrupt nth 3", {0, 1, 3, 4, 5}, 3, 2},
                      {"mark nth 3", {0, 1, 2, 3, 4, 5}, 3, 2},
                      {"reorder nth 3 distance 2", {0, 1, 3, 4, 2, 5}, 4, 3},
                      {"delay 0ns; drop nth 4", {0, 1, 2, 4, 5}, 2, 1}};
  for (const auto& each : kCases) {
    for (const Direction direction : {Direction::kRx, Direction::kTx}) {
      SCOPED_TRACE(testing::Message()
                   << each.impairments << " sent " << (direction == Direction::kTx));
      set(direction, each.impairments);
      counters_.clear();
      rte_mbuf* bundle = make_bundle_of(0, 6);
      if (direction == Direction::kRx) {
        pipe_.arriving.push_back(bundle);
        EXPECT_EQ(receive_psns(port_), each.psns);
      } else {
        ASSERT_EQ(port_.transmit(1, &bundle, 1), 1);
        port_.advance();
        EXPECT_EQ(sent_psns(), each.psns);
      }
      EXPECT_EQ(buffers_, each.buffers);
      EXPECT_EQ(counters_.get(Counter::bundle_parts), each.parts);
      EXPECT_EQ(port_.impairment_counters(direction)->seen, 6u);
      references_.flush();
      EXPECT_EQ(region_.mbufs_out, 0u);
      set(direction, "");
      port_.advance();
    }
  }
}

// However many parts of bundles wait, a full port is back pressure.
TEST_F(Ports, PartsOfBundlesFindRoom) {
  set(Direction::kTx, "drop every 2");
  pipe_.room = 0;
  uint32_t taken = 0;
  rte_mbuf* bundle = make_bundle_of(0, kMaxBundlePackets);
  while (port_.transmit(1, &bundle, 1) != 0) {
    ++taken;
    bundle = make_bundle_of(taken * kMaxBundlePackets, kMaxBundlePackets);
  }
  ASSERT_GE(taken, 1u);
  release_packet(bundle, references_);
  pipe_.room = SIZE_MAX;
  port_.advance();
  const std::vector<uint32_t> psns = sent_psns();
  ASSERT_EQ(psns.size(), taken * kMaxBundlePackets / 2);
  for (uint32_t i = 0; i < psns.size(); ++i) EXPECT_EQ(psns[i], 2 * i);
}

TEST_F(Ports, DelayedPacketsReferToNobodysMemoryAndLeaveInTime) {
  set(Direction::kTx, "delay 100us");
  port_.set_time(1'000'000);
  std::vector<rte_mbuf*> packets{make_packet(1), make_packet(2)};
  ASSERT_EQ(port_.transmit(1, packets.data(), 2), 2);
  references_.flush();
  EXPECT_FALSE(packets_.any_out()) << "copied";
  EXPECT_TRUE(pipe_.sent.empty());
  EXPECT_EQ(port_.held(), 2u);
  EXPECT_EQ(port_.next_deadline_ns(), 1'100'000u);
  port_.set_time(1'100'000);
  port_.advance();
  ASSERT_EQ(pipe_.sent.size(), 2u);
  EXPECT_EQ(psn_of(pipe_.sent[0]), 1u);
  EXPECT_EQ(psn_of(pipe_.sent[1]), 2u);
}

TEST_F(Ports, AFullPortIsBackPressureAndNotLoss) {
  set(Direction::kTx, "drop nth 7");
  pipe_.room = 3;
  std::vector<rte_mbuf*> packets;
  for (uint32_t i = 0; i < 200; ++i) packets.push_back(make_packet(i));
  uint32_t taken = port_.transmit(1, packets.data(), 200);
  EXPECT_LT(taken, 200u);
  for (int round = 0; round < 1000 && pipe_.sent.size() < 199; ++round) {
    pipe_.room += 16;
    if (taken < 200)
      taken += port_.transmit(1, packets.data() + taken, static_cast<uint16_t>(200 - taken));
    port_.advance();
  }
  ASSERT_EQ(taken, 200u);
  ASSERT_EQ(pipe_.sent.size(), 199u);
  for (uint32_t i = 0; i < 199; ++i) EXPECT_EQ(psn_of(pipe_.sent[i]), i < 6 ? i : i + 1);
  EXPECT_FALSE(port_.has_ready());
}

TEST_F(Ports, WhatOldImpairmentsHeldGoesOn) {
  set(Direction::kRx, "delay 1s");
  set(Direction::kTx, "delay 1s");
  pipe_.arriving.push_back(make_packet(1));
  rte_mbuf* leaving = make_packet(2);
  ASSERT_EQ(port_.transmit(1, &leaving, 1), 1);
  EXPECT_TRUE(receive_psns(port_).empty());
  set(Direction::kRx, "");
  set(Direction::kTx, "");
  EXPECT_TRUE(port_.has_ready());
  EXPECT_EQ(receive_psns(port_), std::vector<uint32_t>{1});
  port_.advance();
  ASSERT_EQ(pipe_.sent.size(), 1u);
  EXPECT_EQ(psn_of(pipe_.sent[0]), 2u);
  EXPECT_FALSE(port_.has_ready());
}

TEST_F(Ports, CorruptPacketsHaveAnIcrcThatTellsSo) {
  set(Direction::kRx, "corrupt 100%");
  pipe_.arriving.push_back(make_packet(1));
  rte_mbuf* packet = nullptr;
  ASSERT_EQ(port_.receive(0, &packet, 1), 1);
  EXPECT_NE(packet->ol_flags & icrc_flag(), 0u);
  wire::Packet p;
  EXPECT_TRUE(parse_packet(packet, p) != wire::ParseError::kNone || !icrc_valid(packet, p));
  release_packet(packet, references_);
}

// A mark changes what the network may change, and so neither ICRC nor checksum is wrong then.
TEST_F(Ports, MarkedPacketsAreValid) {
  set(Direction::kRx, "mark 100%");
  pipe_.arriving.push_back(make_packet(1));
  rte_mbuf* packet = nullptr;
  ASSERT_EQ(port_.receive(0, &packet, 1), 1);
  wire::Packet p;
  EXPECT_EQ(parse_packet(packet, p), wire::ParseError::kNone);
  EXPECT_TRUE(congestion_experienced(p));
  EXPECT_EQ(p.psn, Psn(1));
  release_packet(packet, references_);
}

}  // namespace
}  // namespace hostnic
