// SPDX-License-Identifier: BSD-3-Clause
// The parts of a NIC that its transports work with. All of them outlive the transports, and are the
// lcore's alone. A part of a transport is handed this, and keeps references to what it uses.
#pragma once

#include "dataplane/nic/answers/answer_lines.h"
#include "dataplane/nic/counters.h"
#include "dataplane/nic/egress/egress.h"
#include "dataplane/nic/execute/request_executor.h"
#include "dataplane/nic/memory/placement.h"
#include "dataplane/nic/memory/window_table.h"
#include "dataplane/nic/qp/message_tap.h"
#include "dataplane/nic/qp/multicast_groups.h"
#include "dataplane/nic/qp/qp_directory.h"
#include "dataplane/nic/qp/receive_queue.h"
#include "dataplane/nic/qp/reorder_buffer.h"
#include "dataplane/nic/qp/reports.h"
#include "dataplane/nic/settings.h"
#include "dataplane/nic/transport/packetizer.h"
#include "protocol/types.h"

namespace hostnic {

struct TransportServices {
  const NicSettings& settings;
  const QpDirectory& qps;
  const MulticastGroups& groups;
  AnswerLines& answer_lines;  // answers to READs, in the turn of the client whose memory is read
  Egress& egress;             // towards the port
  Placement& placement;       // into and out of clients' memory
  WindowTable& windows;
  Packetizer& packetizer;  // from descriptors to packets
  ReceiveQueues& receives;
  ReorderPool& reorder;  // where packets wait
  Reports& reports;      // to drivers
  Counters& counters;
  SplitAtomic& split_atomic;
  const TimeNs& now;            // the time of this turn
  MessageTap* const& messages;  // null: they are not traced

  // What verbs mean, for requests of peers.
  ExecutorParts executor() const {
    return {placement, windows, receives, reports, counters, split_atomic};
  }
};

}  // namespace hostnic
