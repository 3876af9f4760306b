#include "dataplane/nic/followers.h"

#include <span>

#include "dataplane/nic/ack_unit.h"
#include "dataplane/nic/impl.h"
#include "dataplane/nic/request_unit.h"

namespace hostnic {
namespace {

// The headers of the packet in front become those of a follower, `p`.
void rebuild_headers(rte_mbuf* packet, const wire::Packet& p) {
  auto* frame = rte_pktmbuf_mtod(packet, std::byte*);
  auto flow = wire::flow_of(std::span<const std::byte, wire::kFlowBytes>(frame, wire::kFlowBytes));
  wire::store_be16(flow.bytes.data() + wire::row_detail::kSrcPort, p.src_port);
  wire::build(flow, p, false, {}, {frame, kFollowersOffset});
}

}  // namespace

void step_ack_unit(rte_mbuf* packet) {
  AckFollowers& followers = ack_followers(packet);
  wire::Packet p = held_headers(packet);
  followers.all[followers.next++].apply_to(p);
  rebuild_headers(packet, p);
  if (followers.waiting() == 0) packet->ol_flags &= ~unit_flag();
}

void step_request_unit(rte_mbuf* packet, PayloadReferences& stock) {
  RequestFollowers& followers = request_followers(packet);
  wire::Packet p = held_headers(packet);
  stock.put(*borrowed_payload(packet));
  const RequestFollower& request = followers.pop();
  request.apply_to(p);
  rebuild_headers(packet, p);
  lend_payload(*packet, packet->data_len, p.payload_bytes, request.payload());
  if (followers.waiting() == 0) packet->ol_flags &= ~unit_flag();
}

}  // namespace hostnic
