// SPDX-License-Identifier: BSD-3-Clause
// The requester of the native reliable transport (docs/transport.md): two PSN spaces, selective or
// other recovery by SendTracker, congestion windows, credit, RNR, READs that are pulled, timers.
// Split over hostnic.h (what each request needs), hostnic.cc (start), hostnic_issue.cc (requests of
// READs, and what goes again), hostnic_reports.cc (what the NIC says) and hostnic_timers.cc; the
// answers to READs are in read_answers.h.
#pragma once

#include <algorithm>
#include <memory>

#include "protocol/transport/congestion_window.h"
#include "protocol/transport/send_tracker.h"
#include "verbs-shim/driver/requester/patience.h"
#include "verbs-shim/driver/requester/probe_timer.h"
#include "verbs-shim/driver/requester/read_answers.h"
#include "verbs-shim/driver/requester/requester.h"
#include "verbs-shim/driver/requester/rnr_wait.h"

namespace hostnic::driver {

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
  struct Ends {
    const void *of_posts, *of_reports;
  };
  static Ends ends(const HostnicRequester* requester) {
    return {&requester->seen_nak_count_, &requester->answers_};
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
    if (requests_.lost_count() != 0 && !rnr_.waiting()) all = repeat_lost(queue, now_ns);
    if (reads_outstanding_ != 0)
      all = answers_.pull_all(queue, requests_, request_congestion_.psns(), now_ns) && all;
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
    return answers_.have_come(w);
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
    return now_ns + std::min(answers_.misses_repulled()
                                 ? ProbeTimer::silence_ns(settings, rtt_, answers_)
                                 : settings.min_probe_ns,
                             settings.min_rto_ns);
  }
  bool on_timer(SendQueue& queue, TimeNs now_ns);

 private:
  bool wants_ack(const SendQueue& queue, const Wqe& w, uint32_t index, uint32_t packets,
                 uint32_t room) const;
  void hand_over(SendQueue& queue, Wqe& w, uint32_t index, uint32_t packets, uint8_t path, bool ack,
                 TimeNs now_ns);

  // Functions in hostnic_issue.cc.
  void begin_read(SendQueue& queue, Wqe& w, uint32_t room, uint64_t limit_bytes, TimeNs now_ns);
  void send_by_path(SendQueue& queue, Wqe& w, uint32_t index, uint32_t packets, uint32_t room,
                    TimeNs now_ns);
  bool repeat_lost(SendQueue& queue, TimeNs now_ns);
  void probe_path(SendQueue& queue, TimeNs now_ns);

  // Functions in hostnic_reports.cc.
  void take_limits(SendQueue& queue, const QpStatusSnapshot& snapshot);
  void take_answers(SendQueue& queue, const QpStatusSnapshot& snapshot, TimeNs now_ns);
  void take_executed(SendQueue& queue, TimeNs now_ns);
  void note_acknowledged(SendQueue& queue, Psn una, TimeNs now_ns);
  void take_nak(SendQueue& queue, const QpStatusSnapshot& snapshot, TimeNs now_ns);
  void take_response_error(SendQueue& queue, const QpStatusSnapshot& snapshot);
  void note_progress(SendQueue& queue, TimeNs now_ns);
  template <bool kHasPaths>
  void take_all_acks(SendQueue& queue, const QpStatusSnapshot& snapshot, TimeNs now_ns);
  void take_acks_by_path(SendQueue& queue, const QpStatusSnapshot& snapshot, TimeNs now_ns);
  void take_rtt(SendQueue& queue, const QpStatusSnapshot& snapshot);
  void take_path_rtt(const QpStatusSnapshot& snapshot, uint32_t probed);
  void tell_paths(const SendQueue& queue);
  void end_rnr_wait(SendQueue& queue, bool timer_is_over);
  void fail(SendQueue& queue, uint32_t index, WcStatus status, VendorError vendor) const;

  // Functions in hostnic_timers.cc.
  static constexpr uint64_t kStretch = 1;  // of the queue pair's timeout, for the longest RTO
  uint64_t rto_ns(const SendQueue& queue) const { return patience_.rto_ns(queue, rtt_, kStretch); }
  bool waits_for_peer() const { return requests_.in_flight() != 0 || answers_.in_flight() != 0; }
  TimeNs answer_deadline_ns(const SendQueue& queue) const;
  void on_timeout(SendQueue& queue);
  void on_probe(SendQueue& queue);
  void suspect_path();

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
  // Values of counters in the status up to which they were dealt with.
  uint32_t seen_nak_count_ = 0, seen_rtt_count_ = 0, seen_echo_count_ = 0, seen_spurious_count_ = 0,
           seen_mark_count_ = 0;
  RttEstimator rtt_;
  ProbeTimer probes_;
  uint32_t rnr_sn_ = 0;

  // The paths of packets, of requests and pulls; null: there is one.
  std::unique_ptr<PathTable> paths_;
  uint32_t told_changes_ = 0;

  ReadAnswers answers_;  // lies idle without READs outstanding
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
  if (reads_outstanding_ != 0 && answers_.hold_back(queue, w, reads_outstanding_, requests_.una()))
    return false;
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
    answers_.begin(queue, w, index);
    ++reads_outstanding_;
    queue.fill_read_destination(w, index);
  }
}

// The attempt of a message's rest: where a message has one attempt, that of its beginning, which
// may have gone again.
[[gnu::always_inline]] inline uint8_t attempt_of_rest(const SendTracker& requests, const Wqe& w) {
  if (!requests.traits().one_attempt_per_message || w.issued_psns == 0) return 0;
  const Psn begin = before(w.first_psn, requests.una()) ? requests.una() : w.first_psn;
  return before(begin, requests.next()) ? requests.attempt(begin) : 0;
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

// Hands over the next packets of a request.
[[gnu::always_inline]] inline void HostnicRequester::hand_over(SendQueue& queue, Wqe& w,
                                                               uint32_t index, uint32_t packets,
                                                               uint8_t path, bool ack,
                                                               TimeNs now_ns) {
  const uint8_t attempt = attempt_of_rest(requests_, w);
  queue.send_range(w, index, w.issued_psns, packets, {attempt, path}, ack ? kSendAckRequest : 0,
                   queue.host.map.sends);
  psns_since_ack_request_ = ack ? 0 : psns_since_ack_request_ + packets;
  w.issued_psns += packets;
  requests_.on_first_send(packets, now_ns, w.issued_psns == w.psn_count, attempt);
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
  if (paths_ != nullptr) [[unlikely]] {
    send_by_path(queue, w, index, packets, room, now_ns);
    return;
  }
  hand_over(queue, w, index, packets, /*path=*/0, wants_ack(queue, w, index, packets, room),
            now_ns);
}

static_assert(ReliableRequester<HostnicRequester>);

}  // namespace hostnic::driver
