// SPDX-License-Identifier: BSD-3-Clause
// Between GIDs and the kernel's socket addresses, of both families. Any thread.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <cstring>
#include <optional>

#include "protocol/gid.h"

namespace hostnic {

// Room for an address of either family, to which GIDs are converted.
union SocketAddress {
  sockaddr any;
  sockaddr_in ipv4;
  sockaddr_in6 ipv6;

  socklen_t bytes() const { return any.sa_family == AF_INET ? sizeof ipv4 : sizeof ipv6; }
};

// `scope` is the index of the interface that a link-local address means something on; others
// ignore it.
inline SocketAddress socket_address(const Gid& address, uint16_t port, uint32_t scope) {
  SocketAddress made{};
  if (const auto ip = ipv4_of(address)) {
    made.ipv4.sin_family = AF_INET;
    made.ipv4.sin_port = htons(port);
    made.ipv4.sin_addr.s_addr = htonl(raw(*ip));
    return made;
  }
  made.ipv6.sin6_family = AF_INET6;
  made.ipv6.sin6_port = htons(port);
  memcpy(&made.ipv6.sin6_addr, address.data(), address.size());
  if (is_link_local(address)) made.ipv6.sin6_scope_id = scope;
  return made;
}

// The GID of an address, which is IPv4-mapped for IPv4; nothing for other families.
inline std::optional<Gid> gid_of(const sockaddr& address) {
  if (address.sa_family == AF_INET) {
    sockaddr_in ipv4;
    memcpy(&ipv4, &address, sizeof ipv4);
    return gid_of(Ipv4Address{ntohl(ipv4.sin_addr.s_addr)});
  }
  if (address.sa_family != AF_INET6) return std::nullopt;
  Gid gid;
  memcpy(gid.data(), reinterpret_cast<const char*>(&address) + offsetof(sockaddr_in6, sin6_addr),
         gid.size());
  return gid;
}

}  // namespace hostnic
