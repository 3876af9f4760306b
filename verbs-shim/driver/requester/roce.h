// SPDX-License-Identifier: BSD-3-Clause
// The requester of the standard's RC (docs/roce.md; InfiniBand 9.7): one PSN space, in which READs
// take as many numbers as they have answers; go-back-N: when something is missing, everything from
// there on goes again. A peer that holds what it has received behind a gap, and says so by an
// acknowledgement that reaches beyond what was repeated, gets the missing packet alone: what is
// still missing then shows in that acknowledgement (as in TCP's NewReno, RFC 6582).
//
// A long READ leaves as several requests, so that answers never come faster than there is room for
// them.
//
// After a congestion notification packets leave at a rate (DCQCN), and the timer says when the next
// one may.
#pragma once

#include <algorithm>

#include "protocol/fixed_ring.h"
#include "protocol/transport/congestion_window.h"
#include "protocol/transport/dcqcn.h"
#include "protocol/transport/send_tracker.h"
#include "verbs-shim/driver/requester/outstanding_reads.h"
#include "verbs-shim/driver/requester/patience.h"
#include "verbs-shim/driver/requester/requester.h"
#include "verbs-shim/driver/requester/rnr_wait.h"

namespace hostnic::driver {

class RoceRequester {
 public:
  void start(SendQueue& queue, Psn first, TimeNs now_ns);
  void begin_work(TimeNs now_ns) { patience_.begin_work(now_ns); }
  Psn una() const { return una_; }
  Psn next() const { return next_; }
  uint32_t in_flight() const { return static_cast<uint32_t>(distance(una_, next_)); }
  uint32_t congestion_window() const { return congestion_.psns(); }
  QpGauges gauges(const SendQueue& queue) const;
  void prefetch_next() const {}

  bool may_issue() const { return !rnr_.any() && again_ == next_; }
  uint32_t room(const SendQueue& queue) const;
  bool may_start(const SendQueue& queue, const Wqe& w) const {
    return reads_outstanding_ == 0 || !waits_for_reads(queue, w);
  }
  void assign(SendQueue& queue, Wqe& w, uint32_t index);
  void send_next(SendQueue& queue, Wqe& w, uint32_t index, uint32_t room, uint64_t limit_bytes,
                 TimeNs now_ns);
  bool send_again(SendQueue& queue, TimeNs now_ns);

  void take_acks(SendQueue& queue, const QpStatusSnapshot& snapshot, TimeNs now_ns);
  void take_refusals(SendQueue& queue, const QpStatusSnapshot& snapshot, TimeNs now_ns);
  bool finished(const Wqe& w) const { return distance(w.first_psn + w.psn_count, una_) >= 0; }
  void retire(const Wqe& w) {
    if (is_read_or_atomic(w.op)) --reads_outstanding_;
  }

  TimeNs deadline_ns(const SendQueue& queue) const;
  TimeNs first_deadline_ns(const SendQueue& queue, TimeNs now_ns) const {
    const TimeNs rto = in_flight() == 0 ? UINT64_MAX : now_ns + queue.host.settings().min_rto_ns;
    return limiter_.limited() ? std::min(rto, next_look_ns()) : rto;
  }
  bool on_timer(SendQueue& queue, TimeNs now_ns);

 private:
  uint32_t read_limit(const SendQueue& queue) const {
    return std::min<uint32_t>(queue.attr.max_rd_atomic, kReadDestinationEntries);
  }
  bool waits_for_reads(const SendQueue& queue, const Wqe& w) const;
  uint32_t answers_of_request(const SendQueue& queue, const Wqe& w, uint32_t within) const;
  uint32_t send_request(SendQueue& queue, const Wqe& w, uint32_t within, uint8_t flags);
  void go_back(RepeatCause cause) {
    again_cause_ = cause;
    timed_ns_ = 0;  // an answer could be to either copy
    again_ = una_;
    repeated_until_ = next_;
    filling_ = Filling::kNo;
    requests_.clear();
  }
  bool may_fill(const SendQueue& queue) const;
  void fill(RepeatCause cause, TimeNs now_ns);
  bool send_missing(SendQueue& queue, TimeNs now_ns);
  void note_filled(const SendQueue& queue, TimeNs now_ns);
  uint64_t fill_timeout_ns(const SendQueue& queue) const;
  uint64_t rto_ns(const SendQueue& queue) const {
    return patience_.rto_ns(queue, rtt_, kTimeoutStretch);
  }
  TimeNs quiet_since_ns() const { return std::max(patience_.quiet_since_ns(), sent_ns_); }
  void time_answer(SendQueue& queue, TimeNs now_ns);
  void take_nak(SendQueue& queue, const QpStatusSnapshot& snapshot, TimeNs now_ns);
  uint32_t packets_by_rate(const SendQueue& queue) const {
    return limiter_.limited() ? limiter_.packets(queue.mtu_shift()) : UINT32_MAX;
  }
  uint8_t spend_rate(SendQueue& queue, uint32_t packets, uint32_t payload_bytes);
  void tell_rate(SendQueue& queue);
  TimeNs next_look_ns() const { return limiter_.wake_ns(); }

  // Everything before una_ is acknowledged and answered; [una_, again_) has left since something
  // was last missing, [again_, next_) is to go again.
  Psn una_, again_, next_;
  Psn repeated_until_;  // everything before it may have left more than once
  // Why [again_, next_) and the missing packet go again.
  RepeatCause again_cause_ = RepeatCause::timeout, fill_cause_ = RepeatCause::nak;

  // What the peer does with packets behind a gap.
  enum class Peer : uint8_t { kUnknown, kHolds, kDrops };
  Peer peer_ = Peer::kUnknown;
  uint32_t doubts_ = 0;  // times that it may have dropped them
  // The packet at fill_psn_ alone is to go again, or has; or the answers to a READ from there on
  // are waited for, which shows what else is missing.
  enum class Filling : uint8_t { kNo, kDue, kSent, kAnswers };
  Filling filling_ = Filling::kNo;
  uint32_t fills_ = 0;  // how often it has gone before
  Psn fill_psn_;
  Psn fill_until_;      // what left before the packet did: where it is missing then, it is lost
  TimeNs fill_ns_ = 0;  // when it was handed over, or an answer came
  RttEstimator fill_rtt_;

  uint32_t next_read_number_ = 0, reads_outstanding_ = 0;
  OutstandingReads outstanding_reads_;
  uint32_t answers_per_request_ = 1;  // of a READ; a power of two
  uint32_t psns_since_ack_request_ = 0;
  // The ends of the READ and atomic requests whose answers have not all come.
  FixedRing<Psn, kReadDestinationEntries> requests_;
  CongestionWindow congestion_;  // of timeouts; marks are the limiter's
  DcqcnLimiter limiter_;
  bool has_rate_ = false;     // the limiter limits, or the NIC is to be told that it no longer does
  bool rate_untold_ = false;  // the NIC is to count cuts and recoveries
  uint32_t told_cuts_ = 0, told_recoveries_ = 0;

  uint32_t seen_nak_count_ = 0, seen_mark_count_ = 0;
  RnrWait rnr_;

  // How long a peer takes to answer: one request at a time is timed, up to before timed_until_.
  RttEstimator rtt_;
  Psn timed_until_;
  TimeNs timed_ns_ = 0;  // when it left; 0: none is
  // Progress: una_ moves. What was repeated tells no round trip, so the doubled timeout stays until
  // one is known (Karn).
  Patience patience_;
  TimeNs sent_ns_ = 0;  // when something last left
};
static_assert(ReliableRequester<RoceRequester>);

}  // namespace hostnic::driver
