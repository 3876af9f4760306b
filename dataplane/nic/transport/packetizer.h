// SPDX-License-Identifier: BSD-3-Clause
// From a descriptor to packets, and to the port: headers, and the payload gathered from where the
// work request says that it lies, without a copy where the port and the memory allow that
// (rule 31). All transports send by it.
//
// The NIC's lcore.
#pragma once

#include <rte_mbuf.h>

#include <algorithm>
#include <cstdint>
#include <span>

#include "dataplane/nic/client/client_state.h"
#include "dataplane/nic/counters.h"
#include "dataplane/nic/egress/egress.h"
#include "dataplane/nic/memory/placement.h"
#include "dataplane/nic/qp/qp_context.h"
#include "protocol/wire/packet.h"

namespace hostnic {

inline bool is_read_or_atomic(SendOp op) {
  return op == SendOp::kRead || op == SendOp::kCompareSwap || op == SendOp::kFetchAdd;
}

// What became of a packet that was to leave.
enum class Leaving : uint8_t {
  kLeft,     // or is lost, since nobody answers for its address
  kBlocked,  // there is no room, or no buffer, or its memory is not to be read now
  kFailed,   // `error` of its progress says why
};

class Packetizer {
 public:
  Packetizer(Egress& egress, Placement& placement, Counters& counters)
      : egress_(egress), placement_(placement), counters_(counters) {}

  // Returns what the headers of the next packet say in every transport: between which queue pairs,
  // its PSN, its place in the message and its length. Its transport adds opcode and extensions.
  static wire::Packet next_packet(const QpContext& qp, const SendProgress& progress);
  // Builds the packet with these headers. Returns null if there is no buffer now, or for
  // `progress.error`.
  rte_mbuf* build(QpContext& qp, SendProgress& progress, const wire::Packet& p) {
    return is_read_or_atomic(progress.descriptor.op)
               ? build_sent_small(qp, progress.descriptor, p, {}, egress_.pools().header)
               : build_data_packet(qp, progress, p);
  }
  // Builds the packet with these headers and has it leave towards the queue pair's peer.
  // `is_resolved`: its address is known.
  Leaving send(QpContext& qp, SendProgress& progress, const wire::Packet& p, bool is_resolved);
  // Notes that packets have left. Returns false if that was all of the descriptor.
  static bool note_progress(SendProgress& progress, uint32_t packets, uint32_t bytes);
  // Skips the payload of a packet that is lost before it is built: the payload of the next one lies
  // behind it all the same.
  static void pass_payload(SendProgress& progress, uint32_t bytes);

 private:
  bool may_attach_payload(const QpContext& qp) const;
  rte_mbuf* build_sent_small(QpContext& qp, const SendDescriptor& d, const wire::Packet& p,
                             std::span<const std::byte> payload, rte_mempool* pool);
  rte_mbuf* build_data_packet(QpContext& qp, SendProgress& progress, const wire::Packet& p);
  rte_mbuf* build_gathered(QpContext& qp, SendProgress& progress, const wire::Packet& p,
                           uint32_t part);

  Egress& egress_;
  Placement& placement_;
  Counters& counters_;
};

inline wire::Packet Packetizer::next_packet(const QpContext& qp, const SendProgress& progress) {
  const SendDescriptor& d = progress.descriptor;
  const uint32_t sent_packets = progress.sent_packets;
  wire::Packet p;
  p.dest_qpn = Qpn{qp.dest_qpn};
  p.src_qpn = Qpn{qp.qpn};
  p.psn = Psn(d.psn + sent_packets);
  const bool answered = is_read_or_atomic(d.op);
  const uint32_t rest = d.length_bytes - progress.sent_bytes;
  const uint32_t part = answered ? 0 : std::min<uint32_t>(qp.mtu_bytes, rest);
  const bool last = answered || part == rest;
  p.cont = (d.flags & kSendCont) != 0 || sent_packets != 0;
  p.more = (d.flags & kSendMore) != 0 || !last;
  p.ack_request = last && (d.flags & kSendAckRequest) != 0;
  p.solicited = !p.more && (d.flags & kSendSolicited) != 0;
  p.payload_bytes = static_cast<uint16_t>(part);
  return p;
}

[[gnu::always_inline]] inline Leaving Packetizer::send(QpContext& qp, SendProgress& progress,
                                                       const wire::Packet& p, bool is_resolved) {
  if (!is_resolved) {
    counters_.add(Counter::tx_unresolved);
    pass_payload(progress, p.payload_bytes);
    return Leaving::kLeft;
  }
  if (!egress_.has_room(qp.peer)) return Leaving::kBlocked;
  rte_mbuf* const packet = build(qp, progress, p);
  if (packet == nullptr) {
    if (progress.error != LocalError::kNone) return Leaving::kFailed;
    counters_.add(Counter::tx_no_buffer);
    return Leaving::kBlocked;
  }
  if (unlikely((progress.descriptor.flags & kSendRetransmit) != 0))
    packet->ol_flags |= resent_flag();
  egress_.emit(packet, qp.peer);
  return Leaving::kLeft;
}

}  // namespace hostnic
