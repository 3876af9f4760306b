// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/qp/refused_request.h"

#include "dataplane/nic/qp/silent_drops.h"

namespace hostnic {

[[gnu::cold]] RefusedRequest RefusedRequest::of(const wire::Packet& p, uint32_t recv_sn) {
  using wire::Opcode;
  RefusedRequest r;
  r.opcode = p.opcode;
  r.packet_bytes = p.payload_bytes;
  r.is_last = !p.more;
  r.recv_sn = recv_sn;
  r.policy = p.policy;
  switch (p.opcode) {
    case Opcode::kCompareSwap:
    case Opcode::kFetchAdd:
    case Opcode::kRcCompareSwap:
    case Opcode::kRcFetchAdd:
      r.key = p.atomic.rkey;
      r.va = p.atomic.va;
      r.length_bytes = 8;
      break;
    case Opcode::kSendInv:
    case Opcode::kRcSendLastInv:
    case Opcode::kRcSendOnlyInv:
      r.key = p.invalidate_rkey;
      r.length_bytes = p.opcode == Opcode::kSendInv ? p.reth.length_bytes : p.payload_bytes;
      break;
    case Opcode::kSend:
    case Opcode::kSendImm:
      r.length_bytes = p.reth.length_bytes;
      break;
    default:
      r.key = p.reth.key;
      r.va = p.reth.va;
      // A WRITE of the native transport, or MRC's, names the bytes of its packet, a READ all that
      // it reads.
      r.length_bytes = p.opcode == Opcode::kWriteOnly || p.opcode == Opcode::kWriteImm ||
                               wire::dialect_of(p.opcode) == wire::Dialect::kMrc
                           ? p.payload_bytes
                           : p.reth.length_bytes;
      break;
  }
  return r;
}

[[gnu::cold]] void SilentDrops::note(SilentDrop why, const wire::Packet& p, uint32_t recv_sn,
                                     uint64_t room) {
  if (why != last) count = 0;
  last = why;
  ++count;
  packet = RefusedRequest::of(p, recv_sn);
  from = p.src_ip;
  qkey = p.qkey;
  room_bytes = room;
}

}  // namespace hostnic
