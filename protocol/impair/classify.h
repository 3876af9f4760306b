// SPDX-License-Identifier: BSD-3-Clause
// From a parsed packet, of any dialect, to what the impairment stage wants to know.
#pragma once

#include "protocol/impair/packet_info.h"
#include "protocol/impair/switch_spec.h"
#include "protocol/wire/packet.h"

namespace hostnic::impair {

constexpr PacketKind kind_of(wire::Opcode opcode) {
  switch (opcode) {
    case wire::Opcode::kWriteOnly:
    case wire::Opcode::kWriteImm:
    case wire::Opcode::kRcWriteFirst:
    case wire::Opcode::kRcWriteMiddle:
    case wire::Opcode::kRcWriteLast:
    case wire::Opcode::kRcWriteLastImm:
    case wire::Opcode::kRcWriteOnlyImm:
    case wire::Opcode::kUcWriteFirst:
    case wire::Opcode::kUcWriteMiddle:
    case wire::Opcode::kUcWriteLast:
    case wire::Opcode::kUcWriteLastImm:
    case wire::Opcode::kUcWriteOnly:
    case wire::Opcode::kUcWriteOnlyImm:
    case wire::Opcode::kMrcWriteFirst:
    case wire::Opcode::kMrcWriteMiddle:
    case wire::Opcode::kMrcWriteLast:
    case wire::Opcode::kMrcWriteLastImm:
    case wire::Opcode::kMrcWriteOnly:
    case wire::Opcode::kMrcWriteOnlyImm:
      return PacketKind::kWrite;
    case wire::Opcode::kSend:
    case wire::Opcode::kSendImm:
    case wire::Opcode::kSendInv:
    case wire::Opcode::kRcSendFirst:
    case wire::Opcode::kRcSendMiddle:
    case wire::Opcode::kRcSendLast:
    case wire::Opcode::kRcSendLastImm:
    case wire::Opcode::kRcSendLastInv:
    case wire::Opcode::kRcSendOnly:
    case wire::Opcode::kRcSendOnlyImm:
    case wire::Opcode::kRcSendOnlyInv:
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
    case wire::Opcode::kRcReadRequest:
      return PacketKind::kReadRequest;
    case wire::Opcode::kReadResponse:
    case wire::Opcode::kRcReadFirst:
    case wire::Opcode::kRcReadMiddle:
    case wire::Opcode::kRcReadLast:
    case wire::Opcode::kRcReadOnly:
      return PacketKind::kReadResponse;
    case wire::Opcode::kCompareSwap:
    case wire::Opcode::kFetchAdd:
    case wire::Opcode::kRcCompareSwap:
    case wire::Opcode::kRcFetchAdd:
      return PacketKind::kAtomicRequest;
    case wire::Opcode::kAtomicResponse:
    case wire::Opcode::kRcAtomicAck:
      return PacketKind::kAtomicResponse;
    case wire::Opcode::kAck:
    case wire::Opcode::kRcAck:
    case wire::Opcode::kMrcAck:
    case wire::Opcode::kMrcSack:
    case wire::Opcode::kMrcNack:
      return PacketKind::kAck;
    case wire::Opcode::kCnp:
    case wire::Opcode::kMrcProbe:
    case wire::Opcode::kMrcEndpointRequest:
    case wire::Opcode::kMrcEndpointResponse:
      return PacketKind::kOther;
  }
  return PacketKind::kOther;
}

// Describes a packet: `peer` is the source address when receiving, the destination when
// transmitting. `bytes` is the length of the whole frame, `plan` the switch's. The
// attempt number is carried modulo 4, so every fourth resend passes for a first attempt.
inline PacketInfo describe(const wire::Packet& packet, Ipv4Address peer, uint32_t bytes,
                           const PathPlan& plan = {}) {
  PacketInfo info;
  info.peer = peer;
  info.qpn = packet.dest_qpn;
  info.psn = packet.psn;
  info.kind = kind_of(packet.opcode);
  info.last_of_message = (mask_of(info.kind) & kDataKinds) != 0 && !packet.more;
  info.first_attempt = packet.attempt == 0;
  info.bytes = bytes;
  info.path = static_cast<uint8_t>(path_of(packet.src_ip, packet.dst_ip, packet.src_port, plan));
  info.plane = static_cast<uint8_t>(plan.plane_of(packet.src_port));
  info.source_port = packet.src_port;
  return info;
}

}  // namespace hostnic::impair
