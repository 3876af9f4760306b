// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/driver/receive_queue.h"

#include <algorithm>
#include <bit>
#include <string>

#include "protocol/store_forwarding.h"
#include "verbs-shim/base/explanation.h"
#include "verbs-shim/base/refusal.h"

namespace hostnic::driver {
namespace {

WcStatus status_of_receive(uint32_t status) {
  switch (RecvStatus{status}) {
    case RecvStatus::kSuccess:
      return WcStatus::kSuccess;
    case RecvStatus::kLengthError:
      return WcStatus::kLocLenErr;
    case RecvStatus::kAccessError:
      return WcStatus::kLocAccessErr;
    default:
      return WcStatus::kLocProtErr;
  }
}

}  // namespace

uint32_t ReceiveQueue::entries_for(const QpInit& init) {
  if (init.srq != nullptr) return init.srq->entries();
  return init.caps.max_recv_wr == 0 ? 0 : std::bit_ceil(init.caps.max_recv_wr);
}

uint64_t ReceiveQueue::completion_bytes(const QpInit& init) {
  return entries_for(init) * (init.srq != nullptr ? sizeof(uint32_t) : sizeof(RecvCompletion));
}

ReceiveQueue::ReceiveQueue(const SendQueue& queue)
    : queue_(queue), entries_(entries_for(queue.init)) {
  if (queue.init.srq == nullptr) wr_ids_.allocate(entries_);
  queue.status().recv_posted.store(0, std::memory_order_relaxed);
  move_ring_end();
}

int ReceiveQueue::post(const RecvRequest& request) {
  const QpCaps& caps = queue_.init.caps;
  if (request.sges.size() > caps.max_recv_sge)
    return refuse({Reason::kSges, request.sges.size(), caps.max_recv_sge});
  if (posted_ - taken_ >= caps.max_recv_wr)
    return refuse({Reason::kReceiveQueueFull, 0, caps.max_recv_wr});
  const uint32_t sn = posted_;
  const uint32_t slot_index = sn & (entries_ - 1);
  wr_ids_[slot_index] = request.wr_id;
  auto* slot = reinterpret_cast<RecvSlot*>(queue_.host.map.at(queue_.recv_offset) +
                                           size_t{slot_index} * recv_slot_bytes(caps.max_recv_sge));
  slot->sn = sn;
  slot->sge_count = static_cast<uint32_t>(request.sges.size());
  std::transform(request.sges.begin(), request.sges.end(), slot->sge, by_fields);
  ++posted_;
  queue_.status().recv_posted.store(posted_, std::memory_order_release);
  return 0;
}

void ReceiveQueue::reset() {
  posted_ = taken_ = 0;
  queue_.status().recv_posted.store(0, std::memory_order_release);
  move_ring_end();
}

Completion ReceiveQueue::take_one(bool& solicited) {
  const QpInit& init = queue_.init;
  const uint32_t name = name_of(taken_);
  const RecvCompletion& received = completion_of(name);
  Completion completion;
  completion.wr_id = init.srq != nullptr ? init.srq->wr_id(name) : wr_ids_[name];
  completion.status = status_of_receive(received.status);
  completion.opcode =
      (received.flags & kRecvIsWriteImm) != 0 ? WcOpcode::kRecvRdmaWithImm : WcOpcode::kRecv;
  completion.byte_len = received.byte_len;
  completion.imm_data = (received.flags & kRecvHasImm) != 0 ? received.imm_data : 0;
  completion.flags = (received.flags & kRecvHasImm) != 0 ? uint32_t{kWcWithImm} : 0;
  if ((received.flags & kRecvHasInv) != 0) {
    completion.imm_data = received.imm_data;
    completion.flags |= kWcWithInv;
  }
  if ((received.flags & kRecvHasGrh) != 0) completion.flags |= kWcGrh;
  if ((received.flags & kRecvIpv6) != 0) completion.flags |= kWcIpv6;
  completion.qpn = queue_.qpn;
  completion.src_qpn = init.type == QpType::kUd ? received.src_qpn : queue_.attr.dest_qpn;
  solicited = (received.flags & kRecvSolicited) != 0;
  if (completion.status != WcStatus::kSuccess) {
    completion.vendor = completion.status == WcStatus::kLocLenErr ? VendorError::kLocalLength
                                                                  : VendorError::kLocalKey;
    explain_failure(completion, name);
  } else if (TrafficCounts* const traffic = queue_.host.traffic()) {
    traffic->count_receive(completion.byte_len);
  }
  ++taken_;
  if (init.srq != nullptr) init.srq->release(name);
  return completion;
}

void ReceiveQueue::release() {
  Srq* const srq = queue_.init.srq;
  if (srq == nullptr) return;
  for (const uint32_t bound = bound_receives(); taken_ != bound; ++taken_)
    srq->release(name_of(taken_));
}

// The absolute number of receives that the NIC took from the shared queue.
uint32_t ReceiveQueue::bound_receives() const {
  const uint32_t bound = queue_.status().recv_bound.load(std::memory_order_acquire);
  return bound - taken_ <= entries_ ? bound : taken_;
}

// The number by which a receive's slot is found; with a shared queue, the slot that the NIC has
// taken.
uint32_t ReceiveQueue::name_of(uint32_t sn) const {
  const uint32_t index = sn & (entries_ - 1);
  if (queue_.init.srq == nullptr) return index;
  const auto* names =
      reinterpret_cast<const uint32_t*>(queue_.host.map.at(queue_.recv_completion_offset));
  return names[index] & (entries_ - 1);
}

const RecvCompletion& ReceiveQueue::completion_of(uint32_t name) const {
  const Srq* const srq = queue_.init.srq;
  const uint64_t offset =
      srq != nullptr ? srq->completions_offset() : queue_.recv_completion_offset;
  return reinterpret_cast<const RecvCompletion*>(queue_.host.map.at(offset))[name];
}

// With a shared queue there is nothing to post here; the NIC may write as much of the ring as has
// been read.
void ReceiveQueue::move_ring_end() {
  if (queue_.init.srq == nullptr) return;
  posted_ = taken_ + entries_;
  queue_.status().recv_posted.store(posted_, std::memory_order_release);
}

// Tells people why a message did not get into the receive that it met.
void ReceiveQueue::explain_failure(const Completion& completion, uint32_t name) const {
  if (!explanations_wanted()) return;
  ExplainRequest request{};
  request.qpn = queue_.qpn;
  request.question = Question::kOwnReceive;
  const uint64_t slots =
      queue_.init.srq != nullptr ? queue_.init.srq->slots_offset : queue_.recv_offset;
  const uint32_t max_sge =
      queue_.init.srq != nullptr ? queue_.init.srq->init.max_sge : queue_.init.caps.max_recv_sge;
  const auto& slot = *reinterpret_cast<const RecvSlot*>(
      queue_.host.map.at(slots + uint64_t{name} * recv_slot_bytes(max_sge)));
  request.sge_count = static_cast<uint8_t>(std::min({slot.sge_count, max_sge, kMaxSge}));
  std::copy_n(slot.sge, request.sge_count, request.sges);
  char before[160];
  snprintf(before, sizeof before,
           "QP 0x%x: receive (wr_id 0x%llx) failed: %s (status %u, vendor err %u)", queue_.qpn,
           static_cast<unsigned long long>(completion.wr_id),
           status_text(static_cast<uint32_t>(completion.status)),
           static_cast<unsigned>(completion.status), static_cast<unsigned>(completion.vendor));
  queue_.host.say_why(request, before,
                      completion.status == WcStatus::kLocLenErr
                          ? "the message is longer than the receive"
                          : "the memory that it names is wrong");
}

}  // namespace hostnic::driver
