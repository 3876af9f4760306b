// SPDX-License-Identifier: BSD-3-Clause
// The tag that keeps packets of a dead connection from matching a new one (docs/wire.md,
// "Layers"): the UDP source port's upper bits, a hash of the requester's QPN, the responder's QPN
// and the requester's starting PSN. The lower bits are free for spraying over paths.
//
// The contract wants both starting PSNs in the tag; a responder in RTR does not know its own sq_psn
// yet but must answer (rule 1), so only the requester's, which both ends know from RTR on, takes
// part.
#pragma once

#include <cstdint>

namespace hostnic {

inline constexpr uint16_t kFlowTagBase = 0xc000;  // RoCEv2's dynamic port range
inline constexpr uint16_t kFlowTagMask = 0xfff0;

constexpr uint16_t flow_tag(uint16_t udp_source_port) { return udp_source_port & kFlowTagMask; }

constexpr uint16_t make_flow_tag(uint32_t requester_qpn, uint32_t responder_qpn,
                                 uint32_t requester_psn) {
  uint64_t x = uint64_t{requester_qpn} << 40 ^ uint64_t { responder_qpn } << 16 ^ requester_psn;
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccd;  // a finaliser that mixes every input bit into the upper ones
  x ^= x >> 29;
  x *= 0xc4ceb9fe1a85ec53;
  return static_cast<uint16_t>(kFlowTagBase | ((x >> 48 & 0x3ff) << 4));
}

}  // namespace hostnic
