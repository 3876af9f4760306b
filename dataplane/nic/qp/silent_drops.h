// SPDX-License-Identifier: BSD-3-Clause
// What was dropped on its way to a queue pair without a word to whoever sent it: for people who ask
// why nothing comes. Noted where it is dropped, which is rare.
//
// The NIC's lcore.
#pragma once

#include <cstdint>

#include "dataplane/nic/qp/refused_request.h"
#include "protocol/types.h"
#include "protocol/wire/packet.h"

namespace hostnic {

enum class SilentDrop : uint8_t {
  kNone,
  kNotConnected,  // it was in RESET or INIT
  kNotOfPeer,     // another host, queue pair or first PSN than its peer's
  kOtherQkey,     // UD
  // These are UC's and UD's.
  kNoReceive,
  kTooLong,     // for the receive, the message or the path MTU
  kIncomplete,  // a packet of the message did not come
  kAccess,      // of a WRITE
};

struct SilentDrops {
  SilentDrop last = SilentDrop::kNone;
  uint64_t count = 0;  // for that reason, in a row
  RefusedRequest packet;
  Ipv4Address from{};
  uint32_t qkey = 0;        // that the packet had
  uint64_t room_bytes = 0;  // of the receive that was next; 0: not known

  void note(SilentDrop why, const wire::Packet& p, uint32_t recv_sn, uint64_t room = 0);
};

// Datagrams for queue pairs that there are not.
struct StrayDatagrams {
  uint64_t count = 0;
  uint32_t last_qpn = 0;
  Ipv4Address last_from{};
};

}  // namespace hostnic
