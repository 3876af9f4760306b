// SPDX-License-Identifier: BSD-3-Clause
// The receive side of an impaired port: packets wait here between what impairments have let through
// and what the NIC takes. The NIC's lcore; set() alone allocates.
#pragma once

#include <rte_mbuf.h>

#include <cstddef>
#include <cstdint>

#include "dataplane/nic/egress/impaired_packets.h"
#include "dataplane/nic/packet/packet_queue.h"
#include "dataplane/nic/port.h"

namespace hostnic {

class ImpairedArrivals final : private ImpairedPackets::Outlet {
 public:
  ImpairedArrivals(Port& port, const ImpairmentServices& nic)
      : port_(port), nic_(nic), packets_(impair::Direction::kRx, *this, nic) {}
  ~ImpairedArrivals();
  ImpairedArrivals(const ImpairedArrivals&) = delete;
  ImpairedArrivals& operator=(const ImpairedArrivals&) = delete;

  ImpairedPackets& packets() { return packets_; }
  const ImpairedPackets& packets() const { return packets_; }
  // Replaces the impairments. What the old ones held back goes on at once.
  void set(const impair::Spec& spec, uint64_t seed);
  // Nothing is impaired, and nothing is left from before.
  bool idle() const { return !packets_.any() && arrived_.empty(); }
  bool has_ready() const { return !arrived_.empty(); }
  // As Port::receive().
  uint16_t receive(uint16_t queue, rte_mbuf** packets, uint16_t max);

 private:
  void take_arrivals(uint16_t queue, size_t wanted);
  void let_go(rte_mbuf* buffer) override;
  void let_due_go() override;

  Port& port_;
  const ImpairmentServices nic_;
  ImpairedPackets packets_;
  PacketQueue arrived_;  // let through, and not taken yet
};

}  // namespace hostnic
