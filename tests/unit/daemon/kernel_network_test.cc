// SPDX-License-Identifier: BSD-3-Clause
// What the kernel says of its interfaces and addresses.
#include "dataplane/daemon/network/kernel_network.h"

#include <gtest/gtest.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <string.h>

#include <algorithm>
#include <string>
#include <vector>

namespace hostnic {
namespace {

using Bytes = std::vector<std::byte>;

void add_bytes(Bytes& to, const void* from, size_t bytes) {
  const auto* const begin = static_cast<const std::byte*>(from);
  to.insert(to.end(), begin, begin + bytes);
  to.resize(NLMSG_ALIGN(to.size()));
}

// A message of some fixed part and attributes, as the kernel writes it.
class NetlinkMessage {
 public:
  template <class Fixed>
  NetlinkMessage(uint16_t type, const Fixed& fixed) : type_(type) {
    add_bytes(body_, &fixed, sizeof fixed);
  }
  NetlinkMessage& with(uint16_t type, const void* value, size_t bytes) {
    const rtattr attribute{static_cast<uint16_t>(sizeof(rtattr) + bytes), type};
    add_bytes(body_, &attribute, sizeof attribute);
    add_bytes(body_, value, bytes);
    return *this;
  }
  NetlinkMessage& with(uint16_t type, uint32_t value) { return with(type, &value, sizeof value); }
  NetlinkMessage& with(uint16_t type, const char* text) {
    return with(type, text, strlen(text) + 1);
  }
  Bytes bytes() const {
    nlmsghdr header{};
    header.nlmsg_len = static_cast<uint32_t>(sizeof header + body_.size());
    header.nlmsg_type = type_;
    Bytes all;
    add_bytes(all, &header, sizeof header);
    all.insert(all.end(), body_.begin(), body_.end());
    return all;
  }

 private:
  uint16_t type_;
  Bytes body_;
};

constexpr unsigned kIffLowerUp = 1 << 16;  // of <linux/if.h>
constexpr unsigned kUp = IFF_UP | IFF_RUNNING | kIffLowerUp;

ifinfomsg link(int index, unsigned flags, uint8_t family = AF_UNSPEC) {
  ifinfomsg message{};
  message.ifi_family = family;
  message.ifi_index = index;
  message.ifi_flags = flags;
  return message;
}

NetlinkMessage new_link(int index, const char* name, uint32_t mtu, unsigned flags = kUp) {
  return NetlinkMessage(RTM_NEWLINK, link(index, flags))
      .with(IFLA_IFNAME, name)
      .with(IFLA_MTU, mtu);
}

NetlinkMessage address(uint16_t type, uint32_t index, uint32_t ip, uint8_t family = AF_INET) {
  ifaddrmsg message{};
  message.ifa_family = family;
  message.ifa_index = index;
  return NetlinkMessage(type, message).with(IFA_LOCAL, htonl(ip));
}

class KernelNetworkTest : public testing::Test {
 protected:
  // How often the table changed.
  int say(const Bytes& datagram) {
    int changes = 0;
    outcome_ = network_.apply(datagram, [&] { ++changes; });
    return changes;
  }
  int say(const NetlinkMessage& message) { return say(message.bytes()); }

  KernelNetwork network_;
  KernelNetwork::Outcome outcome_;
};

constexpr uint32_t kIp = 0x0a000001, kSecondIp = 0x0a000002;

TEST_F(KernelNetworkTest, InterfacesAndTheirAddresses) {
  EXPECT_EQ(say(new_link(3, "veth0", 1500)), 1);
  EXPECT_EQ(say(address(RTM_NEWADDR, 3, kIp)), 1);
  const KernelNetwork::Interface* interface = network_.named("veth0");
  ASSERT_NE(interface, nullptr);
  EXPECT_EQ(interface->index, 3u);
  EXPECT_EQ(interface->mtu_bytes, 1500u);
  EXPECT_TRUE(interface->up);
  EXPECT_EQ(network_.with(gid_of(Ipv4Address{kIp})), interface);
  EXPECT_EQ(network_.with(gid_of(Ipv4Address{kSecondIp})), nullptr);
  EXPECT_EQ(network_.named("veth"), nullptr);
}

TEST_F(KernelNetworkTest, OnlyWhatIsNewIsAChange) {
  EXPECT_EQ(say(new_link(3, "veth0", 1500)), 1);
  EXPECT_EQ(say(new_link(3, "veth0", 1500)), 0);
  EXPECT_EQ(say(new_link(3, "veth0", 9000)), 1);
  EXPECT_EQ(say(new_link(3, "eth7", 9000)), 1);
  EXPECT_EQ(say(address(RTM_NEWADDR, 3, kIp)), 1);
  EXPECT_EQ(say(address(RTM_NEWADDR, 3, kIp)), 0);
  EXPECT_EQ(say(address(RTM_DELADDR, 3, kIp)), 1);
  EXPECT_EQ(say(address(RTM_DELADDR, 3, kIp)), 0);
}

TEST_F(KernelNetworkTest, AnInterfaceIsUpWithACarrierOnly) {
  say(new_link(3, "veth0", 1500, IFF_UP));
  EXPECT_FALSE(network_.named("veth0")->up);
  say(new_link(3, "veth0", 1500, IFF_RUNNING | kIffLowerUp));
  EXPECT_FALSE(network_.named("veth0")->up);
  say(new_link(3, "veth0", 1500, IFF_UP | IFF_RUNNING));  // nobody has looked at the carrier yet
  EXPECT_FALSE(network_.named("veth0")->up);
  say(new_link(3, "veth0", 1500));
  EXPECT_TRUE(network_.named("veth0")->up);
}

TEST_F(KernelNetworkTest, ACarrierThatWasLostBetweenTwoMessagesIsNews) {
  const auto link_that_lost = [](uint32_t losses) {
    return new_link(3, "veth0", 1500).with(IFLA_CARRIER_DOWN_COUNT, losses);
  };
  say(link_that_lost(1));
  EXPECT_EQ(say(link_that_lost(1)), 0);
  EXPECT_EQ(say(link_that_lost(2)), 1);
  EXPECT_TRUE(network_.named("veth0")->up);
  EXPECT_EQ(network_.named("veth0")->carrier_losses, 2u);
  EXPECT_EQ(say(new_link(3, "veth0", 1500)), 0);  // a message without the count
  EXPECT_EQ(network_.named("veth0")->carrier_losses, 2u);
}

// A link that goes down and up again between two looks has done both.
TEST_F(KernelNetworkTest, EachMessageOfADatagramIsApplied) {
  say(new_link(3, "veth0", 1500));
  Bytes both = new_link(3, "veth0", 1500, IFF_UP).bytes();
  const Bytes up = new_link(3, "veth0", 1500).bytes();
  both.insert(both.end(), up.begin(), up.end());
  std::vector<bool> seen;
  network_.apply(both, [&] { seen.push_back(network_.named("veth0")->up); });
  EXPECT_EQ(seen, (std::vector{false, true}));
}

TEST_F(KernelNetworkTest, AnInterfaceTakesItsAddressesWithIt) {
  say(new_link(3, "veth0", 1500));
  say(address(RTM_NEWADDR, 3, kIp));
  EXPECT_EQ(say(NetlinkMessage(RTM_DELLINK, link(3, 0))), 1);
  EXPECT_EQ(network_.named("veth0"), nullptr);
  EXPECT_EQ(network_.with(gid_of(Ipv4Address{kIp})), nullptr);
  say(new_link(4, "veth0", 1500));
  EXPECT_EQ(network_.with(gid_of(Ipv4Address{kIp})), nullptr);
  EXPECT_EQ(network_.named("veth0")->index, 4u);
}

// A member that leaves a bridge is announced as a link of the bridge's family that is gone.
TEST_F(KernelNetworkTest, WhatABridgeSaysOfItsMembersIsNotOfTheInterface) {
  say(new_link(3, "veth0", 1500));
  EXPECT_EQ(say(NetlinkMessage(RTM_NEWLINK, link(3, 0, AF_BRIDGE)).with(IFLA_MTU, 1u)), 0);
  EXPECT_EQ(say(NetlinkMessage(RTM_DELLINK, link(3, 0, AF_BRIDGE))), 0);
  EXPECT_TRUE(network_.named("veth0")->up);
}

TEST_F(KernelNetworkTest, WhatAMessageDoesNotSayStays) {
  say(new_link(3, "wlan0", 1500));
  EXPECT_EQ(say(NetlinkMessage(RTM_NEWLINK, link(3, kUp))), 0);
  EXPECT_EQ(network_.named("wlan0")->mtu_bytes, 1500u);
}

TEST_F(KernelNetworkTest, OtherFamiliesAndUnknownInterfacesHaveNoAddressForUs) {
  say(new_link(3, "veth0", 1500));
  EXPECT_EQ(say(address(RTM_NEWADDR, 3, kIp, AF_INET6)), 0);
  EXPECT_EQ(say(address(RTM_NEWADDR, 9, kIp)), 0);
}

// IFA_ADDRESS of a tunnel is the other end's.
TEST_F(KernelNetworkTest, TheOwnEndOfATunnelIsTheAddress) {
  say(new_link(3, "tun0", 1500));
  say(address(RTM_NEWADDR, 3, kIp).with(IFA_ADDRESS, htonl(kSecondIp)));
  EXPECT_NE(network_.with(gid_of(Ipv4Address{kIp})), nullptr);
  EXPECT_EQ(network_.with(gid_of(Ipv4Address{kSecondIp})), nullptr);
}

TEST_F(KernelNetworkTest, TheLoopbackNetworkIsOneInterfaces) {
  say(new_link(1, "lo", 65536));
  say(address(RTM_NEWADDR, 1, 0x7f000001));
  EXPECT_EQ(network_.with(gid_of(Ipv4Address{0x7f4d0002})), network_.named("lo"));
  say(address(RTM_DELADDR, 1, 0x7f000001));
  EXPECT_EQ(network_.with(gid_of(Ipv4Address{0x7f4d0002})), nullptr);
}

TEST_F(KernelNetworkTest, EndsAndErrors) {
  say(NetlinkMessage(NLMSG_DONE, int32_t{0}));
  EXPECT_TRUE(outcome_.dump_ended);
  nlmsgerr refused{};
  refused.error = -EPERM;
  say(NetlinkMessage(NLMSG_ERROR, refused));
  EXPECT_EQ(outcome_.error, EPERM);
  EXPECT_FALSE(outcome_.dump_ended);
}

// Lengths that reach beyond the end, or nowhere: nothing is read there (the sanitizers look), and
// nothing goes on for ever.
TEST_F(KernelNetworkTest, WhatIsCutIsSkipped) {
  for (const NetlinkMessage& message : {new_link(3, "veth0", 1500), address(RTM_NEWADDR, 3, kIp),
                                        NetlinkMessage(NLMSG_ERROR, nlmsgerr{})}) {
    const Bytes whole = message.bytes();
    for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
      // Exactly as long, so that a read behind the end is one behind the allocation.
      const Bytes cut(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(bytes));
      EXPECT_EQ(say(cut), 0);
      if (bytes < sizeof(nlmsghdr)) continue;
      Bytes shorter = cut;
      const auto length = static_cast<uint32_t>(bytes);
      memcpy(shorter.data(), &length, sizeof length);
      say(shorter);
    }
    for (size_t at = 0; at < whole.size(); ++at)
      for (const uint8_t value : {0x00, 0x01, 0x03, 0xff}) {
        Bytes changed = whole;
        changed[at] = std::byte{value};
        say(changed);
      }
  }
}

}  // namespace
}  // namespace hostnic
