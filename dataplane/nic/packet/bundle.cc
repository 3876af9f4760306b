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

void cut_bundle(rte_mbuf& bundle, uint32_t first, uint32_t count) {
  ExternalPayload& payload = payload_in(bundle);
  const bool has_end = first + count == 1u + payload.packets_behind;
  wire::Packet p = valid_headers(&bundle);
  if (!has_end) {  // the last of the part is like the others in front of the bundle's last
    payload.last_payload_bytes = p.payload_bytes;
    payload.last_more = p.more;
    payload.last_ack_request = p.ack_request;
    payload.last_solicited = p.solicited;
  }
  payload.packets_behind = static_cast<uint16_t>(count - 1);
  if (count == 1) bundle.ol_flags &= ~bundle_flag();
  if (first == 0) return;  // its headers stay
  const uint64_t offset = uint64_t{first} * p.payload_bytes;
  payload.bytes += offset;
  p.psn += first;
  p.reth.va += offset;
  p.cont = true;
  if (count == 1) {
    p = whole_of(p, payload);
    p.payload_bytes = payload.last_payload_bytes;
    if (p.opcode != wire::Opcode::kSend) p.reth.length_bytes = p.payload_bytes;
  }
  auto* frame = rte_pktmbuf_mtod(&bundle, std::byte*);
  const auto flow =
      wire::flow_of(std::span<const std::byte, wire::kFlowBytes>(frame, wire::kFlowBytes));
  wire::build(flow, p, false, {}, {frame, wire::kMaxHeaderBytes});
  bundle.pkt_len = uint32_t{bundle.data_len} + p.payload_bytes;
}

rte_mbuf* copy_part(rte_mbuf* bundle, uint32_t first, uint32_t count, rte_mempool* pool,
                    PayloadReferences& references) {
  rte_mbuf* const part = copy_front(bundle, pool, references);
  if (part == nullptr) return nullptr;
  payload_in(*part) = *external_payload(bundle);
  part->ol_flags |= bundle_flag();
  cut_bundle(*part, first, count);
  return part;
}

bool step_bundle(rte_mbuf* packet, PayloadReferences& stock) {
  if (!is_bundle(packet)) return false;
  if (has_bundled_packets(packet)) {
    step_bundled(packet, stock);
  } else {
    cut_bundle(*packet, 1, external_payload(packet)->packets_behind);
  }
  return true;
}

}  // namespace hostnic
