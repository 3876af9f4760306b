// SPDX-License-Identifier: BSD-3-Clause
// The standard's opcodes: those of RC as the `roce` transport speaks it, UC and UD, and congestion
// notification.
#pragma once

#include "protocol/wire/opcode.h"

namespace hostnic::wire {

// The columns are OpcodeInfo's.
inline constexpr OpcodeInfo kRocev2Opcodes[] = {
    // clang-format off
    //                                            req resp neth reth imm recv read rsp atom ack payload
    //                                                         service            deth cont more ieth aeth atomic-ack
    {Opcode::kRcSendFirst,    "RC_SEND_FIRST",     1,  0,   0,   0,   0,  0,   0,   0,  0,   0,   1,
                                                               Service::kReliable,   0,  0,  1,   0,   0,   0},
    {Opcode::kRcSendMiddle,   "RC_SEND_MIDDLE",    1,  0,   0,   0,   0,  0,   0,   0,  0,   0,   1,
                                                               Service::kReliable,   0,  1,  1,   0,   0,   0},
    {Opcode::kRcSendLast,     "RC_SEND_LAST",      1,  0,   0,   0,   0,  0,   0,   0,  0,   0,   1,
                                                               Service::kReliable,   0,  1,  0,   0,   0,   0},
    {Opcode::kRcSendLastImm,  "RC_SEND_LAST_IMM",  1,  0,   0,   0,   1,  0,   0,   0,  0,   0,   1,
                                                               Service::kReliable,   0,  1,  0,   0,   0,   0},
    {Opcode::kRcSendOnly,     "RC_SEND",           1,  0,   0,   0,   0,  0,   0,   0,  0,   0,   1,
                                                               Service::kReliable,   0,  0,  0,   0,   0,   0},
    {Opcode::kRcSendOnlyImm,  "RC_SEND_IMM",       1,  0,   0,   0,   1,  0,   0,   0,  0,   0,   1,
                                                               Service::kReliable,   0,  0,  0,   0,   0,   0},
    {Opcode::kRcWriteFirst,   "RC_WRITE_FIRST",    1,  0,   0,   1,   0,  0,   0,   0,  0,   0,   1,
                                                               Service::kReliable,   0,  0,  1,   0,   0,   0},
    {Opcode::kRcWriteMiddle,  "RC_WRITE_MIDDLE",   1,  0,   0,   0,   0,  0,   0,   0,  0,   0,   1,
                                                               Service::kReliable,   0,  1,  1,   0,   0,   0},
    {Opcode::kRcWriteLast,    "RC_WRITE_LAST",     1,  0,   0,   0,   0,  0,   0,   0,  0,   0,   1,
                                                               Service::kReliable,   0,  1,  0,   0,   0,   0},
    {Opcode::kRcWriteLastImm, "RC_WRITE_LAST_IMM", 1,  0,   0,   0,   1,  0,   0,   0,  0,   0,   1,
                                                               Service::kReliable,   0,  1,  0,   0,   0,   0},
    {Opcode::kWriteOnly,      "RC_WRITE",          1,  0,   0,   1,   0,  0,   0,   0,  0,   0,   1,
                                                               Service::kReliable,   0,  0,  0,   0,   0,   0},
    {Opcode::kRcWriteOnlyImm, "RC_WRITE_IMM",      1,  0,   0,   1,   1,  0,   0,   0,  0,   0,   1,
                                                               Service::kReliable,   0,  0,  0,   0,   0,   0},
    {Opcode::kRcReadRequest,  "RC_READ",           1,  0,   0,   1,   0,  0,   0,   0,  0,   0,   0,
                                                               Service::kReliable,   0,  0,  0,   0,   0,   0},
    {Opcode::kRcReadFirst,    "RC_READ_FIRST",     0,  1,   0,   0,   0,  0,   0,   0,  0,   0,   1,
                                                               Service::kReliable,   0,  0,  1,   0,   1,   0},
    {Opcode::kRcReadMiddle,   "RC_READ_MIDDLE",    0,  1,   0,   0,   0,  0,   0,   0,  0,   0,   1,
                                                               Service::kReliable,   0,  1,  1,   0,   0,   0},
    {Opcode::kRcReadLast,     "RC_READ_LAST",      0,  1,   0,   0,   0,  0,   0,   0,  0,   0,   1,
                                                               Service::kReliable,   0,  1,  0,   0,   1,   0},
    {Opcode::kRcReadOnly,     "RC_READ_ONLY",      0,  1,   0,   0,   0,  0,   0,   0,  0,   0,   1,
                                                               Service::kReliable,   0,  0,  0,   0,   1,   0},
    {Opcode::kRcAck,          "RC_ACK",            0,  0,   0,   0,   0,  0,   0,   0,  0,   0,   0,
                                                               Service::kReliable,   0,  0,  0,   0,   1,   0},
    {Opcode::kRcAtomicAck,    "RC_ATOMIC_ACK",     0,  1,   0,   0,   0,  0,   0,   0,  0,   0,   0,
                                                               Service::kReliable,   0,  0,  0,   0,   1,   1},
    {Opcode::kRcCompareSwap,  "RC_COMPARE_SWAP",   1,  0,   0,   0,   0,  0,   0,   0,  1,   0,   0,
                                                               Service::kReliable,   0,  0,  0,   0,   0,   0},
    {Opcode::kRcFetchAdd,     "RC_FETCH_ADD",      1,  0,   0,   0,   0,  0,   0,   0,  1,   0,   0,
                                                               Service::kReliable,   0,  0,  0,   0,   0,   0},
    {Opcode::kRcSendLastInv,  "RC_SEND_LAST_INV",  1,  0,   0,   0,   0,  0,   0,   0,  0,   0,   1,
                                                               Service::kReliable,   0,  1,  0,   1,   0,   0},
    {Opcode::kRcSendOnlyInv,  "RC_SEND_INV",       1,  0,   0,   0,   0,  0,   0,   0,  0,   0,   1,
                                                               Service::kReliable,   0,  0,  0,   1,   0,   0},
    {Opcode::kCnp,            "CNP",               0,  0,   0,   0,   0,  0,   0,   0,  0,   0,   1,
                                                               Service::kReliable,   0,  0,  0,   0,   0,   0},
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
