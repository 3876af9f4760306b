// SPDX-License-Identifier: BSD-3-Clause
// RDMA Extended Transport Header, 16 bytes (InfiniBand 9.3.3): virtual address 8, key 4, DMA
// length 4. What the fields mean for native opcodes is in the table of packet.h.
#pragma once

#include <string>

#include "protocol/types.h"
#include "protocol/wire/bytes.h"

namespace hostnic::wire {

inline constexpr size_t kRethBytes = 16;

namespace reth_offset {
inline constexpr size_t kVa = 0;
inline constexpr size_t kKey = 8;
inline constexpr size_t kLength = 12;
}  // namespace reth_offset

struct Reth {
  VirtualAddress va = 0;
  uint32_t key = 0;
  uint32_t length_bytes = 0;
  bool operator==(const Reth&) const = default;
};

class RethView : public HeaderView<kRethBytes> {
 public:
  using HeaderView::HeaderView;
  VirtualAddress va() const { return u64<reth_offset::kVa>(); }
  uint32_t key() const { return u32<reth_offset::kKey>(); }
  uint32_t length_bytes() const { return u32<reth_offset::kLength>(); }
  Reth read() const { return {va(), key(), length_bytes()}; }
};

inline void emit(const Reth& header, std::span<std::byte, kRethBytes> out) {
  const HeaderWriter<kRethBytes> writer(out);
  writer.u64<reth_offset::kVa>(header.va);
  writer.u32<reth_offset::kKey>(header.key);
  writer.u32<reth_offset::kLength>(header.length_bytes);
}

std::string to_string(const Reth& header);

}  // namespace hostnic::wire
