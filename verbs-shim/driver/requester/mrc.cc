// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/driver/requester/mrc.h"

#include <bit>

#include "protocol/wire/mrc/control_headers.h"
#include "verbs-shim/base/log.h"
#include "verbs-shim/driver/cause.h"
#include "verbs-shim/driver/requester/resend.h"

namespace hostnic::driver {
namespace {

// How often the last packet goes again before a timeout is waited for.
constexpr uint32_t kMostProbes = 2;

// The window that program and NIC have agreed upon.
uint32_t window_of(const SendQueue& queue) {
  const uint32_t window = queue.host.settings().window;
  const uint8_t mpr = queue.attr.mrc.mpr;
  return mpr == 0 ? window : std::min(window, mpr * wire::mrc::kMprUnitPsns);
}

}  // namespace

void MrcRequester::start(SendQueue& queue, Psn first, TimeNs now_ns) {
  *this = MrcRequester();
  requests_.reset(first, window_of(queue));
  requests_.expect_disorder();
  window_psns_ = window_of(queue);
  highest_acceptable_ = first + (kInitialWindow - 1);
  queue.status().acknowledged_psn.store(first.value(), std::memory_order_release);
  patience_.start(now_ns);
  patience_.tell_limits(queue, 1);
}

QpGauges MrcRequester::gauges(const SendQueue& queue) const {
  return {.requests_in_flight = in_flight(),
          .responses_in_flight = 0,
          .request_window = requests_.window(),
          .response_window = 0,
          .rto_ns = rto_ns(queue)};
}

// ---- what leaves

uint32_t MrcRequester::room(const SendQueue& /*queue*/) const {
  const uint32_t in_flight = requests_.in_flight();
  if (in_flight >= requests_.window()) return 0;
  const uint32_t on_its_way = requests_.on_its_way();
  if (on_its_way >= window_psns_) return 0;
  const int32_t peer = distance(requests_.next(), highest_acceptable_) + 1;
  if (peer <= 0) return 0;
  return std::min(
      {requests_.window() - in_flight, window_psns_ - on_its_way, static_cast<uint32_t>(peer)});
}

// The MSN travels where READs have the PSN of their answers.
void MrcRequester::assign(SendQueue& queue, Wqe& w, uint32_t /*index*/) {
  w.first_psn = requests_.next();
  w.psn_count = queue.packets_for(w.length_bytes);
  w.first_response_psn = Psn(next_msn_++);
  if (w.op != SendOp::kWriteImm) return;
  w.recv_sn = next_rqmsn_++;
  ++imms_;
}

void MrcRequester::send_next(SendQueue& queue, Wqe& w, uint32_t index, uint32_t room,
                             uint64_t limit_bytes, TimeNs now_ns) {
  const uint32_t psns =
      std::min({w.psn_count - w.issued_psns, room, queue.chunk_packets(limit_bytes, window_psns_)});
  const bool ends = w.issued_psns + psns == w.psn_count;
  // A message's end brings a transport ACK by itself.
  const bool ask = psns == room || psns_since_ack_request_ + psns >= window_psns_ / 4;
  queue.send_range(w, index, w.issued_psns, psns, {},
                   static_cast<uint8_t>(ask ? kSendAckRequest : 0), queue.host.map.sends);
  psns_since_ack_request_ = ask ? 0 : psns_since_ack_request_ + psns;
  w.issued_psns += psns;
  requests_.on_first_send(psns, now_ns, ends);
}

bool MrcRequester::send_again(SendQueue& queue, TimeNs now_ns) {
  if (requests_.lost_count() == 0) return true;
  requests_.note_transmitted(queue.transmitted());
  // What goes again takes of the congestion window as what is new does. Where nothing is heard that
  // would be for ever: then a timer says how much goes.
  const bool is_silent = probes_ != 0 || patience_.backoff() != 0;
  const uint32_t room =
      is_silent ? UINT32_MAX : window_psns_ - std::min(window_psns_, requests_.on_its_way());
  if (room == 0) return true;
  return resend_lost(
      queue, requests_, patience_, now_ns, [](uint32_t) { return true; },
      [&](const Wqe& w, uint32_t index, uint32_t within, uint32_t count, uint8_t attempt,
          uint8_t flags, uint8_t /*path*/) {
        queue.send_range(w, index, within, count, {attempt}, flags, queue.host.map.urgent);
      },
      room);
}

// ---- what comes back

void MrcRequester::take_acks(SendQueue& queue, const QpStatusSnapshot& snapshot, TimeNs now_ns) {
  if (const Psn highest(snapshot.highest_acceptable_psn);
      snapshot.ack_count != 0 && distance(highest_acceptable_, highest) > 0)
    highest_acceptable_ = highest;
  if (snapshot.mrc_window_psns() != 0) window_psns_ = snapshot.mrc_window_psns();
  if (snapshot.rtt_count != seen_rtt_count_) {
    seen_rtt_count_ = snapshot.rtt_count;
    rtt_.sample(snapshot.rtt_ns);
    patience_.tell(queue, rtt_);
  }
  const Psn echo(snapshot.echo_psn);
  const bool is_echoed = snapshot.echo_count != seen_echo_count_;
  seen_echo_count_ = snapshot.echo_count;
  if (snapshot.spurious_count != seen_spurious_count_) {
    seen_spurious_count_ = snapshot.spurious_count;
    if (!requests_.guessed(echo)) requests_.on_spurious_resend();
  }
  // Nobody says which of several repetitions has come: it is taken for the newest.
  if (is_echoed) requests_.on_echo(echo, snapshot.echo_attempt == 0 ? 0 : requests_.attempt(echo));
  const Psn una = requests_.una();
  if (queue.host.bits.has_sack) {
    requests_.on_ack(Psn(snapshot.una_psn), queue.host.bits.sack);
  } else {
    requests_.on_ack(Psn(snapshot.una_psn));
  }
  if (requests_.una() != una) note_acknowledged(queue, una, now_ns);
  // The peer has the oldest packet, and says so, or that it can't take it now.
  if (is_echoed && echo == requests_.una() && in_flight() != 0) patience_.note_put_off();
  take_losses(queue, snapshot);
  requests_.detect_losses(now_ns, rtt_.srtt_ns());
}

// The NIC knows by which paths packets went, and so sooner than anybody that one is lost.
void MrcRequester::take_losses(const SendQueue& queue, const QpStatusSnapshot& snapshot) {
  if (snapshot.mrc_losses_reported() == seen_losses_) return;
  seen_losses_ = snapshot.mrc_losses_reported();
  const PsnBits& told = queue.host.bits.responses;
  const uint32_t outstanding = in_flight();
  for (uint32_t offset = 0; offset < outstanding; offset += 64) {
    const Psn from = requests_.una() + offset;
    uint64_t changed = told.extract(from) ^ losses_told_.extract(from);
    if (outstanding - offset < 64) changed &= (uint64_t{1} << (outstanding - offset)) - 1;
    for (; changed != 0; changed &= changed - 1) {
      const Psn psn = from + static_cast<uint32_t>(std::countr_zero(changed));
      if (!requests_.acknowledged(psn)) requests_.mark_lost(psn, RepeatCause::gap);
    }
  }
  losses_told_ = told;
}

void MrcRequester::note_acknowledged(SendQueue& queue, Psn /*una*/, TimeNs now_ns) {
  queue.status().acknowledged_psn.store(requests_.una().value(), std::memory_order_release);
  patience_.note_progress(now_ns);
  if (patience_.backoff() != 0) {
    patience_.end_backoff();
    patience_.tell(queue, rtt_);
  }
  probes_ = 0;
}

void MrcRequester::take_refusals(SendQueue& queue, const QpStatusSnapshot& snapshot,
                                 TimeNs /*now_ns*/) {
  if (snapshot.nak == 0 || snapshot.nak_count == seen_nak_count_) return;
  seen_nak_count_ = snapshot.nak_count;
  const Cause cause = cause_of_nak(snapshot.nak & 0xff);
  queue.fail(queue.find_by_psn(Psn(snapshot.nak_psn)), cause.status, cause.vendor);
}

// ---- time

// The silence after which the connection is over, as fast as the NIC's clock passes.
uint64_t MrcRequester::silence_limit_ns(const SendQueue& queue) {
  // Below it, scheduling of ordinary processes would end connections.
  constexpr uint64_t kLeastNs = 64'000'000;
  const uint64_t limit = mrc::RetrySchedule{.timeout = queue.attr.timeout,
                                            .linear = queue.attr.retry_cnt,
                                            .exponential = queue.attr.mrc.exponential_retries}
                             .limit_ns();
  if (limit == UINT64_MAX) return limit;
  return std::max(kLeastNs, scaled_ns(limit, queue.host.settings().timescale));
}

// How long after the last sign of the peer the last packet goes again: two round trips, as far as
// they are known.
uint64_t MrcRequester::probe_ns(const SendQueue& queue) const {
  const uint64_t rto = rto_ns(queue);
  if (!rtt_.valid() || probes_ >= kMostProbes || patience_.backoff() != 0) return rto;
  return std::min(rto, std::max(queue.host.settings().min_probe_ns, 2 * rtt_.srtt_ns()));
}

TimeNs MrcRequester::deadline_ns(const SendQueue& queue) const {
  if (in_flight() == 0) return UINT64_MAX;
  return std::min({quiet_since_ns() + probe_ns(queue),
                   requests_.reorder_deadline_ns(rtt_.srtt_ns()),
                   patience_.over_ns(silence_limit_ns(queue))});
}

bool MrcRequester::on_timer(SendQueue& queue, TimeNs now_ns) {
  if (in_flight() == 0) return true;
  requests_.note_transmitted(queue.transmitted());
  requests_.detect_losses(now_ns, rtt_.srtt_ns());
  patience_.charge(queue, now_ns, requests_.una(), rto_ns(queue));
  if (patience_.is_over(queue, silence_limit_ns(queue))) {
    queue.fail(queue.head(), WcStatus::kRetryExcErr, queue.why_no_answer());
    return false;
  }
  const uint64_t wait = probe_ns(queue);
  const TimeNs due_ns = quiet_since_ns() + wait;
  if (now_ns < due_ns || !patience_.nic_has_looked(queue, now_ns, due_ns, wait)) return true;
  patience_.note_fired(now_ns);
  if (!rtt_.valid() || probes_ >= kMostProbes || patience_.backoff() != 0) {
    on_timeout(queue);
    return true;
  }
  // The end of what was sent may be lost without anything behind it to show that.
  ++probes_;
  patience_.note_probe();
  ++queue.host.totals.probes;
  const Psn last = requests_.last_unacknowledged();
  requests_.mark_lost(last, RepeatCause::probe);
  if (last == requests_.una()) requests_.mark_una_lost(RepeatCause::probe);
  return true;
}

void MrcRequester::on_timeout(SendQueue& queue) {
  patience_.note_timeout();
  patience_.tell(queue, rtt_);
  ++queue.host.totals.timeouts;
  log_debug("QP 0x%x: timeout %u: PSNs %u..%u (%u lost, transmitted to %u)", queue.qpn,
            patience_.backoff(), requests_.una().value(), requests_.next().value(),
            requests_.lost_count(), queue.transmitted().value());
  requests_.mark_first_lost(kResendsAfterTimeout, RepeatCause::timeout);
}

}  // namespace hostnic::driver
