// Messages of one packet each, one behind the other in a client's ring: what costs as much for each
// of them as for the first is done once, for all of them or for all of a queue pair (its context,
// flow, headers, telling the driver).
#include <cstring>

#include "dataplane/nic/copy.h"
#include "dataplane/nic/impl.h"
#include "dataplane/nic/output.h"
#include "dataplane/nic/placement.h"
#include "dataplane/nic/prefetch.h"
#include "dataplane/nic/region_access.h"
#include "protocol/wire/packet_row.h"

namespace hostnic {
namespace {

// Payload that is copied behind its headers, not borrowed: with fewer bytes the copy costs less
// than the counting of references.
constexpr uint32_t kCopiedBytes = 256;

// A whole message in one descriptor, of bytes that lie in one place. The rest is transmit.cc's.
inline bool is_single(const SendDescriptor& d, uint32_t elements_behind) {
  if (d.op != SendOp::kWrite && d.op != SendOp::kSend) return false;
  if ((d.flags & (kSendCont | kSendMore)) != 0 || d.length_bytes == 0) return false;
  if ((d.flags & kSendInline) != 0)
    return d.extra_elements <= elements_behind && d.length_bytes <= kCopiedBytes &&
           d.length_bytes <= d.extra_elements * sizeof(RingElement);
  return d.extra_elements == 0 && d.sge_count == 1 && d.sge0.length_bytes == d.length_bytes;
}

}  // namespace

// Null: not mapped in one piece, or not this queue pair's to send.
[[gnu::always_inline]] inline const std::byte* Nic::Impl::single_payload(
    QpContext& qp, const SendDescriptor& d, const DescriptorQueue& queue,
    MemoryRegionEntry*& region) {
  if ((d.flags & kSendInline) != 0) return queue.behind_front()->bytes;
  region = local_region(qp, qp.pd, d.sge0.lkey, d.sge0.addr, d.length_bytes, 0);
  return region == nullptr ? nullptr : mapped_address(*region, d.sge0.addr, d.length_bytes);
}

[[gnu::always_inline]] inline void Nic::Impl::put_single_payload(rte_mbuf& packet,
                                                                 size_t header_bytes,
                                                                 const MappedPayload& payload,
                                                                 uint32_t payload_bytes) {
  if (payload_bytes <= kCopiedBytes) {
    copy_from_memory(rte_pktmbuf_mtod(&packet, std::byte*) + header_bytes, payload.bytes,
                     payload_bytes);
    packet.data_len = static_cast<uint16_t>(header_bytes + payload_bytes);
    packet.pkt_len = packet.data_len;
  } else {
    payload_references.take(*payload.region, *payload.packets, 1);
    lend_payload(packet, header_bytes, payload_bytes,
                 {payload.bytes, payload.region, payload.packets});
  }
}

// Sends those in front that are one queue pair's, alike, and equally long. In `p` all that differs
// from message to message is set. Returns how many have left.
[[gnu::always_inline]] inline uint32_t Nic::Impl::send_singles_of_one(ClientState& client,
                                                                      DescriptorQueue& queue,
                                                                      uint32_t budget,
                                                                      wire::Packet& p) {
  SendDescriptor d = queue.front();
  if (!is_single(d, queue.waiting() - 1)) return 0;
  const uint32_t qpn = d.qpn, length_bytes = d.length_bytes;
  const SendOp op = d.op;
  if (const uint32_t ahead = queue.qpn_behind_front(kQpsAhead); ahead != qpn)
    prefetch_qp(ahead, QpPart::kSends);
  QpContext* const qp = find_qp(qpn);
  if (qp == nullptr || qp->client != client.channel || qp->type != QpType::kRc ||
      (qp->state != QpState::kRts && qp->state != QpState::kSqd) || qp->send_failed ||
      length_bytes > qp->mtu_bytes || !prepare_flows(*qp))
    return 0;
  OutputQueue& output = outputs[static_cast<size_t>(qp->peer)];
  // Of the second, copied for those behind it.
  alignas(16) std::array<std::byte, wire::kMaxHeaderBytes> headers;
  static_assert(wire::kMaxHeaderBytes >= wire::kMaxRowHeaderBytes);
  size_t header_bytes = 0;
  p.opcode = op == SendOp::kWrite ? wire::Opcode::kWriteOnly : wire::Opcode::kSend;
  p.dest_qpn = Qpn{qp->dest_qpn};
  p.src_qpn = Qpn{qp->qpn};
  p.payload_bytes = static_cast<uint16_t>(length_bytes);
  uint32_t done = 0;
  while (done < budget && output.count < kOutputRoom) {
    MappedPayload payload{nullptr, nullptr, qp->packets.count()};
    payload.bytes = single_payload(*qp, d, queue, payload.region);
    if (payload.bytes == nullptr) break;
    rte_mbuf* packet = rte_pktmbuf_alloc(pools.header);
    if (packet == nullptr) break;  // `p` is still the last that has left
    p.psn = Psn(d.psn);
    p.attempt = d.attempt & 3;
    p.ack_request = (d.flags & kSendAckRequest) != 0;
    p.solicited = (d.flags & kSendSolicited) != 0;
    p.reth = {d.va, d.key, op == SendOp::kWrite ? length_bytes : d.message_bytes};
    auto* frame = rte_pktmbuf_mtod(packet, std::byte*);
    if (done == 0) {
      header_bytes = wire::build(qp->request_flow, p, false, {}, {frame, wire::kMaxHeaderBytes});
    } else {
      if (done == 1) wire::build(qp->request_flow, p, false, {}, headers);
      std::memcpy(frame, headers.data(), wire::kMaxRowHeaderBytes);
      // In the frame: a copy of what had just been written here would wait for it.
      wire::restep(p, {frame, wire::kMaxRowHeaderBytes});
    }
    put_single_payload(*packet, header_bytes, payload, length_bytes);
    packet->port = static_cast<uint16_t>(qp->peer);
    output.packets[output.count++] = packet;
    if (output.count >= kBurst) flush(qp->peer);
    ++done;
    queue.pop(1u + d.extra_elements);
    if (p.ack_request || (d.flags & kSendRetransmit) != 0)
      note_transmitted(*qp, p, 1, (d.flags & kSendRetransmit) != 0);
    if (queue.empty() || queue.qpn_behind_front(0) != qpn) break;
    d = queue.front();
    if (d.op != op || d.length_bytes != length_bytes || !is_single(d, queue.waiting() - 1)) break;
  }
  // The driver learns of the last; those that ask for an ACK have been noted.
  if (done != 0 && !p.ack_request) note_transmitted(*qp, p, 1, false);
  return done;
}

// Returns how many have left, 0 where something else comes first.
uint32_t Nic::Impl::send_singles(ClientState& client, DescriptorQueue& queue, uint32_t budget) {
  if (queue.empty() || tx_stage || seals) return 0;
  wire::Packet p;
  p.policy = settings.policy;
  uint32_t done = 0, more = 0;
  do {
    more = send_singles_of_one(client, queue, budget - done, p);
    done += more;
  } while (more != 0 && done < budget && !queue.empty());
  counters.add(Counter::descriptors, done);
  return done;
}

}  // namespace hostnic
