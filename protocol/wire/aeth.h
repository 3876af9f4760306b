// SPDX-License-Identifier: BSD-3-Clause
// ACK Extended Transport Header, 4 bytes (InfiniBand 9.3.4, 9.7.5.2.1): syndrome 8, MSN 24.
// Syndrome: bit 7 reserved; bits 6..5 select ACK, RNR NAK or NAK; bits 4..0 the RNR timer or NAK
// code.
#pragma once

#include <string>

#include "protocol/wire/bytes.h"

namespace hostnic::wire {

inline constexpr size_t kAethBytes = 4;

enum class AckKind : uint8_t { kAck = 0, kRnrNak = 1, kNak = 3 };
enum class NakCode : uint8_t {
  kPsnSequence = 0,
  kInvalidRequest = 1,
  kRemoteAccess = 2,
  kRemoteOperational = 3
};

namespace aeth_offset {
inline constexpr size_t kSyndrome = 0;
inline constexpr size_t kMsn = 1;
}  // namespace aeth_offset

struct Aeth {
  AckKind kind = AckKind::kAck;
  uint8_t code = 0;  // NAK code or RNR timer code, 5 bits
  uint32_t msn = 0;  // 24 bits
  bool operator==(const Aeth&) const = default;
};

class AethView : public HeaderView<kAethBytes> {
 public:
  using HeaderView::HeaderView;
  // The kind may be 2, which the specification reserves: parse() rejects it.
  AckKind kind() const {
    return AckKind{static_cast<uint8_t>(u8<aeth_offset::kSyndrome>() >> 5 & 3)};
  }
  uint8_t code() const { return u8<aeth_offset::kSyndrome>() & 0x1f; }
  uint32_t msn() const { return u24<aeth_offset::kMsn>(); }
  Aeth read() const { return {kind(), code(), msn()}; }
};

inline void emit(const Aeth& header, std::span<std::byte, kAethBytes> out) {
  const uint32_t syndrome = (static_cast<uint32_t>(header.kind) & 3) << 5 | (header.code & 0x1fu);
  HeaderWriter<kAethBytes>(out).u32<0>(syndrome << 24 | (header.msn & 0xffffff));
}

std::string to_string(const Aeth& header);

}  // namespace hostnic::wire
