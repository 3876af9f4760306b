// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/udp_socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <linux/errqueue.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <string.h>
#include <sys/socket.h>

#include <bit>
#include <fstream>
#include <memory>
#include <vector>

#include "dataplane/daemon/kernel_interface.h"
#include "protocol/wire/ipv4.h"
#include "protocol/wire/udp.h"

namespace hostnic {
namespace {

constexpr int kBufferBytes = 16 << 20;
constexpr uint32_t kLoopbackPrefix = 24;
constexpr uint32_t kLoopbackNetwork = 127u << 24, kLoopbackMask = 0xff000000;

Ipv4Address address_of(const sockaddr* socket_address) {
  return Ipv4Address{ntohl(reinterpret_cast<const sockaddr_in*>(socket_address)->sin_addr.s_addr)};
}

sockaddr_in socket_name(Ipv4Address address, uint16_t port) {
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_port = htons(port);
  name.sin_addr.s_addr = htonl(raw(address));
  return name;
}

// Calls visit(interface, address, prefix length) for each IPv4 address of the machine until it
// returns true.
template <class Visit>
void for_each_address(Visit&& visit) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET ||
        entry->ifa_netmask == nullptr)
      continue;
    const auto prefix = static_cast<uint32_t>(std::popcount(raw(address_of(entry->ifa_netmask))));
    if (visit(std::string(entry->ifa_name), address_of(entry->ifa_addr), prefix)) return;
  }
}

std::string read_line(const std::string& path) {
  std::string line;
  std::ifstream file(path);
  std::getline(file, line);
  return line;
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

bool is_local_address(Ipv4Address address) {
  bool found = false;
  for_each_address([&](const std::string&, Ipv4Address own, uint32_t) {
    return found = found || own == address;
  });
  return found;
}

Expected<LocalAddress, std::string> find_local_address(Ipv4Address address) {
  LocalAddress found;
  std::string all;
  for_each_address([&](const std::string& interface, Ipv4Address own, uint32_t prefix) {
    all += fmt::format("{}{} ({})", all.empty() ? "" : ", ", wire::to_string(own), interface);
    const bool loopback = (raw(address) & kLoopbackMask) == kLoopbackNetwork &&
                          (raw(own) & kLoopbackMask) == kLoopbackNetwork;
    if (own != address && !loopback) return false;
    // All of 127.0.0.0/8 is lo's; a NIC among others there is one of a small network.
    found = {.interface = interface, .prefix_length = own == address ? prefix : kLoopbackPrefix};
    return true;
  });
  if (found.interface.empty())
    return Unexpected(fmt::format("no interface of this machine has the address {}: it has {}",
                                  wire::to_string(address), all.empty() ? "none" : all));
  auto mtu = interface_mtu(found.interface);
  if (!mtu) return Unexpected(mtu.error());
  found.mtu_bytes = *mtu;
  return found;
}

bool interface_is_up(const std::string& interface) {
  const std::string state = read_line("/sys/class/net/" + interface + "/operstate");
  return state == "up" || state == "unknown";  // lo and tunnels say unknown
}

uint32_t interface_speed_mbps(const std::string& interface) {
  const std::string speed = read_line("/sys/class/net/" + interface + "/speed");
  const long mbps = strtol(speed.c_str(), nullptr, 10);
  return mbps <= 0 ? 0 : static_cast<uint32_t>(mbps);
}

bool kernel_routes(Ipv4Address own, Ipv4Address destination) {
  const UniqueFd probe(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const sockaddr_in from = socket_name(own, 0), to = socket_name(destination, wire::kRoceUdpPort);
  return probe && bind(probe.get(), reinterpret_cast<const sockaddr*>(&from), sizeof from) == 0 &&
         connect(probe.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0;
}

Expected<RoceSocket, std::string> open_roce_socket(Ipv4Address address) {
  RoceSocket opened;
  opened.fd = UniqueFd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int fd = opened.fd.get();
  const sockaddr_in name = socket_name(address, wire::kRoceUdpPort);
  if (!opened.fd) return Unexpected(fmt::format("no UDP socket: {}", strerror(errno)));
  if (bind(fd, reinterpret_cast<const sockaddr*>(&name), sizeof name) != 0) {
    const int error = errno;
    const char* remedy = error == EADDRINUSE      ? ": another hostnicd, rdma_rxe or program has it"
                         : error == EADDRNOTAVAIL ? ": no interface of this machine has it"
                                                  : "";
    return Unexpected(fmt::format("UDP port {} of {}: {}{}", wire::kRoceUdpPort,
                                  wire::to_string(address), strerror(error), remedy));
  }
  // Packets are not cut in pieces on the way: an ICRC, and DF, are for whole ones.
  if (!set_option(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO) ||
      !set_option(fd, IPPROTO_IP, IP_RECVTOS, 1) || !set_option(fd, SOL_SOCKET, SO_RXQ_OVFL, 1))
    return Unexpected(fmt::format("UDP port {} of {}: setsockopt: {}", wire::kRoceUdpPort,
                                  wire::to_string(address), strerror(errno)));
  const in_addr own{htonl(raw(address))};
  setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &own, sizeof own);
  opened.send_buffer_bytes = enlarge_buffer(fd, SO_SNDBUF, SO_SNDBUFFORCE);
  opened.receive_buffer_bytes = enlarge_buffer(fd, SO_RCVBUF, SO_RCVBUFFORCE);
  opened.coalesces = set_option(fd, IPPROTO_UDP, UDP_GRO, 1);
  // A kernel that knows the option takes it for the socket; then it is said with each message.
  opened.segments =
      set_option(fd, IPPROTO_UDP, UDP_SEGMENT, 512) && set_option(fd, IPPROTO_UDP, UDP_SEGMENT, 0);
  return opened;
}

Expected<UniqueFd, int> open_group_socket(Ipv4Address group, Ipv4Address own) {
  UniqueFd opened(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int fd = opened.get();
  const sockaddr_in name = socket_name(group, wire::kRoceUdpPort);
  const ip_mreq membership{{htonl(raw(group))}, {htonl(raw(own))}};
  // Several NICs of a machine may be members; each gets the packets of its own interface alone.
  if (!opened || !set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1) ||
      !set_option(fd, IPPROTO_IP, IP_MULTICAST_ALL, 0) ||
      bind(fd, reinterpret_cast<const sockaddr*>(&name), sizeof name) != 0 ||
      setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &membership, sizeof membership) != 0)
    return Unexpected(errno);
  set_option(fd, IPPROTO_IP, IP_RECVTOS, 1);
  set_option(fd, IPPROTO_UDP, UDP_GRO, 1);
  enlarge_buffer(fd, SO_RCVBUF, SO_RCVBUFFORCE);
  return opened;
}

}  // namespace hostnic
