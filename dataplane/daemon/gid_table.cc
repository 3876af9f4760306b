// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/gid_table.h"

#include <algorithm>
#include <cstring>

namespace hostnic {
namespace {

GidEntry entry_of(const Gid& gid, GidType type, size_t source_index, bool usable) {
  GidEntry entry{};
  memcpy(entry.gid, gid.data(), gid.size());
  entry.type = type;
  entry.usable = usable ? 1 : 0;
  entry.source_index = static_cast<uint8_t>(source_index);
  return entry;
}

}  // namespace

Gid link_local_of(const wire::MacAddress& mac) {
  const uint8_t bytes[16] = {
      0xfe,   0x80,   0,    0,    0,      0,      0,     0, static_cast<uint8_t>(mac[0] ^ 2),
      mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]};
  Gid gid;
  memcpy(gid.data(), bytes, sizeof bytes);
  return gid;
}

std::vector<GidEntry> make_gid_table(config::Gids layout, std::span<const Gid> addresses,
                                     const wire::MacAddress& mac) {
  std::vector<GidEntry> table;
  if (layout != config::Gids::kMlx5) {
    for (size_t i = 0; i < std::min<size_t>(addresses.size(), kMaxGids); ++i)
      table.push_back(entry_of(addresses[i], GidType::kRoceV2, i, true));
    return table;
  }
  const auto add = [&](const Gid& gid, size_t index, bool usable) {
    if (table.size() + 2 > kMaxGids) return;
    for (const GidType type : {GidType::kRoceV1, GidType::kRoceV2})
      table.push_back(entry_of(gid, type, index, usable));
  };
  const auto link_local = std::ranges::find_if(addresses, is_link_local);
  const auto link_local_index = static_cast<size_t>(link_local - addresses.begin());
  if (link_local != addresses.end())
    add(*link_local, link_local_index, true);
  else
    add(link_local_of(mac), 0, false);
  for (size_t i = 0; i < addresses.size(); ++i)
    if (i != link_local_index) add(addresses[i], i, true);
  return table;
}

}  // namespace hostnic
