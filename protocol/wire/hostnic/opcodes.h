// SPDX-License-Identifier: BSD-3-Clause
// The opcodes of the native transport: RDMA WRITE Only as the standard has it, and the rest in the
// manufacturer's range.
#pragma once

#include "protocol/wire/opcode.h"

namespace hostnic::wire {

// The columns are OpcodeInfo's.
inline constexpr OpcodeInfo kHostnicOpcodes[] = {
    // clang-format off
    //                                            req resp neth reth imm recv read rsp atom ack payload
    {Opcode::kWriteOnly,      "WRITE",             1,  0,   0,   1,   0,  0,   0,   0,  0,   0,   1},
    {Opcode::kWriteImm,       "WRITE_IMM",         1,  0,   1,   1,   1,  1,   0,   0,  0,   0,   1},
    {Opcode::kSend,           "SEND",              1,  0,   1,   1,   0,  0,   0,   0,  0,   0,   1},
    {Opcode::kSendImm,        "SEND_IMM",          1,  0,   1,   1,   1,  0,   0,   0,  0,   0,   1},
    {Opcode::kReadRequest,    "READ",              1,  0,   1,   1,   0,  0,   1,   0,  0,   0,   0},
    {Opcode::kReadResponse,   "READ_RESPONSE",     0,  1,   1,   1,   0,  0,   0,   1,  0,   0,   1},
    {Opcode::kCompareSwap,    "COMPARE_SWAP",      1,  0,   1,   0,   0,  0,   1,   0,  1,   0,   0},
    {Opcode::kFetchAdd,       "FETCH_ADD",         1,  0,   1,   0,   0,  0,   1,   0,  1,   0,   0},
    {Opcode::kAtomicResponse, "ATOMIC_RESPONSE",   0,  1,   1,   1,   0,  0,   0,   1,  0,   0,   1},
    {Opcode::kAck,            "ACK",               0,  0,   1,   0,   0,  0,   0,   0,  0,   1,   0},
    //                                                         service            deth cont more ieth
    {Opcode::kSendInv,        "SEND_INV",          1,  0,   1,   1,   0,  0,   0,   0,  0,   0,   1,
                                                               Service::kReliable,   0,  0,  0,   1},
    // clang-format on
};

}  // namespace hostnic::wire
