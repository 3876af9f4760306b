// SPDX-License-Identifier: BSD-3-Clause
// Ports around a port that gives what a test puts into it.
#pragma once

#include <gtest/gtest.h>
#include <rte_mbuf.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "dataplane/nic/egress/impaired_port.h"
#include "dataplane/nic/egress/loopback_port.h"
#include "dataplane/nic/packet/bundle.h"
#include "dataplane/nic/packet/packet.h"
#include "dataplane/nic/packet/packet_release.h"
#include "protocol/impair/spec.h"
#include "tests/unit/nic/packet_buffers.h"

namespace hostnic {

using impair::Direction;

inline constexpr Ipv4Address kOwn{0x0a000001}, kOther{0x0a000002};

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
  PortView view() const override { return {}; }

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

}  // namespace hostnic
