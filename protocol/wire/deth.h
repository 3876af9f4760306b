// SPDX-License-Identifier: BSD-3-Clause
// Datagram Extended Transport Header, 8 bytes (InfiniBand 9.3.2): Q_Key 32, reserved 8, source QPN
// 24. Carried by every UD packet.
#pragma once

#include <string>

#include "protocol/types.h"
#include "protocol/wire/bytes.h"

namespace hostnic::wire {

inline constexpr size_t kDethBytes = 8;

namespace deth_offset {
inline constexpr size_t kQkey = 0;
inline constexpr size_t kReserved = 4;
inline constexpr size_t kSrcQp = 5;
}  // namespace deth_offset

struct Deth {
  uint32_t qkey = 0;
  Qpn src_qpn{};
  bool operator==(const Deth&) const = default;
};

class DethView : public HeaderView<kDethBytes> {
 public:
  using HeaderView::HeaderView;
  uint32_t qkey() const { return u32<deth_offset::kQkey>(); }
  Qpn src_qpn() const { return Qpn{u24<deth_offset::kSrcQp>()}; }
  Deth read() const { return {qkey(), src_qpn()}; }
};

// The reserved byte is sent 0.
inline void emit(const Deth& header, std::span<std::byte, kDethBytes> out) {
  const HeaderWriter<kDethBytes> writer(out);
  writer.u32<deth_offset::kQkey>(header.qkey);
  writer.u32<deth_offset::kReserved>(raw(header.src_qpn) & 0xffffff);
}

std::string to_string(const Deth& header);

}  // namespace hostnic::wire
