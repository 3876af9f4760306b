// SPDX-License-Identifier: BSD-3-Clause
// Bundles of ACKs (bundled_packets.h): plain ACKs to one peer that are due in one turn.
#pragma once

#include "dataplane/nic/packet/bundled_packets.h"

namespace hostnic {

// What an ACK without a bitmap differs in from the first of its bundle.
struct BundledAck {
  Qpn dest_qpn{}, src_qpn{};
  uint32_t msn = 0;
  uint16_t src_port = 0;
  wire::Sack sack;

  // Turns the headers of any ACK of the bundle into this one's.
  void apply_to(wire::Packet& ack) const {
    ack.dest_qpn = dest_qpn;
    ack.src_qpn = src_qpn;
    ack.aeth.msn = msn;
    ack.src_port = src_port;
    ack.sack = sack;
    ack.psn = sack.base;
  }
};

using BundledAcks = BundledPackets<BundledAck, 10>;

// The bytes that a buffer for such a bundle must have.
inline constexpr uint32_t kAckBundleBytes = kBundledOffset + sizeof(BundledAcks);

inline BundledAcks& bundled_acks(rte_mbuf* packet) { return bundled_in<BundledAcks>(packet); }

using AckBundleBuilder = SmallBundleBuilder<BundledAcks>;

}  // namespace hostnic
