// SPDX-License-Identifier: BSD-3-Clause
// The udp port, over the kernel's loopback: what one port sends another receives, byte by byte,
// whatever the sizes, and nothing that strangers send does harm.
#include "dataplane/daemon/ports/udp/udp_port.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "dataplane/daemon/observe/view_text.h"
#include "dataplane/nic/packet/external_payload.h"
#include "dataplane/nic/packet/packet.h"
#include "dataplane/nic/packet/packet_release.h"
#include "protocol/wire/multicast.h"
#include "tests/unit/daemon/eal.h"

namespace hostnic {
namespace {

using Bytes = std::vector<std::byte>;

// Addresses of the loopback interface that other runs of this test hardly take.
Ipv4Address own_address(uint32_t last) {
  const auto pid = static_cast<uint32_t>(getpid());
  return Ipv4Address{127u << 24 | (180 + pid % 70) << 16 | (pid / 70 % 254) << 8 | last};
}
const Ipv4Address kFirst = own_address(1), kSecond = own_address(2);
constexpr uint16_t kTag = 0xd5a0;

LocalAddress local(Ipv4Address ip) {
  auto found = find_local_address(gid_of(ip), "");
  if (!found) ADD_FAILURE() << found.error();
  return found ? *found : LocalAddress{};
}

AddressBook& book() {
  static AddressBook all;
  return all;
}

Bytes random_bytes(size_t size, uint32_t seed) {
  std::mt19937 random(seed);
  Bytes bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

class UdpPorts : public testing::Test {
 protected:
  void SetUp() override {
    if (!eal_runs()) GTEST_FAIL() << "EAL does not start";
    first_ = open("first", kFirst);
    second_ = open("second", kSecond);
    ASSERT_NE(first_, nullptr);
    ASSERT_NE(second_, nullptr);
    pool_ = rte_pktmbuf_pool_create("test", 4095, 0, kExternalPayloadBytes,
                                    RTE_PKTMBUF_HEADROOM + 4096 + 256, SOCKET_ID_ANY);
    ASSERT_NE(pool_, nullptr);
  }
  void TearDown() override {
    first_.reset();
    second_.reset();
    if (pool_ != nullptr) {
      EXPECT_EQ(rte_mempool_in_use_count(pool_), 0u) << "the port freed all packets";
    }
    rte_mempool_free(pool_);
  }
  static std::unique_ptr<UdpPort> open(const std::string& name, Ipv4Address ip) {
    auto port = UdpPort::open(name, {local(ip), ip}, {}, book());
    if (!port) ADD_FAILURE() << port.error();
    return port ? std::move(*port) : nullptr;
  }

  // A packet of a WRITE to the second port.
  rte_mbuf* packet(const Bytes& payload, uint32_t psn, Ipv4Address to = kSecond,
                   uint8_t traffic_class = 0, Ipv4Address from = kFirst) {
    wire::Packet p;
    p.opcode = wire::Opcode::kWriteOnly;
    p.dest_qpn = Qpn{0x123};
    p.psn = Psn(psn);
    p.cont = p.more = true;
    p.attempt = 1;
    p.payload_bytes = static_cast<uint16_t>(payload.size());
    p.reth = {0x1000 + psn, 0x77, static_cast<uint32_t>(payload.size())};
    const auto flow = wire::make_flow_template({}, {}, from, to, kTag, traffic_class);
    rte_mbuf* made = rte_pktmbuf_alloc(pool_);
    auto* frame = rte_pktmbuf_mtod(made, std::byte*);
    const size_t header_bytes = wire::build(flow, p, false, {}, {frame, wire::kMaxHeaderBytes});
    if (!payload.empty()) memcpy(frame + header_bytes, payload.data(), payload.size());
    made->data_len = static_cast<uint16_t>(header_bytes + payload.size());
    made->pkt_len = made->data_len;
    return made;
  }

  uint32_t send(std::vector<rte_mbuf*> packets) {
    uint32_t sent = 0;
    while (sent < packets.size()) {
      const uint16_t n =
          first_->transmit(0, packets.data() + sent, static_cast<uint16_t>(packets.size() - sent));
      if (n == 0) break;
      sent += n;
    }
    for (size_t i = sent; i < packets.size(); ++i) release_packet(packets[i]);
    return sent;
  }

  // Takes packets until so many are there, or none has come for a while.
  static std::vector<rte_mbuf*> receive(UdpPort& port, size_t count) {
    std::vector<rte_mbuf*> all;
    for (int quiet = 0; all.size() < count && quiet < 200;) {
      rte_mbuf* burst[32];
      const uint16_t n = port.receive(0, burst, 32);
      all.insert(all.end(), burst, burst + n);
      quiet = n == 0 ? quiet + 1 : 0;
      if (n == 0) {
        pollfd waits{port.sockets()[0].get(), POLLIN, 0};
        poll(&waits, 1, 5);
      }
    }
    return all;
  }

  static void expect_packet(rte_mbuf* got, const Bytes& payload, uint32_t psn) {
    wire::Packet p;
    ASSERT_EQ(parse_packet(got, p), wire::ParseError::kNone);
    EXPECT_EQ(got->ol_flags & icrc_flag(), 0u) << "the ICRC was right, and is gone";
    EXPECT_EQ(p.psn, Psn(psn));
    EXPECT_EQ(p.attempt, 1);
    EXPECT_TRUE(p.cont && p.more);
    EXPECT_EQ(p.src_ip, kFirst);
    EXPECT_TRUE(wire::has_flow_tag(p, kTag));
    EXPECT_FALSE(wire::has_flow_tag(p, kTag ^ 0x100));
    const auto bytes = payload_of(got, p);
    ASSERT_EQ(bytes.size(), payload.size());
    EXPECT_TRUE(std::ranges::equal(bytes, payload));
  }

  // Sends packets of these sizes by as few calls as the port takes, and expects them all.
  void exchange(const std::vector<size_t>& sizes) {
    std::vector<rte_mbuf*> packets;
    for (uint32_t i = 0; i < sizes.size(); ++i)
      packets.push_back(packet(random_bytes(sizes[i], i), i));
    ASSERT_EQ(send(packets), sizes.size());
    const auto got = receive(*second_, sizes.size());
    ASSERT_EQ(got.size(), sizes.size());
    for (uint32_t i = 0; i < sizes.size(); ++i) {
      expect_packet(got[i], random_bytes(sizes[i], i), i);
      rte_pktmbuf_free(got[i]);
    }
  }

  // A datagram that no hostnic sent.
  static void send_raw(const Bytes& bytes, int segment_bytes = 0) {
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (segment_bytes != 0)
      setsockopt(fd, IPPROTO_UDP, UDP_SEGMENT, &segment_bytes, sizeof segment_bytes);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(wire::kRoceUdpPort);
    to.sin_addr.s_addr = htonl(raw(kSecond));
    EXPECT_EQ(
        sendto(fd, bytes.data(), bytes.size(), 0, reinterpret_cast<sockaddr*>(&to), sizeof to),
        static_cast<ssize_t>(bytes.size()));
    close(fd);
  }

  std::unique_ptr<UdpPort> first_, second_;
  rte_mempool* pool_ = nullptr;
};

TEST_F(UdpPorts, PacketsOfOneSizeArrive) {
  for (const size_t bytes : {0, 1, 3, 64, 256, 1021, 1024, 4096}) {
    SCOPED_TRACE(bytes);
    for (const size_t count : {1, 2, 7, 48}) exchange(std::vector<size_t>(count, bytes));
  }
}

TEST_F(UdpPorts, AddressesComeAndGo) {
  const Ipv4Address other = own_address(3);
  const auto add = [&](UdpPort& port, Ipv4Address ip) {
    auto socket = open_roce_socket(local(ip));
    ASSERT_TRUE(socket) << socket.error();
    ASSERT_TRUE(port.add_socket({local(ip), ip}, std::move(*socket)));
  };
  const auto lost = [&](Ipv4Address from, Ipv4Address to) {
    EXPECT_EQ(send({packet(random_bytes(64, 1), 1, to, 0, from)}), 1u) << "it is done with";
    return receive(*second_, 1).empty();
  };
  const auto arrives = [&](Ipv4Address from, Ipv4Address to) {
    EXPECT_EQ(send({packet(random_bytes(64, 1), 1, to, 0, from)}), 1u);
    const auto got = receive(*second_, 1);
    if (got.size() != 1) return false;
    wire::Packet p;
    EXPECT_EQ(parse_packet(got[0], p), wire::ParseError::kNone);
    const bool right = p.src_ip == from && p.dst_ip == to;
    rte_pktmbuf_free(got[0]);
    return right;
  };
  EXPECT_TRUE(lost(other, kSecond)) << "it is not ours yet";
  add(*first_, other);
  EXPECT_TRUE(arrives(other, kSecond));
  EXPECT_TRUE(arrives(kFirst, kSecond));
  first_->take_socket(other);
  EXPECT_TRUE(lost(other, kSecond)) << "rather than sent from another address";
  EXPECT_TRUE(arrives(kFirst, kSecond));
  add(*second_, other);
  EXPECT_TRUE(arrives(kFirst, other));
  second_->take_socket(other);
  EXPECT_TRUE(lost(kFirst, other));
  EXPECT_NE(to_text(first_->view()).find("the kernel refused 2 packets"), std::string::npos)
      << to_text(first_->view());
}

TEST_F(UdpPorts, ASocketThatHasManyPacketsDoesNotHideAnother) {
  const Ipv4Address other = own_address(3);
  auto opened = open_roce_socket(local(other));
  ASSERT_TRUE(opened) << opened.error();
  ASSERT_TRUE(second_->add_socket({local(other), other}, std::move(*opened)));
  ASSERT_TRUE(receive(*second_, 1).empty());
  constexpr uint32_t kMany = 160;
  for (uint32_t i = 0; i < kMany; ++i) ASSERT_EQ(send({packet(random_bytes(8, i), i)}), 1u);
  ASSERT_EQ(send({packet(random_bytes(8, 1), kMany, other)}), 1u);
  uint32_t before = 0, got = 0;
  for (rte_mbuf* each : receive(*second_, kMany + 1)) {
    wire::Packet p;
    ASSERT_EQ(parse_packet(each, p), wire::ParseError::kNone);
    if (p.dst_ip == other) before = got;
    ++got;
    rte_pktmbuf_free(each);
  }
  EXPECT_EQ(got, kMany + 1);
  EXPECT_LE(before, kMany / 2);
}

// What one socket had no room for is not counted against another's.
TEST_F(UdpPorts, EachSocketCountsWhatFoundItFull) {
  const Ipv4Address other = own_address(3);
  auto opened = open_roce_socket(local(other));
  ASSERT_TRUE(opened) << opened.error();
  const int least = 1;  // the kernel makes a few packets' room of it
  setsockopt(opened->fd.get(), SOL_SOCKET, SO_RCVBUF, &least, sizeof least);
  setsockopt(second_->own_descriptor(), SOL_SOCKET, SO_RCVBUF, &least, sizeof least);
  ASSERT_TRUE(second_->add_socket({local(other), other}, std::move(*opened)));
  size_t sent = 0, got = 0;
  for (const size_t count : {40, 30})
    for (const Ipv4Address to : {kSecond, other}) {
      for (uint32_t i = 0; i < count; ++i) sent += send({packet(random_bytes(1000, i), i, to)});
      for (rte_mbuf* packet : receive(*second_, count)) rte_pktmbuf_free(packet), ++got;
    }
  // The kernel tells with the next packet that finds room.
  for (const Ipv4Address to : {kSecond, other}) {
    sent += send({packet(random_bytes(8, 1), 1, to)});
    for (rte_mbuf* packet : receive(*second_, 1)) rte_pktmbuf_free(packet), ++got;
  }
  ASSERT_LT(got, sent) << "no packet was dropped";
  EXPECT_NE(
      to_text(second_->view()).find(fmt::format(" {} packets found the socket full", sent - got)),
      std::string::npos)
      << to_text(second_->view()) << " of " << sent << ", got " << got;
}

TEST_F(UdpPorts, CountsHostsThatHaveNoNumber) {
  const Gid loopback = parse_gid("::1").value();
  const auto at = find_local_address(loopback, "");
  if (!at) GTEST_SKIP() << at.error();
  AddressBook full;
  for (uint32_t i = 0; i < AddressBook::kCapacity; ++i) {
    Gid host = parse_gid("fd00::").value();
    host[14] = static_cast<std::byte>(i >> 8), host[15] = static_cast<std::byte>(i);
    host[13] = std::byte{1};
    ASSERT_TRUE(full.acquire(host));
  }
  auto port = UdpPort::open("ipv6", {*at, Ipv4Address{0xf0ffffff}}, {}, full);
  if (!port) GTEST_SKIP() << port.error();  // another run has it
  const int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_in6 to{};
  to.sin6_family = AF_INET6;
  to.sin6_port = htons(wire::kRoceUdpPort);
  to.sin6_addr = in6addr_loopback;
  const Bytes bytes = random_bytes(64, 1);
  EXPECT_EQ(sendto(fd, bytes.data(), bytes.size(), 0, reinterpret_cast<sockaddr*>(&to), sizeof to),
            64);
  close(fd);
  EXPECT_TRUE(receive(**port, 1).empty());
  const std::string text = to_text((*port)->view());
  EXPECT_NE(text.find(", 1 packets came from hosts for which there is no number left"),
            std::string::npos)
      << text;
  EXPECT_EQ(text.find("found the socket full"), std::string::npos) << text;
}

TEST_F(UdpPorts, PacketsOfMixedSizesArrive) {
  exchange({4096, 4096, 100, 4096, 4096, 4095, 0, 0, 8, 4096});
  exchange({8, 4096, 8, 4096, 1024, 1024, 1024, 1, 2048, 2048, 4});
  std::mt19937 random(7);
  for (int round = 0; round < 30; ++round) {
    std::vector<size_t> sizes(1 + random() % 48);
    size_t bytes = 1024;
    for (size_t& size : sizes) {
      if (random() % 4 == 0) bytes = random() % 4097;
      size = bytes;
    }
    exchange(sizes);
  }
}

TEST_F(UdpPorts, PayloadThatStaysInItsMemoryArrives) {
  MemoryRegionEntry region{};
  QpPackets counted;
  const Bytes memory = random_bytes(20 * 4096, 3);
  std::vector<rte_mbuf*> packets;
  for (uint32_t i = 0; i < 20; ++i) {
    const Bytes part(memory.begin() + i * 4096, memory.begin() + (i + 1) * 4096);
    rte_mbuf* made = packet(part, i);
    const size_t header_bytes = made->data_len - part.size();
    region.mbufs_out.fetch_add(1);
    counted.count()->add(1);
    attach_payload(*made, header_bytes, 4096, {memory.data() + i * 4096, &region, counted.count()});
    packets.push_back(made);
  }
  ASSERT_EQ(send(packets), 20u);
  EXPECT_EQ(region.mbufs_out.load(), 0u) << "the memory is free when the packets have left";
  EXPECT_FALSE(counted.any_out());
  const auto got = receive(*second_, 20);
  ASSERT_EQ(got.size(), 20u);
  for (uint32_t i = 0; i < 20; ++i) {
    expect_packet(got[i], {memory.begin() + i * 4096, memory.begin() + (i + 1) * 4096}, i);
    rte_pktmbuf_free(got[i]);
  }
}

TEST_F(UdpPorts, ATrafficClassArrives) {
  send({packet(Bytes(64), 1, kSecond, 0x68 | wire::kEcnCongestionExperienced),
        packet(Bytes(64), 2, kSecond, 0)});
  const auto got = receive(*second_, 2);
  ASSERT_EQ(got.size(), 2u);
  wire::Packet p;
  ASSERT_EQ(parse_packet(got[0], p), wire::ParseError::kNone);
  EXPECT_EQ(p.traffic_class, 0x6b);
  EXPECT_TRUE(wire::congestion_experienced(p));
  ASSERT_EQ(parse_packet(got[1], p), wire::ParseError::kNone);
  EXPECT_EQ(p.traffic_class, 0);
  for (rte_mbuf* each : got) rte_pktmbuf_free(each);
}

// What impairments damaged before it was sent stays damaged.
TEST_F(UdpPorts, AWrongIcrcStaysWrong) {
  std::vector<rte_mbuf*> packets;
  for (uint32_t i = 0; i < 10; ++i) {
    rte_mbuf* made = packet(random_bytes(1000 + i, i), i);
    add_icrc_in_place(made);
    if (i % 2 == 1) *rte_pktmbuf_mtod_offset(made, uint8_t*, 100) ^= 4;
    packets.push_back(made);
  }
  ASSERT_EQ(send(packets), 10u);
  const auto got = receive(*second_, 10);
  ASSERT_EQ(got.size(), 10u);
  for (uint32_t i = 0; i < 10; ++i) {
    if (i % 2 == 0) {
      expect_packet(got[i], random_bytes(1000 + i, i), i);
    } else {
      wire::Packet p;
      EXPECT_NE(got[i]->ol_flags & icrc_flag(), 0u);
      EXPECT_TRUE(parse_packet(got[i], p) != wire::ParseError::kNone || !icrc_valid(got[i], p));
    }
    rte_pktmbuf_free(got[i]);
  }
}

TEST_F(UdpPorts, StrangersDatagramsDoNoHarm) {
  for (const size_t bytes : {0, 1, 11, 12, 15}) send_raw(random_bytes(bytes, 1));
  send_raw(random_bytes(60'000, 2));
  send_raw(random_bytes(60 * 1000 + 17, 3), 1000);
  send_raw(random_bytes(16, 4));
  send_raw(random_bytes(1500, 5));
  // What may be packets goes on with the ICRC that it has, for the NIC to refuse.
  const auto got = receive(*second_, 61 + 2);
  EXPECT_EQ(got.size(), 61u + 2);
  for (rte_mbuf* each : got) {
    wire::Packet p;
    EXPECT_NE(each->ol_flags & icrc_flag(), 0u);
    EXPECT_TRUE(parse_packet(each, p) != wire::ParseError::kNone || !icrc_valid(each, p));
    rte_pktmbuf_free(each);
  }
  EXPECT_NE(to_text(second_->view()).find("6 datagrams were no packets"), std::string::npos)
      << to_text(second_->view());
  exchange({64, 64, 4096});
}

TEST_F(UdpPorts, WhatNobodyTakesIsLost) {
  // Nobody has port 4791 of that address; the next packet leaves all the same.
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(send({packet(Bytes(100), 1, own_address(0xfe))}), 1u);
    exchange({100});
  }
  // The kernel has no way for the network's own address.
  EXPECT_EQ(send({packet(Bytes(100), 1, Ipv4Address{0xf0000001})}), 1u);
  EXPECT_NE(to_text(first_->view()).find("the kernel refused 1 packets"), std::string::npos)
      << to_text(first_->view());
  exchange({100});
}

TEST_F(UdpPorts, GroupsAreJoinedAndLeft) {
  // All who are members on the loopback interface get what is sent there.
  const Ipv4Address group{0xef000000 | (raw(own_address(0)) & 0xffffff)};
  ASSERT_EQ(second_->join(raw(group)), 0);
  ASSERT_EQ(first_->join(raw(group)), 0);
  ASSERT_EQ(send({packet(Bytes(64, std::byte{7}), 9, group)}), 1u);
  auto got = receive(*second_, 1);
  ASSERT_EQ(got.size(), 1u);
  wire::Packet p;
  ASSERT_EQ(parse_packet(got[0], p), wire::ParseError::kNone);
  EXPECT_EQ(p.dst_ip, group);
  EXPECT_EQ(p.src_ip, kFirst);
  rte_pktmbuf_free(got[0]);
  EXPECT_TRUE(receive(*first_, 1).empty()) << "its own";
  second_->leave(raw(group));
  ASSERT_EQ(send({packet(Bytes(64), 10, group)}), 1u);
  EXPECT_TRUE(receive(*second_, 1).empty());
}

TEST(UdpPortCheck, SaysWhatIsWrong) {
  const auto absent = check_udp_port(gid_of(Ipv4Address{0xc0000201}), "");
  ASSERT_FALSE(absent);
  EXPECT_NE(absent.error().find("no interface of this machine has the address 192.0.2.1"),
            std::string::npos)
      << absent.error();
  EXPECT_NE(absent.error().find("127.0.0.1 (lo)"), std::string::npos) << absent.error();
  auto held = open_roce_socket(local(own_address(9)));
  ASSERT_TRUE(held) << held.error();
  const auto taken = check_udp_port(gid_of(own_address(9)), "");
  ASSERT_FALSE(taken);
  EXPECT_NE(taken.error().find("another hostnicd"), std::string::npos) << taken.error();
  const auto free = check_udp_port(gid_of(own_address(10)), "");
  ASSERT_TRUE(free) << free.error();
  EXPECT_EQ(free->interface, "lo");
  EXPECT_EQ(free->prefix_length, 24u);
  EXPECT_GE(free->mtu_bytes, 1500u);
  const Gid own = gid_of(own_address(9));
  EXPECT_TRUE(kernel_routes(own, gid_of(own_address(10)), 0));
  EXPECT_FALSE(kernel_routes(own, gid_of(Ipv4Address{0xc0000201}), 0)) << "nothing leaves lo";
  EXPECT_FALSE(kernel_routes(own, parse_gid("::1").value(), 0)) << "of another family";
  EXPECT_FALSE(check_udp_port(gid_of(own_address(10)), "eth99")) << "not of that interface";
}

}  // namespace
}  // namespace hostnic
