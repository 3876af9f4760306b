// SPDX-License-Identifier: BSD-3-Clause
// The opcodes this NIC speaks and which headers each one carries.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "protocol/wire/aeth.h"
#include "protocol/wire/atomic_eth.h"
#include "protocol/wire/deth.h"
#include "protocol/wire/ieth.h"
#include "protocol/wire/immdt.h"
#include "protocol/wire/native.h"
#include "protocol/wire/reth.h"

namespace hostnic::wire {

// kWriteOnly is the standard's RC RDMA WRITE Only; UC and UD are the standard's throughout; 0xc0
// and up is its manufacturer's range (InfiniBand 9.2.1).
enum class Opcode : uint8_t {
  kWriteOnly = 0x0a,
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
  kWriteImm = 0xc0,
  kSend = 0xc1,
  kSendImm = 0xc2,
  kReadRequest = 0xc3,
  kReadResponse = 0xc4,
  kCompareSwap = 0xc5,
  kFetchAdd = 0xc6,
  kAtomicResponse = 0xc7,
  kAck = 0xc8,
  kSendInv = 0xc9,
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
  bool has_ack;  // AETH, SackETH and the bitmap, whose size is not in extension_bytes()
  bool has_payload;
  // The services other than kReliable have the standard's headers only, BTH's reserved bits are 0,
  // and the opcode says where in its message the packet belongs.
  Service service = Service::kReliable;
  bool has_deth = false;
  bool cont = false, more = false;  // as Packet's
  bool has_ieth = false;
};

// The opcodes in the order of the enumeration. The columns are OpcodeInfo's.
inline constexpr OpcodeInfo kOpcodes[] = {
    // clang-format off
    //                                            req resp neth reth imm recv read rsp atom ack payload
    {Opcode::kWriteOnly,      "WRITE",             1,  0,   0,   1,   0,  0,   0,   0,  0,   0,   1},
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
inline constexpr size_t kOpcodeCount = sizeof kOpcodes / sizeof kOpcodes[0];

namespace detail {
// The sums are made at compile time: parse() and build() need them for each packet.
inline constexpr auto kExtensionBytes = [] {
  std::array<uint8_t, kOpcodeCount> bytes{};
  for (size_t i = 0; i < kOpcodeCount; ++i) {
    const OpcodeInfo& info = kOpcodes[i];
    bytes[i] = static_cast<uint8_t>(
        info.has_neth * kNethBytes + info.has_deth * kDethBytes + info.has_reth * kRethBytes +
        info.has_imm * kImmDtBytes + info.has_recv_eth * kRecvEthBytes +
        info.has_read_eth * kReadEthBytes + info.has_resp_eth * kRespEthBytes +
        info.has_atomic_eth * kAtomicEthBytes + info.has_ieth * kIethBytes +
        info.has_ack * (kAethBytes + kSackEthBytes));
  }
  return bytes;
}();

// The index in kOpcodes by opcode; kOpcodeCount for an opcode that this NIC does not speak.
inline constexpr auto kOpcodeIndex = [] {
  std::array<uint8_t, 256> index{};
  index.fill(kOpcodeCount);
  for (size_t i = 0; i < kOpcodeCount; ++i)
    index[static_cast<uint8_t>(kOpcodes[i].opcode)] = static_cast<uint8_t>(i);
  return index;
}();

// The service by opcode, for opcodes that this NIC speaks: received packets are asked for it one by
// one.
inline constexpr auto kServices = [] {
  std::array<Service, 256> services{};
  for (const OpcodeInfo& info : kOpcodes)
    services[static_cast<uint8_t>(info.opcode)] = info.service;
  return services;
}();
}  // namespace detail

// The number of bytes between BTH and payload, without an ACK's bitmap. `info` is an element of
// kOpcodes.
constexpr size_t extension_bytes(const OpcodeInfo& info) {
  return detail::kExtensionBytes[static_cast<size_t>(&info - kOpcodes)];
}

// What is known of an opcode; nullptr for one that this NIC does not speak.
constexpr const OpcodeInfo* find_opcode(uint8_t opcode) {
  const size_t index = detail::kOpcodeIndex[opcode];
  return index < kOpcodeCount ? &kOpcodes[index] : nullptr;
}
// What is known of an opcode, which must be one of the enumerators.
constexpr const OpcodeInfo& opcode_info(Opcode opcode) {
  return *find_opcode(static_cast<uint8_t>(opcode));
}
constexpr bool is_request(Opcode opcode) { return opcode_info(opcode).is_request; }
constexpr bool is_response(Opcode opcode) { return opcode_info(opcode).is_response; }
constexpr Service service_of(Opcode opcode) {
  return detail::kServices[static_cast<uint8_t>(opcode)];
}

// Prints "SEND_IMM"; "unknown opcode" for values outside the enumeration.
const char* to_string(Opcode opcode);

namespace detail {
constexpr bool opcode_table_is_sorted() {
  for (const OpcodeInfo& info : kOpcodes) {
    if (find_opcode(static_cast<uint8_t>(info.opcode)) != &info) return false;
  }
  return true;
}
}  // namespace detail
static_assert(detail::opcode_table_is_sorted());
static_assert(extension_bytes(opcode_info(Opcode::kWriteOnly)) == 16);
static_assert(extension_bytes(opcode_info(Opcode::kUcWriteMiddle)) == 0);
static_assert(extension_bytes(opcode_info(Opcode::kUcWriteOnlyImm)) == 20);
static_assert(extension_bytes(opcode_info(Opcode::kUdSendImm)) == 12);
static_assert(extension_bytes(opcode_info(Opcode::kWriteImm)) == 32);
static_assert(extension_bytes(opcode_info(Opcode::kReadRequest)) == 36);
static_assert(extension_bytes(opcode_info(Opcode::kCompareSwap)) == 48);
static_assert(extension_bytes(opcode_info(Opcode::kAck)) == 28);
static_assert(extension_bytes(opcode_info(Opcode::kSendInv)) == 24);

}  // namespace hostnic::wire
