// SPDX-License-Identifier: BSD-3-Clause
// The opcodes of MRC that a NIC takes, for all that knows packets of several dialects. What is
// behind BTH only mrc/packet.h reads and writes: of the columns that say so, these are empty.
#pragma once

#include "protocol/wire/opcode.h"

namespace hostnic::wire {

// The columns are OpcodeInfo's.
inline constexpr OpcodeInfo kMrcOpcodes[] = {
    // clang-format off
    //                                              req resp neth reth imm recv read rsp atom ack payload
    //                                                         service            deth cont more
    {Opcode::kMrcWriteFirst,   "MRC_WRITE_FIRST",    1,  0,   0,   0,   0,  0,   0,   0,  0,   0,   1,
                                                               Service::kReliable,   0,  0,  1},
    {Opcode::kMrcWriteMiddle,  "MRC_WRITE_MIDDLE",   1,  0,   0,   0,   0,  0,   0,   0,  0,   0,   1,
                                                               Service::kReliable,   0,  1,  1},
    {Opcode::kMrcWriteLast,    "MRC_WRITE_LAST",     1,  0,   0,   0,   0,  0,   0,   0,  0,   0,   1,
                                                               Service::kReliable,   0,  1,  0},
    {Opcode::kMrcWriteLastImm, "MRC_WRITE_LAST_IMM", 1,  0,   0,   0,   0,  0,   0,   0,  0,   0,   1,
                                                               Service::kReliable,   0,  1,  0},
    {Opcode::kMrcWriteOnly,    "MRC_WRITE",          1,  0,   0,   0,   0,  0,   0,   0,  0,   0,   1,
                                                               Service::kReliable,   0,  0,  0},
    {Opcode::kMrcWriteOnlyImm, "MRC_WRITE_IMM",      1,  0,   0,   0,   0,  0,   0,   0,  0,   0,   1,
                                                               Service::kReliable,   0,  0,  0},
    {Opcode::kMrcAck,          "MRC_ACK",            0,  0,   0,   0,   0,  0,   0,   0,  0,   0,   0},
    // To a node, and not to a queue pair.
    {Opcode::kMrcEndpointRequest,  "MRC_ENDPOINT_REQUEST",  0, 0, 0,  0,  0,  0,   0,   0,  0,   0,   0},
    {Opcode::kMrcEndpointResponse, "MRC_ENDPOINT_RESPONSE", 0, 0, 0,  0,  0,  0,   0,   0,  0,   0,   0},
    {Opcode::kMrcSack,         "MRC_SACK",           0,  0,   0,   0,   0,  0,   0,   0,  0,   0,   0},
    {Opcode::kMrcNack,         "MRC_NACK",           0,  0,   0,   0,   0,  0,   0,   0,  0,   0,   0},
    {Opcode::kMrcProbe,        "MRC_PROBE",          0,  0,   0,   0,   0,  0,   0,   0,  0,   0,   0},
    // clang-format on
};

}  // namespace hostnic::wire
