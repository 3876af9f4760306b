// SPDX-License-Identifier: BSD-3-Clause
// Nodes of MRC that tell each other of ports, and ask by paths (docs/mrc.md, "Planes and ports").
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "dataplane/nic/transport/mrc/endpoint.h"
#include "tests/sim/network.h"

namespace hostnic::sim {
namespace {

using State = mrc::ProbeOutcome::State;

constexpr const char* kFourPlanes = "rate 10Gbit queue 128 ecn 32 planes 4";
constexpr uint16_t kFirstValue = wire::kFlowTagBase;

struct Planes : Network {
  explicit Planes(uint32_t hosts = 2) : Network(settings(hosts)) {}
  static WorldSettings settings(uint32_t hosts) {
    WorldSettings settings = with(Transport::kMrc, hosts, kFourPlanes);
    settings.mrc_entropy_values = 64;
    settings.mrc_planes = 4;
    return settings;
  }
  MrcEndpoint& endpoint(uint32_t host) { return world().host(host).nic().mrc_endpoint(); }
  Ipv4Address address(uint32_t host) { return world().host(host).nic().settings().ip; }
  // What comes to a host by each plane in a time.
  std::vector<uint64_t> packets(uint32_t host, uint64_t duration_ns) {
    std::vector<uint64_t> counts;
    for (const impair::LinkCounters& path : links_to(host).paths) counts.push_back(path.packets);
    rates(duration_ns);
    const auto links = links_to(host);
    for (size_t i = 0; i < counts.size(); ++i) counts[i] = links.paths[i].packets - counts[i];
    return counts;
  }
  uint64_t sum(Counter counter) { return world().sum(counter); }
};

// Either end's port: the sender's own, or the peer's, which an update tells of.
TEST(MrcPortStatus, NothingLeavesByAPlaneWhosePortIsDown) {
  for (const uint32_t host : {0u, 1u}) {
    Planes network;
    network.add({0, 1}, 16);
    network.rates(5 * kMillisecond);
    ASSERT_EQ(network.endpoint(host).set_port(2, false), 0);
    network.rates(2 * kMillisecond);
    const std::vector<uint64_t> down = network.packets(1, 10 * kMillisecond);
    EXPECT_EQ(down[1], 0u) << "port of host " << host;
    for (const size_t plane : {0u, 2u, 3u}) EXPECT_GT(down[plane], 500u);
    EXPECT_EQ(network.sum(Counter::repeated_timeout), 0u);
    EXPECT_EQ(network.sum(Counter::mrc_paths_lost), 0u);
    ASSERT_EQ(network.endpoint(host).set_port(2, true), 0);
    network.rates(2 * kMillisecond);
    EXPECT_GT(network.packets(1, 10 * kMillisecond)[1], 500u);
    EXPECT_EQ(network.sum(Counter::mrc_endpoint_answers), 2u);
  }
}

TEST(MrcPortStatus, AConnectionThatBeginsLaterKnowsOfPorts) {
  Planes network;
  network.add({0, 1}, 16);
  network.rates(5 * kMillisecond);
  ASSERT_EQ(network.endpoint(0).set_port(1, false), 0);
  ASSERT_EQ(network.endpoint(1).set_port(3, false), 0);
  network.rates(2 * kMillisecond);
  network.add({0, 1}, 16);
  const std::vector<uint64_t> packets = network.packets(1, 10 * kMillisecond);
  EXPECT_EQ(packets[0], 0u);
  EXPECT_EQ(packets[2], 0u);
  EXPECT_GT(packets[1], 500u);
  EXPECT_GT(packets[3], 500u);
}

TEST(MrcPortStatus, AnUpdateThatIsLostGoesAgain) {
  Planes network;
  network.add({0, 1}, 48);
  uint32_t lost = 0;
  network.world().wire().set_judge([&](uint32_t, const wire::Packet& p) {
    const bool is_lost = p.opcode == wire::Opcode::kMrcEndpointRequest && lost < 3;
    lost += is_lost;
    return Fate{.drop = is_lost};
  });
  network.rates(5 * kMillisecond);
  ASSERT_EQ(network.endpoint(1).set_port(4, false), 0);
  network.rates(20 * kMillisecond);
  EXPECT_EQ(lost, 3u);
  EXPECT_EQ(network.packets(1, 10 * kMillisecond)[3], 0u);
}

// A host to which nothing is connected could take paths away from others.
TEST(MrcPortStatus, AStrangersUpdateIsNotBelieved) {
  Planes network(3);
  network.add({0, 1}, 48);
  network.add({2, 1}, 1);
  network.rates(5 * kMillisecond);
  // Host 2 tells host 1, to which it is connected; the update is changed into one to host 0.
  rte_mbuf* packet = rte_pktmbuf_alloc(network.world().pools().data);
  ASSERT_NE(packet, nullptr);
  wire::mrc::Packet headers;
  headers.opcode = wire::mrc::Opcode::kEndpointRequest;
  headers.dest_qpn = Qpn{2};
  headers.erth.port_status_mask = 0b10;
  wire::Packet p;
  p.opcode = wire::Opcode::kMrcEndpointRequest;
  p.dest_qpn = headers.dest_qpn;
  p.mrc = &headers;
  const auto flow =
      wire::make_flow_template({}, {}, network.address(2), network.address(0), kFirstValue, 0);
  auto* frame = rte_pktmbuf_mtod(packet, std::byte*);
  packet->data_len = packet->pkt_len =
      static_cast<uint16_t>(wire::build(flow, p, false, {}, {frame, wire::kMaxHeaderBytes}));
  network.world().wire().inject(0, packet);
  const std::vector<uint64_t> packets = network.packets(1, 10 * kMillisecond);
  for (const uint64_t count : packets) EXPECT_GT(count, 500u);
  EXPECT_EQ(network.sum(Counter::mrc_endpoint_requests), 1u);
  EXPECT_EQ(network.sum(Counter::rx_unknown_qp), 1u);
  EXPECT_EQ(network.sum(Counter::mrc_endpoint_answers), 0u);
}

// Each costs a look at all queue pairs.
TEST(MrcPortStatus, UpdatesHaveARate) {
  Planes network;
  network.add({0, 1}, 16);
  network.rates(5 * kMillisecond);
  for (uint32_t turn = 0; turn < 1'000; ++turn) {
    ASSERT_EQ(network.endpoint(1).set_port(1 + turn % 2, (turn & 2) != 0), 0);
    network.rates(20 * kMicrosecond);
  }
  const uint64_t requests = network.sum(Counter::mrc_endpoint_requests);
  EXPECT_GT(requests, 900u);
  const uint64_t taken = requests - network.sum(Counter::mrc_endpoint_dropped);
  EXPECT_GE(taken, MrcEndpoint::kAtOnce);
  EXPECT_LT(taken, MrcEndpoint::kAtOnce + 10);
}

TEST(MrcPortStatus, OnePortStaysUp) {
  Planes network;
  EXPECT_EQ(network.endpoint(0).set_port(0, false), EINVAL);
  EXPECT_EQ(network.endpoint(0).set_port(5, false), EINVAL);
  for (uint32_t port = 1; port < 4; ++port) EXPECT_EQ(network.endpoint(0).set_port(port, false), 0);
  EXPECT_EQ(network.endpoint(0).set_port(4, false), EBUSY);
  EXPECT_EQ(network.endpoint(0).set_port(1, true), 0);
  EXPECT_EQ(network.endpoint(0).set_port(4, false), 0);
}

TEST(MrcPortStatus, ADeniedValueIsNotUsed) {
  Planes network;
  network.add({0, 1}, 48);
  uint16_t denied = 0;
  uint64_t by_it = 0;
  network.world().wire().set_judge([&](uint32_t to, const wire::Packet& p) {
    if (to == 1 && wire::opcode_info(p.opcode).has_payload) {
      if (denied == 0) denied = p.src_port;
      by_it += p.src_port == denied;
    }
    return Fate{};
  });
  network.rates(5 * kMillisecond);
  EXPECT_GT(by_it, 10u);
  EXPECT_EQ(network.endpoint(0).deny(80, true), EINVAL);
  ASSERT_EQ(network.endpoint(0).deny(denied, true), 0);
  network.rates(1 * kMillisecond);
  by_it = 0;
  network.rates(10 * kMillisecond);
  EXPECT_EQ(by_it, 0u);
  ASSERT_EQ(network.endpoint(0).deny(denied, false), 0);
  network.rates(10 * kMillisecond);
  EXPECT_GT(by_it, 10u);
}

TEST(MrcPathProbe, TellsABlackPlane) {
  Planes network;
  network.world().impair(1, "rx blackhole plane 3");
  for (uint16_t plane = 0; plane < 4; ++plane)
    EXPECT_TRUE(network.endpoint(0).probe(network.address(0), network.address(1),
                                          static_cast<uint16_t>(kFirstValue + plane)));
  network.rates(2'000 * kMillisecond);
  for (uint16_t plane = 0; plane < 4; ++plane) {
    const auto outcome = network.endpoint(0).requests().outcome(
        network.address(1), static_cast<uint16_t>(kFirstValue + plane));
    EXPECT_EQ(outcome.state, plane == 2 ? State::kLost : State::kAnswered) << plane;
    if (plane == 2) continue;
    EXPECT_GT(outcome.rtt_ns, 0u);
    EXPECT_LT(outcome.rtt_ns, 100'000u);
  }
}

// Nobody has a host answer as often as he likes.
TEST(MrcPathProbe, AnswersHaveARate) {
  Planes network;
  uint32_t asked = 0;
  for (uint32_t turn = 0; turn < 40; ++turn) {
    for (uint16_t value = 0; value < 60; ++value)
      asked += network.endpoint(0).probe(network.address(0), network.address(1),
                                         static_cast<uint16_t>(kFirstValue + value));
    network.rates(100 * kMicrosecond);
    network.endpoint(0).requests().forget_probes(network.address(1));
  }
  EXPECT_GT(asked, 2'000u);
  const uint64_t answers = network.sum(Counter::mrc_endpoint_answers);
  EXPECT_GT(answers, 60u);
  // 4 ms at ten a millisecond, and a burst.
  EXPECT_LT(answers, 40u + 70u);
}

}  // namespace
}  // namespace hostnic::sim
