// SPDX-License-Identifier: BSD-3-Clause
// UD to groups: who gets a copy, who does not, and what it costs the others.
#include "protocol/wire/multicast.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "dataplane/nic/limits.h"
#include "dataplane/nic/packet/bundle.h"
#include "dataplane/nic/packet/packet.h"
#include "dataplane/nic/packet/packet_release.h"
#include "tests/sim/pair.h"

namespace hostnic::sim {
namespace {

using driver::Completion;

constexpr Ipv4Address kGroup{0xef010203}, kOther{0xef010204};
constexpr uint32_t kGrh = kGrhBytes;
constexpr uint32_t kQkey = 0x11111111;
constexpr uint32_t kSlotBytes = 2048;

QpSettings datagrams(QpType type = QpType::kUd) {
  QpSettings settings;
  settings.type = type;
  settings.qkey = kQkey;
  return settings;
}

WorldSettings hosts(uint32_t count, bool is_wire = true) {
  WorldSettings settings;
  settings.hosts = count;
  settings.link.is_wire = is_wire;
  return settings;
}

// A datagram queue pair, with memory of its own: what it sends first, then slots for receives.
struct Station {
  Station(World& in, uint32_t host)
      : world(in), end(in.make_endpoint(host, datagrams())), memory(64 * kSlotBytes) {
    key = end->host->add_mr(memory);
    world.to_rtr(*end, *end);
    world.to_rts(*end);
    for (uint32_t i = 0; i < kSlotBytes; ++i)
      memory.data()[i] = static_cast<uint8_t>(i * 5 + 31 * host + 1);
  }
  driver::Driver& driver() const { return end->host->driver(); }
  uint64_t counter(Counter c) const { return end->host->counter(c); }
  int join(Ipv4Address group = kGroup) const { return driver().attach_group(end->qp, group); }
  int leave(Ipv4Address group = kGroup) const { return driver().detach_group(end->qp, group); }
  uint8_t* slot(uint64_t number) const { return memory.data() + (number + 1) * kSlotBytes; }
  void post_receives(uint64_t count, uint32_t bytes = kSlotBytes) {
    for (uint64_t i = 0; i < count; ++i, ++posted) {
      const Sge sge{memory.address((posted % 62 + 1) * kSlotBytes), bytes, key};
      ASSERT_EQ(end->post_recv({.wr_id = posted % 62, .sges = {&sge, 1}}), 0);
    }
  }
  int send(uint32_t bytes, Ipv4Address to = kGroup, uint32_t qpn = raw(wire::kMulticastQpn),
           uint32_t qkey = kQkey, uint32_t lkey = 0) const {
    const Sge sge{memory.address(), bytes, lkey != 0 ? lkey : key};
    driver::SendRequest request;
    request.op = SendOp::kSend;
    request.signalled = true;
    request.sges = {&sge, 1};
    request.ud = {.ip = to, .traffic_class = 0, .hop_limit = 9, .qpn = qpn, .qkey = qkey};
    return end->post_send(request);
  }
  std::vector<Completion> sent(size_t count) const {
    return take_completions(world, *end, *end->send_cq, count, kSecond);
  }
  std::vector<Completion> received(size_t count) const {
    return take_completions(world, *end, *end->recv_cq, count, kSecond);
  }
  size_t received_meanwhile() const {
    world.run_for(2 * kMillisecond);
    return end->poll(*end->recv_cq).size();
  }

  World& world;
  std::unique_ptr<Endpoint> end;
  Memory memory;
  uint32_t key = 0;
  uint64_t posted = 0;
};

// The datagram of `bytes` from `from` is in the slot, behind the header that brought it.
void expect_datagram(const Station& at, const Completion& c, const Station& from, uint32_t bytes) {
  EXPECT_EQ(c.status, WcStatus::kSuccess);
  EXPECT_EQ(c.byte_len, kGrh + bytes);
  EXPECT_EQ(c.flags, uint32_t{driver::kWcGrh});
  EXPECT_EQ(c.src_qpn, from.end->qpn());
  const uint8_t* slot = at.slot(c.wr_id);
  std::array<std::byte, wire::kIpv4Bytes> header;
  std::memcpy(header.data(), slot + kGrh - header.size(), header.size());
  const wire::Ipv4View ip{std::span<const std::byte, wire::kIpv4Bytes>(header)};
  EXPECT_EQ(ip.src(), address_of(from.end->host->index()));
  EXPECT_EQ(ip.dst(), kGroup);
  EXPECT_EQ(ip.hop_limit(), 9);
  EXPECT_TRUE(ip.checksum_ok());
  EXPECT_EQ(std::memcmp(slot + kGrh, from.memory.data(), bytes), 0);
}

void expect_successes(const std::vector<Completion>& all, size_t count) {
  EXPECT_EQ(all.size(), count);
  for (const Completion& c : all) EXPECT_EQ(c.status, WcStatus::kSuccess);
}

class Multicast : public testing::TestWithParam<bool> {
 protected:
  static WorldSettings on_both(uint32_t count = 3) { return hosts(count, GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Networks, Multicast, testing::Values(true, false),
                         [](const auto& info) { return info.param ? "Wire" : "Ethernet"; });

TEST_P(Multicast, EveryMemberOnEveryNicGetsItOnce) {
  World world(on_both());
  Station sender(world, 0), one(world, 1), two(world, 1), three(world, 2), stranger(world, 2);
  Station* const members[] = {&one, &two, &three};
  for (Station* member : members) {
    ASSERT_EQ(member->join(), 0);
    ASSERT_EQ(member->join(), 0) << "again: no error, and no second copy";
    member->post_receives(8);
  }
  ASSERT_EQ(stranger.join(kOther), 0);
  stranger.post_receives(8);
  sender.post_receives(8);
  for (const uint32_t bytes : {100u, 1u, 1999u}) ASSERT_EQ(sender.send(bytes), 0);
  expect_successes(sender.sent(3), 3);
  for (Station* member : members) {
    const auto received = member->received(3);
    ASSERT_EQ(received.size(), 3u);
    expect_datagram(*member, received[0], sender, 100);
    expect_datagram(*member, received[1], sender, 1);
    expect_datagram(*member, received[2], sender, 1999);
    EXPECT_EQ(member->received_meanwhile(), 0u);
  }
  EXPECT_EQ(stranger.received_meanwhile(), 0u);
  EXPECT_EQ(sender.received_meanwhile(), 0u) << "it sends, and is no member";
  EXPECT_EQ(sender.counter(Counter::tx_unresolved), 0u) << "nobody has to be asked for it";
  world.check_at_rest();
}

TEST_P(Multicast, MembersOnTheSendersNicHearItItselfIncluded) {
  World world(on_both());
  Station sender(world, 0), neighbour(world, 0), far(world, 1);
  for (Station* member : {&sender, &neighbour, &far}) {
    ASSERT_EQ(member->join(), 0);
    member->post_receives(4);
  }
  ASSERT_EQ(sender.send(500), 0);
  expect_successes(sender.sent(1), 1);
  for (Station* member : {&sender, &neighbour, &far}) {
    const auto received = member->received(1);
    ASSERT_EQ(received.size(), 1u);
    expect_datagram(*member, received[0], sender, 500);
    EXPECT_EQ(member->received_meanwhile(), 0u);
  }
  EXPECT_EQ(far.counter(Counter::rx_not_ours), 0u);
  EXPECT_EQ(world.host(2).counter(Counter::rx_not_ours), 1u) << "a NIC without members";
  world.check_at_rest();
}

TEST_P(Multicast, WhoHasLeftHearsNothing) {
  World world(on_both());
  Station sender(world, 0), leaver(world, 1), destroyed(world, 1), other(world, 2);
  for (Station* member : {&leaver, &destroyed, &other}) {
    ASSERT_EQ(member->join(), 0);
    member->post_receives(4);
  }
  EXPECT_EQ(leaver.leave(kOther), EINVAL) << "never joined";
  EXPECT_EQ(leaver.leave(), 0);
  EXPECT_EQ(leaver.leave(), EINVAL);
  EXPECT_EQ(destroyed.driver().destroy_qp(destroyed.end->qp), 0);
  ASSERT_EQ(sender.send(10), 0);
  EXPECT_EQ(other.received(1).size(), 1u);
  EXPECT_EQ(leaver.received_meanwhile(), 0u);
  EXPECT_EQ(leaver.counter(Counter::rx_packets), leaver.counter(Counter::rx_not_ours));
  ASSERT_EQ(leaver.join(), 0);
  ASSERT_EQ(sender.send(11), 0);
  EXPECT_EQ(leaver.received(1).size(), 1u);
}

TEST_P(Multicast, EachMemberIsAskedForItself) {
  World world(on_both());
  Station sender(world, 0), good(world, 1), without_receive(world, 1), short_of_room(world, 1);
  auto elsewhere = world.make_endpoint(1, datagrams());
  Station* const members[] = {&good, &without_receive, &short_of_room};
  for (Station* member : members) ASSERT_EQ(member->join(), 0);
  ASSERT_EQ(elsewhere->host->driver().attach_group(elsewhere->qp, kGroup), 0) << "in INIT";
  good.post_receives(4);
  short_of_room.post_receives(4, kGrh + 99);
  ASSERT_EQ(elsewhere->post_recv({.wr_id = 1, .sges = {}}), 0);
  ASSERT_EQ(sender.send(100), 0);
  EXPECT_EQ(good.received(1).size(), 1u);
  EXPECT_EQ(good.counter(Counter::rx_no_receive), 1u);
  EXPECT_EQ(good.counter(Counter::rx_too_long), 1u);
  ASSERT_EQ(sender.send(100, kGroup, raw(wire::kMulticastQpn), kQkey + 1), 0);
  EXPECT_EQ(good.received_meanwhile(), 0u);
  EXPECT_EQ(good.counter(Counter::rx_wrong_qkey), 3u);
  EXPECT_TRUE(elsewhere->poll(*elsewhere->recv_cq).empty());
  // From RTR on it hears; in ERR nobody does.
  world.to_rtr(*elsewhere, *elsewhere);
  ASSERT_EQ(world.modify_state(*good.end, QpState::kErr), 0);
  good.received_meanwhile();  // flushed
  ASSERT_EQ(sender.send(99), 0);
  EXPECT_EQ(short_of_room.received(1).size(), 1u);
  EXPECT_EQ(good.received_meanwhile(), 0u);
  EXPECT_EQ(good.counter(Counter::rx_too_long), 2u) << "the one that was in INIT has no room";
}

TEST_P(Multicast, WhatMayNotBeAttached) {
  World world(on_both(2));
  Station member(world, 0);
  EXPECT_EQ(member.join(address_of(1)), EINVAL) << "a host";
  EXPECT_EQ(member.join(Ipv4Address{0xf0000000}), EINVAL);
  for (const QpType type : {QpType::kRc, QpType::kUc}) {
    auto connected = world.make_endpoint(0, datagrams(type));
    EXPECT_EQ(connected->host->driver().attach_group(connected->qp, kGroup), EINVAL);
  }
  for (uint32_t i = 0; i < kMaxGroups; ++i) ASSERT_EQ(member.join(Ipv4Address{raw(kGroup) + i}), 0);
  EXPECT_EQ(member.join(Ipv4Address{raw(kGroup) + kMaxGroups}), ENOMEM);
  EXPECT_EQ(member.join(kOther), 0) << "it is a member";
}

TEST_P(Multicast, OnlyTheMulticastQpnAndDatagramsCount) {
  World world(on_both(2));
  Station sender(world, 0), member(world, 1);
  ASSERT_EQ(member.join(), 0);
  member.post_receives(4);
  ASSERT_EQ(sender.send(10, kGroup, member.end->qpn()), 0);
  expect_successes(sender.sent(1), 1);
  EXPECT_EQ(member.received_meanwhile(), 0u);
  EXPECT_EQ(member.counter(Counter::rx_unknown_qp), 1u) << "to the group, of one queue pair";
  // To the host, of all: nobody has that number. (On Ethernet the first one only asks for the
  // host.)
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(sender.send(10, address_of(1)), 0);
    world.run_for(50 * kMillisecond);
  }
  EXPECT_EQ(member.received_meanwhile(), 0u);
  EXPECT_GE(member.counter(Counter::rx_unknown_qp), 2u);
  ASSERT_EQ(sender.send(10), 0);
  EXPECT_EQ(member.received(1).size(), 1u);
}

TEST(MulticastWire, OtherServicesToAGroupAreDropped) {
  World world(hosts(2));
  Station member(world, 1);
  ASSERT_EQ(member.join(), 0);
  member.post_receives(1);
  const auto flow = wire::make_flow_template({}, {}, address_of(0), kGroup, 0xc000, 0);
  const wire::Opcode opcodes[] = {wire::Opcode::kUcSendOnly, wire::Opcode::kUcWriteOnly,
                                  wire::Opcode::kSend, wire::Opcode::kWriteOnly,
                                  wire::Opcode::kReadRequest};
  for (const wire::Opcode opcode : opcodes) {
    wire::Packet p;
    p.opcode = opcode;
    p.dest_qpn = wire::kMulticastQpn;
    rte_mbuf* packet = rte_pktmbuf_alloc(world.pools().data);
    ASSERT_NE(packet, nullptr);
    packet->data_len = static_cast<uint16_t>(wire::build(
        flow, p, false, {}, {rte_pktmbuf_mtod(packet, std::byte*), wire::kMaxHeaderBytes}));
    packet->pkt_len = packet->data_len;
    world.wire().inject(1, packet);
  }
  EXPECT_EQ(member.received_meanwhile(), 0u);
  EXPECT_EQ(member.counter(Counter::rx_wrong_service), std::size(opcodes));
  EXPECT_EQ(member.counter(Counter::rx_parse_error), 0u);
  world.check_at_rest();
}

TEST(MulticastEthernet, IsOneFrameToTheGroupsAddress) {
  World world(hosts(3, /*is_wire=*/false));
  Station sender(world, 0), one(world, 1), two(world, 2);
  for (Station* member : {&sender, &one, &two}) {
    ASSERT_EQ(member->join(), 0);
    member->post_receives(4);
  }
  bool to_group = true;
  world.wire().set_tap([&](uint32_t, uint32_t, rte_mbuf* packet) {
    const std::array<uint8_t, 6> mac{1, 0, 0x5e, 1, 2, 3};
    to_group =
        to_group && std::equal(mac.begin(), mac.end(), rte_pktmbuf_mtod(packet, const uint8_t*));
  });
  // What is damaged on the way to one of them does not arrive there.
  uint32_t seen = 0;
  world.wire().set_judge([&](uint32_t to, const wire::Packet&) {
    return to == 1 && seen++ == 0 ? Fate{.flipped_byte = 80} : Fate{};
  });
  ASSERT_EQ(sender.send(200), 0);
  EXPECT_EQ(two.received(1).size(), 1u);
  EXPECT_EQ(sender.received(1).size(), 1u);
  EXPECT_EQ(one.received_meanwhile(), 0u);
  EXPECT_EQ(one.counter(Counter::rx_icrc_error), 1u);
  EXPECT_TRUE(to_group);
  EXPECT_EQ(sender.counter(Counter::tx_packets), 2u) << "the frame, and the copy for the own NIC";
  world.check_at_rest();
}

// The in-process wire loses nothing: who has no room holds the sender up, and nobody gets a
// datagram twice or not at all.
TEST(MulticastWire, ASlowNicHoldsTheSenderUp) {
  WorldSettings settings = hosts(3);
  settings.link.queue_packets = 4;
  settings.link.delay_ns = 50 * kMicrosecond;
  World world(settings);
  Station sender(world, 0), one(world, 1), two(world, 2);
  for (Station* member : {&sender, &one, &two}) {
    ASSERT_EQ(member->join(), 0);
    member->post_receives(60);
  }
  for (uint32_t i = 0; i < 60; ++i) ASSERT_EQ(sender.send(1 + i), 0);
  expect_successes(sender.sent(60), 60);
  for (Station* member : {&sender, &one, &two}) {
    const auto received = member->received(60);
    ASSERT_EQ(received.size(), 60u);
    for (uint32_t i = 0; i < 60; ++i) EXPECT_EQ(received[i].byte_len, kGrh + 1 + i);
    EXPECT_EQ(member->received_meanwhile(), 0u);
  }
  world.check_at_rest();
}

TEST(MulticastWire, FewBuffersSlowItDownAndLoseNothing) {
  WorldSettings settings = hosts(4);
  settings.pool_scale = 0.003;  // 24 buffers for payload
  settings.link.delay_ns = 20 * kMicrosecond;
  World world(settings);
  Station sender(world, 0), one(world, 1), two(world, 2), three(world, 3);
  for (Station* member : {&one, &two, &three}) {
    ASSERT_EQ(member->join(), 0);
    member->post_receives(60);
  }
  for (uint32_t i = 0; i < 60; ++i) ASSERT_EQ(sender.send(1500), 0);
  expect_successes(sender.sent(60), 60);
  for (Station* member : {&one, &two, &three}) EXPECT_EQ(member->received(60).size(), 60u);
  EXPECT_GT(sender.counter(Counter::tx_no_buffer), 0u);
  world.check_at_rest();
}

// Every copy is a packet of its own to the impairments.
TEST(MulticastWire, ImpairmentsHitCopiesOneByOne) {
  World world(hosts(3));
  Station sender(world, 0), one(world, 1), two(world, 2);
  for (Station* member : {&one, &two}) {
    ASSERT_EQ(member->join(), 0);
    member->post_receives(60);
  }
  world.impair(1, "rx drop all");
  ASSERT_EQ(sender.send(100), 0);
  EXPECT_EQ(two.received(1).size(), 1u);
  EXPECT_EQ(one.received_meanwhile(), 0u);
  world.impair(1, "rx none");
  world.impair(0, "tx drop nth 1");
  ASSERT_EQ(sender.send(100), 0);
  world.run_for(kMillisecond);
  EXPECT_EQ(one.received_meanwhile() + two.received_meanwhile(), 1u);
  world.impair(0, "tx drop 10%; reorder 10% distance 4; duplicate 10%; corrupt 10%", 5);
  for (uint32_t i = 0; i < 40; ++i) ASSERT_EQ(sender.send(1000), 0);
  EXPECT_EQ(sender.sent(42).size(), 42u);
  EXPECT_GT(one.received_meanwhile(), 20u);
  EXPECT_GT(two.received_meanwhile(), 20u);
  world.check_at_rest();
}

TEST(MulticastWire, AFailedSendLeavesNothingBehind) {
  World world(hosts(3));
  Station sender(world, 0), one(world, 1);
  ASSERT_EQ(one.join(), 0);
  one.post_receives(4);
  ASSERT_EQ(sender.send(100, kGroup, raw(wire::kMulticastQpn), kQkey, /*lkey=*/0x777), 0);
  const auto sent = sender.sent(1);
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].status, WcStatus::kLocProtErr);
  EXPECT_EQ(sender.end->state(), QpState::kSqe);
  EXPECT_EQ(one.received_meanwhile(), 0u);
  world.check_at_rest();
}

TEST(MulticastWire, AloneOnTheWire) {
  World world(hosts(1));
  Station sender(world, 0);
  ASSERT_EQ(sender.send(100), 0);
  expect_successes(sender.sent(1), 1);
  ASSERT_EQ(sender.join(), 0);
  sender.post_receives(2);
  ASSERT_EQ(sender.send(100), 0);
  EXPECT_EQ(sender.received(1).size(), 1u);
  world.check_at_rest();
}

// A row of datagrams to hosts and groups in turn: each goes where its work request says.
TEST_P(Multicast, DestinationsChangeFromOneToTheNext) {
  World world(on_both());
  Station sender(world, 0), one(world, 1), two(world, 2);
  ASSERT_EQ(two.join(), 0);
  ASSERT_EQ(two.join(kOther), 0);
  ASSERT_EQ(one.join(kOther), 0);
  ASSERT_EQ(sender.send(5, address_of(1), one.end->qpn()), 0);  // Ethernet: has it asked for
  expect_successes(sender.sent(1), 1);
  world.run_for(50 * kMillisecond);
  one.post_receives(9);
  two.post_receives(9);
  ASSERT_EQ(sender.send(20, kGroup), 0);
  ASSERT_EQ(sender.send(30, address_of(1), one.end->qpn()), 0);
  ASSERT_EQ(sender.send(40, kOther), 0);
  ASSERT_EQ(sender.send(50, kGroup), 0);
  ASSERT_EQ(sender.send(60, address_of(1), one.end->qpn()), 0);
  expect_successes(sender.sent(5), 5);
  const auto lengths = [](const std::vector<Completion>& all) {
    std::vector<uint32_t> bytes;
    for (const Completion& c : all) bytes.push_back(c.byte_len - kGrh);
    return bytes;
  };
  EXPECT_EQ(lengths(one.received(3)), (std::vector<uint32_t>{30, 40, 60}));
  EXPECT_EQ(lengths(two.received(3)), (std::vector<uint32_t>{20, 40, 50}));
}

}  // namespace
}  // namespace hostnic::sim
