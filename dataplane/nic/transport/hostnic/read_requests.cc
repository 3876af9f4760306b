// SPDX-License-Identifier: BSD-3-Clause
// READ requests, one behind the other in a client's ring: where bundles travel (bundle.h) those to
// one peer share buffers, whichever queue pairs' they are.
#include "dataplane/nic/transport/hostnic/request_sender.h"

namespace hostnic {
namespace {

// Whether the descriptor is a pull that goes for the first time. Other pulls go packet by packet:
// what goes again has buffers of its own to fall back on.
bool is_first_pull(const SendDescriptor& d) {
  constexpr uint8_t kElsewhere = kSendCont | kSendMore | kSendInline | kSendRetransmit;
  return d.op == SendOp::kRead && (d.flags & kElsewhere) == 0 && d.extra_elements == 0 &&
         d.length_bytes <= kMaxChunkBytes;
}

}  // namespace

// Adds a READ request to the bundle, or begins another with it. Returns false if there is no
// buffer.
[[gnu::always_inline]] inline bool RequestSender::add_read_request(QpContext& qp,
                                                                   ReadBundleBuilder& bundle,
                                                                   const SendDescriptor& d) {
  const wire::ReadEth read{.read_number = d.recv_sn,
                           .first_response_psn = Psn(d.first_response_psn),
                           .epoch = d.epoch,
                           .offset_bytes = d.read_offset_bytes,
                           .length_bytes = d.length_bytes};
  const wire::Reth reth{d.va, d.key, d.message_bytes};
  const bool ack_request = (d.flags & kSendAckRequest) != 0;
  const bool solicited = (d.flags & kSendSolicited) != 0;
  if (BundledRead* const place = bundle.add(qp.peer, qp.request_flow)) {
    place->dest_qpn = Qpn{qp.dest_qpn};
    place->src_qpn = Qpn{qp.qpn};
    place->psn = Psn(d.psn);
    place->attempt = d.attempt & 3;
    place->ack_request = ack_request;
    place->solicited = solicited;
    place->reth = reth;
    place->read = read;
    return true;
  }
  if (!bundle.empty()) egress_.emit_open(bundle);
  wire::Packet p;
  p.opcode = wire::Opcode::kReadRequest;
  p.policy = settings_.policy;
  p.dest_qpn = Qpn{qp.dest_qpn};
  p.src_qpn = Qpn{qp.qpn};
  p.psn = Psn(d.psn);
  p.attempt = d.attempt & 3;
  p.ack_request = ack_request;
  p.solicited = solicited;
  p.reth = reth;
  p.read = read;
  rte_mbuf* packet = egress_.build_small(qp.request_flow, p, {}, {}, egress_.pools().header);
  if (packet == nullptr) return false;
  bundle.begin(packet, qp.peer, qp.request_flow);
  return true;
}

// Returns how many have left; 0 where something else comes first.
uint32_t RequestSender::send_read_requests(ClientState& client, DescriptorQueue& queue,
                                           uint32_t budget) {
  ReadBundleBuilder bundle;
  uint32_t done = 0;
  while (done < budget && !queue.empty() && !client.share.spent()) {
    const SendDescriptor d = queue.front();
    if (!is_first_pull(d)) break;
    if (const uint32_t ahead = queue.qpn_behind_front(kQpsAhead); ahead != d.qpn)
      qps_.prefetch(ahead, QpPart::kSends);
    QpContext* const qp = qps_.find(d.qpn);
    if (qp == nullptr || !may_send(client, *qp) || !egress_.sends_bundles(qp->peer) ||
        !egress_.has_room(qp->peer))
      break;
    if (!add_read_request(*qp, bundle, d)) break;
    completer_.begin_pull(*qp, d);
    completer_.note_transmitted(*qp,
                                Transmitted{Psn(d.psn), static_cast<uint8_t>(d.attempt & 3),
                                            (d.flags & kSendAckRequest) != 0},
                                1, RepeatCause::kNone);
    queue.pop(1);
    client.share.charge(1, 0);
    qp->request_bytes += d.length_bytes;
    ++done;
  }
  if (!bundle.empty()) egress_.emit_open(bundle);
  counters_.add(Counter::descriptors, done);
  return done;
}

}  // namespace hostnic
