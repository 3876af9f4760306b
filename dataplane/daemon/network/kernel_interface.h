// SPDX-License-Identifier: BSD-3-Clause
// What hostnicd asks of the kernel about the network interface behind a port (net_af_packet,
// net_af_xdp), beside what DPDK's drivers ask.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "protocol/expected.h"
#include "protocol/hostif/unique_fd.h"
#include "protocol/types.h"

namespace hostnic {

// The MTU of an interface; an error is one line.
Expected<uint32_t, std::string> interface_mtu(const std::string& interface);

// Has the interface take frames to all groups as long as the socket is open. Returns none, with
// errno, if it can't.
UniqueFd take_groups_from(const std::string& interface);

// As long as the socket is open, the kernel's own IP drops RoCE packets that arrive on the
// interface without a word. Otherwise it tells their sender that nobody listens (ICMP port
// unreachable): for nothing, and looking for the way there costs more than all else it does with
// such a packet. Returns none, with errno, if it can't.
UniqueFd silence_roce_of(const std::string& interface);

// As long as the descriptor is open, RoCE packets to this address that arrive on the interface end
// before the kernel's IP, behind packet sockets such as net_af_packet's. Returns none, with errno,
// on a kernel before 6.6, or without CAP_NET_ADMIN and CAP_BPF.
UniqueFd end_roce_before_ip(const std::string& interface, Ipv4Address address);

// The process's packet and XDP sockets: drivers don't name theirs.
std::vector<int> packet_sockets();

}  // namespace hostnic
