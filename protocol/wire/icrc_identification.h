// SPDX-License-Identifier: BSD-3-Clause
// A UDP socket does not show its reader the IP identification of RoCEv2 packets, which the ICRC
// covers. hostnic's own packets have 0 there, but Linux numbers those of one segmented send 0,
// 1, 2, ... (RFC 6864 lets it: they have DF set). CRCs are linear, so the difference between the
// ICRC that is right for an assumed identification and the one that the packet has tells the
// identification: only small numbers are believed, so that of four thousand million wrong ICRCs 128
// pass. Used by one thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace hostnic::wire {

class IcrcIdentification {
 public:
  static constexpr uint32_t kNumbers = 128;  // UDP_MAX_SEGMENTS

  // `difference`: the ICRC for `assumed`, XOR the packet's, of a packet whose ICRC covers
  // `covered_bytes` from the IPv4 header on. Returns the identification, below kNumbers, that the
  // packet's ICRC is right for; nothing: it is right for none.
  std::optional<uint16_t> find(uint32_t difference, uint16_t assumed, size_t covered_bytes);

 private:
  void learn(size_t covered_bytes);

  size_t covered_bytes_ = 0;           // that `effects_` are for
  std::array<uint32_t, 7> effects_{};  // of each bit of the number on the ICRC
};

}  // namespace hostnic::wire
