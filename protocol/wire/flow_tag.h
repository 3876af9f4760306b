// SPDX-License-Identifier: BSD-3-Clause
// The tag that keeps packets of a dead connection from matching a new one (docs/wire.md,
// "Layers"): ten bits, a hash of the requester's QPN, the responder's QPN and the requester's
// starting PSN. Pure functions, any thread.
//
// The contract wants both starting PSNs in the tag; a responder in RTR does not know its own sq_psn
// yet but must answer (rule 1), so only the requester's, which both ends know from RTR on, takes
// part.
//
// The tag is in the UDP source port's upper bits; the lower four are free for spraying over paths.
// A sender that can't choose its source port for each packet, because it has one socket for all,
// sends from a port below RoCEv2's dynamic range, and its packets carry the tag's upper seven bits
// where BTH has reserved ones: six beside FECN and BECN, which the ICRC does not cover, and the
// last one beside A.
#pragma once

#include <cstddef>
#include <cstdint>

#include "protocol/types.h"
#include "protocol/wire/bth.h"

namespace hostnic::wire {

inline constexpr uint16_t kFlowTagBase = 0xc000;  // RoCEv2's dynamic port range
inline constexpr uint16_t kFlowTagMask = 0xfff0;
static_assert(kPathMask == static_cast<uint16_t>(~kFlowTagMask));
// The bits of a tag that packets from a port below the range carry.
inline constexpr uint16_t kCarriedTagMask = 0xff80;
// In these bits, which are carried as well, source ports of the standard's RC differ from the tag
// that a native queue pair would have in its place.
inline constexpr uint16_t kForeignTag = 0x80;

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

// Writes what a packet carries of its tag into its BTH.
inline void carry_flow_tag(uint16_t tag, std::byte* bth) {
  std::byte& congestion = bth[bth_offset::kCongestion];
  std::byte& native = bth[bth_offset::kAckRequest];
  congestion =
      (congestion & ~std::byte{bth_bit::kTagMask}) | std::byte(tag >> 8 & bth_bit::kTagMask);
  native = (native & ~std::byte{bth_bit::kTagLowest}) | std::byte(tag >> 7 & bth_bit::kTagLowest);
}
// The tag that a packet from a port below the range carries; the bits outside kCarriedTagMask are
// 0.
inline uint16_t carried_flow_tag(const std::byte* bth) {
  return static_cast<uint16_t>(kFlowTagBase |
                               (load_u8(bth + bth_offset::kCongestion) & bth_bit::kTagMask) << 8 |
                               (load_u8(bth + bth_offset::kAckRequest) & bth_bit::kTagLowest) << 7);
}

}  // namespace hostnic::wire
