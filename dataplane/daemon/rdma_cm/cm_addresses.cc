// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/rdma_cm/cm_addresses.h"

#include <errno.h>
#include <net/if.h>

#include <algorithm>

#include "dataplane/daemon/ports/udp/udp_port.h"
#include "dataplane/daemon/random_number.h"
#include "protocol/wire/multicast.h"

namespace hostnic {
namespace {

constexpr uint16_t kFirstEphemeral = 32768, kEphemeralPorts = 28232;

}  // namespace

std::optional<Ipv4Address> CmAddresses::number_for(CmId& id, const Gid& address) {
  constexpr size_t kMostHeld = 16;
  const auto number = daemon_.addresses().acquire(address, id.file->stranger());
  if (!number || !is_stand_in(*number)) return number;
  const bool known = std::ranges::find(id.held, *number) != id.held.end();
  if (known || id.held.size() == kMostHeld)
    daemon_.addresses().release(*number, id.file->stranger());
  if (!known && id.held.size() == kMostHeld) return std::nullopt;
  if (!known) id.held.push_back(*number);
  return number;
}

void CmAddresses::release_numbers(CmId& id) {
  for (const Ipv4Address number : id.held) daemon_.addresses().release(number, id.file->stranger());
  id.held.clear();
}

std::string CmAddresses::text_of(Ipv4Address number) const {
  return host_text(address_of(&daemon_.addresses(), number));
}

Gid CmAddresses::shown_source(const CmId& id) const {
  if (id.ipv6 && raw(id.source) == 0) return Gid{};  // ::
  return id.named_source ? *id.named_source : address_of(&daemon_.addresses(), id.source);
}
Gid CmAddresses::shown_destination(const CmId& id) const {
  return id.named_destination ? *id.named_destination
                              : address_of(&daemon_.addresses(), id.destination);
}

bool CmAddresses::on_link(const NicSettings& settings, Ipv4Address destination) const {
  if (is_stand_in(destination) != is_stand_in(settings.ip)) {
    // The NIC's other addresses are on the interface's network, whose prefix is not known here.
    const Gid address = settings.address_of(destination);
    return is_link_local(address) &&
           is_link_local(settings.address_of(settings.own_for(destination)));
  }
  if (!is_stand_in(destination))
    return same_network(destination, settings.ip, settings.prefix_length);
  const Gid address = settings.address_of(destination);
  return is_link_local(address) ||
         same_network(address, settings.address_of(settings.ip), settings.prefix_length);
}

// Whether a NIC has a way out of its network: a gateway, or the kernel's routes.
bool CmAddresses::leads_out(const CmNic& nic, Ipv4Address destination) const {
  const NicSettings& settings = nic.settings();
  const Ipv4Address own = settings.own_for(destination);
  if (is_stand_in(own) != is_stand_in(destination)) return false;
  if (nic.instance->plan.port != kUdpPort) return raw(settings.gateway) != 0;
  return kernel_routes(settings.address_of(own), settings.address_of(destination),
                       if_nametoindex(nic.instance->netdev.c_str()));
}

bool CmAddresses::visible(const CmFile& file, const CmNic& nic) {
  return nic.index < 64 && (file.visible_devices >> nic.index & 1) != 0;
}

bool CmAddresses::names_this_host(Ipv4Address ip) const {
  if (raw(ip) == 0) return true;
  return is_loopback(ip) && std::none_of(nics_.begin(), nics_.end(), [&](const CmNic& nic) {
           return on_link(nic.settings(), ip);
         });
}

// The NIC with this address, or the first one for an address of this host. Returns null if the
// program sees none.
CmNic* CmAddresses::nic_of(const CmFile& file, Ipv4Address ip) {
  const bool any = names_this_host(ip);
  for (CmNic& nic : nics_)
    if (visible(file, nic) && (any || nic.settings().is_own(ip))) return &nic;
  return nullptr;
}

CmNic* CmAddresses::route(const CmFile& file, Ipv4Address destination) {
  if (CmNic* own = nic_of(file, destination)) return own;
  if (names_this_host(destination)) return nullptr;
  const bool group = wire::is_multicast(destination);
  for (CmNic& nic : nics_)
    if (visible(file, nic) && (group || on_link(nic.settings(), destination))) return &nic;
  for (CmNic& nic : nics_)
    if (visible(file, nic) && leads_out(nic, destination)) return &nic;
  return nullptr;
}

bool CmAddresses::reachable(const CmNic& nic, Ipv4Address destination) const {
  if (nic.instance->network != nullptr || wire::is_multicast(destination)) return true;
  return std::any_of(nics_.begin(), nics_.end(), [&](const CmNic& other) {
    return other.instance->network == nullptr && other.settings().is_own(destination);
  });
}

Ipv4Address CmAddresses::this_host(const CmNic& own, uint16_t port_space, uint16_t port) const {
  for (const bool listening : {true, false}) {
    if (const auto at = served_at(own, port_space, port, listening)) return *at;
    for (const CmNic& nic : nics_) {
      const auto at = served_at(nic, port_space, port, listening);
      if (at && reachable(own, *at)) return *at;
    }
  }
  return own.ip();
}

bool CmAddresses::is_of_a_nic(Ipv4Address ip) const {
  return std::ranges::any_of(nics_, [&](const CmNic& nic) { return nic.settings().is_own(ip); });
}

ib_uverbs_ah_attr CmAddresses::address_handle(const CmId& id, const Gid& destination) const {
  const Gid source = id.nic->settings().address_of(id.source);
  const DeviceInfo device = daemon_.device_info(*id.nic->instance);
  ib_uverbs_ah_attr handle{};
  for (uint32_t i = 0; i < device.gid_count; ++i)
    if (gid_in(device.gids[i].gid) == source && device.gids[i].type == GidType::kRoceV2)
      handle.grh.sgid_index = static_cast<uint8_t>(i);
  memcpy(handle.grh.dgid, destination.data(), destination.size());
  handle.grh.hop_limit = 64;
  handle.grh.traffic_class = id.type_of_service;
  handle.is_global = 1;
  handle.port_num = kPortNumber;
  return handle;
}

// ---- ports

bool CmAddresses::port_free(const CmId& id, uint16_t port) const {
  const auto holders = ports_.find({id.port_space, port});
  if (holders == ports_.end()) return true;
  return std::none_of(holders->second.begin(), holders->second.end(), [&](const CmId* holder) {
    const CmId& other = *holder;
    if (&other == &id) return false;
    // Programs that see no NIC in common are on different hosts.
    if ((other.file->visible_devices & id.file->visible_devices) == 0) return false;
    // A port taken for IPv4 does not cover IPv6; one for IPv6 covers IPv4 unless IPV6_V6ONLY is
    // set.
    const auto alone = [](const CmId& each) { return !each.ipv6 || each.family_only; };
    if (other.ipv6 != id.ipv6 && alone(other) && alone(id)) return false;
    const bool same = raw(other.source) == 0 || raw(id.source) == 0 || other.source == id.source;
    return same && !(other.reuse_address && id.reuse_address && !other.listening);
  });
}

UserShares& CmAddresses::port_shares(uint16_t port_space, uint16_t port) {
  const bool is_ephemeral = port >= kFirstEphemeral && port - kFirstEphemeral < kEphemeralPorts;
  const uint64_t all = is_ephemeral ? kEphemeralPorts : UINT16_MAX - kEphemeralPorts;
  UserShares::Limits limits = UserShares::shares_of(all);
  limits.all = UINT64_MAX;  // several ids may have one port
  return port_shares_.try_emplace({port_space, is_ephemeral}, limits).first->second;
}

// Takes a port; 0 means any that is free.
int CmAddresses::take_port(CmId& id, uint16_t port) {
  if (port == 0) {
    const auto start = static_cast<uint32_t>(random_number());
    for (uint32_t i = 0; i < kEphemeralPorts && port == 0; ++i) {
      const auto candidate =
          static_cast<uint16_t>(kFirstEphemeral + (start % kEphemeralPorts + i) % kEphemeralPorts);
      if (!ports_.contains({id.port_space, candidate})) port = candidate;
    }
    if (port == 0) return EADDRNOTAVAIL;
  } else if (!port_free(id, port)) {
    return EADDRINUSE;
  }
  if (!port_shares(id.port_space, port).take(id.file->stranger())) return EADDRNOTAVAIL;
  id.port_counts = true;
  id.source_port = port;
  ports_[{id.port_space, port}].push_back(&id);
  return 0;
}

void CmAddresses::release_port(CmId& id) {
  if (std::exchange(id.port_counts, false))
    port_shares(id.port_space, id.source_port).give_back(id.file->stranger());
  const auto holders = ports_.find({id.port_space, id.source_port});
  if (holders == ports_.end()) return;
  std::erase(holders->second, &id);
  if (holders->second.empty()) ports_.erase(holders);
}

int CmAddresses::bind(CmId& id, Ipv4Address ip, uint16_t port) {
  if (id.bound) return EINVAL;
  if (raw(ip) != 0) {
    id.nic = nic_of(*id.file, ip);
    if (id.nic == nullptr) return EADDRNOTAVAIL;
    id.source = names_this_host(ip) ? id.nic->ip() : ip;
  }
  if (const int error = take_port(id, port)) {
    id.nic = nullptr;
    id.source = {};
    return error;
  }
  id.bound = true;
  return 0;
}

namespace {

// Whether an id takes requests to an address: one for one family takes none of the other, and one
// for IPv6 takes both unless IPV6_V6ONLY is set.
bool takes(const CmId& id, Ipv4Address own) {
  return is_stand_in(own) ? id.ipv6 : !id.ipv6 || !id.family_only;
}

}  // namespace

CmId* CmAddresses::listener(const CmNic& nic, Ipv4Address own, uint16_t port_space, uint16_t port) {
  const auto holders = ports_.find({port_space, port});
  if (holders == ports_.end()) return nullptr;
  for (CmId* const id : holders->second) {
    if (!id->listening) continue;
    if (id->nic == nullptr ? visible(*id->file, nic) && takes(*id, own)
                           : id->nic == &nic && id->source == own)
      return id;
  }
  return nullptr;
}

// The address of a NIC at which some id has the port, and has not connected from it, or listens.
std::optional<Ipv4Address> CmAddresses::served_at(const CmNic& nic, uint16_t port_space,
                                                  uint16_t port, bool listening) const {
  const auto holders = ports_.find({port_space, port});
  if (holders == ports_.end()) return std::nullopt;
  const NicSettings& settings = nic.settings();
  for (const CmId* const holder : holders->second) {
    const CmId& id = *holder;
    if (raw(id.destination) != 0 || (listening && !id.listening)) continue;
    if (id.nic == &nic) return id.source;
    if (id.nic != nullptr || !visible(*id.file, nic)) continue;
    for (uint32_t i = 0; i <= settings.more_addresses.size(); ++i)
      if (const Ipv4Address own = settings.own_address(i); raw(own) != 0 && takes(id, own))
        return own;
  }
  return std::nullopt;
}

}  // namespace hostnic
