// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/network_watch.h"

#include <errno.h>
#include <fmt/format.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "dataplane/daemon/log.h"
#include "dataplane/daemon/ports/ethernet_port.h"
#include "dataplane/daemon/ports/udp/udp_socket.h"

namespace hostnic {
namespace {

constexpr size_t kDatagramBytes = 65'536;
// The most narrow ways of a NIC that are remembered, and so told once.
constexpr size_t kNarrowWays = 64;
// How long an interface may take that has just been made, or been given an XDP program.
constexpr std::chrono::seconds kCarrierPatience{1};

// Opens a socket that hears of links and addresses.
UniqueFd open_news(uint32_t groups, int flags) {
  UniqueFd opened(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | flags, NETLINK_ROUTE));
  sockaddr_nl name{};
  name.nl_family = AF_NETLINK;
  name.nl_groups = groups;
  if (!opened || bind(opened.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name) != 0)
    return {};
  return opened;
}

// Receives the next datagram of the kernel's own: anybody may send to a netlink socket. Without a
// value errno says why, ENOBUFS that the kernel had more to say than it could keep.
std::optional<size_t> receive_news(int fd, std::span<std::byte> datagram) {
  for (;;) {
    sockaddr_nl from{};
    socklen_t bytes_of_name = sizeof from;
    const ssize_t bytes = recvfrom(fd, datagram.data(), datagram.size(), 0,
                                   reinterpret_cast<sockaddr*>(&from), &bytes_of_name);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0) return std::nullopt;
    if (from.nl_pid == 0) return static_cast<size_t>(bytes);
  }
}

bool ask_for_all(int fd, uint16_t type) {
  struct {
    nlmsghdr header;
    rtgenmsg body;
  } request{};
  request.header.nlmsg_len = NLMSG_LENGTH(sizeof request.body);
  request.header.nlmsg_type = type;
  request.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  request.body.rtgen_family = AF_UNSPEC;
  return send(fd, &request, request.header.nlmsg_len, 0) == request.header.nlmsg_len;
}

}  // namespace

NetworkWatch::NetworkWatch(Daemon& daemon, std::function<void()> changed)
    : daemon_(daemon), changed_(std::move(changed)), conflicts_(daemon.nics().size()) {
  for (NicInstance& nic : daemon_.nics())
    if (nic.network != nullptr && nic.network->is_kernels())
      watched_.push_back({.nic = &nic, .port = nic.network.get(), .name = {}});
  if (watched_.empty()) return;
  // News come from before the table is read: what happens meanwhile is applied once more.
  socket_ = open_news(RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR, SOCK_NONBLOCK);
  if (!socket_ || !read_all()) {
    log_line("links and addresses are not watched (rtnetlink: {}): programs get no events of them",
             strerror(errno));
    socket_.reset();
    return;
  }
  await_carriers();
  for (Watched& watched : watched_) {
    const KernelNetwork::Interface* interface = watched.port->find_in(network_);
    watched.mtu_bytes = watched.port->ip_mtu_bytes();
    watched.up = true;
    if (interface != nullptr) {
      watched.interface = interface->index;
      watched.name = interface->name;
      watched.carrier_losses = interface->carrier_losses;
    }
  }
  compare();
  started_ = true;
}

// Reads the table anew: at first, and when the kernel had more to say than it could keep for us.
bool NetworkWatch::read_all() {
  const UniqueFd asking = open_news(0, 0);
  if (!asking) return false;
  KernelNetwork read;
  std::vector<std::byte> datagram(kDatagramBytes);
  for (const uint16_t what : {RTM_GETLINK, RTM_GETADDR}) {
    if (!ask_for_all(asking.get(), what)) return false;
    for (bool ended = false; !ended;) {
      const ssize_t bytes = recv(asking.get(), datagram.data(), datagram.size(), 0);
      if (bytes < 0 && errno == EINTR) continue;
      if (bytes < 0) return false;
      const auto outcome = read.apply(std::span(datagram).first(static_cast<size_t>(bytes)), [] {});
      if (outcome.error != 0) {
        errno = outcome.error;
        return false;
      }
      ended = outcome.dump_ended;
    }
  }
  network_ = std::move(read);
  return true;
}

// Gives interfaces that were made, or whose driver was attached to, a moment ago the time to come
// up: programs that start as soon as hostnicd is ready should not find a port that is down.
void NetworkWatch::await_carriers() {
  const auto comes_up = [this](const Watched& watched) {
    const KernelNetwork::Interface* interface = watched.port->find_in(network_);
    return interface != nullptr && interface->enabled && !interface->up;
  };
  std::vector<std::byte> datagram(kDatagramBytes);
  const Clock::time_point give_up = Clock::now() + kCarrierPatience;
  while (std::ranges::any_of(watched_, comes_up)) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(give_up - Clock::now());
    pollfd news{.fd = socket_.get(), .events = POLLIN, .revents = 0};
    if (left.count() <= 0 || poll(&news, 1, static_cast<int>(left.count())) <= 0) return;
    const std::optional<size_t> bytes = receive_news(socket_.get(), datagram);
    if (bytes) network_.apply(std::span(datagram).first(*bytes), [] {});
  }
}

void NetworkWatch::handle() {
  std::vector<std::byte> datagram(kDatagramBytes);
  for (;;) {
    const std::optional<size_t> bytes = receive_news(socket_.get(), datagram);
    if (bytes) {
      network_.apply(std::span(datagram).first(*bytes), [this] { compare(); });
    } else if (errno != ENOBUFS) {
      return;
    } else if (read_all()) {
      compare();
    }
  }
}

void NetworkWatch::compare() {
  for (Watched& watched : watched_) compare(watched);
  if (std::exchange(news_, false)) changed_();
}

void NetworkWatch::compare(Watched& watched) {
  const KernelNetwork::Interface* interface = watched.port->find_in(network_);
  if (watched.interface != 0 && (interface == nullptr || interface->index != watched.interface))
    lost(watched);
  if (interface != nullptr) {
    if (watched.interface == 0) found(watched, *interface);
    watched.name = interface->name;
    if (interface->mtu_bytes != watched.mtu_bytes) mtu_changed(watched, interface->mtu_bytes);
    const bool lost_more = interface->carrier_losses != watched.carrier_losses;
    if (interface->up && watched.up && lost_more) link_was_lost(watched, *interface);
    if (interface->up != watched.up) link_changed(watched, interface->up);
    watched.carrier_losses = interface->carrier_losses;
    if (interface->up && !watched.opened) reopen(watched);
  }
  follow_addresses(watched, interface);
  const bool carries = interface != nullptr && watched.up && watched.opened;
  news_ = news_ || carries != watched.port->link_up();
  watched.port->tell(carries, interface);
}

// The NIC's other addresses stay while its own one is gone, as long as their interface is there.
void NetworkWatch::follow_addresses(Watched& watched, const KernelNetwork::Interface* interface) {
  if (!watched.port->has_kernels_address()) return;
  if (interface == nullptr) interface = network_.at(watched.followed);
  const uint32_t index = interface == nullptr ? 0 : interface->index;
  bool changed = false;
  // Another interface may have the same addresses, and their sockets are opened anew for it.
  if (index != watched.followed)
    changed = daemon_.follow_addresses(*watched.nic, nullptr, !started_);
  watched.followed = index;
  if (daemon_.follow_addresses(*watched.nic, interface, !started_)) changed = true;
  news_ = news_ || changed;
}

void NetworkWatch::lost(Watched& watched) {
  const NicSettings& settings = watched.nic->plan.settings;
  if (watched.port->has_kernels_address()) {
    log_problem(
        "{}: {} is no address of {} any more: nothing is sent or received until an interface "
        "has it (`ip addr add {}/{} dev NAME`)",
        settings.name, settings.text_of(settings.ip), watched.name, settings.text_of(settings.ip),
        settings.prefix_length);
    count(watched, Counter::address_lost);
    watched.port->note_address_change();
  } else {
    log_problem(
        "{}: interface {} is gone: nothing is sent or received until there is one of that "
        "name",
        settings.name, watched.name);
    count(watched, Counter::interface_lost);
  }
  watched.interface = 0;
  watched.opened = false;
  news_ = true;
}

void NetworkWatch::found(Watched& watched, const KernelNetwork::Interface& interface) {
  const NicSettings& settings = watched.nic->plan.settings;
  watched.interface = interface.index;
  watched.carrier_losses = interface.carrier_losses;
  if (watched.port->has_kernels_address()) {
    log_line("{}: {} is an address of {} now", settings.name, settings.text_of(settings.ip),
             interface.name);
    watched.port->note_address_change();
  } else {
    log_line("{}: there is an interface {} again", settings.name, interface.name);
  }
  news_ = true;
}

void NetworkWatch::link_changed(Watched& watched, bool up) {
  const std::string& name = watched.nic->plan.settings.name;
  watched.up = up;
  news_ = true;
  if (!up) {
    log_problem("{}: {} is down, or has no carrier", name, watched.name);
    count(watched, Counter::link_downed);
    watched.down_since = Clock::now();
    return;
  }
  const std::chrono::duration<double> down = Clock::now() - watched.down_since;
  log_line("{}: {} is up again, after {:.1f} s", name, watched.name, down.count());
  Daemon::port_came_back(*watched.nic);
}

// Says of a link that is up that it was down since it was looked at last.
void NetworkWatch::link_was_lost(Watched& watched, const KernelNetwork::Interface& interface) {
  log_problem("{}: {} was without a carrier for a moment", watched.nic->plan.settings.name,
              watched.name);
  count(watched, Counter::link_downed);
  if (!watched.port->link_up()) return;  // programs know no other
  watched.port->tell(false, &interface);
  changed_();
  news_ = true;
}

// The IB MTU that new connections should have follows; those that have a larger one can send
// nothing that is longer.
void NetworkWatch::mtu_changed(Watched& watched, uint32_t mtu_bytes) {
  const NicSettings& settings = watched.nic->plan.settings;
  const uint32_t before = watched.mtu_bytes;
  watched.mtu_bytes = mtu_bytes;
  constexpr uint32_t kLeastIbMtu = 256;
  const uint32_t fits =
      std::clamp(largest_ib_mtu(mtu_bytes), kLeastIbMtu, std::max(kLeastIbMtu, settings.mtu_bytes));
  watched.port->set_ib_mtu_bytes(fits);
  count(watched, Counter::mtu_changed);
  news_ = true;
  if (fits >= settings.mtu_bytes && mtu_bytes >= settings.mtu_bytes + kPacketOverheadBytes) {
    log_line("{}: the MTU of {} is {} now, it was {}: packets of the NIC's MTU, {}, fit",
             settings.name, watched.name, mtu_bytes, before, settings.mtu_bytes);
    return;
  }
  log_problem(
      "{}: the MTU of {} is {} now, it was {}: connections with a path MTU above {} lose all "
      "longer packets. `ip link set dev {} mtu {}` mends that, or let both ends connect anew",
      settings.name, watched.name, mtu_bytes, before, fits, watched.name,
      settings.mtu_bytes + kPacketOverheadBytes);
}

void NetworkWatch::reopen(Watched& watched) {
  if (auto back = watched.port->come_back(*watched.nic->lcore, *watched.nic->nic); !back)
    return log_line("{}; tried again when something changes there", back.error());
  watched.nic->lcore->run_on([&] { watched.nic->nic->set_mac(watched.port->mac()); });
  watched.opened = true;
  news_ = true;
}

void NetworkWatch::count(const Watched& watched, Counter counter) {
  watched.nic->lcore->run_on([&] { watched.nic->nic->count(counter); });
}

// Whoever has the NIC's address as well may go on saying so: a line a minute says enough.
void NetworkWatch::look_for_conflicts() {
  constexpr std::chrono::seconds kBetweenLines{60};
  for (size_t i = 0; i < conflicts_.size(); ++i) {
    const Nic& nic = *daemon_.nics()[i].nic;
    Conflicts& conflicts = conflicts_[i];
    const uint64_t heard = nic.counters().get(Counter::duplicate_address);
    // Counters may have been cleared.
    if (heard <= conflicts.heard || Clock::now() < conflicts.say_from) {
      conflicts.heard = std::min(conflicts.heard, heard);
      continue;
    }
    conflicts.heard = heard;
    conflicts.say_from = Clock::now() + kBetweenLines;
    log_problem(
        "{}: another host ({}) says that it has {}: connections break until one of them gets "
        "another address",
        nic.settings().name, wire::to_string(nic.conflicting_mac()),
        nic.settings().text_of(nic.settings().ip));
  }
}

void NetworkWatch::look() {
  look_for_conflicts();
  for (Watched& watched : watched_) {
    const auto to = watched.port->take_too_long();
    // Shorter than the NIC's packets by the interface's MTU: that was told when it changed.
    if (!to || watched.port->ib_mtu_bytes() < watched.nic->plan.settings.mtu_bytes) continue;
    const NicSettings& settings = watched.nic->plan.settings;
    const uint32_t mtu_bytes = path_mtu(settings.address_of(settings.own_for(*to)),
                                        settings.address_of(*to), watched.interface);
    auto& told = watched.narrow_ways;
    if (told.size() == kNarrowWays && !told.contains(raw(*to))) told.clear();
    if (mtu_bytes == 0 || mtu_bytes >= settings.mtu_bytes + kPacketOverheadBytes) continue;
    if (std::exchange(told[raw(*to)], mtu_bytes) == mtu_bytes) continue;
    log_problem(
        "{}: the way to {} takes packets of at most {} bytes, and {} has an MTU of {}: give "
        "the NIC mtu={} at both ends",
        settings.name, settings.text_of(*to), mtu_bytes, watched.name, watched.mtu_bytes,
        largest_ib_mtu(mtu_bytes));
  }
}

}  // namespace hostnic
