// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/cli/netlink.h"

#include <errno.h>
#include <fmt/format.h>
#include <linux/if_link.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <span>

namespace hostnic::cli {
namespace {

// Builds one message: header, a fixed part, attributes, some of which hold others.
class Message {
 public:
  template <typename Fixed>
  Message(uint16_t type, uint16_t flags, const Fixed& fixed) {
    nlmsghdr header{};
    header.nlmsg_type = type;
    header.nlmsg_flags = static_cast<uint16_t>(NLM_F_REQUEST | NLM_F_ACK | flags);
    append(&header, sizeof header);
    append(&fixed, sizeof fixed);
  }

  void add(uint16_t type, const void* data, size_t bytes) {
    const size_t start = begin(type);
    append(data, bytes);
    end(start);
  }
  void add(uint16_t type, const std::string& text) { add(type, text.c_str(), text.size() + 1); }
  void add(uint16_t type, uint32_t number) { add(type, &number, sizeof number); }

  // What is added between begin() and end() lies within the attribute.
  size_t begin(uint16_t type) {
    pad();
    const size_t start = bytes_.size();
    const rtattr attribute{0, type};
    append(&attribute, sizeof attribute);
    return start;
  }
  void end(size_t start) {
    const auto bytes = static_cast<uint16_t>(bytes_.size() - start);
    memcpy(bytes_.data() + start, &bytes, sizeof bytes);
    pad();
  }

  template <typename Fixed>
  void append_fixed(const Fixed& fixed) {
    append(&fixed, sizeof fixed);
  }

  std::vector<char> finish() {
    const auto bytes = static_cast<uint32_t>(bytes_.size());
    memcpy(bytes_.data(), &bytes, sizeof bytes);
    return std::move(bytes_);
  }

 private:
  void append(const void* data, size_t bytes) {
    const char* from = static_cast<const char*>(data);
    bytes_.insert(bytes_.end(), from, from + bytes);
  }
  void pad() { bytes_.resize(NLMSG_ALIGN(bytes_.size())); }

  std::vector<char> bytes_;
};

constexpr uint16_t kCreate = NLM_F_CREATE | NLM_F_EXCL;

}  // namespace

Expected<Netlink, std::string> Netlink::open() {
  UniqueFd fd(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  if (!fd) return Unexpected(fmt::format("a netlink socket: {}", strerror(errno)));
  return Netlink(std::move(fd));
}

Netlink::Result Netlink::request(const std::vector<char>& message, const std::string& what) {
  const auto failed = [&](int error) {
    return Unexpected(fmt::format("{}: {}", what, strerror(error)));
  };
  if (send(socket_.get(), message.data(), message.size(), 0) < 0) return failed(errno);
  alignas(nlmsghdr) char answer[4096];
  const ssize_t bytes = recv(socket_.get(), answer, sizeof answer, 0);
  nlmsghdr header{};
  nlmsgerr result{};
  if (bytes < static_cast<ssize_t>(sizeof header + sizeof result)) return failed(EPROTO);
  memcpy(&header, answer, sizeof header);
  memcpy(&result, answer + NLMSG_HDRLEN, sizeof result);
  if (header.nlmsg_type != NLMSG_ERROR) return failed(EPROTO);
  if (result.error != 0) return failed(-result.error);
  return {};
}

Expected<uint32_t, std::string> Netlink::index_of(const std::string& name) {
  // The question is put to the socket, whose namespace need not be the process's any more.
  ifreq asked{};
  name.copy(asked.ifr_name, IFNAMSIZ - 1);
  if (ioctl(socket_.get(), SIOCGIFINDEX, &asked) != 0)
    return Unexpected(fmt::format("interface {}: {}", name, strerror(errno)));
  return static_cast<uint32_t>(asked.ifr_ifindex);
}

Netlink::Result Netlink::add_bridge(const std::string& name) {
  Message message(RTM_NEWLINK, kCreate, ifinfomsg{});
  message.add(IFLA_IFNAME, name);
  const size_t info = message.begin(IFLA_LINKINFO);
  message.add(IFLA_INFO_KIND, std::string("bridge"));
  message.end(info);
  return request(message.finish(), fmt::format("a bridge {}", name));
}

Netlink::Result Netlink::add_veth(const std::string& name, const std::string& peer,
                                  int peer_namespace, uint32_t mtu_bytes) {
  Message message(RTM_NEWLINK, kCreate, ifinfomsg{});
  message.add(IFLA_IFNAME, name);
  message.add(IFLA_MTU, mtu_bytes);
  const size_t info = message.begin(IFLA_LINKINFO);
  message.add(IFLA_INFO_KIND, std::string("veth"));
  const size_t data = message.begin(IFLA_INFO_DATA);
  const size_t other = message.begin(VETH_INFO_PEER);
  message.append_fixed(ifinfomsg{});
  message.add(IFLA_IFNAME, peer);
  message.add(IFLA_MTU, mtu_bytes);
  message.add(IFLA_NET_NS_FD, static_cast<uint32_t>(peer_namespace));
  message.end(other);
  message.end(data);
  message.end(info);
  return request(message.finish(), fmt::format("a veth {} with an MTU of {}", name, mtu_bytes));
}

Netlink::Result Netlink::join(const std::string& name, const std::string& bridge) {
  auto index = index_of(name);
  if (!index) return Unexpected(index.error());
  auto master = index_of(bridge);
  if (!master) return Unexpected(master.error());
  ifinfomsg link{};
  link.ifi_index = static_cast<int>(*index);
  Message message(RTM_NEWLINK, 0, link);
  message.add(IFLA_MASTER, *master);
  return request(message.finish(), fmt::format("{} on bridge {}", name, bridge));
}

Netlink::Result Netlink::add_address(const std::string& name, Ipv4Address address,
                                     uint32_t prefix_length) {
  auto index = index_of(name);
  if (!index) return Unexpected(index.error());
  ifaddrmsg fixed{};
  fixed.ifa_family = AF_INET;
  fixed.ifa_prefixlen = static_cast<uint8_t>(prefix_length);
  fixed.ifa_index = *index;
  const uint32_t bytes = htonl(raw(address));
  const uint32_t broadcast = bytes | htonl(~raw(network_mask(prefix_length)));
  Message message(RTM_NEWADDR, kCreate, fixed);
  message.add(IFA_LOCAL, bytes);
  message.add(IFA_ADDRESS, bytes);
  message.add(IFA_BROADCAST, broadcast);
  return request(message.finish(), fmt::format("an address for {}", name));
}

Netlink::Result Netlink::set_up(const std::string& name) {
  auto index = index_of(name);
  if (!index) return Unexpected(index.error());
  ifinfomsg link{};
  link.ifi_index = static_cast<int>(*index);
  link.ifi_flags = link.ifi_change = IFF_UP;
  Message message(RTM_NEWLINK, 0, link);
  return request(message.finish(), fmt::format("{} up", name));
}

}  // namespace hostnic::cli
