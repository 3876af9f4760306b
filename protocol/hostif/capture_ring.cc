// SPDX-License-Identifier: BSD-3-Clause
#include "protocol/hostif/capture_ring.h"

#include <cstring>
#include <new>

namespace hostnic {
namespace {

constexpr uint64_t up(uint64_t bytes) { return (bytes + kCaptureAlign - 1) & ~(kCaptureAlign - 1); }

}  // namespace

// The bytes that may be prepared. A position that the reader can't have reached, or gone back to,
// is no news of it.
uint64_t CaptureWriter::room() {
  const uint64_t tail = index_.tail.load(std::memory_order_acquire);
  if (tail >= tail_ && tail <= published_ && tail % kCaptureAlign == 0) tail_ = tail;
  return ring_bytes_ - (at_.cursor - tail_);
}

CaptureRecord* CaptureWriter::prepare(uint32_t captured_bytes) {
  const uint64_t wanted = up(sizeof(CaptureRecord) + captured_bytes);
  const uint64_t sequence = at_.sequence++;
  uint64_t place = at_.cursor & (ring_bytes_ - 1);
  const uint64_t to_end = ring_bytes_ - place;
  const uint64_t skipped = to_end < wanted ? to_end : 0;
  if (wanted > ring_bytes_ || skipped + wanted > room()) {
    ++at_.not_kept;
    return nullptr;
  }
  if (skipped != 0) {
    const uint32_t words[] = {static_cast<uint32_t>(skipped),
                              static_cast<uint32_t>(CaptureKind::kSkip)};
    std::memcpy(records_ + place, words, sizeof(words));
    at_.cursor += skipped;
    place = 0;
  }
  at_.cursor += wanted;
  auto* const record = new (records_ + place) CaptureRecord;
  record->record_bytes = static_cast<uint32_t>(wanted);
  record->captured_bytes = captured_bytes;
  record->sequence = sequence;
  return record;
}

void CaptureWriter::publish() {
  header_.seen.store(at_.sequence, std::memory_order_relaxed);
  header_.not_kept.store(at_.not_kept, std::memory_order_relaxed);
  published_ = at_.cursor;
  header_.head.store(published_, std::memory_order_release);
}

CaptureReader::Result CaptureReader::next(CaptureRecord& record,
                                          std::span<const std::byte>& bytes) {
  if (taken_bytes_ != 0) {
    tail_ += taken_bytes_;
    taken_bytes_ = 0;
    index_.tail.store(tail_, std::memory_order_release);
  }
  const auto broken = [this] {
    broken_ = true;
    return Result::kBroken;
  };
  if (broken_) return Result::kBroken;
  for (;;) {
    const uint64_t there = header_.head.load(std::memory_order_acquire) - tail_;
    if (there == 0) return Result::kEmpty;
    if (there > ring_bytes_ || there % kCaptureAlign != 0) return broken();
    const uint64_t place = tail_ & (ring_bytes_ - 1);
    const uint64_t to_end = ring_bytes_ - place;
    uint32_t words[2];
    std::memcpy(words, records_ + place, sizeof(words));
    const uint64_t length = words[0];
    if (length < kCaptureAlign || length % kCaptureAlign != 0 || length > there || length > to_end)
      return broken();
    if (words[1] == static_cast<uint32_t>(CaptureKind::kSkip)) {
      tail_ += length;
      index_.tail.store(tail_, std::memory_order_release);
      continue;
    }
    if (words[1] != static_cast<uint32_t>(CaptureKind::kPacket) || length < sizeof(CaptureRecord))
      return broken();
    std::memcpy(&record, records_ + place, sizeof(record));
    record.record_bytes = words[0];
    if (record.captured_bytes > length - sizeof(CaptureRecord) ||
        record.captured_bytes > record.packet_bytes || record.change_count > kMaxCaptureChanges ||
        (record.direction != CaptureDirection::kReceived &&
         record.direction != CaptureDirection::kSent))
      return broken();
    bytes = {records_ + place + sizeof(CaptureRecord), record.captured_bytes};
    taken_bytes_ = length;
    return Result::kRecord;
  }
}

}  // namespace hostnic
