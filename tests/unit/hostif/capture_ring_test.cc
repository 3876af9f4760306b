// SPDX-License-Identifier: BSD-3-Clause
// The ring of a capture: records come out as they went in, over the end of the ring, too; what
// finds no room is counted; neither side believes what can't be.
#include "protocol/hostif/capture_ring.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <vector>

namespace hostnic {
namespace {

class CaptureRing : public testing::Test {
 protected:
  CaptureRing() {
    header_.ring_bytes = kBytes;
    writer_ = std::make_unique<CaptureWriter>(header_, index_, records());
    reader_ = std::make_unique<CaptureReader>(header_, index_, records(), kBytes);
  }
  std::byte* records() { return memory_->bytes; }
  // Writes a packet of so many bytes, all of which are its number. False: there was no room.
  bool write(uint32_t bytes, uint8_t number) {
    CaptureRecord* const record = writer_->prepare(bytes);
    if (record == nullptr) return false;
    record->packet_bytes = bytes;
    std::memset(bytes_behind(*record), number, bytes);
    return true;
  }
  CaptureReader::Result read() { return reader_->next(record_, bytes_); }
  void expect_packet(uint32_t bytes, uint8_t number) {
    ASSERT_EQ(read(), CaptureReader::Result::kRecord);
    ASSERT_EQ(bytes_.size(), bytes);
    for (const std::byte each : bytes_) ASSERT_EQ(each, std::byte{number});
  }

  static constexpr uint64_t kBytes = kMinCaptureBytes;
  struct Memory {
    alignas(64) std::byte bytes[kBytes] = {};
  };
  std::unique_ptr<Memory> memory_ = std::make_unique<Memory>();
  CaptureHeader header_;
  CaptureIndex index_;
  std::unique_ptr<CaptureWriter> writer_;
  std::unique_ptr<CaptureReader> reader_;
  CaptureRecord record_;
  std::span<const std::byte> bytes_;
};

TEST_F(CaptureRing, RecordsComeOutInOrderOverTheEnd) {
  std::mt19937 random(7);
  uint64_t sequence = 0;
  for (uint32_t round = 0; round < 2000; ++round) {
    std::vector<uint32_t> sizes(1 + random() % 5);
    for (uint32_t& size : sizes) {
      size = random() % 5000;
      ASSERT_TRUE(write(size, static_cast<uint8_t>(size)));
    }
    EXPECT_EQ(read(), CaptureReader::Result::kEmpty) << "before it is published";
    writer_->publish();
    for (const uint32_t size : sizes) {
      expect_packet(size, static_cast<uint8_t>(size));
      EXPECT_EQ(record_.sequence, sequence++);
    }
    EXPECT_EQ(read(), CaptureReader::Result::kEmpty);
  }
  EXPECT_EQ(header_.seen.load(), sequence);
  EXPECT_EQ(header_.not_kept.load(), 0u);
}

TEST_F(CaptureRing, WhatFindsNoRoomIsCounted) {
  uint32_t kept = 0;
  while (write(1000, 1)) ++kept;
  EXPECT_EQ(kept, kBytes / 1152);
  EXPECT_FALSE(write(1000, 1));
  writer_->publish();
  EXPECT_EQ(header_.seen.load(), kept + 2);
  EXPECT_EQ(header_.not_kept.load(), 2u);
  for (uint32_t i = 0; i < kept; ++i) expect_packet(1000, 1);
  EXPECT_EQ(read(), CaptureReader::Result::kEmpty);
  ASSERT_TRUE(write(1000, 2));
  writer_->publish();
  expect_packet(1000, 2);
  EXPECT_EQ(record_.sequence, kept + 2) << "the gap is seen";
  EXPECT_FALSE(write(kBytes, 3)) << "larger than the ring";
}

TEST_F(CaptureRing, WhatIsTakenBackIsNotThere) {
  ASSERT_TRUE(write(10, 1));
  const CaptureWriter::Mark mark = writer_->mark();
  ASSERT_TRUE(write(3000, 2));
  while (write(3000, 2)) {
  }
  writer_->rewind(mark);
  ASSERT_TRUE(write(20, 3));
  writer_->publish();
  expect_packet(10, 1);
  expect_packet(20, 3);
  EXPECT_EQ(record_.sequence, 1u);
  EXPECT_EQ(read(), CaptureReader::Result::kEmpty);
  EXPECT_EQ(header_.not_kept.load(), 0u);
}

// A reader that says where it can't be has no more room made for it, and nothing is overwritten.
TEST_F(CaptureRing, TheWriterTakesNoPositionThatCantBe) {
  ASSERT_TRUE(write(1000, 1));
  writer_->publish();
  uint32_t kept = 1;
  for (const uint64_t lie : {uint64_t{1} << 40, UINT64_MAX, uint64_t{4096}, uint64_t{63}}) {
    index_.tail.store(lie);
    while (write(1000, 1)) ++kept;
    EXPECT_EQ(kept, kBytes / 1152) << lie;
  }
  writer_->publish();
  index_.tail.store(1152);
  EXPECT_TRUE(write(1000, 1));
  index_.tail.store(0);  // back: it has been further
  EXPECT_FALSE(write(1000, 1));
}

TEST_F(CaptureRing, TheReaderTakesNothingThatCantBe) {
  ASSERT_TRUE(write(1000, 1));
  writer_->publish();
  CaptureRecord good;
  std::memcpy(&good, records(), sizeof(good));
  const auto outcome = [&](auto change) {
    CaptureRecord bad = good;
    change(bad);
    std::memcpy(records(), &bad, sizeof(bad));
    CaptureReader reader(header_, index_, records(), kBytes);
    return reader.next(record_, bytes_);
  };
  using R = CaptureRecord;
  const auto kBroken = CaptureReader::Result::kBroken;
  EXPECT_EQ(outcome([](R&) {}), CaptureReader::Result::kRecord);
  index_.tail.store(0);
  for (const uint32_t length : {0u, 1u, 63u, 64u, 100u, 1153u, 1216u, 65536u, 0xffffffc0u})
    EXPECT_EQ(outcome([&](R& r) { r.record_bytes = length; }), kBroken) << length;
  EXPECT_EQ(outcome([](R& r) { r.kind = static_cast<CaptureKind>(3); }), kBroken);
  EXPECT_EQ(outcome([](R& r) { r.captured_bytes = 1025; }), kBroken);
  EXPECT_EQ(outcome([](R& r) { r.captured_bytes = UINT32_MAX; }), kBroken);
  EXPECT_EQ(outcome([](R& r) { r.packet_bytes = 999; }), kBroken);
  EXPECT_EQ(outcome([](R& r) { r.change_count = kMaxCaptureChanges + 1; }), kBroken);
  EXPECT_EQ(outcome([](R& r) { r.direction = static_cast<CaptureDirection>(0); }), kBroken);
  for (const uint64_t head : {uint64_t{1}, kBytes + 64, UINT64_MAX, uint64_t{1} << 63}) {
    header_.head.store(head);
    EXPECT_EQ(outcome([](R&) {}), kBroken) << head;
  }
}

// Once it is broken it stays so, and a length that leads past the end is not followed.
TEST_F(CaptureRing, ABrokenRingIsReadNoFurther) {
  header_.head.store(kBytes);
  const uint32_t words[] = {static_cast<uint32_t>(kBytes - 64),
                            static_cast<uint32_t>(CaptureKind::kSkip)};
  std::memcpy(records(), words, sizeof(words));
  const uint32_t past[] = {128, static_cast<uint32_t>(CaptureKind::kPacket)};
  std::memcpy(records() + kBytes - 64, past, sizeof(past));
  EXPECT_EQ(read(), CaptureReader::Result::kBroken);
  header_.head.store(0);
  EXPECT_EQ(read(), CaptureReader::Result::kBroken);
}

}  // namespace
}  // namespace hostnic
