// SPDX-License-Identifier: BSD-3-Clause
// Invalidate Extended Transport Header, 4 bytes (InfiniBand 9.3.7): the key of the memory window
// that a SEND invalidates at its receiver.
#pragma once

#include <string>

#include "protocol/wire/bytes.h"

namespace hostnic::wire {

inline constexpr size_t kIethBytes = 4;

struct Ieth {
  uint32_t rkey = 0;
  bool operator==(const Ieth&) const = default;
};

class IethView : public HeaderView<kIethBytes> {
 public:
  using HeaderView::HeaderView;
  uint32_t rkey() const { return u32<0>(); }
  Ieth read() const { return {rkey()}; }
};

inline void emit(const Ieth& header, std::span<std::byte, kIethBytes> out) {
  const HeaderWriter<kIethBytes> writer(out);
  writer.u32<0>(header.rkey);
}

std::string to_string(const Ieth& header);

}  // namespace hostnic::wire
