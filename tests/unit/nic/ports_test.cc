// SPDX-License-Identifier: BSD-3-Clause
// The ports around a port: what a NIC sends to itself, and impairments. Without a NIC.
#include <gtest/gtest.h>
#include <rte_mbuf.h>

#include <algorithm>
#include <deque>
#include <set>
#include <vector>

#include "dataplane/nic/egress/impaired_port.h"
#include "dataplane/nic/egress/loopback_port.h"
#include "dataplane/nic/packet/bundle.h"
#include "dataplane/nic/packet/packet.h"
#include "dataplane/nic/packet/packet_release.h"
#include "protocol/impair/spec.h"
#include "tests/unit/nic/packet_buffers.h"

namespace hostnic {
namespace {

using impair::Direction;

constexpr Ipv4Address kOwn{0x0a000001}, kOther{0x0a000002};

// Gives what is put into it, takes as much as it has room for.
class PipePort final : public Port {
 public:
  void clear() {
    for (auto* packets : {&arriving, &sent}) {
      for (rte_mbuf* packet : *packets) release_packet(packet);
      packets->clear();
    }
  }
  PortCapabilities capabilities() const override { return can; }
  uint16_t receive(uint16_t, rte_mbuf** packets, uint16_t max) override {
    uint16_t count = 0;
    for (; count < max && !arriving.empty(); ++count) {
      packets[count] = arriving.front();
      arriving.pop_front();
    }
    return count;
  }
  uint16_t transmit(uint16_t, rte_mbuf** packets, uint16_t count) override {
    uint16_t n = 0;
    for (; n < count && sent.size() < room; ++n) sent.push_back(packets[n]);
    return n;
  }
  int peer_of(uint32_t ip) const override { return ip == raw(kOther) ? 1 : -1; }
  int peers() const override { return 2; }
  bool backlog() const override { return false; }
  std::string describe() const override { return "pipe"; }

  std::deque<rte_mbuf*> arriving, sent;
  size_t room = SIZE_MAX;
  PortCapabilities can{.needs_icrc = false,
                       .needs_arp = false,
                       .allows_external_payload = true,
                       .delivers_whole_bth = true,
                       .carries_bundles = true};
};

class Ports : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    ASSERT_TRUE(packet_buffers_start());
    pools_ = create_mbuf_pools("ports_test", 4096, 0.1, 0);
    ASSERT_NE(pools_.header, nullptr);
  }
  static void TearDownTestSuite() { free_mbuf_pools(pools_); }
  // All buffers come back.
  void TearDown() override {
    pipe_.clear();
    EXPECT_EQ(rte_mempool_in_use_count(pools_.header), 0u);
    EXPECT_EQ(rte_mempool_in_use_count(pools_.copies), 0u);
  }

  static wire::FlowTemplate flow() {
    return wire::make_flow_template({2, 0, 0, 0, 0, 1}, {2, 0, 0, 0, 0, 2}, kOther, kOwn, 0xc000,
                                    wire::kEcnCapable, 64);
  }
  // A WRITE with so many bytes of payload that lies elsewhere.
  rte_mbuf* make_packet(uint32_t psn, uint16_t payload_bytes = 64,
                        wire::Opcode opcode = wire::Opcode::kWriteOnly) {
    wire::Packet p;
    p.opcode = opcode;
    p.dest_qpn = Qpn{0x10010};
    p.psn = Psn(psn);
    p.payload_bytes = payload_bytes;
    p.reth = {0, 1, payload_bytes};
    rte_mbuf* packet = rte_pktmbuf_alloc(pools_.header);
    const size_t header_bytes = wire::build(
        flow(), p, false, {}, {rte_pktmbuf_mtod(packet, std::byte*), wire::kMaxHeaderBytes});
    references_.acquire(region_, *packets_.count(), 1);
    attach_payload(*packet, header_bytes, payload_bytes,
                   {memory_.data(), &region_, packets_.count()});
    return packet;
  }
  rte_mbuf* make_bundle_of(uint32_t psn, uint32_t count) {
    rte_mbuf* packet = make_packet(psn);
    make_bundle(*packet, count - 1,
                {.payload_bytes = 64, .more = false, .ack_request = true, .solicited = false});
    return packet;
  }
  static uint32_t psn_of(rte_mbuf* packet) { return valid_headers(packet).psn.value(); }
  // The PSNs of all packets that arrive, in so many buffers.
  std::vector<uint32_t> receive_psns(Port& port) {
    std::vector<uint32_t> psns;
    buffers_ = 0;
    rte_mbuf* burst[kBurst];
    while (const uint16_t count = port.receive(0, burst, kBurst))
      for (uint16_t i = 0; i < count; ++i) take_psns(burst[i], psns);
    references_.flush();
    return psns;
  }
  // The PSNs of all packets that the port has sent.
  std::vector<uint32_t> sent_psns() {
    std::vector<uint32_t> psns;
    buffers_ = 0;
    for (rte_mbuf* packet : pipe_.sent) take_psns(packet, psns);
    pipe_.sent.clear();
    references_.flush();
    return psns;
  }
  void take_psns(rte_mbuf* buffer, std::vector<uint32_t>& psns) {
    ++buffers_;
    const uint64_t bytes = wire_bytes_of(buffer);
    uint64_t sum = 0;
    for (bool more = true; more; more = step_bundle(buffer, references_)) {
      wire::Packet p;
      sum += buffer->pkt_len;
      // What is corrupt may say anything.
      if (parse_packet(buffer, p) == wire::ParseError::kNone &&
          ((buffer->ol_flags & icrc_flag()) == 0 || icrc_valid(buffer, p)))
        psns.push_back(p.psn.value());
    }
    EXPECT_EQ(sum, bytes);
    release_packet(buffer, references_);
  }
  void set(Direction direction, const char* text) {
    impair::Spec spec;
    if (*text != '\0') {
      const auto parsed = impair::parse_spec(text);
      ASSERT_TRUE(parsed.has_value()) << text;
      spec = *parsed;
    }
    port_.set(direction, spec, 7);
  }

  static inline MbufPools pools_;
  std::vector<std::byte> memory_ = std::vector<std::byte>(65536);
  MemoryRegionEntry region_;
  QpPackets packets_;
  PayloadReferences references_;
  uint32_t buffers_ = 0;
  Counters counters_;
  PipePort pipe_;
  NicSettings settings_{.ip = kOwn};
  LoopbackPort loopback_{pipe_, settings_, counters_};
  ImpairedPort port_{loopback_, pools_, references_, counters_};
};

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

// The first of these answers must not be read after the second, which is copied.
TEST_F(Ports, Rule18_ABundleOfAnswersIsCopiedWhereAnAnswerMayBeHeldBack) {
  for (const bool holds_back : {false, true}) {
    set(Direction::kRx, holds_back ? "reorder nth 4 delay 1us" : "drop nth 4");
    rte_mbuf* bundle = make_packet(0, 64, wire::Opcode::kReadResponse);
    make_bundle(*bundle, 5,
                {.payload_bytes = 64, .more = false, .ack_request = false, .solicited = false});
    pipe_.arriving.push_back(bundle);
    rte_mbuf* packets[kBurst];
    const uint16_t count = port_.receive(0, packets, kBurst);
    EXPECT_EQ(count, holds_back ? 5 : 2);
    for (uint16_t i = 0; i < count; ++i) {
      EXPECT_EQ(external_payload(packets[i]) == nullptr, holds_back);
      release_packet(packets[i], references_);
    }
    set(Direction::kRx, "");
    receive_psns(port_);
  }
}

// What has been let through when impairments change: answers may have to be copies from then on.
TEST_F(Ports, Rule18_ABundleOfAnswersThatWaitsIsCopiedWhenImpairmentsChange) {
  set(Direction::kRx, "drop nth 1");
  rte_mbuf* bundle = make_packet(10, 64, wire::Opcode::kReadResponse);
  make_bundle(*bundle, 5,
              {.payload_bytes = 64, .more = false, .ack_request = false, .solicited = false});
  pipe_.arriving = {make_packet(0), make_packet(1), bundle};
  rte_mbuf* first = nullptr;
  ASSERT_EQ(port_.receive(0, &first, 1), 1);
  release_packet(first, references_);
  set(Direction::kRx, "delay 1us nth 1");
  references_.flush();
  EXPECT_EQ(region_.mbufs_out, 0u) << "none refers to the memory";
  EXPECT_EQ(receive_psns(port_), (std::vector<uint32_t>{10, 11, 12, 13, 14, 15}));
}

// READs are read in order (rule 18): where one answer may be held back, and so be copied and read
// early, the one before it is no longer read later than that.
TEST_F(Ports, Rule18_AnswersThatArriveAreReadBeforeOneIsHeldBack) {
  struct {
    const char* impairments;
    wire::Opcode opcode;
    bool copied;
  } constexpr kCases[] = {{"delay 100us nth 2", wire::Opcode::kReadResponse, true},
                          {"reorder nth 2 distance 3", wire::Opcode::kReadResponse, true},
                          {"duplicate nth 2", wire::Opcode::kReadResponse, true},
                          {"drop nth 2", wire::Opcode::kReadResponse, false},
                          {"delay 100us nth 2", wire::Opcode::kWriteOnly, false}};
  for (const auto& each : kCases) {
    SCOPED_TRACE(testing::Message() << each.impairments << " of " << to_string(each.opcode));
    set(Direction::kRx, each.impairments);
    pipe_.arriving = {make_packet(1, 64, each.opcode), make_packet(2, 64, each.opcode)};
    rte_mbuf* first = nullptr;
    ASSERT_EQ(port_.receive(0, &first, 1), 1);
    EXPECT_EQ(psn_of(first), 1u);
    EXPECT_EQ(external_payload(first) == nullptr, each.copied);
    release_packet(first, references_);
    set(Direction::kRx, "");
    receive_psns(port_);
  }
  set(Direction::kTx, "drop nth 2");
  EXPECT_FALSE(port_.holds_back_sent());
  set(Direction::kTx, "drop nth 2; delay 1us kind ack");
  EXPECT_TRUE(port_.holds_back_sent());
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
