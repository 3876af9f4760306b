// SPDX-License-Identifier: BSD-3-Clause
// A UDP socket as a NIC's port: RoCEv2 over whatever network the kernel has, without a privilege
// and without DPDK's drivers. The kernel does what is before BTH: neighbours, routes, VLANs,
// tunnels.
//
// Packets of a message leave many by one call and may arrive so (udp_sender.h, udp_receiver.h). All
// leave from port 4791, so that firewalls which let answers in let peers in; the flow tag is in BTH
// (wire/flow_tag.h).
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "dataplane/daemon/ports/network_port.h"
#include "dataplane/daemon/ports/udp/udp_receiver.h"
#include "dataplane/daemon/ports/udp/udp_sender.h"
#include "dataplane/daemon/ports/udp/udp_socket.h"
#include "protocol/expected.h"

namespace hostnic {

// The value of a NIC's `port` that stands for it.
inline constexpr const char* kUdpPort = "udp";

// What can be known before EAL starts: the address's interface. An error is one line.
Expected<LocalAddress, std::string> check_udp_port(const Gid& address, const std::string& zone);

// An address of the machine that is the NIC's, and the number that the NIC knows it by.
struct OwnAddress {
  LocalAddress local;
  Ipv4Address number{};
};

class UdpPort final : public NetworkPort {
 public:
  // EAL must be up. `name` names the NIC in errors and the packet pool; `own` is its own address;
  // `mac` is only what captures show. The book must outlive the port.
  static Expected<std::unique_ptr<UdpPort>, std::string> open(const std::string& name,
                                                              const OwnAddress& own,
                                                              const wire::MacAddress& mac,
                                                              AddressBook& book);
  ~UdpPort() override;

  wire::MacAddress mac() const override { return mac_; }
  uint32_t ip_mtu_bytes() const override { return first().mtu_bytes; }
  uint32_t speed_mbps() const override { return interface_speed_mbps(first().interface); }
  std::span<const UniqueFd> sockets() const override { return {&arrivals_, 1}; }
  bool announces_packets() const override { return true; }

  bool is_kernels() const override { return true; }
  bool has_kernels_address() const override { return true; }
  const KernelNetwork::Interface* find_in(const KernelNetwork& network) const override {
    const LocalAddress own = first();
    return network.with(own.address, own.interface);
  }
  void tell(bool carries, const KernelNetwork::Interface* interface) override;
  // The socket stays: one whose address goes from an interface works again when the address is
  // back, on whatever interface. Groups are joined anew.
  Expected<void, std::string> come_back(LcoreLoop& lcore, Nic& nic) override;
  Expected<void, std::string> open_address(LcoreLoop& lcore, const Gid& address, Ipv4Address number,
                                           const KernelNetwork::Interface& interface) override;
  void close_address(LcoreLoop& lcore, Ipv4Address number) override;
  std::optional<Ipv4Address> take_too_long() override { return sender_->take_too_long(); }
  uint64_t found_full() const override { return receiver_->dropped(); }
  uint32_t receive_buffer_bytes() const override { return sockets_[0].socket.receive_buffer_bytes; }

  PortCapabilities capabilities() const override {
    return {.needs_icrc = false,
            .adds_icrc = true,
            .needs_arp = false,
            .allows_external_payload = true,
            .delivers_whole_bth = true};
  }
  uint16_t receive(uint16_t /*queue*/, rte_mbuf** packets, uint16_t max) override {
    return receiver_->receive(packets, max);
  }
  uint16_t transmit(uint16_t /*peer*/, rte_mbuf** packets, uint16_t count) override {
    const uint16_t sent = sender_->send(packets, count);
    if (sender_->full() != watches_room_) watch_room(sender_->full());
    return sent;
  }
  bool announces_room() const override { return watches_room_; }
  int peer_of(uint32_t ip) const override;
  int peers() const override { return 1; }
  int join(uint32_t group) override;
  void leave(uint32_t group) override;
  bool backlog() const override { return receiver_->backlog(); }
  PortView view() const override;

  // Sends and receives by a socket of another own address from now on, and no longer: the caller
  // closes it, because that may take a while. The lcore.
  Expected<void, std::string> add_socket(const OwnAddress& own, RoceSocket socket);
  RoceSocket take_socket(Ipv4Address number);
  // The own address's socket, for tests.
  int own_descriptor() const { return sockets_[0].socket.fd.get(); }

 private:
  // An own address's socket.
  struct OwnSocket {
    Ipv4Address number{};
    RoceSocket socket;
  };

  bool read_link() const override { return interface_is_up(first().interface); }
  bool watch(int socket);
  void watch_room(bool on);
  int renew_groups();

  UdpPort(LocalAddress first, const wire::MacAddress& mac) : first_(std::move(first)), mac_(mac) {}
  // The NIC's own address, and what is known of its interface.
  LocalAddress first() const {
    std::lock_guard lock(first_mutex_);
    return first_;
  }
  Expected<void, std::string> open_socket(const std::string& name, const OwnAddress& own,
                                          AddressBook& book);

  LocalAddress first_;
  const wire::MacAddress mac_;
  mutable std::mutex first_mutex_;  // of first_; never taken on the hot path
  // The first is the NIC's own address's. The lcore, and the control thread for the first.
  std::vector<OwnSocket> sockets_;
  std::map<uint32_t, UniqueFd> groups_;
  UniqueFd arrivals_;          // an epoll set of all sockets
  bool watches_room_ = false;  // the socket was full: the lcore is also to wake when it is not
  rte_mempool* pool_ = nullptr;
  std::unique_ptr<UdpReceiver> receiver_;
  std::unique_ptr<UdpSender> sender_;
};

}  // namespace hostnic
