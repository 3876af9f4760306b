// SPDX-License-Identifier: BSD-3-Clause
// The requester of the native reliable transport (docs/transport.md): two PSN spaces, selective or
// other recovery by SendTracker, congestion windows, credit, RNR, READs that are pulled, timers.
// Split over hostnic.h (what each request needs), hostnic.cc (start), hostnic_issue.cc (READs, and
// what goes again), hostnic_reports.cc (what the NIC says) and hostnic_timers.cc.
#pragma once

#include <algorithm>

#include "protocol/transport/congestion_window.h"
#include "protocol/transport/send_tracker.h"
#include "verbs-shim/driver/requester/outstanding_reads.h"
#include "verbs-shim/driver/requester/patience.h"
#include "verbs-shim/driver/requester/requester.h"
#include "verbs-shim/driver/requester/rnr_wait.h"

namespace hostnic::driver {

inline constexpr uint32_t kResendsAfterTimeout = 16;  // PSNs, until the oldest unacknowledged one
                                                      // (una) moves again
// Probes, each after twice the silence, while answers are missing that were pulled again: a loss
// has just shown, and the last that is pulled again has nothing behind it by which its loss would.
inline constexpr uint32_t kMostRepullProbes = 4;

// Members that each message needs come first, next to each other (qp_prefetch.cc).
class HostnicRequester {
 public:
  // -- hostnic.cc
  void start(SendQueue& queue, Psn first, TimeNs now_ns);
  void begin_work(TimeNs now_ns) { patience_.begin_work(now_ns); }
  Psn una() const { return requests_.una(); }
  Psn next() const { return requests_.next(); }
  uint32_t in_flight() const { return requests_.in_flight(); }
  uint32_t congestion_window() const { return request_congestion_.psns(); }
  QpGauges gauges(const SendQueue& queue) const;
  void prefetch_next() const { requests_.prefetch_next(); }
  // For prefetching: the ends of what each post and each report touches of a requester. Nothing of
  // it is read.
  static const void* end_of_posts(const HostnicRequester* requester) {
    return &requester->next_response_psn_;
  }
  static const void* end_of_reports(const HostnicRequester* requester) {
    return &requester->responses_;
  }

  bool may_issue() const { return !rnr_.any(); }
  uint32_t room(const SendQueue& queue) const;
  bool may_start(const SendQueue& queue, const Wqe& w) const;
  void assign(SendQueue& queue, Wqe& w, uint32_t index);

  void send_next(SendQueue& queue, Wqe& w, uint32_t index, uint32_t room, uint64_t limit_bytes,
                 TimeNs now_ns);

  // -- hostnic_issue.cc
  bool send_again(SendQueue& queue, TimeNs now_ns) {
    // Transmissions matter when something is repeated; to some policies they always do.
    if (requests_.lost_count() != 0 || requests_.traits().follows_transmission)
      requests_.note_transmitted(queue.transmitted());
    bool all = true;
    if (requests_.lost_count() != 0 && !rnr_.waiting()) all = resend_lost(queue, now_ns);
    if (reads_outstanding_ != 0) {
      if (responses_.lost_count() != 0) all = pull_lost(queue, now_ns) && all;
      if (responses_.next() != next_response_psn_) all = pull(queue, now_ns) && all;
    }
    return all;
  }

  // -- hostnic_reports.cc
  void take_acks(SendQueue& queue, const QpStatusSnapshot& snapshot, TimeNs now_ns);
  void take_refusals(SendQueue& queue, const QpStatusSnapshot& snapshot, TimeNs now_ns) {
    if (snapshot.response_error != 0) take_response_error(queue, snapshot);
    if (snapshot.nak != 0) take_nak(queue, snapshot, now_ns);
  }
  bool finished(const Wqe& w) const {
    if (distance(w.first_psn + w.psn_count, requests_.una()) < 0) return false;
    return w.response_count == 0 ||
           distance(w.first_response_psn + w.response_count, responses_.una()) >= 0;
  }
  void retire(const Wqe& w) {
    if (consumes_receive(w.op)) --receives_outstanding_;
    if (is_read_or_atomic(w.op)) --reads_outstanding_;
  }

  // -- hostnic_timers.cc
  TimeNs deadline_ns(const SendQueue& queue) const {
    if (rnr_.waiting()) return rnr_.until_ns();
    return waits_for_peer() ? answer_deadline_ns(queue) : UINT64_MAX;
  }
  // Most answers come before anything can be due; the exact deadline costs more to say, and is said
  // when this time is over. Sending more makes no deadline earlier.
  TimeNs first_deadline_ns(const SendQueue& queue, TimeNs now_ns) const {
    if (!waits_for_peer() || rnr_.waiting()) return UINT64_MAX;
    const DriverSettings& settings = queue.host.settings();
    return now_ns + std::min(misses_repulled() ? probe_ns(settings) : settings.min_probe_ns,
                             settings.min_rto_ns);
  }
  bool on_timer(SendQueue& queue, TimeNs now_ns);

 private:
  bool wants_ack(const SendQueue& queue, const Wqe& w, uint32_t index, uint32_t packets,
                 uint32_t room) const;
  uint8_t attempt_of_rest(const Wqe& w) const;

  // Functions in hostnic_issue.cc.
  bool waits_for_reads(const SendQueue& queue, const Wqe& w) const;
  static uint32_t find_by_response(const SendQueue& queue, Psn psn);
  uint32_t response_room(const SendQueue& queue) const;
  uint32_t pull_count(const SendQueue& queue, uint32_t wanted) const;
  bool answers_need_ack(const Wqe& w, uint32_t first_pull, uint32_t room) const;
  void begin_read(SendQueue& queue, Wqe& w, uint32_t room, uint64_t limit_bytes, TimeNs now_ns);
  void send_read_request(SendQueue& queue, const Wqe& w, uint32_t pull_first, uint32_t pull_count,
                         uint8_t attempt, uint8_t flags, RingEnd& ring) const;
  bool resend_lost(SendQueue& queue, TimeNs now_ns);
  void resend_read_request(SendQueue& queue, const Wqe& w, TimeNs now_ns, uint8_t attempt,
                           uint8_t flags);
  bool pull(SendQueue& queue, TimeNs now_ns);
  bool pull_lost(SendQueue& queue, TimeNs now_ns);
  void renew_epoch(const SendQueue& queue);

  // Functions in hostnic_reports.cc.
  void take_limits(SendQueue& queue, const QpStatusSnapshot& snapshot);
  void take_responses(SendQueue& queue, const QpStatusSnapshot& snapshot, TimeNs now_ns);
  void judge_responses(const SendQueue& queue);
  void take_executed(SendQueue& queue, TimeNs now_ns);
  void note_acknowledged(SendQueue& queue, Psn una, TimeNs now_ns);
  void take_nak(SendQueue& queue, const QpStatusSnapshot& snapshot, TimeNs now_ns);
  void take_response_error(SendQueue& queue, const QpStatusSnapshot& snapshot);
  void note_progress(TimeNs now_ns);
  void note_put_off();
  uint32_t index_refused(const SendQueue& queue, Psn una, Psn refused) const;
  void end_rnr_wait(SendQueue& queue, bool timer_is_over);
  void fail(SendQueue& queue, uint32_t index, WcStatus status, VendorError vendor) const;

  // Functions in hostnic_timers.cc.
  uint64_t rto_ns(const SendQueue& queue) const { return patience_.rto_ns(queue, rtt_, 1); }
  bool misses_repulled() const {
    return responses_.in_flight() != 0 && responses_.attempt(responses_.una()) != 0 &&
           !epoch_unanswered_;
  }
  uint64_t probe_ns(const DriverSettings& settings) const;
  uint64_t repeat_ns(const SendQueue& queue) const;
  bool may_probe() const { return probes_ < (misses_repulled() ? kMostRepullProbes : 1); }
  bool waits_for_peer() const { return requests_.in_flight() != 0 || responses_.in_flight() != 0; }
  TimeNs quiet_since_ns() const;
  TimeNs answer_deadline_ns(const SendQueue& queue) const;
  void on_timeout(SendQueue& queue);
  void on_probe(SendQueue& queue);

  RnrWait rnr_;
  // The peer's limits on what may be sent.
  bool has_credit_ = false;
  Psn highest_acceptable_;
  uint32_t credit_ = 0;
  uint32_t psns_since_ack_request_ = 0;
  uint32_t next_recv_sn_ = 0, receives_outstanding_ = 0, reads_outstanding_ = 0;

  Patience patience_;  // progress: the oldest unacknowledged PSN (una) moves, or an answer comes

  SendTracker requests_;
  CongestionWindow request_congestion_;
  // The numbers of the READ answers that will be asked for next. Without READs outstanding the
  // members from here on lie idle.
  Psn next_response_psn_;
  uint32_t next_read_number_ = 0;
  uint32_t answered_ = 0;  // index: no request before it waits for answers; head if that is later

  // Values of counters in the status up to which they were dealt with.
  uint32_t seen_nak_count_ = 0, seen_rtt_count_ = 0, seen_echo_count_ = 0, seen_spurious_count_ = 0,
           seen_mark_count_ = 0, seen_response_mark_count_ = 0;
  RttEstimator rtt_;
  RttEstimator answer_rtt_;  // from a pull to its answers, which wait for those pulled before

  uint32_t probes_ = 0;  // since the last progress
  uint8_t epoch_ = 0;
  bool epoch_unanswered_ = false;  // all is pulled anew, and answers of the old epoch still come

  SendTracker responses_;
  CongestionWindow response_congestion_;
  Psn epoch_keep_until_;
  OutstandingReads outstanding_reads_;
  uint32_t rnr_sn_ = 0;
};

// How many PSNs the windows leave room for (rule 27, congestion window).
[[gnu::always_inline]] inline uint32_t HostnicRequester::room(const SendQueue& /*queue*/) const {
  const uint32_t in_flight = requests_.in_flight();
  if (in_flight >= requests_.window()) return 0;
  uint32_t room = requests_.window() - in_flight;
  // PSNs that have arrived behind a missing one, or are lost, congest nothing: were they counted,
  // every lost packet would stop the sender until its repetition is acknowledged.
  if (requests_.traits().congestion_limits) {
    const uint32_t on_its_way = requests_.on_its_way(), window = request_congestion_.psns();
    if (on_its_way >= window) return 0;
    room = std::min(room, window - on_its_way);
  }
  const int32_t peer = distance(requests_.next(), highest_acceptable_) + 1;
  return peer <= 0 ? 0 : std::min(room, static_cast<uint32_t>(peer));
}

// Whether READs before it, READ limit and credit let a request go (rules 2, 14, 18).
[[gnu::always_inline]] inline bool HostnicRequester::may_start(const SendQueue& queue,
                                                               const Wqe& w) const {
  if (reads_outstanding_ != 0 && waits_for_reads(queue, w)) return false;
  if (is_read_or_atomic(w.op) &&
      reads_outstanding_ >= std::min<uint32_t>(queue.attr.max_rd_atomic, kReadDestinationEntries)) {
    return false;
  }
  if (consumes_receive(w.op) && has_credit_ && serial_distance(next_recv_sn_, credit_) <= 0) {
    return receives_outstanding_ == 0;  // the oldest request goes all the same, as the probe
  }
  return true;
}

[[gnu::always_inline]] inline void HostnicRequester::assign(SendQueue& queue, Wqe& w,
                                                            uint32_t index) {
  w.first_psn = requests_.next();
  w.psn_count = is_read_or_atomic(w.op) ? 1 : queue.packets_for(w.length_bytes);
  if (consumes_receive(w.op)) {
    w.recv_sn = next_recv_sn_++;
    ++receives_outstanding_;
  }
  if (is_read_or_atomic(w.op)) {
    outstanding_reads_.begin(next_read_number_, index);
    w.recv_sn = next_read_number_++;
    w.first_response_psn = next_response_psn_;
    w.response_count =
        w.length_bytes == 0 ? 0 : (is_atomic(w.op) ? 1 : queue.packets_for(w.length_bytes));
    next_response_psn_ += w.response_count;
    ++reads_outstanding_;
    queue.fill_read_destination(w, index);
  }
}

// The attempt of a message's rest: where a message has one attempt, that of its beginning, which
// may have gone again.
[[gnu::always_inline]] inline uint8_t HostnicRequester::attempt_of_rest(const Wqe& w) const {
  if (!requests_.traits().one_attempt_per_message || w.issued_psns == 0) return 0;
  const Psn begin = before(w.first_psn, requests_.una()) ? requests_.una() : w.first_psn;
  return before(begin, requests_.next()) ? requests_.attempt(begin) : 0;
}

// Whether a packet asks for an ACK (rule 20, one ACK per burst): the last before the sender must
// pause does, the end of signalled requests, and one in every quarter window.
[[gnu::always_inline]] inline bool HostnicRequester::wants_ack(const SendQueue& queue, const Wqe& w,
                                                               uint32_t index, uint32_t packets,
                                                               uint32_t room) const {
  if (packets == room) return true;
  if (psns_since_ack_request_ + packets >= request_congestion_.psns() / 4) return true;
  if (w.issued_psns + packets != w.psn_count) return false;
  if (w.signalled || index + 1 == queue.tail()) return true;
  const Wqe& following = queue.wqe(index + 1);
  return !queue.has_packets(following) || !may_start(queue, following);
}

[[gnu::always_inline]] inline void HostnicRequester::send_next(SendQueue& queue, Wqe& w,
                                                               uint32_t index, uint32_t room,
                                                               uint64_t limit_bytes,
                                                               TimeNs now_ns) {
  if (is_read_or_atomic(w.op)) {
    begin_read(queue, w, room, limit_bytes, now_ns);
    return;
  }
  uint32_t packets = w.psn_count - w.issued_psns;
  if (packets > 1) {
    packets =
        std::min({room, queue.chunk_packets(limit_bytes, request_congestion_.psns()), packets});
  }
  const bool ack = wants_ack(queue, w, index, packets, room);
  const uint8_t attempt = attempt_of_rest(w);
  queue.send_range(w, index, w.issued_psns, packets, attempt, ack ? kSendAckRequest : 0,
                   queue.host.map.sends);
  psns_since_ack_request_ = ack ? 0 : psns_since_ack_request_ + packets;
  w.issued_psns += packets;
  requests_.on_first_send(packets, now_ns, w.issued_psns == w.psn_count, attempt);
}

static_assert(ReliableRequester<HostnicRequester>);

}  // namespace hostnic::driver
