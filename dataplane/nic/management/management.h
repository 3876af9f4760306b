// SPDX-License-Identifier: BSD-3-Clause
// QP 1: management datagrams (InfiniBand 13.5). They are UD packets like others on the wire, and
// are lost and impaired like them. What hosts ask each other about what they speak (peers.h) is
// answered here; all else is from and to the control thread, what they ask about connections
// (protocol/cm/inquiry.h) up to a rate.
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
#include "protocol/cm/inquiry.h"
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
  // Sends a question about a connection, as long as it says that it is.
  void send(Ipv4Address from, Ipv4Address to, const cm::Inquiry& inquiry);

  // The most inquiries of others that are passed on per second, and how many may come at once: each
  // costs the control thread a few tasks of this lcore.
  static constexpr uint32_t kInquiriesPerSecond = 200, kInquiryBurst = 64;

  // What hosts speak. The questions to them leave with ask_peers(), which returns how many did.
  Peers& peers() { return peers_; }
  const Peers& peers() const { return peers_; }
  uint32_t ask_peers(TimeNs now);

 private:
  void send_for(uint32_t name, Ipv4Address from, Ipv4Address to, uint8_t traffic_class,
                std::span<const std::byte> bytes);
  bool receive_about_peers(const wire::Packet& p, const cm::Mad& mad);
  bool may_pass_inquiry();

  const NicSettings& settings_;
  Egress& egress_;
  Counters& counters_;
  const TimeNs& now_;
  Peers peers_;
  ManagementQueue* queue_ = nullptr;
  TimeNs inquiries_until_ns_ = 0;  // how far those so far have used up the rate
};

}  // namespace hostnic
