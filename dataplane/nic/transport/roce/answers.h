// SPDX-License-Identifier: BSD-3-Clause
// What a responder of the standard's RC owes its peer, in the order in which it must leave: answers
// of READs and atomics by their PSNs, and behind them the acknowledgement, or the NAK, which stands
// for everything before it (InfiniBand 9.7.5.1.1).
//
// Answers are copied when they leave: what comes behind a READ may execute before it has read, as
// the standard lets it unless the requester fences (InfiniBand 10.8.3.3).
//
// The NIC's lcore.
#pragma once

#include <rte_mbuf.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "dataplane/nic/counters.h"
#include "dataplane/nic/egress/egress.h"
#include "dataplane/nic/memory/placement.h"
#include "dataplane/nic/qp/qp_context.h"
#include "dataplane/nic/qp/reports.h"
#include "dataplane/nic/qp/roce_connection.h"
#include "dataplane/nic/settings.h"
#include "protocol/wire/packet.h"

namespace hostnic {

class RoceAnswers {
 public:
  struct Parts {
    const NicSettings& settings;
    Egress& egress;
    Placement& placement;
    Reports& reports;
    Counters& counters;
    const TimeNs& now;
  };
  explicit RoceAnswers(const Parts& parts);

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

  // Sends what is owed, as much as a turn may. Returns how many packets have left.
  uint32_t serve();
  void forget(QpContext& qp);
  // Whether serve() may have something to send now.
  bool any_owed() const { return list_.size() > waiting_for_rate_; }
  // When it may send what waits by its rate; UINT64_MAX: nothing does.
  TimeNs next_deadline_ns() const { return next_by_rate_ns_; }
  size_t waiting() const { return list_.size(); }

 private:
  enum class Sent : uint8_t { kYes, kNoRoom, kNever };
  enum class Served : uint8_t { kAll, kNotAll, kWaitsForRate };

  void add(QpContext& qp);
  Served serve_qp(QpContext& qp, uint32_t& budget);
  bool rate_allows(RoceConnection& connection);
  void count_recoveries(RoceConnection& connection);
  Sent send_answer(QpContext& qp, RoceAnswer& answer);
  rte_mbuf* build_read_answer(QpContext& qp, const RoceAnswer& answer, const wire::Packet& p,
                              bool& gone);
  bool send_ack(QpContext& qp);

  Egress& egress_;
  Placement& placement_;
  Reports& reports_;
  Counters& counters_;
  const TimeNs& now_;
  std::vector<QpContext*> list_;
  size_t waiting_for_rate_ = 0;  // of the list, as of the last serve()
  TimeNs next_by_rate_ns_ = UINT64_MAX;
};

}  // namespace hostnic
