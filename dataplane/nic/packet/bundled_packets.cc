// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/packet/bundled_packets.h"

#include <span>

#include "dataplane/nic/packet/bundle.h"
#include "dataplane/nic/packet/packet.h"
#include "dataplane/nic/packet/packet_release.h"

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

// Keeps the entries whose bits are set in `kept`, the first entry's being bit 0.
template <class Bundled>
void keep_entries(Bundled& bundled, uint32_t kept, PayloadReferences& stock) {
  uint32_t end = bundled.next;
  for (uint32_t i = bundled.next; i < bundled.count; ++i, kept >>= 1) {
    const auto& entry = bundled.all[i];
    if ((kept & 1) != 0) {
      if (end != i) bundled.all[end] = entry;
      ++end;
    } else if constexpr (requires { entry.payload(); }) {
      stock.release(entry.payload());
      bundled.waiting_payload_bytes -= entry.payload_bytes;
    }
  }
  bundled.count = end;
}

}  // namespace

rte_mbuf* keep_bundled(rte_mbuf* bundle, uint32_t kept, PayloadReferences& stock) {
  with_bundled(bundle, valid_headers(bundle).opcode,
               [&](auto& bundled) { keep_entries(bundled, kept >> 1, stock); });
  if (bundled_in<BundledCount>(bundle).waiting() == 0) bundle->ol_flags &= ~bundle_flag();
  if ((kept & 1) != 0) return bundle;
  if (is_bundle(bundle)) {
    step_bundled(bundle, stock);
    return bundle;
  }
  release_packet(bundle, stock);
  return nullptr;
}

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
