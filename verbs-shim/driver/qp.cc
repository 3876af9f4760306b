// SPDX-License-Identifier: BSD-3-Clause
// Posting, state changes, flushing.
#include "verbs-shim/driver/qp.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "verbs-shim/base/explanation.h"
#include "verbs-shim/base/refusal.h"

namespace hostnic::driver {
namespace {

WcOpcode wc_opcode(SendOp op) {
  switch (op) {
    case SendOp::kWrite:
    case SendOp::kWriteImm:
      return WcOpcode::kRdmaWrite;
    case SendOp::kRead:
      return WcOpcode::kRdmaRead;
    case SendOp::kCompareSwap:
      return WcOpcode::kCompSwap;
    case SendOp::kFetchAdd:
      return WcOpcode::kFetchAdd;
    case SendOp::kBindWindow:
      return WcOpcode::kBindMw;
    case SendOp::kLocalInvalidate:
      return WcOpcode::kLocalInv;
    default:
      return WcOpcode::kSend;
  }
}

// Refuses what MRC does not have.
int check_write(const SendRequest& request) {
  if (request.op == SendOp::kWrite || request.op == SendOp::kWriteImm) return 0;
  return refuse({Reason::kNotByMrc, static_cast<uint64_t>(request.op)});
}

// Refuses what the service does not have (InfiniBand table 35).
int check_service(const SendQueue& queue, bool writes_only, const SendRequest& request) {
  if (queue.is_reliable()) return writes_only ? check_write(request) : 0;
  const auto op = static_cast<uint64_t>(request.op);
  if (is_read_or_atomic(request.op) || request.op == SendOp::kSendInv)
    return refuse({Reason::kNotOfThisType, op});
  if (queue.init.type == QpType::kUc) return 0;
  if (request.op != SendOp::kSend && request.op != SendOp::kSendImm)
    return refuse({Reason::kNotOfThisType, op});
  return raw(request.ud.ip) != 0 ? 0 : refuse({Reason::kNoDestination});
}

}  // namespace

Qp::Qp(QpHost& qp_host, const QpInit& qp_init, uint32_t index, uint64_t recv,
       uint64_t recv_completion, uint64_t read_destinations)
    : SendQueue(qp_host, qp_init, index, recv, recv_completion, read_destinations),
      requester_(transport_of(qp_init.type, Transport::kHostnic)) {
  // Datagrams have no attribute for the path MTU: it is the port's.
  if (init.type == QpType::kUd) attr.path_mtu_bytes = host.settings().mtu_bytes;
}

int Qp::post_send(const SendRequest& request, TimeNs now_ns) {
  if (state < QpState::kRts) return refuse({Reason::kSendState, static_cast<uint64_t>(state)});
  if (const int error = check_service(*this, requester_.writes_only(), request); error != 0)
    return error;
  if (request.sges.size() > init.caps.max_send_sge)
    return refuse({Reason::kSges, request.sges.size(), init.caps.max_send_sge});
  uint64_t length = 0;
  for (const Sge& sge : request.sges) length += sge.length_bytes;
  if (length > init.max_message_bytes)
    return refuse({Reason::kMessageBytes, length, init.max_message_bytes});
  if (request.inline_data) {
    if (is_read_or_atomic(request.op)) return refuse({Reason::kInlineRead});
    if (length > init.caps.max_inline_bytes)
      return refuse({Reason::kInlineBytes, length, init.caps.max_inline_bytes});
  }
  if (is_read_or_atomic(request.op) && attr.max_rd_atomic == 0 && state != QpState::kErr)
    return refuse({Reason::kNoReads});
  if (is_atomic(request.op)) {
    if (length < 8) return refuse({Reason::kAtomicBytes, length});
    length = 8;
  }
  if (free_send_slots() == 0) return refuse_full();

  Wqe& w = wqe(tail_);
  w.wr_id = request.wr_id;
  w.op = request.op;
  w.signalled = request.signalled || init.signal_all;
  w.solicited = request.solicited;
  w.fence = request.fence;
  w.inline_data = request.inline_data;
  w.started = false;
  w.sge_count = static_cast<uint8_t>(request.inline_data ? 0 : request.sges.size());
  w.length_bytes = static_cast<uint32_t>(length);
  w.remote_va = request.remote_va;
  w.rkey = request.rkey;
  w.imm_data = request.imm_data;
  w.first_psn = w.first_response_psn = {};
  w.psn_count = 1;
  w.issued_psns = w.recv_sn = w.response_count = 0;
  if (is_atomic(w.op)) {
    w.compare_add = request.compare_add;
    w.swap = request.swap;
  }
  if (init.type == QpType::kUd) w.ud = request.ud;
  if (w.op == SendOp::kBindWindow) w.binding = request.binding;
  const size_t slot = tail_ & wqe_mask_;
  if (request.inline_data) {
    // Where no inline bytes are granted there is no memory for them, and nothing to copy either.
    std::byte* out = inline_bytes_.data() + slot * init.caps.max_inline_bytes;
    for (const Sge& sge : request.sges) {
      if (sge.length_bytes == 0) continue;
      std::memcpy(out, reinterpret_cast<const void*>(sge.addr), sge.length_bytes);
      out += sge.length_bytes;
    }
  } else {
    Sge* out = &sges_[slot * init.caps.max_send_sge];
    for (const Sge& sge : request.sges) *out++ = by_fields(sge);
  }
  if (idle()) requester_.begin_work(now_ns);
  ++tail_;
  if (state > QpState::kSqd) [[unlikely]] {
    if (state == QpState::kSqe) {
      flush_sends(VendorError::kFlushed);
    } else if (flushing_) {
      flush(VendorError::kFlushed);
    }
    return 0;
  }
  const uint32_t traced = host.message_events();
  if (traced != 0) [[unlikely]]
    stamp_post(traced, MessageLog::ticks());
  issue_ready(now_ns);
  if (deadline_ns_ == UINT64_MAX) start_timer(now_ns);
  if (traced != 0) [[unlikely]]
    tell_posted(traced);
  return 0;
}

int Qp::post_recv(const RecvRequest& request) {
  if (init.srq != nullptr) return refuse({Reason::kReceiveOfShared});
  if (state == QpState::kReset)
    return refuse({Reason::kReceiveState, static_cast<uint64_t>(state)});
  if (const int error = receives_.post(request); error != 0) return error;
  if (state == QpState::kErr) {
    if (flushing_) flush(VendorError::kFlushed);
    return 0;
  }
  // The order is: publish, full fence, look; the NIC sets the flag, fences, looks at recv_posted
  // (rule 14, credit).
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (status().credit_watched.load(std::memory_order_relaxed) != 0) notify_credit();
  return 0;
}

void Qp::notify_credit() {
  SendDescriptor d{};
  d.op = SendOp::kCreditNotify;
  d.qpn = qpn;
  if (host.map.urgent.enqueue_bulk(&d, 1)) {
    credit_unsaid_ = false;
    host.published();
  } else {
    credit_unsaid_ = true;
    host.want_issue(*this);
  }
}

// Enters a state to which the NIC has agreed; `state` is still the old one.
void Qp::enter_state(QpState to, TimeNs now_ns) {
  const QpState from = state;
  state = to;
  attr.state = to;
  switch (to) {
    case QpState::kReset:
      head_ = issue_ = tail_ = 0;
      freed_.store(0, std::memory_order_relaxed);
      unreported_ = 0;
      receives_.reset();
      told_ = 0;
      failed_ = flushing_ = last_wqe_said_ = false;
      deadline_ns_ = UINT64_MAX;
      break;
    case QpState::kRtr:
      seen_events_ = 0;
      break;
    case QpState::kRts:
      if (from == QpState::kRtr) requester_.start(*this, Psn(attr.sq_psn), now_ns);
      if (from == QpState::kSqe) requester_.start(*this, requester_.next(), now_ns);
      issue(now_ns);
      break;
    case QpState::kSqd:
      tell_drained();  // there may have been nothing to drain
      break;
    case QpState::kErr:
      flushing_ = true;
      flush(VendorError::kQpModifiedToError);
      break;
    default:
      break;
  }
}

void Qp::flush_sends(VendorError why) {
  for (; head_ != tail_; ++head_) deliver(wqe(head_), WcStatus::kWrFlushErr, why);
  issue_ = head_;
}

// Completes everything outstanding with WR_FLUSH_ERR, in order (rule 28, after an error).
void Qp::flush(VendorError why) {
  take_receives(status().recv_completed.load(std::memory_order_acquire));
  flush_sends(why);
  receives_.flush([&](uint64_t wr_id) { flush_receive(wr_id, why); });
  if (init.srq != nullptr && !std::exchange(last_wqe_said_, true))
    host.raise(AsyncEvent::kQpLastWqeReached, this, nullptr);
  deadline_ns_ = UINT64_MAX;
}

void Qp::flush_receive(uint64_t wr_id, VendorError why) {
  Completion completion;
  completion.wr_id = wr_id;
  completion.status = WcStatus::kWrFlushErr;
  completion.opcode = WcOpcode::kRecv;
  completion.qpn = qpn;
  completion.vendor = why;
  push(*init.recv_cq, completion, false, 0);
}

// Delivers the completion of one request, in its turn. Unsignalled successes are only counted.
void Qp::deliver(const Wqe& w, WcStatus status, VendorError vendor) {
  ++unreported_;
  if (status == WcStatus::kSuccess) {
    if (TrafficCounts* const traffic = host.traffic()) traffic->count_request(w.length_bytes);
    if (!w.signalled) return;
  }
  Completion completion;
  completion.wr_id = w.wr_id;
  completion.status = status;
  completion.opcode = wc_opcode(w.op);
  completion.byte_len = is_read_or_atomic(w.op) ? w.length_bytes : 0;
  completion.qpn = qpn;
  completion.vendor = vendor;
  push(*init.send_cq, completion, false, unreported_);
  unreported_ = 0;
}

void Qp::push(Cq& cq, const Completion& completion, bool solicited, uint32_t slots) {
  const bool had_overflowed = cq.overflowed();
  if (cq.push(completion, solicited, slots == 0 ? nullptr : &freed_, slots)) return;
  // An overflow loses the queue, and with it every QP that needs it (rule 35, freed slots).
  if (!had_overflowed) {
    explain(
        "QP 0x%x: its completion queue of %u entries overflowed: more completions than that came "
        "before any was polled",
        qpn, cq.entries());
    host.raise(AsyncEvent::kCqErr, this, &cq);
  }
  // Nothing can tell the program any more that this queue pair is lost.
  if (state != QpState::kErr && state != QpState::kReset)
    host.raise(AsyncEvent::kQpFatal, this, nullptr);
  go_to_error();
}

void Qp::go_to_error() {
  if (state == QpState::kErr || state == QpState::kReset) return;
  state = QpState::kErr;
  attr.state = QpState::kErr;
  deadline_ns_ = UINT64_MAX;
  host.move_nic_to_error(*this);
}

// Ends the sends of an unreliable queue pair after one failed on this side: the queue pair goes on
// receiving, in SQE, until its program says otherwise (rule 36, UC and UD; InfiniBand 10.3.1.7).
// The NIC has discarded, or never got, what followed.
void Qp::stop_sends() {
  if (state != QpState::kRts && state != QpState::kSqd) return;
  state = attr.state = QpState::kSqe;
  failed_ = false;
  deadline_ns_ = UINT64_MAX;
  flush_sends(VendorError::kFlushed);
}

// Flushes what is outstanding: the NIC has let go of the QP's memory, so the program may have it
// back.
void Qp::on_nic_error_state() {
  if (state != QpState::kErr || flushing_) return;
  flushing_ = true;
  flush(VendorError::kFlushed);
}

uint32_t qpn_of(const Qp& qp) { return qp.qpn; }
uint32_t packets_in_flight(const Qp& qp) { return qp.requester().in_flight(); }
uint32_t congestion_window(const Qp& qp) { return qp.requester().congestion_window(); }

}  // namespace hostnic::driver
