// SPDX-License-Identifier: BSD-3-Clause
// UDP header, 8 bytes (RFC 768). RoCEv2 sends checksum 0 over IPv4 and receivers ignore it: the
// ICRC covers what it would cover (InfiniBand annex A17.9.1).
#pragma once

#include <string>

#include "protocol/wire/bytes.h"

namespace hostnic::wire {

inline constexpr size_t kUdpBytes = 8;
inline constexpr uint16_t kRoceUdpPort = 4791;

namespace udp_offset {
inline constexpr size_t kSrcPort = 0;
inline constexpr size_t kDstPort = 2;
inline constexpr size_t kLength = 4;
inline constexpr size_t kChecksum = 6;
}  // namespace udp_offset

struct Udp {
  uint16_t src_port = 0;
  uint16_t dst_port = kRoceUdpPort;
  uint16_t length_bytes = 0;  // header included
  uint16_t checksum = 0;
  bool operator==(const Udp&) const = default;
};

class UdpView : public HeaderView<kUdpBytes> {
 public:
  using HeaderView::HeaderView;
  uint16_t src_port() const { return u16<udp_offset::kSrcPort>(); }
  uint16_t dst_port() const { return u16<udp_offset::kDstPort>(); }
  uint16_t length_bytes() const { return u16<udp_offset::kLength>(); }
  uint16_t checksum() const { return u16<udp_offset::kChecksum>(); }
  Udp read() const { return {src_port(), dst_port(), length_bytes(), checksum()}; }
};

inline void emit(const Udp& header, std::span<std::byte, kUdpBytes> out) {
  const HeaderWriter<kUdpBytes> writer(out);
  writer.u16<udp_offset::kSrcPort>(header.src_port);
  writer.u16<udp_offset::kDstPort>(header.dst_port);
  writer.u16<udp_offset::kLength>(header.length_bytes);
  writer.u16<udp_offset::kChecksum>(header.checksum);
}

std::string to_string(const Udp& header);

}  // namespace hostnic::wire
