// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/driver/segment_map.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "protocol/psn.h"

namespace hostnic::driver {
namespace {
constexpr uint64_t kBlockBytes = 64;
constexpr uint64_t kPageBytes = 4096;
constexpr uint64_t page_down(uint64_t offset) { return offset & ~(kPageBytes - 1); }
constexpr uint64_t page_up(uint64_t offset) { return page_down(offset + kPageBytes - 1); }
constexpr uint64_t round_up(uint64_t bytes) {
  return (bytes + kBlockBytes - 1) & ~(kBlockBytes - 1);
}
constexpr int kSeqlockTries = 1000;
}  // namespace

int SegmentMap::use(SegmentMemory& memory) {
  memory_ = &memory;
  header_ = reinterpret_cast<SegmentHeader*>(memory.base());
  const uint64_t end = memory.segment_bytes();
  if (end < sizeof(SegmentHeader) || header_->magic != kSegmentMagic ||
      header_->abi_version != kHostAbiVersion || header_->segment_bytes != end ||
      header_->arena_offset != end || header_->arena_bytes != memory.arena_bytes() ||
      header_->statuses_offset > end ||
      uint64_t{header_->max_qps} * sizeof(QpStatus) > end - header_->statuses_offset ||
      header_->object_board_offset > end ||
      sizeof(ObjectBoard) > end - header_->object_board_offset) {
    return EPROTO;
  }
  statuses_ = reinterpret_cast<QpStatus*>(memory.base() + header_->statuses_offset);
  max_qps_ = header_->max_qps;
  RingEnd* const ends[kRingCount] = {&commands, &responses, &sends, &urgent, &metas, &events};
  for (uint32_t ring = 0; ring < kRingCount; ++ring) {
    const uint64_t offset = header_->ring_offset[ring];
    const uint32_t entries = ring_entries(RingId(ring)), bytes = ring_element_bytes(RingId(ring));
    if (offset > end || uint64_t{entries} * bytes > end - offset ||
        ends[ring]->init(memory.base() + offset, entries, bytes, &header_->rings[ring]) != 0)
      return EPROTO;
    // Pages of the event ring are made by the events that this program writes there: the NIC looks
    // at no others.
    if (ring != kEventRing) make_pages(offset, uint64_t{entries} * bytes);
  }
  // Pages of further objects are made by what this program writes there.
  make_pages(header_->object_board_offset, sizeof(ObjectBoard::end));
  // The free arena is two blocks that never grow together: nothing lies across the end of what is
  // always mapped.
  free_[end] = memory.near_end() - end;
  if (const uint64_t far = end + memory.arena_bytes() - memory.near_end(); far != 0)
    free_[memory.near_end()] = far;
  return 0;
}

uint64_t SegmentMap::allocate(uint64_t bytes) {
  bytes = std::max(round_up(bytes), kBlockBytes);
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    if (it->second < bytes) continue;
    const uint64_t offset = it->first, rest = it->second - bytes;
    if (offset >= memory_->near_end() && !memory_->reach_far()) return 0;
    if (!memory_->open(offset, bytes)) return 0;
    free_.erase(it);
    if (rest != 0) free_[offset + bytes] = rest;
    return offset;
  }
  return 0;
}

void SegmentMap::make_pages(uint64_t offset, uint64_t bytes) {
  if (header_->driver_makes_pages == 0) return;
  std::byte* const at = memory_->at(offset);
  // The NIC may be writing there: a page is made by adding nothing to a byte of it.
  for (uint64_t done = 0; done < bytes; done += kPageBytes - (offset + done) % kPageBytes)
    __atomic_fetch_or(reinterpret_cast<uint8_t*>(at + done), uint8_t{0}, __ATOMIC_RELAXED);
}

void SegmentMap::release(uint64_t offset, uint64_t bytes) {
  if (offset == 0) return;
  bytes = std::max(round_up(bytes), kBlockBytes);
  uint64_t begin = offset, end = offset + bytes;
  auto next = free_.lower_bound(offset);
  if (next != free_.end() && end == next->first && end != memory_->near_end()) {
    end += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin() && begin != memory_->near_end()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == begin) begin = previous->first;
  }
  free_[begin] = end - begin;
  make_zero(offset, bytes, begin, end);
}

// Makes a block zero that is free now, in free memory from `free_begin` to `free_end`: whole pages
// are given back, the rest of a page that is still used is overwritten.
void SegmentMap::make_zero(uint64_t offset, uint64_t bytes, uint64_t free_begin,
                           uint64_t free_end) {
  // A forked child has nothing mapped, and the file is the parent's.
  if (memory_->base() == nullptr) return;
  const uint64_t end = offset + bytes;
  const uint64_t first = std::max(page_down(offset), page_up(free_begin));
  const uint64_t last = std::min(page_up(end), page_down(free_end));
  if (first >= last) {
    std::memset(memory_->at(offset), 0, bytes);
    return;
  }
  if (offset < first) std::memset(memory_->at(offset), 0, first - offset);
  if (!memory_->discard(first, last - first)) std::memset(memory_->at(first), 0, last - first);
  if (last < end) std::memset(memory_->at(last), 0, end - last);
}

bool read_status(const QpStatus& status, QpStatusSnapshot& snapshot, QpStatusBits& bits) {
  for (int i = 0; i < kSeqlockTries; ++i) {
    const uint32_t started = status.sequence.load(std::memory_order_acquire);
    if ((started & 1) != 0) continue;
    snapshot = {.una_psn = status.una_psn,
                .highest_acceptable_psn = status.highest_acceptable_psn,
                .recv_sn_limit = status.recv_sn_limit,
                .has_credit = status.has_credit,
                .nak = status.nak,
                .nak_psn = status.nak_psn,
                .nak_sn = status.nak_sn,
                .nak_count = status.nak_count,
                .ack_count = status.ack_count,
                .rtt_ns = status.rtt_ns,
                .rtt_count = status.rtt_count,
                .mark_count = status.mark_count,
                .spurious_count = status.spurious_count,
                .echo_psn = status.echo_psn,
                .echo_attempt = status.echo_attempt,
                .rtt_psn = status.rtt_psn,
                .echo_count = status.echo_count,
                .response_una_psn = status.response_una_psn,
                .local_error = status.local_error,
                .local_error_psn = status.local_error_psn,
                .response_error = status.response_error,
                .response_error_read = status.response_error_read,
                .events = status.events,
                .response_epoch = status.response_epoch,
                .response_refused = status.response_refused,
                .sack_end_psn = status.sack_end_psn,
                .responses_ahead = status.responses_ahead,
                .response_mark_count = status.response_mark_count};
    bits.has_sack = before(Psn(snapshot.una_psn), Psn(snapshot.sack_end_psn));
    if (bits.has_sack) std::memcpy(bits.sack.words().data(), status.sack, sizeof(status.sack));
    bits.has_responses = snapshot.responses_ahead != 0;
    if (bits.has_responses)
      std::memcpy(bits.responses.words().data(), status.response_bitmap,
                  sizeof(status.response_bitmap));
    std::atomic_thread_fence(std::memory_order_acquire);
    if (status.sequence.load(std::memory_order_relaxed) == started) return true;
  }
  return false;
}

}  // namespace hostnic::driver
