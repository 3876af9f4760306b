// SPDX-License-Identifier: BSD-3-Clause
// Clients that register and deregister a lot don't keep those waiting who register a little.
#include "dataplane/memory/steps.h"

#include <array>
#include <thread>
#include <utility>

#include "dataplane/memory/sigbus.h"
#include "tests/unit/memory/testing.h"

namespace hostnic::memory_testing {
namespace {

// The longest calls of hostnicd's half, and of nobody else, while `counting`; the linker leads its
// calls here.
struct LongestCalls {
  bool counting = false;
  uint64_t populated_bytes = 0, unmapped_bytes = 0;
  unsigned unmappings = 0, pauses = 0;
} longest;

}  // namespace

extern "C" {
int __real_munmap(void* at, size_t length);
int __real_madvise(void* at, size_t length, int advice);
int __real_nanosleep(const timespec* wanted, timespec* left);

int __wrap_munmap(void* at, size_t length) {
  if (longest.counting) {
    longest.unmapped_bytes = std::max(longest.unmapped_bytes, length);
    longest.unmappings++;
  }
  return __real_munmap(at, length);
}

int __wrap_madvise(void* at, size_t length, int advice) {
  if (longest.counting && (advice == MADV_POPULATE_READ || advice == MADV_POPULATE_WRITE))
    longest.populated_bytes = std::max(longest.populated_bytes, length);
  return __real_madvise(at, length, advice);
}

int __wrap_nanosleep(const timespec* wanted, timespec* left) {
  if (longest.counting) longest.pauses++;
  return __real_nanosleep(wanted, left);
}
}

namespace {

using Parts = std::vector<std::pair<uint64_t, uint64_t>>;  // where it begins, length

Parts parts_of(uint64_t length_bytes, uint64_t page_bytes) {
  Parts parts;
  auto* const start = reinterpret_cast<std::byte*>(uint64_t{1} << 40);
  EXPECT_TRUE(in_steps(start, length_bytes, page_bytes, [&](std::byte* at, uint64_t bytes) {
    parts.emplace_back(at - start, bytes);
    return true;
  }));
  return parts;
}

TEST(MappingSteps, CoverTheMappingInOrder) {
  constexpr uint64_t kStep = kMappingStepBytes;
  EXPECT_EQ(Parts(), parts_of(0, kPage));
  EXPECT_EQ((Parts{{0, kPage}}), parts_of(kPage, kPage));
  EXPECT_EQ((Parts{{0, kStep}}), parts_of(kStep, kPage));
  EXPECT_EQ((Parts{{0, kStep}, {kStep, kStep}, {2 * kStep, kPage}}),
            parts_of(2 * kStep + kPage, kPage));
}

TEST(MappingSteps, ArePagesOfHugetlbfsAtLeast) {
  constexpr uint64_t kGiB = 1024 * kMiB;
  EXPECT_EQ((Parts{{0, kGiB}, {kGiB, kGiB}}), parts_of(2 * kGiB, kGiB));
}

TEST(MappingSteps, EndWithTheFirstThatFails) {
  unsigned calls = 0;
  EXPECT_FALSE(in_steps(nullptr, 4 * kMappingStepBytes, kPage,
                        [&](std::byte*, uint64_t) { return ++calls < 2; }));
  EXPECT_EQ(2u, calls);
}

class StepsOfClientMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    mirror_ = create_mirror().value_or(-1);
    ASSERT_GE(mirror_, 0);
    file_ = memfd_create("file", MFD_CLOEXEC);
    ASSERT_EQ(0, ftruncate(file_, kBytes));
    void* at = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file_, 0);
    ASSERT_NE(MAP_FAILED, at);
    munmap(at, kBytes);
    memory_ = std::make_unique<ClientMemory>(mirror_, &gone_);
  }
  void TearDown() override {
    memory_.reset();
    close(mirror_);
    close(file_);
  }
  std::vector<MappedPiece> registered(uint64_t length_bytes) {
    const MemoryRegion region{kVa, length_bytes, RegionKind::kFile, 0, 0};
    auto pieces = memory_->map({&region, 1}, {&file_, 1});
    EXPECT_TRUE(pieces && ClientMemory::populate(*pieces));
    return pieces.value_or(std::vector<MappedPiece>());
  }

  static constexpr uint64_t kVa = 0x200000000000, kBytes = 32 * kMiB;
  int mirror_ = -1, file_ = -1;
  std::atomic<bool> gone_{false};
  std::unique_ptr<ClientMemory> memory_;
};

TEST_F(StepsOfClientMemory, PopulatesAndUnmapsInSteps) {
  longest = {.counting = true};
  memory_->unmap(registered(kBytes));
  longest.counting = false;
  EXPECT_EQ(0u, memory_->mapping_count());
  EXPECT_EQ(kMappingStepBytes, longest.populated_bytes);
  EXPECT_EQ(kMappingStepBytes, longest.unmapped_bytes);
  EXPECT_EQ(0u, longest.pauses) << "for nobody";
}

TEST_F(StepsOfClientMemory, LetsThosePassWhoMapLittleAndEndsAllTheSame) {
  const ShortMapping another_clients;
  longest = {.counting = true};
  const std::vector<MappedPiece> pieces = registered(kBytes);
  const unsigned populating = longest.pauses;
  memory_->unmap(pieces);
  longest.counting = false;
  EXPECT_EQ(0u, memory_->mapping_count());
  constexpr unsigned kSteps = kBytes / kMappingStepBytes;
  EXPECT_GE(populating, kSteps - 1);
  EXPECT_GE(longest.pauses - populating, kSteps - 1);
}

TEST_F(StepsOfClientMemory, DoesNotWaitWithLittle) {
  const ShortMapping another_clients;
  longest = {.counting = true};
  memory_->unmap(registered(kPage));
  longest.counting = false;
  EXPECT_EQ(0u, longest.pauses);
}

TEST_F(StepsOfClientMemory, UnmapsInStepsWhatManyRegionsBrought) {
  std::vector<std::vector<MappedPiece>> regions;
  for (unsigned i = 0; i < kBytes / kMiB; ++i) regions.push_back(registered(kMiB));
  longest = {.counting = true};
  for (const auto& pieces : regions) memory_->unmap(pieces);
  longest.counting = false;
  EXPECT_EQ(0u, memory_->mapping_count());
  EXPECT_EQ(kMappingStepBytes, longest.unmapped_bytes);
}

TEST_F(StepsOfClientMemory, UnmapsAtOnceWhereLittleWasBrought) {
  const std::vector<MappedPiece> pieces = registered(kPage);
  longest = {.counting = true};
  memory_->unmap(pieces);
  longest.counting = false;
  EXPECT_EQ(0u, memory_->mapping_count());
  EXPECT_EQ(1u, longest.unmappings);
}

// Sessions add and remove ranges side by side: the table is full when it has as many as it may.
TEST(SigbusGuard, TakesRangesOfSeveralThreadsAtOnce) {
  constexpr unsigned kThreads = 3;
  std::atomic<bool> gone{false};
  std::atomic<size_t> added{0};
  const auto add_all = [&](unsigned number) {
    std::vector<std::byte*> mine;
    auto* at = reinterpret_cast<std::byte*>(uint64_t{number + 1} << 40);
    while (add_sigbus_range(at, kPage, kPage, &gone)) {
      mine.push_back(at);
      at += kPage;
    }
    added += mine.size();
    return mine;
  };
  for (unsigned round = 0; round < 2; ++round) {
    added = 0;
    std::array<std::vector<std::byte*>, kThreads> ranges;
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < kThreads; ++i)
      threads.emplace_back([&, i] { ranges[i] = add_all(i); });
    for (std::thread& each : threads) each.join();
    EXPECT_EQ(kSigbusRanges, added.load());
    threads.clear();
    for (unsigned i = 0; i < kThreads; ++i)
      threads.emplace_back([&, i] {
        for (std::byte* const each : ranges[i]) remove_sigbus_range(each);
      });
    for (std::thread& each : threads) each.join();
  }
}

}  // namespace
}  // namespace hostnic::memory_testing
