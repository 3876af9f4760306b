// SPDX-License-Identifier: BSD-3-Clause
// The standard's opcodes that this NIC speaks: those of UC and UD.
#pragma once

#include "protocol/wire/opcode.h"

namespace hostnic::wire {

// The columns are OpcodeInfo's.
inline constexpr OpcodeInfo kRocev2Opcodes[] = {
    // clang-format off
    //                                            req resp neth reth imm recv read rsp atom ack payload
    //                                                         service            deth cont more
    {Opcode::kUcSendFirst,    "UC_SEND_FIRST",     1,  0,   0,   0,   0,  0,   0,   0,  0,   0,   1,
                                                               Service::kUnreliable, 0,  0,  1},
    {Opcode::kUcSendMiddle,   "UC_SEND_MIDDLE",    1,  0,   0,   0,   0,  0,   0,   0,  0,   0,   1,
                                                               Service::kUnreliable, 0,  1,  1},
    {Opcode::kUcSendLast,     "UC_SEND_LAST",      1,  0,   0,   0,   0,  0,   0,   0,  0,   0,   1,
                                                               Service::kUnreliable, 0,  1,  0},
    {Opcode::kUcSendLastImm,  "UC_SEND_LAST_IMM",  1,  0,   0,   0,   1,  0,   0,   0,  0,   0,   1,
                                                               Service::kUnreliable, 0,  1,  0},
    {Opcode::kUcSendOnly,     "UC_SEND",           1,  0,   0,   0,   0,  0,   0,   0,  0,   0,   1,
                                                               Service::kUnreliable, 0,  0,  0},
    {Opcode::kUcSendOnlyImm,  "UC_SEND_IMM",       1,  0,   0,   0,   1,  0,   0,   0,  0,   0,   1,
                                                               Service::kUnreliable, 0,  0,  0},
    {Opcode::kUcWriteFirst,   "UC_WRITE_FIRST",    1,  0,   0,   1,   0,  0,   0,   0,  0,   0,   1,
                                                               Service::kUnreliable, 0,  0,  1},
    {Opcode::kUcWriteMiddle,  "UC_WRITE_MIDDLE",   1,  0,   0,   0,   0,  0,   0,   0,  0,   0,   1,
                                                               Service::kUnreliable, 0,  1,  1},
    {Opcode::kUcWriteLast,    "UC_WRITE_LAST",     1,  0,   0,   0,   0,  0,   0,   0,  0,   0,   1,
                                                               Service::kUnreliable, 0,  1,  0},
    {Opcode::kUcWriteLastImm, "UC_WRITE_LAST_IMM", 1,  0,   0,   0,   1,  0,   0,   0,  0,   0,   1,
                                                               Service::kUnreliable, 0,  1,  0},
    {Opcode::kUcWriteOnly,    "UC_WRITE",          1,  0,   0,   1,   0,  0,   0,   0,  0,   0,   1,
                                                               Service::kUnreliable, 0,  0,  0},
    {Opcode::kUcWriteOnlyImm, "UC_WRITE_IMM",      1,  0,   0,   1,   1,  0,   0,   0,  0,   0,   1,
                                                               Service::kUnreliable, 0,  0,  0},
    {Opcode::kUdSend,         "UD_SEND",           1,  0,   0,   0,   0,  0,   0,   0,  0,   0,   1,
                                                               Service::kDatagram,   1,  0,  0},
    {Opcode::kUdSendImm,      "UD_SEND_IMM",       1,  0,   0,   0,   1,  0,   0,   0,  0,   0,   1,
                                                               Service::kDatagram,   1,  0,  0},
    // clang-format on
};

}  // namespace hostnic::wire
