// SPDX-License-Identifier: BSD-3-Clause
// What an impairment may know about a packet. The stage itself never looks at bytes, so the same
// stage serves any transport and any packet buffer.
#pragma once

#include <cstdint>

#include "protocol/psn.h"
#include "protocol/types.h"

namespace hostnic::impair {

enum class PacketKind : uint8_t {
  kWrite,
  kSend,
  kReadRequest,
  kReadResponse,
  kAtomicRequest,
  kAtomicResponse,
  kAck,    // ACKs, NAKs and unasked credit updates
  kOther,  // whatever is no packet of ours: ARP, foreign RoCE opcodes
};

// A set of kinds, bit (1 << kind).
using KindMask = uint16_t;
constexpr KindMask mask_of(PacketKind kind) {
  return static_cast<KindMask>(1u << static_cast<unsigned>(kind));
}
inline constexpr KindMask kAnyKind = (1u << (static_cast<unsigned>(PacketKind::kOther) + 1)) - 1;
// The kinds of packets that carry application bytes and belong to a message of several.
inline constexpr KindMask kDataKinds =
    mask_of(PacketKind::kWrite) | mask_of(PacketKind::kSend) | mask_of(PacketKind::kReadResponse);

struct PacketInfo {
  Ipv4Address peer{};  // address of the other host: source when receiving, destination when
                       // transmitting
  Qpn qpn{};           // destination QP, 24 bits
  Psn psn;
  PacketKind kind = PacketKind::kOther;
  uint8_t path = 0;              // the path of the switch that it takes, from 1; 0: there is none
  uint8_t plane = 0;             // and the plane
  uint16_t source_port = 0;      // of UDP: an entropy value of MRC
  bool last_of_message = false;  // the packet is of a data kind, and no packet of its message
                                 // follows
  bool first_attempt = true;     // the packet is not a retransmission
  uint32_t bytes = 0;            // bytes on the wire, headers included; what a rate limit charges
};

}  // namespace hostnic::impair
