// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/driver/requester/patience.h"

#include "protocol/transport/retransmission_timeout.h"
#include "verbs-shim/driver/qp_state.h"

namespace hostnic::driver {
namespace {

constexpr uint64_t kMaxRtoNs = 1'000'000'000;

// The queue pair's own timeout, as fast as the NIC's clock passes; 0: for ever.
uint64_t own_timeout_ns(const SendQueue& queue) {
  return scaled_ns(ack_timeout_ns(queue.attr.timeout), queue.host.settings().timescale);
}

// Whether the own NIC has refused the request at `oldest` (its lkey, say) and will never transmit
// it: then what is waited for are the answers of READs and atomics before it.
bool is_refused_here(const SendQueue& queue, Psn oldest) {
  return queue.failed() && queue.failed_at_or_before(queue.find_by_psn(oldest));
}

}  // namespace

uint64_t Patience::most_rto_ns(const SendQueue& queue, uint64_t stretch) {
  const uint64_t timeout = own_timeout_ns(queue);
  const uint64_t min_ns = queue.host.settings().min_rto_ns;
  const uint64_t max_ns = scaled_ns(kMaxRtoNs, queue.host.settings().timescale);
  return timeout == 0 ? max_ns : std::clamp(stretch * timeout, min_ns, max_ns);
}

uint64_t Patience::rto_ns(const SendQueue& queue, const RttEstimator& rtt, uint64_t stretch) const {
  return retransmission_timeout_ns(rtt.srtt_ns(), rtt.rttvar_ns(), backoff_,
                                   queue.host.settings().min_rto_ns, most_rto_ns(queue, stretch));
}

void Patience::tell_limits(SendQueue& queue, uint64_t stretch) {
  QpStatus& status = queue.status();
  const auto us = [](uint64_t ns) { return static_cast<uint32_t>(ns / 1000); };
  status.least_rto_us.store(us(queue.host.settings().min_rto_ns), std::memory_order_relaxed);
  status.most_rto_us.store(us(most_rto_ns(queue, stretch)), std::memory_order_relaxed);
  tell(queue, RttEstimator());
}

void Patience::tell(SendQueue& queue, const RttEstimator& rtt) const {
  QpStatus& status = queue.status();
  status.srtt_ns.store(static_cast<uint32_t>(rtt.srtt_ns()), std::memory_order_relaxed);
  status.rttvar_ns.store(static_cast<uint32_t>(rtt.rttvar_ns()), std::memory_order_relaxed);
  status.rto_backoff.store(backoff_, std::memory_order_relaxed);
}

void Patience::charge(SendQueue& queue, TimeNs now_ns, std::optional<Psn> oldest, uint64_t rto_ns) {
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
  if (oldest && distance(*oldest, queue.transmitted()) <= 0 && !is_refused_here(queue, *oldest)) {
    progress_ns_ = now_ns;
    return;
  }
  silence_ns_ += std::min(elapsed, std::max(rto_ns, own_timeout_ns(queue)));
}

bool Patience::nic_has_looked(SendQueue& queue, TimeNs now_ns, TimeNs due_ns,
                              uint64_t interval_ns) {
  const TimeNs nic_turn_ns = queue.host.map.header().nic_turn_ns.load(std::memory_order_relaxed);
  switch (nic_looks_.looked_since(due_ns, nic_turn_ns)) {
    case NicLooks::Answer::kYes:
      return true;
    case NicLooks::Answer::kLate:
      progress_ns_ = now_ns;
      return false;
    case NicLooks::Answer::kNo:
      break;
  }
  progress_ns_ = now_ns + NicLooks::kLookAgainNs - interval_ns;
  queue.host.published();
  return false;
}

}  // namespace hostnic::driver
