// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/driver/srq.h"

#include <algorithm>
#include <bit>
#include <cerrno>

#include "verbs-shim/base/refusal.h"

namespace hostnic::driver {
namespace {

uint32_t entries_for(const SrqInit& init) { return std::bit_ceil(init.max_wr); }
uint64_t slots_bytes(const SrqInit& init) {
  return uint64_t{entries_for(init)} * recv_slot_bytes(init.max_sge);
}

}  // namespace

Expected<std::unique_ptr<Srq>, int> Srq::create(SegmentMap& segment, const SrqInit& init) {
  if (init.max_wr == 0 || init.max_wr > kMaxWr || init.max_sge > kMaxSge) return Unexpected(EINVAL);
  const uint64_t slots = segment.allocate(slots_bytes(init));
  const uint64_t queue = segment.allocate(srq_bytes(entries_for(init)));
  std::unique_ptr<Srq> srq(new Srq(segment, init, slots, queue));
  if (slots == 0 || queue == 0) return Unexpected(ENOMEM);
  segment.make_pages(queue, srq_bytes(entries_for(init)));
  return srq;
}

Srq::~Srq() {
  segment_.release(slots_offset, slots_bytes(init));
  segment_.release(queue_offset, srq_bytes(entries_for(init)));
}

Srq::Srq(SegmentMap& segment, const SrqInit& srq_init, uint64_t slots, uint64_t queue)
    : init(srq_init),
      slots_offset(slots),
      queue_offset(queue),
      segment_(segment),
      wr_ids_(entries_for(init)) {
  // Slots beyond max_wr are never used: the limit that was granted is the limit that holds.
  free_.reserve(init.max_wr);
  for (uint32_t i = init.max_wr; i-- != 0;) free_.push_back(i);
}

int Srq::post(const RecvRequest& request) {
  if (request.sges.size() > init.max_sge)
    return refuse({Reason::kSges, request.sges.size(), init.max_sge});
  if (free_.empty()) return refuse({Reason::kSharedQueueFull, 0, init.max_wr});
  const uint32_t index = free_.back();
  free_.pop_back();
  wr_ids_[index] = request.wr_id;
  auto* slot = reinterpret_cast<RecvSlot*>(segment_.at(slots_offset) +
                                           size_t{index} * recv_slot_bytes(init.max_sge));
  slot->sn = index;
  slot->sge_count = static_cast<uint32_t>(request.sges.size());
  std::copy(request.sges.begin(), request.sges.end(), slot->sge);
  auto* queue =
      reinterpret_cast<std::atomic<uint32_t>*>(segment_.at(queue_offset) + sizeof(SrqHeader));
  queue[posted_ & (entries() - 1)].store(index, std::memory_order_relaxed);
  ++posted_;
  header().posted.store(posted_, std::memory_order_release);
  return 0;
}

void Srq::release(uint32_t index) {
  // No index is added beyond the capacity, whatever the segment says, so the vector never grows.
  if (free_.size() < init.max_wr) free_.push_back(index & (entries() - 1));
}

void Srq::arm(uint32_t limit) {
  limit_ = limit;
  header().limit.store(limit, std::memory_order_relaxed);
}

bool Srq::limit_reached() {
  if (limit_ == 0) return false;
  const uint32_t waiting = posted_ - header().taken.load(std::memory_order_acquire);
  if (waiting >= limit_) return false;
  arm(0);
  return true;
}

uint32_t Driver::srq_limit(Srq* srq) {
  std::lock_guard lock(mutex_);
  return srq->limit();
}

int Driver::post_srq_recv(Srq* srq, const RecvRequest& request) {
  std::lock_guard lock(mutex_);
  return srq->post(request);
}

}  // namespace hostnic::driver
