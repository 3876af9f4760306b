// Output's short ways, inline: for impl.h's functions that every packet goes through.
#pragma once

#include <rte_branch_prediction.h>

#include "dataplane/nic/impl.h"

namespace hostnic {

inline bool Nic::Impl::has_room_for_ack(int peer) const {
  return outputs[static_cast<size_t>(peer)].count < outputs[0].packets.size();
}

// Whether the QP's packets can be addressed. On Ethernet ports the neighbour's MAC must be known,
// and may change.
inline bool Nic::Impl::prepare_flows(QpContext& qp) {
  if (likely(qp.neighbour < 0)) return qp.flows_made_for != 0;
  const Neighbours::Entry& neighbour = neighbours.entry(qp.neighbour);
  if (neighbour.generation == 0) return false;
  if (qp.flows_made_for != neighbour.generation) {
    make_flows(qp, neighbour.mac);
    qp.flows_made_for = neighbour.generation;
  }
  return true;
}

// Whether requests of a queue pair of RC may leave, and nothing about it is special.
[[gnu::always_inline]] inline bool Nic::Impl::may_send(const ClientState& client, QpContext& qp) {
  return qp.client == client.channel && qp.type == QpType::kRc &&
         (qp.state == QpState::kRts || qp.state == QpState::kSqd) && !qp.send_failed &&
         prepare_flows(qp);
}

// The packets of many queue pairs that have come together leave.
template <class Builder>
inline void Nic::Impl::emit_open(Builder& bundle) {
  rte_mbuf* packet = bundle.take();
  packet->port = static_cast<uint16_t>(bundle.peer());
  if (is_bundle(packet)) counters.add(Counter::tx_bundles);
  enqueue(packet, bundle.peer());
}

// Sets the lengths of a packet whose payload lies behind its headers in one buffer, and adds the
// ICRC if this NIC's packets have one.
inline void Nic::Impl::finish_linear(rte_mbuf* packet, const wire::Packet& p, size_t header_bytes) {
  size_t bytes = header_bytes + p.payload_bytes;
  if (adds_icrc) {
    finish_icrc(rte_pktmbuf_mtod(packet, std::byte*), p);
    bytes += wire::pad_bytes(p.payload_bytes) + wire::kIcrcBytes;
    packet->ol_flags |= icrc_flag();
  }
  packet->data_len = static_cast<uint16_t>(bytes);
  packet->pkt_len = static_cast<uint32_t>(bytes);
}

// Requests have left, `packets` of them.
inline void Nic::Impl::note_transmitted(QpContext& qp, Transmitted last, uint32_t packets,
                                        bool retransmit) {
  if (retransmit) counters.add(Counter::retransmitted_packets, packets);
  const Psn next = last.psn + 1;
  const bool repeated = distance(qp.transmitted, next) <= 0;
  if (!repeated) {
    qp.transmitted = next;
    qp.status->transmitted_psn.store(next.value(), std::memory_order_release);
  }
  if (!last.ack_request) {
    if (unlikely(repeated && qp.stamps_used != 0)) forget_stamps(qp, last);
    return;
  }
  if (qp.type != QpType::kRc) {
    settle_unreliable(qp, next);
    return;
  }
  // A stamp that waits for its ACK stays: were the newest to replace it, a long queue, in which
  // many wait, would never be measured.
  if (qp.stamps_used == qp.stamps.size() || now == 0) return;
  ++qp.stamps_used;
  for (auto& stamp : qp.stamps) {
    if (stamp.used()) continue;
    stamp = {last.psn, last.attempt, now};
    break;
  }
}

}  // namespace hostnic
