// SPDX-License-Identifier: BSD-3-Clause
// Time: reordering windows, the tail-loss probe, the retransmission timeout, RNR waits, and the one
// that ends in an error (docs/transport.md rules 24..26).
#include <algorithm>

#include "verbs-shim/base/log.h"
#include "verbs-shim/driver/qp_state.h"
#include "verbs-shim/driver/requester/hostnic.h"
#include "verbs-shim/driver/requester/silence.h"

namespace hostnic::driver {
namespace {

constexpr uint32_t kMaxBackoff = 6;
constexpr uint64_t kMaxRtoNs = 1'000'000'000;
// How much less silence precedes a probe for answers that were pulled again: processes that have
// just sent and received have their cores.
constexpr uint64_t kRepullsSooner = 8;

}  // namespace

uint64_t HostnicRequester::rto_ns(const SendQueue& queue) const {
  if (broken(Fault::rto_never_fires)) return uint64_t{3600} * 1'000'000'000;
  const uint64_t measured = rtt_.valid() ? rtt_.srtt_ns() + 4 * rtt_.rttvar_ns() : 0;
  const uint64_t base = std::max(queue.host.settings().min_rto_ns, measured);
  uint64_t cap = kMaxRtoNs;
  if (const uint64_t timeout = ack_timeout_ns(queue.attr.timeout); timeout != 0) {
    cap = std::clamp(timeout, queue.host.settings().min_rto_ns, kMaxRtoNs);
  }
  // The program's setting is the bound even where round trips were measured longer: a stalled
  // machine must not make a lost answer wait until retry_cnt is used up.
  return std::min(base << std::min(backoff_, kMaxBackoff), cap);
}

uint64_t HostnicRequester::probe_ns(const DriverSettings& settings) const {
  const uint64_t measured = rtt_.valid() ? 2 * rtt_.srtt_ns() : settings.min_rto_ns;
  if (!misses_repulled() || !answer_rtt_.valid()) return std::max(settings.min_probe_ns, measured);
  return std::max({settings.min_probe_ns / kRepullsSooner, measured, 2 * answer_rtt_.srtt_ns()});
}

// The silence after which something is repeated: at first by a probe.
uint64_t HostnicRequester::repeat_ns(const SendQueue& queue) const {
  const uint64_t rto = rto_ns(queue);
  return may_probe() ? std::min(probe_ns(queue.host.settings()) << probes_, rto) : rto;
}

uint64_t HostnicRequester::silence_limit_ns(const SendQueue& queue) const {
  return broken(Fault::retries_never_end) ? UINT64_MAX : driver::silence_limit_ns(queue.attr);
}

TimeNs HostnicRequester::quiet_since_ns() const {
  return std::max({progress_ns_, fired_ns_,
                   requests_.in_flight() != 0 ? requests_.last_send_ns() : 0,
                   responses_.in_flight() != 0 ? responses_.last_send_ns() : 0});
}

// When the peer's silence, or its answers to what was sent later, will say something.
TimeNs HostnicRequester::answer_deadline_ns(const SendQueue& queue) const {
  const uint64_t limit = silence_limit_ns(queue);
  return std::min(
      {quiet_since_ns() + repeat_ns(queue), requests_.reorder_deadline_ns(rtt_.srtt_ns()),
       responses_.reorder_deadline_ns(rtt_.srtt_ns()),
       limit == UINT64_MAX ? UINT64_MAX : evaluated_ns_ + (limit - std::min(limit, silence_ns_))});
}

// Whether the own NIC has refused the request at una (its lkey, say) and will never transmit it:
// then what is waited for are the answers of READs and atomics before it.
bool HostnicRequester::front_refused(const SendQueue& queue) const {
  return queue.failed() && !broken(Fault::refused_front_queues) &&
         queue.failed_at_or_before(queue.find_by_psn(requests_.una()));
}

// Charges the time without progress of una. Nothing is charged while the NIC has not even
// transmitted that PSN, and at most one timeout per evaluation: a process that was stopped must not
// find its connections failed (rule 25, silence is not waiting).
void HostnicRequester::charge_silence(SendQueue& queue, TimeNs now_ns) {
  const uint64_t elapsed = now_ns - std::min(now_ns, evaluated_ns_);
  const TimeNs nic_turn_ns = queue.host.map.header().nic_turn_ns.load(std::memory_order_relaxed);
  if (nic_turn_ns < evaluated_ns_ && stalled_ns_ < kMaxStallNs && elapsed >= kMinStallNs) {
    // The NIC has not run since: it sleeps, or gets no CPU time. Nothing can have been answered, so
    // the NIC is woken and looked at again.
    stalled_ns_ += elapsed;
    evaluated_ns_ = progress_ns_ = now_ns;
    queue.host.published();
    return;
  }
  stalled_ns_ = 0;
  evaluated_ns_ = now_ns;
  // Answers to READs are put off by this side while this process's own mappings change.
  if (queue.host.map.header().memory_gate.closed.load(std::memory_order_relaxed) != 0) return;
  if (requests_.in_flight() != 0 && distance(requests_.una(), queue.transmitted()) <= 0 &&
      !front_refused(queue) && !broken(Fault::silence_while_queued)) {
    progress_ns_ = now_ns;
    return;
  }
  silence_ns_ += std::min(elapsed, std::max(rto_ns(queue), ack_timeout_ns(queue.attr.timeout)));
}

bool HostnicRequester::on_timer(SendQueue& queue, TimeNs now_ns) {
  requests_.note_transmitted(queue.transmitted());
  if (rnr_ == Rnr::kWaiting) {
    if (now_ns >= rnr_until_ns_) {
      note_progress(now_ns);
      end_rnr_wait(queue, /*counted=*/true);
    }
    return true;
  }
  if (!waits_for_peer()) return true;
  requests_.detect_losses(now_ns, rtt_.srtt_ns());
  responses_.detect_losses(now_ns, rtt_.srtt_ns());
  charge_silence(queue, now_ns);
  if (silence_ns_ >= silence_limit_ns(queue) && retries_ >= least_retries(queue.attr)) {
    fail(queue, queue.head(), WcStatus::kRetryExcErr, queue.why_no_answer());
    return false;
  }
  if (now_ns >= quiet_since_ns() + repeat_ns(queue)) {
    fired_ns_ = now_ns;
    if (may_probe())
      on_probe(queue);
    else
      on_timeout(queue);
  }
  return true;
}

// Repeats the last packet: the end of what was sent may be lost without anything behind it to show
// that.
void HostnicRequester::on_probe(SendQueue& queue) {
  ++probes_;
  ++retries_;
  ++queue.host.totals.probes;
  if (broken(Fault::no_tail_loss_probe)) return;
  if (requests_.in_flight() != 0) {
    const Psn last = requests_.last_unacknowledged();
    requests_.mark_lost(last);
    if (last == requests_.una()) requests_.mark_una_lost();
  }
  if (misses_repulled())
    responses_.mark_first_lost(kResendsAfterTimeout);
  else if (responses_.in_flight() != 0)
    responses_.mark_lost(responses_.last_unacknowledged());
}

void HostnicRequester::on_timeout(SendQueue& queue) {
  ++backoff_;
  ++retries_;
  ++queue.host.totals.timeouts;
  if (requests_.in_flight() != 0) request_congestion_.on_timeout();
  if (responses_.in_flight() != 0) response_congestion_.on_timeout();
  log_debug(
      "QP 0x%x: timeout %u after %llu us: requests %u..%u (%u lost, transmitted to %u), responses "
      "%u..%u, front attempt %u",
      queue.qpn, backoff_, static_cast<unsigned long long>(rto_ns(queue) / 1000),
      requests_.una().value(), requests_.next().value(), requests_.lost_count(),
      queue.status().transmitted_psn.load(std::memory_order_relaxed), responses_.una().value(),
      responses_.next().value(),
      requests_.in_flight() != 0 ? requests_.attempt(requests_.una()) : 0u);
  // Only the oldest unacknowledged packets go again. If the rest is lost as well, the
  // acknowledgement of these tells; if everything was just slow, nothing else is repeated.
  requests_.mark_first_lost(kResendsAfterTimeout);
  responses_.mark_first_lost(kResendsAfterTimeout);
}

}  // namespace hostnic::driver
