// SPDX-License-Identifier: BSD-3-Clause
// Bundles of ACKs, of messages of one packet and of READ requests, taken apart: byte for byte the
// packets that they stand for, and no reference to memory is left.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "dataplane/nic/limits.h"
#include "dataplane/nic/packet/bundle.h"
#include "dataplane/nic/packet/packet.h"
#include "dataplane/nic/packet/packet_release.h"
#include "protocol/wire/packet.h"
#include "tests/sim/pair.h"

namespace hostnic::sim {
namespace {

// Packets of a bundle differ in their source port.
uint16_t port_at(uint32_t i) { return static_cast<uint16_t>(0xc000 + 37 * i); }
wire::FlowTemplate flow_of(uint16_t src_port, uint8_t traffic_class = 0x42,
                           uint8_t hop_limit = 17) {
  return wire::make_flow_template({2, 0, 0, 0, 0, 1}, {2, 0, 0, 0, 0, 2}, Ipv4Address{0x0a000001},
                                  Ipv4Address{0x0a000002}, src_port, traffic_class, hop_limit);
}
// A buffer that holds nothing but the headers of `p`.
rte_mbuf* packet_of(const wire::Packet& p, const wire::FlowTemplate& flow, rte_mempool* pool) {
  rte_mbuf* packet = rte_pktmbuf_alloc(pool);
  if (packet == nullptr) return nullptr;
  auto* frame = rte_pktmbuf_mtod(packet, std::byte*);
  packet->pkt_len = packet->data_len =
      static_cast<uint16_t>(wire::build(flow, p, false, {}, {frame, wire::kMaxHeaderBytes}));
  return packet;
}
// Takes a bundle apart, whose packet `i` is made_at(i) with source port port_at(i).
template <class MadeAt>
void expect_apart(rte_mbuf* packet, uint32_t count, MadeAt made_at) {
  PayloadReferences stock;
  EXPECT_EQ(wire_bytes_of(packet), uint64_t{packet->pkt_len} * count);
  for (uint32_t i = 0; i < count; ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(packets_in(packet), count - i);
    std::vector<std::byte> expected(wire::kMaxHeaderBytes);
    expected.resize(wire::build(flow_of(port_at(i)), made_at(i), false, {}, expected));
    ASSERT_EQ(packet->pkt_len, expected.size());
    EXPECT_EQ(std::memcmp(rte_pktmbuf_mtod(packet, std::byte*), expected.data(), expected.size()),
              0);
    EXPECT_EQ(step_bundle(packet, stock), i + 1 != count);
  }
}

// A bundle of ACKs that was taken apart is what build() makes of them.
TEST(BundledPackets, ABundleOfAcksTakenApartIsItsPackets) {
  Pair pair;  // for its pools
  const auto ack_at = [](uint32_t i) {
    wire::Packet p;
    p.opcode = wire::Opcode::kAck;
    p.dest_qpn = Qpn{0x123450 + i};
    p.src_qpn = Qpn{0x654320 + i};
    p.aeth.kind = wire::AckKind::kAck;
    p.aeth.code = 31;
    p.aeth.msn = 0xfffff0 + i;
    p.psn = p.sack.base = Psn(0xfffffe + i);
    p.sack.highest_acceptable = p.sack.base + 1023;
    p.sack.has_credit = i % 2 == 0;
    p.sack.recv_sn_limit = 77 * i;
    p.sack.echo_valid = i % 3 != 0;
    p.sack.echo_psn = Psn(i);
    p.sack.echo_attempt = i % 4;
    p.sack.echo_duplicate = i % 5 == 0;
    p.sack.congestion_mark = i % 7 == 0;
    return p;
  };
  const auto first_flow = flow_of(port_at(0));
  rte_mbuf* packet = packet_of(ack_at(0), first_flow, pair.world.pools().control);
  ASSERT_NE(packet, nullptr);
  AckBundleBuilder bundle;
  EXPECT_FALSE(bundle.add(2, first_flow)) << "there is no first";
  bundle.begin(packet, 2, first_flow);
  EXPECT_FALSE(bundle.add(3, first_flow)) << "another peer";
  EXPECT_FALSE(bundle.add(2, flow_of(port_at(1), 0x43))) << "another traffic class";
  EXPECT_FALSE(bundle.add(2, flow_of(port_at(1), 0x42, 18))) << "another hop limit";
  uint32_t count = 1;
  while (BundledAck* const place = bundle.add(2, flow_of(port_at(count)))) {
    const wire::Packet ack = ack_at(count++);
    *place = {.dest_qpn = ack.dest_qpn,
              .src_qpn = ack.src_qpn,
              .msn = ack.aeth.msn,
              .src_port = place->src_port,
              .sack = ack.sack};
  }
  EXPECT_EQ(count, 11u);
  ASSERT_EQ(bundle.take(), packet);
  EXPECT_TRUE(bundle.empty());
  expect_apart(packet, count, ack_at);
  rte_pktmbuf_free(packet);
}

// The same of READ requests.
TEST(BundledPackets, ABundleOfReadsTakenApartIsItsPackets) {
  Pair pair;  // for its pools
  const auto request_at = [](uint32_t i) {
    wire::Packet p;
    p.opcode = wire::Opcode::kReadRequest;
    p.dest_qpn = Qpn{0x123450 + i};
    p.psn = Psn(0xfffffe + i);
    p.attempt = i % 4;
    p.ack_request = i % 2 == 0;
    p.solicited = i % 3 == 0;
    p.reth = {uint64_t{0x7000'0000'0000} + i, 0xabcdef + i, 1'000'000 + i};
    p.read = {0x1000 + i, Psn(0xfffff9 + 3 * i), static_cast<uint8_t>(250 + i), 4096 * i, 4096 + i};
    return p;
  };
  const auto first_flow = flow_of(port_at(0));
  rte_mbuf* packet = packet_of(request_at(0), first_flow, pair.world.pools().header);
  ASSERT_NE(packet, nullptr);
  ReadBundleBuilder bundle;
  EXPECT_FALSE(bundle.add(2, first_flow)) << "there is no first";
  bundle.begin(packet, 2, first_flow);
  EXPECT_FALSE(bundle.add(3, first_flow)) << "another peer";
  EXPECT_FALSE(bundle.add(2, flow_of(port_at(1), 0x43))) << "another traffic class";
  uint32_t count = 1;
  while (BundledRead* const place = bundle.add(2, flow_of(port_at(count)))) {
    const wire::Packet p = request_at(count++);
    *place = {.dest_qpn = p.dest_qpn,
              .psn = p.psn,
              .src_port = place->src_port,
              .attempt = p.attempt,
              .ack_request = p.ack_request,
              .solicited = p.solicited,
              .reth = p.reth,
              .read = p.read};
  }
  EXPECT_EQ(count, 16u);
  ASSERT_EQ(bundle.take(), packet);
  expect_apart(packet, count, request_at);
  rte_pktmbuf_free(packet);
}

// The same of requests; and when it is freed, taken apart or not, no reference is left.
TEST(BundledPackets, ABundleOfRequestsTakenApartIsItsPackets) {
  Pair pair;  // for its pools
  MemoryRegionEntry first_region, other_region;
  QpPackets first_packets, other_packets;
  std::vector<std::byte> payload(20 * 4096);
  constexpr uint32_t kMost = BundledRequests::kCapacity + 1;
  for (const wire::Opcode opcode : {wire::Opcode::kWriteOnly, wire::Opcode::kSend}) {
    const auto request_at = [&](uint32_t i) {
      wire::Packet p;
      p.opcode = opcode;
      p.dest_qpn = Qpn{0x123450 + i};
      p.src_qpn = Qpn{0x654320 + i};
      p.policy = wire::Policy::kSelective;
      p.psn = Psn(0xfffffe + i);
      p.attempt = i % 4;
      p.ack_request = i % 2 == 0;
      p.solicited = i % 3 == 0;
      p.payload_bytes = static_cast<uint16_t>(1 + 255 * i);
      p.reth = {opcode == wire::Opcode::kSend ? 0 : uint64_t{0x7000'0000'0000} + i, 0xabcdef + i,
                p.payload_bytes};
      return p;
    };
    for (const uint32_t apart : {0u, 1u, 7u, kMost - 1}) {
      PayloadReferences stock;
      const auto payload_at = [&](uint32_t i) {
        MemoryRegionEntry& region = i % 2 == 0 ? first_region : other_region;
        QpPackets& packets = i % 2 == 0 ? first_packets : other_packets;
        stock.acquire(region, *packets.count(), 1);
        return ExternalPayload{payload.data() + 4096 * i, &region, packets.count()};
      };
      rte_mbuf* packet = rte_pktmbuf_alloc(pair.world.pools().header);
      ASSERT_NE(packet, nullptr);
      auto* frame = rte_pktmbuf_mtod(packet, std::byte*);
      const auto first_flow = flow_of(port_at(0));
      const size_t header_bytes =
          wire::build(first_flow, request_at(0), false, {}, {frame, wire::kMaxHeaderBytes});
      attach_payload(*packet, header_bytes, request_at(0).payload_bytes, payload_at(0));
      uint64_t bytes = packet->pkt_len;
      RequestBundleBuilder bundle;
      EXPECT_EQ(bundle.add(2, first_flow, opcode, 1), nullptr) << "there is no first";
      bundle.begin(packet, 2, first_flow, opcode);
      const auto another =
          opcode == wire::Opcode::kSend ? wire::Opcode::kWriteOnly : wire::Opcode::kSend;
      EXPECT_EQ(bundle.add(3, first_flow, opcode, 1), nullptr) << "another peer";
      EXPECT_EQ(bundle.add(2, first_flow, another, 1), nullptr) << "another opcode";
      EXPECT_EQ(bundle.add(2, flow_of(port_at(1), 0x43), opcode, 1), nullptr) << "traffic class";
      EXPECT_EQ(bundle.add(2, flow_of(port_at(1), 0x42, 18), opcode, 1), nullptr) << "hop limit";
      EXPECT_EQ(packets_in(packet), 1u);
      uint32_t count = 1;
      for (BundledRequest* place; (place = bundle.add(2, flow_of(port_at(count)), opcode,
                                                      request_at(count).payload_bytes)) != nullptr;
           ++count) {
        const wire::Packet p = request_at(count);
        const ExternalPayload external = payload_at(count);
        place->bytes = external.bytes;
        place->region = external.region;
        place->packets = external.packets;
        place->dest_qpn = p.dest_qpn;
        place->src_qpn = opcode == wire::Opcode::kSend ? p.src_qpn : Qpn{};
        place->psn = p.psn;
        place->reth = p.reth;
        place->attempt = p.attempt;
        place->ack_request = p.ack_request;
        place->solicited = p.solicited;
        bytes += header_bytes + p.payload_bytes;
      }
      EXPECT_EQ(count, kMost);
      ASSERT_EQ(bundle.take(), packet);
      EXPECT_TRUE(bundle.empty());
      for (uint32_t i = 0; i <= apart; ++i) {
        SCOPED_TRACE(testing::Message() << wire::to_string(opcode) << " packet " << i);
        EXPECT_EQ(packets_in(packet), count - i);
        EXPECT_EQ(wire_bytes_of(packet), bytes);
        std::vector<std::byte> expected(wire::kMaxHeaderBytes);
        expected.resize(wire::build(flow_of(port_at(i)), request_at(i), false, {}, expected));
        ASSERT_EQ(packet->data_len, expected.size());
        EXPECT_EQ(packet->pkt_len, expected.size() + request_at(i).payload_bytes);
        EXPECT_EQ(std::memcmp(frame, expected.data(), expected.size()), 0);
        EXPECT_EQ(external_payload(packet)->bytes, payload.data() + 4096 * i);
        bytes -= packet->pkt_len;
        if (i != apart) {
          EXPECT_TRUE(step_bundle(packet, stock));
        }
      }
      if (apart == kMost - 1) {
        EXPECT_FALSE(step_bundle(packet, stock));
      }
      if (apart % 2 == 0) {
        release_packet(packet, stock);
      } else {
        release_packet(packet);
      }
      stock.flush();
      EXPECT_EQ(first_region.mbufs_out + other_region.mbufs_out, 0u);
      EXPECT_FALSE(first_packets.any_out() || other_packets.any_out());
    }
  }
}

}  // namespace
}  // namespace hostnic::sim
