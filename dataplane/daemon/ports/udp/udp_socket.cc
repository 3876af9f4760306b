// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/ports/udp/udp_socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <linux/errqueue.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <bit>
#include <memory>
#include <vector>

#include "dataplane/daemon/network/kernel_interface.h"
#include "dataplane/daemon/network/socket_address.h"
#include "protocol/wire/bytes.h"
#include "protocol/wire/udp.h"

namespace hostnic {
namespace {

constexpr int kBufferBytes = 16 << 20;
constexpr uint32_t kLoopbackPrefix = 24;

// The number of ones in a netmask of either family.
uint32_t prefix_length_of(const sockaddr& netmask) {
  const auto mask = gid_of(netmask);
  if (!mask) return 0;
  if (netmask.sa_family == AF_INET)
    return static_cast<uint32_t>(std::popcount(wire::load_be32(&(*mask)[12])));
  return static_cast<uint32_t>(std::popcount(wire::load_be64(mask->data())) +
                               std::popcount(wire::load_be64(mask->data() + 8)));
}

// Calls visit(address) for each IPv4 and IPv6 address of the machine until it returns true. MTUs
// are left out.
template <class Visit>
void for_each_address(Visit&& visit) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_netmask == nullptr) continue;
    const auto address = gid_of(*entry->ifa_addr);
    if (!address) continue;
    if (visit(LocalAddress{.address = *address,
                           .interface = entry->ifa_name,
                           .interface_index = if_nametoindex(entry->ifa_name),
                           .prefix_length = prefix_length_of(*entry->ifa_netmask)}))
      return;
  }
}

// Asks the kernel about an interface of this network namespace: /sys may be another one's.
bool ask_interface(const std::string& interface, unsigned long question, ifreq& request) {
  const UniqueFd socket_fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  interface.copy(request.ifr_name, IFNAMSIZ - 1);
  return socket_fd && ioctl(socket_fd.get(), question, &request) == 0;
}

bool set_option(int fd, int level, int option, int value) {
  return setsockopt(fd, level, option, &value, sizeof value) == 0;
}

// Makes a buffer as large as the kernel lets us, which it is told in bytes of payload and answers
// in bytes of memory.
uint32_t enlarge_buffer(int fd, int option, int forced_option) {
  if (!set_option(fd, SOL_SOCKET, forced_option, kBufferBytes))
    set_option(fd, SOL_SOCKET, option, kBufferBytes);
  int bytes = 0;
  socklen_t size = sizeof bytes;
  getsockopt(fd, SOL_SOCKET, option, &bytes, &size);
  return static_cast<uint32_t>(bytes);
}

}  // namespace

bool is_local_address(const Gid& address) {
  bool found = false;
  for_each_address(
      [&](const LocalAddress& own) { return found = found || own.address == address; });
  return found;
}

Expected<LocalAddress, std::string> find_local_address(const Gid& address,
                                                       const std::string& zone) {
  LocalAddress found;
  std::string all;
  for_each_address([&](const LocalAddress& own) {
    const bool zoned = is_link_local(own.address);
    all += fmt::format("{}{}{} ({})", all.empty() ? "" : ", ", to_string(own.address),
                       zoned ? "%" + own.interface : "", own.interface);
    if (!zone.empty() && own.interface != zone) return false;
    const bool loopback = is_ipv4_loopback(address) && is_ipv4_loopback(own.address);
    if (own.address != address && !loopback) return false;
    found = own;
    // All of 127.0.0.0/8 is lo's; a NIC among others there is one of a small network.
    if (own.address != address) found.prefix_length = kLoopbackPrefix;
    found.address = address;
    return true;
  });
  if (found.interface.empty())
    return Unexpected(fmt::format("no interface of this machine has the address {}{}: it has {}",
                                  to_string(address), zone.empty() ? "" : "%" + zone,
                                  all.empty() ? "none" : all));
  auto mtu = interface_mtu(found.interface);
  if (!mtu) return Unexpected(mtu.error());
  found.mtu_bytes = *mtu;
  return found;
}

bool interface_is_up(const std::string& interface) {
  ifreq request{};
  constexpr int kWorks = IFF_UP | IFF_RUNNING;
  return ask_interface(interface, SIOCGIFFLAGS, request) && (request.ifr_flags & kWorks) == kWorks;
}

uint32_t interface_speed_mbps(const std::string& interface) {
  ifreq request{};
  ethtool_cmd settings{};
  settings.cmd = ETHTOOL_GSET;
  request.ifr_data = reinterpret_cast<char*>(&settings);
  if (!ask_interface(interface, SIOCETHTOOL, request)) return 0;
  const uint32_t mbps = ethtool_cmd_speed(&settings);
  return mbps == static_cast<uint32_t>(SPEED_UNKNOWN) ? 0 : mbps;
}

namespace {

// Opens a socket towards a destination; none, if there is no way.
UniqueFd open_way(const Gid& own, const Gid& destination, uint32_t interface_index) {
  const SocketAddress from = socket_address(own, 0, interface_index);
  const SocketAddress to = socket_address(destination, wire::kRoceUdpPort, interface_index);
  if (from.any.sa_family != to.any.sa_family) return {};
  UniqueFd probe(socket(from.any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!probe || bind(probe.get(), &from.any, from.bytes()) != 0 ||
      connect(probe.get(), &to.any, to.bytes()) != 0)
    return {};
  return probe;
}

}  // namespace

bool kernel_routes(const Gid& own, const Gid& destination, uint32_t interface_index) {
  return static_cast<bool>(open_way(own, destination, interface_index));
}

uint32_t path_mtu(const Gid& own, const Gid& destination, uint32_t interface_index) {
  const UniqueFd probe = open_way(own, destination, interface_index);
  const bool ipv4 = ipv4_of(own).has_value();
  int bytes = 0;
  socklen_t size = sizeof bytes;
  if (!probe || getsockopt(probe.get(), ipv4 ? int{IPPROTO_IP} : int{IPPROTO_IPV6},
                           ipv4 ? IP_MTU : IPV6_MTU, &bytes, &size) != 0)
    return 0;
  return static_cast<uint32_t>(bytes);
}

void send_groups_from(int socket, const LocalAddress& own) {
  if (const auto ip = ipv4_of(own.address)) {
    const in_addr address{htonl(raw(*ip))};
    setsockopt(socket, IPPROTO_IP, IP_MULTICAST_IF, &address, sizeof address);
  } else {
    set_option(socket, IPPROTO_IPV6, IPV6_MULTICAST_IF, static_cast<int>(own.interface_index));
  }
}

namespace {

// Tells the socket what packets of its family are to be like. Packets are not cut in pieces on the
// way: an ICRC, and DF, are for whole ones.
bool set_family_options(int fd, const LocalAddress& own) {
  send_groups_from(fd, own);
  if (ipv4_of(own.address)) {
    return set_option(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO) &&
           set_option(fd, IPPROTO_IP, IP_RECVTOS, 1);
  }
  return set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1) &&
         set_option(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO) &&
         set_option(fd, IPPROTO_IPV6, IPV6_RECVTCLASS, 1);
}

// Has packets to a group arrive at a socket. Several NICs of a machine may be members; each gets
// the packets of its own interface alone.
bool join_group(int fd, Ipv4Address group, const LocalAddress& own) {
  if (const auto ip = ipv4_of(own.address)) {
    const ip_mreq membership{{htonl(raw(group))}, {htonl(raw(*ip))}};
    return set_option(fd, IPPROTO_IP, IP_MULTICAST_ALL, 0) &&
           setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &membership, sizeof membership) == 0 &&
           set_option(fd, IPPROTO_IP, IP_RECVTOS, 1);
  }
  ipv6_mreq membership{};
  const Gid ipv6_group = ipv6_group_of(group);
  memcpy(&membership.ipv6mr_multiaddr, ipv6_group.data(), ipv6_group.size());
  membership.ipv6mr_interface = own.interface_index;
  return set_option(fd, IPPROTO_IPV6, IPV6_MULTICAST_ALL, 0) &&
         setsockopt(fd, IPPROTO_IPV6, IPV6_ADD_MEMBERSHIP, &membership, sizeof membership) == 0 &&
         set_option(fd, IPPROTO_IPV6, IPV6_RECVTCLASS, 1);
}

}  // namespace

Expected<RoceSocket, std::string> open_roce_socket(const LocalAddress& address) {
  RoceSocket opened;
  const SocketAddress name =
      socket_address(address.address, wire::kRoceUdpPort, address.interface_index);
  opened.fd = UniqueFd(socket(name.any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int fd = opened.fd.get();
  if (!opened.fd) return Unexpected(fmt::format("no UDP socket: {}", strerror(errno)));
  // IPV6_V6ONLY has to be said before bind().
  if (!set_family_options(fd, address) || !set_option(fd, SOL_SOCKET, SO_RXQ_OVFL, 1))
    return Unexpected(fmt::format("UDP port {} of {}: setsockopt: {}", wire::kRoceUdpPort,
                                  to_string(address.address), strerror(errno)));
  if (bind(fd, &name.any, name.bytes()) != 0) {
    const int error = errno;
    const char* remedy = error == EADDRINUSE
                             ? ": another hostnicd, rdma_rxe or program has it (a hostnicd takes "
                               "all addresses of its NIC's interface unless gids = \"one\")"
                         : error == EADDRNOTAVAIL ? ": no interface of this machine has it (yet)"
                                                  : "";
    return Unexpected(fmt::format("UDP port {} of {}: {}{}", wire::kRoceUdpPort,
                                  to_string(address.address), strerror(error), remedy));
  }
  opened.send_buffer_bytes = enlarge_buffer(fd, SO_SNDBUF, SO_SNDBUFFORCE);
  opened.receive_buffer_bytes = enlarge_buffer(fd, SO_RCVBUF, SO_RCVBUFFORCE);
  opened.coalesces = set_option(fd, IPPROTO_UDP, UDP_GRO, 1);
  // A kernel that knows the option takes it for the socket; then it is said with each message.
  opened.segments =
      set_option(fd, IPPROTO_UDP, UDP_SEGMENT, 512) && set_option(fd, IPPROTO_UDP, UDP_SEGMENT, 0);
  return opened;
}

Expected<UniqueFd, int> open_group_socket(Ipv4Address group, const LocalAddress& own) {
  const Gid address = ipv4_of(own.address) ? gid_of(group) : ipv6_group_of(group);
  const SocketAddress name = socket_address(address, wire::kRoceUdpPort, own.interface_index);
  UniqueFd opened(socket(name.any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int fd = opened.get();
  if (!opened || !set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1) ||
      bind(fd, &name.any, name.bytes()) != 0 || !join_group(fd, group, own))
    return Unexpected(errno);
  set_option(fd, IPPROTO_UDP, UDP_GRO, 1);
  enlarge_buffer(fd, SO_RCVBUF, SO_RCVBUFFORCE);
  return opened;
}

}  // namespace hostnic
