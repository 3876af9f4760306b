// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/ports/wire_port.h"

#include <fmt/format.h>
#include <rte_errno.h>
#include <rte_eth_ring.h>
#include <rte_ethdev.h>

#include "dataplane/nic/packet/bundle.h"
#include "dataplane/nic/packet/packet_release.h"

namespace hostnic {

class WirePort : public Port {
 public:
  WirePort(VirtualWire& wire, uint32_t self, uint16_t port_id)
      : wire_(wire), self_(self), port_id_(port_id) {}
  ~WirePort() override {
    rte_eth_dev_stop(port_id_);
    rte_eth_dev_close(port_id_);
  }

  PortCapabilities capabilities() const override {
    return {.needs_icrc = false,
            .needs_arp = false,
            .allows_external_payload = true,
            .delivers_to_readers = true,
            .delivers_whole_bth = true,
            .carries_bundles = true};
  }
  uint16_t receive(uint16_t queue, rte_mbuf** packets, uint16_t max) override {
    const uint16_t count = rte_eth_rx_burst(port_id_, queue, packets, max);
    if (count != 0) wire_.add_queued(self_, -static_cast<int64_t>(packets_in_all(packets, count)));
    return count;
  }

  uint16_t transmit(uint16_t peer, rte_mbuf** packets, uint16_t count) override {
    // Packets are counted before they are sent, because afterwards they are the receiver's.
    const uint64_t offered = packets_in_all(packets, count);
    wire_.add_queued(peer, static_cast<int64_t>(offered));
    const uint16_t sent = rte_eth_tx_burst(port_id_, peer, packets, count);
    if (sent != count)
      wire_.add_queued(peer, -static_cast<int64_t>(packets_in_all(packets + sent, count - sent)));
    LcoreLoop* const other = wire_.members_[peer].lcore;
    // An lcore that sends to itself is awake and needs no ring.
    if (sent != 0 && other != wire_.members_[self_].lcore) other->ring();
    return sent;
  }

  int peer_of(uint32_t ip) const override {
    for (size_t i = 0; i < wire_.members_.size(); ++i)
      if (wire_.members_[i].has(Ipv4Address{ip})) return static_cast<int>(i);
    return -1;
  }
  int peers() const override { return static_cast<int>(wire_.members_.size()); }
  bool backlog() const override {
    return wire_.queued_[self_].load(std::memory_order_relaxed) > kWireRingPackets / 2;
  }
  PortView view() const override {
    return {.kind = PortKind::kWire,
            .device = fmt::format("net_ring port {}", port_id_),
            .wire_nics = static_cast<uint32_t>(wire_.members_.size())};
  }

 private:
  static uint64_t packets_in_all(rte_mbuf** packets, uint32_t count) {
    uint64_t all = 0;
    for (uint32_t i = 0; i < count; ++i) all += packets_in(packets[i]);
    return all;
  }

  VirtualWire& wire_;
  uint32_t self_;
  uint16_t port_id_;
};

VirtualWire::VirtualWire(std::vector<WireMember> members)
    : members_(std::move(members)), queued_(members_.size()) {
  for (const WireMember& member : members_)
    one_lcore_ = one_lcore_ && member.lcore == members_[0].lcore;
}

void VirtualWire::add_queued(uint32_t member, int64_t packets) {
  std::atomic<int64_t>& queued = queued_[member];
  if (one_lcore_) {
    queued.store(queued.load(std::memory_order_relaxed) + packets, std::memory_order_relaxed);
  } else {
    queued.fetch_add(packets, std::memory_order_relaxed);
  }
}

Expected<std::unique_ptr<VirtualWire>, std::string> VirtualWire::create(
    std::vector<WireMember> members, rte_mempool* rx_pool) {
  if (members.size() > kMaxWireNics)
    return Unexpected(fmt::format("{} NICs on the virtual wire: net_ring joins at most {}",
                                  members.size(), kMaxWireNics));
  std::unique_ptr<VirtualWire> wire(new VirtualWire(std::move(members)));
  if (auto made = wire->make_rings(); !made) return Unexpected(made.error());
  if (auto made = wire->make_ports(rx_pool); !made) return Unexpected(made.error());
  return wire;
}

Expected<void, std::string> VirtualWire::make_rings() {
  // One NIC receives from a ring; all NICs send to it, each from its lcore.
  const unsigned flags = RING_F_SC_DEQ | (one_lcore_ ? RING_F_SP_ENQ : 0);
  for (const WireMember& member : members_) {
    const std::string name = "wire_" + member.nic_name;
    rte_ring* ring = rte_ring_create(name.c_str(), kWireRingPackets, SOCKET_ID_ANY, flags);
    if (ring == nullptr)
      return Unexpected(fmt::format("{}: no memory for its receive ring: {}", member.nic_name,
                                    rte_strerror(rte_errno)));
    rings_.push_back(ring);
  }
  return {};
}

Expected<void, std::string> VirtualWire::make_ports(rte_mempool* rx_pool) {
  for (uint32_t i = 0; i < members_.size(); ++i) {
    const std::string name = "wire_" + members_[i].nic_name;
    const auto queues = static_cast<uint16_t>(rings_.size());
    const int id = rte_eth_from_rings(name.c_str(), &rings_[i], 1, rings_.data(), queues, 0);
    if (id < 0)
      return Unexpected(
          fmt::format("{}: net_ring refuses: {}", members_[i].nic_name, rte_strerror(rte_errno)));
    const auto port_id = static_cast<uint16_t>(id);
    rte_eth_conf conf{};
    int error = rte_eth_dev_configure(port_id, 1, queues, &conf);
    if (error == 0)
      error = rte_eth_rx_queue_setup(port_id, 0, kWireRingPackets, SOCKET_ID_ANY, nullptr, rx_pool);
    for (uint16_t queue = 0; error == 0 && queue < queues; ++queue)
      error = rte_eth_tx_queue_setup(port_id, queue, kWireRingPackets, SOCKET_ID_ANY, nullptr);
    if (error == 0) error = rte_eth_dev_start(port_id);
    ports_.push_back(std::make_unique<WirePort>(*this, i, port_id));
    if (error != 0)
      return Unexpected(fmt::format("{}: its net_ring port doesn't start: {}", members_[i].nic_name,
                                    rte_strerror(-error)));
  }
  return {};
}

VirtualWire::~VirtualWire() {
  ports_.clear();
  for (rte_ring* ring : rings_) {
    void* packet = nullptr;
    while (rte_ring_sc_dequeue(ring, &packet) == 0) release_packet(static_cast<rte_mbuf*>(packet));
    rte_ring_free(ring);
  }
}

Port& VirtualWire::port(uint32_t member) { return *ports_[member]; }

}  // namespace hostnic
