// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/transport/hostnic/request_sender.h"

#include <algorithm>
#include <bit>

#include "dataplane/nic/memory/region_access.h"
#include "dataplane/nic/transport/hostnic/turn_packets.h"

namespace hostnic {
namespace {

// What is said of the buffers in which a descriptor's packets leave.
uint64_t flags_for(const SendDescriptor& d) {
  return external_flag() | ((d.flags & kSendRetransmit) != 0 ? resent_flag() : 0);
}

bool has_imm(SendOp op) { return op == SendOp::kWriteImm || op == SendOp::kSendImm; }

// The headers of a READ or an atomic.
void set_request(const SendDescriptor& d, wire::Packet& p) {
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

// The headers of a WRITE or SEND, of which `sent_bytes` have left before this packet.
void set_data(const SendDescriptor& d, uint32_t sent_bytes, wire::Packet& p) {
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
  p.imm_data = with_imm ? d.imm_data : 0;
  p.invalidate_rkey = with_inv ? d.imm_data : 0;
}

}  // namespace

// Returns the headers of the next packet.
wire::Packet RequestSender::next_packet(const QpContext& qp, const SendProgress& progress) const {
  const SendDescriptor& d = progress.descriptor;
  wire::Packet p = Packetizer::next_packet(qp, progress);
  p.policy = settings_.policy;
  p.attempt = d.attempt & 3;
  if (is_read_or_atomic(d.op)) {
    set_request(d, p);
  } else {
    set_data(d, progress.sent_bytes, p);
  }
  return p;
}

bool RequestSender::send_one(QpContext& qp, SendProgress& progress, bool& blocked) {
  const wire::Packet p = next_packet(qp, progress);
  const bool is_resolved = egress_.paths().prepare_flows(qp);
  egress_.paths().request_by(qp, progress.descriptor.path);
  const Leaving leaving = packetizer_.send(qp, progress, p, is_resolved);
  if (leaving != Leaving::kLeft) {
    blocked = leaving == Leaving::kBlocked;
    if (!blocked && !Completer::is_acknowledged(qp, p.psn))
      completer_.fail_send(qp, p.psn, progress.error);
    return false;
  }
  completer_.note_transmitted(qp, p, 1, repeat_cause_of(progress.descriptor));
  return Packetizer::note_progress(progress, 1, p.payload_bytes);
}

// Sends the next packets of a chunk, more than one of them, if its payload can be external. Returns
// how much of the budget they took; 0 where nothing of that kind comes next.
uint32_t RequestSender::send_several(QpContext& qp, SendProgress& progress,
                                     const SendBudget& budget) {
  const SendDescriptor& d = progress.descriptor;
  if (is_read_or_atomic(d.op) || (d.flags & kSendInline) != 0 ||
      qp.transport != Transport::kHostnic || progress.sge_index >= progress.sge_count ||
      !egress_.has_room(qp.peer))
    return 0;
  return egress_.sends_bundles(qp.peer) ? send_bundle(qp, progress, budget)
                                        : send_train(qp, progress, budget);
}

// Sends packets in the middle of a message, which differ in PSN and address only: the headers are
// built once and patched for each. Returns how many have left; 0 where nothing of that kind comes
// next.
uint32_t RequestSender::send_train(QpContext& qp, SendProgress& progress,
                                   const SendBudget& budget) {
  const SendDescriptor& d = progress.descriptor;
  if (progress.sent_packets == 0) return 0;
  const Sge& sge = progress.sges[progress.sge_index];
  // The shift stands for a division, because path MTUs are powers of two.
  const int mtu_shift = std::countr_zero(qp.mtu_bytes);
  const uint32_t in_sge = (sge.length_bytes - progress.sge_offset) >> mtu_shift;
  const uint32_t before_last = (d.length_bytes - progress.sent_bytes - 1) >> mtu_shift;
  const uint32_t count = std::min({budget.packets, budget.share.packets_left(mtu_shift),
                                   egress_.train_room(qp.peer), in_sge, before_last});
  if (count < 2) return 0;
  MemoryRegionEntry* region =
      placement_.local_region(qp.scope(), sge.lkey, sge.addr, sge.length_bytes, 0);
  const std::byte* payload =
      region == nullptr
          ? nullptr
          : mapped_address(*region, sge.addr + progress.sge_offset, count << mtu_shift);
  if (payload == nullptr || !egress_.paths().prepare_flows(qp)) return 0;
  egress_.paths().request_by(qp, d.path);
  wire::Packet p = next_packet(qp, progress);
  if (!egress_.emit_train(qp.peer, qp.request_flow, p, {payload, region, qp.packets.count()}, count,
                          flags_for(d)))
    return 0;
  completer_.note_transmitted(qp, p, count, repeat_cause_of(d));
  progress.sge_offset += count << mtu_shift;
  Packetizer::note_progress(progress, count, count << mtu_shift);
  return count;
}

// Sends as much of a chunk as lies in one piece of mapped memory and the budget allows. Returns how
// many packets that was; 0 where a bundle can't be made.
uint32_t RequestSender::send_bundle(QpContext& qp, SendProgress& progress,
                                    const SendBudget& budget) {
  const SendDescriptor& d = progress.descriptor;
  const Sge& sge = progress.sges[progress.sge_index];
  const int mtu_shift = std::countr_zero(qp.mtu_bytes);
  const uint32_t rest = d.length_bytes - progress.sent_bytes;
  const uint32_t in_sge = sge.length_bytes - progress.sge_offset;
  uint32_t count = in_sge >> mtu_shift;
  // Immediate data and a key to invalidate need a header that only the last packet has.
  const bool ends_plainly =
      d.op == SendOp::kWrite || d.op == SendOp::kSend || (d.flags & kSendMore);
  if (in_sge >= rest)
    count = ends_plainly ? (rest + qp.mtu_bytes - 1) >> mtu_shift : (rest - 1) >> mtu_shift;
  count = std::min(
      {count, budget.packets * kBundlePacketsPerTurnPacket, budget.share.packets_left(mtu_shift)});
  if (count < 2) return 0;
  const uint32_t bytes = std::min(rest, count << mtu_shift);
  MemoryRegionEntry* region =
      placement_.local_region(qp.scope(), sge.lkey, sge.addr, sge.length_bytes, 0);
  const std::byte* payload =
      region == nullptr ? nullptr : mapped_address(*region, sge.addr + progress.sge_offset, bytes);
  if (payload == nullptr || !egress_.paths().prepare_flows(qp)) return 0;
  egress_.paths().request_by(qp, d.path);
  const wire::Packet first = next_packet(qp, progress);
  const bool ends_chunk = bytes == rest, more = !ends_chunk || (d.flags & kSendMore) != 0;
  const BundleEnd end{.payload_bytes = static_cast<uint16_t>(bytes - ((count - 1) << mtu_shift)),
                      .more = more,
                      .ack_request = ends_chunk && (d.flags & kSendAckRequest) != 0,
                      .solicited = !more && (d.flags & kSendSolicited) != 0};
  if (!egress_.emit_bundle(qp.peer, qp.request_flow, first, count - 1, end,
                           {payload, region, qp.packets.count()}, flags_for(d)))
    return 0;
  completer_.note_transmitted(qp, {first.psn + (count - 1), first.attempt, end.ack_request}, count,
                              repeat_cause_of(d));
  progress.sge_offset += bytes;
  progress.active = Packetizer::note_progress(progress, count, bytes);
  return turn_packets(count);
}

}  // namespace hostnic
