// SPDX-License-Identifier: BSD-3-Clause
#include "protocol/gid.h"

#include <gtest/gtest.h>

#include <string>

namespace hostnic {
namespace {

Gid gid(const char* text) { return parse_gid(text).value(); }

TEST(Gid, Ipv4AddressesAreMapped) {
  EXPECT_EQ(gid("10.0.0.1"), gid_of(Ipv4Address{0x0a000001}));
  EXPECT_EQ(gid("::ffff:10.0.0.1"), gid_of(Ipv4Address{0x0a000001}));
  EXPECT_EQ(ipv4_of(gid("10.0.0.1")), Ipv4Address{0x0a000001});
  EXPECT_FALSE(ipv4_of(gid("fd00::1")));
  EXPECT_FALSE(ipv4_of(gid("::10.0.0.1"))) << "compatible is not mapped";
}

TEST(Gid, TextGoesThereAndBack) {
  for (const std::string text : {"10.0.0.1", "fd00::1", "fe80::1234:56ff:fe78:9abc", "::1", "::"})
    EXPECT_EQ(to_string(gid(text.c_str())), text);
  for (const char* text :
       {"", "10.0.0", "10.0.0.256", "fd00:::1", "fe80::1%eth0", "eth0", "1::2::3"})
    EXPECT_FALSE(parse_gid(text)) << text;
}

TEST(Gid, IPv6AddressesBeforePortsAreInBrackets) {
  EXPECT_EQ(host_text(gid("10.0.0.1")), "10.0.0.1");
  EXPECT_EQ(host_text(gid("fd00::1")), "[fd00::1]");
}

TEST(Gid, LoopbackOfIpv4IsANetwork) {
  for (const char* text : {"127.0.0.1", "127.255.1.2", "::ffff:127.77.0.1"})
    EXPECT_TRUE(is_ipv4_loopback(gid(text))) << text;
  for (const char* text : {"126.0.0.1", "128.0.0.1", "::1", "::127.0.0.1", "0.0.0.0"})
    EXPECT_FALSE(is_ipv4_loopback(gid(text))) << text;
}

TEST(Gid, HostsAreNeitherGroupsNorNothing) {
  for (const char* text : {"fd00::1", "2001:db8::1", "fe80::1", "::1", "64:ff9b::1.2.3.4"})
    EXPECT_TRUE(is_ipv6_host(gid(text))) << text;
  for (const char* text : {"::", "ff02::1", "::ffff:10.0.0.1", "10.0.0.1", "::10.0.0.1"})
    EXPECT_FALSE(is_ipv6_host(gid(text))) << text;
}

TEST(Gid, LinkLocalIsATenBitPrefix) {
  EXPECT_TRUE(is_link_local(gid("fe80::1")));
  EXPECT_TRUE(is_link_local(gid("febf::1")));
  EXPECT_FALSE(is_link_local(gid("fec0::1")));
  EXPECT_FALSE(is_link_local(gid("fd80::1")));
}

TEST(Gid, NetworksAreCompared) {
  const Gid a = gid("fd00:1:2:3::1"), b = gid("fd00:1:2:3ff::1");
  EXPECT_TRUE(same_network(a, b, 0));
  EXPECT_TRUE(same_network(a, b, 48));
  EXPECT_TRUE(same_network(a, b, 54)) << "0x0003 and 0x03ff agree in six bits";
  EXPECT_FALSE(same_network(a, b, 55));
  EXPECT_FALSE(same_network(a, b, 64));
  EXPECT_TRUE(same_network(a, a, 128));
  EXPECT_FALSE(same_network(a, gid("fd00:1:2:3::"), 128));
}

TEST(Gid, Ipv4GroupsHaveACounterpart) {
  EXPECT_EQ(ipv6_group_of(Ipv4Address{0xef010203}), gid("ff0e::ffff:239.1.2.3"));
}

}  // namespace
}  // namespace hostnic
