// SPDX-License-Identifier: BSD-3-Clause
// Bundles of requests (bundled_packets.h): WRITEs, or SENDs, of one packet each whose payload is
// external.
#pragma once

#include "dataplane/nic/packet/bundled_packets.h"

namespace hostnic {

// What a request differs in from the first of its bundle.
struct BundledRequest {
  const std::byte* bytes = nullptr;
  MemoryRegionEntry* region = nullptr;
  PacketCount* packets = nullptr;
  Qpn dest_qpn{}, src_qpn{};  // src_qpn as parse() says it: SENDs only
  Psn psn;
  uint16_t src_port = 0;
  uint16_t payload_bytes = 0;
  wire::Reth reth;
  uint8_t attempt = 0;
  bool ack_request = false, solicited = false;

  // Turns the headers of any request of the bundle into this one's.
  void apply_to(wire::Packet& request) const {
    request.dest_qpn = dest_qpn;
    request.src_qpn = src_qpn;
    request.psn = psn;
    request.src_port = src_port;
    request.payload_bytes = payload_bytes;
    request.reth = reth;
    request.attempt = attempt;
    request.ack_request = ack_request;
    request.solicited = solicited;
  }
  ExternalPayload payload() const { return {bytes, region, packets}; }
  std::span<const std::byte> contents() const { return {bytes, payload_bytes}; }
};

// The bundle's entries: half of what a client sends in a turn fits into one bundle.
struct BundledRequests : BundledPackets<BundledRequest, 15> {
  uint64_t waiting_payload_bytes = 0;  // payload of the entries from `next` on

  const BundledRequest& pop() {
    waiting_payload_bytes -= all[next].payload_bytes;
    return all[next++];
  }
};

// The bytes that a buffer for such a bundle must have.
inline constexpr uint32_t kRequestBundleBytes = kBundledOffset + sizeof(BundledRequests);

// Whether a bundle is one of requests: then the first packet has none of its own message behind it.
inline bool is_request_bundle(rte_mbuf* packet) {
  return (packet->ol_flags & external_flag()) != 0 && external_payload(packet)->packets_behind == 0;
}
inline BundledRequests& bundled_requests(rte_mbuf* packet) {
  return bundled_in<BundledRequests>(packet);
}

class RequestBundleBuilder : public BundleBuilder<BundledRequests> {
 public:
  // Begins a bundle with a packet that has external payload.
  void begin(rte_mbuf* packet, int peer, const wire::FlowTemplate& flow, wire::Opcode opcode) {
    BundleBuilder::begin(packet, peer, flow);
    opcode_ = opcode;
    bundled_requests(packet).waiting_payload_bytes = 0;
  }
  // Adds an entry, which the caller writes in place (protocol/store_forwarding.h). Returns null if
  // the request can't follow the others; nothing has happened then.
  BundledRequest* add(int peer, const wire::FlowTemplate& flow, wire::Opcode opcode,
                      uint16_t payload_bytes) {
    if (opcode != opcode_) return nullptr;
    BundledRequest* const place = next_place(peer, flow);
    if (place == nullptr) return nullptr;
    place->src_port = src_port_of(flow);
    place->payload_bytes = payload_bytes;
    bundled().waiting_payload_bytes += payload_bytes;
    return place;
  }

 private:
  wire::Opcode opcode_ = wire::Opcode::kWriteOnly;
};

}  // namespace hostnic
