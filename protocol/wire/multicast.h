// SPDX-License-Identifier: BSD-3-Clause
// Groups of hosts: IPv4 addresses of 224.0.0.0/4, and what frames and packets to one look like.
#pragma once

#include "protocol/types.h"
#include "protocol/wire/ethernet.h"

namespace hostnic::wire {

constexpr bool is_multicast(Ipv4Address ip) { return raw(ip) >> 28 == 0xe; }

// The queue pair number of datagrams to a group. No queue pair has this number.
inline constexpr Qpn kMulticastQpn{0xffffff};

// The MAC address of a group (RFC 1112): 01:00:5e and the low 23 bits of the group, so that 32
// groups share an address.
constexpr MacAddress multicast_mac(Ipv4Address group) {
  const uint32_t ip = raw(group);
  return {0x01,
          0x00,
          0x5e,
          static_cast<uint8_t>(ip >> 16 & 0x7f),
          static_cast<uint8_t>(ip >> 8),
          static_cast<uint8_t>(ip)};
}

}  // namespace hostnic::wire
