// SPDX-License-Identifier: BSD-3-Clause
// From a parsed packet, of any dialect, to what the impairment stage wants to know.
#pragma once

#include "protocol/impair/packet_info.h"
#include "protocol/wire/packet.h"

namespace hostnic::impair {

constexpr PacketKind kind_of(wire::Opcode opcode) {
  switch (opcode) {
    case wire::Opcode::kWriteOnly:
    case wire::Opcode::kWriteImm:
    case wire::Opcode::kUcWriteFirst:
    case wire::Opcode::kUcWriteMiddle:
    case wire::Opcode::kUcWriteLast:
    case wire::Opcode::kUcWriteLastImm:
    case wire::Opcode::kUcWriteOnly:
    case wire::Opcode::kUcWriteOnlyImm:
      return PacketKind::kWrite;
    case wire::Opcode::kSend:
    case wire::Opcode::kSendImm:
    case wire::Opcode::kSendInv:
    case wire::Opcode::kUcSendFirst:
    case wire::Opcode::kUcSendMiddle:
    case wire::Opcode::kUcSendLast:
    case wire::Opcode::kUcSendLastImm:
    case wire::Opcode::kUcSendOnly:
    case wire::Opcode::kUcSendOnlyImm:
    case wire::Opcode::kUdSend:
    case wire::Opcode::kUdSendImm:
      return PacketKind::kSend;
    case wire::Opcode::kReadRequest:
      return PacketKind::kReadRequest;
    case wire::Opcode::kReadResponse:
      return PacketKind::kReadResponse;
    case wire::Opcode::kCompareSwap:
    case wire::Opcode::kFetchAdd:
      return PacketKind::kAtomicRequest;
    case wire::Opcode::kAtomicResponse:
      return PacketKind::kAtomicResponse;
    case wire::Opcode::kAck:
      return PacketKind::kAck;
  }
  return PacketKind::kOther;
}

// Describes a packet: `peer` is the source address when receiving, the destination when
// transmitting. `bytes` is the length of the whole frame. The attempt number is carried modulo 4,
// so every fourth resend passes for a first attempt.
inline PacketInfo describe(const wire::Packet& packet, Ipv4Address peer, uint32_t bytes) {
  PacketInfo info;
  info.peer = peer;
  info.qpn = packet.dest_qpn;
  info.psn = packet.psn;
  info.kind = kind_of(packet.opcode);
  info.last_of_message = (mask_of(info.kind) & kDataKinds) != 0 && !packet.more;
  info.first_attempt = packet.attempt == 0;
  info.bytes = bytes;
  return info;
}

}  // namespace hostnic::impair
