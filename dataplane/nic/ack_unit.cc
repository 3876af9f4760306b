#include "dataplane/nic/ack_unit.h"

#include <span>

#include "dataplane/nic/impl.h"

namespace hostnic {
namespace {

constexpr size_t kTrafficClassAt = wire::kEthernetBytes + wire::ipv4_offset::kTrafficClass;
constexpr size_t kHopLimitAt = wire::kEthernetBytes + wire::ipv4_offset::kHopLimit;
constexpr size_t kSrcPortAt = wire::kEthernetBytes + wire::kIpv4Bytes + wire::udp_offset::kSrcPort;

}  // namespace

bool AckUnit::add(int peer, const wire::FlowTemplate& flow, const wire::Packet& ack) {
  if (packet_ == nullptr || peer != peer_ ||
      flow.bytes[kTrafficClassAt] != flow_->bytes[kTrafficClassAt] ||
      flow.bytes[kHopLimitAt] != flow_->bytes[kHopLimitAt])
    return false;
  AckFollowers& followers = ack_followers(packet_);
  if ((packet_->ol_flags & unit_flag()) == 0) {
    followers.next = followers.count = 0;
    packet_->ol_flags |= unit_flag();
  } else if (followers.full()) {
    return false;
  }
  followers.acks[followers.count++] = {.dest_qpn = ack.dest_qpn,
                                       .src_qpn = ack.src_qpn,
                                       .msn = ack.aeth.msn,
                                       .src_port = wire::load_be16(flow.bytes.data() + kSrcPortAt),
                                       .sack = ack.sack};
  return true;
}

void step_ack_unit(rte_mbuf* packet) {
  AckFollowers& followers = ack_followers(packet);
  const AckFollower& ack = followers.acks[followers.next++];
  auto* frame = rte_pktmbuf_mtod(packet, std::byte*);
  wire::Packet p = held_headers(packet);
  ack.apply_to(p);
  auto flow = wire::flow_of(std::span<const std::byte, wire::kFlowBytes>(frame, wire::kFlowBytes));
  wire::store_be16(flow.bytes.data() + kSrcPortAt, ack.src_port);
  wire::build(flow, p, false, {}, {frame, kAckFollowersOffset});
  if (followers.waiting() == 0) packet->ol_flags &= ~unit_flag();
}

}  // namespace hostnic
