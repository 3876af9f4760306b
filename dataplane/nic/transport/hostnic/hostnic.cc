// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/transport/hostnic/hostnic.h"

#include <rte_mbuf.h>

namespace hostnic {

HostnicTransport::HostnicTransport(const TransportServices& nic)
    : qps_(nic.qps),
      references_(nic.egress.references()),
      counters_(nic.counters),
      reorder_(nic.reorder),
      placement_(nic.placement),
      settings_(nic.settings),
      advance_list_(nic.settings.nic_qps),
      acks_(nic.settings, nic.egress, nic.counters),
      reads_(nic),
      time_wait_(nic.egress, acks_, nic.counters, nic.now),
      responder_(nic, acks_, reads_, advance_list_),
      completer_(nic, advance_list_),
      sender_(nic, completer_) {}

uint32_t HostnicTransport::begin_turn() {
  return advance_list_.for_each([this](QpContext& qp) {
    bool advanced = false;
    if (qp.requests.window.expected_received() && !qp.fatal) {
      // An atomic at the expected PSN may have to wait for many turns, and so may what is put off.
      const Psn before = qp.requests.window.expected();
      responder_.advance(qp);
      advanced = qp.requests.window.expected() != before || qp.fatal;
      if (advanced) acks_.owe_plain(qp);
    }
    if (qp.responses.window.expected_received()) {
      const Psn before = qp.responses.window.expected();
      completer_.advance(qp);
      completer_.report_responses(qp);
      advanced |= qp.responses.window.expected() != before;
    }
    return advanced;
  });
}

TimeNs HostnicTransport::put_off_until_ns() const {
  TimeNs earliest_ns = UINT64_MAX;
  advance_list_.look([&](const QpContext& qp) {
    earliest_ns = std::min(earliest_ns, responder_.put_off_until_ns(qp));
  });
  return earliest_ns;
}

void HostnicTransport::connect(QpContext& qp) {
  qp.requests.window.reset(Psn(qp.rq_psn), settings_.window);
  if (settings_.policy == wire::Policy::kWholeMessage)
    qp.messages.reset(Psn(qp.rq_psn), settings_.window);
  qp.responses.window.reset(Psn(0), settings_.window);
  qp.reads_answered = 0;
  qp.msn = 0;
  qp.atomics = {};
  qp.read_epoch = 0;
  reads_.begin_connection(qp);
  qp.old_read_refused = false;
  qp.epoch = 0;
  qp.epoch_follows = qp.epoch_refused = false;
  qp.ack_kind = wire::AckKind::kAck;
  qp.echo_valid = qp.echo_duplicate = false;
  qp.answer_path = 0;
  qp.unacknowledged = 0;
  qp.stamps = {};
  qp.stamps_used = 0;
  qp.responses_changed = qp.response_bits_published = false;
}

void HostnicTransport::quiesce(QpContext& qp) {
  responder_.settle(qp);
  time_wait_.enter(qp);
  for (ReceiveSpace* space : {&qp.requests, &qp.responses}) {
    reorder_.drop(*space);
    space->early_writes.clear(placement_.early_writes());
  }
  acks_.forget(qp);
  advance_list_.forget(qp);
  reads_.forget(qp);
}

}  // namespace hostnic
