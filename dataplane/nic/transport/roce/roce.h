// SPDX-License-Identifier: BSD-3-Clause
// The standard's RC (InfiniBand 9.7, RoCEv2 annex A17), as the NIC does it: packets execute in
// order, are acknowledged by number, and repeated from where one is missing. What a transport must
// do is in transport/transport.h; docs/roce.md says what differs from the native one.
//
// The NIC's lcore.
#pragma once

#include <rte_mbuf.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "dataplane/nic/answers/answer_lines.h"
#include "dataplane/nic/counters.h"
#include "dataplane/nic/egress/egress.h"
#include "dataplane/nic/settings.h"
#include "dataplane/nic/transport/advance_list.h"
#include "dataplane/nic/transport/packetizer.h"
#include "dataplane/nic/transport/roce/answers.h"
#include "dataplane/nic/transport/roce/completer.h"
#include "dataplane/nic/transport/roce/responder.h"
#include "dataplane/nic/transport/transport.h"
#include "dataplane/nic/transport/transport_services.h"

namespace hostnic {

class RoceTransport : public TransportDefaults {
 public:
  explicit RoceTransport(const TransportServices& nic);

  // -- Packets that have arrived. They come in no trains.
  bool receive(QpContext& qp, const wire::Packet& p, rte_mbuf* packet);
  static std::optional<Psn> expected_psn(const QpContext& qp, const wire::Packet& p) {
    if (wire::is_response(p.opcode)) return {};
    return qp.requests.window.expected();
  }

  // -- What leaves.
  // Any range of a queue pair's PSNs may come again: the driver knows the order.
  bool start(QpContext& qp, const SendDescriptor& d) {
    if (qp.roce == nullptr || d.op == SendOp::kCreditNotify) return false;
    if ((d.flags & kSendRateChanged) != 0) completer_.count_rate_changes(qp);
    return true;
  }
  bool send_one(QpContext& qp, SendProgress& progress, bool& blocked);
  // Sends the next answer of a queue pair that is in line: its place is not a job's.
  AnswerStep serve_answers(QpContext& qp, uint32_t, const SendBudget&) {
    return answers_.serve(qp);
  }

  // -- The NIC's turn.
  // Lets answers go on whose time has come, and executes what is held and has its turn, of queue
  // pairs that had too much of it for one turn of the NIC. Returns how many of them executed
  // anything.
  uint32_t begin_turn();
  // Sends acknowledgements that are owed to peers. Returns how many.
  uint32_t end_turn() { return answers_.send_acks(); }
  // When answers go on that wait for their time.
  TimeNs next_deadline_ns() const { return answers_.next_deadline_ns(); }
  bool any_left() const { return !advance_list_.empty(); }
  bool any_to_send() const { return answers_.any_owed(); }
  size_t waiting() const { return std::max(answers_.waiting(), advance_list_.waiting()); }

  void connect(QpContext& qp);
  void quiesce(QpContext& qp);
  static void forget(QpContext& qp) { qp.roce.reset(); }
  static RefusedRequest refused_request(const QpContext& qp);
  static std::optional<DcqcnRate> answer_rate(const QpContext& qp, TimeNs now);

 private:
  bool skip_acknowledged(const QpContext& qp, SendProgress& progress) const;
  void note_congestion(QpContext& qp);

  const NicSettings& settings_;
  Egress& egress_;
  Packetizer& packetizer_;
  const TimeNs& now_;
  AdvanceList advance_list_;
  RoceAnswers answers_;
  RoceResponder responder_;
  RoceCompleter completer_;
};
static_assert(NicTransport<RoceTransport>);

}  // namespace hostnic
