// SPDX-License-Identifier: BSD-3-Clause
// MADV_DONTNEED of migrated pages, by the C library or by a bare system call: the program reads
// zeros afterwards, as from any private memory, and so does who has a key.
#include <sys/syscall.h>

#include <cstring>
#include <string_view>

#include "tests/unit/memory/testing.h"
#include "verbs-shim/memory/blocked_calls.h"
#include "verbs-shim/memory/raw_memory.h"

namespace hostnic::memory_testing {
namespace {

bool parse(std::string_view line, uint64_t& start, uint64_t& end) {
  memory::BlockedCall call;
  return memory::parse_blocked_call(line.data(), line.data() + line.size(), call) &&
         memory::is_discard(call, start, end);
}

TEST(BlockedCalls, DiscardsAreToldFromOtherCalls) {
  uint64_t start = 0, end = 0;
  EXPECT_TRUE(parse("28 0x7000 0x1801 0x4 0x0 0x0 0x0 0x7ffc 0x7f00\n", start, end));
  EXPECT_EQ(start, 0x7000u);
  EXPECT_EQ(end, 0x9000u);
  for (const char* other :
       {"running\n", "-1 0x7ffc 0x7f00\n", "28 0x7000 0x1000 0x8 0x0 0x0 0x0 0x0 0x0\n",
        "25 0x7000 0x1000 0x4 0x0 0x0 0x0 0x0 0x0\n", "28 0x7001 0x1000 0x4 0x0 0x0 0x0 0x0 0x0\n",
        "28 0x7000 0x0 0x4 0x0 0x0 0x0 0x0 0x0\n", "28 0xfffffffffffff000 0x2000 0x4 0x0\n",
        "28 0x7000", ""})
    EXPECT_FALSE(parse(other, start, end)) << other;
}

using Madvise = int (*)(void*, size_t, int);

class MemoryDiscards : public MemoryTest, public ::testing::WithParamInterface<Madvise> {
 protected:
  static size_t not_zero(const Buffer& buffer, size_t from, size_t to) {
    size_t count = 0;
    for (size_t i = from; i < to; i++) count += buffer.data()[i] != std::byte{0};
    return count;
  }
  static size_t changed(const Buffer& buffer, size_t from, size_t to) {
    size_t count = 0;
    for (size_t i = from; i < to; i++) count += buffer.data()[i] != Buffer::pattern(3, i);
    return count;
  }
};

TEST_P(MemoryDiscards, PagesAreZeros) {
  if (!migrates()) GTEST_SKIP() << registrar().status();
  constexpr size_t kFrom = 16 * kPage, kTo = 700 * kPage, kLength = 1024 * kPage;
  Buffer buffer(kLength);
  buffer.fill(3);
  Nic::Mr mr;
  ASSERT_TRUE(nic.add(buffer.va(), kLength, mr)) << nic.error;
  ASSERT_TRUE(all_of_kind(mr, RegionKind::kMirror));
  ASSERT_EQ(GetParam()(buffer.data() + kFrom, kTo - kFrom, MADV_DONTNEED), 0);
  EXPECT_EQ(not_zero(buffer, kFrom, kTo), 0u);
  EXPECT_EQ(changed(buffer, 0, kFrom), 0u);
  EXPECT_EQ(changed(buffer, kTo, kLength), 0u);
  EXPECT_EQ(nic.read(mr, kFrom + 5, 100), std::vector<std::byte>(100));
  EXPECT_GE(mirror_file_bytes(registrar().mirror_fd()), kLength)
      << "what a key leads to has its pages still";
  expect_right_bytes(mr);
  nic.remove(mr);
}

TEST_P(MemoryDiscards, TheKernelStopsAtLockedPages) {
  if (!migrates()) GTEST_SKIP() << registrar().status();
  constexpr size_t kLocked = 8 * kPage, kLength = 32 * kPage;
  Buffer buffer(kLength);
  buffer.fill(3);
  Nic::Mr mr;
  ASSERT_TRUE(nic.add(buffer.va(), kLength, mr)) << nic.error;
  // AddressSanitizer makes mlock do nothing.
  if (syscall(SYS_mlock, buffer.data() + kLocked, kPage) != 0) GTEST_SKIP() << std::strerror(errno);
  EXPECT_EQ(GetParam()(buffer.data(), kLength, MADV_DONTNEED), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(not_zero(buffer, 0, kLocked), 0u);
  EXPECT_EQ(changed(buffer, kLocked, kLength), 0u);
  syscall(SYS_munlock, buffer.data() + kLocked, kPage);
  nic.remove(mr);
}

// What is not locked is not locked by its migration, and can be discarded.
TEST_P(MemoryDiscards, MigratedPagesAreNotLocked) {
  if (!migrates()) GTEST_SKIP() << registrar().status();
  constexpr size_t kLength = 32 * kPage;
  Buffer buffer(kLength), large(kLarge);
  buffer.fill(3);
  if (mlockall(MCL_FUTURE | MCL_ONFAULT) != 0) GTEST_SKIP() << std::strerror(errno);
  Nic::Mr mr, large_mr;
  const bool added =
      nic.add(buffer.va(), kLength, mr) && nic.add(large.va(), large.size(), large_mr);
  const int discarded = GetParam()(buffer.data(), kLength, MADV_DONTNEED);
  const int large_discarded = GetParam()(large.data(), large.size(), MADV_DONTNEED);
  munlockall();
  ASSERT_TRUE(added) << nic.error;
  EXPECT_EQ(discarded, 0);
  EXPECT_EQ(large_discarded, 0);
  nic.remove(large_mr);
  nic.remove(mr);
}

INSTANTIATE_TEST_SUITE_P(By, MemoryDiscards, ::testing::Values(&madvise, &memory::raw_madvise),
                         [](const auto& by) { return by.index == 0 ? "libc" : "system_call"; });

}  // namespace
}  // namespace hostnic::memory_testing
