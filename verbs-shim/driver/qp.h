// SPDX-License-Identifier: BSD-3-Clause
// One queue pair's driver half: what verbs means. The send queue and its order, checks of what is
// posted, completions, flush, the receive side, states. When and as which packets requests go, and
// when they are finished, is its requester's business (requester/requester.h). All members want the
// driver lock held. Split over qp.cc (posting, state), qp_issue.cc (what goes to the NIC, and when
// to look again), qp_reports.cc (what the NIC says).
#pragma once

#include "verbs-shim/driver/requester/any_requester.h"
#include "verbs-shim/driver/send_queue.h"
#include "verbs-shim/driver/srq.h"
#include "verbs-shim/driver/wait_watch.h"

namespace hostnic::driver {

// Members that each message needs come first, next to each other (qp_prefetch.cc).
class alignas(kCacheLineBytes) Qp : public SendQueue {
 public:
  Qp(QpHost& host, const QpInit& init, uint32_t status_index, uint64_t recv_offset,
     uint64_t recv_completion_offset, uint64_t read_destination_offset);

  // -- qp.cc
  int post_send(const SendRequest& request, TimeNs now_ns);
  int post_recv(const RecvRequest& request);
  // Says what the NIC has chosen that the connection speaks, before it enters RTR.
  void set_transport(Transport transport) { requester_.become(transport_of(init.type, transport)); }
  // Makes the local side of a transition, after the NIC agreed.
  void enter_state(QpState state, TimeNs now_ns);
  void flush(VendorError why);
  // Whether the program may end the queue pair only when what it posted has been handed over: some
  // has not, and may soon.
  bool may_hand_over_more() const {
    return issue_ != tail_ && !failed_ && (state == QpState::kRts || wqe(issue_).started) &&
           requester_.with([]<class R>(const R& requester) {
             if constexpr (ReliableRequester<R>) return requester.may_issue();
             return true;
           });
  }
  // Whether the peer may still acknowledge what was handed over.
  bool waits_for_acks() const { return is_reliable() && packets_in_flight() != 0; }
  // Whether something of what was posted may still have to be handed over, first or again.
  bool has_to_leave() const {
    return may_hand_over_more() || (is_sending() && waits_for_acks() && !waits_for_receiver());
  }
  // Whether the peer has no receive, and is asked again later.
  bool waits_for_receiver() const {
    return requester_.with([]<class R>(const R& requester) {
      if constexpr (ReliableRequester<R>) return !requester.may_issue();
      return false;
    });
  }
  // Whether the NIC sends for the queue pair, and so can be asked to send the rest first.
  bool is_sending() const { return (state == QpState::kRts || state == QpState::kSqd) && !failed_; }
  uint32_t outstanding_sends() const { return tail_ - head_; }
  uint32_t free_send_slots() const {
    return init.caps.max_send_wr - (tail_ - freed_.load(std::memory_order_acquire));
  }
  bool idle() const { return head_ == tail_; }
  // Whether the QP is in SQD and a request that was begun is not complete. All requests after that
  // one are not begun.
  bool draining() const { return state == QpState::kSqd && head_ != tail_ && wqe(head_).started; }
  uint32_t packets_in_flight() const {
    return requester_.with([](const auto& requester) { return requester.in_flight(); });
  }
  uint32_t congestion_window() const {
    return requester_.with([](const auto& requester) { return requester.congestion_window(); });
  }
  Psn next_request_psn() const {
    return requester_.with([](const auto& requester) { return requester.next(); });
  }
  QpGauges gauges() const {
    return requester_.with([this](const auto& requester) { return requester.gauges(*this); });
  }
  // The number of slots of the receive queue and its completion ring; with a shared queue, of the
  // ring alone.
  static uint32_t recv_entries_for(const QpInit& init);
  // The bytes in the arena for the receives' completions, or names.
  static uint64_t recv_completion_bytes(const QpInit& init);
  // Gives what the NIC took of the shared receive queue back to that queue: the NIC has let go of
  // the QP, which will be forgotten.
  void release_receives();

  // -- qp_prefetch.cc: asks the cache for what on_report() looks at; a timer that is not due;
  // issue(); a post, and, when that has come, what it fills in.
  void prefetch_report();
  void prefetch_timer() const;
  void prefetch_issue() const;
  void prefetch_waiting() const;
  void prefetch_post() const;
  void prefetch_slots() const;

  // -- qp_issue.cc: hands over what may go now, retransmissions first.
  void issue(TimeNs now_ns) {
    issue_ready(now_ns);
    update_deadline();
  }
  TimeNs deadline_ns() const { return deadline_ns_; }
  void on_timer(TimeNs now_ns);

  // What it waits for, as it stands, and what hostnicd says about that.
  WaitView wait_view() const;
  std::string ask_why_waiting(const WaitView& view) const;

  // -- qp_reports.cc
  void on_report(TimeNs now_ns);
  void on_nic_error_state();
  // Completes what the status says is acknowledged; issues nothing.
  void take_last_acks(TimeNs now_ns);
  void take_receives(uint32_t completed);
  void on_window_answer(int error);

 private:
  // Functions in qp.cc.
  int check_service(const SendRequest& request) const;
  int refuse_full() const;
  void flush_sends(VendorError why);
  void flush_receive(uint64_t wr_id, VendorError why);
  void flush_shared_receives(VendorError why);
  void move_ring_end();
  uint32_t bound_receives();
  RecvCompletion& recv_completion(uint32_t name);
  uint32_t receive_name(uint32_t sn);
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
  template <Requester R>
  bool issue_with(R& requester, TimeNs now_ns);
  template <Requester R>
  bool issue_new(R& requester, TimeNs now_ns);
  template <Requester R>
  Issue issue_chunk(R& requester, TimeNs now_ns);
  Issue issue_local(uint32_t index, Psn next);
  void fail_unsendable(uint32_t index);
  void begin_work(TimeNs now_ns);
  void update_deadline();
  void start_timer(TimeNs now_ns);

  // Functions in qp_reports.cc.
  void take_local_error(const QpStatusSnapshot& snapshot, Psn una);
  void take_events(const QpStatusSnapshot& snapshot);
  void explain_receive(const Completion& completion, uint32_t name) const;
  void explain_refusal() const;
  void complete();
  template <Requester R>
  void complete_finished(R& requester);
  void tell_drained();

  bool credit_unsaid_ = false;  // a credit notification that found the urgent ring full
  bool flushing_ = false;       // the NIC let go of the QP in ERR: posts flush at once
  bool last_wqe_said_ = false;
  uint32_t seen_events_ = 0;  // events of the status that were dealt with
  TimeNs deadline_ns_ = UINT64_MAX;

  // The receive queue.
  uint32_t recv_entries_ = 0;
  uint32_t recv_posted_ = 0, recv_taken_ = 0;  // shared queue: recv_posted is the ring's end

  AnyRequester requester_;

  ZeroedArray<uint64_t> recv_wr_ids_;
};

}  // namespace hostnic::driver
