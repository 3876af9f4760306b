// SPDX-License-Identifier: BSD-3-Clause
// What the udp port asks of the kernel: the interface behind an address, and the socket that RoCEv2
// packets of that address leave and arrive by. None of it needs a privilege.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "protocol/expected.h"
#include "protocol/gid.h"
#include "protocol/hostif/unique_fd.h"
#include "protocol/wire/ipv4.h"
#include "protocol/wire/udp.h"

namespace hostnic {

// The headers of IPv4 and UDP.
inline constexpr size_t kBytesBeforeBth = wire::kIpv4Bytes + wire::kUdpBytes;

// An address of this machine, and the interface that has it.
struct LocalAddress {
  Gid address{};
  std::string interface;
  uint32_t interface_index = 0;
  uint32_t prefix_length = 32;
  uint32_t mtu_bytes = 0;
};
// Finds the interface that has the address; 127.0.0.0/8 is lo's as a whole. `zone` names the
// interface of a link-local address, which several may have; empty: any. An error is one line that
// lists the addresses there are.
Expected<LocalAddress, std::string> find_local_address(const Gid& address, const std::string& zone);
// Whether an interface has exactly this address.
bool is_local_address(const Gid& address);

// Whether the interface is up and has a carrier; and its speed, 0: unknown.
bool interface_is_up(const std::string& interface);
uint32_t interface_speed_mbps(const std::string& interface);

// The largest packet that leaves for a destination in one piece, in bytes; 0: unknown.
uint32_t path_mtu(const Gid& own, const Gid& destination, uint32_t interface_index);

// Whether the kernel has a route from an own address to a destination.
bool kernel_routes(const Gid& own, const Gid& destination, uint32_t interface_index);

struct RoceSocket {
  UniqueFd fd;
  bool segments = false;   // one call may send many packets (UDP_SEGMENT)
  bool coalesces = false;  // packets of one sender may arrive as one (UDP_GRO)
  uint32_t send_buffer_bytes = 0, receive_buffer_bytes = 0;
};
// Opens a socket on port 4791 of the address, which does not block, never fragments, and tells of
// each packet's TOS byte and of packets that found no room. An error is one line.
Expected<RoceSocket, std::string> open_roce_socket(const LocalAddress& address);

// Has packets to multicast groups leave by the interface that has the address now.
void send_groups_from(int socket, const LocalAddress& own);
// Opens a socket at which packets to a multicast group arrive, on the interface of `own`: an IPv6
// one for its counterpart of the IPv4 group. An error is an errno value.
Expected<UniqueFd, int> open_group_socket(Ipv4Address group, const LocalAddress& own);

}  // namespace hostnic
