// SPDX-License-Identifier: BSD-3-Clause
// A client's segment, out of which the client takes pages.
#include "dataplane/nic/client/client_channel.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <set>
#include <vector>

#include "dataplane/memory/hole_guard.h"
#include "dataplane/memory/sigbus.h"
#include "dataplane/nic/client/user_counts.h"

namespace hostnic {
namespace {

constexpr uint64_t kArenaBytes = uint64_t{3} << 30;

// Runs in a child, because the handler of SIGBUS is the process's.
template <class Function>
void in_child(Function function) {
  const pid_t child = fork();
  if (child == 0) {
    const bool installed = install_sigbus_guard();
    function();
    _exit(installed && !testing::Test::HasFailure() ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

std::unique_ptr<ClientChannel> channel_of(bool is_strangers, SegmentPages pages) {
  ClientChannel::Settings settings;
  settings.max_qps = 16;
  settings.arena_bytes = kArenaBytes;
  settings.is_strangers = is_strangers;
  settings.pages = pages;
  auto channel = ClientChannel::create(settings);
  EXPECT_TRUE(channel) << channel.error();
  return channel ? std::move(*channel) : nullptr;
}

bool punch(int fd) {
  struct stat file {};
  return fstat(fd, &file) == 0 &&
         fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, file.st_size) == 0;
}

uint64_t blocks_of(int fd) {
  struct stat file {};
  return fstat(fd, &file) == 0 ? static_cast<uint64_t>(file.st_blocks) : UINT64_MAX;
}

TEST(ClientChannel, AStrangersHolesGetNoPages) {
  // A userfaultfd is the process's that opened it: nobody asks before the child does.
  in_child([] {
    if (!can_guard_holes()) GTEST_SKIP() << "no userfaultfd here";
    for (const uint64_t at : {uint64_t{0}, uint64_t{64} << 20, uint64_t{2} << 30}) {
      auto channel = channel_of(true, SegmentPages::kOrdinary);
      ASSERT_NE(channel, nullptr);
      EXPECT_EQ(channel->header().magic, kSegmentMagic);
      ASSERT_TRUE(punch(channel->segment_fd()) && punch(channel->arena_fd()));
      if (at == 0) {
        channel->header().device_fatal.store(1);
      } else {
        std::byte* const part = channel->arena_at(channel->memory().segment_bytes() + at, 64);
        ASSERT_NE(part, nullptr);
        *part = std::byte{1};
      }
      EXPECT_TRUE(channel->memory_taken.load());
      EXPECT_EQ(blocks_of(channel->segment_fd()), 0u);
      EXPECT_EQ(blocks_of(channel->arena_fd()), 0u);
    }
  });
}

// Where the huge pages that a client has given back are somebody else's by now.
TEST(ClientChannel, SurvivesHugePagesThatAreGone) {
  ClientChannel::Settings settings;
  settings.max_qps = 16;
  settings.arena_bytes = kArenaBytes;
  settings.pages = SegmentPages::kHuge;
  if (!ClientChannel::create(settings)) GTEST_SKIP() << "no huge pages are free";
  in_child([] {
    auto channel = channel_of(false, SegmentPages::kHuge);
    ASSERT_NE(channel, nullptr);
    ASSERT_TRUE(punch(channel->segment_fd()));
    // All that are left.
    std::vector<void*> taken;
    for (;;) {
      void* at = mmap(nullptr, kHugePageBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_POPULATE, -1, 0);
      if (at == MAP_FAILED) break;
      taken.push_back(at);
    }
    channel->header().device_fatal.store(1);
    EXPECT_TRUE(channel->memory_taken.load());
  });
}

// Each queue may lie alone in 2 MiB of the arena, of which hostnicd then has a page table.
TEST(ClientChannel, PageTablesOfTheArenaAreCountedForTheirUser) {
  constexpr uint64_t kSpan = PageTables::kSpanBytes;
  PageTableBudgets budgets(16);
  ClientChannel::Settings settings;
  settings.max_qps = 16;
  settings.arena_bytes = kArenaBytes;
  settings.is_strangers = true;
  settings.page_tables = budgets.of(1000);
  {
    auto channel = ClientChannel::create(settings);
    ASSERT_TRUE(channel) << channel.error();
    const uint64_t arena = (*channel)->memory().segment_bytes();
    const auto at = [&](uint64_t offset) { return (*channel)->arena_at(arena + offset, 64); };
    // A table for each 2 MiB, and one for each gigabyte of addresses.
    std::set<uintptr_t> spans, gigabytes;
    const auto use = [&](uint64_t offset) {
      const std::byte* const there = at(offset);
      if (there == nullptr) return false;
      spans.insert(reinterpret_cast<uintptr_t>(there) / kSpan);
      gigabytes.insert(reinterpret_cast<uintptr_t>(there) >> 30);
      return true;
    };
    for (const uint64_t offset : {uint64_t{0}, uint64_t{4096}, 2 * kSpan, uint64_t{2} << 30}) {
      EXPECT_TRUE(use(offset)) << offset;
      EXPECT_EQ(settings.page_tables->taken(), spans.size() + gigabytes.size()) << offset;
    }
    EXPECT_FALSE((*channel)->table_limit_met.load());
    uint64_t i = 4;
    while (i < 100 && use(i * kSpan)) ++i;
    EXPECT_LT(i, 100u);
    EXPECT_EQ(settings.page_tables->taken(), spans.size() + gigabytes.size());
    EXPECT_EQ((*channel)->arena_error(), ENOMEM);
    EXPECT_TRUE((*channel)->table_limit_met.load());
    EXPECT_EQ(at(8), nullptr);
    EXPECT_EQ((*channel)->arena_error(), EINVAL) << "not 16-byte aligned";
    EXPECT_NE(at(64), nullptr) << "what it has it keeps";
  }
  EXPECT_EQ(settings.page_tables->taken(), 0u);
}

TEST(UserCounts, UsersLeaveARestToTheOwner) {
  UserCounts counts(16);
  ClientChannel::Settings owner, one, other;
  owner.uid = 0;
  one.uid = 1000;
  other.uid = 1001;
  one.is_strangers = other.is_strangers = true;
  const auto take_all = [&](const ClientChannel::Settings& client, uint32_t of_user) {
    unsigned count = 0;
    while (count < 16 && counts.may_take(client, of_user)) {
      counts.take(client);
      ++count;
    }
    return count;
  };
  EXPECT_EQ(take_all(one, 8), 8u);
  EXPECT_EQ(take_all(other, 8), 6u);
  EXPECT_EQ(take_all(owner, UINT32_MAX), 16u) << "the table itself ends at 16";
  counts.give_back(one, 3);
  EXPECT_EQ(take_all(other, 8), 2u);
  EXPECT_EQ(take_all(one, 8), 1u);
}

}  // namespace
}  // namespace hostnic
