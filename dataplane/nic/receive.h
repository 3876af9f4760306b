// The short ways of dispatch, inline: for impl.h's functions that every packet goes through.
#pragma once

#include <rte_branch_prediction.h>

#include "dataplane/nic/flow_tag.h"
#include "dataplane/nic/impl.h"
#include "dataplane/nic/placement.h"

namespace hostnic {

// Whether a packet is of the connection that its queue pair has now.
[[gnu::always_inline]] inline bool Nic::Impl::from_peer_of(const QpContext& qp, Ipv4Address src_ip,
                                                           uint16_t src_port, bool answer) {
  return raw(src_ip) == qp.dest_ip &&
         (flow_tag(src_port) == (answer ? qp.incoming_response_tag : qp.incoming_request_tag) ||
          broken(Fault::dead_connection_heard));
}

// The same of RC, and that the queue pair is in a state in which nothing else matters.
[[gnu::always_inline]] inline bool Nic::Impl::accepts_from(const QpContext& qp, Ipv4Address src_ip,
                                                           uint16_t src_port, bool answer) {
  return qp.type == QpType::kRc && qp.state >= QpState::kRtr && qp.state != QpState::kErr &&
         from_peer_of(qp, src_ip, src_port, answer);
}

// What `p` says of one packet, or of several that belong together, is taken if they are what comes
// next, and nothing about them needs a packet. `p` is the last of them then. False: nothing has
// happened.
[[gnu::always_inline]] inline bool Nic::Impl::take_in_order(QpContext& qp, wire::Packet& p,
                                                            std::span<const std::byte> payload,
                                                            uint32_t packets) {
  ReceiveWindow& window = qp.requests.window;
  // What the first packet in RTR causes is the packet's business.
  const bool quiet = qp.state != QpState::kRtr || qp.comm_established;
  if (!quiet || qp.fatal || p.policy != settings.policy || congestion_experienced(p) ||
      window.has_hole() || window.classify(p.psn) != ReceiveWindow::Place::kExpected)
    return false;
  if (!place_write(qp, p, payload) &&
      execute(qp, p, payload, /*ahead=*/false).kind != RequestResult::kDone)
    return false;
  window.accept_in_order(packets);
  if (!p.more) ++qp.msn;
  if (unlikely(settings.policy == wire::Policy::kWholeMessage)) {
    for (uint32_t i = 0; i < packets; ++i)
      qp.messages.note(p.psn + i, i != 0 || p.cont, i + 1 != packets || p.more, p.attempt);
  }
  p.psn += packets - 1;
  qp.unacknowledged += packets;
  if (p.ack_request || qp.unacknowledged >= kAckEvery) owe_ack(qp, p, false);
  return true;
}

}  // namespace hostnic
