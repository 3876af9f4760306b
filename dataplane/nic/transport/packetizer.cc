// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/transport/packetizer.h"

#include <algorithm>
#include <cstring>

#include "dataplane/nic/memory/region_access.h"

namespace hostnic {

// Skips the payload of a packet that is lost before it is built: the next one's payload lies behind
// it all the same.
void Packetizer::pass_payload(SendProgress& progress, uint32_t bytes) {
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

// Returns false if that was all of the descriptor.
bool Packetizer::note_progress(SendProgress& progress, uint32_t packets, uint32_t bytes) {
  progress.sent_bytes += bytes;
  progress.sent_packets += packets;
  return !is_read_or_atomic(progress.descriptor.op) &&
         progress.sent_bytes != progress.descriptor.length_bytes;
}

// Retransmissions have buffers of their own to fall back on: data that waits for them to be
// acknowledged may occupy all the others (rule 33, nobody waits for another).
rte_mbuf* Packetizer::build_sent_small(QpContext& qp, const SendDescriptor& d,
                                       const wire::Packet& p, std::span<const std::byte> payload,
                                       rte_mempool* pool) {
  rte_mbuf* packet = egress_.build_small(qp.request_flow, p, {}, payload, pool);
  if (packet == nullptr && (d.flags & kSendRetransmit) != 0)
    packet = egress_.build_small(qp.request_flow, p, {}, payload, egress_.pools().resend);
  return packet;
}

// Attaches or copies the payload. Returns null if there is no buffer, or the memory is not to be
// read now, or the send failed (qp.send_failed).
rte_mbuf* Packetizer::build_data_packet(QpContext& qp, SendProgress& progress,
                                        const wire::Packet& p) {
  const SendDescriptor& d = progress.descriptor;
  const uint32_t part = p.payload_bytes;
  if ((d.flags & kSendInline) != 0) {
    return build_sent_small(qp, d, p, {progress.extra.data() + progress.sent_bytes, part},
                            egress_.pools().data);
  }
  if (part == 0) return build_sent_small(qp, d, p, {}, egress_.pools().header);
  while (progress.sge_index < progress.sge_count &&
         progress.sge_offset == progress.sges[progress.sge_index].length_bytes) {
    ++progress.sge_index;
    progress.sge_offset = 0;
  }
  if (may_attach_payload(qp) && progress.sge_index < progress.sge_count) {
    const Sge& sge = progress.sges[progress.sge_index];
    if (sge.length_bytes - progress.sge_offset >= part) {
      MemoryRegionEntry* region =
          placement_.local_region(qp.scope(), sge.lkey, sge.addr, sge.length_bytes, 0);
      const std::byte* payload =
          region == nullptr ? nullptr
                            : mapped_address(*region, sge.addr + progress.sge_offset, part);
      if (payload != nullptr) {
        rte_mbuf* packet =
            egress_.build_external(qp.request_flow, p, {payload, region, qp.packets.count()});
        if (packet != nullptr) progress.sge_offset += part;
        if (packet != nullptr || (d.flags & kSendRetransmit) == 0) return packet;
      }
    }
  }
  return build_gathered(qp, progress, p, part);
}

// Whether the payload may stay where it is: unreliable sends complete, and their memory is the
// program's again, before the peer has taken the packet, so theirs is copied (rule 31, external
// payload).
bool Packetizer::may_attach_payload(const QpContext& qp) const {
  return !egress_.adds_icrc() && qp.type == QpType::kRc;
}

// Builds a packet whose payload is copied behind the header: it comes from several places, or
// through the mem fd, or under an ICRC.
rte_mbuf* Packetizer::build_gathered(QpContext& qp, SendProgress& progress, const wire::Packet& p,
                                     uint32_t part) {
  rte_mbuf* packet = rte_pktmbuf_alloc(egress_.pools().data);
  if (packet == nullptr && (progress.descriptor.flags & kSendRetransmit) != 0)
    packet = rte_pktmbuf_alloc(egress_.pools().resend);
  if (packet == nullptr) return nullptr;
  auto* frame = rte_pktmbuf_mtod(packet, std::byte*);
  const size_t header_bytes =
      wire::build(qp.request_flow, p, egress_.adds_icrc(), {}, {frame, wire::kMaxHeaderBytes});
  std::byte* out = frame + header_bytes;
  uint32_t index = progress.sge_index, offset = progress.sge_offset;
  LocalError error = LocalError::kNone;
  bool not_now = false;
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
    MemoryRegionEntry* region =
        placement_.local_region(qp.scope(), sge.lkey, sge.addr, sge.length_bytes, 0);
    const MemoryAccess fetched =
        region == nullptr
            ? MemoryAccess::kGone
            : placement_.fetch(*region, sge.addr + offset, out, bytes, {&qp, p.psn.value()});
    not_now |= fetched == MemoryAccess::kNotNow;  // the other parts are asked for as well
    if (fetched == MemoryAccess::kGone) error = LocalError::kProtection;
    out += bytes;
    part -= bytes;
    offset += bytes;
  }
  if (error != LocalError::kNone) {
    rte_pktmbuf_free(packet);
    progress.error = error;
    return nullptr;
  }
  progress.waits_for_memory = not_now;
  if (not_now) {
    rte_pktmbuf_free(packet);
    return nullptr;
  }
  progress.sge_index = index;
  progress.sge_offset = offset;
  egress_.finish_linear(packet, p, header_bytes);
  return packet;
}

}  // namespace hostnic
