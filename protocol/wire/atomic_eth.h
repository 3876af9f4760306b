// SPDX-License-Identifier: BSD-3-Clause
// Atomic Extended Transport Header, 28 bytes (InfiniBand 9.3.5): virtual address 8, R_Key 4, swap
// or add operand 8, compare operand 8; and the one of its answer, 8 bytes (9.3.5.3): what memory
// contained before.
#pragma once

#include <string>

#include "protocol/types.h"
#include "protocol/wire/bytes.h"

namespace hostnic::wire {

inline constexpr size_t kAtomicEthBytes = 28;
inline constexpr size_t kAtomicAckEthBytes = 8;
inline constexpr size_t kAtomicOperandBytes = 8;  // all atomics work on 64 bits

namespace atomic_eth_offset {
inline constexpr size_t kVa = 0;
inline constexpr size_t kRkey = 8;
inline constexpr size_t kSwapOrAdd = 12;
inline constexpr size_t kCompare = 20;
}  // namespace atomic_eth_offset

struct AtomicEth {
  VirtualAddress va = 0;
  uint32_t rkey = 0;
  uint64_t swap_or_add = 0;
  uint64_t compare = 0;  // not used by fetch and add
  bool operator==(const AtomicEth&) const = default;
};

class AtomicEthView : public HeaderView<kAtomicEthBytes> {
 public:
  using HeaderView::HeaderView;
  VirtualAddress va() const { return u64<atomic_eth_offset::kVa>(); }
  uint32_t rkey() const { return u32<atomic_eth_offset::kRkey>(); }
  uint64_t swap_or_add() const { return u64<atomic_eth_offset::kSwapOrAdd>(); }
  uint64_t compare() const { return u64<atomic_eth_offset::kCompare>(); }
  AtomicEth read() const { return {va(), rkey(), swap_or_add(), compare()}; }
};

inline void emit(const AtomicEth& header, std::span<std::byte, kAtomicEthBytes> out) {
  const HeaderWriter<kAtomicEthBytes> writer(out);
  writer.u64<atomic_eth_offset::kVa>(header.va);
  writer.u32<atomic_eth_offset::kRkey>(header.rkey);
  writer.u64<atomic_eth_offset::kSwapOrAdd>(header.swap_or_add);
  writer.u64<atomic_eth_offset::kCompare>(header.compare);
}

struct AtomicAckEth {
  uint64_t before = 0;
  bool operator==(const AtomicAckEth&) const = default;
};

class AtomicAckEthView : public HeaderView<kAtomicAckEthBytes> {
 public:
  using HeaderView::HeaderView;
  uint64_t before() const { return u64<0>(); }
};

inline void emit(const AtomicAckEth& header, std::span<std::byte, kAtomicAckEthBytes> out) {
  HeaderWriter<kAtomicAckEthBytes>(out).u64<0>(header.before);
}

std::string to_string(const AtomicEth& header);

}  // namespace hostnic::wire
