// SPDX-License-Identifier: BSD-3-Clause
// The dialects that packets are in. What stands behind BTH, and in BTH's reserved bits, depends on
// the transport of the queue pair that BTH names: the same opcode may mean another packet on
// another one. So BTH is read first, then the queue pair says the dialect, then the rest is read.
// Pure, any thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "protocol/wire/aeth.h"
#include "protocol/wire/atomic_eth.h"
#include "protocol/wire/deth.h"
#include "protocol/wire/hostnic/headers.h"
#include "protocol/wire/hostnic/opcodes.h"
#include "protocol/wire/ieth.h"
#include "protocol/wire/immdt.h"
#include "protocol/wire/mrc/queue_pair_opcodes.h"
#include "protocol/wire/opcode.h"
#include "protocol/wire/reth.h"
#include "protocol/wire/rocev2/opcodes.h"

namespace hostnic::wire {

enum class Dialect : uint8_t {
  kHostnic,  // hostnic/: the native transport
  kRocev2,   // rocev2/: the standard's packets
  kMrc,      // mrc/: Multipath Reliable Connection
};
inline constexpr size_t kDialectCount = 3;

inline constexpr size_t kFirstMrcOpcode = std::size(kHostnicOpcodes) + std::size(kRocev2Opcodes);
inline constexpr size_t kOpcodeCount = kFirstMrcOpcode + std::size(kMrcOpcodes);
// The opcodes of all dialects.
inline constexpr auto kOpcodes = [] {
  std::array<OpcodeInfo, kOpcodeCount> all{};
  std::copy(std::begin(kHostnicOpcodes), std::end(kHostnicOpcodes), all.begin());
  std::copy(std::begin(kRocev2Opcodes), std::end(kRocev2Opcodes),
            all.begin() + std::size(kHostnicOpcodes));
  std::copy(std::begin(kMrcOpcodes), std::end(kMrcOpcodes), all.begin() + kFirstMrcOpcode);
  return all;
}();

namespace detail {
// The sums are made at compile time: parsing and building need them for each packet.
inline constexpr auto kExtensionBytes = [] {
  std::array<uint8_t, kOpcodeCount> bytes{};
  for (size_t i = 0; i < kOpcodeCount; ++i) {
    const OpcodeInfo& info = kOpcodes[i];
    bytes[i] = static_cast<uint8_t>(
        info.has_neth * kNethBytes + info.has_deth * kDethBytes + info.has_reth * kRethBytes +
        info.has_imm * kImmDtBytes + info.has_recv_eth * kRecvEthBytes +
        info.has_read_eth * kReadEthBytes + info.has_resp_eth * kRespEthBytes +
        info.has_atomic_eth * kAtomicEthBytes + info.has_ieth * kIethBytes +
        info.has_ack * (kAethBytes + kSackEthBytes) + info.has_aeth * kAethBytes +
        info.has_atomic_ack * kAtomicAckEthBytes);
  }
  return bytes;
}();

using OpcodeIndex = std::array<uint8_t, 256>;
// The index in kOpcodes by opcode; kOpcodeCount for an opcode that no row of [begin, end) has. Of
// kWriteOnly, which two dialects have, it is the native row.
constexpr OpcodeIndex index_of(size_t begin, size_t end) {
  OpcodeIndex index{};
  index.fill(kOpcodeCount);
  for (size_t i = end; i-- > begin;)
    index[static_cast<uint8_t>(kOpcodes[i].opcode)] = static_cast<uint8_t>(i);
  return index;
}
inline constexpr std::array<OpcodeIndex, kDialectCount> kIndexInDialect = {
    index_of(0, std::size(kHostnicOpcodes)), index_of(std::size(kHostnicOpcodes), kFirstMrcOpcode),
    index_of(kFirstMrcOpcode, kOpcodeCount)};
inline constexpr OpcodeIndex kIndex = index_of(0, kOpcodeCount);

// The service by opcode, for opcodes that this NIC speaks: received packets are asked for it one by
// one.
inline constexpr auto kServices = [] {
  std::array<Service, 256> services{};
  for (const OpcodeInfo& info : kOpcodes)
    services[static_cast<uint8_t>(info.opcode)] = info.service;
  return services;
}();

constexpr const OpcodeInfo* row(size_t index) {
  return index < kOpcodeCount ? &kOpcodes[index] : nullptr;
}
}  // namespace detail

// The number of bytes between BTH and payload, without an ACK's bitmap. `info` is an element of
// kOpcodes. MRC's are not in here.
constexpr size_t extension_bytes(const OpcodeInfo& info) {
  return detail::kExtensionBytes[static_cast<size_t>(&info - kOpcodes.data())];
}

// What is known of an opcode in a dialect; nullptr for one that is not of it.
constexpr const OpcodeInfo* find_opcode(Dialect dialect, Opcode opcode) {
  return detail::row(
      detail::kIndexInDialect[static_cast<size_t>(dialect)][static_cast<uint8_t>(opcode)]);
}
// As above, in whichever dialect has the opcode: for who does not know the queue pair.
constexpr const OpcodeInfo* find_opcode(Opcode opcode) {
  return detail::row(detail::kIndex[static_cast<uint8_t>(opcode)]);
}
// The dialect that has an opcode; the native one for an opcode of none.
constexpr Dialect dialect_of(Opcode opcode) {
  const size_t index = detail::kIndex[static_cast<uint8_t>(opcode)];
  if (index < std::size(kHostnicOpcodes) || index >= kOpcodeCount) return Dialect::kHostnic;
  return index < kFirstMrcOpcode ? Dialect::kRocev2 : Dialect::kMrc;
}

// What is known of an opcode, which must be one of the enumerators.
constexpr const OpcodeInfo& opcode_info(Opcode opcode) { return *find_opcode(opcode); }
constexpr bool is_request(Opcode opcode) { return opcode_info(opcode).is_request; }
constexpr bool is_response(Opcode opcode) { return opcode_info(opcode).is_response; }
constexpr Service service_of(Opcode opcode) {
  return detail::kServices[static_cast<uint8_t>(opcode)];
}

namespace detail {
// Each opcode has one row, or rows of two dialects that say the same.
constexpr bool each_opcode_means_one_thing() {
  for (const OpcodeInfo& info : kOpcodes) {
    const OpcodeInfo& found = *find_opcode(info.opcode);
    if (&found != &info && (info.opcode != Opcode::kWriteOnly || found.service != info.service ||
                            extension_bytes(found) != extension_bytes(info)))
      return false;
  }
  return true;
}
}  // namespace detail
// What the functions without a dialect rely on.
static_assert(detail::each_opcode_means_one_thing());
static_assert(extension_bytes(opcode_info(Opcode::kWriteOnly)) == 16);
static_assert(extension_bytes(opcode_info(Opcode::kUcWriteMiddle)) == 0);
static_assert(extension_bytes(opcode_info(Opcode::kUcWriteOnlyImm)) == 20);
static_assert(extension_bytes(opcode_info(Opcode::kUdSendImm)) == 12);
static_assert(extension_bytes(opcode_info(Opcode::kWriteImm)) == 32);
static_assert(extension_bytes(opcode_info(Opcode::kReadRequest)) == 36);
static_assert(extension_bytes(opcode_info(Opcode::kCompareSwap)) == 48);
static_assert(extension_bytes(opcode_info(Opcode::kAck)) == 28);
static_assert(extension_bytes(opcode_info(Opcode::kSendInv)) == 24);
static_assert(extension_bytes(opcode_info(Opcode::kRcAck)) == 4);
static_assert(extension_bytes(opcode_info(Opcode::kRcAtomicAck)) == 12);
static_assert(extension_bytes(opcode_info(Opcode::kRcCompareSwap)) == 28);

}  // namespace hostnic::wire
