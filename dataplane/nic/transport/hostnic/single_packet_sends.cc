// SPDX-License-Identifier: BSD-3-Clause
// Messages of one packet each, one behind the other in a client's ring: what costs as much for each
// of them as for the first is done once, for all of them or for all of a queue pair (its context,
// flow, headers, telling the driver).
#include <cstring>

#include "dataplane/memory/sigbus.h"
#include "dataplane/nic/memory/copy.h"
#include "dataplane/nic/memory/region_access.h"
#include "dataplane/nic/transport/hostnic/request_sender.h"
#include "protocol/wire/hostnic/segment_train.h"

namespace hostnic {
namespace {

// Payload shorter than this is copied behind its headers, not external: the copy costs less than
// the counting of references.
constexpr uint32_t kCopiedBytes = 256;

// Descriptors with these flags go packet by packet: what goes again has buffers of its own to fall
// back on.
constexpr uint8_t kElsewhere = kSendCont | kSendMore | kSendRetransmit;

// Whether a descriptor is a whole message, of bytes that lie in one place. Others go packet by
// packet.
inline bool is_single_packet(const SendDescriptor& d, uint32_t elements_behind) {
  if (d.op != SendOp::kWrite && d.op != SendOp::kSend) return false;
  if ((d.flags & kElsewhere) != 0 || d.length_bytes == 0) return false;
  if ((d.flags & kSendInline) != 0)
    return d.extra_elements <= elements_behind && d.length_bytes <= kCopiedBytes &&
           d.length_bytes <= d.extra_elements * sizeof(RingElement);
  return d.extra_elements == 0 && d.sge_count == 1 && d.sge0.length_bytes == d.length_bytes;
}

}  // namespace

// The message's bytes; null if they are not mapped in one piece, or not this queue pair's to send.
[[gnu::always_inline]] inline const std::byte* RequestSender::single_packet_payload(
    QpContext& qp, const SendDescriptor& d, const DescriptorQueue& queue,
    MemoryRegionEntry*& region) {
  if ((d.flags & kSendInline) != 0) return queue.behind_front()->bytes;
  region = placement_.local_region(qp.scope(), d.sge0.lkey, d.sge0.addr, d.length_bytes, 0);
  return region == nullptr ? nullptr : mapped_address(*region, d.sge0.addr, d.length_bytes);
}

// What single-packet sends of one turn have in common.
struct RequestSender::SinglePacketTurn {
  wire::Packet p;  // the last message that left as a packet of its own
  RequestBundleBuilder bundle;
  int asked_peer = -1;  // the peer that `bundles` is about
  bool bundles = false;
};

// Single-packet sends at the head of the queue that are one queue pair's, alike, and equally long.
struct RequestSender::SinglePacketRun {
  SinglePacketRun(QpContext& sender, Egress::OutputQueue& to, wire::Opcode what)
      : qp(sender), queue(to), opcode(what) {}  // leaves `headers` unset: zeroing them costs time

  QpContext& qp;
  Egress::OutputQueue& queue;
  const wire::Opcode opcode;
  uint32_t built = 0;  // packets built; the headers of the second are copied for those behind it
  size_t header_bytes = 0;
  alignas(16) std::array<std::byte, wire::kMaxHeaderBytes> headers;
  static_assert(wire::kMaxHeaderBytes >= wire::kMaxTrainHeaderBytes);
};

// RETH's length: a WRITE's is the packet's own, a SEND's the whole message's.
[[gnu::always_inline]] inline uint32_t reth_bytes(wire::Opcode opcode, const SendDescriptor& d) {
  return opcode == wire::Opcode::kWriteOnly ? d.length_bytes : d.message_bytes;
}

// Adds a request to the bundle; returns false if it can't follow those in it.
[[gnu::always_inline]] inline bool RequestSender::add_bundled_request(
    SinglePacketRun& run, RequestBundleBuilder& bundle, const SendDescriptor& d,
    const MappedPayload& payload) {
  QpContext& qp = run.qp;
  BundledRequest* const place =
      bundle.add(qp.peer, qp.request_flow, run.opcode, static_cast<uint16_t>(d.length_bytes));
  if (place == nullptr) return false;
  egress_.references().acquire(*payload.region, *payload.packets, 1);
  place->bytes = payload.bytes;
  place->region = payload.region;
  place->packets = payload.packets;
  place->dest_qpn = Qpn{qp.dest_qpn};
  place->src_qpn = run.opcode == wire::Opcode::kSend ? Qpn{qp.qpn} : Qpn{};
  place->psn = Psn(d.psn);
  place->reth.va = d.va;
  place->reth.key = d.key;
  place->reth.length_bytes = reth_bytes(run.opcode, d);
  place->attempt = d.attempt & 3;
  place->ack_request = (d.flags & kSendAckRequest) != 0;
  place->solicited = (d.flags & kSendSolicited) != 0;
  return true;
}

// Sends the message as a packet of its own, which others may follow in a bundle if its payload
// stays where it is. Returns false if there is no buffer.
[[gnu::always_inline]] inline bool RequestSender::send_single_packet(SinglePacketRun& run,
                                                                     SinglePacketTurn& turn,
                                                                     const SendDescriptor& d,
                                                                     const MappedPayload& payload) {
  QpContext& qp = run.qp;
  wire::Packet& p = turn.p;
  if (!turn.bundle.empty()) egress_.emit_open(turn.bundle);
  rte_mbuf* packet = rte_pktmbuf_alloc(egress_.pools().header);
  if (packet == nullptr) return false;
  if (run.built == 0) {
    p.opcode = run.opcode;
    p.dest_qpn = Qpn{qp.dest_qpn};
    p.src_qpn = Qpn{qp.qpn};
    p.payload_bytes = static_cast<uint16_t>(d.length_bytes);
    if (turn.asked_peer != qp.peer) {
      turn.asked_peer = qp.peer;
      turn.bundles = egress_.sends_bundles(qp.peer);
    }
  }
  p.psn = Psn(d.psn);
  p.attempt = d.attempt & 3;
  p.ack_request = (d.flags & kSendAckRequest) != 0;
  p.solicited = (d.flags & kSendSolicited) != 0;
  p.reth = {d.va, d.key, reth_bytes(p.opcode, d)};
  packet->port = static_cast<uint16_t>(qp.peer);
  auto* frame = rte_pktmbuf_mtod(packet, std::byte*);
  if (run.built == 0) {
    run.header_bytes = wire::build(qp.request_flow, p, false, {}, {frame, wire::kMaxHeaderBytes});
  } else {
    if (run.built == 1) wire::build(qp.request_flow, p, false, {}, run.headers);
    std::memcpy(frame, run.headers.data(), wire::kMaxTrainHeaderBytes);
    // The PSN is changed in the frame itself: a copy of headers that had just been written would
    // wait for the stores.
    wire::restep(p, {frame, wire::kMaxTrainHeaderBytes});
  }
  ++run.built;
  const bool leads = turn.bundles && payload.region != nullptr;
  if (p.payload_bytes <= kCopiedBytes && !leads) {
    copy_from_memory(frame + run.header_bytes, payload.bytes, p.payload_bytes);
    copy_is_void(payload.bytes, p.payload_bytes);
    packet->data_len = static_cast<uint16_t>(run.header_bytes + p.payload_bytes);
    packet->pkt_len = packet->data_len;
  } else {
    egress_.references().acquire(*payload.region, *payload.packets, 1);
    attach_payload(*packet, run.header_bytes, p.payload_bytes,
                   {payload.bytes, payload.region, payload.packets});
  }
  if (leads) {
    turn.bundle.begin(packet, qp.peer, qp.request_flow, p.opcode);
  } else {
    egress_.emit(packet, qp.peer, run.queue);
  }
  return true;
}

// Sends the run at the head of the queue. Returns how many have left.
[[gnu::always_inline]] inline uint32_t RequestSender::send_single_packet_run(
    ClientState& client, DescriptorQueue& queue, uint32_t budget, SinglePacketTurn& turn) {
  SendDescriptor d = queue.front();
  if (!is_single_packet(d, queue.waiting() - 1)) return 0;
  const uint32_t qpn = d.qpn, length_bytes = d.length_bytes;
  const SendOp op = d.op;
  if (const uint32_t ahead = queue.qpn_behind_front(kQpsAhead); ahead != qpn)
    qps_.prefetch(ahead, QpPart::kSends);
  QpContext* const qp = qps_.find(qpn);
  if (qp == nullptr || length_bytes > qp->mtu_bytes || !may_send(client, *qp)) return 0;
  SinglePacketRun run(*qp, egress_.queue_of(qp->peer),
                      op == SendOp::kWrite ? wire::Opcode::kWriteOnly : wire::Opcode::kSend);
  uint32_t done = 0;
  int32_t left_bytes = client.share.left_bytes();
  // The driver is told once, of the last packet that leaves; packets that ask for an ACK are noted
  // at once.
  Transmitted last;
  bool to_tell = false;
  while (done < budget && left_bytes > 0 && run.queue.has_room()) {
    MappedPayload payload{nullptr, nullptr, qp->packets.count()};
    payload.bytes = single_packet_payload(*qp, d, queue, payload.region);
    if (payload.bytes == nullptr) break;
    if (!(payload.region != nullptr && add_bundled_request(run, turn.bundle, d, payload)) &&
        !send_single_packet(run, turn, d, payload))
      break;
    ++done;
    left_bytes -= static_cast<int32_t>(length_bytes) + SendShare::kHeaderBytes;
    queue.pop(1u + d.extra_elements);
    last = {Psn(d.psn), static_cast<uint8_t>(d.attempt & 3), (d.flags & kSendAckRequest) != 0};
    to_tell = !last.ack_request;
    if (!to_tell) completer_.note_transmitted(*qp, last, 1, RepeatCause::kNone);
    if (queue.empty() || queue.qpn_behind_front(0) != qpn) break;
    d = queue.front();
    if (d.op != op || d.length_bytes != length_bytes || !is_single_packet(d, queue.waiting() - 1))
      break;
  }
  if (to_tell) completer_.note_transmitted(*qp, last, 1, RepeatCause::kNone);
  client.share.charge(done, done * length_bytes);
  qp->request_bytes += uint64_t{done} * length_bytes;
  return done;
}

// Sends from the queue, which must not be empty. Returns how many have left; 0 where something else
// comes first.
uint32_t RequestSender::send_single_packets(ClientState& client, DescriptorQueue& queue,
                                            uint32_t budget) {
  if (!egress_.allows_external_payload()) return 0;
  // Long messages return at once: they need not wait for what several single-packet sends have in
  // common.
  if (queue.front_length_bytes() > settings_.mtu_bytes) return 0;
  SinglePacketTurn turn;
  turn.p.policy = settings_.policy;
  uint32_t done = 0, more = 0;
  do {
    more = send_single_packet_run(client, queue, budget - done, turn);
    done += more;
  } while (more != 0 && done < budget && !queue.empty());
  if (!turn.bundle.empty()) egress_.emit_open(turn.bundle);
  counters_.add(Counter::descriptors, done);
  return done;
}

}  // namespace hostnic
