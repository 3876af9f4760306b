// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/qp/message_tap.h"

#include <rte_cycles.h>

#include <algorithm>
#include <utility>

namespace hostnic {

uint64_t MessageTap::ticks() { return rte_rdtsc(); }

void MessageTap::begin(const QpDirectory& qps) {
  told_.resize(qps.end_position());
  pending_.reserve(qps.end_position());
  qps.for_each([this](const QpContext& qp) { restart(qp); });
}

void MessageTap::restart(const QpContext& qp) {
  Told& told = told_of(qp);
  told.sent = qp.transmitted;
  told.placed = qp.requests.window.expected();
  told.acknowledged = told.reported = qp.una;
  told.answered = told.reported_answers = qp.responses.window.expected();
}

void MessageTap::forget(const QpContext& qp) {
  Told& told = told_of(qp);
  if (std::exchange(told.is_pending, false)) std::erase(pending_, &qp);
}

void MessageTap::take_event(const QpContext& qp, const MessageEvent& event) {
  if (event.session != session_) return;
  sink_.take(
      {.kind = event.kind == MessageEventKind::kPosted ? MomentKind::kPosted : MomentKind::kPolled,
       .ticks = event.ticks,
       .nic = qp.source_ip,
       .qpn = qp.qpn,
       .event = &event,
       .client = qp.client_id,
       .type = qp.type});
}

// Something that happened to messages of the queue pair's own.
void MessageTap::say(MomentKind kind, const QpContext& qp, uint64_t ticks, Psn until) {
  sink_.take({.kind = kind,
              .ticks = ticks,
              .nic = qp.source_ip,
              .qpn = qp.qpn,
              .until = until.value(),
              .type = qp.type});
}

// Something that happened to messages of its peer: the sender of `p` for datagrams.
void MessageTap::say_of_peer(MomentKind kind, const QpContext& qp, const wire::Packet* p,
                             uint64_t ticks, Psn until) {
  const bool datagram = qp.type == QpType::kUd;
  sink_.take({.kind = kind,
              .ticks = ticks,
              .nic = datagram ? raw(p->src_ip) : qp.dest_ip,
              .qpn = datagram ? raw(p->src_qpn) : qp.dest_qpn,
              .until = until.value(),
              .type = qp.type});
}

void MessageTap::note_sent(const QpContext& qp, uint64_t ticks) {
  Told& told = told_of(qp);
  if (told.sent == qp.transmitted) return;
  told.sent = qp.transmitted;
  say(MomentKind::kSent, qp, ticks, told.sent);
}

void MessageTap::note_received(const QpContext& qp, const wire::Packet& p, uint64_t ticks) {
  if (wire::is_request(p.opcode) && !p.more)
    say_of_peer(MomentKind::kArrived, qp, &p, ticks, p.psn + 1);
  look(qp, ticks);
}

void MessageTap::note_placed(const QpContext& qp, const wire::Packet& p) {
  say_of_peer(MomentKind::kPlacedAlone, qp, &p, ticks(), p.psn + 1);
}

// Says what has changed since the last look. Bytes are in memory now; an acknowledgement came when
// its packet did, at `ticks`: the driver may have seen that before this is said.
void MessageTap::look(const QpContext& qp, uint64_t began) {
  if (qp.type != QpType::kRc) return;
  Told& told = told_of(qp);
  if (const Psn expected = qp.requests.window.expected(); expected != told.placed) {
    told.placed = expected;
    say_of_peer(MomentKind::kPlaced, qp, nullptr, ticks(), expected);
  }
  if (qp.una != told.acknowledged) {
    told.acknowledged = qp.una;
    say(MomentKind::kAcknowledged, qp, began, qp.una);
  }
  if (const Psn answered = qp.responses.window.expected();
      qp.transport == Transport::kHostnic && answered != told.answered) {
    told.answered = answered;
    say(MomentKind::kAnswered, qp, ticks(), answered);
  }
  if (qp.on_advance_list && !std::exchange(told.is_pending, true)) pending_.push_back(&qp);
}

void MessageTap::look_again() {
  if (pending_.empty()) return;
  const uint64_t now = ticks();
  // look() adds none of those that are pending already.
  std::erase_if(pending_, [&](const QpContext* qp) {
    look(*qp, now);
    if (qp->on_advance_list) return false;
    told_of(*qp).is_pending = false;
    return true;
  });
}

void MessageTap::note_report(const QpContext& qp) {
  // A pull that leaves may move the window over answers that had come.
  look(qp, ticks());
  Told& told = told_of(qp);
  const Psn answered = qp.responses.window.expected();
  if (told.reported == qp.una && told.reported_answers == answered) return;
  told.reported = qp.una;
  told.reported_answers = answered;
  sink_.take({.kind = MomentKind::kReported,
              .ticks = ticks(),
              .nic = qp.source_ip,
              .qpn = qp.qpn,
              .until = qp.una.value(),
              .answered = answered.value(),
              .type = qp.type});
}

}  // namespace hostnic
