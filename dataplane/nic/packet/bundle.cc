// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/packet/bundle.h"

#include "dataplane/nic/packet/packet.h"

namespace hostnic {
namespace {

ExternalPayload& payload_in(rte_mbuf& packet) {
  return *static_cast<ExternalPayload*>(rte_mbuf_to_priv(&packet));
}

}  // namespace

void make_bundle(rte_mbuf& packet, uint32_t packets_behind, const BundleEnd& end) {
  ExternalPayload& payload = payload_in(packet);
  payload.packets_behind = static_cast<uint16_t>(packets_behind);
  payload.last_payload_bytes = end.payload_bytes;
  payload.last_more = end.more;
  payload.last_ack_request = end.ack_request;
  payload.last_solicited = end.solicited;
  packet.ol_flags |= bundle_flag();
}

bool step_bundle(rte_mbuf* packet, PayloadReferences& stock) {
  if (!is_bundle(packet)) return false;
  if (has_bundled_packets(packet)) {
    step_bundled(packet, stock);
    return true;
  }
  ExternalPayload& payload = payload_in(*packet);
  auto* frame = rte_pktmbuf_mtod(packet, std::byte*);
  wire::Packet p = valid_headers(packet);
  payload.bytes += p.payload_bytes;
  p.psn += 1;
  p.reth.va += p.payload_bytes;
  p.cont = true;
  if (--payload.packets_behind == 0) {
    packet->ol_flags &= ~bundle_flag();
    p = whole_of(p, payload);
    p.payload_bytes = payload.last_payload_bytes;
    if (p.opcode != wire::Opcode::kSend) p.reth.length_bytes = p.payload_bytes;
  }
  const auto flow =
      wire::flow_of(std::span<const std::byte, wire::kFlowBytes>(frame, wire::kFlowBytes));
  wire::build(flow, p, false, {}, {frame, wire::kMaxHeaderBytes});
  packet->pkt_len = uint32_t{packet->data_len} + p.payload_bytes;
  return true;
}

}  // namespace hostnic
