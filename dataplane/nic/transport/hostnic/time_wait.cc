// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/transport/hostnic/time_wait.h"

namespace hostnic {

void TimeWait::enter(QpContext& qp) {
  const bool acknowledges =
      qp.type == QpType::kRc && qp.state >= QpState::kRtr && qp.state != QpState::kErr && !qp.fatal;
  // A peer that could never be addressed has heard nothing, and so could have lost nothing.
  if (!acknowledges || !egress_.paths().prepare_flows(qp)) return;
  table_.add({.qpn = qp.qpn,
              .dest_qpn = qp.dest_qpn,
              .dest_ip = qp.dest_ip,
              .peer = qp.peer,
              .incoming_request_tag = qp.incoming_request_tag,
              .response_flow = qp.response_flow,
              .base = acks_.base(qp),
              .msn = qp.msn,
              .recv_sn_limit = qp.recv_next_sn,
              .until_ns = now_ + TimeWaitTable::kRememberNs,
              .answered_ns = 0});
}

// Answers a request for a queue pair that is not there any more, or not in that connection. Returns
// true if the request had arrived before, and the peer has been told. READs and atomics are not
// answered: the memory or result that they wait for is gone. Nor is anything that had not arrived:
// nobody is there to take it.
bool TimeWait::answer(const wire::Packet& p) {
  const wire::OpcodeInfo& info = wire::opcode_info(p.opcode);
  if (!info.is_request || info.has_read_eth) return false;
  TimeWaitConnection* c = table_.find(p, now_);
  if (c == nullptr || !before(p.psn, c->base)) return false;
  counters_.add(Counter::duplicate_request);
  if (c->answered_ns == now_) return true;
  c->answered_ns = now_;

  wire::Packet ack = acks_.make_ack(c->dest_qpn, c->qpn, c->base, c->msn);
  ack.sack.has_credit = true;
  ack.sack.recv_sn_limit = c->recv_sn_limit;
  rte_mbuf* packet =
      egress_.has_room_for_ack(c->peer)
          ? egress_.build_small(c->response_flow, ack, {}, {}, egress_.pools().control)
          : nullptr;
  counters_.add(packet != nullptr ? Counter::time_wait_acks_sent : Counter::acks_dropped);
  if (packet != nullptr) egress_.emit(packet, c->peer);
  return true;
}

}  // namespace hostnic
