// SPDX-License-Identifier: BSD-3-Clause
// Neighbours on an Ethernet segment: clients that send to addresses at which nobody is, and hosts
// that lie about theirs.
#include "protocol/wire/arp.h"
#include "tests/sim/pair.h"

namespace hostnic::sim {
namespace {

constexpr wire::MacAddress kNobody = {0x02, 0, 0, 0, 0, 77};
constexpr Ipv4Address kDead{0x0a000100};  // the first address at which nobody is

WorldSettings ethernet(uint32_t hosts = 2) {
  WorldSettings settings;
  settings.hosts = hosts;
  settings.link.is_wire = false;
  return settings;
}

// Somebody says to host `to` that it has host `whose`'s address.
void lie(World& world, uint32_t to, uint32_t whose) {
  const wire::Arp question = wire::make_arp_request({}, address_of(to), address_of(whose));
  rte_mbuf* packet = rte_pktmbuf_alloc(world.pools().data);
  ASSERT_NE(packet, nullptr);
  auto* frame = rte_pktmbuf_mtod(packet, std::byte*);
  packet->data_len = static_cast<uint16_t>(
      wire::build_arp(wire::make_arp_reply(kNobody, question), {frame, wire::kArpFrameBytes}));
  packet->pkt_len = packet->data_len;
  world.wire().inject(to, packet);
}

void send_datagrams(Pair& pair, Endpoint& from, uint32_t first, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    const Sge sge = pair.at(0, 64);
    driver::SendRequest request;
    request.op = SendOp::kSend;
    request.signalled = true;
    request.sges = {&sge, 1};
    request.ud = {.ip = Ipv4Address{raw(kDead) + first + i}, .hop_limit = 7, .qpn = 1};
    ASSERT_EQ(from.post_send(request), 0);
    ASSERT_EQ(pair.take(from, *from.send_cq, 1).size(), 1u);
  }
}

// Nobody repeats what UC has lost: not the first message either.
TEST(Neighbours, TheFirstMessageOfAConnectionLeavesToAKnownAddress) {
  Pair pair({.type = QpType::kUc}, ethernet());
  ASSERT_EQ(pair.post(SendOp::kWrite, 1, pair.at(0, 5000)), 0);
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  pair.world.run_for(10 * kMillisecond);
  EXPECT_EQ(pair.near_counter(Counter::tx_unresolved), 0u);
  EXPECT_TRUE(equal(pair.local, 0, pair.remote, 0, 5000));
}

// As long as Linux asks for adapters, and not again for each that connects to the same address.
TEST(Neighbours, AnAddressThatNobodyAnswersForHoldsAConnectionUpForASecond) {
  World world(ethernet());
  for (const uint64_t expected_ns : {kSecond, uint64_t{0}}) {
    auto end = world.make_endpoint(0, {.type = QpType::kUc});
    const TimeNs start = world.now();
    const driver::QpAttr attr{.state = QpState::kRtr,
                              .dest_qpn = 1,
                              .path_mtu_bytes = 1024,
                              .dest_ip = kDead,
                              .is_global = true};
    EXPECT_EQ(end->host->driver().modify_qp(end->qp, attr,
                                            driver::kQpState | driver::kQpAv | driver::kQpPathMtu |
                                                driver::kQpDestQpn | driver::kQpRqPsn),
              0);
    EXPECT_GE(world.now() - start, expected_ns);
    EXPECT_LE(world.now() - start, expected_ns + 20 * kMillisecond);
  }
}

// As long as an address handle takes to be made. Many are made, of hosts, groups and oneself.
TEST(Neighbours, TheFirstDatagramLeavesToAHostThatWasFound) {
  QpSettings ud{.type = QpType::kUd};
  ud.qkey = 0x11111111;
  Pair pair(ud, ethernet());
  driver::Driver& driver = pair.near->host->driver();
  for (const Ipv4Address ip :
       {address_of(1), address_of(1), address_of(0), Ipv4Address{0xef000001}})
    EXPECT_EQ(driver.find_host(ip), 0);
  const TimeNs start = pair.world.now();
  for (const uint64_t expected_ns : {kSecond, uint64_t{0}}) {
    EXPECT_EQ(driver.find_host(kDead), 0);
    EXPECT_GE(pair.world.now() - start, expected_ns);
    EXPECT_LE(pair.world.now() - start, kSecond + 20 * kMillisecond);
  }
  ASSERT_EQ(pair.post_receive(1, 0, 4096), 0);
  const Sge sge = pair.at(0, 64);
  driver::SendRequest request;
  request.op = SendOp::kSend;
  request.signalled = true;
  request.sges = {&sge, 1};
  request.ud = {.ip = address_of(1), .hop_limit = 7, .qpn = pair.far->qpn(), .qkey = ud.qkey};
  ASSERT_EQ(pair.near->post_send(request), 0);
  EXPECT_EQ(pair.received(1).size(), 1u);
  EXPECT_EQ(pair.near_counter(Counter::tx_unresolved), 0u);
}

// 1,024 of them once filled the table for ever, and connections to others were refused.
TEST(Neighbours, DatagramsToDeadAddressesKeepNoConnectionOut) {
  Pair pair({}, ethernet(3));
  auto scanner = pair.world.make_endpoint(0, {.type = QpType::kUd});
  pair.world.to_rtr(*scanner, *scanner);
  pair.world.to_rts(*scanner);
  send_datagrams(pair, *scanner, 0, 2500);
  auto near = pair.world.make_endpoint(0), far = pair.world.make_endpoint(2);
  pair.world.connect(*near, *far);
  Memory memory(4096);
  const uint32_t key = far->host->add_mr(memory);
  const Sge sge = pair.at(0, 100);
  const TimeNs start = pair.world.now();
  ASSERT_EQ(near->post_send(Pair::request(SendOp::kWrite, 1, sge, memory.address(), key)), 0);
  const auto done = pair.take(*near, *near->send_cq, 1);
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].status, WcStatus::kSuccess);
  EXPECT_LE(pair.world.now() - start, 100 * kMillisecond);
}

TEST(Neighbours, RequestsToAllAreBounded) {
  Pair pair({}, ethernet());
  auto scanner = pair.world.make_endpoint(0, {.type = QpType::kUd});
  pair.world.to_rtr(*scanner, *scanner);
  pair.world.to_rts(*scanner);
  uint64_t before = 0, in_a_second = 0;
  for (uint32_t second = 0; second < 4; ++second) {
    for (uint32_t part = 0; part < 100; ++part) {
      send_datagrams(pair, *scanner, (second * 100 + part) * 11, 11);
      pair.world.run_for(10 * kMillisecond);
    }
    in_a_second = pair.near_counter(Counter::arp_broadcasts) - before;
    before += in_a_second;
  }
  EXPECT_LE(in_a_second, 530u);
  EXPECT_GE(in_a_second, 100u) << "no test";
}

// The sender, or the one who answers, hears lies for a second, and the connection survives them.
TEST(Neighbours, ASecondOfLiesIsFoundOut) {
  for (const uint32_t victim : {0u, 1u}) {
    Pair pair({}, ethernet());
    pair.post(SendOp::kWrite, 1, pair.at(0, 100));
    ASSERT_EQ(pair.status_of_one(), WcStatus::kSuccess);
    for (int i = 0; i < 100; ++i) {
      lie(pair.world, victim, 1 - victim);
      if (i == 50) pair.post(SendOp::kWrite, 2, pair.at(0, 100));
      pair.world.run_for(10 * kMillisecond);
    }
    const TimeNs end = pair.world.now();
    EXPECT_EQ(pair.status_of_one(10 * kSecond), WcStatus::kSuccess) << "host " << victim;
    EXPECT_LE(pair.world.now() - end, 1'500 * kMillisecond) << "host " << victim;
    EXPECT_GE(pair.world.now() - end, kMillisecond) << "nobody believed it: no test";
  }
}

TEST(Neighbours, WhoHasTheNicsAddressAsWellIsCountedAndAnswered) {
  Pair pair({}, ethernet());
  pair.post(SendOp::kWrite, 1, pair.at(0, 100));
  ASSERT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  EXPECT_EQ(pair.far_counter(Counter::duplicate_address), 0u);
  // All hear it: the peer believes it, and the owner of the address corrects that.
  for (int i = 0; i < 3; ++i) {
    lie(pair.world, 0, 1);
    lie(pair.world, 1, 1);
    pair.world.run_for(10 * kMicrosecond);
    if (i != 0) continue;  // the owner says it once in ten seconds
    const TimeNs start = pair.world.now();
    pair.post(SendOp::kWrite, 2, pair.at(0, 100));
    EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
    EXPECT_LE(pair.world.now() - start, kMillisecond) << "the peer still believes it";
  }
  EXPECT_EQ(pair.far_counter(Counter::duplicate_address), 3u);
  EXPECT_EQ(pair.far->host->nic().conflicting_mac(), kNobody);
  EXPECT_EQ(pair.near_counter(Counter::duplicate_address), 0u);
}

}  // namespace
}  // namespace hostnic::sim
