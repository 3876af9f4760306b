// SPDX-License-Identifier: BSD-3-Clause
// The opcodes of Multipath Reliable Connection (MRC, OCP 1.0), in BTH's first byte, and the headers
// behind BTH of each. docs/mrc.md says where each number is from: the specification was not at
// hand. Constants and pure functions, any thread.
#pragma once

#include <cstdint>
#include <iterator>

namespace hostnic::wire::mrc {

// The names of headers are the specification's; sizes and layouts are in request_headers.h and
// control_headers.h. TSETH is there where BTH says so.
enum class Opcode : uint8_t {
  kWriteFirst = 0xc6,        // METH, TSETH, RETH, payload
  kWriteMiddle = 0xc7,       // likewise
  kWriteLast = 0xc8,         // likewise
  kWriteLastImm = 0xc9,      // METH, TSETH, RETH, ImmDt, payload
  kWriteOnly = 0xca,         // as kWriteFirst
  kWriteOnlyImm = 0xcb,      // as kWriteLastImm
  kAck = 0xd1,               // AETH: what became of the operation
  kEndpointRequest = 0xd8,   // ERTH
  kEndpointResponse = 0xd9,  // EETH
  kSack = 0xdc,              // SETH, CC_STATE: which packets have come
  kNack = 0xdd,              // NETH: a packet that was not taken
  kProbe = 0xde,             // PETH
};

struct OpcodeInfo {
  Opcode opcode;
  const char* name;
  bool is_write;      // takes a PSN, and has METH, RETH and payload
  bool has_imm;       // ImmDt behind RETH
  bool begins, ends;  // of a WRITE: its message's first packet, its last
};

inline constexpr OpcodeInfo kOpcodes[] = {
    // clang-format off
    //                                                    write imm begins ends
    {Opcode::kWriteFirst,       "MRC_WRITE_FIRST",        1,    0,  1,     0},
    {Opcode::kWriteMiddle,      "MRC_WRITE_MIDDLE",       1,    0,  0,     0},
    {Opcode::kWriteLast,        "MRC_WRITE_LAST",         1,    0,  0,     1},
    {Opcode::kWriteLastImm,     "MRC_WRITE_LAST_IMM",     1,    1,  0,     1},
    {Opcode::kWriteOnly,        "MRC_WRITE",              1,    0,  1,     1},
    {Opcode::kWriteOnlyImm,     "MRC_WRITE_IMM",          1,    1,  1,     1},
    {Opcode::kAck,              "MRC_ACK",                0,    0,  0,     0},
    {Opcode::kEndpointRequest,  "MRC_ENDPOINT_REQUEST",   0,    0,  0,     0},
    {Opcode::kEndpointResponse, "MRC_ENDPOINT_RESPONSE",  0,    0,  0,     0},
    {Opcode::kSack,             "MRC_SACK",               0,    0,  0,     0},
    {Opcode::kNack,             "MRC_NACK",               0,    0,  0,     0},
    {Opcode::kProbe,            "MRC_PROBE",              0,    0,  0,     0},
    // clang-format on
};

// What is known of an opcode; nullptr for one that MRC does not have.
constexpr const OpcodeInfo* find_opcode(Opcode opcode) {
  for (const OpcodeInfo& info : kOpcodes)
    if (info.opcode == opcode) return &info;
  return nullptr;
}

// Prints "MRC_SACK"; "unknown opcode" for values outside the enumeration.
const char* to_string(Opcode opcode);

}  // namespace hostnic::wire::mrc
