// SPDX-License-Identifier: BSD-3-Clause
// A port around a NIC's port: what the NIC sends to its own address comes back, without ever having
// been in the port. Counts what both of them carry, and has what leaves captured. The NIC's lcore.
#pragma once

#include <rte_mbuf.h>

#include <cstdint>

#include "dataplane/nic/counters.h"
#include "dataplane/nic/egress/packet_tap.h"
#include "dataplane/nic/egress/port_stage.h"
#include "dataplane/nic/limits.h"
#include "dataplane/nic/packet/packet_queue.h"
#include "dataplane/nic/settings.h"
#include "protocol/types.h"

namespace hostnic {

class LoopbackPort final : public PortStage {
 public:
  static constexpr uint32_t kCapacity = 512;

  LoopbackPort(Port& port, const NicSettings& settings, Counters& counters)
      : PortStage(port), settings_(settings), counters_(counters) {}
  ~LoopbackPort() override;

  // Packets to this NIC itself are taken by receive(), never by recursion (rule 33, nobody waits
  // for another).
  uint16_t receive(uint16_t queue, rte_mbuf** packets, uint16_t max) override;
  uint16_t transmit(uint16_t peer, rte_mbuf** packets, uint16_t count) override;
  int peer_of(uint32_t ip) const override {
    return settings_.is_own(Ipv4Address{ip}) ? kLoopbackPeer : port_.peer_of(ip);
  }
  int own_peer() const override {
    return capabilities().needs_arp ? -1 : port_.peer_of(raw(settings_.ip));
  }

  // Has packets captured that leave; null: not.
  void set_tap(PacketTap* tap) { tap_ = tap; }

  // The number of packets to this NIC itself that have not been received yet.
  uint32_t waiting() const { return own_.size(); }

 private:
  uint16_t hand_over(uint16_t peer, rte_mbuf** packets, uint16_t count);
  uint16_t hand_over_captured(uint16_t peer, rte_mbuf** packets, uint16_t count);

  const NicSettings& settings_;
  Counters& counters_;
  PacketQueue own_{kCapacity};
  PacketTap* tap_ = nullptr;
  bool own_first_ = false;  // a busy port must not keep own packets waiting for good
};

}  // namespace hostnic
