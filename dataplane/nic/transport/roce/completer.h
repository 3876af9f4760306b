// SPDX-License-Identifier: BSD-3-Clause
// What comes back to a requester of the standard's RC: acknowledgements by number, NAKs, and the
// answers of READs and atomics, which are placed here, in order. An acknowledgement or answer
// stands for everything before it (InfiniBand 9.7.5.1). What has to be sent again is the driver's
// to do: it is told from where on.
//
// The NIC's lcore.
#pragma once

#include <rte_mbuf.h>

#include <cstdint>
#include <span>

#include "dataplane/nic/counters.h"
#include "dataplane/nic/memory/placement.h"
#include "dataplane/nic/qp/qp_context.h"
#include "dataplane/nic/qp/reports.h"
#include "dataplane/nic/qp/roce_connection.h"
#include "dataplane/nic/transport/transport_services.h"
#include "protocol/wire/packet.h"

namespace hostnic {

class RoceCompleter {
 public:
  explicit RoceCompleter(const TransportServices& nic)
      : placement_(nic.placement), reports_(nic.reports), counters_(nic.counters), now_(nic.now) {}

  void receive_ack(QpContext& qp, const wire::Packet& p);
  void receive_answer(QpContext& qp, const wire::Packet& p, rte_mbuf* packet);
  void receive_congestion_notification(QpContext& qp);
  // Counts what the driver says has become of the queue pair's rate.
  void count_rate_changes(QpContext& qp);

  // Notes that a packet has left.
  void note_transmitted(QpContext& qp, const SendDescriptor& d, const wire::Packet& p);
  // Notes a local error, unless the driver knows that the packet was acknowledged: its memory may
  // be deregistered then while a needless repetition still waits here.
  void fail_send(QpContext& qp, Psn psn, LocalError error);

 private:
  void note_request(QpContext& qp, const SendDescriptor& d, Psn psn);
  Psn acknowledge(QpContext& qp, Psn end, bool& gap);
  void report(QpContext& qp, Psn una, uint32_t nak);
  LocalError place(QpContext& qp, const wire::Packet& p, const RoceRequest& request,
                   std::span<const std::byte> payload, bool& not_now);

  Placement& placement_;
  Reports& reports_;
  Counters& counters_;
  const TimeNs& now_;
};

}  // namespace hostnic
