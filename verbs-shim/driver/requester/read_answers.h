// SPDX-License-Identifier: BSD-3-Clause
// The answers to READs and atomics of the native transport (docs/transport.md rules 17, 18): a PSN
// space of their own, of which the requester pulls ranges, and pulls again what did not come.
#pragma once

#include "protocol/transport/congestion_window.h"
#include "protocol/transport/send_tracker.h"
#include "verbs-shim/driver/requester/outstanding_reads.h"
#include "verbs-shim/driver/requester/requester.h"

namespace hostnic::driver {

// Belongs to one requester, and wants the driver lock held, as that does. `requests` are always the
// requester's own, `chunk_psns` is the congestion window of these: as much as one descriptor may
// ask for. The functions that return bool return false if the ring is full.
class ReadAnswers {
 public:
  // What arrived with a report.
  struct News {
    bool fresh;      // an answer that had not come before
    bool una_moved;  // the oldest answers outstanding are here
  };

  // `paths`, which outlive this, are those that pulls choose from, and answers come by; null: there
  // is one.
  void start(const DriverSettings& settings, PathTable* paths);
  // Where there are several paths: the one of the next request, and of the answers that are pulled
  // with it, a run at most.
  uint8_t take_path() {
    if (keeps_order_) return ordered_path();
    const PathTable::Choice by = paths_->next();
    paths_->take(by.most_packets);
    return by.path;
  }
  // Gives a READ or atomic, at `index` of the send queue, its number and those of its answers.
  void begin(const SendQueue& queue, Wqe& w, uint32_t index) {
    outstanding_.begin(next_read_number_, index);
    w.recv_sn = next_read_number_++;
    w.first_response_psn = next_psn_;
    w.response_count =
        w.length_bytes == 0 ? 0 : (is_atomic(w.op) ? 1 : queue.packets_for(w.length_bytes));
    next_psn_ += w.response_count;
  }

  const SendTracker& tracker() const { return tracker_; }
  uint32_t in_flight() const { return tracker_.in_flight(); }
  Psn end() const { return next_psn_; }
  uint8_t epoch() const { return epoch_; }
  const RttEstimator& rtt() const { return rtt_; }
  bool have_come(const Wqe& w) const {
    return w.response_count == 0 ||
           distance(w.first_response_psn + w.response_count, tracker_.una()) >= 0;
  }
  // Whether a request, not begun, waits for one of the `count` READs and atomics before it.
  bool hold_back(const SendQueue& queue, const Wqe& w, uint32_t count, Psn requests_una) const;
  // The place in the send queue of the READ with that number; the queue's tail: there is none.
  static uint32_t find_by_number(const SendQueue& queue, uint32_t read_number);
  // Whether an answer is missing that was pulled again.
  bool misses_repulled() const {
    return tracker_.in_flight() != 0 && tracker_.attempt(tracker_.una()) != 0 && !epoch_unanswered_;
  }

  // Hands over the request of a READ or atomic that has not been sent, together with `pulled` of
  // its first answers.
  void request(SendQueue& queue, const Wqe& w, uint32_t pulled, uint8_t flags, TimeNs now_ns,
               uint8_t path);
  // How many answers may be pulled with that request.
  uint32_t first_pull(const SendQueue& queue, const Wqe& w, uint32_t chunk) const;
  void request_again(SendQueue& queue, const Wqe& w, uint8_t attempt, uint8_t flags, TimeNs now_ns,
                     uint8_t path);
  // Pulls what was lost, and what is still to be asked for of READs that have executed.
  bool pull_all(SendQueue& queue, const SendTracker& requests, uint32_t chunk_psns, TimeNs now_ns) {
    bool all = true;
    if (tracker_.lost_count() != 0) all = pull_lost(queue, requests, now_ns);
    if (tracker_.next() != next_psn_) all = pull(queue, requests, chunk_psns, now_ns) && all;
    return all;
  }

  // Takes what a report says. What was pulled before `answered_before_ns`, and would be here, is
  // missing; `srtt_ns` is the round trip of requests.
  News take(const SendQueue& queue, const QpStatusSnapshot& snapshot, TimeNs answered_before_ns,
            uint64_t srtt_ns, TimeNs now_ns);
  // The PSN behind the last request that its answers say was executed, `una` if none does.
  Psn executed(const SendQueue& queue, Psn una);

  void detect_losses(TimeNs now_ns, uint64_t srtt_ns) { tracker_.detect_losses(now_ns, srtt_ns); }
  // Marks what a probe asks for again, or a timeout, of which `most` PSNs go at once.
  void on_probe(uint32_t most);
  void on_timeout(uint32_t most);

 private:
  static constexpr uint8_t kNoAttempt = 0xff;
  static uint32_t find_by_psn(const SendQueue& queue, Psn psn);
  uint32_t room(const SendQueue& queue) const;
  uint32_t pull_count(const SendQueue& queue, uint32_t wanted) const;
  void send_request(SendQueue& queue, const Wqe& w, uint32_t first, uint32_t count, uint8_t attempt,
                    uint8_t flags, uint8_t path, RingEnd& ring) const;
  void note_pulled(uint32_t count, TimeNs now_ns, uint8_t path);
  uint8_t ordered_path();
  uint32_t take_pull_path(uint8_t& path, TimeNs now_ns);
  bool pull(SendQueue& queue, const SendTracker& requests, uint32_t chunk_psns, TimeNs now_ns);
  bool pull_lost(SendQueue& queue, const SendTracker& requests, TimeNs now_ns);
  void judge(const SendQueue& queue);
  void renew_epoch(const SendQueue& queue);

  // The numbers of the answers that will be asked for next.
  Psn next_psn_;
  uint32_t next_read_number_ = 0;
  uint32_t answered_ = 0;  // index: no request before it waits for answers; head if that is later
  uint32_t seen_mark_count_ = 0;  // of the status, up to which it was dealt with
  uint8_t epoch_ = 0;
  bool epoch_unanswered_ = false;  // all is pulled anew, and answers of the old epoch still come
  RttEstimator rtt_;               // from a pull to its answers, which wait for those pulled before

  SendTracker tracker_;
  CongestionWindow congestion_;
  Psn epoch_keep_until_;
  OutstandingReads outstanding_;
  PathTable* paths_ = nullptr;
  // Until these answers are here, that an epoch's beginning has pulled anew, all goes by one path.
  bool keeps_order_ = false;
  uint8_t ordered_path_ = 0;
  Psn ordered_until_;
};

}  // namespace hostnic::driver
