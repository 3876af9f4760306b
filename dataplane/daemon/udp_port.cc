// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/udp_port.h"

#include <errno.h>
#include <fmt/format.h>
#include <rte_errno.h>
#include <rte_mbuf.h>
#include <string.h>
#include <sys/epoll.h>

#include <algorithm>
#include <utility>

#include "dataplane/daemon/lcore_loop.h"
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
                                                              std::vector<OwnAddress> own,
                                                              const wire::MacAddress& mac,
                                                              AddressBook& book) {
  std::unique_ptr<UdpPort> port(new UdpPort(std::move(own), mac));
  if (!register_mbuf_flags())
    return Unexpected(fmt::format("{}: DPDK has no mbuf flags left", name));
  port->pool_ =
      rte_pktmbuf_pool_create((name + "_rx").c_str(), kBuffers, kCachedBuffers, 0,
                              UdpReceiver::kBufferBytes + RTE_PKTMBUF_HEADROOM, SOCKET_ID_ANY);
  if (port->pool_ == nullptr)
    return Unexpected(fmt::format("{}: no memory for receive buffers: {} (more by EAL's -m)", name,
                                  rte_strerror(rte_errno)));
  if (auto opened = port->open_sockets(name, book); !opened) return Unexpected(opened.error());
  return port;
}

// Opens a socket for each of the own addresses, and what sends and receives by them.
Expected<void, std::string> UdpPort::open_sockets(const std::string& name, AddressBook& book) {
  arrivals_ = UniqueFd(epoll_create1(EPOLL_CLOEXEC));
  std::vector<UdpOrigin> origins;
  std::vector<UdpReceiver::Source> sources;
  std::vector<OwnAddress> wanted = std::exchange(own_, {});
  for (const OwnAddress& own : wanted) {
    auto socket = open_roce_socket(own.local);
    if (!socket && !own_.empty()) {
      log_line("{}: port udp: no GID for {}: {}", name, to_string(own.local.address),
               socket.error());
      continue;
    }
    if (!socket) return Unexpected(fmt::format("{}: port udp: {}", name, socket.error()));
    own_.push_back(own);
    const int fd = socket->fd.get();
    if (!arrivals_ || !watch(fd))
      return Unexpected(fmt::format("{}: epoll: {}", name, strerror(errno)));
    origins.push_back({own.local.address, own.number, fd, own.local.interface_index});
    sources.push_back({fd, own.number, own.local.address, /*is_own=*/true});
    sockets_.push_back(std::move(*socket));
  }
  receiver_ = std::make_unique<UdpReceiver>(std::move(sources), pool_, book);
  sender_ = std::make_unique<UdpSender>(std::move(origins), sockets_[0].segments, book);
  return {};
}

int UdpPort::peer_of(uint32_t ip) const {
  const bool own =
      std::ranges::any_of(own_, [&](const OwnAddress& each) { return raw(each.number) == ip; });
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
  std::lock_guard lock(own_mutex_);
  own_[0].local.interface = interface->name;
  own_[0].local.interface_index = interface->index;
  own_[0].local.mtu_bytes = interface->mtu_bytes;
}

// Memberships end with their interface. Returns 0 or an errno value; what could not be joined is
// tried again the next time.
int UdpPort::renew_groups() {
  const LocalAddress own = first();
  sender_->set_interface(own.interface_index);
  send_groups_from(sockets_[0].fd.get(), own);
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
  return epoll_ctl(arrivals_.get(), EPOLL_CTL_ADD, socket, &event) == 0;
}

// Each packet that leaves would wake the lcore, so it hears of room only while it waits for some.
void UdpPort::watch_room(bool on) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET | (on ? uint32_t{EPOLLOUT} : 0);
  bool watched = true;
  for (const RoceSocket& socket : sockets_)
    watched = epoll_ctl(arrivals_.get(), EPOLL_CTL_MOD, socket.fd.get(), &event) == 0 && watched;
  watches_room_ = watched && on;
}

UdpPort::~UdpPort() {
  receiver_.reset();
  rte_mempool_free(pool_);
}

std::string UdpPort::describe() const {
  const LocalAddress on = first();
  std::string text = fmt::format("udp on {} (MTU {}, sends {}, receives {}", on.interface,
                                 on.mtu_bytes, sender_->segments() ? "segments" : "packets",
                                 sockets_[0].coalesces ? "coalesced" : "packets");
  if (!link_up()) text += ", link down";
  if (const uint64_t dropped = receiver_->dropped())
    text += fmt::format(", {} packets found the socket full", dropped);
  if (const uint64_t malformed = receiver_->malformed())
    text += fmt::format(", {} datagrams were no packets", malformed);
  if (const uint64_t full = sender_->times_full())
    text += fmt::format(", waited {} times for room to send", full);
  if (const uint64_t refused = sender_->refused())
    text += fmt::format(", the kernel refused {} packets: {}", refused,
                        strerror(sender_->last_error()));
  return text + ")";
}

}  // namespace hostnic
