// Messages of one packet each, one behind the other in a client's ring: what costs as much for each
// of them as for the first (queue pair, flow, headers, telling the driver) is done once.
#include <cstring>

#include "dataplane/nic/copy.h"
#include "dataplane/nic/impl.h"
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
bool is_single(const SendDescriptor& d, uint32_t elements_behind) {
  if (d.op != SendOp::kWrite && d.op != SendOp::kSend) return false;
  if ((d.flags & (kSendCont | kSendMore)) != 0 || d.length_bytes == 0) return false;
  if ((d.flags & kSendInline) != 0)
    return d.extra_elements <= elements_behind && d.length_bytes <= kCopiedBytes &&
           d.length_bytes <= d.extra_elements * sizeof(RingElement);
  return d.extra_elements == 0 && d.sge_count == 1 && d.sge0.length_bytes == d.length_bytes;
}

}  // namespace

// Returns how many have left, 0 where something else comes first.
uint32_t Nic::Impl::send_singles(ClientState& client, DescriptorQueue& queue, uint32_t budget) {
  if (queue.empty() || tx_stage || seals) return 0;
  const SendDescriptor first = queue.front();
  if (!is_single(first, queue.waiting() - 1)) return 0;
  if (const uint32_t ahead = queue.qpn_behind_front(kQpsAhead); ahead != first.qpn)
    prefetch_qp(ahead);
  QpContext* const qp = find_qp(first.qpn);
  if (qp == nullptr || qp->client != client.channel || qp->type != QpType::kRc ||
      (qp->state != QpState::kRts && qp->state != QpState::kSqd) || qp->send_failed ||
      first.length_bytes > qp->mtu_bytes || !prepare_flows(*qp))
    return 0;
  OutputQueue& output = outputs[static_cast<size_t>(qp->peer)];
  alignas(16) std::array<std::byte, wire::kMaxHeaderBytes> headers;
  size_t header_bytes = 0;
  wire::Packet p;
  p.opcode = first.op == SendOp::kWrite ? wire::Opcode::kWriteOnly : wire::Opcode::kSend;
  p.dest_qpn = Qpn{qp->dest_qpn};
  p.src_qpn = Qpn{qp->qpn};
  p.policy = settings.policy;
  p.payload_bytes = static_cast<uint16_t>(first.length_bytes);
  uint32_t done = 0;
  for (SendDescriptor d = first; done < budget && output.count < kOutputRoom;) {
    MemoryRegionEntry* region = nullptr;
    const std::byte* const payload = single_payload(*qp, d, queue, region);
    if (payload == nullptr) break;
    p.psn = Psn(d.psn);
    p.attempt = d.attempt & 3;
    p.ack_request = (d.flags & kSendAckRequest) != 0;
    p.solicited = (d.flags & kSendSolicited) != 0;
    p.reth = {d.va, d.key, d.op == SendOp::kWrite ? d.length_bytes : d.message_bytes};
    if (done == 0) header_bytes = wire::build(qp->request_flow, p, false, {}, headers);
    rte_mbuf* packet =
        build_single(*qp, {headers.data(), header_bytes}, payload, d.length_bytes, region);
    if (packet == nullptr) break;
    // In the frame: a copy of what had just been written here would wait for it.
    if (done != 0)
      wire::restep(p, {rte_pktmbuf_mtod(packet, std::byte*), wire::kMaxRowHeaderBytes});
    output.packets[output.count++] = packet;
    if (output.count >= kBurst) flush(qp->peer);
    ++done;
    queue.pop(1u + d.extra_elements);
    if (p.ack_request || (d.flags & kSendRetransmit) != 0)
      note_transmitted(*qp, p, 1, (d.flags & kSendRetransmit) != 0);
    if (queue.empty()) break;
    d = queue.front();
    if (d.qpn != first.qpn || d.op != first.op || d.length_bytes != first.length_bytes ||
        !is_single(d, queue.waiting() - 1))
      break;
  }
  counters.add(Counter::descriptors, done);
  // The driver learns of the last; those that ask for an ACK have been noted.
  if (done != 0 && !p.ack_request) note_transmitted(*qp, p, 1, false);
  return done;
}

// Null: not mapped in one piece, or not this queue pair's to send.
const std::byte* Nic::Impl::single_payload(QpContext& qp, const SendDescriptor& d,
                                           const DescriptorQueue& queue,
                                           MemoryRegionEntry*& region) {
  if ((d.flags & kSendInline) != 0) return queue.behind_front()->bytes;
  region = local_region(qp, qp.pd, d.sge0.lkey, d.sge0.addr, d.length_bytes, 0);
  return region == nullptr ? nullptr : mapped_address(*region, d.sge0.addr, d.length_bytes);
}

rte_mbuf* Nic::Impl::build_single(QpContext& qp, std::span<const std::byte> headers,
                                  const std::byte* payload, uint32_t payload_bytes,
                                  MemoryRegionEntry* region) {
  rte_mbuf* packet = rte_pktmbuf_alloc(pools.header);
  if (packet == nullptr) return nullptr;
  auto* frame = rte_pktmbuf_mtod(packet, std::byte*);
  static_assert(wire::kMaxHeaderBytes >= wire::kMaxRowHeaderBytes);
  std::memcpy(frame, headers.data(), wire::kMaxRowHeaderBytes);
  packet->port = static_cast<uint16_t>(qp.peer);
  if (payload_bytes <= kCopiedBytes) {
    copy_from_memory(frame + headers.size(), payload, payload_bytes);
    packet->data_len = static_cast<uint16_t>(headers.size() + payload_bytes);
    packet->pkt_len = packet->data_len;
  } else {
    payload_references.take(*region, qp.packets, 1);
    lend_payload(*packet, headers.size(), payload_bytes, {payload, region, qp.packets.count()});
  }
  return packet;
}

}  // namespace hostnic
