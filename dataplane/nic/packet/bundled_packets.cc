// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/packet/bundled_packets.h"

#include <span>

#include "dataplane/nic/packet/bundle.h"

namespace hostnic {
namespace {

// Turns the headers of the first packet into those of a bundled packet, `p`.
void rebuild_headers(rte_mbuf* packet, const wire::Packet& p) {
  auto* frame = rte_pktmbuf_mtod(packet, std::byte*);
  auto flow = wire::flow_of(std::span<const std::byte, wire::kFlowBytes>(frame, wire::kFlowBytes));
  wire::store_be16(flow.bytes.data() + wire::train_detail::kSrcPort, p.src_port);
  wire::build(flow, p, false, {}, {frame, kBundledOffset});
}

// Steps a bundle of packets without payload.
template <class Bundled>
void step_small(rte_mbuf* packet, wire::Packet& p) {
  bundled_in<Bundled>(packet).pop().apply_to(p);
  rebuild_headers(packet, p);
}

void step_request(rte_mbuf* packet, wire::Packet& p, PayloadReferences& stock) {
  stock.release(*external_payload(packet));
  const BundledRequest& request = bundled_requests(packet).pop();
  request.apply_to(p);
  rebuild_headers(packet, p);
  attach_payload(*packet, packet->data_len, p.payload_bytes, request.payload());
}

}  // namespace

void step_bundled(rte_mbuf* packet, PayloadReferences& stock) {
  wire::Packet p = valid_headers(packet);
  switch (p.opcode) {
    case wire::Opcode::kAck:
      step_small<BundledAcks>(packet, p);
      break;
    case wire::Opcode::kReadRequest:
      step_small<BundledReads>(packet, p);
      break;
    default:
      step_request(packet, p, stock);
  }
  if (bundled_in<BundledCount>(packet).waiting() == 0) packet->ol_flags &= ~bundle_flag();
}

}  // namespace hostnic
