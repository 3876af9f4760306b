// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/ports/udp/udp_port.h"

#include <errno.h>
#include <fmt/format.h>
#include <rte_errno.h>
#include <rte_mbuf.h>
#include <string.h>
#include <sys/epoll.h>

#include <algorithm>
#include <utility>

#include "dataplane/daemon/lcore/lcore_loop.h"
#include "dataplane/daemon/log.h"
#include "dataplane/nic/packet/external_payload.h"

namespace hostnic {
namespace {

constexpr unsigned kBuffers = 8192 - 1;
constexpr unsigned kCachedBuffers = 256;

}  // namespace

Expected<LocalAddress, std::string> check_udp_port(const Gid& address, const std::string& zone) {
  auto local = find_local_address(address, zone);
  if (!local) return Unexpected("port udp: " + local.error());
  // The socket is opened once more when the port is; until then nobody needs it.
  if (auto socket = open_roce_socket(*local); !socket)
    return Unexpected("port udp: " + socket.error());
  return local;
}

Expected<std::unique_ptr<UdpPort>, std::string> UdpPort::open(const std::string& name,
                                                              const OwnAddress& own,
                                                              const wire::MacAddress& mac,
                                                              AddressBook& book) {
  std::unique_ptr<UdpPort> port(new UdpPort(own.local, mac));
  if (!register_mbuf_flags())
    return Unexpected(fmt::format("{}: DPDK has no mbuf flags left", name));
  port->pool_ =
      rte_pktmbuf_pool_create((name + "_rx").c_str(), kBuffers, kCachedBuffers, 0,
                              UdpReceiver::kBufferBytes + RTE_PKTMBUF_HEADROOM, SOCKET_ID_ANY);
  if (port->pool_ == nullptr)
    return Unexpected(fmt::format("{}: no memory for receive buffers: {} (more by EAL's -m)", name,
                                  rte_strerror(rte_errno)));
  if (auto opened = port->open_socket(name, own, book); !opened) return Unexpected(opened.error());
  return port;
}

// Opens the own address's socket, and what sends and receives.
Expected<void, std::string> UdpPort::open_socket(const std::string& name, const OwnAddress& own,
                                                 AddressBook& book) {
  arrivals_ = UniqueFd(epoll_create1(EPOLL_CLOEXEC));
  if (!arrivals_) return Unexpected(fmt::format("{}: epoll: {}", name, strerror(errno)));
  auto socket = open_roce_socket(own.local);
  if (!socket) return Unexpected(fmt::format("{}: port udp: {}", name, socket.error()));
  receiver_ = std::make_unique<UdpReceiver>(arrivals_.get(), pool_, book);
  sender_ = std::make_unique<UdpSender>(socket->segments, book);
  auto added = add_socket(own, std::move(*socket));
  if (!added) return Unexpected(fmt::format("{}: {}", name, added.error()));
  return {};
}

Expected<void, std::string> UdpPort::add_socket(const OwnAddress& own, RoceSocket socket) {
  const int fd = socket.fd.get();
  if (!watch(fd)) return Unexpected(fmt::format("epoll: {}", strerror(errno)));
  receiver_->add_own(fd, own.number, own.local.address);
  sender_->add_origin({own.local.address, own.number, fd, own.local.interface_index});
  sockets_.push_back({own.number, std::move(socket)});
  if (watches_room_) watch_room(true);
  return {};
}

RoceSocket UdpPort::take_socket(Ipv4Address number) {
  const auto found = std::ranges::find(sockets_, number, &OwnSocket::number);
  if (found == sockets_.end()) return {};
  receiver_->remove_own(number);
  sender_->remove_origin(number);
  RoceSocket taken = std::move(found->socket);
  sockets_.erase(found);
  // It is in the set until all its descriptors are closed.
  epoll_ctl(arrivals_.get(), EPOLL_CTL_DEL, taken.fd.get(), nullptr);
  return taken;
}

Expected<void, std::string> UdpPort::open_address(LcoreLoop& lcore, const Gid& address,
                                                  Ipv4Address number,
                                                  const KernelNetwork::Interface& interface) {
  const OwnAddress own{{.address = address,
                        .interface = interface.name,
                        .interface_index = interface.index,
                        .mtu_bytes = interface.mtu_bytes},
                       number};
  auto socket = open_roce_socket(own.local);
  if (!socket) return Unexpected(socket.error());
  Expected<void, std::string> added;
  lcore.run_on([&] { added = add_socket(own, std::move(*socket)); });
  return added;
}

void UdpPort::close_address(LcoreLoop& lcore, Ipv4Address number) {
  RoceSocket closed;
  lcore.run_on([&] { closed = take_socket(number); });
}

int UdpPort::peer_of(uint32_t ip) const {
  const bool own =
      std::ranges::any_of(sockets_, [&](const OwnSocket& each) { return raw(each.number) == ip; });
  return own ? -1 : 0;
}

int UdpPort::join(uint32_t group) {
  const Ipv4Address ip{group};
  const Gid on_wire = ipv4_of(first().address) ? gid_of(ip) : ipv6_group_of(ip);
  auto socket = open_group_socket(ip, first());
  if (!socket) return socket.error();
  if (!watch(socket->get())) return errno;
  receiver_->add_group(socket->get(), ip, on_wire);
  groups_[group] = std::move(*socket);
  return 0;
}

void UdpPort::leave(uint32_t group) {
  receiver_->remove_group(Ipv4Address{group});
  groups_.erase(group);
}

void UdpPort::tell(bool carries, const KernelNetwork::Interface* interface) {
  NetworkPort::tell(carries, interface);
  if (interface == nullptr) return;
  std::lock_guard lock(first_mutex_);
  first_.interface = interface->name;
  first_.interface_index = interface->index;
  first_.mtu_bytes = interface->mtu_bytes;
}

// Memberships end with their interface. Returns 0 or an errno value; what could not be joined is
// tried again the next time.
int UdpPort::renew_groups() {
  const LocalAddress own = first();
  sender_->set_interface(own.interface_index);
  send_groups_from(sockets_[0].socket.fd.get(), own);
  int error = 0;
  for (auto& [group, socket] : groups_) {
    receiver_->remove_group(Ipv4Address{group});
    socket.reset();
    if (const int failed = join(group)) error = failed;
  }
  return error;
}

Expected<void, std::string> UdpPort::come_back(LcoreLoop& lcore, Nic& /*nic*/) {
  int error = 0;
  lcore.run_on([&] { error = renew_groups(); });
  if (error == 0) return {};
  return Unexpected(fmt::format("{}: multicast groups can't be joined again: {}",
                                to_string(first().address), strerror(error)));
}

// Adds a socket to the set that wakes the lcore.
bool UdpPort::watch(int socket) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET;
  event.data.fd = socket;
  return epoll_ctl(arrivals_.get(), EPOLL_CTL_ADD, socket, &event) == 0;
}

// Each packet that leaves would wake the lcore, so it hears of room only while it waits for some.
void UdpPort::watch_room(bool on) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET | (on ? uint32_t{EPOLLOUT} : 0);
  bool watched = true;
  for (const OwnSocket& own : sockets_) {
    event.data.fd = own.socket.fd.get();
    watched = epoll_ctl(arrivals_.get(), EPOLL_CTL_MOD, event.data.fd, &event) == 0 && watched;
  }
  watches_room_ = watched && on;
}

UdpPort::~UdpPort() {
  receiver_.reset();
  rte_mempool_free(pool_);
}

PortView UdpPort::view() const {
  const LocalAddress on = first();
  return {.kind = PortKind::kUdp,
          .device = on.interface,
          .mtu_bytes = on.mtu_bytes,
          .link_up = link_up(),
          .sends_segments = sender_->segments(),
          .receives_coalesced = sockets_[0].socket.coalesces,
          .socket_full = receiver_->dropped(),
          .without_number = receiver_->unnamed(),
          .malformed = receiver_->malformed(),
          .waits_for_room = sender_->times_full(),
          .refused_by_kernel = sender_->refused(),
          .refused_with = sender_->last_error()};
}

}  // namespace hostnic
