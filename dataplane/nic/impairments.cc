// The impairment stages at both sides of the NIC, and what they may do to a packet.
#include <array>

#include "dataplane/nic/impl.h"
#include "protocol/impair/classify.h"

namespace hostnic {
namespace {

Ipv4Address destination_of(const rte_mbuf* packet) {
  const auto* ip = rte_pktmbuf_mtod_offset(packet, const uint8_t*, wire::kEthernetBytes + 16);
  return Ipv4Address{uint32_t{ip[0]} << 24 | uint32_t{ip[1]} << 16 | uint32_t{ip[2]} << 8 | ip[3]};
}

}  // namespace

impair::PacketInfo Nic::Impl::impairment_info(rte_mbuf* packet) const {
  wire::Packet p;
  if (rx_stage->looks_at_packets() && parse_packet(packet, p) == wire::ParseError::kNone)
    return impair::describe(p, p.src_ip, packet->pkt_len);
  impair::PacketInfo info;
  info.bytes = packet->pkt_len;
  return info;
}

impair::PacketInfo Nic::Impl::impairment_info(rte_mbuf* packet, const wire::Packet& p) const {
  return impair::describe(p, destination_of(packet), packet->pkt_len);
}

void* Nic::Impl::clone(void* packet) {
  return copy_packet(static_cast<rte_mbuf*>(packet), pools.copies);
}

// Nothing that waits may reference memory that its owner can change (rule 31).
void* Nic::Impl::detach(void* packet) {
  auto* original = static_cast<rte_mbuf*>(packet);
  if (external_payload(original) == nullptr) return original;
  rte_mbuf* copy = copy_packet(original, pools.copies);
  if (copy != nullptr) copy->port = original->port;
  release_packet(original, payload_references);
  return copy;
}

// Everything behind the Ethernet header may be hit; the ICRC, which in-process packets get only
// now, must catch it. The IPv4 header is left alone: the network would have dropped the packet at
// the next hop already.
void Nic::Impl::corrupt(void* packet, uint32_t byte_selector, uint8_t xor_mask) {
  auto* mbuf = static_cast<rte_mbuf*>(packet);
  if ((mbuf->ol_flags & icrc_flag()) == 0) add_icrc_in_place(mbuf);
  constexpr uint32_t kFirst = wire::kEthernetBytes + wire::kIpv4Bytes + wire::kUdpBytes;
  if (mbuf->data_len <= kFirst) return;
  auto* bytes = rte_pktmbuf_mtod(mbuf, uint8_t*);
  bytes[kFirst + byte_selector % (mbuf->data_len - kFirst)] ^= xor_mask;
}

void Nic::Impl::release(void* packet) {
  release_packet(static_cast<rte_mbuf*>(packet), payload_references);
}

void Nic::Impl::run_rx_stage() {
  std::array<void*, kBurst> due;
  for (uint32_t done = 0; done < 2 * kRxBudget;) {
    const size_t count = rx_stage->pop(due, now);
    for (size_t i = 0; i < count; ++i) receive_packet(static_cast<rte_mbuf*>(due[i]));
    done += static_cast<uint32_t>(count);
    if (count < due.size()) break;
  }
}

void Nic::Impl::run_tx_stage() {
  std::array<void*, kBurst> due;
  // Only as much as surely finds room, whichever peer it is for.
  for (bool room = true; room;) {
    for (uint32_t peer = 0; peer < output_peers; ++peer)
      room = room && outputs[peer].count < kBurst;
    room = room && outputs[kLoopbackPeer].count < kBurst;
    if (!room) return;
    const size_t count = tx_stage->pop(due, now);
    for (size_t i = 0; i < count; ++i) {
      auto* packet = static_cast<rte_mbuf*>(due[i]);
      enqueue(packet, packet->port);
    }
    if (count < due.size()) return;
  }
}

}  // namespace hostnic
