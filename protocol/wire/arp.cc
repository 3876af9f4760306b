// SPDX-License-Identifier: BSD-3-Clause
#include "protocol/wire/arp.h"

namespace hostnic::wire {
namespace {
constexpr uint16_t kHardwareEthernet = 1;
constexpr uint8_t kMacBytes = 6;
constexpr uint8_t kIpv4AddressBytes = 4;
}  // namespace

bool ArpView::is_supported() const {
  const uint16_t op = operation();
  return u16<arp_offset::kHardwareType>() == kHardwareEthernet &&
         u16<arp_offset::kProtocolType>() == kEtherTypeIpv4 &&
         u8<arp_offset::kHardwareBytes>() == kMacBytes &&
         u8<arp_offset::kProtocolBytes>() == kIpv4AddressBytes &&
         (op == static_cast<uint16_t>(ArpOperation::kRequest) ||
          op == static_cast<uint16_t>(ArpOperation::kReply));
}

void emit(const Arp& arp, std::span<std::byte, kArpBytes> out) {
  const HeaderWriter<kArpBytes> writer(out);
  writer.u16<arp_offset::kHardwareType>(kHardwareEthernet);
  writer.u16<arp_offset::kProtocolType>(kEtherTypeIpv4);
  writer.u8<arp_offset::kHardwareBytes>(kMacBytes);
  writer.u8<arp_offset::kProtocolBytes>(kIpv4AddressBytes);
  writer.u16<arp_offset::kOperation>(static_cast<uint16_t>(arp.operation));
  std::memcpy(writer.field<arp_offset::kSenderMac, kMacBytes>(), arp.sender_mac.data(), kMacBytes);
  writer.u32<arp_offset::kSenderIp>(raw(arp.sender_ip));
  std::memcpy(writer.field<arp_offset::kTargetMac, kMacBytes>(), arp.target_mac.data(), kMacBytes);
  writer.u32<arp_offset::kTargetIp>(raw(arp.target_ip));
}

std::optional<Arp> parse_arp(std::span<const std::byte> frame) {
  if (frame.size() < kArpFrameBytes) return std::nullopt;
  if (EthernetView(frame.first<kEthernetBytes>()).ether_type() != kEtherTypeArp) {
    return std::nullopt;
  }
  const ArpView view(frame.subspan<kEthernetBytes, kArpBytes>());
  if (!view.is_supported()) return std::nullopt;
  return view.read();
}

size_t build_arp(const Arp& arp, std::span<std::byte> out) {
  if (out.size() < kArpFrameBytes) return 0;
  const MacAddress dst = arp.operation == ArpOperation::kRequest ? kBroadcastMac : arp.target_mac;
  emit(Ethernet{dst, arp.sender_mac, kEtherTypeArp}, out.first<kEthernetBytes>());
  emit(arp, out.subspan<kEthernetBytes, kArpBytes>());
  return kArpFrameBytes;
}

Arp make_arp_request(MacAddress own_mac, Ipv4Address own_ip, Ipv4Address target_ip) {
  return {ArpOperation::kRequest, own_mac, own_ip, MacAddress{}, target_ip};
}

Arp make_arp_reply(MacAddress own_mac, const Arp& request) {
  return {ArpOperation::kReply, own_mac, request.target_ip, request.sender_mac, request.sender_ip};
}

}  // namespace hostnic::wire
