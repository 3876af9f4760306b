#include "dataplane/daemon/kernel_interface.h"

#include <errno.h>
#include <fmt/format.h>
#include <linux/filter.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netpacket/packet.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "protocol/wire/udp.h"

namespace hostnic {

Expected<uint32_t, std::string> interface_mtu(const std::string& interface) {
  UniqueFd socket_fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  if (interface.size() >= IFNAMSIZ)
    return Unexpected(fmt::format("\"{}\" is no interface name: it is too long", interface));
  memcpy(request.ifr_name, interface.data(), interface.size());
  if (!socket_fd || ioctl(socket_fd.get(), SIOCGIFMTU, &request) != 0)
    return Unexpected(fmt::format("interface {}: {}; `ip link` lists those there are", interface,
                                  strerror(errno)));
  return static_cast<uint32_t>(request.ifr_mtu);
}

UniqueFd take_groups_from(const std::string& interface) {
  UniqueFd membership(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0));
  packet_mreq wanted{};
  wanted.mr_ifindex = static_cast<int>(if_nametoindex(interface.c_str()));
  wanted.mr_type = PACKET_MR_ALLMULTI;
  if (!membership ||
      setsockopt(membership.get(), SOL_PACKET, PACKET_ADD_MEMBERSHIP, &wanted, sizeof wanted) != 0)
    return {};
  return membership;
}

UniqueFd silence_roce_of(const std::string& interface) {
  UniqueFd listener(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sock_filter drop_all{BPF_RET | BPF_K, 0, 0, 0};
  const sock_fprog program{1, &drop_all};
  const int yes = 1;  // several NICs may share an interface
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(wire::kRoceUdpPort);
  if (!listener ||
      setsockopt(listener.get(), SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) != 0 ||
      setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0 ||
      setsockopt(listener.get(), SOL_SOCKET, SO_BINDTODEVICE, interface.data(),
                 static_cast<socklen_t>(interface.size())) != 0 ||
      bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return {};
  return listener;
}

}  // namespace hostnic
