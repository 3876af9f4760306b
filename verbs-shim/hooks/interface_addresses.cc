// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/hooks/interface_addresses.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "protocol/hostif/control_message.h"
#include "protocol/types.h"
#include "verbs-shim/runtime/discovery.h"

namespace hostnic::hooks {
namespace {

// The address of this mark, as an entry's data, says that the entry is ours. Addresses have no data
// of their own there; whoever looks finds statistics of nothing.
alignas(8) char mark[256];

struct Entry {
  ifaddrs item;
  sockaddr_in address, netmask, broadcast;
  char label[IFNAMSIZ];
};

bool names(const ifaddrs* list, in_addr_t address) {
  for (; list != nullptr; list = list->ifa_next) {
    if (list->ifa_addr == nullptr || list->ifa_addr->sa_family != AF_INET) continue;
    if (reinterpret_cast<const sockaddr_in*>(list->ifa_addr)->sin_addr.s_addr == address)
      return true;
  }
  return false;
}

unsigned flags_beside(const ifaddrs* list) {
  for (; list != nullptr; list = list->ifa_next)
    if (list->ifa_flags & IFF_LOOPBACK) return list->ifa_flags & ~IFF_LOOPBACK;
  return 0;  // as of an interface that is down
}

sockaddr_in ipv4(uint32_t address) {
  sockaddr_in made{};
  made.sin_family = AF_INET;
  made.sin_addr.s_addr = htonl(address);
  return made;
}

void fill(Entry& entry, const DeviceInfo& info, unsigned flags) {
  entry.address = ipv4(info.ip);
  entry.netmask = ipv4(raw(network_mask(info.prefix_length)));
  entry.broadcast = ipv4(info.ip);  // what the kernel says of addresses on lo
  // The label is cut to the longest that a label can be.
  snprintf(entry.label, sizeof entry.label, "lo:%.*s", static_cast<int>(IFNAMSIZ - 4), info.name);
  entry.item.ifa_name = entry.label;
  entry.item.ifa_flags = flags;
  entry.item.ifa_addr = reinterpret_cast<sockaddr*>(&entry.address);
  entry.item.ifa_netmask = reinterpret_cast<sockaddr*>(&entry.netmask);
  entry.item.ifa_broadaddr = reinterpret_cast<sockaddr*>(&entry.broadcast);
  entry.item.ifa_data = mark;
}

}  // namespace

bool is_wire_address(const ifaddrs& entry) { return entry.ifa_data == mark; }

ifaddrs* wire_addresses(const ifaddrs* real) {
  auto devices = runtime::list_devices();
  if (!devices) return nullptr;
  std::erase_if(*devices, [&](const DeviceInfo& info) {
    return info.ip >> 24 != 127 || names(real, htonl(info.ip));
  });
  if (devices->empty()) return nullptr;
  auto* entries = static_cast<Entry*>(calloc(devices->size(), sizeof(Entry)));
  if (entries == nullptr) return nullptr;
  const unsigned flags = flags_beside(real);
  for (size_t i = 0; i < devices->size(); ++i) {
    fill(entries[i], (*devices)[i], flags);
    if (i != 0) entries[i - 1].item.ifa_next = &entries[i].item;
  }
  static_assert(offsetof(Entry, item) == 0);
  return &entries->item;
}

}  // namespace hostnic::hooks
