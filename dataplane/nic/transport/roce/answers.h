// SPDX-License-Identifier: BSD-3-Clause
// What a responder of the standard's RC owes its peer, in the order in which it must leave: answers
// of READs and atomics by their PSNs, and behind them the acknowledgement, or the NAK, which stands
// for everything before it (InfiniBand 9.7.5.1.1). Answers leave in their client's turn
// (AnswerLines), in which a queue pair that owes some has one place; acknowledgements that wait for
// none leave at the end of a turn of the NIC.
//
// Answers are copied when they leave: what comes behind a READ may execute before it has read, as
// the standard lets it unless the requester fences (InfiniBand 10.8.3.3).
//
// The NIC's lcore.
#pragma once

#include <rte_mbuf.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "dataplane/nic/answers/answer_lines.h"
#include "dataplane/nic/counters.h"
#include "dataplane/nic/egress/egress.h"
#include "dataplane/nic/memory/placement.h"
#include "dataplane/nic/qp/qp_context.h"
#include "dataplane/nic/qp/reports.h"
#include "dataplane/nic/qp/roce_connection.h"
#include "dataplane/nic/transport/transport_services.h"
#include "protocol/wire/packet.h"

namespace hostnic {

class RoceAnswers {
 public:
  explicit RoceAnswers(const TransportServices& nic);

  // Owes the peer an acknowledgement of everything before the expected PSN.
  void owe_ack(QpContext& qp);
  // Owes a NAK about the expected PSN, or if the queue pair is `fatal` the one that it remembers.
  void owe_nak(QpContext& qp, wire::AckKind kind);
  // Owes answers. Returns false if too many wait already.
  bool owe_answers(QpContext& qp, const RoceAnswer& answer);
  // Ends the connection by a NAK about `psn`, and the queue pair of this end by its driver.
  void refuse(QpContext& qp, Psn psn, wire::NakCode code, uint32_t event);
  // Tells the peer that the network is congested.
  bool notify_congestion(QpContext& qp);

  // Takes the peer's notification that the network is congested: answers leave more slowly.
  void slow_down(QpContext& qp);

  // Puts queue pairs back in line whose rate has kept answers waiting until now.
  void resume();
  // Sends the next answer of a queue pair that is in line.
  AnswerStep serve(QpContext& qp);
  // Sends acknowledgements that wait for no answer. Returns how many.
  uint32_t send_acks();
  void forget(QpContext& qp);
  // Whether send_acks() may have something to send now.
  bool any_owed() const { return !acks_owed_.empty(); }
  // When resume() has something to do; UINT64_MAX: nothing waits for its rate.
  TimeNs next_deadline_ns() const { return next_by_rate_ns_; }
  size_t waiting() const { return std::max(acks_owed_.size(), waiting_for_rate_.size()); }

 private:
  enum class Sent : uint8_t { kYes, kNoRoom, kNever };

  void add(QpContext& qp);
  void wait_for_rate(QpContext& qp);
  bool rate_allows(RoceConnection& connection);
  void count_recoveries(RoceConnection& connection);
  Sent send_answer(QpContext& qp, RoceAnswer& answer, uint32_t& payload_bytes);
  rte_mbuf* build_read_answer(QpContext& qp, const RoceAnswer& answer, const wire::Packet& p,
                              bool& gone);
  bool send_ack(QpContext& qp);

  Egress& egress_;
  Placement& placement_;
  Reports& reports_;
  Counters& counters_;
  const TimeNs& now_;
  AnswerLines& lines_;
  std::vector<QpContext*> acks_owed_;         // none of them owes answers
  std::vector<QpContext*> waiting_for_rate_;  // they owe answers, and are not in line
  TimeNs next_by_rate_ns_ = UINT64_MAX;
};

}  // namespace hostnic
