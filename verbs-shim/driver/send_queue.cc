// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/driver/send_queue.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <string>

#include "protocol/hostif/send_op_text.h"
#include "verbs-shim/base/explanation.h"
#include "verbs-shim/base/log.h"
#include "verbs-shim/base/refusal.h"

namespace hostnic::driver {
namespace {

constexpr uint32_t kChunksQueued = 16;  // least number of chunks that may queue where they may be
                                        // larger

}  // namespace

SendQueue::SendQueue(QpHost& qp_host, const QpInit& qp_init, uint32_t index, uint64_t recv,
                     uint64_t recv_completion, uint64_t read_destinations)
    : init(qp_init),
      status_index(index),
      recv_offset(recv),
      recv_completion_offset(recv_completion),
      read_destination_offset(read_destinations),
      host(qp_host),
      has_unsendable_(init.type == QpType::kUd ||
                      (init.type == QpType::kRc && init.fails_send_with_inv)) {
  const uint32_t slots = std::bit_ceil(std::max(init.caps.max_send_wr, 1u));
  wqes_.allocate(slots);
  wqe_mask_ = slots - 1;
  sges_.allocate(size_t{slots} * init.caps.max_send_sge);
  inline_bytes_.allocate(size_t{slots} * init.caps.max_inline_bytes);
}

uint32_t SendQueue::chunk_packets(uint64_t queued_limit_bytes, uint32_t window_psns) const {
  const uint64_t bytes = std::min<uint64_t>(queued_limit_bytes / kChunksQueued, kMaxChunkBytes);
  // Only a chunk's last packet can ask for the ACK that every quarter window asks for.
  const uint32_t packets = std::min(static_cast<uint32_t>(bytes) >> mtu_shift(), window_psns / 4);
  return std::max(packets, resent_packets());
}

// Finds a request by binary search: requests in [head, issue] cover PSNs in order.
void SendQueue::fail_unsendable(uint32_t index) {
  if (is_reliable()) {
    fail(index, WcStatus::kLocQpOpErr, VendorError::kNotDone);
  } else if (wqe(index).ud.other_domain) {
    fail(index, WcStatus::kLocQpOpErr, VendorError::kAddressDomain);
  } else {
    fail(index, WcStatus::kLocLenErr, VendorError::kLocalLength);
  }
}

// Refuses a request for which there is no slot. The slots that are taken are as they were posted.
int SendQueue::refuse_full() const {
  uint64_t signalled = 0;
  for (uint32_t i = freed_.load(std::memory_order_relaxed); i != tail_; ++i)
    signalled += wqe(i).signalled ? 1 : 0;
  return refuse({signalled == 0 ? Reason::kSendQueueUnsignalled : Reason::kSendQueueFull, signalled,
                 init.caps.max_send_wr});
}

uint32_t SendQueue::find_by_psn(Psn psn) const {
  uint32_t low = head_, high = issue_;
  while (low != high) {
    const uint32_t middle = low + (high - low) / 2;
    const Wqe& w = wqe(middle);
    if (w.started && distance(w.first_psn + w.psn_count, psn) >= 0) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// Writes a chunk's descriptor, except for its payload. Each word is written once, because the
// descriptor may lie in the ring.
[[gnu::always_inline]] inline void SendQueue::describe(const Wqe& w, const Range& range,
                                                       uint8_t flags, SendDescriptor& d) const {
  const bool datagram = init.type == QpType::kUd;
  d.op = w.op;
  d.flags = flags;
  d.attempt = range.way.attempt;
  d.extra_elements = 0;
  d.qpn = qpn;
  d.psn = (w.first_psn + range.first).value();
  d.length_bytes = range.bytes;
  d.va = datagram ? 0 : is_send(w.op) ? range.offset : w.remote_va + range.offset;
  d.key = datagram ? w.ud.qkey : is_send(w.op) ? w.recv_sn : w.rkey;
  d.message_bytes = w.length_bytes;
  d.imm_data = w.imm_data;
  d.recv_sn = datagram ? w.ud.qpn : is_send(w.op) ? 0 : w.recv_sn;
  d.first_response_psn = datagram ? raw(w.ud.ip) : w.first_response_psn.value();  // MRC: msn
  d.hop_limit = datagram ? w.ud.hop_limit : 0;
  d.traffic_class = datagram ? w.ud.traffic_class : range.way.path;  // one byte, by either name
  d.source_index = datagram ? w.ud.source_index : 0;
}

void SendQueue::send_range(const Wqe& w, uint32_t index, uint32_t first, uint32_t count, Way way,
                           uint8_t flags, RingEnd& ring) {
  const uint32_t offset = first * attr.path_mtu_bytes;
  const Range range{.first = first,
                    .way = way,
                    .offset = offset,
                    .bytes = std::min(count * attr.path_mtu_bytes, w.length_bytes - offset)};
  if (first != 0) flags |= kSendCont;
  if (first + count != w.psn_count) flags |= kSendMore;
  if (w.solicited) flags |= kSendSolicited;
  if (w.sge_count == 1) {
    ring.enqueue<SendDescriptor>([&](SendDescriptor& d) {
      describe(w, range, flags, d);
      const Sge& sge = sges_[size_t{index & wqe_mask_} * init.caps.max_send_sge];
      d.sge_count = range.bytes != 0;
      d.sge0.addr = sge.addr + offset;
      d.sge0.length_bytes = range.bytes;
      d.sge0.lkey = sge.lkey;
    });
  } else {
    std::array<SendDescriptor, 1 + kMaxExtraElements> elements;
    SendDescriptor& d = elements[0];
    d = {};
    describe(w, range, flags, d);
    fill_payload(w, index, offset, range.bytes, d, reinterpret_cast<std::byte*>(&elements[1]));
    ring.enqueue_bulk(elements.data(), 1u + d.extra_elements);
  }
  host.published();
}

// Fills in the part of the scatter list, or of the inline bytes, that [offset, offset + bytes) of
// the message covers.
void SendQueue::fill_payload(const Wqe& w, uint32_t index, uint32_t offset, uint32_t bytes,
                             SendDescriptor& d, std::byte* extra) const {
  const size_t slot = index & wqe_mask_;
  if (w.inline_data) {
    d.flags |= kSendInline;
    d.extra_elements =
        static_cast<uint8_t>((bytes + sizeof(RingElement) - 1) / sizeof(RingElement));
    if (bytes != 0)
      std::memcpy(extra, &inline_bytes_[slot * init.caps.max_inline_bytes + offset], bytes);
    return;
  }
  const Sge* sges = sges_.data() + slot * init.caps.max_send_sge;
  uint32_t count = 0;
  for (uint32_t i = 0; i < w.sge_count && bytes != 0; ++i) {
    const uint32_t length = sges[i].length_bytes;
    if (offset >= length) {
      offset -= length;
      continue;
    }
    const Sge part{sges[i].addr + offset, std::min(bytes, length - offset), sges[i].lkey};
    if (count == 0) {
      d.sge0 = part;
    } else {
      std::memcpy(extra + (count - 1) * sizeof(Sge), &part, sizeof(Sge));
    }
    ++count;
    bytes -= part.length_bytes;
    offset = 0;
  }
  d.sge_count = static_cast<uint8_t>(count);
  d.extra_elements = static_cast<uint8_t>(count <= 1 ? 0 : (count - 2) / kSgesPerElement + 1);
}

VendorError SendQueue::why_no_answer() const {
  const uint32_t fits = host.map.header().mtu_bytes.load(std::memory_order_relaxed);
  const bool too_long = fits != 0 && attr.path_mtu_bytes > fits && wqe(head_).length_bytes > fits;
  return too_long ? VendorError::kPathMtu : VendorError::kNoAnswer;
}

void SendQueue::fill_read_destination(const Wqe& w, uint32_t index) const {
  auto* slots = reinterpret_cast<ReadDestination*>(host.map.at(read_destination_offset));
  ReadDestination& slot = slots[w.recv_sn % kReadDestinationEntries];
  slot.read_number = w.recv_sn;
  slot.length_bytes = w.length_bytes;
  slot.first_response_psn = w.first_response_psn.value();
  slot.sge_count = w.sge_count;
  std::ranges::copy(sges(index), slot.sge);
}

bool SendQueue::fail(uint32_t index, WcStatus status, VendorError vendor) {
  if (index == tail_) return false;
  if (failed_ && serial_distance(index, failed_index_) <= 0) return false;
  failed_ = true;
  failed_index_ = index;
  failed_status_ = status;
  failed_vendor_ = vendor;
  log_failure(index);
  return true;
}

// The question that hostnicd may know the answer to; nothing: this side knows all.
std::optional<Question> SendQueue::question_about_failure() const {
  switch (failed_vendor_) {
    case VendorError::kLocalKey:
    case VendorError::kLocalLength:
      return Question::kOwnMemory;
    case VendorError::kPeerInvalidRequest:
    case VendorError::kPeerAccess:
    case VendorError::kPeerOperation:
    case VendorError::kBadResponse:
      return Question::kRefused;
    case VendorError::kNoAnswer:
      return Question::kSilent;
    case VendorError::kReceiverNotReady:
      return Question::kNotReady;
    case VendorError::kWindow:
      return Question::kOwnWindow;
    default:
      return std::nullopt;
  }
}

ExplainRequest SendQueue::question_about(uint32_t index, Question question) const {
  const Wqe& w = wqe(index);
  ExplainRequest request{};
  request.qpn = qpn;
  request.question = question;
  request.op = w.op;
  request.max_rd_atomic = attr.max_rd_atomic;
  request.key = w.op == SendOp::kBindWindow ? w.binding.mr_key
                : w.op == SendOp::kSendInv  ? w.imm_data
                                            : w.rkey;
  request.access = w.op == SendOp::kBindWindow ? w.binding.access : 0;
  request.remote_va = w.remote_va;
  request.length_bytes = w.op == SendOp::kBindWindow ? w.binding.length_bytes : w.length_bytes;
  const std::span<const Sge> elements = sges(index);
  request.sge_count = static_cast<uint8_t>(std::min<size_t>(elements.size(), kMaxSge));
  std::ranges::copy(elements.first(request.sge_count), request.sges);
  return request;
}

// Tells people why a request has failed, once, with what hostnicd knows of both ends.
void SendQueue::log_failure(uint32_t index) const {
  if (failed_vendor_ == VendorError::kPathMtu) {
    log_warn(
        "QP 0x%x ends: packets of its path MTU, %u, no longer fit the port, whose MTU was lowered "
        "and allows %u. Raise the interface's MTU again (hostnicd's log says how), or connect anew",
        qpn, attr.path_mtu_bytes, host.map.header().mtu_bytes.load(std::memory_order_relaxed));
  }
  if (!explanations_wanted()) return;
  const Wqe& w = wqe(index);
  const std::optional<Question> question = question_about_failure();
  std::string cause;
  if (init.type == QpType::kUd && failed_vendor_ == VendorError::kLocalLength) {
    char line[80];
    snprintf(line, sizeof line, "a datagram has at most %u bytes, one packet's",
             host.settings().mtu_bytes);
    cause = line;
  }
  const VendorErrorInfo* const info = find_vendor_error(static_cast<uint32_t>(failed_vendor_));
  char to[96] = "";
  if (init.type != QpType::kUd && !is_local(w.op))
    snprintf(to, sizeof to, " to QP 0x%x at %s", attr.dest_qpn, to_string(attr.dest_gid).c_str());
  char waited[96] = "";
  if (failed_vendor_ == VendorError::kNoAnswer)
    snprintf(waited, sizeof waited, " (retry_cnt %u, timeout %u)", attr.retry_cnt, attr.timeout);
  if (failed_vendor_ == VendorError::kReceiverNotReady)
    snprintf(waited, sizeof waited, " (rnr_retry %u)", attr.rnr_retry);
  char before[400];
  snprintf(before, sizeof before,
           "QP 0x%x: %s of %llu bytes (wr_id 0x%llx)%s failed: %s (status %u, vendor err %u)%s",
           qpn, text_of(w.op),
           w.op == SendOp::kBindWindow ? static_cast<unsigned long long>(w.binding.length_bytes)
                                       : w.length_bytes,
           static_cast<unsigned long long>(w.wr_id), to,
           status_text(static_cast<uint32_t>(failed_status_)),
           static_cast<unsigned>(failed_status_), static_cast<unsigned>(failed_vendor_), waited);
  if (cause.empty() && info != nullptr) cause = info->meaning;
  if (question) return host.say_why(question_about(index, *question), before, cause);
  explain("%s: %s", before, cause.c_str());
}

}  // namespace hostnic::driver
