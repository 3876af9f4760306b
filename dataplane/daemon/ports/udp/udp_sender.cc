// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/ports/udp/udp_sender.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/udp.h>
#include <string.h>

#include <algorithm>

#include "dataplane/daemon/ports/udp/udp_socket.h"
#include "dataplane/memory/sigbus.h"
#include "dataplane/nic/memory/copy.h"
#include "dataplane/nic/packet/packet.h"
#include "dataplane/nic/packet/packet_release.h"
#include "protocol/wire/icrc.h"
#include "protocol/wire/multicast.h"

namespace hostnic {
namespace {

constexpr size_t kUdpLength = wire::kIpv4Bytes + wire::udp_offset::kLength;
constexpr size_t kSrcPort = wire::kIpv4Bytes + wire::udp_offset::kSrcPort;

cmsghdr* put_control(msghdr& message, cmsghdr* at, int level, int type, const auto& value) {
  at->cmsg_level = level;
  at->cmsg_type = type;
  at->cmsg_len = CMSG_LEN(sizeof value);
  memcpy(CMSG_DATA(at), &value, sizeof value);
  return CMSG_NXTHDR(&message, at);
}

// Gives a packet without ICRC its pad and its PadCnt. Returns the bytes from the IPv4 header to the
// end of the pad.
size_t add_pad(std::byte* ip, size_t bytes) {
  // All headers are multiples of 4 bytes.
  const size_t pad = (4 - (bytes & 3)) & 3;
  memset(ip + bytes, 0, pad);
  ip[kBytesBeforeBth + wire::bth_offset::kFlags] |=
      static_cast<std::byte>(pad << wire::bth_bit::kPadShift);
  return bytes + pad;
}

// Writes the addresses and lengths that the kernel will put before the packet.
void set_headers(std::byte* ip, size_t covered_bytes) {
  const auto total = static_cast<uint16_t>(covered_bytes + wire::kIcrcBytes);
  wire::store_be16(ip + wire::ipv4_offset::kTotalLength, total);
  wire::store_be16(ip + kUdpLength, static_cast<uint16_t>(total - wire::kIpv4Bytes));
  // A tag is in the source port; this port has one source port for all, and BTH carries the tag.
  // Packets of RC have one if they are the native transport's.
  std::byte* const bth = ip + kBytesBeforeBth;
  const wire::Opcode opcode{wire::load_u8(bth + wire::bth_offset::kOpcode)};
  if (wire::service_of(opcode) == wire::Service::kUnreliable ||
      wire::dialect_of(opcode) == wire::Dialect::kHostnic)
    wire::carry_flow_tag(wire::load_be16(ip + kSrcPort), bth);
  wire::store_be16(ip + kSrcPort, wire::kRoceUdpPort);
}

}  // namespace

UdpSender::UdpSender(bool segments, const AddressBook& book)
    : book_(book), segments_(segments), slots_(std::make_unique<PacketSlot[]>(kPackets)) {
  for (mmsghdr& message : messages_) message = {};
}

// Which own address packets with this source leave from. Nothing: it is no longer ours.
std::optional<uint32_t> UdpSender::origin_of(Ipv4Address source) const {
  for (uint32_t i = 0; i < origins_.size(); ++i)
    if (origins_[i].number == source) return i;
  return std::nullopt;
}

// The address that a destination has on the origin's network: groups have one of either family.
Gid UdpSender::on_wire(const UdpOrigin& origin, Ipv4Address destination) const {
  return origin.is_ipv6() && wire::is_multicast(destination) ? ipv6_group_of(destination)
                                                             : book_.address_of(destination);
}

// The ICRC of a staged packet, for the headers that the kernel will make. `number` is what Linux
// will put into its identification.
uint32_t UdpSender::icrc_on_wire(uint32_t index, uint16_t number) {
  const Staged& staged = staged_[index];
  const UdpOrigin& origin = origins_[staged.origin];
  std::byte* const ip = ip_of(index);
  if (!origin.is_ipv6()) {
    wire::store_be16(ip + wire::ipv4_offset::kIdentification, number);
    return icrc_of(ip, staged.covered_bytes);
  }
  const size_t udp_bytes = staged.covered_bytes - wire::kIpv4Bytes;
  std::byte* const ipv6 = slots_[index].data() + kIpv6Offset;
  emit(wire::Ipv6{.payload_bytes = static_cast<uint16_t>(udp_bytes + wire::kIcrcBytes),
                  .src = origin.address,
                  .dst = on_wire(origin, staged.destination)},
       std::span<std::byte, wire::kIpv6Bytes>(ipv6, wire::kIpv6Bytes));
  return icrc_of_ipv6(ipv6, wire::kIpv6Bytes + udp_bytes);
}

// Copies a packet into a slot, in the form in which it leaves but for its identification and ICRC.
// Returns false if it is none that this port can send.
bool UdpSender::stage(rte_mbuf* packet, uint32_t index) {
  Staged& staged = staged_[index];
  if (packet->data_len < wire::kFlowBytes + wire::kBthBytes ||
      packet->pkt_len - wire::kEthernetBytes > kMostBytes)
    return false;
  const auto* frame = rte_pktmbuf_mtod(packet, const std::byte*);
  if (wire::load_be16(frame + wire::ethernet_offset::kEtherType) != wire::kEtherTypeIpv4)
    return false;
  const auto origin = origin_of(
      Ipv4Address{wire::load_be32(frame + wire::kEthernetBytes + wire::ipv4_offset::kSrc)});
  if (!origin) {
    last_error_.store(EADDRNOTAVAIL, std::memory_order_relaxed);
    return false;
  }
  staged.origin = *origin;
  std::byte* const ip = ip_of(index);
  size_t bytes = packet->data_len - wire::kEthernetBytes;
  memcpy(ip, frame + wire::kEthernetBytes, bytes);
  if (const ExternalPayload* payload = external_payload(packet); payload != nullptr) {
    copy_from_memory(ip + bytes, payload->bytes, packet->pkt_len - packet->data_len);
    if (copy_is_void(payload->bytes, packet->pkt_len - packet->data_len)) return false;
    bytes = packet->pkt_len - wire::kEthernetBytes;
  }
  staged.icrc_error = 0;
  if ((packet->ol_flags & icrc_flag()) != 0) {
    // The packet has an ICRC, perhaps one that is wrong on purpose: it stays as wrong as it is.
    bytes -= wire::kIcrcBytes;
    staged.icrc_error = icrc_of(ip, bytes) ^ wire::load_icrc(ip + bytes);
  } else {
    bytes = add_pad(ip, bytes);
  }
  staged.covered_bytes = static_cast<uint32_t>(bytes);
  staged.destination = Ipv4Address{wire::load_be32(ip + wire::ipv4_offset::kDst)};
  staged.traffic_class = wire::load_u8(ip + wire::ipv4_offset::kTrafficClass);
  staged.hop_limit = std::max<uint8_t>(1, wire::load_u8(ip + wire::ipv4_offset::kHopLimit));
  set_headers(ip, bytes);
  return true;
}

// Adds a staged packet to the last GSO send, or begins one, and gives it its ICRC.
void UdpSender::append(uint32_t index) {
  const Staged& staged = staged_[index];
  const uint32_t bytes = staged.covered_bytes - kBytesBeforeBth + wire::kIcrcBytes;
  GsoSend* gso = gso_send_count_ == 0 ? nullptr : &gso_sends_[gso_send_count_ - 1];
  const bool joins = segments_ && gso != nullptr && !gso->ended && gso->packets < kMaxSegments &&
                     bytes <= gso->segment_bytes && gso->bytes + bytes <= kMaxGsoBytes &&
                     gso->origin == staged.origin && gso->destination == staged.destination &&
                     gso->traffic_class == staged.traffic_class &&
                     gso->hop_limit == staged.hop_limit;
  if (!joins) {
    gso = &gso_sends_[gso_send_count_++];
    *gso = {.origin = staged.origin,
            .destination = staged.destination,
            .traffic_class = staged.traffic_class,
            .hop_limit = staged.hop_limit,
            .first_packet = index,
            .segment_bytes = bytes};
  }
  std::byte* const ip = ip_of(index);
  wire::store_icrc(ip + staged.covered_bytes,
                   icrc_on_wire(index, static_cast<uint16_t>(gso->packets)) ^ staged.icrc_error);
  pieces_[index] = {ip + kBytesBeforeBth, bytes};
  ++gso->packets;
  gso->bytes += bytes;
  gso->ended = bytes < gso->segment_bytes;
}

void UdpSender::describe_gso_send(uint32_t number) {
  const GsoSend& gso = gso_sends_[number];
  const UdpOrigin& origin = origins_[gso.origin];
  SocketAddress& name = names_[number];
  name =
      socket_address(on_wire(origin, gso.destination), wire::kRoceUdpPort, origin.interface_index);
  msghdr& message = messages_[number].msg_hdr;
  message.msg_name = &name;
  message.msg_namelen = name.bytes();
  message.msg_iov = &pieces_[gso.first_packet];
  message.msg_iovlen = gso.packets;
  message.msg_control = controls_[number].bytes.data();
  message.msg_controllen = controls_[number].bytes.size();
  cmsghdr* at = CMSG_FIRSTHDR(&message);
  const bool ipv6 = origin.is_ipv6();
  const int level = ipv6 ? int{IPPROTO_IPV6} : int{IPPROTO_IP};
  at = put_control(message, at, level, ipv6 ? IPV6_TCLASS : IP_TOS, int{gso.traffic_class});
  at = put_control(message, at, level, ipv6 ? IPV6_HOPLIMIT : IP_TTL, int{gso.hop_limit});
  size_t used = 2 * CMSG_SPACE(sizeof(int));
  if (gso.packets > 1) {
    put_control(message, at, IPPROTO_UDP, UDP_SEGMENT, static_cast<uint16_t>(gso.segment_bytes));
    used += CMSG_SPACE(sizeof(uint16_t));
  }
  message.msg_controllen = used;
}

// Takes note that the kernel refused a GSO send. Returns false if it is to be tried again.
bool UdpSender::refuse_gso_send(const GsoSend& gso, int error) {
  if (error == EIO && gso.packets > 1) {
    // The way there has no checksum offload, without which the kernel segments nothing.
    segments_ = false;
    return false;
  }
  // The error may be an earlier packet's, which the network answered; this one it refuses.
  refused_.store(refused_.load(std::memory_order_relaxed) + gso.packets, std::memory_order_relaxed);
  last_error_.store(error, std::memory_order_relaxed);
  // Kernels before 6.9 call a GSO send of packets that are too long invalid.
  if (error == EMSGSIZE || (error == EINVAL && gso.packets > 1))
    too_long_to_.store(raw(gso.destination), std::memory_order_relaxed);
  return true;
}

// Makes the GSO sends, those of one origin by one call. Returns how many packets are done with.
uint32_t UdpSender::transmit_gso_sends() {
  uint32_t done = 0, packets = 0;
  full_ = false;
  while (done < gso_send_count_) {
    uint32_t end = done + 1;
    while (end < gso_send_count_ && gso_sends_[end].origin == gso_sends_[done].origin) ++end;
    const int sent =
        sendmmsg(origins_[gso_sends_[done].origin].socket, &messages_[done], end - done, 0);
    if (sent > 0) {
      for (const uint32_t behind = done + static_cast<uint32_t>(sent); done < behind; ++done)
        packets += gso_sends_[done].packets;
      continue;
    }
    const int error = errno;
    if (error == EINTR) continue;
    if (error == EAGAIN || error == EWOULDBLOCK || error == ENOBUFS || error == ENOMEM) {
      full_ = true;
      times_full_.store(times_full_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
      break;
    }
    if (!refuse_gso_send(gso_sends_[done], error)) break;
    packets += gso_sends_[done++].packets;
  }
  return packets;
}

// Frees packets, whose references are mostly to one region and one queue pair.
void UdpSender::release(rte_mbuf** packets, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) release_payload(packets[i], references_);
  references_.flush();
  rte_pktmbuf_free_bulk(packets, count);
}

uint16_t UdpSender::send(rte_mbuf** packets, uint16_t count) {
  uint32_t done = 0;
  while (done < count) {
    const uint32_t part = std::min<uint32_t>(count - done, kPackets);
    gso_send_count_ = 0;
    uint32_t staged = 0;
    while (staged < part && stage(packets[done + staged], staged)) append(staged++);
    for (uint32_t gso = 0; gso < gso_send_count_; ++gso) describe_gso_send(gso);
    const uint32_t sent = transmit_gso_sends();
    release(packets + done, sent);
    done += sent;
    if (sent < staged) break;
    if (staged < part) {  // the next packet is none that can be sent
      refused_.store(refused_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
      release(packets + done++, 1);
    }
  }
  return static_cast<uint16_t>(done);
}

}  // namespace hostnic
