// SPDX-License-Identifier: BSD-3-Clause
// What stands behind BTH, and in its reserved bits, in the native transport's packets
// (docs/wire.md): parse_extensions() and build() of packet.h are made of this. Pure, any thread.
#pragma once

#include "protocol/wire/cursor.h"
#include "protocol/wire/packet.h"

namespace hostnic::wire::hostnic_dialect {

// Reads the headers that the opcode announces, all of them inside the checked bytes except an ACK's
// bitmap, whose length is among what is read.
[[gnu::always_inline]] inline ParseError read(const OpcodeInfo& info, const std::byte* bth_bytes,
                                              Cursor cursor, Packet& out) {
  const BthView bth(std::span<const std::byte, kBthBytes>(bth_bytes, kBthBytes));
  out.cont = bth.cont();
  out.more = bth.more();
  out.attempt = bth.attempt();
  out.policy = bth.policy();
  if (out.policy > Policy::kWholeMessage) return ParseError::kBadField;
  if (info.has_neth) {
    const auto neth = cursor.take<NethView>();
    if (neth.version() != kNativeVersion) return ParseError::kBadVersion;
    out.src_qpn = neth.src_qpn();
  }
  switch (out.opcode) {
    case Opcode::kWriteOnly:
      out.reth = cursor.take<RethView>().read();
      break;
    case Opcode::kWriteImm:
      out.reth = cursor.take<RethView>().read();
      out.imm_data = cursor.take<ImmDtView>().imm_data();
      {
        const auto recv = cursor.take<RecvEthView>();
        out.recv_sn = recv.recv_sn();
        out.message_bytes = recv.message_bytes();
      }
      break;
    case Opcode::kSend:
      out.reth = cursor.take<RethView>().read();
      break;
    case Opcode::kSendImm:
      out.reth = cursor.take<RethView>().read();
      out.imm_data = cursor.take<ImmDtView>().imm_data();
      break;
    case Opcode::kSendInv:
      out.reth = cursor.take<RethView>().read();
      out.invalidate_rkey = cursor.take<IethView>().rkey();
      break;
    case Opcode::kReadRequest:
      out.reth = cursor.take<RethView>().read();
      out.read = cursor.take<ReadEthView>().read();
      break;
    case Opcode::kReadResponse:
    case Opcode::kAtomicResponse:
      out.reth = cursor.take<RethView>().read();
      out.response_epoch = cursor.take<RespEthView>().epoch();
      break;
    case Opcode::kCompareSwap:
    case Opcode::kFetchAdd:
      out.atomic = cursor.take<AtomicEthView>().read();
      out.read = cursor.take<ReadEthView>().read();
      break;
    case Opcode::kAck:
      out.aeth = cursor.take<AethView>().read();
      out.sack = cursor.take<SackEthView>().read();
      out.unread_headers = cursor.at();
      if (out.sack.word_count > kMaxSackWords) return ParseError::kBadLength;
      break;
    default:
      break;
  }
  return ParseError::kNone;
}

// Checks the header values against each other and against the payload.
[[gnu::always_inline]] inline ParseError check_agreement(const Packet& packet) {
  switch (packet.opcode) {
    case Opcode::kWriteImm:
      if (packet.more) return ParseError::kBadField;
      [[fallthrough]];
    case Opcode::kWriteOnly:
    case Opcode::kReadResponse:
      return packet.reth.length_bytes == packet.payload_bytes ? ParseError::kNone
                                                              : ParseError::kBadLength;
    case Opcode::kSendImm:
    case Opcode::kSendInv:
      if (packet.more) return ParseError::kBadField;
      [[fallthrough]];
    case Opcode::kSend:
      return send_lengths_agree(packet) ? ParseError::kNone : ParseError::kBadLength;
    case Opcode::kReadRequest:
      return read_range_agrees(packet) ? ParseError::kNone : ParseError::kBadLength;
    case Opcode::kCompareSwap:
    case Opcode::kFetchAdd:
      return ParseError::kNone;
    case Opcode::kAtomicResponse:
      return packet.payload_bytes == kAtomicOperandBytes &&
                     packet.reth.length_bytes == kAtomicOperandBytes
                 ? ParseError::kNone
                 : ParseError::kBadLength;
    case Opcode::kAck:
      return packet.aeth.kind == AckKind{2} ? ParseError::kBadField : ParseError::kNone;
    default:
      return ParseError::kNone;
  }
}

// Writes everything between BTH and payload. `opcode` is the packet's: of a call whose opcode is
// known at compile time nothing is left but what its headers need.
[[gnu::always_inline]] inline void put(Opcode opcode, const Packet& packet,
                                       std::span<const uint64_t> sack_words, Appender& out) {
  if (opcode_info(opcode).has_neth)
    out.put<kNethBytes>(Neth{.version = kNativeVersion, .src_qpn = packet.src_qpn});
  switch (opcode) {
    case Opcode::kWriteOnly:
    case Opcode::kSend:
      out.put<kRethBytes>(packet.reth);
      break;
    case Opcode::kWriteImm:
      out.put<kRethBytes>(packet.reth);
      out.put<kImmDtBytes>(ImmDt{packet.imm_data});
      out.put<kRecvEthBytes>(RecvEth{packet.recv_sn, packet.message_bytes});
      break;
    case Opcode::kSendImm:
      out.put<kRethBytes>(packet.reth);
      out.put<kImmDtBytes>(ImmDt{packet.imm_data});
      break;
    case Opcode::kSendInv:
      out.put<kRethBytes>(packet.reth);
      out.put<kIethBytes>(Ieth{packet.invalidate_rkey});
      break;
    case Opcode::kReadRequest:
      out.put<kRethBytes>(packet.reth);
      out.put<kReadEthBytes>(packet.read);
      break;
    case Opcode::kReadResponse:
    case Opcode::kAtomicResponse:
      out.put<kRethBytes>(packet.reth);
      out.put<kRespEthBytes>(RespEth{packet.response_epoch});
      break;
    case Opcode::kCompareSwap:
    case Opcode::kFetchAdd:
      out.put<kAtomicEthBytes>(packet.atomic);
      out.put<kReadEthBytes>(packet.read);
      break;
    case Opcode::kAck:
      out.put<kAethBytes>(packet.aeth);
      out.put<kSackEthBytes>(packet.sack);
      for (size_t i = 0; i < packet.sack.word_count; ++i) out.put_be64(sack_words[i]);
      break;
    default:
      break;
  }
}

}  // namespace hostnic::wire::hostnic_dialect
