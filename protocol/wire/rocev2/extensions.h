// SPDX-License-Identifier: BSD-3-Clause
// What stands behind BTH in the standard's packets (InfiniBand 9.2 to 9.4): parse_extensions() and
// build() of packet.h are made of this. UC and UD have any of three headers, in one order; BTH's
// reserved bits are sent 0 and ignored. Pure, any thread.
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
  if (info.has_imm) out.imm_data = cursor.take<ImmDtView>().imm_data();
  return ParseError::kNone;
}

// Checks the header values against the payload: only a WRITE's first packet says a length.
[[gnu::always_inline]] inline ParseError check_agreement(const Packet& packet) {
  const uint32_t message_bytes = packet.reth.length_bytes;
  bool agree = true;
  if (packet.opcode == Opcode::kUcWriteFirst) {
    agree = packet.payload_bytes < message_bytes;
  } else if (packet.opcode == Opcode::kUcWriteOnly || packet.opcode == Opcode::kUcWriteOnlyImm) {
    agree = packet.payload_bytes == message_bytes;
  }
  return agree ? ParseError::kNone : ParseError::kBadLength;
}

[[gnu::always_inline]] inline void put(const OpcodeInfo& info, const Packet& packet,
                                       Appender& out) {
  if (info.has_deth) out.put<kDethBytes>(Deth{packet.qkey, packet.src_qpn});
  if (info.has_reth) out.put<kRethBytes>(packet.reth);
  if (info.has_imm) out.put<kImmDtBytes>(ImmDt{packet.imm_data});
}

}  // namespace hostnic::wire::rocev2_dialect
