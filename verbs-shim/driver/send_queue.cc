// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/driver/send_queue.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "verbs-shim/base/log.h"

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
      host(qp_host) {
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
  d.attempt = range.attempt - (broken(Fault::wrong_attempt) && range.attempt != 0 ? 1 : 0);
  d.extra_elements = 0;
  d.qpn = qpn;
  d.psn = (w.first_psn + range.first).value();
  d.length_bytes = range.bytes;
  d.va = datagram ? 0 : is_send(w.op) ? range.offset : w.remote_va + range.offset;
  d.key = datagram ? w.ud.qkey : is_send(w.op) ? w.recv_sn : w.rkey;
  d.message_bytes = w.length_bytes;
  d.imm_data = w.imm_data;
  d.recv_sn = datagram ? w.ud.qpn : is_send(w.op) ? 0 : w.recv_sn;
  d.first_response_psn = datagram ? raw(w.ud.ip) : 0;
  d.hop_limit = datagram ? w.ud.hop_limit : 0;
  d.traffic_class = datagram ? w.ud.traffic_class : 0;
  d.source_index = datagram ? w.ud.source_index : 0;
}

void SendQueue::send_range(const Wqe& w, uint32_t index, uint32_t first, uint32_t count,
                           uint8_t attempt, uint8_t flags, RingEnd& ring) {
  const uint32_t offset = first * attr.path_mtu_bytes;
  const Range range{.first = first,
                    .attempt = attempt,
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
  log_failure(wqe(index));
  return true;
}

void SendQueue::log_failure(const Wqe& w) const {
  const char* reason = "";
  switch (failed_vendor_) {
    case VendorError::kLocalKey:
      reason = "an lkey, address or protection domain of its own memory is wrong";
      break;
    case VendorError::kLocalLength:
      reason = "the local buffers are too small";
      break;
    case VendorError::kPeerInvalidRequest:
      reason =
          "the peer calls it invalid: receive too small, a misaligned atomic, another path MTU, or "
          "more READs and atomics than its max_dest_rd_atomic";
      break;
    case VendorError::kPeerAccess:
      reason = "the peer refuses the rkey, the bounds or the access right, or has no memory there";
      break;
    case VendorError::kPeerOperation:
      reason = "the peer's own receive buffer is bad";
      break;
    case VendorError::kWindow:
      reason =
          "no such window or region, bounds, protection domain or rights wrong, or a bound type 2 "
          "window";
      break;
    case VendorError::kBadResponse:
      reason =
          "the peer's answers have another length than this path MTU gives: do both ends agree?";
      break;
    case VendorError::kAddressDomain:
      reason = "its address handle is of another protection domain";
      break;
    case VendorError::kReceiverNotReady:
      reason = "the peer posted no receive within rnr_retry";
      break;
    case VendorError::kNoAnswer:
      reason =
          "no answer within (retry_cnt + 1) timeouts and as much more as rule 26 of "
          "docs/transport.md gives: wrong address, peer gone, or network down";
      break;
    case VendorError::kPathMtu:
      reason = "its packets are longer than the port's MTU allows now";
      log_warn(
          "QP 0x%x ends: packets of its path MTU, %u, no longer fit the port, whose MTU was "
          "lowered "
          "and allows %u. Raise the interface's MTU again (hostnicd's log says how), or connect "
          "anew",
          qpn, attr.path_mtu_bytes, host.map.header().mtu_bytes.load(std::memory_order_relaxed));
      break;
    default:
      break;
  }
  log_debug(
      "QP 0x%x: work request 0x%llx to QP 0x%x at %s failed with status %u: %s (retry_cnt "
      "%u, timeout %u, rnr_retry %u)",
      qpn, static_cast<unsigned long long>(w.wr_id), attr.dest_qpn,
      to_string(attr.dest_gid).c_str(), static_cast<unsigned>(failed_status_), reason,
      attr.retry_cnt, attr.timeout, attr.rnr_retry);
}

}  // namespace hostnic::driver
