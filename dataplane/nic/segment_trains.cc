// Segment trains: packets in the middle of one message, whose payload lies in one piece of mapped
// memory. They differ in PSN and RETH address only, so their headers are built once and patched for
// each.
#include <algorithm>
#include <bit>
#include <cstring>

#include "dataplane/nic/impl.h"
#include "protocol/wire/segment_train.h"

namespace hostnic {

// How many packets of a train may leave now, towards `peer`.
uint32_t Nic::Impl::train_room(int peer) const {
  const uint32_t queued = outputs[static_cast<size_t>(peer)].count;
  return tx_stage || adds_icrc || queued >= kOutputRoom ? 0 : kOutputRoom - queued;
}

// `count` packets, at least one and at most train_room(), like `p`, which is the first of them and
// then the last. False: no buffers.
bool Nic::Impl::emit_train(QpContext& qp, const wire::FlowTemplate& flow, wire::Packet& p,
                           const MappedPayload& payload, uint32_t count) {
  OutputQueue& queue = outputs[static_cast<size_t>(qp.peer)];
  rte_mbuf** const train = queue.packets.data() + queue.count;
  if (rte_pktmbuf_alloc_bulk(pools.header, train, count) != 0) return false;
  alignas(16) std::array<std::byte, wire::kMaxHeaderBytes> headers;
  const auto header_bytes = static_cast<uint32_t>(wire::build(flow, p, false, {}, headers));
  static_assert(kOutputRoom <= PayloadReferences::kStock);
  payload_references.acquire(*payload.region, *payload.packets, count);
  const std::byte* bytes = payload.bytes;
  for (uint32_t i = 0; i < count; ++i, bytes += p.payload_bytes) {
    // What is read again and again is not written: a wide load behind a narrow store waits for it.
    auto* frame = rte_pktmbuf_mtod(train[i], std::byte*);
    std::memcpy(frame, headers.data(), wire::kMaxTrainHeaderBytes);
    if (i != 0) wire::step(p, {frame, wire::kMaxTrainHeaderBytes});
    attach_payload(*train[i], header_bytes, p.payload_bytes,
                   {bytes, payload.region, payload.packets});
    train[i]->port = static_cast<uint16_t>(qp.peer);
  }
  queue.count += count;
  if (queue.count >= kBurst) flush(qp.peer);
  return true;
}

// One packet: headers, and where the payload lies. No copy. Null: no buffer.
rte_mbuf* Nic::Impl::build_external(const wire::FlowTemplate& flow, const wire::Packet& p,
                                    const MappedPayload& payload) {
  rte_mbuf* packet = rte_pktmbuf_alloc(pools.header);
  if (packet == nullptr) return nullptr;
  const std::span<std::byte> frame(rte_pktmbuf_mtod(packet, std::byte*), wire::kMaxHeaderBytes);
  const size_t header_bytes = wire::build(flow, p, false, {}, frame);
  payload_references.acquire(*payload.region, *payload.packets, 1);
  attach_payload(*packet, header_bytes, p.payload_bytes,
                 {payload.bytes, payload.region, payload.packets});
  return packet;
}

}  // namespace hostnic
