// SPDX-License-Identifier: BSD-3-Clause
// The NICs' addresses: numbers for them, and on udp ports the interface's addresses that come and
// go while hostnicd runs.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "dataplane/daemon/daemon.h"
#include "dataplane/daemon/log.h"
#include "dataplane/daemon/ports/udp/udp_port.h"

namespace hostnic {

// Gives the NICs numbers for their addresses.
Expected<void, std::string> Daemon::name_addresses() {
  for (NicInstance& instance : nics_) {
    NicPlan& plan = instance.plan;
    const auto own = addresses_.acquire(plan.address);
    if (!own) return Unexpected("too many IPv6 addresses");
    plan.settings.ip = *own;
    plan.settings.address_book = &addresses_;
    instance.gids = std::make_unique<GidTable>(plan.gids, plan.address, *own);
    // On the wire a NIC may have what it likes.
    if (!plan.port.empty() || !begins_with_link_local(plan.gids)) continue;
    const Gid link_local = link_local_of(plan.settings.mac);
    const auto number = addresses_.acquire(link_local);
    if (!number || instance.gids->has(link_local)) continue;
    instance.gids->add(link_local, *number);
    instance.gids->publish();
    plan.settings.more_addresses = instance.gids->more_numbers();
  }
  return {};
}

// Opens the port with the NIC's own address; the others come when the network is watched.
Expected<void, std::string> Daemon::open_udp_port(NicInstance& instance) {
  const NicSettings& settings = instance.plan.settings;
  auto own = find_local_address(instance.plan.address, instance.plan.zone);
  if (!own) return Unexpected(fmt::format("{}: port udp: {}", settings.name, own.error()));
  instance.netdev = own->interface;
  auto port =
      UdpPort::open(settings.name, {std::move(*own), settings.ip}, settings.mac, addresses_);
  if (!port) return Unexpected(port.error());
  instance.network = std::move(*port);
  return {};
}

// The addresses that a NIC is to have beside its own: those of its interface that no other NIC is
// to have. The loopback interface's are everybody's.
std::vector<Gid> Daemon::other_addresses(const NicInstance& instance,
                                         const KernelNetwork::Interface* interface) const {
  if (interface == nullptr || interface->name == "lo" || instance.plan.port != kUdpPort ||
      instance.plan.gids == config::Gids::kOne)
    return {};
  std::vector<Gid> others;
  for (const Gid& address : interface->addresses) {
    const bool taken = std::ranges::any_of(
        nics_, [&](const NicInstance& nic) { return nic.plan.address == address; });
    const bool hidden = instance.plan.gids == config::Gids::kLinkLocal && !is_link_local(address);
    if (!taken && !hidden) others.push_back(address);
  }
  return others;
}

bool Daemon::follow_addresses(NicInstance& instance, const KernelNetwork::Interface* interface,
                              bool at_start) {
  const std::vector<Gid> wanted = other_addresses(instance, interface);
  const auto is_wanted = [&](const Gid& address) {
    return std::ranges::find(wanted, address) != wanted.end();
  };
  const std::string& name = instance.plan.settings.name;
  bool changed = false;
  std::erase_if(instance.refused, [&](const Gid& address) { return !is_wanted(address); });
  for (const Gid& address : instance.gids->others()) {
    if (is_wanted(address) || instance.plan.port != kUdpPort) continue;
    remove_address(instance, address);
    log_problem(
        "{}: {} is no address of {} any more: its GID is zero, and what is sent from it is lost "
        "until it is back",
        name, to_string(address), instance.netdev);
    changed = true;
  }
  for (const Gid& address : wanted) {
    if (instance.gids->has(address) || !add_address(instance, address, *interface)) continue;
    if (!at_start) log_line("{}: {} of {} is a GID now", name, to_string(address), interface->name);
    changed = true;
  }
  if (changed) instance.network->note_address_change();
  return changed;
}

// Gives a NIC one of its interface's addresses. Returns false if that can't be, and says so once.
bool Daemon::add_address(NicInstance& instance, const Gid& address,
                         const KernelNetwork::Interface& interface) {
  const auto refuse = [&](const std::string& why) {
    if (instance.refused.insert(address).second)
      log_line("{}: port udp: no GID for {}: {}", instance.plan.settings.name, to_string(address),
               why);
    return false;
  };
  const auto number = addresses_.acquire(address);
  if (!number) return refuse("too many IPv6 addresses");
  auto opened = instance.network->open_address(*instance.lcore, address, *number, interface);
  const auto before = opened ? instance.gids->add(address, *number) : std::nullopt;
  if (!before) {
    addresses_.release(*number);
    if (!opened) return refuse(opened.error());
    instance.network->close_address(*instance.lcore, *number);
    return refuse("the table is full");
  }
  addresses_.release(*before);
  tell_addresses(instance);
  instance.gids->publish();
  instance.refused.erase(address);
  return true;
}

// Takes an address from a NIC. Its number is kept, so that queue pairs which use it go on when it
// comes back.
void Daemon::remove_address(NicInstance& instance, const Gid& address) {
  const Ipv4Address number = instance.gids->number_of(address);
  instance.gids->remove(address);
  instance.gids->publish();
  instance.network->close_address(*instance.lcore, number);
  tell_addresses(instance);
}

// Has a NIC know the addresses of its table.
void Daemon::tell_addresses(NicInstance& instance) {
  std::vector<Ipv4Address> numbers = instance.gids->more_numbers();
  instance.plan.settings.more_addresses = numbers;
  instance.lcore->run_on([&] { instance.nic->swap_more_addresses(numbers); });
}

}  // namespace hostnic
