// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/udp_port.h"

#include <errno.h>
#include <fmt/format.h>
#include <rte_errno.h>
#include <rte_mbuf.h>
#include <string.h>
#include <sys/epoll.h>

#include "dataplane/nic/packet/external_payload.h"

namespace hostnic {
namespace {

constexpr unsigned kBuffers = 8192 - 1;
constexpr unsigned kCachedBuffers = 256;

}  // namespace

Expected<LocalAddress, std::string> check_udp_port(Ipv4Address ip) {
  auto address = find_local_address(ip);
  if (!address) return Unexpected("port udp: " + address.error());
  // The socket is opened once more when the port is; until then nobody needs it.
  if (auto socket = open_roce_socket(ip); !socket) return Unexpected("port udp: " + socket.error());
  return address;
}

Expected<std::unique_ptr<UdpPort>, std::string> UdpPort::open(const std::string& name,
                                                              Ipv4Address ip,
                                                              const wire::MacAddress& mac) {
  std::unique_ptr<UdpPort> port(new UdpPort(ip, mac));
  auto address = find_local_address(ip);
  if (!address) return Unexpected(fmt::format("{}: port udp: {}", name, address.error()));
  auto socket = open_roce_socket(ip);
  if (!socket) return Unexpected(fmt::format("{}: port udp: {}", name, socket.error()));
  port->address_ = std::move(*address);
  port->socket_ = std::move(*socket);
  if (!register_mbuf_flags())
    return Unexpected(fmt::format("{}: DPDK has no mbuf flags left", name));
  port->pool_ =
      rte_pktmbuf_pool_create((name + "_rx").c_str(), kBuffers, kCachedBuffers, 0,
                              UdpReceiver::kBufferBytes + RTE_PKTMBUF_HEADROOM, SOCKET_ID_ANY);
  if (port->pool_ == nullptr)
    return Unexpected(fmt::format("{}: no memory for receive buffers: {} (more by EAL's -m)", name,
                                  rte_strerror(rte_errno)));
  const int fd = port->socket_.fd.get();
  port->arrivals_ = UniqueFd(epoll_create1(EPOLL_CLOEXEC));
  if (!port->arrivals_ || !port->watch(fd))
    return Unexpected(fmt::format("{}: epoll_create1: {}", name, strerror(errno)));
  port->receiver_ = std::make_unique<UdpReceiver>(fd, ip, port->pool_);
  port->sender_ = std::make_unique<UdpSender>(fd, port->socket_.segments);
  return port;
}

int UdpPort::join(uint32_t group) {
  auto socket = open_group_socket(Ipv4Address{group}, ip_);
  if (!socket) return socket.error();
  if (!watch(socket->get())) return errno;
  receiver_->add_group(socket->get(), Ipv4Address{group});
  groups_[group] = std::move(*socket);
  return 0;
}

void UdpPort::leave(uint32_t group) {
  receiver_->remove_group(Ipv4Address{group});
  groups_.erase(group);
}

// Adds a socket to the set that wakes the lcore.
bool UdpPort::watch(int socket) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET;
  return epoll_ctl(arrivals_.get(), EPOLL_CTL_ADD, socket, &event) == 0;
}

UdpPort::~UdpPort() {
  receiver_.reset();
  rte_mempool_free(pool_);
}

std::string UdpPort::describe() const {
  std::string text = fmt::format("udp on {} (MTU {}, sends {}, receives {}", address_.interface,
                                 address_.mtu_bytes, sender_->segments() ? "segments" : "packets",
                                 socket_.coalesces ? "coalesced" : "packets");
  if (!link_up()) text += ", link down";
  if (const uint64_t dropped = receiver_->dropped())
    text += fmt::format(", {} packets found the socket full", dropped);
  if (const uint64_t malformed = receiver_->malformed())
    text += fmt::format(", {} datagrams were no packets", malformed);
  if (const uint64_t refused = sender_->refused())
    text += fmt::format(", the kernel refused {} packets: {}", refused,
                        strerror(sender_->last_error()));
  return text + ")";
}

}  // namespace hostnic
