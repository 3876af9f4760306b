// Descriptors become packets. The payload of the in-process wire is not copied but external, in
// the mapped memory region (rule 31 says when it must not).
#include <algorithm>
#include <bit>
#include <cstring>

#include "dataplane/nic/impl.h"
#include "dataplane/nic/output.h"
#include "dataplane/nic/placement.h"
#include "dataplane/nic/region_access.h"
#include "protocol/wire/multicast.h"

namespace hostnic {
namespace {

bool is_read_or_atomic(SendOp op) {
  return op == SendOp::kRead || op == SendOp::kCompareSwap || op == SendOp::kFetchAdd;
}

bool has_imm(SendOp op) { return op == SendOp::kWriteImm || op == SendOp::kSendImm; }

// What the client may never hand over, whatever the state of its QPs.
bool plausible(const SendDescriptor& d) {
  if (d.op < SendOp::kWrite || d.op > SendOp::kSendInv) return false;
  if (d.op == SendOp::kCreditNotify) return d.extra_elements == 0;
  if (d.length_bytes > kMaxChunkBytes) return false;
  if (is_read_or_atomic(d.op)) return d.extra_elements == 0;
  if ((d.flags & kSendInline) != 0) return d.length_bytes <= d.extra_elements * sizeof(RingElement);
  return d.sge_count <= kMaxSge && d.sge_count <= 1 + d.extra_elements * kSgesPerElement;
}

bool is_dropped(const ClientState& client) {
  return client.channel->dropped.load(std::memory_order_relaxed) != DropReason::kNone;
}

}  // namespace

uint32_t Nic::Impl::transmit_turn() {
  uint32_t built = 0;
  const auto count = static_cast<uint32_t>(served.size());
  if (next_client >= count) next_client = 0;
  for (uint32_t i = 0; i < count; ++i) {
    built += transmit_client(*served[(next_client + i) % count]);
  }
  if (count != 0) next_client = (next_client + 1) % count;
  return built;
}

uint32_t Nic::Impl::transmit_client(ClientState& client) {
  if (is_dropped(client)) return 0;
  ClientChannel& channel = *client.channel;
  const uint32_t urgent =
      transmit_ring(client, {channel.urgent, client.urgents, client.urgent}, kTxBudget);
  // A chunk in the middle of the normal ring's turn never holds up retransmissions: the rings keep
  // separate progress.
  return urgent + transmit_ring(client, {channel.sends, client.sends, client.normal}, kTxBudget);
}

// Whether the queue has so many elements, from the ring if need be. False: the client may have been
// dropped.
[[gnu::always_inline]] inline bool Nic::Impl::has_elements(ClientState& client,
                                                           const SendSource& source,
                                                           uint32_t elements) {
  bool bad_position = false;
  if (source.queue.fetch(source.ring, elements, bad_position)) return true;
  if (bad_position) drop_client(client, DropReason::kRingPosition);
  return false;
}

uint32_t Nic::Impl::transmit_ring(ClientState& client, const SendSource& source, uint32_t budget) {
  SendProgress& progress = source.progress;
  uint32_t done = 0;
  while (done < budget) {
    if (!progress.active) {
      if (!has_elements(client, source, 1)) break;
      const uint32_t small = source.queue.front_op() == SendOp::kRead
                                 ? send_read_requests(client, source.queue, budget - done)
                                 : send_single_packets(client, source.queue, budget - done);
      done += small;
      if (small != 0) continue;
      if (!take_descriptor(client, source)) break;
      if (!progress.active) {
        ++done;
        continue;
      }
    }
    QpContext* qp = find_qp(progress.descriptor.qpn);
    if (qp != nullptr) {
      const uint32_t several = send_several(*qp, progress, budget - done);
      done += several;
      if (several != 0) continue;
    }
    ++done;
    bool blocked = false;
    if (qp == nullptr || !send_one_packet(*qp, progress, blocked)) {
      if (blocked) break;
      progress.active = false;
    }
  }
  return done;
}

// Takes the next descriptor, which is there, and its continuation elements. False: the client was
// dropped.
bool Nic::Impl::take_descriptor(ClientState& client, const SendSource& source) {
  SendProgress& progress = source.progress;
  SendDescriptor& d = progress.descriptor;
  counters.add(Counter::descriptors);
  d = source.queue.front();
  if (d.extra_elements > kMaxExtraElements || !plausible(d) ||
      !has_elements(client, source, 1u + d.extra_elements)) {
    if (!is_dropped(client)) drop_client(client, DropReason::kBadDescriptor);
    return false;
  }
  std::memcpy(progress.extra.data(), source.queue.behind_front(),
              d.extra_elements * sizeof(RingElement));
  source.queue.pop(1u + d.extra_elements);
  QpContext* qp = find_qp(d.qpn);
  if (qp == nullptr || qp->client != client.channel) {
    counters.add(Counter::descriptors_discarded);
    return true;
  }
  if (d.op == SendOp::kCreditNotify) {
    credit_posted(*qp);
    return true;
  }
  if (!start_descriptor(progress, *qp)) counters.add(Counter::descriptors_discarded);
  return true;
}

// False: this QP may not send; the descriptor is dropped.
bool Nic::Impl::start_descriptor(SendProgress& progress, QpContext& qp) {
  const SendDescriptor& d = progress.descriptor;
  if (qp.state != QpState::kRts && qp.state != QpState::kSqd) return false;
  if (qp.send_failed && distance(qp.send_failed_psn, Psn(d.psn)) >= 0) return false;
  if (qp.type != QpType::kRc && !may_send_unreliable(qp, d)) return false;
  if (is_read_or_atomic(d.op)) {
    begin_pull(qp, d);
  } else if ((d.flags & kSendInline) == 0) {
    progress.sge_count = d.sge_count;
    if (d.sge_count != 0) progress.sges[0] = d.sge0;
    if (d.sge_count > 1)
      std::memcpy(&progress.sges[1], progress.extra.data(), (d.sge_count - 1u) * sizeof(Sge));
  }
  progress.sent_bytes = progress.sent_packets = 0;
  progress.sge_index = progress.sge_offset = 0;
  progress.needless = false;
  progress.active = true;
  return true;
}

// The headers of the next packet.
wire::Packet Nic::Impl::next_packet(const QpContext& qp, const SendProgress& progress) const {
  const SendDescriptor& d = progress.descriptor;
  const uint32_t sent_packets = progress.sent_packets, sent_bytes = progress.sent_bytes;
  wire::Packet p;
  p.dest_qpn = Qpn{qp.dest_qpn};
  p.src_qpn = Qpn{qp.qpn};
  p.policy = settings.policy;
  p.attempt = d.attempt & 3;
  p.psn = Psn(d.psn + sent_packets);
  const bool answered = is_read_or_atomic(d.op);
  const uint32_t rest = d.length_bytes - sent_bytes;
  const uint32_t part = answered ? 0 : std::min<uint32_t>(qp.mtu_bytes, rest);
  const bool last = answered || part == rest;
  p.cont = (d.flags & kSendCont) != 0 || sent_packets != 0;
  p.more = (d.flags & kSendMore) != 0 || !last;
  p.ack_request = last && (d.flags & kSendAckRequest) != 0;
  p.solicited = !p.more && (d.flags & kSendSolicited) != 0;
  p.payload_bytes = static_cast<uint16_t>(part);
  if (answered) {
    set_request(d, p);
  } else {
    set_data(qp, d, sent_bytes, p);
  }
  return p;
}

void Nic::Impl::set_request(const SendDescriptor& d, wire::Packet& p) {
  p.read = {d.recv_sn, Psn(d.first_response_psn), d.epoch, 0, d.length_bytes};
  if (d.op == SendOp::kRead) {
    p.opcode = wire::Opcode::kReadRequest;
    p.reth = {d.va, d.key, d.message_bytes};
    p.read.offset_bytes = d.read_offset_bytes;
  } else {
    p.opcode = d.op == SendOp::kCompareSwap ? wire::Opcode::kCompareSwap : wire::Opcode::kFetchAdd;
    p.atomic = {d.va, d.key, d.atomic.swap_or_add, d.atomic.compare};
  }
}

void Nic::Impl::set_data(const QpContext& qp, const SendDescriptor& d, uint32_t sent_bytes,
                         wire::Packet& p) const {
  const bool with_imm = has_imm(d.op) && !p.more, with_inv = d.op == SendOp::kSendInv && !p.more;
  if (d.op == SendOp::kWrite || d.op == SendOp::kWriteImm) {
    p.opcode = with_imm ? wire::Opcode::kWriteImm : wire::Opcode::kWriteOnly;
    p.reth = {d.va + sent_bytes, d.key, p.payload_bytes};
    p.recv_sn = d.recv_sn;
    p.message_bytes = d.message_bytes;
  } else {
    p.opcode = with_imm   ? wire::Opcode::kSendImm
               : with_inv ? wire::Opcode::kSendInv
                          : wire::Opcode::kSend;
    p.reth = {d.va + sent_bytes, d.key, d.message_bytes};
  }
  if (qp.type != QpType::kRc) set_unreliable_opcode(qp, d, p);
  p.imm_data = with_imm ? d.imm_data : 0;
  p.invalidate_rkey = with_inv ? d.imm_data : 0;
}

// Of a packet that is lost before it is built: the next one's payload lies behind it all the same.
void Nic::Impl::pass_payload(SendProgress& progress, uint32_t bytes) {
  if (broken(Fault::lost_payload_sent_later)) return;
  while (bytes != 0 && progress.sge_index < progress.sge_count) {
    const uint32_t in_sge = progress.sges[progress.sge_index].length_bytes - progress.sge_offset;
    const uint32_t part = std::min(bytes, in_sge);
    bytes -= part;
    progress.sge_offset += part;
    if (part == in_sge) {
      ++progress.sge_index;
      progress.sge_offset = 0;
    }
  }
}

// False: the descriptor is finished (or failed), or `blocked` by the port or missing buffers.
bool Nic::Impl::send_one_packet(QpContext& qp, SendProgress& progress, bool& blocked) {
  const SendDescriptor& d = progress.descriptor;
  const wire::Packet p = next_packet(qp, progress);
  if (!(qp.type == QpType::kUd ? prepare_datagram(qp, d) : prepare_flows(qp))) {
    counters.add(Counter::tx_unresolved);
    pass_payload(progress, p.payload_bytes);
  } else if (qp.type == QpType::kUd && wire::is_multicast(Ipv4Address{qp.dest_ip})) {
    if (!send_to_group(qp, progress, p, blocked)) return false;
  } else if (!has_room(qp.peer)) {
    blocked = true;
    return false;
  } else {
    rte_mbuf* packet = build_packet(qp, progress, p, blocked);
    if (packet == nullptr) return false;
    emit(packet, qp.peer, p);
  }
  note_transmitted(qp, p, 1, (d.flags & kSendRetransmit) != 0);
  return note_progress(progress, 1, p.payload_bytes);
}

// Null: `blocked` by missing buffers, or the send failed or is needless.
rte_mbuf* Nic::Impl::build_packet(QpContext& qp, SendProgress& progress, const wire::Packet& p,
                                  bool& blocked) {
  const SendDescriptor& d = progress.descriptor;
  rte_mbuf* packet = is_read_or_atomic(d.op) ? build_sent_small(qp, d, p, {}, pools.header)
                                             : build_data_packet(qp, progress, p);
  if (packet == nullptr) {
    blocked = !progress.needless && !(qp.send_failed && distance(qp.send_failed_psn, p.psn) >= 0);
    if (blocked) counters.add(Counter::tx_no_buffer);
  }
  return packet;
}

// False: that was all of the descriptor.
bool Nic::Impl::note_progress(SendProgress& progress, uint32_t packets, uint32_t bytes) {
  progress.sent_bytes += bytes;
  progress.sent_packets += packets;
  return !is_read_or_atomic(progress.descriptor.op) &&
         progress.sent_bytes != progress.descriptor.length_bytes;
}

// The next packets of a chunk, more than one of them, if its payload can be external. Returns what
// of the budget they took, 0 where nothing of that kind comes next.
uint32_t Nic::Impl::send_several(QpContext& qp, SendProgress& progress, uint32_t budget) {
  const SendDescriptor& d = progress.descriptor;
  if (is_read_or_atomic(d.op) || (d.flags & kSendInline) != 0 || qp.type != QpType::kRc ||
      progress.sge_index >= progress.sge_count ||
      outputs[static_cast<size_t>(qp.peer)].count >= kOutputRoom)
    return 0;
  return sends_bundles(qp.peer) ? send_bundle(qp, progress, budget)
                                : send_train(qp, progress, budget);
}

// The packets in the middle of a message differ in PSN and address only: the headers are built once
// and patched for each. Returns how many have left, 0 where nothing of that kind comes next.
uint32_t Nic::Impl::send_train(QpContext& qp, SendProgress& progress, uint32_t budget) {
  const SendDescriptor& d = progress.descriptor;
  if (progress.sent_packets == 0) return 0;
  const Sge& sge = progress.sges[progress.sge_index];
  // Path MTUs are powers of two.
  const int mtu_shift = std::countr_zero(qp.mtu_bytes);
  const uint32_t in_sge = (sge.length_bytes - progress.sge_offset) >> mtu_shift;
  const uint32_t before_last = (d.length_bytes - progress.sent_bytes - 1) >> mtu_shift;
  const uint32_t count = std::min({budget, train_room(qp.peer), in_sge, before_last});
  if (count < 2) return 0;
  MemoryRegionEntry* region = local_region(qp, qp.pd, sge.lkey, sge.addr, sge.length_bytes, 0);
  const std::byte* payload =
      region == nullptr
          ? nullptr
          : mapped_address(*region, sge.addr + progress.sge_offset, count << mtu_shift);
  if (payload == nullptr || !prepare_flows(qp)) return 0;
  wire::Packet p = next_packet(qp, progress);
  if (!emit_train(qp, qp.request_flow, p, {payload, region, qp.packets.count()}, count)) return 0;
  note_transmitted(qp, p, count, (d.flags & kSendRetransmit) != 0);
  progress.sge_offset += count << mtu_shift;
  note_progress(progress, count, count << mtu_shift);
  return count;
}

// Retransmissions have buffers of their own to fall back on: data that waits for them to be
// acknowledged may hold all the others (rule 33).
rte_mbuf* Nic::Impl::build_sent_small(QpContext& qp, const SendDescriptor& d, const wire::Packet& p,
                                      std::span<const std::byte> payload, rte_mempool* pool) {
  rte_mbuf* packet = build_small(qp.request_flow, p, {}, payload, pool);
  if (packet == nullptr && (d.flags & kSendRetransmit) != 0)
    packet = build_small(qp.request_flow, p, {}, payload, pools.resend);
  return packet;
}

// Attaches or copies the payload. Null: no buffer, or the memory is not to be read now, or the send
// failed (qp.send_failed).
rte_mbuf* Nic::Impl::build_data_packet(QpContext& qp, SendProgress& progress,
                                       const wire::Packet& p) {
  const SendDescriptor& d = progress.descriptor;
  const uint32_t part = p.payload_bytes;
  if ((d.flags & kSendInline) != 0) {
    return build_sent_small(qp, d, p, {progress.extra.data() + progress.sent_bytes, part},
                            pools.data);
  }
  if (part == 0) return build_sent_small(qp, d, p, {}, pools.header);
  while (progress.sge_index < progress.sge_count &&
         progress.sge_offset == progress.sges[progress.sge_index].length_bytes) {
    ++progress.sge_index;
    progress.sge_offset = 0;
  }
  if (may_attach_payload(qp) && progress.sge_index < progress.sge_count) {
    const Sge& sge = progress.sges[progress.sge_index];
    if (sge.length_bytes - progress.sge_offset >= part) {
      MemoryRegionEntry* region = local_region(qp, qp.pd, sge.lkey, sge.addr, sge.length_bytes, 0);
      const std::byte* payload =
          region == nullptr ? nullptr
                            : mapped_address(*region, sge.addr + progress.sge_offset, part);
      if (payload != nullptr) {
        rte_mbuf* packet =
            build_external(qp.request_flow, p, {payload, region, qp.packets.count()});
        if (packet != nullptr) progress.sge_offset += part;
        if (packet != nullptr || (d.flags & kSendRetransmit) == 0) return packet;
      }
    }
  }
  return build_gathered(qp, progress, p, part);
}

// Unreliable sends complete, and their memory is the program's again, before the peer has taken the
// packet: these are copied (rule 31).
bool Nic::Impl::may_attach_payload(const QpContext& qp) const {
  return !adds_icrc && qp.type == QpType::kRc;
}

// Payload from several places, through the mem fd, or under an ICRC: copied behind the header.
rte_mbuf* Nic::Impl::build_gathered(QpContext& qp, SendProgress& progress, const wire::Packet& p,
                                    uint32_t part) {
  rte_mbuf* packet = rte_pktmbuf_alloc(pools.data);
  if (packet == nullptr && (progress.descriptor.flags & kSendRetransmit) != 0)
    packet = rte_pktmbuf_alloc(pools.resend);
  if (packet == nullptr) return nullptr;
  auto* frame = rte_pktmbuf_mtod(packet, std::byte*);
  const size_t header_bytes =
      wire::build(qp.request_flow, p, adds_icrc, {}, {frame, wire::kMaxHeaderBytes});
  std::byte* out = frame + header_bytes;
  uint32_t index = progress.sge_index, offset = progress.sge_offset;
  LocalError error = LocalError::kNone;
  while (part != 0 && error == LocalError::kNone) {
    if (index == progress.sge_count) {
      error = LocalError::kLength;
      break;
    }
    const Sge& sge = progress.sges[index];
    const uint32_t bytes = std::min(part, sge.length_bytes - offset);
    if (bytes == 0) {
      ++index;
      offset = 0;
      continue;
    }
    MemoryRegionEntry* region = local_region(qp, qp.pd, sge.lkey, sge.addr, sge.length_bytes, 0);
    const MemoryAccess fetched =
        region == nullptr ? MemoryAccess::kGone : fetch(*region, sge.addr + offset, out, bytes);
    if (fetched == MemoryAccess::kNotNow) {
      rte_pktmbuf_free(packet);
      return nullptr;
    }
    if (fetched == MemoryAccess::kGone) error = LocalError::kProtection;
    out += bytes;
    part -= bytes;
    offset += bytes;
  }
  if (error != LocalError::kNone) {
    rte_pktmbuf_free(packet);
    if (is_acknowledged(qp, p.psn)) {
      progress.needless = true;
    } else {
      fail_send(qp, p.psn, error);
    }
    return nullptr;
  }
  progress.sge_index = index;
  progress.sge_offset = offset;
  finish_linear(packet, p, header_bytes);
  return packet;
}

// Whether the driver knows that the peer has the request's packet: its work request may be complete
// then, and its memory deregistered, while a repetition that turned out to be needless still waits
// here. The driver's word counts, and not the NIC's own: answers acknowledge, too.
bool Nic::Impl::is_acknowledged(const QpContext& qp, Psn psn) {
  if (broken(Fault::late_repetition_fails)) return false;
  return qp.type == QpType::kRc &&
         before(psn, Psn(qp.status->acknowledged_psn.load(std::memory_order_acquire)));
}

// A local error: the driver learns the PSN, everything at or after it is discarded until RESET
// (rule 28).
void Nic::Impl::fail_send(QpContext& qp, Psn psn, LocalError error) {
  if (qp.send_failed && distance(qp.send_failed_psn, psn) >= 0) return;
  qp.send_failed = true;
  qp.send_failed_psn = psn;
  if (qp.type != QpType::kRc) settle_unreliable(qp, psn);  // what has left before it is complete
  QpStatusUpdate update(*qp.status);
  qp.status->local_error = static_cast<uint32_t>(error);
  qp.status->local_error_psn = psn.value();
  report(qp);
}

}  // namespace hostnic
