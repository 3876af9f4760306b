// SPDX-License-Identifier: BSD-3-Clause
// Bundles of READ requests (bundled_packets.h): what is asked of one peer in one turn.
#pragma once

#include <span>

#include "dataplane/nic/packet/bundled_packets.h"

namespace hostnic {

// What a READ request differs in from the first of its bundle.
struct BundledRead {
  Qpn dest_qpn{}, src_qpn{};
  Psn psn;
  uint16_t src_port = 0;
  uint8_t attempt = 0;
  bool ack_request = false, solicited = false;
  wire::Reth reth;
  wire::ReadEth read;

  // Turns the headers of any request of the bundle into this one's.
  void apply_to(wire::Packet& request) const {
    request.dest_qpn = dest_qpn;
    request.src_qpn = src_qpn;
    request.psn = psn;
    request.src_port = src_port;
    request.attempt = attempt;
    request.ack_request = ack_request;
    request.solicited = solicited;
    request.reth = reth;
    request.read = read;
  }
  std::span<const std::byte> contents() const { return {}; }
};

// Together with the first, a bundle holds as many requests as a queue pair may have outstanding.
using BundledReads = BundledPackets<BundledRead, 15>;

// The bytes that a buffer for such a bundle must have.
inline constexpr uint32_t kReadBundleBytes = kBundledOffset + sizeof(BundledReads);

using ReadBundleBuilder = SmallBundleBuilder<BundledReads>;

}  // namespace hostnic
