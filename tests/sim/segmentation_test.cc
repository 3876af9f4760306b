// SPDX-License-Identifier: BSD-3-Clause
// Segmentation offload: several packets travel as one buffer, and nobody can tell but by the speed.
#include <gtest/gtest.h>

#include <cstring>
#include <utility>
#include <vector>

#include "dataplane/nic/limits.h"
#include "dataplane/nic/packet/bundle.h"
#include "dataplane/nic/packet/packet.h"
#include "dataplane/nic/packet/packet_release.h"
#include "protocol/wire/packet.h"
#include "tests/sim/pair.h"

namespace hostnic::sim {
namespace {

constexpr uint32_t kMtu = 4096;

WorldSettings settings_with(bool segmentation, uint32_t mtu_bytes = kMtu) {
  WorldSettings settings;
  settings.segmentation = segmentation;
  settings.mtu_bytes = mtu_bytes;
  return settings;
}

// What must not depend on it. Only how many ACKs there are may: one goes with each burst, and
// bursts are other ones.
struct Effect {
  uint64_t packets = 0, bytes = 0, placed = 0, resent = 0;
  std::vector<uint32_t> psns;                       // of both sides, at the end
  std::vector<std::pair<uint64_t, uint32_t>> done;  // completions: wr_id and length
  std::vector<uint8_t> memory;
};

Effect effect_of(Pair& pair) {
  constexpr uint64_t kAckBytes = wire::kFlowBytes + wire::kBthBytes + wire::kNethBytes +
                                 wire::kAethBytes + wire::kSackEthBytes;
  World& world = pair.world;
  Effect effect;
  const uint64_t acks = world.sum(Counter::acks_sent);
  effect.packets = world.sum(Counter::tx_packets) - acks;
  effect.bytes = world.sum(Counter::tx_bytes) - kAckBytes * acks;
  EXPECT_EQ(world.sum(Counter::rx_packets), world.sum(Counter::tx_packets));
  EXPECT_EQ(world.sum(Counter::rx_bytes), world.sum(Counter::tx_bytes));
  effect.placed = world.sum(Counter::bytes_copied_mapped);
  effect.resent = world.sum(Counter::retransmitted_packets);
  for (const Endpoint* end : {pair.near.get(), pair.far.get()}) {
    const QpStatus& status = end->host->channel().qp_status(0);
    effect.psns.push_back(status.transmitted_psn.load());
    effect.psns.push_back(status.una_psn);
    effect.psns.push_back(status.response_una_psn);
  }
  for (const Memory* memory : {&pair.local, &pair.remote})
    effect.memory.insert(effect.memory.end(), memory->data(), memory->data() + Pair::kBytes);
  return effect;
}

// The same requests on the same network, with and without.
class SegmentationTraffic : public testing::TestWithParam<uint32_t> {
 protected:
  static constexpr uint32_t kMaxBytes = 150'000;

  Effect run(bool segmentation, uint64_t seed) {
    QpSettings qp;
    qp.psn = 0xffffff - 50;  // it wraps
    Pair pair(qp, settings_with(segmentation, GetParam()));
    Random random(seed);
    constexpr SendOp kOps[] = {SendOp::kWrite,   SendOp::kWriteImm, SendOp::kSend,
                               SendOp::kSendImm, SendOp::kRead,     SendOp::kWrite};
    constexpr size_t kRequests = 30;
    for (size_t i = 0; i < kRequests; ++i)
      EXPECT_EQ(pair.post_receive(i, random.below(Pair::kBytes - kMaxBytes), kMaxBytes), 0);
    for (size_t i = 0; i < kRequests; ++i) {
      const SendOp op = kOps[random.below(std::size(kOps))];
      const auto bytes =
          static_cast<uint32_t>(random.percent(20) ? random.below(50) : random.below(kMaxBytes));
      const Sge sge = pair.at(random.below(Pair::kBytes - kMaxBytes), bytes);
      driver::SendRequest request = Pair::request(
          op, i, sge, pair.remote.address(random.below(Pair::kBytes - kMaxBytes)), pair.rkey);
      request.fence = op != SendOp::kRead;  // or what is pulled at a time depends on what arrives
      std::vector<Sge> sges = {sge};
      if (bytes > 10 && random.percent(30)) {
        const auto first = static_cast<uint32_t>(random.below(bytes));
        sges = {{sge.addr, first, sge.lkey}, {sge.addr + first, bytes - first, sge.lkey}};
      }
      request.sges = sges;
      EXPECT_EQ(pair.near->post_send(request), 0);
    }
    std::vector<std::pair<uint64_t, uint32_t>> done;
    for (const auto& c : pair.sent(kRequests)) {
      EXPECT_EQ(c.status, WcStatus::kSuccess);
      done.emplace_back(c.wr_id, c.byte_len);
    }
    EXPECT_EQ(done.size(), kRequests);
    for (const auto& c : pair.far->poll(*pair.far->recv_cq)) done.emplace_back(c.wr_id, c.byte_len);
    pair.world.check_at_rest();
    EXPECT_FALSE(pair.world.failed()) << pair.world.report();
    EXPECT_EQ(pair.world.sum(Counter::tx_bundles) != 0, segmentation);
    // Every one of them: both sides were in RTS before the first.
    EXPECT_EQ(pair.world.sum(Counter::rx_bundles), pair.world.sum(Counter::tx_bundles));
    Effect effect = effect_of(pair);
    effect.done = done;
    return effect;
  }
};

TEST_P(SegmentationTraffic, SamePacketsSameCountersSameCompletions) {
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const Effect without = run(false, seed), with = run(true, seed);
    EXPECT_EQ(with.packets, without.packets);
    EXPECT_EQ(with.bytes, without.bytes);
    EXPECT_EQ(with.placed, without.placed);
    EXPECT_EQ(with.psns, without.psns);
    EXPECT_EQ(with.done, without.done);
    EXPECT_TRUE(with.memory == without.memory);
    EXPECT_EQ(with.resent + without.resent, 0u);
  }
}
INSTANTIATE_TEST_SUITE_P(Mtu, SegmentationTraffic, testing::Values(256u, 1024u, 4096u));

// A bundle that was taken apart is what build() makes of the packets.
TEST(Segmentation, ABundleTakenApartIsItsPackets) {
  Pair pair;  // for its pools
  MemoryRegionEntry region;
  QpPackets packets;
  PayloadReferences stock;
  for (const wire::Opcode opcode :
       {wire::Opcode::kWriteOnly, wire::Opcode::kSend, wire::Opcode::kReadResponse}) {
    const auto flow =
        wire::make_flow_template({2, 0, 0, 0, 0, 1}, {2, 0, 0, 0, 0, 2}, Ipv4Address{0x0a000001},
                                 Ipv4Address{0x0a000002}, 0xc120, 0x42, 17);
    constexpr uint32_t kPackets = 5, kLastBytes = 77;
    const auto packet_at = [&](uint32_t i) {
      wire::Packet p;
      p.opcode = opcode;
      p.dest_qpn = Qpn{0x123456};
      p.src_qpn = Qpn{0x654321};
      p.psn = Psn(0xfffffe) + i;
      p.attempt = 2;
      p.policy = wire::Policy::kGoBackN;
      p.cont = i != 0;
      p.more = i + 1 != kPackets;
      p.ack_request = p.solicited = !p.more && opcode != wire::Opcode::kReadResponse;
      p.payload_bytes = p.more ? 1024 : kLastBytes;
      const uint64_t offset = i * 1024;
      const uint32_t whole = (kPackets - 1) * 1024 + kLastBytes;
      p.reth = {offset, 0xabcdef, opcode == wire::Opcode::kSend ? whole : p.payload_bytes};
      p.response_epoch = opcode == wire::Opcode::kReadResponse ? 9 : 0;
      return p;
    };
    rte_mbuf* bundle = rte_pktmbuf_alloc(pair.world.pools().header);
    ASSERT_NE(bundle, nullptr);
    auto* frame = rte_pktmbuf_mtod(bundle, std::byte*);
    const size_t header_bytes =
        wire::build(flow, packet_at(0), false, {}, {frame, wire::kMaxHeaderBytes});
    std::vector<std::byte> payload(kPackets * 1024);
    packets.count()->add(1);
    region.mbufs_out = 1;
    attach_payload(*bundle, header_bytes, 1024, {payload.data(), &region, packets.count()});
    const wire::Packet last = packet_at(kPackets - 1);
    make_bundle(*bundle, kPackets - 1,
                {last.payload_bytes, last.more, last.ack_request, last.solicited});
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < kPackets; ++i) bytes += header_bytes + packet_at(i).payload_bytes;
    EXPECT_EQ(packets_in(bundle), kPackets);
    EXPECT_EQ(wire_bytes_of(bundle), bytes);
    for (uint32_t i = 0; i < kPackets; ++i) {
      SCOPED_TRACE(testing::Message() << wire::to_string(opcode) << " packet " << i);
      std::vector<std::byte> expected(wire::kMaxHeaderBytes);
      expected.resize(wire::build(flow, packet_at(i), false, {}, expected));
      ASSERT_EQ(bundle->data_len, expected.size());
      EXPECT_EQ(bundle->pkt_len, expected.size() + packet_at(i).payload_bytes);
      EXPECT_EQ(std::memcmp(frame, expected.data(), expected.size()), 0);
      EXPECT_EQ(external_payload(bundle)->bytes, payload.data() + i * 1024);
      EXPECT_EQ(step_bundle(bundle, stock), i + 1 != kPackets);
    }
    release_packet(bundle);
    EXPECT_EQ(region.mbufs_out, 0u);
  }
}

// Impairments see packets: the ones that they name are lost, the others are not, and stay together.
TEST(Segmentation, ImpairmentsSeePackets) {
  for (const SendOp op : {SendOp::kWrite, SendOp::kSend, SendOp::kRead}) {
    for (const bool sent : {false, true}) {
      SCOPED_TRACE(testing::Message() << "op " << static_cast<int>(op) << ", sent " << sent);
      Pair pair({}, settings_with(true));
      const uint32_t bytes = 15 * kMtu + 5;
      ASSERT_EQ(pair.post_receive(1, 0, bytes), 0);
      if (op == SendOp::kRead) {
        for (uint32_t i = 0; i < bytes; ++i) pair.remote.data()[i] = static_cast<uint8_t>(i * 3);
        pair.world.impair(sent ? 1 : 0,
                          std::string(sent ? "tx" : "rx") + " drop nth 4 kind read-response");
      } else {
        pair.world.impair(sent ? 0 : 1, std::string(sent ? "tx" : "rx") + " drop nth 4");
      }
      pair.post(op, 7, pair.at(0, bytes));
      EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
      EXPECT_TRUE(equal(pair.local, 0, pair.remote, 0, bytes));
      const auto dropped = [&](uint32_t host) {
        const auto c = pair.world.host(host).nic().impairment_counters(!sent);
        return c ? c->dropped : 0;
      };
      EXPECT_EQ(dropped(0) + dropped(1), 1u);
      EXPECT_GE(pair.world.sum(Counter::tx_bundles), 1u);
      EXPECT_EQ(pair.world.sum(Counter::bundle_parts), 1u);
      // What comes in front of the lost packet, and what comes behind it.
      EXPECT_EQ(pair.world.sum(Counter::rx_bundles), 2u);
      EXPECT_GE(pair.world.sum(Counter::out_of_sequence), 11u);
      EXPECT_LE(pair.world.sum(Counter::out_of_sequence), 12u);
    }
  }
}

// Only the packets that leave the region are refused.
TEST(Segmentation, ABundleThatLeavesItsRegionIsDispatchedPacketByPacket) {
  for (const bool segmentation : {false, true}) {
    Pair pair({}, settings_with(segmentation));
    std::memset(pair.remote.data(), 0, Pair::kBytes);
    pair.post(SendOp::kWrite, 1, pair.at(0, 10 * kMtu), Pair::kBytes - 3 * kMtu);
    EXPECT_EQ(pair.status_of_one(), WcStatus::kRemAccessErr);
    EXPECT_TRUE(equal(pair.local, 0, pair.remote, Pair::kBytes - 3 * kMtu, 3 * kMtu));
    EXPECT_EQ(pair.world.sum(Counter::tx_bundles) != 0, segmentation);
    EXPECT_EQ(pair.far->host->channel().qp_status(0).events & kEventAccessError,
              uint32_t{kEventAccessError});
  }
}

TEST(Segmentation, AReceiverThatIsNotReadyGetsItAgain) {
  Pair pair({}, settings_with(true));
  pair.post(SendOp::kSend, 1, pair.at(0, 9 * kMtu + 1));
  pair.world.run_for(50 * kMicrosecond);
  EXPECT_EQ(pair.far_counter(Counter::rnr_nak_sent), 1u);
  ASSERT_EQ(pair.post_receive(1, 0, 10 * kMtu), 0);
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  const auto received = pair.received(1);
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].byte_len, 9 * kMtu + 1);
  EXPECT_TRUE(equal(pair.local, 0, pair.remote, 0, 9 * kMtu + 1));
}

TEST(Segmentation, WhatNeedsPacketsSwitchesItOff) {
  const auto bundles_sent = [](const WorldSettings& settings, const std::string& impairment) {
    Pair pair({}, settings);
    if (!impairment.empty()) pair.world.impair(0, impairment);
    pair.post(SendOp::kWrite, 1, pair.at(0, 8 * kMtu));
    EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
    EXPECT_TRUE(equal(pair.local, 0, pair.remote, 0, 8 * kMtu));
    return pair.near_counter(Counter::tx_bundles);
  };
  const WorldSettings on = settings_with(true);
  WorldSettings with_icrc = on, ethernet = on;
  with_icrc.always_icrc = true;
  ethernet.link.is_wire = false;
  EXPECT_EQ(bundles_sent(on, ""), 1u);
  EXPECT_EQ(bundles_sent(settings_with(false), ""), 0u);
  EXPECT_EQ(bundles_sent(with_icrc, ""), 0u);
  EXPECT_EQ(bundles_sent(ethernet, ""), 0u);
  EXPECT_EQ(bundles_sent(on, "tx delay 1us"), 1u) << "impairments decide about each packet";
}

// One buffer for as much as lies in one piece, whatever the scatter list and the message's end.
TEST(Segmentation, ScatterListsAndImmediateData) {
  for (const SendOp op : {SendOp::kWriteImm, SendOp::kSendImm, SendOp::kWrite}) {
    Pair pair({}, settings_with(true));
    ASSERT_EQ(pair.post_receive(1, 0, 256 * 1024), 0);
    const std::vector<Sge> sges = {pair.at(0, 4 * kMtu), pair.at(7 * kMtu, 2 * kMtu + 9),
                                   pair.at(20 * kMtu, 17 * kMtu)};
    driver::SendRequest request = Pair::request(op, 5, sges[0], pair.remote.address(0), pair.rkey);
    request.sges = sges;
    ASSERT_EQ(pair.near->post_send(request), 0);
    EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
    EXPECT_TRUE(equal(pair.local, 0, pair.remote, 0, 4 * kMtu));
    EXPECT_TRUE(equal(pair.local, 7 * kMtu, pair.remote, 4 * kMtu, 2 * kMtu + 9));
    EXPECT_TRUE(equal(pair.local, 20 * kMtu, pair.remote, 6 * kMtu + 9, 17 * kMtu));
    EXPECT_GE(pair.near_counter(Counter::tx_bundles), 2u);
    if (op != SendOp::kWrite) {
      const auto received = pair.received(1);
      ASSERT_EQ(received.size(), 1u);
      EXPECT_EQ(received[0].byte_len, 23 * kMtu + 9);
    }
  }
}

// What a NIC sends to itself travels in bundles, too.
TEST(Segmentation, Loopback) {
  WorldSettings settings = settings_with(true);
  settings.hosts = 1;
  Pair pair({}, settings);
  pair.post(SendOp::kWrite, 1, pair.at(3, 200'001), 5);
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  EXPECT_TRUE(equal(pair.local, 3, pair.remote, 5, 200'001));
  EXPECT_GE(pair.near_counter(Counter::tx_bundles), 1u);
}

}  // namespace
}  // namespace hostnic::sim
