#include "verbs-shim/driver/segment_map.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "protocol/psn.h"

namespace hostnic::driver {
namespace {
constexpr uint64_t kBlockBytes = 64;
constexpr uint64_t round_up(uint64_t bytes) {
  return (bytes + kBlockBytes - 1) & ~(kBlockBytes - 1);
}
constexpr int kSeqlockTries = 1000;
}  // namespace

int SegmentMap::map(int segment_fd, std::byte* segment, uint64_t segment_bytes) {
  base_ = segment;
  header_ = reinterpret_cast<SegmentHeader*>(segment);
  if (segment_bytes < sizeof(SegmentHeader) || header_->magic != kSegmentMagic ||
      header_->abi_version != kHostAbiVersion || header_->segment_bytes != segment_bytes) {
    return EPROTO;
  }
  if (header_->cells_offset + uint64_t{header_->max_qps} * sizeof(QpCell) > header_->arena_offset ||
      header_->arena_offset + header_->arena_bytes > segment_bytes) {
    return EPROTO;
  }
  cells_ = reinterpret_cast<QpCell*>(segment + header_->cells_offset);
  max_qps_ = header_->max_qps;
  RingEnd* const ends[kRingCount] = {&commands, &responses, &sends, &urgent, &metas};
  for (uint32_t ring = 0; ring < kRingCount; ++ring) {
    const int error =
        ends[ring]->map(segment_fd, header_->ring_offset[ring], ring_entries(RingId(ring)),
                        ring_element_bytes(RingId(ring)), &header_->rings[ring]);
    if (error != 0) return error;
  }
  // Offset 0 is the header's, so 0 can mean "none".
  free_[header_->arena_offset] = header_->arena_bytes;
  return 0;
}

uint64_t SegmentMap::allocate(uint64_t bytes) {
  bytes = std::max(round_up(bytes), kBlockBytes);
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    if (it->second < bytes) continue;
    const uint64_t offset = it->first, rest = it->second - bytes;
    free_.erase(it);
    if (rest != 0) free_[offset + bytes] = rest;
    std::memset(base_ + offset, 0, bytes);
    return offset;
  }
  return 0;
}

void SegmentMap::release(uint64_t offset, uint64_t bytes) {
  if (offset == 0) return;
  bytes = std::max(round_up(bytes), kBlockBytes);
  auto next = free_.lower_bound(offset);
  if (next != free_.end() && offset + bytes == next->first) {
    bytes += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    auto previous = std::prev(next);
    if (previous->first + previous->second == offset) {
      previous->second += bytes;
      return;
    }
  }
  free_[offset] = bytes;
}

bool read_cell(const QpCell& cell, CellNews& news, CellBits& bits) {
  for (int i = 0; i < kSeqlockTries; ++i) {
    const uint32_t started = cell.sequence.load(std::memory_order_acquire);
    if ((started & 1) != 0) continue;
    news = {.base_psn = cell.base_psn,
            .highest_acceptable_psn = cell.highest_acceptable_psn,
            .recv_sn_limit = cell.recv_sn_limit,
            .has_credit = cell.has_credit,
            .nak = cell.nak,
            .nak_psn = cell.nak_psn,
            .nak_sn = cell.nak_sn,
            .nak_count = cell.nak_count,
            .ack_count = cell.ack_count,
            .rtt_ns = cell.rtt_ns,
            .rtt_count = cell.rtt_count,
            .mark_count = cell.mark_count,
            .spurious_count = cell.spurious_count,
            .trigger_psn = cell.trigger_psn,
            .trigger_attempt = cell.trigger_attempt,
            .trigger_count = cell.trigger_count,
            .response_base_psn = cell.response_base_psn,
            .local_error = cell.local_error,
            .local_error_psn = cell.local_error_psn,
            .response_error = cell.response_error,
            .response_error_read = cell.response_error_read,
            .events = cell.events,
            .response_epoch = cell.response_epoch,
            .sack_end_psn = cell.sack_end_psn,
            .responses_ahead = cell.responses_ahead,
            .response_mark_count = cell.response_mark_count};
    bits.has_sack = before(Psn(news.base_psn), Psn(news.sack_end_psn));
    if (bits.has_sack) std::memcpy(bits.sack.words().data(), cell.sack, sizeof(cell.sack));
    bits.has_responses = news.responses_ahead != 0;
    if (bits.has_responses)
      std::memcpy(bits.responses.words().data(), cell.response_bitmap,
                  sizeof(cell.response_bitmap));
    std::atomic_thread_fence(std::memory_order_acquire);
    if (cell.sequence.load(std::memory_order_relaxed) == started) return true;
  }
  return false;
}

}  // namespace hostnic::driver
