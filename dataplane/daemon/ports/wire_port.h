// SPDX-License-Identifier: BSD-3-Clause
// The virtual wire: NICs of one process joined by DPDK's net_ring ethdevs.
//
// Every NIC has one rte_ring, from which its ethdev receives; its ethdev has a transmit queue for
// each NIC's ring, so the queue number is the destination. Nothing is ever lost on the wire: a full
// ring takes fewer packets and the sender keeps the rest.
#pragma once

#include <rte_ring.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dataplane/daemon/lcore/lcore_loop.h"
#include "dataplane/nic/port.h"
#include "protocol/expected.h"
#include "protocol/types.h"

namespace hostnic {

// The wire has no more NICs, because net_ring takes no more queues (RTE_PMD_RING_MAX_TX_RINGS).
inline constexpr uint32_t kMaxWireNics = 16;
inline constexpr uint32_t kWireRingPackets = 512;

struct WireMember {
  std::string nic_name;
  Ipv4Address ip{};
  LcoreLoop* lcore = nullptr;  // the lcore that serves the NIC: rung when packets come while it
                               // sleeps
  std::vector<Ipv4Address> more_addresses;  // beside `ip`
  bool has(Ipv4Address address) const {
    return address == ip || std::ranges::find(more_addresses, address) != more_addresses.end();
  }
};

class WirePort;

class VirtualWire {
 public:
  // Makes the wire; EAL must be up. `rx_pool` is what the ethdevs ask for; nothing is ever taken
  // from it.
  static Expected<std::unique_ptr<VirtualWire>, std::string> create(std::vector<WireMember> members,
                                                                    rte_mempool* rx_pool);
  // Frees the packets that are still in the rings. No lcore may run any more.
  ~VirtualWire();
  VirtualWire(const VirtualWire&) = delete;
  VirtualWire& operator=(const VirtualWire&) = delete;

  Port& port(uint32_t member);

 private:
  friend class WirePort;
  explicit VirtualWire(std::vector<WireMember> members);
  Expected<void, std::string> make_rings();
  Expected<void, std::string> make_ports(rte_mempool* rx_pool);

  void add_queued(uint32_t member, int64_t packets);

  std::vector<WireMember> members_;
  std::vector<rte_ring*> rings_;
  bool one_lcore_ = true;  // one lcore serves them all
  // The number of packets on their way to each member: those of a bundle count one by one.
  std::vector<std::atomic<int64_t>> queued_;
  std::vector<std::unique_ptr<WirePort>> ports_;
};

}  // namespace hostnic
