// SPDX-License-Identifier: BSD-3-Clause
// One queue pair's driver half: the send queue, PSN and receive number assignment, loss recovery,
// pulls, completions. All members want the driver lock held. Split over qp.cc (posting, state),
// qp_issue.cc (what goes to the NIC), qp_reports.cc (what the NIC says), qp_timers.cc.
#pragma once

#include <atomic>
#include <bit>
#include <memory>
#include <vector>

#include "protocol/prefetch.h"
#include "protocol/transport/congestion_window.h"
#include "protocol/transport/send_tracker.h"
#include "verbs-shim/driver/driver.h"
#include "verbs-shim/driver/qp_state.h"
#include "verbs-shim/driver/ring_waiters.h"
#include "verbs-shim/driver/segment_map.h"
#include "verbs-shim/driver/srq.h"
#include "verbs-shim/driver/zeroed_array.h"

namespace hostnic::driver {

inline constexpr uint32_t kResendsAfterTimeout = 16;  // PSNs, until the oldest unacknowledged one
                                                      // (una) moves again

// What queue pairs share: the rings, the counters, and the lists of who wants what.
class QpHost {
 public:
  explicit QpHost(const DriverSettings& settings) : settings_(settings) {}
  virtual ~QpHost() = default;
  const DriverSettings& settings() const { return settings_; }
  // Notes that descriptors went into a ring: the lock's owner kicks before unlocking.
  void published() { must_kick = true; }
  // How many bytes of this QP may wait in the NIC. To be asked when the QP hands some over.
  uint64_t queued_bytes_limit(uint32_t status_index, TimeNs now_ns) {
    if (status_index != last_sender_) {
      last_sender_ = status_index;
      several_until_ns_ = now_ns + kSendingNs;
    }
    return now_ns < several_until_ns_ ? settings_.queued_bytes_limit
                                      : settings_.sole_queued_bytes_limit;
  }
  virtual void want_issue(
      class Qp& qp) = 0;  // something keeps the QP from issuing that no report will announce
  virtual void wait_for_ring_space(
      class Qp& qp) = 0;  // the send ring is full, or others wait for it
  // Whether others wait for room in the ring, so that the QP's new work goes behind theirs.
  bool others_wait_for_ring_space(const class Qp& qp) const {
    return !ring_waiters.empty() && in_turn != &qp;
  }
  virtual void want_timer(class Qp& qp) = 0;  // the QP's deadline may have become earlier
  virtual void raise(AsyncEvent event, class Qp* qp, Cq* cq) = 0;
  virtual void srq_taken(Srq& srq) = 0;  // the NIC took receives from the queue: the limit event
                                         // may be due
  // Sends the QP to ERR in the NIC without waiting; Qp::on_nic_error_state() follows.
  virtual void move_nic_to_error(class Qp& qp) = 0;
  // Hands a bind or an invalidation to the NIC; Qp::on_window_answer() follows. Returns false if
  // there is no room now.
  virtual bool send_window_command(class Qp& qp, Command& command) = 0;

  SegmentMap map;
  DriverCounters totals;
  QpStatusBits bits;  // where each QP in its turn copies its status's bitmaps to
  RingWaiters ring_waiters;
  const class Qp* in_turn = nullptr;  // the QP that was taken from that queue and may use the ring
                                      // now
  bool must_kick = false;

 private:
  // A QP counts as sending for so long after it last handed something over.
  static constexpr uint64_t kSendingNs = 10'000'000;

  const DriverSettings& settings_;
  uint32_t last_sender_ = 0;     // status of the QP that last handed something over
  TimeNs several_until_ns_ = 0;  // until then several QPs count as sending
};

// Members that each message needs come first, next to each other (qp_prefetch.cc).
class alignas(kCacheLineBytes) Qp {
 public:
  Qp(QpHost& host, const QpInit& init, uint32_t status_index, uint64_t recv_offset,
     uint64_t recv_completion_offset, uint64_t read_destination_offset);

  // -- qp.cc
  int post_send(const SendRequest& request, TimeNs now_ns);
  int post_recv(const RecvRequest& request);
  // Makes the local side of a transition, after the NIC agreed.
  void enter_state(QpState state, TimeNs now_ns);
  void flush(VendorError why);
  uint32_t outstanding_sends() const { return tail_ - head_; }
  uint32_t free_send_slots() const {
    return init.caps.max_send_wr - (tail_ - freed_.load(std::memory_order_acquire));
  }
  bool idle() const { return head_ == tail_; }
  // Whether the QP is in SQD and a request that was begun is not complete. All requests after that
  // one are not begun.
  bool draining() const { return state == QpState::kSqd && head_ != tail_ && wqe(head_).started; }
  uint32_t packets_in_flight() const { return requests_.in_flight(); }
  // -- qp_prefetch.cc: asks the cache for what on_report() looks at; a timer that is not due;
  // issue(); a post, and, when that has come, what it fills in.
  void prefetch_report();
  void prefetch_timer() const;
  void prefetch_issue() const;
  void prefetch_waiting() const;
  void prefetch_post() const;
  void prefetch_slots() const;
  uint32_t congestion_window() const { return request_congestion_.psns(); }
  Psn next_request_psn() const { return requests_.next(); }
  // The number of slots of the receive queue and its completion ring; with a shared queue, of the
  // ring alone.
  static uint32_t recv_entries_for(const QpInit& init);
  // The bytes in the arena for the receives' completions, or names.
  static uint64_t recv_completion_bytes(const QpInit& init);
  // Gives what the NIC took of the shared receive queue back to that queue: the NIC has let go of
  // the QP, which will be forgotten.
  void release_receives();

  // -- qp_issue.cc: hands over what may go now, retransmissions first.
  void issue(TimeNs now_ns) {
    issue_ready(now_ns);
    update_deadline();
  }

  // -- qp_reports.cc
  void on_report(TimeNs now_ns);
  void on_nic_error_state();
  void take_receives(uint32_t completed);
  void on_window_answer(int error, TimeNs now_ns);

  // -- qp_timers.cc
  TimeNs deadline_ns() const { return deadline_ns_; }
  void on_timer(TimeNs now_ns);
  void update_deadline();
  void start_timer(TimeNs now_ns);
  QpGauges gauges() const;

  const QpInit init;
  const uint32_t status_index;
  uint32_t qpn = 0;
  QpState state = QpState::kReset;
  bool notify_drained = false;
  bool on_ready_list = false, on_timer_list = false, waits_for_ring_space = false;
  uint32_t posted_next = 0;  // status of the QP that was posted to after this one, last time
  QpAttr attr;
  const uint64_t recv_offset, recv_completion_offset, read_destination_offset;

 private:
  // One request; what each one needs is one cache line.
  struct alignas(64) Wqe {
    uint64_t wr_id;
    SendOp op;
    bool signalled, solicited, fence, inline_data;
    bool started;
    uint8_t sge_count;
    uint32_t length_bytes;
    uint64_t remote_va;
    uint32_t rkey, imm_data;
    Psn first_psn;
    uint32_t psn_count, issued_psns;
    uint32_t recv_sn;  // the receive number, or a READ's or atomic's number
    Psn first_response_psn;
    uint32_t response_count;
    // Values of the requests that have them; in others something old.
    uint64_t compare_add, swap;
    UdAddress ud;
    WindowBinding binding;
  };
  enum class Rnr : uint8_t { kNone, kWaiting, kProbing };

  Wqe& wqe(uint32_t index) { return wqes_[index & wqe_mask_]; }
  const Wqe& wqe(uint32_t index) const { return wqes_[index & wqe_mask_]; }
  static bool consumes_receive(SendOp op) { return is_send(op) || op == SendOp::kWriteImm; }
  static bool is_send(SendOp op) {
    return op == SendOp::kSend || op == SendOp::kSendImm || op == SendOp::kSendInv;
  }
  // Whether a request has no packets: it binds or invalidates a window in the own NIC.
  static bool is_local(SendOp op) {
    return op == SendOp::kBindWindow || op == SendOp::kLocalInvalidate;
  }
  static bool is_read_or_atomic(SendOp op) {
    return op >= SendOp::kRead && op <= SendOp::kFetchAdd;
  }
  static bool is_atomic(SendOp op) { return op == SendOp::kCompareSwap || op == SendOp::kFetchAdd; }
  QpStatus& status() { return host_.map.qp_status(status_index); }
  // The path MTU as a shift: path MTUs are powers of two.
  uint32_t mtu_shift() const {
    return static_cast<uint32_t>(std::countr_zero(attr.path_mtu_bytes));
  }
  uint32_t packets_for(uint32_t bytes) const {
    if (broken(Fault::packet_count_wrong)) return (bytes >> mtu_shift()) + 1;
    return bytes <= attr.path_mtu_bytes ? 1 : ((bytes - 1) >> mtu_shift()) + 1;
  }
  bool is_reliable() const { return init.type == QpType::kRc; }
  // Whether a request fails in its turn (man ibv_post_send): a datagram must be one packet, and its
  // address handle must belong to the queue pair's protection domain.
  bool is_unsendable(const Wqe& w) const {
    return init.type == QpType::kUd && (w.length_bytes > attr.path_mtu_bytes || w.ud.other_domain);
  }

  // Functions in qp.cc.
  int check_service(const SendRequest& request) const;
  void flush_sends(VendorError why);
  void flush_receive(uint64_t wr_id, VendorError why);
  void flush_shared_receives(VendorError why);
  void move_ring_end();
  uint32_t bound_receives();
  RecvCompletion& recv_completion(uint32_t name);
  uint32_t receive_name(uint32_t sn);
  void start_connection(TimeNs now_ns);
  void start_sends(Psn first, TimeNs now_ns);
  void notify_credit();
  void deliver(const Wqe& w, WcStatus status, VendorError vendor);
  // Pushes a completion; `slots` is how many send queue slots are free once it is polled; 0 for
  // receives.
  void push(Cq& cq, const Completion& completion, bool solicited, uint32_t slots);
  void go_to_error();
  void stop_sends();

  // Functions in qp_issue.cc. kWaits means: for a report or a timer. kLater: the next turn looks
  // again.
  enum class Issue : uint8_t { kDone, kWaits, kLater, kRingFull };
  void issue_ready(TimeNs now_ns);
  bool issue_new(TimeNs now_ns);
  // The first PSN that the NIC has not transmitted: resends overtake, in the urgent ring, what was
  // handed over and not transmitted yet.
  Psn transmitted() { return Psn(status().transmitted_psn.load(std::memory_order_acquire)); }
  bool may_start(const Wqe& w) const;
  void start(Wqe& w, uint32_t index);
  uint32_t window_room() const;
  uint32_t response_room() const;
  // The most packets of one request that are handed over at a time, where
  // QpHost::queued_bytes_limit is so much; and the most of what was lost.
  uint32_t chunk_packets(uint64_t queued_limit_bytes) const;
  uint32_t resent_packets() const;
  Issue issue_chunk(TimeNs now_ns);
  Issue issue_local(uint32_t index);
  bool wants_ack(uint32_t index, const Wqe& w, uint32_t packets, uint32_t room) const;
  bool answers_need_ack(const Wqe& w, uint32_t first_pull, uint32_t room) const;
  uint8_t attempt_of_rest(const Wqe& w) const;
  // Some of a request's PSNs, and the bytes that they carry.
  struct Range {
    uint32_t first;
    uint8_t attempt;
    uint32_t offset, bytes;
  };
  void describe(const Wqe& w, const Range& range, uint8_t flags, SendDescriptor& d) const;
  void send_range(const Wqe& w, uint32_t index, uint32_t first, uint32_t count, uint8_t attempt,
                  uint8_t flags, RingEnd& ring);
  void send_read_request(const Wqe& w, uint32_t pull_first, uint32_t pull_count, uint8_t attempt,
                         uint8_t flags, RingEnd& ring);
  void fill_payload(const Wqe& w, uint32_t index, uint32_t offset, uint32_t bytes,
                    SendDescriptor& d, std::byte* extra);
  void fill_read_destination(const Wqe& w, uint32_t index);
  bool resend_lost(TimeNs now_ns);
  void resend_read_request(const Wqe& w, TimeNs now_ns, uint8_t attempt, uint8_t flags);
  bool pull(TimeNs now_ns);
  bool pull_lost(TimeNs now_ns);
  void renew_epoch(Psn keep_until);
  uint32_t find_by_psn(Psn psn) const;  // issue_ if no request has it
  uint32_t find_by_response(Psn psn) const;

  // Functions in qp_reports.cc.
  void take_acks(const QpStatusSnapshot& snapshot, TimeNs now_ns);
  void take_responses(const QpStatusSnapshot& snapshot, TimeNs now_ns);
  void take_executed(TimeNs now_ns);
  void note_acknowledged(Psn una, TimeNs now_ns);
  void take_nak(const QpStatusSnapshot& snapshot, TimeNs now_ns);
  void take_errors(const QpStatusSnapshot& snapshot);
  void take_events(const QpStatusSnapshot& snapshot);
  void note_progress(TimeNs now_ns);
  void note_put_off();
  uint32_t index_refused(Psn una, Psn refused) const;
  void end_rnr_wait(bool counted);
  void fail(uint32_t index, WcStatus status, VendorError vendor);
  void log_failure(const Wqe& w);
  void complete(TimeNs now_ns);
  void tell_drained();
  bool finished(const Wqe& w) const;

  // Functions in qp_timers.cc.
  uint64_t rto_ns() const;
  uint64_t probe_ns() const;
  uint64_t silence_limit_ns() const;
  bool waits_for_peer() const;
  TimeNs quiet_since_ns() const;
  bool front_refused() const;
  void charge_silence(TimeNs now_ns);
  void on_timeout();
  void on_probe();

  QpHost& host_;

  // The send queue: [head, issue) handed over and incomplete, [issue, tail) waiting.
  uint32_t wqe_mask_ = 0;
  uint32_t head_ = 0, issue_ = 0, tail_ = 0;
  std::atomic<uint32_t> freed_{0};  // slots whose completion was polled (rule 35)
  uint32_t unreported_ = 0;         // completed without a completion of their own
  ZeroedArray<Wqe> wqes_;
  ZeroedArray<Sge> sges_;

  Rnr rnr_ = Rnr::kNone;
  bool failed_ = false;         // a request has failed; see failed_index_
  bool credit_unsaid_ = false;  // a credit notification that found the urgent ring full
  bool flushing_ = false;       // the NIC let go of the QP in ERR: posts flush at once
  // The peer's limits on what may be sent.
  bool has_credit_ = false;
  Psn highest_acceptable_;
  uint32_t credit_ = 0;
  uint32_t psns_since_ack_request_ = 0;
  uint32_t next_recv_sn_ = 0, receives_outstanding_ = 0, reads_outstanding_ = 0;

  // The times that timers go by.
  TimeNs deadline_ns_ = UINT64_MAX;
  TimeNs progress_ns_ = 0;  // last time the oldest unacknowledged PSN (una) moved, or work started
                            // on an idle queue
  TimeNs evaluated_ns_ = 0;

  SendTracker requests_;
  CongestionWindow request_congestion_;
  // The numbers of the READ answers that will be asked for next. Without READs outstanding the
  // members from here on lie idle.
  Psn next_response_psn_;
  uint32_t next_read_number_ = 0;
  uint32_t answered_ = 0;  // index: no request before it waits for answers; head_ if that is later

  // Values of counters in the status up to which they were dealt with.
  uint32_t seen_nak_count_ = 0, seen_rtt_count_ = 0, seen_echo_count_ = 0, seen_spurious_count_ = 0,
           seen_events_ = 0, seen_mark_count_ = 0, seen_response_mark_count_ = 0;
  RttEstimator rtt_;

  // The receive queue.
  uint32_t recv_entries_ = 0;
  uint32_t recv_posted_ = 0, recv_taken_ = 0;  // shared queue: recv_posted is the ring's end

  TimeNs fired_ns_ = 0;      // last probe or timeout, whether or not anything could be sent again
  uint64_t silence_ns_ = 0;  // charged against retry_cnt
  uint32_t backoff_ = 0;
  uint32_t retries_ = 0;  // probes and timeouts since una last moved
  bool probed_ = false;
  bool last_wqe_said_ = false;
  uint8_t epoch_ = 0;

  SendTracker responses_;
  CongestionWindow response_congestion_;
  Psn epoch_keep_until_;
  uint64_t stalled_ns_ = 0;  // time that the NIC did not run, in a row

  TimeNs rnr_until_ns_ = 0;
  uint32_t rnr_sn_ = 0, rnr_retries_used_ = 0;
  // The failed request, if any: nothing at or after it is issued (rule 28).
  uint32_t failed_index_ = 0;
  WcStatus failed_status_ = WcStatus::kSuccess;
  VendorError failed_vendor_ = VendorError::kNone;

  ZeroedArray<uint64_t> recv_wr_ids_;
  ZeroedArray<std::byte> inline_bytes_;  // inline bytes of the send queue, by slot
};

}  // namespace hostnic::driver
