// SPDX-License-Identifier: BSD-3-Clause
// GIDs, by which RoCEv2 names its ends (InfiniBand annex A17.4.4): an IPv6 address, or an IPv4
// address mapped into one (::ffff:a.b.c.d, RFC 4291). Pure functions, any thread.
//
// The NIC's inside names hosts by 32 bits, which are an IPv4 address or a stand-in for an IPv6
// address: a number of 240.0.0.0/4, which no host has (RFC 1112). Who has given it keeps what it
// stands for (dataplane/nic/address_book.h).
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "protocol/types.h"

namespace hostnic {

// In network byte order, as on the wire and in verbs.
using Gid = std::array<std::byte, 16>;

Gid gid_of(Ipv4Address ip);
// The IPv4 address of a GID; nothing if it is an IPv6 address.
std::optional<Ipv4Address> ipv4_of(const Gid& gid);
// Whether it is an IPv6 address of fe80::/10, which means something on one link only.
bool is_link_local(const Gid& gid);
// Whether it is an IPv6 address that one host can have: not ::, ff00::/8, or what stands for an
// IPv4 address.
bool is_ipv6_host(const Gid& gid);
// Whether it stands for an IPv4 address of 127.0.0.0/8.
bool is_ipv4_loopback(const Gid& gid);
// The IPv6 group that stands for an IPv4 group on networks of IPv6: ff0e::ffff:a.b.c.d.
Gid ipv6_group_of(Ipv4Address group);
// Whether the first `prefix_length` bits of two IPv6 addresses are the same, 0 to 128 of them.
bool same_network(const Gid& a, const Gid& b, uint32_t prefix_length);

// Parses "10.0.0.1" or "fd00::1"; nothing if it is neither. A zone ("%eth0") is none of it.
std::optional<Gid> parse_gid(std::string_view text);
// Prints "10.0.0.1" or "fd00::1".
std::string to_string(const Gid& gid);
// Prints an address that a port or a number follows: "10.0.0.1" or "[fd00::1]".
std::string host_text(const Gid& gid);

constexpr bool is_stand_in(Ipv4Address ip) { return raw(ip) >> 28 == 0xf; }

}  // namespace hostnic
