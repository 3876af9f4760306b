// SPDX-License-Identifier: BSD-3-Clause
// The opcodes this NIC speaks, and what there is to know of one.
#pragma once

#include <cstdint>

namespace hostnic::wire {

// kWriteOnly is the standard's RC RDMA WRITE Only, which both dialects of RC have; kRc, UC and UD
// are the standard's throughout; 0xc0 and up is its manufacturer's range (InfiniBand 9.2.1), of
// which 0xc6 to 0xcb, 0xd1, 0xd8, 0xd9 and 0xdc to 0xde are those of MRC (mrc/opcodes.h); those
// that queue pairs take are here, too.
enum class Opcode : uint8_t {
  kRcSendFirst = 0x00,
  kRcSendMiddle,
  kRcSendLast,
  kRcSendLastImm,
  kRcSendOnly,
  kRcSendOnlyImm,
  kRcWriteFirst,
  kRcWriteMiddle,
  kRcWriteLast,
  kRcWriteLastImm,
  kWriteOnly,
  kRcWriteOnlyImm,
  kRcReadRequest,
  kRcReadFirst,
  kRcReadMiddle,
  kRcReadLast,
  kRcReadOnly,
  kRcAck,
  kRcAtomicAck,
  kRcCompareSwap,
  kRcFetchAdd,
  kRcSendLastInv = 0x16,
  kRcSendOnlyInv,
  kUcSendFirst = 0x20,
  kUcSendMiddle,
  kUcSendLast,
  kUcSendLastImm,
  kUcSendOnly,
  kUcSendOnlyImm,
  kUcWriteFirst,
  kUcWriteMiddle,
  kUcWriteLast,
  kUcWriteLastImm,
  kUcWriteOnly,
  kUcWriteOnlyImm,
  kUdSend = 0x64,
  kUdSendImm = 0x65,
  kCnp = 0x81,  // congestion notification (RoCEv2 annex, A17.9.3)
  kWriteImm = 0xc0,
  kSend = 0xc1,
  kSendImm = 0xc2,
  kReadRequest = 0xc3,
  kReadResponse = 0xc4,
  kCompareSwap = 0xc5,
  kMrcWriteFirst = 0xc6,
  kMrcWriteMiddle,
  kMrcWriteLast,
  kMrcWriteLastImm,
  kMrcWriteOnly,
  kMrcWriteOnlyImm,
  kMrcAck = 0xd1,
  kMrcEndpointRequest = 0xd8,
  kMrcEndpointResponse,
  kMrcSack = 0xdc,
  kMrcNack,
  kMrcProbe,
  kFetchAdd = 0xe6,
  kAtomicResponse = 0xe7,
  kAck = 0xe8,
  kSendInv = 0xe9,
};

// The service that a queue pair must have to take part.
enum class Service : uint8_t { kReliable, kUnreliable, kDatagram };

struct OpcodeInfo {
  Opcode opcode;
  const char* name;
  bool is_request;   // numbered in the request PSN space
  bool is_response;  // numbered in the response PSN space; an ACK is in neither
  bool has_neth;
  bool has_reth;
  bool has_imm;
  bool has_recv_eth;
  bool has_read_eth;
  bool has_resp_eth;
  bool has_atomic_eth;
  bool has_ack;  // the native ACK's: AETH, SackETH and the bitmap, whose size is not in
                 // extension_bytes()
  bool has_payload;
  // The services other than kReliable have the standard's headers only, BTH's reserved bits are 0,
  // and the opcode says where in its message the packet belongs.
  Service service = Service::kReliable;
  bool has_deth = false;
  bool cont = false, more = false;  // as Packet's
  bool has_ieth = false;
  bool has_aeth = false, has_atomic_ack = false;  // the standard's answers
};

// Prints "SEND_IMM"; "unknown opcode" for values outside the enumeration.
const char* to_string(Opcode opcode);

}  // namespace hostnic::wire
