// SPDX-License-Identifier: BSD-3-Clause
// Towards the driver: state into each QpStatus, one meta report per queue pair and turn, wake-ups
// (docs/transport.md rules 21, 34).
//
// The NIC's lcore.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "dataplane/nic/client/client_list.h"
#include "dataplane/nic/counters.h"
#include "dataplane/nic/port.h"
#include "dataplane/nic/qp/message_tap.h"
#include "dataplane/nic/qp/qp_context.h"
#include "protocol/types.h"

namespace hostnic {

class Reports {
 public:
  // Makes a list that has a place for each of `max_qps` queue pairs. `messages` is told of what is
  // reported, when it is not null.
  Reports(ClientList& clients, const Port& port, Counters& counters, const TimeNs& now,
          uint32_t max_qps, MessageTap* const& messages);

  // Has the driver told to look at the queue pair's status.
  void add(QpContext& qp);
  void publish_event(QpContext& qp, uint32_t event);  // QpEvent
  // Notes a local error: the driver learns the PSN, and everything at or after it is discarded
  // until the queue pair starts anew (rule 28, after an error).
  void fail_send(QpContext& qp, Psn psn, LocalError error);
  // Sends the reports that have been added; called at the end of a turn.
  void send();
  // Wakes drivers that sleep while there is something for them to take. `idle` says that the turn
  // did nothing else.
  void wake_drivers(bool idle);
  void forget(QpContext& qp);

  size_t waiting() const { return list_.size(); }

 private:
  void publish_responses(QpContext& qp);

  ClientList& clients_;
  const Port& port_;
  Counters& counters_;
  const TimeNs& now_;
  MessageTap* const& messages_;
  std::vector<QpContext*> list_;
};

}  // namespace hostnic
