// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/transport/hostnic/hostnic.h"

#include <rte_mbuf.h>

namespace hostnic {

HostnicTransport::HostnicTransport(const Parts& parts)
    : reorder(parts.reorder),
      placement(parts.placement),
      settings(parts.settings),
      advance_list(parts.settings.nic_qps),
      acks(parts.settings, parts.egress, parts.counters),
      reads(parts.settings, parts.answer_lines, parts.egress, parts.placement, parts.counters),
      time_wait(parts.egress, acks, parts.counters, parts.now),
      responder({parts.settings, parts.placement, parts.windows, parts.receives, parts.reorder,
                 parts.reports, acks, reads, advance_list, parts.counters}),
      requester({parts.settings, parts.placement, parts.reorder, parts.reports, advance_list,
                 parts.counters, parts.now}),
      sender({parts.settings, parts.qps, parts.egress, parts.placement, parts.packetizer, requester,
              parts.counters}) {}

uint32_t HostnicTransport::advance_windows() {
  return advance_list.for_each([this](QpContext& qp) {
    bool advanced = false;
    if (qp.requests.window.expected_received() && !qp.fatal) {
      // An atomic at the expected PSN may have to wait for many turns, and so may what is put off.
      const Psn before = qp.requests.window.expected();
      responder.advance(qp);
      advanced = qp.requests.window.expected() != before || qp.fatal;
      if (advanced) acks.owe_plain(qp);
    }
    if (qp.responses.window.expected_received()) {
      const Psn before = qp.responses.window.expected();
      requester.advance(qp);
      requester.report_responses(qp);
      advanced |= qp.responses.window.expected() != before;
    }
    return advanced;
  });
}

void HostnicTransport::connect(QpContext& qp) {
  qp.requests.window.reset(Psn(qp.rq_psn), settings.window);
  if (settings.policy == wire::Policy::kWholeMessage)
    qp.messages.reset(Psn(qp.rq_psn), settings.window);
  qp.responses.window.reset(Psn(0), settings.window);
  qp.reads_answered = 0;
  qp.msn = 0;
  qp.atomics = {};
  qp.read_epoch = 0;
  reads.begin_connection(qp);
  qp.old_read_refused = false;
  qp.epoch = 0;
  qp.epoch_follows = qp.epoch_refused = false;
  qp.ack_kind = wire::AckKind::kAck;
  qp.echo_valid = qp.echo_duplicate = false;
  qp.unacknowledged = 0;
  qp.stamps = {};
  qp.stamps_used = 0;
  qp.responses_changed = qp.response_bits_published = false;
}

void HostnicTransport::quiesce(QpContext& qp) {
  time_wait.enter(qp);
  for (ReceiveSpace* space : {&qp.requests, &qp.responses}) {
    reorder.drop(*space);
    if (!broken(Fault::early_write_leaks)) space->early_writes.clear(placement.early_writes());
  }
  acks.forget(qp);
  advance_list.forget(qp);
  reads.forget(qp);
}

}  // namespace hostnic
