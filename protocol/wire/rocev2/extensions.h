// SPDX-License-Identifier: BSD-3-Clause
// What stands behind BTH in the standard's packets (InfiniBand 9.2 to 9.4): parse_extensions() and
// build() of packet.h are made of this. All packets have their headers in one order; BTH's reserved
// bits are sent 0 and ignored. Pure, any thread.
#pragma once

#include "protocol/wire/cursor.h"
#include "protocol/wire/packet.h"

namespace hostnic::wire::rocev2_dialect {

// Reads the headers, all of them inside the checked bytes, and what the opcode says of the packet's
// place in its message.
[[gnu::always_inline]] inline ParseError read(const OpcodeInfo& info, Cursor cursor, Packet& out) {
  out.cont = info.cont;
  out.more = info.more;
  out.attempt = 0;
  out.policy = Policy::kSelective;
  if (info.has_deth) {
    const auto deth = cursor.take<DethView>();
    out.qkey = deth.qkey();
    out.src_qpn = deth.src_qpn();
  }
  if (info.has_reth) out.reth = cursor.take<RethView>().read();
  if (info.has_atomic_eth) out.atomic = cursor.take<AtomicEthView>().read();
  if (info.has_aeth) out.aeth = cursor.take<AethView>().read();
  if (info.has_atomic_ack) out.atomic_before = cursor.take<AtomicAckEthView>().before();
  if (info.has_imm) out.imm_data = cursor.take<ImmDtView>().imm_data();
  if (info.has_ieth) out.invalidate_rkey = cursor.take<IethView>().rkey();
  return ParseError::kNone;
}

// Checks the header values against each other and against the payload. Of UC, only a WRITE's first
// packet says a length. What is wrong with an RC request its responder answers with a NAK, so that
// is for the transport to find.
[[gnu::always_inline]] inline ParseError check_agreement(const Packet& packet) {
  const uint32_t message_bytes = packet.reth.length_bytes;
  bool agree = true;
  if (packet.opcode == Opcode::kUcWriteFirst) {
    agree = packet.payload_bytes < message_bytes;
  } else if (packet.opcode == Opcode::kUcWriteOnly || packet.opcode == Opcode::kUcWriteOnlyImm) {
    agree = packet.payload_bytes == message_bytes;
  }
  if (!agree) return ParseError::kBadLength;
  return opcode_info(packet.opcode).has_aeth && packet.aeth.kind == AckKind{2}
             ? ParseError::kBadField
             : ParseError::kNone;
}

[[gnu::always_inline]] inline void put(const OpcodeInfo& info, const Packet& packet,
                                       Appender& out) {
  if (info.has_deth) out.put<kDethBytes>(Deth{packet.qkey, packet.src_qpn});
  if (info.has_reth) out.put<kRethBytes>(packet.reth);
  if (info.has_atomic_eth) out.put<kAtomicEthBytes>(packet.atomic);
  if (info.has_aeth) out.put<kAethBytes>(packet.aeth);
  if (info.has_atomic_ack) out.put<kAtomicAckEthBytes>(AtomicAckEth{packet.atomic_before});
  if (info.has_imm) out.put<kImmDtBytes>(ImmDt{packet.imm_data});
  if (info.has_ieth) out.put<kIethBytes>(Ieth{packet.invalidate_rkey});
}

}  // namespace hostnic::wire::rocev2_dialect
