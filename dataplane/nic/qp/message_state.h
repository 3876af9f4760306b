// SPDX-License-Identifier: BSD-3-Clause
// A message that arrives in packets First, Middle and Last, each of which says only what it is: the
// standard's SENDs and WRITEs (InfiniBand 9.7.4.1, 9.8.3). The native transport's packets say where
// their bytes go. Whether one is open is its transport's to know. The NIC's lcore.
#pragma once

#include <cstddef>
#include <cstdint>

#include "protocol/message_limits.h"
#include "protocol/types.h"
#include "protocol/wire/reth.h"

namespace hostnic {

struct MessageState {
  bool is_write = false;
  uint64_t offset_bytes = 0;  // of the next packet: how much of the message has been placed
  // A WRITE's, as its First says.
  VirtualAddress va = 0;
  uint32_t key = 0;
  uint32_t length_bytes = 0;

  // Takes what a First or Only packet says.
  void begin(bool write, const wire::Reth& reth) {
    *this = {.is_write = write, .va = reth.va, .key = reth.key, .length_bytes = reth.length_bytes};
  }
  // Whether a packet's payload is as long as the message lets it be. A SEND does not say how long
  // it is.
  bool fits(size_t payload_bytes, bool more) const {
    const uint64_t end = offset_bytes + payload_bytes;
    if (!is_write) return end <= kMaxMessageBytes;
    return (more ? end < length_bytes : end == length_bytes) && length_bytes <= kMaxMessageBytes;
  }
  // Where a WRITE's next packet goes.
  VirtualAddress next_va() const { return va + offset_bytes; }
  // How much of the memory from there on its key must be good for: all with the first packet, and
  // each part again, since the key may be revoked meanwhile.
  uint64_t checked_bytes(bool cont, size_t payload_bytes) const {
    return cont ? payload_bytes : length_bytes;
  }
};

}  // namespace hostnic
