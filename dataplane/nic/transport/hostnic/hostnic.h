// SPDX-License-Identifier: BSD-3-Clause
// The native transport (docs/transport.md), as the NIC does it: RC packets that arrive in any
// order, and what RC work requests become. What a transport must do is in transport/transport.h.
//
// The NIC's lcore.
#pragma once

#include <rte_mbuf.h>

#include <cstdint>

#include "dataplane/nic/answers/answer_lines.h"
#include "dataplane/nic/counters.h"
#include "dataplane/nic/egress/egress.h"
#include "dataplane/nic/memory/placement.h"
#include "dataplane/nic/memory/window_table.h"
#include "dataplane/nic/qp/qp_directory.h"
#include "dataplane/nic/qp/receive_queue.h"
#include "dataplane/nic/qp/reorder_buffer.h"
#include "dataplane/nic/qp/reports.h"
#include "dataplane/nic/settings.h"
#include "dataplane/nic/transport/advance_list.h"
#include "dataplane/nic/transport/hostnic/acknowledge.h"
#include "dataplane/nic/transport/hostnic/read_service.h"
#include "dataplane/nic/transport/hostnic/request_sender.h"
#include "dataplane/nic/transport/hostnic/requester.h"
#include "dataplane/nic/transport/hostnic/responder.h"
#include "dataplane/nic/transport/hostnic/time_wait.h"
#include "dataplane/nic/transport/packetizer.h"
#include "dataplane/nic/transport/transport.h"
#include "protocol/types.h"

namespace hostnic {

struct HostnicTransport {
  struct Parts {
    const NicSettings& settings;
    const QpDirectory& qps;
    AnswerLines& answer_lines;
    Egress& egress;
    Placement& placement;
    WindowTable& windows;
    Packetizer& packetizer;
    ReceiveQueues& receives;
    ReorderPool& reorder;
    Reports& reports;
    Counters& counters;
    const TimeNs& now;
  };
  explicit HostnicTransport(const Parts& parts);

  // Takes a packet with a PSN.
  void receive(QpContext& qp, const wire::Packet& p, rte_mbuf* packet) {
    if (p.opcode == wire::Opcode::kReadResponse || p.opcode == wire::Opcode::kAtomicResponse) {
      requester.receive_response(qp, p, packet);
    } else {
      responder.receive(qp, p, packet);
    }
  }
  bool start(QpContext& qp, const SendDescriptor& d) {
    if (is_read_or_atomic(d.op)) requester.begin_pull(qp, d);
    return true;
  }
  uint32_t send_several(QpContext& qp, SendProgress& progress, const SendBudget& budget) {
    return sender.send_several(qp, progress, budget);
  }
  bool send_one(QpContext& qp, SendProgress& progress, bool& blocked) {
    return sender.send_one(qp, progress, blocked);
  }
  AnswerStep serve_answers(QpContext& qp, uint32_t place, const SendBudget& budget) {
    return reads.serve(qp, place, budget);
  }
  // Advances the windows that a turn's budget stopped. Returns how many.
  uint32_t advance_windows();
  void connect(QpContext& qp);
  void quiesce(QpContext& qp);
  // Whether something is to be done in the next turn, whatever arrives.
  bool any_work() const { return acks.any_owed() || !advance_list.empty(); }

  ReorderPool& reorder;
  Placement& placement;
  const NicSettings& settings;
  AdvanceList advance_list;
  Acknowledger acks;
  ReadService reads;
  TimeWait time_wait;
  Responder responder;
  Requester requester;
  RequestSender sender;
};
static_assert(NicTransport<HostnicTransport>);

}  // namespace hostnic
