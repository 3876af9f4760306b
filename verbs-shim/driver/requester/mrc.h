// SPDX-License-Identifier: BSD-3-Clause
// The requester of MRC (docs/mrc.md, "Transport"): WRITEs in one PSN space, of which SACKs say what
// has come and transport ACKs what is done. What is missing goes again alone (SendTracker's
// selective recovery); the NIC chooses paths, and its congestion window says how much may be on its
// way. How long a peer may be silent MRC says itself (RetrySchedule).
#pragma once

#include <algorithm>

#include "protocol/transport/mrc/retry_schedule.h"
#include "protocol/transport/send_tracker.h"
#include "verbs-shim/driver/requester/patience.h"
#include "verbs-shim/driver/requester/requester.h"

namespace hostnic::driver {

class MrcRequester {
 public:
  void start(SendQueue& queue, Psn first, TimeNs now_ns);
  void begin_work(TimeNs now_ns) { patience_.begin_work(now_ns); }
  Psn una() const { return requests_.una(); }
  Psn next() const { return requests_.next(); }
  uint32_t in_flight() const { return requests_.in_flight(); }
  uint32_t congestion_window() const { return window_psns_; }
  QpGauges gauges(const SendQueue& queue) const;
  void prefetch_next() const { requests_.prefetch_next(); }

  bool may_issue() const { return true; }
  uint32_t room(const SendQueue& queue) const;
  // One more WRITE with immediate data than the peer has agreed to waits: an acknowledgement of one
  // before it comes.
  bool may_start(const SendQueue& queue, const Wqe& w) const {
    return w.op != SendOp::kWriteImm || queue.attr.mrc.max_imm == 0 ||
           imms_ < queue.attr.mrc.max_imm;
  }
  void assign(SendQueue& queue, Wqe& w, uint32_t index);
  void send_next(SendQueue& queue, Wqe& w, uint32_t index, uint32_t room, uint64_t limit_bytes,
                 TimeNs now_ns);
  bool send_again(SendQueue& queue, TimeNs now_ns);

  void take_acks(SendQueue& queue, const QpStatusSnapshot& snapshot, TimeNs now_ns);
  void take_refusals(SendQueue& queue, const QpStatusSnapshot& snapshot, TimeNs now_ns);
  bool finished(const Wqe& w) const {
    return distance(w.first_psn + w.psn_count, requests_.una()) >= 0;
  }
  void retire(const Wqe& w) {
    if (w.op == SendOp::kWriteImm) --imms_;
  }

  TimeNs deadline_ns(const SendQueue& queue) const;
  TimeNs first_deadline_ns(const SendQueue& queue, TimeNs now_ns) const {
    const DriverSettings& settings = queue.host.settings();
    return in_flight() == 0 ? UINT64_MAX
                            : now_ns + std::min(settings.min_probe_ns, settings.min_rto_ns);
  }
  bool on_timer(SendQueue& queue, TimeNs now_ns);

 private:
  uint64_t rto_ns(const SendQueue& queue) const { return patience_.rto_ns(queue, rtt_, 1); }
  uint64_t probe_ns(const SendQueue& queue) const;
  TimeNs quiet_since_ns() const {
    return std::max(patience_.quiet_since_ns(), requests_.last_send_ns());
  }
  static uint64_t silence_limit_ns(const SendQueue& queue);
  void note_acknowledged(SendQueue& queue, Psn una, TimeNs now_ns);
  void on_timeout(SendQueue& queue);
  void take_losses(const SendQueue& queue, const QpStatusSnapshot& snapshot);

  SendTracker requests_;  // una: the first PSN that no transport ACK covers
  Psn highest_acceptable_;
  uint32_t window_psns_ = 1;
  uint32_t psns_since_ack_request_ = 0;
  // The numbers of the next message, and of the next that takes a receive.
  uint16_t next_msn_ = 0, next_rqmsn_ = 0;
  uint32_t imms_ = 0;    // WRITEs with immediate data that have begun and are not complete
  uint32_t probes_ = 0;  // the last packet once more, since the last progress
  PsnBits losses_told_;  // as the NIC had told them
  uint32_t seen_losses_ = 0;
  uint32_t seen_nak_count_ = 0, seen_rtt_count_ = 0, seen_echo_count_ = 0, seen_spurious_count_ = 0;
  RttEstimator rtt_;
  Patience patience_;  // progress: una moves
};
static_assert(ReliableRequester<MrcRequester>);

}  // namespace hostnic::driver
