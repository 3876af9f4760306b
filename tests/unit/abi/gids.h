// SPDX-License-Identifier: BSD-3-Clause
// GIDs in tests: of IPv4 addresses, in the tables of devices, and what NICs would call their hosts.
#pragma once

#include <cstring>
#include <initializer_list>
#include <optional>

#include "verbs-shim/abi/convert.h"

namespace hostnic::abi {

inline ibv_gid gid_from_ip(uint32_t ip) { return from_gid(hostnic::gid_of(Ipv4Address{ip})); }
inline std::optional<Ipv4Address> ip_from_gid(const ibv_gid& gid) { return ipv4_of(to_gid(gid)); }

// Gives a device these GIDs, each of an own address.
inline void set_gids(DeviceInfo& device, std::initializer_list<Gid> gids) {
  device.gid_count = 0;
  for (const Gid& gid : gids) {
    GidEntry& entry = device.gids[device.gid_count];
    entry = {.gid = {},
             .type = GidType::kRoceV2,
             .usable = 1,
             .source_index = static_cast<uint8_t>(device.gid_count),
             .reserved = 0};
    std::memcpy(entry.gid, gid.data(), gid.size());
    ++device.gid_count;
  }
  device.gid_table_length = kMaxGids;
}

// Names IPv6 hosts by their last byte.
class LastByteNumbers final : public HostNumbers {
 public:
  Expected<Ipv4Address, int> number_of(const Gid& host) override {
    if (const auto ip = ipv4_of(host)) return *ip;
    if (error != 0) return Unexpected(error);
    return Ipv4Address{0xf0000000 | std::to_integer<uint32_t>(host[15])};
  }
  int error = 0;
};

}  // namespace hostnic::abi
