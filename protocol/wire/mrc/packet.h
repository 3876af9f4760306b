// SPDX-License-Identifier: BSD-3-Clause
// One MRC packet's headers from BTH on, as values in host byte order, and the functions that
// convert them from and to bytes. What is in front of BTH is not looked at here: the same packets
// travel over IPv4, IPv6 and SRv6, and entropy.h says what of a path is in those headers. Pure
// functions, any thread; they allocate nothing, but for to_string().
//
//   BTH / METH / [TSETH] / RETH / [ImmDt] / payload / pad / ICRC     WRITEs
//   BTH / a header of its own / ICRC                                 all others
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "protocol/wire/aeth.h"
#include "protocol/wire/mrc/control_headers.h"
#include "protocol/wire/mrc/opcodes.h"
#include "protocol/wire/mrc/request_headers.h"
#include "protocol/wire/packet.h"
#include "protocol/wire/reth.h"

namespace hostnic::wire::mrc {

// The headers of a packet; only the members of the opcode's own headers mean anything, and parse()
// leaves the others as they are by default.
struct Packet {
  Opcode opcode = Opcode::kWriteOnly;
  bool solicited = false;
  bool ack_request = false;
  bool retransmission = false;
  bool has_timestamp = false;  // of a WRITE: there is a TSETH, which is `timestamp`
  uint16_t pkey = kDefaultPkey;
  Qpn dest_qpn{};
  Psn psn;  // a SACK's is its cumulative PSN, a NACK's the PSN that it refuses
  Meth meth;
  Timestamp timestamp;
  Reth reth;              // va: where this packet's bytes belong; length: the whole message's
  uint32_t imm_data = 0;  // bytes as the application gave them: network order, uninterpreted
  Aeth aeth;
  Seth seth;
  bool has_cc_state = false;  // of a SACK: its CC type is the one that is known; set by parse()
  CcState cc_state;
  Neth neth;
  Peth peth;
  Erth erth;
  Eeth eeth;

  uint16_t header_bytes = 0;   // BTH and what follows, before the payload; set by parse()
  uint16_t payload_bytes = 0;  // without pad and ICRC
  bool operator==(const Packet&) const = default;
};

// An upper bound of header_bytes (SACK, and endpoint responses).
inline constexpr size_t kMaxHeaderBytes = kBthBytes + kSethBytes + kCcStateBytes;

// Parses what UDP carries. `first_segment` is its first contiguous bytes, beginning with BTH, with
// at least all headers (the payload may lie in a second segment); `packet_bytes` is the length of
// the whole. `has_icrc` says whether pad and a 4-byte ICRC end the packet; it is not verified here.
// Never reads outside first_segment. On error `out` is unspecified.
//
// What it accepts is consistent: a WRITE that is its message's only packet has RETH's length as
// payload, one of several has at least a byte and fewer than that; packets without payload have
// none; endpoint packets are for QPN 2; an AETH is an ACK or a NAK (there is no RNR NAK).
// Addresses, keys, other QPNs, contexts, sequence numbers and NACK reasons are for the transport to
// check.
ParseError parse(std::span<const std::byte> first_segment, size_t packet_bytes, bool has_icrc,
                 Packet& out);

// The headers of a packet that parse() has accepted, from where its BTH is. payload_bytes is 0,
// which is not known here.
Packet headers_at(const std::byte* bth);

// Parses a WRITE whose payload a switch has cut off, which the packet's DSCP says: of such a one
// only BTH, METH and TSETH need to be there. What is behind is not looked at, and there is no ICRC
// that could be right: `out` is good for a NACK and for nothing else. `reth` and `imm_data` are
// left as they are by default, payload_bytes is 0. Packets of other opcodes are refused
// (kBadField).
ParseError parse_trimmed(std::span<const std::byte> bytes, Packet& out);

// The number of bytes that build() will write.
size_t header_bytes(const Packet& packet);

// Writes BTH and all headers for `packet` into `out`, which must have at least
// header_bytes(packet), and returns that number. payload_bytes must be set, and the opcode one of
// the enumerators. With `has_icrc`, PadCnt is the payload's, else 0. The caller appends payload,
// pad zeros and ICRC. The packet must be one that parse() would accept: nothing is checked.
size_t build(const Packet& packet, bool has_icrc, std::span<std::byte> out);

// Prints one line in the manner of wire::to_string(const Packet&), without addresses:
// "qp 0x10001 MRC_WRITE_FIRST psn 17 msn 3 va 0x1000 rkey 0x12 len 8192 packet len 4096 rtx".
std::string to_string(const Packet& packet);

// "trimmed", "psn-out-of-window", ...; "reason 12" for a number that is not known.
std::string to_string(NackReason reason);

}  // namespace hostnic::wire::mrc
