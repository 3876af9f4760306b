// SPDX-License-Identifier: BSD-3-Clause
// ARP for IPv4 over Ethernet (RFC 826), 28 bytes behind the Ethernet header. The NIC answers for
// its own address on real ports; the in-process wire needs none. Pure functions, any thread.
#pragma once

#include <string>

#include "protocol/types.h"
#include "protocol/wire/ethernet.h"

namespace hostnic::wire {

inline constexpr size_t kArpBytes = 28;
inline constexpr size_t kArpFrameBytes = kEthernetBytes + kArpBytes;

enum class ArpOperation : uint16_t { kRequest = 1, kReply = 2 };

namespace arp_offset {
inline constexpr size_t kHardwareType = 0;
inline constexpr size_t kProtocolType = 2;
inline constexpr size_t kHardwareBytes = 4;
inline constexpr size_t kProtocolBytes = 5;
inline constexpr size_t kOperation = 6;
inline constexpr size_t kSenderMac = 8;
inline constexpr size_t kSenderIp = 14;
inline constexpr size_t kTargetMac = 18;
inline constexpr size_t kTargetIp = 24;
}  // namespace arp_offset

struct Arp {
  ArpOperation operation = ArpOperation::kRequest;
  MacAddress sender_mac{};
  Ipv4Address sender_ip{};
  MacAddress target_mac{};  // zero in requests
  Ipv4Address target_ip{};
  bool operator==(const Arp&) const = default;
};

class ArpView : public HeaderView<kArpBytes> {
 public:
  using HeaderView::HeaderView;
  // Whether the message is about Ethernet and IPv4, and a request or reply. The other fields mean
  // nothing if not.
  bool is_supported() const;
  uint16_t operation() const { return u16<arp_offset::kOperation>(); }
  MacAddress sender_mac() const { return load_mac(field<arp_offset::kSenderMac, 6>()); }
  Ipv4Address sender_ip() const { return Ipv4Address{u32<arp_offset::kSenderIp>()}; }
  MacAddress target_mac() const { return load_mac(field<arp_offset::kTargetMac, 6>()); }
  Ipv4Address target_ip() const { return Ipv4Address{u32<arp_offset::kTargetIp>()}; }
  Arp read() const {
    return {ArpOperation{operation()}, sender_mac(), sender_ip(), target_mac(), target_ip()};
  }
};

void emit(const Arp& arp, std::span<std::byte, kArpBytes> out);

// Parses the ARP message in a whole Ethernet frame, trailing padding ignored. Returns nothing if
// the frame is too short, has another ethertype, or is ARP for anything but IPv4 over Ethernet.
std::optional<Arp> parse_arp(std::span<const std::byte> frame);

// Writes a whole frame: requests go to the broadcast address, replies to target_mac. `out` must
// have at least kArpFrameBytes, else nothing is written and 0 returned. Returns the bytes written,
// without the padding to kMinFrameBytes that real ports need.
size_t build_arp(const Arp& arp, std::span<std::byte> out);

// Makes the question "who has target_ip?".
Arp make_arp_request(MacAddress own_mac, Ipv4Address own_ip, Ipv4Address target_ip);
// Makes the answer to `request`, which asked for the owner's address (request.target_ip).
Arp make_arp_reply(MacAddress own_mac, const Arp& request);

// Prints "who-has 10.0.0.2 tell 10.0.0.1 (02:...)", or "10.0.0.2 is-at 02:..."
std::string to_string(const Arp& arp);

}  // namespace hostnic::wire
