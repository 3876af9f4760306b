// SPDX-License-Identifier: BSD-3-Clause
// The send side of an impaired port: packets that impairments have let go wait here for the port, a
// row for each peer. The NIC's lcore; set() alone allocates.
#pragma once

#include <rte_mbuf.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "dataplane/nic/egress/impaired_packets.h"
#include "dataplane/nic/limits.h"
#include "dataplane/nic/packet/packet_queue.h"
#include "dataplane/nic/port.h"

namespace hostnic {

class ImpairedDepartures final : private ImpairedPackets::Outlet {
 public:
  ImpairedDepartures(Port& port, const ImpairmentServices& nic)
      : port_(port), nic_(nic), packets_(impair::Direction::kTx, *this, nic) {}
  ~ImpairedDepartures();
  ImpairedDepartures(const ImpairedDepartures&) = delete;
  ImpairedDepartures& operator=(const ImpairedDepartures&) = delete;

  ImpairedPackets& packets() { return packets_; }
  const ImpairedPackets& packets() const { return packets_; }
  // Replaces the impairments. What the old ones held back goes on at once.
  void set(const impair::Spec& spec, uint64_t seed);
  // Nothing is impaired, and nothing is left from before.
  bool idle() const { return !packets_.any() && rows_.empty(); }
  bool has_ready() const;
  // As Port::transmit().
  uint16_t transmit(uint16_t peer, rte_mbuf** packets, uint16_t count);
  // Sends the packets that are due.
  void send_due();

 private:
  // Packets towards one peer. Behind the room for packets there is some for the parts of one
  // bundle.
  struct Row {
    static constexpr uint32_t kRoom = 2 * kBurst;
    uint32_t count = 0;
    std::array<rte_mbuf*, kRoom + kMaxBundlePackets> packets;
    uint32_t room() const { return count < kRoom ? kRoom - count : 0; }
  };

  bool has_room(size_t peer);
  bool send(size_t peer);
  bool depart_due();
  void let_go(rte_mbuf* buffer) override;
  void let_due_go() override;

  Port& port_;
  const ImpairmentServices nic_;
  ImpairedPackets packets_;
  PacketQueue released_;   // packets that replaced impairments had kept
  std::vector<Row> rows_;  // by peer, while there are any
};

}  // namespace hostnic
