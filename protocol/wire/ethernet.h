// SPDX-License-Identifier: BSD-3-Clause
// Ethernet II header, 14 bytes: destination 6, source 6, ethertype 2. No VLAN tags.
#pragma once

#include <array>
#include <string>

#include "protocol/wire/bytes.h"

namespace hostnic::wire {

using MacAddress = std::array<uint8_t, 6>;
inline constexpr MacAddress kBroadcastMac = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

inline constexpr size_t kEthernetBytes = 14;
inline constexpr size_t kMinFrameBytes =
    60;  // without FCS; shorter frames are padded on real ports
inline constexpr uint16_t kEtherTypeIpv4 = 0x0800;
inline constexpr uint16_t kEtherTypeArp = 0x0806;

// Loads a MAC address from six bytes of a header.
inline MacAddress load_mac(const std::byte* bytes) {
  MacAddress value;
  std::memcpy(value.data(), bytes, value.size());
  return value;
}

namespace ethernet_offset {
inline constexpr size_t kDst = 0;
inline constexpr size_t kSrc = 6;
inline constexpr size_t kEtherType = 12;
}  // namespace ethernet_offset

struct Ethernet {
  MacAddress dst{};
  MacAddress src{};
  uint16_t ether_type = kEtherTypeIpv4;
  bool operator==(const Ethernet&) const = default;
};

class EthernetView : public HeaderView<kEthernetBytes> {
 public:
  using HeaderView::HeaderView;
  MacAddress dst() const { return load_mac(field<ethernet_offset::kDst, 6>()); }
  MacAddress src() const { return load_mac(field<ethernet_offset::kSrc, 6>()); }
  uint16_t ether_type() const { return u16<ethernet_offset::kEtherType>(); }
  Ethernet read() const { return {dst(), src(), ether_type()}; }
};

inline void emit(const Ethernet& header, std::span<std::byte, kEthernetBytes> out) {
  const HeaderWriter<kEthernetBytes> writer(out);
  std::memcpy(writer.field<ethernet_offset::kDst, 6>(), header.dst.data(), 6);
  std::memcpy(writer.field<ethernet_offset::kSrc, 6>(), header.src.data(), 6);
  writer.u16<ethernet_offset::kEtherType>(header.ether_type);
}

// Prints "02:00:00:00:00:01".
std::string to_string(const MacAddress& mac);
std::string to_string(const Ethernet& header);

}  // namespace hostnic::wire
