// SPDX-License-Identifier: BSD-3-Clause
// Immediate data, 4 bytes (InfiniBand 9.3.6). Verbs hand it over in network order and
// uninterpreted, so it is copied, never swapped.
#pragma once

#include <string>

#include "protocol/wire/bytes.h"

namespace hostnic::wire {

inline constexpr size_t kImmDtBytes = 4;

struct ImmDt {
  uint32_t imm_data = 0;  // the application's four bytes, in memory order
  bool operator==(const ImmDt&) const = default;
};

class ImmDtView : public HeaderView<kImmDtBytes> {
 public:
  using HeaderView::HeaderView;
  uint32_t imm_data() const {
    uint32_t value;
    std::memcpy(&value, field<0, kImmDtBytes>(), sizeof value);
    return value;
  }
  ImmDt read() const { return {imm_data()}; }
};

inline void emit(const ImmDt& header, std::span<std::byte, kImmDtBytes> out) {
  std::memcpy(out.data(), &header.imm_data, sizeof header.imm_data);
}

std::string to_string(const ImmDt& header);

}  // namespace hostnic::wire
