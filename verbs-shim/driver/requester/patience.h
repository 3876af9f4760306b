// SPDX-License-Identifier: BSD-3-Clause
// A requester's patience with its peer: how long until something goes again (the retransmission
// timeout), how much silence is charged against retry_cnt, and when the connection counts as dead
// (docs/transport.md rules 25, 26). The same for all reliable requesters, which decide what goes
// again and what progress is.
//
// Called with the driver lock held.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "protocol/psn.h"
#include "protocol/transport/send_tracker.h"
#include "verbs-shim/driver/requester/silence.h"
#include "verbs-shim/driver/send_queue.h"
#include "verbs-shim/driver/types.h"

namespace hostnic::driver {

class Patience {
 public:
  void start(TimeNs now_ns) {
    *this = {};
    progress_ns_ = evaluated_ns_ = fired_ns_ = now_ns;
  }
  // Work begins on an idle queue: until now there was nothing to wait for.
  void begin_work(TimeNs now_ns) { progress_ns_ = evaluated_ns_ = now_ns; }
  // The peer has answered what it had not before.
  void note_progress(TimeNs now_ns) {
    progress_ns_ = evaluated_ns_ = now_ns;
    silence_ns_ = stalled_ns_ = 0;
    retries_ = 0;
  }
  // The peer has the oldest packet and says that it can't take it now: that is no silence, but
  // repetitions go on at longer and longer intervals.
  void note_put_off() {
    silence_ns_ = 0;
    retries_ = 0;
  }
  // A timer has fired, whether or not anything could go again.
  void note_fired(TimeNs now_ns) { fired_ns_ = now_ns; }
  void note_probe() { ++retries_; }
  void note_timeout() {
    ++retries_;
    ++backoff_;
  }
  // It is known again how long the peer takes.
  void end_backoff() { backoff_ = 0; }

  uint32_t backoff() const { return backoff_; }
  uint32_t retries() const { return retries_; }
  uint64_t silence_ns() const { return silence_ns_; }
  // Since when nothing has been heard, and no timer has fired.
  TimeNs quiet_since_ns() const { return std::max(progress_ns_, fired_ns_); }

  // The retransmission timeout, by RFC 6298. The queue pair's own timeout, times `stretch`, is the
  // bound even where round trips were measured longer: a stalled machine must not make a lost
  // answer wait until retry_cnt is used up.
  uint64_t rto_ns(const SendQueue& queue, const RttEstimator& rtt, uint64_t stretch) const;
  // Tells people, by the status, between which bounds that is, once; and of what it is made now.
  void tell_limits(SendQueue& queue, uint64_t stretch);
  void tell(SendQueue& queue, const RttEstimator& rtt) const;
  // Charges the time since the last evaluation. Nothing is charged while the own NIC does not run,
  // or has not even transmitted the oldest PSN that is waited for (none: only answers are), and at
  // most one timeout at a time: a process that was stopped must not find its connections failed
  // (rule 25, silence is not waiting).
  void charge(SendQueue& queue, TimeNs now_ns, std::optional<Psn> oldest, uint64_t rto_ns);
  // Whether the own NIC has had a turn since `due_ns`, when the answer was due, `interval_ns` after
  // it was asked for; else it is woken, and gets a moment (rule 25).
  bool nic_has_looked(SendQueue& queue, TimeNs now_ns, TimeNs due_ns, uint64_t interval_ns);
  // Whether the connection counts as dead. Time alone proves nothing on a machine that is short of
  // it: some retries must have been made as well.
  bool is_over(const SendQueue& queue) const {
    return silence_ns_ >= limit_ns(queue) && retries_ >= least_retries(queue.attr);
  }
  // The same for a requester whose limit is another one.
  bool is_over(const SendQueue& queue, uint64_t limit_ns) const {
    return silence_ns_ >= limit_ns && retries_ >= least_retries(queue.attr);
  }
  // When it may, at the earliest; UINT64_MAX: never.
  TimeNs over_ns(const SendQueue& queue) const { return over_ns(limit_ns(queue)); }
  TimeNs over_ns(uint64_t limit) const {
    if (limit == UINT64_MAX) return UINT64_MAX;
    return evaluated_ns_ + (limit - std::min(limit, silence_ns_));
  }

 private:
  static uint64_t most_rto_ns(const SendQueue& queue, uint64_t stretch);
  static uint64_t limit_ns(const SendQueue& queue) {
    return silence_limit_ns(queue.attr, queue.host.settings().timescale);
  }

  TimeNs progress_ns_ = 0;   // when the peer last made progress, or work began on an idle queue
  TimeNs evaluated_ns_ = 0;  // up to when silence has been charged
  uint64_t silence_ns_ = 0;  // charged against retry_cnt
  TimeNs fired_ns_ = 0;      // last probe or timeout
  uint64_t stalled_ns_ = 0;  // time that the NIC did not run, in a row
  NicLooks nic_looks_;
  uint32_t retries_ = 0;  // probes and timeouts since the last progress
  uint32_t backoff_ = 0;  // timeouts since it was known how long the peer takes
};

}  // namespace hostnic::driver
