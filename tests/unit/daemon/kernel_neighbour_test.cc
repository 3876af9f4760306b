// SPDX-License-Identifier: BSD-3-Clause
// What rtnetlink says of one route and one neighbour.
#include "dataplane/daemon/network/kernel_neighbour.h"

#include <gtest/gtest.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>

#include <cstring>
#include <vector>

namespace hostnic {
namespace {

// A message as the kernel sends it.
class Message {
 public:
  template <class Fixed>
  Message(uint16_t type, const Fixed& fixed) {
    nlmsghdr header{};
    header.nlmsg_type = type;
    append(header);
    append(fixed);
    finish();
  }
  template <class Value>
  Message& add(uint16_t type, const Value& value) {
    append(rtattr{static_cast<uint16_t>(RTA_LENGTH(sizeof value)), type});
    append(value);
    finish();
    return *this;
  }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  template <class Part>
  void append(const Part& part) {
    const auto from = std::as_bytes(std::span(&part, 1));
    bytes_.insert(bytes_.end(), from.begin(), from.end());
    bytes_.resize(NLMSG_ALIGN(bytes_.size()));
  }
  void finish() {
    const auto length = static_cast<uint32_t>(bytes_.size());
    memcpy(bytes_.data() + offsetof(nlmsghdr, nlmsg_len), &length, sizeof length);
  }
  std::vector<std::byte> bytes_;
};

rtmsg unicast() {
  rtmsg fixed{};
  fixed.rtm_family = AF_INET;
  fixed.rtm_type = RTN_UNICAST;
  return fixed;
}

TEST(KernelNeighbour, ARouteNamesInterfaceAndGateway) {
  Message message(RTM_NEWROUTE, unicast());
  message.add(RTA_OIF, uint32_t{7}).add(RTA_GATEWAY, htonl(0x0a000001));
  const auto route = parse_route(message.bytes());
  ASSERT_TRUE(route);
  EXPECT_TRUE(route->is_unicast);
  EXPECT_EQ(route->interface_index, 7u);
  EXPECT_EQ(route->gateway, gid_of(Ipv4Address{0x0a000001}));
  EXPECT_FALSE(route->gateway_is_foreign);
}

TEST(KernelNeighbour, ARouteOnTheLinkHasNoGateway) {
  rtmsg local = unicast();
  local.rtm_type = RTN_LOCAL;
  const auto route = parse_route(Message(RTM_NEWROUTE, local).add(RTA_OIF, uint32_t{1}).bytes());
  ASSERT_TRUE(route);
  EXPECT_FALSE(route->is_unicast);
  EXPECT_EQ(route->gateway, std::nullopt);
}

TEST(KernelNeighbour, CutOrForeignMessagesSayNothing) {
  Message message(RTM_NEWROUTE, unicast());
  message.add(RTA_OIF, uint32_t{7}).add(RTA_GATEWAY, htonl(0x0a000001));
  for (size_t bytes = 0; bytes < message.bytes().size(); ++bytes)
    EXPECT_FALSE(parse_route(message.bytes().first(bytes))) << bytes;
  EXPECT_FALSE(parse_neighbour(message.bytes()));
  // An attribute that is longer than the message ends it.
  Message bad(RTM_NEWROUTE, unicast());
  bad.add(RTA_GATEWAY, uint16_t{1});
  const auto route = parse_route(bad.bytes());
  ASSERT_TRUE(route);
  EXPECT_EQ(route->gateway, std::nullopt) << "no address of two bytes";
}

TEST(KernelNeighbour, ANeighbourHasAState) {
  ndmsg fixed{};
  fixed.ndm_state = NUD_STALE;
  EXPECT_EQ(parse_neighbour(Message(RTM_NEWNEIGH, fixed).bytes()), uint16_t{NUD_STALE});
}

TEST(KernelNeighbour, ThisHostNeedNotAnswer) {
  const Gid loopback = gid_of(Ipv4Address{INADDR_LOOPBACK});
  KernelNeighbours neighbours;
  EXPECT_EQ(neighbours.look_up(loopback, loopback, 1), KernelNeighbours::Known::kYes);
}

}  // namespace
}  // namespace hostnic
