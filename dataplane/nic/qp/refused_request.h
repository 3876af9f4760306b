// SPDX-License-Identifier: BSD-3-Clause
// A request of a peer that was not carried out, as its packet named it. A value.
#pragma once

#include <cstdint>

#include "protocol/wire/packet.h"

namespace hostnic {

// The request of a peer that ended the connection, for whoever asks why.
struct RefusedRequest {
  wire::Opcode opcode{};
  uint32_t key = 0;  // SEND_INV: the key to invalidate
  uint64_t va = 0;
  uint64_t length_bytes = 0;  // SEND: of the message, where the packet says so
  uint32_t packet_bytes = 0;
  bool is_last = true;   // of its message
  uint32_t recv_sn = 0;  // the receive that was next
  wire::Policy policy{};
  uint32_t reads_ahead = 0;  // READs and atomics of the peer's that were not answered yet

  // Taken from a packet; a message of the standard's RC names its key in its first one only.
  static RefusedRequest of(const wire::Packet& p, uint32_t recv_sn);
};

}  // namespace hostnic
