// SPDX-License-Identifier: BSD-3-Clause
// Time: reordering windows, the tail-loss probe, the retransmission timeout, RNR waits, and the one
// that ends in an error (docs/transport.md rules 24..26).
#include <algorithm>
#include <optional>

#include "verbs-shim/base/log.h"
#include "verbs-shim/driver/qp_state.h"
#include "verbs-shim/driver/requester/hostnic.h"
#include "verbs-shim/driver/requester/resend.h"

namespace hostnic::driver {
namespace {

TimeNs quiet_since_ns(const Patience& patience, const SendTracker& requests,
                      const SendTracker& answers) {
  return std::max({patience.quiet_since_ns(),
                   requests.in_flight() != 0 ? requests.last_send_ns() : 0,
                   answers.in_flight() != 0 ? answers.last_send_ns() : 0});
}

}  // namespace

// When the peer's silence, or its answers to what was sent later, will say something.
TimeNs HostnicRequester::answer_deadline_ns(const SendQueue& queue) const {
  const uint64_t repeat = probes_.repeat_ns(queue.host.settings(), rtt_, answers_, rto_ns(queue));
  return std::min({quiet_since_ns(patience_, requests_, answers_.tracker()) + repeat,
                   requests_.reorder_deadline_ns(rtt_.srtt_ns()),
                   answers_.tracker().reorder_deadline_ns(rtt_.srtt_ns()),
                   patience_.over_ns(queue)});
}

bool HostnicRequester::on_timer(SendQueue& queue, TimeNs now_ns) {
  requests_.note_transmitted(queue.transmitted());
  if (rnr_.waiting()) {
    if (now_ns >= rnr_.until_ns()) {
      note_progress(queue, now_ns);
      end_rnr_wait(queue, /*timer_is_over=*/true);
    }
    return true;
  }
  if (!waits_for_peer()) return true;
  requests_.detect_losses(now_ns, rtt_.srtt_ns());
  answers_.detect_losses(now_ns, rtt_.srtt_ns());
  patience_.charge(queue, now_ns,
                   requests_.in_flight() != 0 ? std::optional(requests_.una()) : std::nullopt,
                   rto_ns(queue));
  if (patience_.is_over(queue)) {
    fail(queue, queue.head(), WcStatus::kRetryExcErr, queue.why_no_answer());
    return false;
  }
  const uint64_t repeat = probes_.repeat_ns(queue.host.settings(), rtt_, answers_, rto_ns(queue));
  const TimeNs due_ns = quiet_since_ns(patience_, requests_, answers_.tracker()) + repeat;
  if (now_ns >= due_ns && patience_.nic_has_looked(queue, now_ns, due_ns, repeat)) {
    patience_.note_fired(now_ns);
    if (probes_.may_probe(answers_))
      on_probe(queue);
    else
      on_timeout(queue);
  }
  return true;
}

// Nothing is heard. That may be because of the path by which the oldest packet went, or not.
void HostnicRequester::suspect_path() {
  if (requests_.in_flight() != 0) {
    paths_->suspect(requests_.path(requests_.una()));
  } else if (answers_.in_flight() != 0) {
    paths_->suspect(answers_.tracker().path(answers_.tracker().una()));
  }
}

// Repeats the last packet: the end of what was sent may be lost without anything behind it to show
// that.
void HostnicRequester::on_probe(SendQueue& queue) {
  if (paths_ != nullptr) suspect_path();
  probes_.note_probe();
  patience_.note_probe();
  ++queue.host.totals.probes;
  if (requests_.in_flight() != 0) {
    const Psn last = requests_.last_unacknowledged();
    requests_.mark_lost(last, RepeatCause::probe);
    if (last == requests_.una()) requests_.mark_una_lost(RepeatCause::probe);
  }
  answers_.on_probe(kResendsAfterTimeout);
}

void HostnicRequester::on_timeout(SendQueue& queue) {
  if (paths_ != nullptr) suspect_path();
  patience_.note_timeout();
  patience_.tell(queue, rtt_);
  ++queue.host.totals.timeouts;
  if (requests_.in_flight() != 0) request_congestion_.on_timeout();
  log_debug(
      "QP 0x%x: timeout %u after %llu us: requests %u..%u (%u lost, transmitted to %u), responses "
      "%u..%u, front attempt %u",
      queue.qpn, patience_.backoff(), static_cast<unsigned long long>(rto_ns(queue) / 1000),
      requests_.una().value(), requests_.next().value(), requests_.lost_count(),
      queue.status().transmitted_psn.load(std::memory_order_relaxed),
      answers_.tracker().una().value(), answers_.tracker().next().value(),
      requests_.in_flight() != 0 ? requests_.attempt(requests_.una()) : 0u);
  // Only the oldest unacknowledged packets go again. If the rest is lost as well, the
  // acknowledgement of these tells; if everything was just slow, nothing else is repeated.
  requests_.mark_first_lost(kResendsAfterTimeout, RepeatCause::timeout);
  answers_.on_timeout(kResendsAfterTimeout);
}

}  // namespace hostnic::driver
