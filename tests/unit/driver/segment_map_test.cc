// SPDX-License-Identifier: BSD-3-Clause
// The arena: what is allocated is zero, what is not written costs nothing, what is released is
// given back, and as much is there as a device promises.
#include "verbs-shim/driver/segment_map.h"

#include <gtest/gtest.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "dataplane/nic/client/client_channel.h"
#include "verbs-shim/driver/segment_map.h"

namespace hostnic::driver {
namespace {

constexpr uint64_t kMiB = 1 << 20;

class SegmentMapTest : public testing::Test {
 protected:
  void make(uint32_t max_qps, uint64_t arena_bytes) {
    auto made =
        ClientChannel::create({.max_qps = max_qps, .arena_bytes = arena_bytes, .program = "test"});
    ASSERT_TRUE(made) << made.error();
    channel_ = std::move(*made);
    const SegmentMemory& theirs = channel_->memory();
    ASSERT_EQ(memory_.map(channel_->segment_fd(), theirs.segment_bytes(), channel_->arena_fd(),
                          theirs.arena_bytes()),
              0);
    ASSERT_EQ(map_.use(memory_), 0);
  }
  uint64_t resident_bytes() const {
    struct stat file {};
    EXPECT_EQ(fstat(channel_->arena_fd(), &file), 0);
    return static_cast<uint64_t>(file.st_blocks) * 512;
  }
  bool is_zero(uint64_t offset, uint64_t bytes) {
    const std::byte* at = map_.at(offset);
    return std::all_of(at, at + bytes, [](std::byte b) { return b == std::byte{0}; });
  }

  std::unique_ptr<ClientChannel> channel_;
  SegmentMemory memory_;
  SegmentMap map_;
};

TEST_F(SegmentMapTest, WhatIsNotWrittenCostsNothing) {
  make(4, 512 * kMiB);
  std::vector<uint64_t> blocks;
  for (int i = 0; i < 100; ++i) blocks.push_back(map_.allocate(5 * kMiB));
  EXPECT_EQ(std::count(blocks.begin(), blocks.end(), 0u), 0);
  EXPECT_EQ(resident_bytes(), 0u);
}

// The NIC makes none for clients that it does not trust.
TEST_F(SegmentMapTest, PagesThatTheNicWritesFirstAreMadeHere) {
  make(4, 64 * kMiB);
  const uint64_t block = map_.allocate(10 * 4096 + 64);
  *map_.at(block) = std::byte{7};
  map_.make_pages(block, 10 * 4096 + 64);
  EXPECT_EQ(resident_bytes(), 4096u) << "hostnicd makes those of its own user's programs";
  map_.header().driver_makes_pages = 1;
  map_.make_pages(block, 10 * 4096 + 64);
  EXPECT_EQ(resident_bytes(), 11u * 4096);
  EXPECT_EQ(*map_.at(block), std::byte{7});
  EXPECT_TRUE(is_zero(block + 1, 10 * 4096 + 63));
  struct stat segment {};
  ASSERT_EQ(fstat(channel_->segment_fd(), &segment), 0);
  const auto rings = segment.st_blocks;
  for (uint32_t i = 0; i < 4; ++i) map_.make_status_pages(i);
  ASSERT_EQ(fstat(channel_->segment_fd(), &segment), 0);
  EXPECT_GT(segment.st_blocks, rings);
}

TEST_F(SegmentMapTest, ReleasedPagesAreGivenBack) {
  make(4, 64 * kMiB);
  const uint64_t small = map_.allocate(192);
  std::memset(map_.at(small), 1, 192);
  std::vector<uint64_t> blocks;
  for (int i = 0; i < 50; ++i) {
    blocks.push_back(map_.allocate(100'000));
    std::memset(map_.at(blocks.back()), 0xee, 100'000);
  }
  EXPECT_GE(resident_bytes(), 50u * 100'000);
  for (size_t i = 0; i < blocks.size(); i += 2) map_.release(blocks[i], 100'000);
  for (size_t i = 1; i < blocks.size(); i += 2) map_.release(blocks[i], 100'000);
  EXPECT_LE(resident_bytes(), 4096u) << "the page of the block that is left";
  EXPECT_EQ(map_.at(small)[191], std::byte{1});
}

// Blocks smaller than a page share pages: each is zero when it is allocated, and its neighbours
// keep what they hold.
TEST_F(SegmentMapTest, AllocatedBlocksAreZeroAndTheirOwn) {
  make(4, kMiB);
  struct Block {
    uint64_t offset, bytes;
    std::byte content;
  };
  std::vector<Block> blocks;
  uint32_t random = 1;
  const auto next = [&] { return (random = random * 1664525 + 1013904223) >> 8; };
  for (int i = 0; i < 5000; ++i) {
    if (next() % 2 == 0 && !blocks.empty()) {
      std::swap(blocks[next() % blocks.size()], blocks.back());
      const Block& gone = blocks.back();
      const std::byte* at = map_.at(gone.offset);
      ASSERT_TRUE(std::all_of(at, at + gone.bytes, [&](std::byte b) { return b == gone.content; }));
      map_.release(gone.offset, gone.bytes);
      blocks.pop_back();
      continue;
    }
    const uint64_t bytes = 1 + next() % (next() % 4 == 0 ? 20'000 : 600);
    const uint64_t offset = map_.allocate(bytes);
    if (offset == 0) continue;
    ASSERT_EQ(offset % 64, 0u);
    ASSERT_TRUE(is_zero(offset, bytes));
    blocks.push_back({offset, bytes, static_cast<std::byte>(i % 255 + 1)});
    std::memset(map_.at(offset), i % 255 + 1, bytes);
  }
}

TEST_F(SegmentMapTest, UsedUpAndFreeAgain) {
  make(4, kMiB);
  const uint64_t all = map_.allocate(kMiB);
  ASSERT_NE(all, 0u);
  EXPECT_EQ(map_.allocate(1), 0u);
  map_.release(all, kMiB);
  EXPECT_EQ(map_.allocate(kMiB), all);
}

// Beyond the first gigabyte it is mapped when something is needed there, on either side.
TEST_F(SegmentMapTest, NothingLiesAcrossTheEndOfWhatIsAlwaysMapped) {
  make(4, 4096 * kMiB);
  constexpr uint64_t kBytes = 700 * kMiB;
  std::vector<uint64_t> blocks;
  for (uint64_t offset = 0; (offset = map_.allocate(kBytes)) != 0;) blocks.push_back(offset);
  ASSERT_EQ(blocks.size(), 5u) << "one in the first gigabyte, four in the other three";
  for (const uint64_t offset : blocks) {
    map_.at(offset)[0] = map_.at(offset)[kBytes - 1] = static_cast<std::byte>(offset >> 24 | 1);
    std::byte* const theirs = channel_->arena_at(offset, kBytes);
    ASSERT_NE(theirs, nullptr);
    EXPECT_EQ(theirs[0], static_cast<std::byte>(offset >> 24 | 1));
    EXPECT_EQ(theirs[kBytes - 1], static_cast<std::byte>(offset >> 24 | 1));
  }
  for (const uint64_t offset : blocks) map_.release(offset, kBytes);
  EXPECT_EQ(resident_bytes(), 0u);
  EXPECT_EQ(map_.allocate(3072 * kMiB), memory_.near_end());
  EXPECT_EQ(channel_->arena_at(memory_.near_end() + 3072 * kMiB - 64, 128), nullptr);
}

// All queue pairs of a device with the deepest queues.
TEST_F(SegmentMapTest, HoldsAllThatADevicePromises) {
  constexpr uint32_t kQps = 300;
  make(kQps, 0);
  const uint64_t slots = uint64_t{kMaxQueueEntries} * recv_slot_bytes(kMaxSge);
  for (uint32_t i = 0; i < kMaxSharedQueues; ++i) {
    ASSERT_NE(map_.allocate(slots), 0u) << i;
    ASSERT_NE(map_.allocate(srq_bytes(kMaxQueueEntries)), 0u) << i;
  }
  for (uint32_t i = 0; i < kQps; ++i) {
    ASSERT_NE(map_.allocate(slots), 0u) << i;
    ASSERT_NE(map_.allocate(kMaxQueueEntries * sizeof(RecvCompletion)), 0u) << i;
    ASSERT_NE(map_.allocate(kReadDestinationEntries * sizeof(ReadDestination)), 0u) << i;
  }
  EXPECT_EQ(resident_bytes(), 0u);
}

uint64_t huge_pages(const char* which) {
  uint64_t count = 0;
  std::ifstream(std::string("/sys/kernel/mm/hugepages/hugepages-2048kB/") + which) >> count;
  return count;
}
uint64_t free_huge_pages() { return huge_pages("free_hugepages") - huge_pages("resv_hugepages"); }

bool in_hugetlbfs(int fd) {
  struct statfs fs {};
  EXPECT_EQ(fstatfs(fd, &fs), 0);
  return fs.f_type == HUGETLBFS_MAGIC;
}

TEST_F(SegmentMapTest, RingsAndStatusesLieInHugePages) {
  if (free_huge_pages() < ClientChannel::huge_bytes_for(1024) / kHugePageBytes)
    GTEST_SKIP() << "no huge pages reserved (sysctl vm.nr_hugepages=2)";
  for (const SegmentPages pages : {SegmentPages::kHuge, SegmentPages::kHugeIfFree}) {
    auto made = ClientChannel::create({.max_qps = 1024, .pages = pages});
    ASSERT_TRUE(made) << made.error();
    ClientChannel& channel = **made;
    EXPECT_TRUE(channel.in_huge_pages());
    EXPECT_TRUE(in_hugetlbfs(channel.segment_fd()));
    EXPECT_FALSE(in_hugetlbfs(channel.arena_fd()));
    EXPECT_EQ(channel.memory().segment_bytes() % kHugePageBytes, 0u);
    SegmentMemory memory;
    ASSERT_EQ(memory.map(channel.segment_fd(), channel.memory().segment_bytes(), channel.arena_fd(),
                         channel.memory().arena_bytes()),
              0);
    SegmentMap map;
    ASSERT_EQ(map.use(memory), 0);
    RingElement sent{}, got{};
    sent.bytes[63] = std::byte{9};
    for (uint32_t i = 0; i < 3 * kSendRingSize; ++i) {
      ASSERT_TRUE(map.sends.enqueue_bulk(&sent, 1));
      ASSERT_EQ(channel.sends.dequeue_burst(&got, 1), 1);
    }
    EXPECT_EQ(got.bytes[63], std::byte{9});
    channel.qp_status(1023).events = 5;
    EXPECT_EQ(map.qp_status(1023).events, 5u);
    const uint64_t offset = map.allocate(100);
    map.at(offset)[0] = std::byte{1};
    EXPECT_EQ(channel.arena_at(offset, 100)[0], std::byte{1});
  }
}

TEST_F(SegmentMapTest, OrdinaryPagesWhereHugeOnesAreTooFew) {
  constexpr uint32_t kManyQps = 65520;
  if (free_huge_pages() >= ClientChannel::huge_bytes_for(kManyQps) / kHugePageBytes)
    GTEST_SKIP() << "enough huge pages are free";
  const uint64_t before = free_huge_pages();
  EXPECT_FALSE(ClientChannel::create({.max_qps = kManyQps, .pages = SegmentPages::kHuge}));
  EXPECT_EQ(free_huge_pages(), before) << "none is kept";
  auto made = ClientChannel::create({.max_qps = kManyQps, .pages = SegmentPages::kHugeIfFree});
  ASSERT_TRUE(made) << made.error();
  EXPECT_FALSE((*made)->in_huge_pages());
  EXPECT_FALSE(in_hugetlbfs((*made)->segment_fd()));
}

}  // namespace
}  // namespace hostnic::driver
