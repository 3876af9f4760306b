// SPDX-License-Identifier: BSD-3-Clause
#include "protocol/gid.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>

#include "protocol/wire/bytes.h"

namespace hostnic {
namespace {

constexpr size_t kIpv4Offset = 12;  // of a mapped address

}  // namespace

Gid gid_of(Ipv4Address ip) {
  Gid gid{};
  gid[10] = gid[11] = std::byte{0xff};
  wire::store_be32(&gid[kIpv4Offset], raw(ip));
  return gid;
}

std::optional<Ipv4Address> ipv4_of(const Gid& gid) {
  const Ipv4Address ip{wire::load_be32(&gid[kIpv4Offset])};
  if (gid != gid_of(ip)) return std::nullopt;
  return ip;
}

bool is_link_local(const Gid& gid) {
  return gid[0] == std::byte{0xfe} && (gid[1] & std::byte{0xc0}) == std::byte{0x80};
}

bool is_ipv6_host(const Gid& gid) {
  // ::/96 and ::ffff:0:0/96 have addresses in them that are no hosts', except for ::1.
  const bool zeros =
      std::all_of(gid.begin(), gid.begin() + 10, [](std::byte b) { return b == std::byte{0}; });
  const bool mapped = zeros && gid[10] == std::byte{0xff} && gid[11] == std::byte{0xff};
  Gid loopback{};
  loopback[15] = std::byte{1};
  const bool compatible = zeros && gid[10] == std::byte{0} && gid[11] == std::byte{0};
  return gid[0] != std::byte{0xff} && !mapped && (!compatible || gid == loopback);
}

bool is_ipv4_loopback(const Gid& gid) {
  const auto ip = ipv4_of(gid);
  return ip && is_loopback(*ip);
}

Gid ipv6_group_of(Ipv4Address group) {
  Gid gid = gid_of(group);
  gid[0] = std::byte{0xff};
  gid[1] = std::byte{0x0e};
  return gid;
}

bool same_network(const Gid& a, const Gid& b, uint32_t prefix_length) {
  const size_t whole = prefix_length / 8;
  if (std::memcmp(a.data(), b.data(), whole) != 0) return false;
  const uint32_t rest = prefix_length % 8;
  const auto mask = static_cast<std::byte>(0xff00u >> rest);
  return rest == 0 || ((a[whole] ^ b[whole]) & mask) == std::byte{0};
}

std::optional<Gid> parse_gid(std::string_view text) {
  const std::string terminated(text);
  in_addr ipv4{};
  if (inet_pton(AF_INET, terminated.c_str(), &ipv4) == 1)
    return gid_of(Ipv4Address{ntohl(ipv4.s_addr)});
  Gid gid{};
  if (inet_pton(AF_INET6, terminated.c_str(), gid.data()) == 1) return gid;
  return std::nullopt;
}

std::string to_string(const Gid& gid) {
  char text[INET6_ADDRSTRLEN];
  const bool ipv4 = ipv4_of(gid).has_value();
  const std::byte* const address = gid.data() + (ipv4 ? kIpv4Offset : 0);
  return inet_ntop(ipv4 ? AF_INET : AF_INET6, address, text, sizeof text) == nullptr ? "" : text;
}

std::string host_text(const Gid& gid) {
  std::string text = to_string(gid);
  if (!ipv4_of(gid)) text.append(1, ']').insert(text.begin(), '[');
  return text;
}

}  // namespace hostnic
