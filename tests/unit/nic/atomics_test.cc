// SPDX-License-Identifier: BSD-3-Clause
// Atomics on all kinds of memory, alone and from two lcores at once (docs/transport.md rule 19).
#include "dataplane/nic/memory/atomics.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <thread>
#include <vector>

#include "protocol/hostif/descriptors.h"

namespace hostnic {
namespace {

// A page of this process, as a region whose words are mapped, late, behind the mem fd, or cut in
// two: mapped or late, and behind the mem fd.
enum class Kind : uint8_t { kMapped, kLate, kMemFd, kCut, kCutLate };
constexpr std::array kNames = {"Mapped", "Late", "MemFd", "Cut", "CutLate"};

class AtomicsTest : public testing::TestWithParam<Kind> {
 protected:
  AtomicsTest() : mem_fd_(open("/proc/self/mem", O_RDWR | O_CLOEXEC)) {
    region_.iova = 0x10000;
    region_.length_bytes = sizeof(words_);
    region_.va_delta = address() - region_.iova;
    region_.mem_fd = mem_fd_;
    auto* host = reinterpret_cast<std::byte*>(words_);
    MappedPiece whole{.va = address(),
                      .length_bytes = sizeof(words_),
                      .host = GetParam() == Kind::kMapped ? host : nullptr,
                      .space_id = 1,
                      .space_offset = 0};
    if (GetParam() == Kind::kLate) set_late(whole);
    if (GetParam() != Kind::kCut && GetParam() != Kind::kCutLate) {
      region_.pieces = {whole};
      return;
    }
    MappedPiece second = whole;
    whole.length_bytes = 4;
    if (GetParam() == Kind::kCutLate) {
      set_late(whole);
    } else {
      whole.host = host;
    }
    second.va += 4;
    second.length_bytes -= 4;
    second.space_offset = 4;
    region_.pieces = {whole, second};
  }
  ~AtomicsTest() override { close(mem_fd_); }
  uint64_t address() const { return reinterpret_cast<uint64_t>(words_); }
  uint64_t add(uint64_t index, uint64_t value) {
    uint64_t before = 0;
    EXPECT_EQ(execute_atomic_on(region_, region_.iova + index * 8, {false, value, 0}, {}, before),
              AtomicResult::kDone);
    return before;
  }

  void set_late(MappedPiece& piece) {
    piece.late_host = reinterpret_cast<std::byte*>(words_);
    piece.slices = &slice_;
  }

  alignas(4096) uint64_t words_[512] = {};
  uint8_t slice_ = 0;  // filled
  int mem_fd_;
  MemoryRegionEntry region_;
};

TEST_P(AtomicsTest, AddsAndSwaps) {
  words_[0] = ~uint64_t{0};
  EXPECT_EQ(add(0, 3), ~uint64_t{0});
  EXPECT_EQ(words_[0], 2u) << "wraps";
  uint64_t before = 0;
  EXPECT_EQ(execute_atomic_on(region_, region_.iova, {true, 77, 3}, {}, before),
            AtomicResult::kDone);
  EXPECT_EQ(before, 2u);
  EXPECT_EQ(words_[0], 2u) << "compared unequal";
  EXPECT_EQ(execute_atomic_on(region_, region_.iova, {true, 77, 2}, {}, before),
            AtomicResult::kDone);
  EXPECT_EQ(before, 2u);
  EXPECT_EQ(words_[0], 77u);
  EXPECT_EQ(words_[1], 0u);
  add(511, 5);
  EXPECT_EQ(words_[511], 5u);
}

class LateAtomicsTest : public AtomicsTest {};

TEST_P(LateAtomicsTest, WaitForASliceThatIsNotFilled) {
  slice_ = static_cast<uint8_t>(SliceState::kAside);
  words_[0] = 5;
  uint64_t before = 0;
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(execute_atomic_on(region_, region_.iova, {false, 1, 0}, {}, before),
              AtomicResult::kBusy);
    EXPECT_EQ(words_[0], 5u);
    EXPECT_EQ(slice_, static_cast<uint8_t>(SliceState::kWanted));
  }
  slice_ = static_cast<uint8_t>(SliceState::kFilled);
  EXPECT_EQ(add(0, 1), 5u);
  EXPECT_EQ(words_[0], 6u);
}

TEST_P(AtomicsTest, Rule19_TwoLcoresNeverInterleaveOnOneWord) {
  constexpr uint64_t kEach = 20'000;
  // Two regions over one word: what counts is the memory.
  MemoryRegionEntry other;
  other.iova = 0x90000;
  other.length_bytes = region_.length_bytes;
  other.va_delta = address() - other.iova;
  other.mem_fd = mem_fd_;
  other.pieces = region_.pieces;
  std::atomic<uint64_t> busy{0}, replaced{0};
  const auto work = [&](MemoryRegionEntry& region, bool swap) {
    uint64_t seen = 0;
    for (uint64_t done = 0; done < kEach;) {
      uint64_t before = 0;
      const AtomicOperation operation =
          swap ? AtomicOperation{true, seen + 1, seen} : AtomicOperation{false, 1, 0};
      const AtomicResult result = execute_atomic_on(region, region.iova, operation, {}, before);
      if (result == AtomicResult::kBusy) {
        ++busy;  // as the NIC does: the packet is dropped and comes again
        std::this_thread::yield();
        continue;
      }
      ASSERT_EQ(result, AtomicResult::kDone);
      if (swap && before != seen) {
        seen = before;
        continue;
      }
      if (swap) ++replaced;
      ++done;
    }
  };
  std::thread adder([&] { work(region_, false); });
  std::thread swapper([&] { work(other, true); });
  adder.join();
  swapper.join();
  EXPECT_EQ(replaced.load(), kEach);
  EXPECT_EQ(words_[0], 2 * kEach);
}

INSTANTIATE_TEST_SUITE_P(Nic, AtomicsTest,
                         testing::Values(Kind::kMapped, Kind::kLate, Kind::kMemFd, Kind::kCut,
                                         Kind::kCutLate),
                         [](const auto& info) { return kNames[static_cast<size_t>(info.param)]; });

INSTANTIATE_TEST_SUITE_P(Nic, LateAtomicsTest, testing::Values(Kind::kLate, Kind::kCutLate),
                         [](const auto& info) { return kNames[static_cast<size_t>(info.param)]; });

TEST(Atomics, UnmappedMemoryIsGone) {
  const int mem_fd = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
  MemoryRegionEntry region;
  region.iova = 4096;  // nobody's
  region.length_bytes = 4096;
  region.mem_fd = mem_fd;
  region.pieces = {
      {.va = 4096, .length_bytes = 4096, .host = nullptr, .space_id = 1, .space_offset = 0}};
  uint64_t before = 0;
  EXPECT_EQ(execute_atomic_on(region, 4096, {false, 1, 0}, {}, before), AtomicResult::kMemoryGone);
  EXPECT_EQ(execute_atomic_on(region, 4096, {false, 1, 0}, {}, before), AtomicResult::kMemoryGone)
      << "and not locked for ever";
  close(mem_fd);
}

}  // namespace
}  // namespace hostnic
