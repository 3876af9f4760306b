// SPDX-License-Identifier: BSD-3-Clause
// QP 1: management datagrams (InfiniBand 13.5). They are UD packets like others on the wire, and
// are lost and impaired like them. What hosts ask each other about what they speak (peers.h) is
// answered here; all else is from and to the control thread.
//
// The NIC's lcore.
#pragma once

#include <rte_mbuf.h>

#include <cstdint>
#include <span>

#include "dataplane/nic/counters.h"
#include "dataplane/nic/egress/egress.h"
#include "dataplane/nic/management/management_queue.h"
#include "dataplane/nic/management/peers.h"
#include "dataplane/nic/settings.h"
#include "protocol/cm/mad.h"
#include "protocol/wire/packet.h"

namespace hostnic {

class Management {
 public:
  Management(const NicSettings& settings, Egress& egress, Counters& counters, const TimeNs& now)
      : settings_(settings),
        egress_(egress),
        counters_(counters),
        now_(now),
        peers_(settings, counters) {}

  // Says where datagrams that arrive go; null: nowhere.
  void set_queue(ManagementQueue* queue) { queue_ = queue; }
  // Returns false if the packet is no management datagram.
  bool receive(const wire::Packet& p, rte_mbuf* packet);
  // Sends a datagram from one of the NIC's addresses, unless there is no way or no room: whoever
  // sends it repeats it.
  void send(Ipv4Address from, Ipv4Address to, uint8_t traffic_class,
            std::span<const std::byte, cm::kMadBytes> bytes);

  // What hosts speak. The questions to them leave with ask_peers(), which returns how many did.
  Peers& peers() { return peers_; }
  const Peers& peers() const { return peers_; }
  uint32_t ask_peers(TimeNs now);

 private:
  void send_for(uint32_t name, Ipv4Address from, Ipv4Address to, uint8_t traffic_class,
                std::span<const std::byte, cm::kMadBytes> bytes);
  bool receive_about_peers(const wire::Packet& p, std::span<const std::byte, cm::kMadBytes> bytes);

  const NicSettings& settings_;
  Egress& egress_;
  Counters& counters_;
  const TimeNs& now_;
  Peers peers_;
  ManagementQueue* queue_ = nullptr;
};

}  // namespace hostnic
