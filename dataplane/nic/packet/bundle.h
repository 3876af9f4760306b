// SPDX-License-Identifier: BSD-3-Clause
// Segmentation offload of the in-process wire. While nobody needs packets one by one (ICRC, an
// Ethernet port), several packets of one message travel as one buffer, a bundle, and are placed by
// one copy: what the kernel's loopback does with GSO. They keep their PSNs, and all that is
// counted, acknowledged or completed is what it would be for the packets.
//
// A bundle is its first packet, headers and all, with more payload behind the external one. Whoever
// wants the others turns it into them, one after the other, or cuts it into parts. Bundles of
// packets of many messages: bundled_packets.h.
#pragma once

#include "dataplane/nic/packet/ack_bundle.h"
#include "dataplane/nic/packet/external_payload.h"
#include "dataplane/nic/packet/read_bundle.h"
#include "dataplane/nic/packet/request_bundle.h"
#include "protocol/wire/packet.h"

namespace hostnic {

inline bool is_bundle(const rte_mbuf* packet) { return (packet->ol_flags & bundle_flag()) != 0; }
// Whether the packets of a bundle belong to many messages, not to one (bundled_packets.h).
inline bool has_bundled_packets(rte_mbuf* packet) {
  return (packet->ol_flags & external_flag()) == 0 || external_payload(packet)->packets_behind == 0;
}

// The number of packets that a buffer stands for, and their bytes on the wire, headers included.
inline uint32_t packets_in(rte_mbuf* packet) {
  if (!is_bundle(packet)) return 1;
  if (has_bundled_packets(packet)) return 1 + bundled_in<BundledCount>(packet).waiting();
  return 1u + external_payload(packet)->packets_behind;
}
inline uint64_t wire_bytes_of(rte_mbuf* packet) {
  if (!is_bundle(packet)) return packet->pkt_len;
  if (external_payload(packet) == nullptr) return uint64_t{packet->pkt_len} * packets_in(packet);
  if (is_request_bundle(packet)) {
    const BundledRequests& bundled = bundled_requests(packet);
    return packet->pkt_len + uint64_t{packet->data_len} * bundled.waiting() +
           bundled.waiting_payload_bytes;
  }
  const ExternalPayload& payload = *external_payload(packet);
  return uint64_t{packet->pkt_len} * payload.packets_behind + packet->data_len +
         payload.last_payload_bytes;
}

// What the last packet of a bundle differs in from those before it.
struct BundleEnd {
  uint16_t payload_bytes;
  bool more, ack_request, solicited;
};
// Makes a bundle of a packet with external payload: the packets behind it are like the first,
// except for cont and more, and the last is as `end` says.
void make_bundle(rte_mbuf& packet, uint32_t packets_behind, const BundleEnd& end);
// Makes a bundle of packets of one message the part of itself that begins with packet `first`, the
// first of all being 0: a bundle, or a packet if `count` is 1.
void cut_bundle(rte_mbuf& bundle, uint32_t first, uint32_t count);
// Puts such a part of a bundle into a buffer of its own, with a reference of its own to the
// payload. Returns null if there is no buffer.
rte_mbuf* copy_part(rte_mbuf* bundle, uint32_t first, uint32_t count, rte_mempool* pool,
                    PayloadReferences& references);
// Turns a bundle into its second packet and those behind it; references to what the first alone has
// go into `stock`. Returns false if there is no second packet.
bool step_bundle(rte_mbuf* packet, PayloadReferences& stock);
// Calls visit(bundled) with what a bundle of packets of many messages has behind its first packet,
// which is of this opcode.
template <class Visit>
void with_bundled(rte_mbuf* bundle, wire::Opcode first, Visit&& visit) {
  switch (first) {
    case wire::Opcode::kAck:
      return visit(bundled_acks(bundle));
    case wire::Opcode::kReadRequest:
      return visit(bundled_in<BundledReads>(bundle));
    default:
      return visit(bundled_requests(bundle));
  }
}
// Turns a bundle of packets of many messages into its second packet and those behind it.
void step_bundled(rte_mbuf* packet, PayloadReferences& stock);

// The headers of one packet that stands for all packets of a bundle: those of the first, except for
// what the last says.
inline wire::Packet whole_of(const wire::Packet& first, const ExternalPayload& payload) {
  wire::Packet whole = first;
  whole.more = payload.last_more;
  whole.ack_request = payload.last_ack_request;
  whole.solicited = payload.last_solicited;
  return whole;
}

// The payload of all packets of a bundle.
inline std::span<const std::byte> bytes_of(const wire::Packet& first,
                                           const ExternalPayload& payload) {
  return {payload.bytes,
          size_t{first.payload_bytes} * payload.packets_behind + payload.last_payload_bytes};
}

}  // namespace hostnic
