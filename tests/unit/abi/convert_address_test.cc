// SPDX-License-Identifier: BSD-3-Clause
// Addresses: GIDs, groups, address vectors, and the headers that say where a message came from.
#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <initializer_list>

#include "tests/unit/abi/convert_device.h"
#include "verbs-shim/abi/convert.h"

namespace hostnic::abi {
namespace {

LastByteNumbers numbers;

TEST(AbiGid, IsTheIpv4MappedAddress) {
  const ibv_gid gid = gid_from_ip(kOwnIp);
  char text[INET6_ADDRSTRLEN];
  ASSERT_NE(inet_ntop(AF_INET6, gid.raw, text, sizeof text), nullptr);
  EXPECT_STREQ(text, "::ffff:10.0.0.1");
  EXPECT_EQ(ip_from_gid(gid), Ipv4Address{kOwnIp});
}

TEST(AbiGid, OthersHaveNoAddress) {
  ibv_gid link_local{};
  link_local.raw[0] = 0xfe;
  link_local.raw[1] = 0x80;
  link_local.raw[15] = 1;
  EXPECT_FALSE(ip_from_gid(link_local));
  EXPECT_FALSE(ip_from_gid(ibv_gid{}));
}

ibv_gid gid_of(std::initializer_list<uint8_t> front, std::initializer_list<uint8_t> back = {}) {
  ibv_gid gid{};
  std::ranges::copy(front, gid.raw);
  std::ranges::copy(back, gid.raw + sizeof gid.raw - back.size());
  return gid;
}

TEST(AbiGroup, Ipv4GroupsAreThemselves) {
  for (const uint32_t ip : {0xe0000001u, 0xef010203u, 0xefffffffu}) {
    EXPECT_EQ(group_from_gid(gid_from_ip(ip)), Ipv4Address{ip});
    ibv_gid encoded = gid_from_ip(ip);
    encoded.raw[0] = 0xff;
    encoded.raw[1] = 0x0e;
    EXPECT_EQ(group_from_gid(encoded), Ipv4Address{ip}) << "as RoCEv1 writes it";
  }
}

// Both ends compute it, maybe with other versions: these numbers stay as they are.
TEST(AbiGroup, OthersHaveOneByHash) {
  const ibv_gid perftest_servers = gid_of({0xff, 1, 0, 0, 0, 2, 0xc9, 0x85}),
                perftest_clients = gid_of({0xff, 1, 0, 0, 0, 2, 0xc9, 0x85}, {1});
  EXPECT_EQ(group_from_gid(perftest_servers), Ipv4Address{0xef45f85c});
  EXPECT_EQ(group_from_gid(perftest_clients), Ipv4Address{0xef45f6ca});
  EXPECT_EQ(group_from_gid(gid_of({0xff, 0x0e}, {0xff, 0xff, 10, 0, 0, 1})),
            Ipv4Address{0xefaa546c})
      << "encodes a host";
}

TEST(AbiGroup, HostsAreNone) {
  EXPECT_FALSE(group_from_gid(gid_from_ip(kOwnIp)));
  EXPECT_FALSE(group_from_gid(gid_from_ip(0xdfffffff)));
  EXPECT_FALSE(group_from_gid(gid_from_ip(0xf0000000)));
  EXPECT_FALSE(group_from_gid(ibv_gid{}));
  EXPECT_FALSE(group_from_gid(gid_of({0xfe, 0x80}, {1})));
}

TEST(AbiGroup, OnlyDatagramsGoThere) {
  ibv_qp_attr attr{};
  attr.ah_attr.port_num = 1;
  attr.ah_attr.is_global = 1;
  for (const ibv_gid& gid : {gid_from_ip(0xef010203), gid_of({0xff, 0x12}, {7})}) {
    attr.ah_attr.grh.dgid = gid;
    driver::UdAddress path;
    ASSERT_EQ(to_ud_address(attr.ah_attr, device(), numbers, path), 0);
    EXPECT_EQ(path.ip, group_from_gid(gid));
    driver::QpAttr out;
    EXPECT_EQ(to_qp_attr(attr, IBV_QP_AV, device(), numbers, out), EINVAL)
        << "no peer of a connection";
  }
}

TEST(AbiAddress, GidWinsOverLid) {
  ibv_ah_attr av{};
  av.is_global = 1;
  av.dlid = 9;
  av.grh.dgid = gid_from_ip(0xc0a80102);
  EXPECT_EQ(destination_of(av, device()), hostnic::gid_of(Ipv4Address{0xc0a80102}));
}

// As kernels say for RoCE ports, whatever the LID.
TEST(AbiAddress, WithoutAGrhLeadsNowhere) {
  ibv_qp_attr attr{};
  attr.ah_attr.port_num = 1;
  for (const uint16_t lid : {uint16_t{0}, uint16_t{0x105}}) {
    attr.ah_attr.dlid = lid;
    driver::QpAttr out;
    EXPECT_EQ(to_qp_attr(attr, IBV_QP_AV, device(), numbers, out), EINVAL);
    driver::UdAddress path;
    EXPECT_EQ(to_ud_address(attr.ah_attr, device(), numbers, path), EINVAL);
  }
}

TEST(AbiAddress, WhereThereAreLidsOneMeansTheSameNetwork) {
  DeviceInfo info = device();
  info.ip = kOwnIp;
  info.lid = 7;
  ibv_ah_attr av{};
  av.dlid = 0x0105;
  EXPECT_EQ(destination_of(av, info), hostnic::gid_of(Ipv4Address{0x0a000105}));
  av.dlid = 0;
  EXPECT_FALSE(destination_of(av, info));
}

// ---- IPv6 and tables of several GIDs

Gid gid_text(const char* text) { return parse_gid(text).value(); }

DeviceInfo dual_stack_device() {
  DeviceInfo info = device();
  set_gids(info, {gid_text("10.0.0.1"), gid_text("fd00::1"), gid_text("fe80::1")});
  return info;
}

ibv_ah_attr path_to(const char* host, uint8_t sgid_index) {
  ibv_ah_attr av{};
  av.port_num = 1;
  av.is_global = 1;
  av.grh.dgid = from_gid(gid_text(host));
  av.grh.sgid_index = sgid_index;
  return av;
}

TEST(AbiAddress, Ipv6HostsGoByTheNumberThatTheNicGives) {
  driver::UdAddress path;
  ASSERT_EQ(to_ud_address(path_to("fd00::7", 1), dual_stack_device(), numbers, path), 0);
  EXPECT_EQ(path.ip, Ipv4Address{0xf0000007});
  EXPECT_EQ(path.source_index, 1);
  ASSERT_EQ(to_ud_address(path_to("fe80::9", 2), dual_stack_device(), numbers, path), 0);
  EXPECT_EQ(path.source_index, 2);
}

TEST(AbiAddress, BothEndsAreOfOneFamily) {
  driver::UdAddress path;
  EXPECT_EQ(to_ud_address(path_to("fd00::7", 0), dual_stack_device(), numbers, path), EINVAL);
  EXPECT_EQ(to_ud_address(path_to("10.0.0.2", 1), dual_stack_device(), numbers, path), EINVAL);
  EXPECT_EQ(to_ud_address(path_to("10.0.0.2", 3), dual_stack_device(), numbers, path), EINVAL)
      << "no such GID";
  EXPECT_EQ(to_ud_address(path_to("::ffff:240.0.0.1", 0), dual_stack_device(), numbers, path),
            EINVAL)
      << "a number that stands for an IPv6 address is no address";
}

TEST(AbiAddress, UnusableGidsAreRefused) {
  DeviceInfo info = dual_stack_device();
  info.gids[2].usable = 0;
  driver::UdAddress path;
  EXPECT_EQ(to_ud_address(path_to("fe80::9", 2), info, numbers, path), EINVAL);
}

TEST(AbiAddress, AGidThatWentIsNone) {
  DeviceInfo info = dual_stack_device();
  memset(info.gids[1].gid, 0, sizeof info.gids[1].gid);
  driver::UdAddress path;
  EXPECT_EQ(to_ud_address(path_to("fd00::7", 1), info, numbers, path), EINVAL);
  EXPECT_EQ(to_ud_address(path_to("fe80::9", 2), info, numbers, path), 0);
}

TEST(AbiAddress, TheNicsErrorIsTheCallers) {
  LastByteNumbers full;
  full.error = ENOMEM;
  driver::UdAddress path;
  EXPECT_EQ(to_ud_address(path_to("fd00::7", 1), dual_stack_device(), full, path), ENOMEM);
}

TEST(AbiQpAttr, Ipv6ComesBackAsItWent) {
  ibv_qp_attr attr{};
  attr.ah_attr = path_to("fd00::7", 1);
  attr.port_num = 1;
  driver::QpAttr inside;
  ASSERT_EQ(to_qp_attr(attr, IBV_QP_AV, dual_stack_device(), numbers, inside), 0);
  EXPECT_EQ(inside.dest_ip, Ipv4Address{0xf0000007});
  ibv_qp_attr back;
  from_qp_attr(inside, {}, back);
  EXPECT_EQ(to_gid(back.ah_attr.grh.dgid), gid_text("fd00::7"));
  EXPECT_EQ(back.ah_attr.grh.sgid_index, 1);
}

// A receive's first 40 bytes, as of a datagram over IPv6.
ibv_grh ipv6_header(const char* from, const char* to) {
  ibv_grh grh{};
  grh.version_tclass_flow = htonl(6u << 28 | 0x2au << 20);
  grh.sgid = from_gid(gid_text(from));
  grh.dgid = from_gid(gid_text(to));
  return grh;
}

TEST(AbiReturnPath, LeadsBackOverIpv6) {
  ibv_wc wc{};
  wc.wc_flags = IBV_WC_GRH;
  ibv_ah_attr back{};
  const DeviceInfo info = dual_stack_device();
  ASSERT_EQ(to_return_path(wc, ipv6_header("fd00::7", "fd00::1"), 1, info, back), 0);
  EXPECT_EQ(to_gid(back.grh.dgid), gid_text("fd00::7"));
  EXPECT_EQ(back.grh.sgid_index, 1);
  EXPECT_EQ(back.grh.traffic_class, 0x2a);
  ASSERT_EQ(to_return_path(wc, ipv6_header("fe80::7", "ff0e::ffff:239.1.2.3"), 1, info, back), 0);
  EXPECT_NE(back.grh.sgid_index, 0) << "IPv6 from a group";
  EXPECT_EQ(to_return_path(wc, ipv6_header("fd00::7", "fd00::2"), 1, info, back), EINVAL)
      << "not for us";
}

TEST(AbiReturnPath, LeadsBackBehindAGidThatWent) {
  ibv_wc wc{};
  wc.wc_flags = IBV_WC_GRH;
  ibv_ah_attr back{};
  DeviceInfo info = dual_stack_device();
  memset(info.gids[1].gid, 0, sizeof info.gids[1].gid);
  const std::string last = to_string(gid_in(info.gids[2].gid));
  ASSERT_EQ(to_return_path(wc, ipv6_header("fe80::7", last.c_str()), 1, info, back), 0);
  EXPECT_EQ(back.grh.sgid_index, 2);
}

TEST(AbiWc, SaysWhichNetworkHeaderCame) {
  driver::Completion completion;
  completion.flags = driver::kWcGrh | driver::kWcIpv6;
  ibv_wc wc;
  to_wc(completion, wc);
  EXPECT_EQ(wc.sl, 8 | 1);
  EXPECT_EQ(wc.wc_flags, static_cast<unsigned>(IBV_WC_GRH));
  completion.flags = driver::kWcGrh;
  to_wc(completion, wc);
  EXPECT_EQ(wc.sl, 8 | 2);
}

TEST(AbiNetdev, IsWhatHostnicdSays) {
  DeviceInfo info = device();
  snprintf(info.netdev, sizeof info.netdev, "eth1");
  EXPECT_EQ(netdev_name(info), "eth1");
}

}  // namespace
}  // namespace hostnic::abi
