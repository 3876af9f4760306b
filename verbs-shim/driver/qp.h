// SPDX-License-Identifier: BSD-3-Clause
// One queue pair's driver half: what verbs means. The send queue and its order, checks of what is
// posted, completions, flush, the receive side, states. When and as which packets requests go, and
// when they are finished, is its requester's business (requester/requester.h). All members want the
// driver lock held. Split over qp.cc (posting, state), qp_issue.cc (what goes to the NIC, and when
// to look again), qp_reports.cc (what the NIC says).
#pragma once

#include "verbs-shim/driver/receive_queue.h"
#include "verbs-shim/driver/requester/any_requester.h"
#include "verbs-shim/driver/send_queue.h"

namespace hostnic::driver {

// Members that each message needs come first, next to each other (qp_prefetch.cc).
class alignas(kCacheLineBytes) Qp : public SendQueue {
  friend struct QpPrefetch;

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
  // Whether the NIC sends for the queue pair, and so can be asked to send the rest first.
  bool is_sending() const { return (state == QpState::kRts || state == QpState::kSqd) && !failed_; }
  // Whether the QP is in SQD and a request that was begun is not complete. All requests after that
  // one are not begun.
  bool draining() const { return state == QpState::kSqd && head_ != tail_ && wqe(head_).started; }
  const AnyRequester& requester() const { return requester_; }
  const ReceiveQueue& receives() const { return receives_; }
  // Gives what the NIC took of a shared receive queue back to that queue.
  void release_receives() { receives_.release(); }

  // -- qp_messages.cc: tells who traces messages of those that were posted and have been told of
  // never, as far as their PSNs are known.
  void tell_posted(uint32_t session);

  // -- qp_issue.cc: hands over what may go now, retransmissions first.
  void issue(TimeNs now_ns) {
    issue_ready(now_ns);
    update_deadline();
  }
  TimeNs deadline_ns() const { return deadline_ns_; }
  void on_timer(TimeNs now_ns);

  // -- qp_reports.cc
  void on_report(TimeNs now_ns);
  void on_nic_error_state();
  // Completes what the status says is acknowledged; issues nothing.
  void take_last_acks(TimeNs now_ns);
  void take_receives(uint32_t completed);
  void on_window_answer(int error);

 private:
  // Functions in qp.cc.
  void flush_sends(VendorError why);
  void flush_receive(uint64_t wr_id, VendorError why);
  void notify_credit();
  void deliver(const Wqe& w, WcStatus status, VendorError vendor);
  // Pushes a completion; `slots` is how many send queue slots are free once it is polled; 0 for
  // receives.
  void push(Cq& cq, const Completion& completion, bool solicited, uint32_t slots);
  void go_to_error();
  void stop_sends();

  // Functions in qp_messages.cc.
  void stamp_post(uint32_t session, uint64_t ticks);

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
  void update_deadline();
  void start_timer(TimeNs now_ns);

  // Functions in qp_reports.cc.
  void take_local_error(const QpStatusSnapshot& snapshot, Psn una);
  void take_events(const QpStatusSnapshot& snapshot);
  void complete();
  template <Requester R>
  void complete_finished(R& requester);
  void tell_drained();

  bool credit_unsaid_ = false;  // a credit notification that found the urgent ring full
  bool flushing_ = false;       // the NIC let go of the QP in ERR: posts flush at once
  bool last_wqe_said_ = false;
  uint32_t seen_events_ = 0;  // events of the status that were dealt with
  TimeNs deadline_ns_ = UINT64_MAX;

  ReceiveQueue receives_{*this};
  AnyRequester requester_;

  // Of traced messages.
  ZeroedArray<PostStamp> stamps_;  // by slot; empty: none was posted while messages were traced
  uint32_t told_ = 0;              // index up to which requests were told of
  uint32_t told_session_ = 0;      // in which session
};

}  // namespace hostnic::driver
