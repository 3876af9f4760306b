// SPDX-License-Identifier: BSD-3-Clause
// Bundles arrive: all packets of one are taken at once where none of them needs more than that.
// Part of hostnic.h, for receive.cc, which has the packets' dispatch.
//
// The NIC's lcore.
#pragma once

#include <rte_branch_prediction.h>
#include <rte_mbuf.h>

#include <cstdint>
#include <span>

#include "dataplane/nic/packet/ack_bundle.h"
#include "dataplane/nic/packet/bundle.h"
#include "dataplane/nic/packet/read_bundle.h"
#include "dataplane/nic/packet/request_bundle.h"
#include "dataplane/nic/transport/hostnic/hostnic.h"

namespace hostnic {

template <class Dispatch>
inline bool HostnicTransport::receive_bundle(Dispatch& dispatch, rte_mbuf* bundle) {
  const wire::Packet& first = dispatch.received.packet();
  if (has_bundled_packets(bundle)) {
    if (first.opcode == wire::Opcode::kAck) return receive_acks(dispatch, bundle);
    return first.opcode == wire::Opcode::kReadRequest
               ? receive_requests(dispatch, bundle, bundled_in<BundledReads>(bundle))
               : receive_requests(dispatch, bundle, bundled_requests(bundle));
  }
  QpContext* qp = dispatch.is_own(first.dst_ip) ? qps_.find(raw(first.dest_qpn)) : nullptr;
  const bool answer = first.opcode == wire::Opcode::kReadResponse;
  if (qp == nullptr || !takes_from(*qp, first, answer)) return false;
  ClientList::state_of(*qp->client).data_arrived = true;
  const ExternalPayload& payload = *external_payload(bundle);
  wire::Packet whole = whole_of(first, payload);
  const std::span<const std::byte> bytes = bytes_of(first, payload);
  const uint32_t packets = 1u + payload.packets_behind;
  uint32_t taken = 0;
  if (answer) {
    taken = completer_.receive_response_bundle(*qp, first, whole, payload, bytes);
  } else if (first.payload_bytes == qp->mtu_bytes) {
    taken = responder_.take_in_order(*qp, whole, bytes, packets)
                ? packets
                : responder_.take_run(*qp, whole, bytes, packets);
  }
  if (taken == 0) return false;
  counters_.add(Counter::rx_bundles);
  if (taken == packets) return true;
  cut_bundle(*bundle, taken, packets - taken);
  return false;
}

// Takes one message of a bundle of messages, if it is the next one expected.
[[gnu::always_inline]] inline bool HostnicTransport::receive_bundled_request(
    wire::Packet& p, std::span<const std::byte> payload) {
  QpContext* const qp = qps_.find(raw(p.dest_qpn));
  if (qp == nullptr || !takes_from(*qp, p, /*answer=*/false)) return false;
  ClientList::state_of(*qp->client).data_arrived = true;
  return responder_.take_in_order(*qp, p, payload, 1);
}

// Takes all requests of a bundle. A request that is not simply next is dispatched as a packet.
// Returns false if the bundle is not for this NIC, and nothing has happened.
template <class Dispatch, class Bundled>
inline bool HostnicTransport::receive_requests(Dispatch& dispatch, rte_mbuf* bundle,
                                               Bundled& bundled) {
  if (!dispatch.is_own(dispatch.received.packet().dst_ip)) return false;
  wire::Packet p = dispatch.received.packet();
  const auto ahead = [&](uint32_t i) {
    if (i < bundled.count) qps_.prefetch(raw(bundled.all[i].dest_qpn), QpPart::kReceives);
  };
  for (uint32_t i = 0; i < kQpsAhead; ++i) ahead(i);
  if (!receive_bundled_request(p, payload_of(bundle, p))) dispatch.dispatch_single(p, bundle);
  while (bundled.waiting() != 0) {
    ahead(bundled.next + kQpsAhead);
    const auto& request = bundled.all[bundled.next];
    request.apply_to(p);
    if (!receive_bundled_request(p, request.contents())) {
      step_bundled(bundle, references_);
      dispatch.dispatch_single(p, bundle);
      continue;
    }
    bundled.pop();
    if constexpr (requires { request.payload(); }) references_.release(request.payload());
  }
  counters_.add(Counter::rx_bundles);
  return true;
}

// Takes all ACKs of a bundle. Returns false if the bundle is not for this NIC, and nothing has
// happened.
template <class Dispatch>
inline bool HostnicTransport::receive_acks(Dispatch& dispatch, rte_mbuf* bundle) {
  if (!dispatch.is_own(dispatch.received.packet().dst_ip)) return false;
  wire::Packet ack = dispatch.received.packet();
  const BundledAcks& bundled = bundled_acks(bundle);
  const auto ahead = [&](uint32_t i) {
    if (i + kQpsAhead < bundled.count)
      qps_.prefetch(raw(bundled.all[i + kQpsAhead].dest_qpn), QpPart::kSends);
    if (i + 1 < bundled.count) qps_.prefetch_status(raw(bundled.all[i + 1].dest_qpn));
  };
  for (uint32_t i = 0; i < kQpsAhead && i < bundled.count; ++i)
    qps_.prefetch(raw(bundled.all[i].dest_qpn), QpPart::kSends);
  dispatch.dispatch_single(ack, bundle);
  for (uint32_t i = bundled.next; i < bundled.count; ++i) {
    ahead(i);
    const BundledAck& other = bundled.all[i];
    QpContext* const qp = qps_.find(raw(other.dest_qpn));
    ack.src_port = other.src_port;
    ack.src_qpn = other.src_qpn;
    if (likely(qp != nullptr && takes_from(*qp, ack, /*answer=*/true))) {
      completer_.receive_ack(*qp, other.sack, ack.aeth, nullptr);
    } else {
      other.apply_to(ack);
      dispatch.dispatch_single(ack, bundle);
    }
  }
  counters_.add(Counter::rx_bundles);
  return true;
}

}  // namespace hostnic
