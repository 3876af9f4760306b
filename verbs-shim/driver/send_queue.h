// SPDX-License-Identifier: BSD-3-Clause
// A queue pair's send queue, and what a requester needs to know of the queue pair: its names,
// attributes and state, the requests in their order, and which of them has failed. What it means to
// verbs is in qp.h; when and as which packets requests go, a requester says
// (requester/requester.h).
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <optional>
#include <span>

#include "protocol/prefetch.h"
#include "protocol/psn.h"
#include "protocol/store_forwarding.h"
#include "verbs-shim/driver/qp_host.h"
#include "verbs-shim/driver/zeroed_array.h"

namespace hostnic::driver {

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

constexpr bool is_send(SendOp op) {
  return op == SendOp::kSend || op == SendOp::kSendImm || op == SendOp::kSendInv;
}
constexpr bool consumes_receive(SendOp op) { return is_send(op) || op == SendOp::kWriteImm; }
// Whether a request has no packets: it binds or invalidates a window in the own NIC.
constexpr bool is_local(SendOp op) {
  return op == SendOp::kBindWindow || op == SendOp::kLocalInvalidate;
}
constexpr bool is_read_or_atomic(SendOp op) {
  return op >= SendOp::kRead && op <= SendOp::kFetchAdd;
}
constexpr bool is_atomic(SendOp op) {
  return op == SendOp::kCompareSwap || op == SendOp::kFetchAdd;
}

// The size of a chunk while several queue pairs take turns, and of one that is sent again.
inline constexpr uint32_t kSharedChunkBytes = 64 * 1024;

// Copies what the caller has just written, by fields (protocol/store_forwarding.h).
inline Sge by_fields(const Sge& sge) {
  return {field(sge.addr), field(sge.length_bytes), field(sge.lkey)};
}

// What each message needs begins with `init`; the few members before it lie idle.
class SendQueue {
 protected:
  ZeroedArray<std::byte> inline_bytes_;  // inline bytes of the send queue, by slot
  // The failed request, if any: nothing at or after it is issued (rule 28).
  uint32_t failed_index_ = 0;
  WcStatus failed_status_ = WcStatus::kSuccess;
  VendorError failed_vendor_ = VendorError::kNone;

 public:
  SendQueue(QpHost& host, const QpInit& init, uint32_t status_index, uint64_t recv_offset,
            uint64_t recv_completion_offset, uint64_t read_destination_offset);

  // Indices count requests; the queue holds [head, tail). Those before next_to_issue() are handed
  // over and not complete.
  uint32_t head() const { return head_; }
  uint32_t next_to_issue() const { return issue_; }
  uint32_t tail() const { return tail_; }
  bool idle() const { return head_ == tail_; }
  uint32_t outstanding_sends() const { return tail_ - head_; }
  uint32_t free_send_slots() const {
    return init.caps.max_send_wr - (tail_ - freed_.load(std::memory_order_acquire));
  }
  // Requests that are complete and whose slots no completion has given back yet.
  uint32_t unreported() const { return unreported_; }
  Wqe& wqe(uint32_t index) { return wqes_[index & wqe_mask_]; }
  const Wqe& wqe(uint32_t index) const { return wqes_[index & wqe_mask_]; }
  std::span<const Sge> sges(uint32_t index) const {
    return {sges_.data() + size_t{index & wqe_mask_} * init.caps.max_send_sge,
            wqe(index).sge_count};
  }
  // The request in [head, next_to_issue] that has a PSN; next_to_issue() if none has.
  uint32_t find_by_psn(Psn psn) const;

  QpStatus& status() const { return host.map.qp_status(status_index); }
  // The first PSN that the NIC has not transmitted: resends overtake, in the urgent ring, what was
  // handed over and not transmitted yet.
  Psn transmitted() const { return Psn(status().transmitted_psn.load(std::memory_order_acquire)); }
  bool is_reliable() const { return init.type == QpType::kRc; }
  // The path MTU as a shift: path MTUs are powers of two.
  uint32_t mtu_shift() const {
    return static_cast<uint32_t>(std::countr_zero(attr.path_mtu_bytes));
  }
  uint32_t packets_for(uint32_t bytes) const {
    return bytes <= attr.path_mtu_bytes ? 1 : ((bytes - 1) >> mtu_shift()) + 1;
  }
  // Whether a request fails in its turn (man ibv_post_send): a datagram must be one packet, and its
  // address handle must belong to the queue pair's protection domain. A device can be one that does
  // not do what it takes.
  bool is_unsendable(const Wqe& w) const {
    if (!has_unsendable_) return false;
    if (init.type != QpType::kUd) return w.op == SendOp::kSendInv;
    return w.length_bytes > attr.path_mtu_bytes || w.ud.other_domain;
  }
  // Whether a request has packets that may be sent, as far as its kind goes.
  bool has_packets(const Wqe& w) const { return !is_unsendable(w) && !is_local(w.op); }

  // The most packets of one request that are handed over at a time, where
  // QpHost::queued_bytes_limit is so much and `window_psns` may be in flight; and the most of what
  // was lost.
  uint32_t chunk_packets(uint64_t queued_limit_bytes, uint32_t window_psns) const;
  uint32_t resent_packets() const { return kSharedChunkBytes >> mtu_shift(); }
  // How packets go: which time, and by which path. Both are in one register of a call.
  struct Way {
    uint8_t attempt = 0, path = 0;
  };
  // Hands over `count` packets of a request, from its packet number `first` on. The ring must have
  // room for the largest descriptor (callers check).
  void send_range(const Wqe& w, uint32_t index, uint32_t first, uint32_t count, Way way,
                  uint8_t flags, RingEnd& ring);

  // Fails a request; the first one that failed counts: nothing at or after it is issued, everything
  // before it still completes (rule 28, after an error). Returns whether it counts.
  bool fail(uint32_t index, WcStatus status, VendorError vendor);
  bool failed() const { return failed_; }
  // Whether a request has failed because the peer did not answer it for the whole retry time.
  bool failed_for_silence() const { return failed_ && failed_status_ == WcStatus::kRetryExcErr; }
  // Why the oldest request was never answered, as far as this side can say: its packets may be
  // longer than the port can carry since its MTU was lowered.
  VendorError why_no_answer() const;
  // Says where the answers of a READ or atomic go, which has its number.
  void fill_read_destination(const Wqe& w, uint32_t index) const;
  // Whether a request has failed, and this one is it or comes after it.
  bool failed_at_or_before(uint32_t index) const {
    return failed_ && serial_distance(failed_index_, index) >= 0;
  }

  const QpInit init;
  const uint32_t status_index;
  uint32_t qpn = 0;
  QpState state = QpState::kReset;
  bool notify_drained = false;
  bool on_ready_list = false, on_timer_list = false, waits_for_ring_space = false;
  uint32_t posted_next = 0;  // status of the QP that was posted to after this one, last time
  QpAttr attr;
  const uint64_t recv_offset, recv_completion_offset, read_destination_offset;
  QpHost& host;

  // What hostnicd is asked about a request.
  ExplainRequest question_about(uint32_t index, Question question) const;

 protected:
  void fail_unsendable(uint32_t index);
  // Refuses a request for which there is no slot. The slots that are taken are as they were posted.
  int refuse_full() const;
  void log_failure(uint32_t index) const;
  std::optional<Question> question_about_failure() const;

  uint32_t wqe_mask_ = 0;
  uint32_t head_ = 0, issue_ = 0, tail_ = 0;
  std::atomic<uint32_t> freed_{0};  // slots whose completion was polled (rule 35)
  uint32_t unreported_ = 0;         // completed without a completion of their own
  ZeroedArray<Wqe> wqes_;
  ZeroedArray<Sge> sges_;
  bool failed_ = false;  // a request has failed; see failed_index_

 private:
  const bool has_unsendable_;  // requests can be unsendable
  // Some of a request's PSNs, and the bytes that they carry.
  struct Range {
    uint32_t first;
    Way way;
    uint32_t offset, bytes;
  };
  void describe(const Wqe& w, const Range& range, uint8_t flags, SendDescriptor& d) const;
  void fill_payload(const Wqe& w, uint32_t index, uint32_t offset, uint32_t bytes,
                    SendDescriptor& d, std::byte* extra) const;
};

}  // namespace hostnic::driver
