// SPDX-License-Identifier: BSD-3-Clause
// On-demand registrations: what is mapped there may change at any time, and counts as it is when
// the NIC gets there.
#include "tests/unit/memory/testing.h"

namespace hostnic::memory_testing {
namespace {

class MemoryOnDemand : public MemoryTest {
 protected:
  // Addresses far from where the kernel puts what somebody maps meanwhile, so that a hole stays
  // one. Nothing is accessible yet.
  static constexpr uint64_t kLength = kMiB;
  MemoryOnDemand()
      : at_(static_cast<std::byte*>(mmap(reinterpret_cast<void*>(0x200000000000), kLength,
                                         PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {}
  ~MemoryOnDemand() override { munmap(at_, kLength); }
  uint64_t va() const { return reinterpret_cast<uint64_t>(at_); }
  void map(uint64_t offset, uint64_t length, int prot = PROT_READ | PROT_WRITE) {
    ASSERT_EQ(at_ + offset,
              mmap(at_ + offset, length, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
  }
  std::byte* const at_;
};

TEST_F(MemoryOnDemand, NothingNeedsToBeThere) {
  ASSERT_EQ(0, munmap(at_, kLength / 2));  // and the rest is PROT_NONE
  Nic::Mr mr;
  ASSERT_TRUE(nic.add_on_demand(va() + 10, kLength - 20, mr)) << nic.error;
  ASSERT_EQ(1u, mr.regions.size());
  EXPECT_EQ(RegionKind::kMemFd, mr.regions[0].kind);
  EXPECT_FALSE(nic.write(mr, 0, std::vector<std::byte>(8)));
  map(0, kLength);
  expect_right_bytes(mr);
  nic.remove(mr);
}

TEST_F(MemoryOnDemand, WhatIsMappedNowCounts) {
  map(0, kLength);
  at_[kPage] = std::byte{1};
  Nic::Mr mr;
  ASSERT_TRUE(nic.add_on_demand(va(), kLength, mr)) << nic.error;
  EXPECT_EQ(std::byte{1}, nic.read(mr, kPage, 1)[0]);
  ASSERT_EQ(0, munmap(at_, kLength));
  EXPECT_FALSE(nic.write(mr, kPage, {std::byte{2}}));
  map(0, kLength);
  EXPECT_EQ(std::byte{0}, nic.read(mr, kPage, 1)[0]) << "the old page";
  expect_right_bytes(mr);
  // Past the interposers, too.
  memory::raw_munmap(at_, kLength);
  EXPECT_FALSE(nic.write(mr, kPage, {std::byte{2}}));
  map(0, kLength);
  expect_right_bytes(mr);
  // A piece at a time, of which the last leaves a hole in the middle of a transfer.
  for (uint64_t offset = 0; offset < kLength; offset += 2 * kPage) {
    ASSERT_EQ(0, munmap(at_ + offset, kPage));
    if (offset + 2 * kPage < kLength) map(offset, kPage);
  }
  EXPECT_FALSE(nic.write(mr, kLength - 3 * kPage, std::vector<std::byte>(3 * kPage)));
  nic.remove(mr);
}

TEST_F(MemoryOnDemand, NothingMigratesUnderIt) {
  map(0, kLength / 2);
  Nic::Mr on_demand, plain;
  ASSERT_TRUE(nic.add_on_demand(va(), kLength, on_demand)) << nic.error;
  map(kLength / 2, kLength / 2);
  ASSERT_TRUE(nic.add(va(), kLength, plain)) << nic.error;
  EXPECT_TRUE(all_of_kind(plain, RegionKind::kMemFd));
  EXPECT_EQ(0u, registrar().counters().in_mirror_bytes);
  expect_right_bytes(plain);
  expect_right_bytes(on_demand);
  nic.remove(plain);
  nic.remove(on_demand);
  // And nothing of it is left.
  ASSERT_TRUE(nic.add(va(), kLength, plain)) << nic.error;
  if (migrates()) {
    EXPECT_TRUE(all_of_kind(plain, RegionKind::kMirror));
  }
  nic.remove(plain);
}

TEST_F(MemoryOnDemand, WhatHasMigratedStays) {
  map(0, kLength);
  Nic::Mr plain, on_demand;
  ASSERT_TRUE(nic.add(va() + kLength / 4, kLength / 4, plain)) << nic.error;
  ASSERT_TRUE(nic.add_on_demand(va(), kLength, on_demand)) << nic.error;
  EXPECT_TRUE(all_of_kind(on_demand, RegionKind::kMemFd));
  ASSERT_TRUE(nic.write(on_demand, kLength / 4, {std::byte{5}}));
  EXPECT_EQ(std::byte{5}, nic.read(plain, 0, 1)[0]);
  const uint64_t migrated = migrates() ? kLength / 4 : 0;
  EXPECT_EQ(migrated, registrar().counters().in_mirror_bytes);
  nic.remove(plain);
  // A transfer could meet its way home.
  EXPECT_EQ(migrated, registrar().counters().in_mirror_bytes);
  expect_right_bytes(on_demand);
  nic.remove(on_demand);
  EXPECT_EQ(0u, registrar().counters().in_mirror_bytes);
  EXPECT_EQ(std::byte{5}, at_[kLength / 4]);
}

TEST_F(MemoryOnDemand, MigratedMemoryIsReplaced) {
  map(0, kLength);
  at_[0] = std::byte{1};
  Nic::Mr plain, on_demand;
  ASSERT_TRUE(nic.add(va(), kLength, plain)) << nic.error;
  ASSERT_TRUE(nic.add_on_demand(va(), kLength, on_demand)) << nic.error;
  ASSERT_EQ(0, munmap(at_, kLength));
  map(0, kLength);
  EXPECT_EQ(std::byte{0}, nic.read(on_demand, 0, 1)[0]);
  expect_right_bytes(on_demand);
  nic.remove(plain);
  expect_right_bytes(on_demand);
  nic.remove(on_demand);
}

TEST_F(MemoryOnDemand, ReadOnlyMemoryForReadingOnly) {
  map(0, kLength / 2, PROT_READ);  // the rest stays PROT_NONE
  Nic::Mr mr;
  EXPECT_FALSE(nic.add_on_demand(va(), kLength, mr));
  EXPECT_EQ(EFAULT, nic.error_number);
  EXPECT_NE(std::string::npos, nic.error.find("not writable")) << nic.error;
  EXPECT_FALSE(nic.add_on_demand(va(), 0, mr));
  EXPECT_EQ(EINVAL, nic.error_number);
  EXPECT_FALSE(nic.add_on_demand(va(), UINT64_MAX - kPage, mr));
  EXPECT_EQ(EINVAL, nic.error_number);
  ASSERT_TRUE(nic.add_on_demand(va(), kLength, mr, /*need_write=*/false)) << nic.error;
  EXPECT_EQ(std::byte{0}, nic.read(mr, 5, 1)[0]);
  nic.remove(mr);
}

TEST_F(MemoryOnDemand, PrefetchMakesPagesPresent) {
  map(0, kLength);
  const auto present = [&](uint64_t offset) {
    unsigned char page = 0;
    EXPECT_EQ(0, mincore(at_ + offset, kPage, &page));
    return (page & 1) != 0;
  };
  ASSERT_FALSE(present(kPage));
  ASSERT_EQ(0, memory::prefetch(va() + kPage + 1, kPage, /*for_writing=*/true));
  if (!present(kPage)) GTEST_SKIP() << "MADV_POPULATE_WRITE needs Linux 5.14";
  EXPECT_TRUE(present(2 * kPage));
  EXPECT_FALSE(present(0));
  EXPECT_FALSE(present(3 * kPage));
  EXPECT_EQ(0, memory::prefetch(va() + 3 * kPage, 1, /*for_writing=*/false));
  ASSERT_EQ(0, mprotect(at_, kPage, PROT_READ));
  EXPECT_EQ(0, memory::prefetch(va(), kPage, /*for_writing=*/false));
  EXPECT_EQ(EFAULT, memory::prefetch(va(), kPage, /*for_writing=*/true));
  ASSERT_EQ(0, mprotect(at_, kPage, PROT_NONE));
  EXPECT_EQ(EFAULT, memory::prefetch(va(), kPage, /*for_writing=*/false));
  ASSERT_EQ(0, munmap(at_ + kPage, kPage));
  EXPECT_EQ(EFAULT, memory::prefetch(va() + kPage, 2 * kPage, /*for_writing=*/false));
  EXPECT_EQ(EFAULT, memory::prefetch(va() + kPage, kPage, /*for_writing=*/true));
}

}  // namespace
}  // namespace hostnic::memory_testing
