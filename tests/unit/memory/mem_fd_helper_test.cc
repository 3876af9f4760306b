// SPDX-License-Identifier: BSD-3-Clause
// Transfers that may block, on a thread of their own. What blocks here is the gate of a test's own:
// the helper waits for nothing but the memory, and a transfer of memory that is there is done soon.
#include "dataplane/memory/mem_fd_helper.h"

#include <fcntl.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "dataplane/memory/blocking_memory.h"
#include "tests/unit/memory/testing.h"

namespace hostnic::memory_testing {
namespace {

class MemFdHelperTest : public ::testing::Test {
 protected:
  void SetUp() override {
    mem_fd_ = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
    ASSERT_GE(mem_fd_, 0);
    helper_ = MemFdHelper::create(mem_fd_);
    ASSERT_NE(nullptr, helper_);
  }
  void TearDown() override { close(mem_fd_); }
  MemFdHelper::Target target(const void* at, uint32_t psn = 1) {
    const auto va = reinterpret_cast<uint64_t>(at);
    return {{&user_, psn}, va, va, &references_, nullptr};
  }
  // Asks until there is an answer, as packets that come again do.
  static MemFdResult repeat(const std::function<std::optional<MemFdResult>()>& ask) {
    for (;;) {
      if (const auto result = ask()) return *result;
      std::this_thread::yield();
    }
  }

  int mem_fd_ = -1;
  char user_ = 0;
  std::atomic<uint32_t> references_{0};
  std::unique_ptr<MemFdHelper> helper_;
};

TEST_F(MemFdHelperTest, BytesGoBothWays) {
  Buffer buffer(4 * kPage);
  buffer.fill(3);
  std::vector<std::byte> bytes(kPage);
  EXPECT_EQ(MemFdResult::kOk,
            repeat([&] { return helper_->read(target(buffer.data() + 10), bytes); }));
  EXPECT_EQ(0, std::memcmp(bytes.data(), buffer.data() + 10, kPage));
  std::ranges::fill(bytes, std::byte{9});
  EXPECT_EQ(MemFdResult::kOk,
            repeat([&] { return helper_->write(target(buffer.data() + kPage), bytes); }));
  EXPECT_EQ(0, std::memcmp(bytes.data(), buffer.data() + kPage, kPage));
  EXPECT_EQ(MemFdResult::kFault,
            repeat([&] { return helper_->read(target(reinterpret_cast<void*>(16)), bytes); }));
  EXPECT_EQ(MemFdResult::kOk,
            repeat([&] { return helper_->probe(target(buffer.data()), 4 * kPage); }));
  EXPECT_EQ(0u, references_.load());
}

TEST_F(MemFdHelperTest, AWordIsChangedOnce) {
  alignas(8) uint64_t word = 5;
  uint64_t before = 0;
  EXPECT_EQ(MemFdResult::kOk, repeat([&] {
              return helper_->change_word(target(&word), {false, 3, 0}, before);
            }));
  EXPECT_EQ(5u, before);
  EXPECT_EQ(8u, word);
  EXPECT_EQ(MemFdResult::kOk, repeat([&] {
              return helper_->change_word(target(&word, 2), {true, 1, 8}, before);
            }));
  EXPECT_EQ(8u, before);
  EXPECT_EQ(1u, word);
}

// A packet that was put off is written again if another one has written there meanwhile.
TEST_F(MemFdHelperTest, WhatWasOverwrittenIsWrittenAgain) {
  Buffer buffer(kPage);
  buffer.fill(1);
  const std::vector<std::byte> later(64, std::byte{2}), earlier(32, std::byte{3});
  helper_->write(target(buffer.data(), 2), later);
  while (helper_->busy()) std::this_thread::yield();
  EXPECT_EQ(MemFdResult::kOk,
            repeat([&] { return helper_->write(target(buffer.data(), 1), earlier); }));
  EXPECT_EQ(std::byte{3}, buffer.data()[0]);
  EXPECT_EQ(MemFdResult::kOk,
            repeat([&] { return helper_->write(target(buffer.data(), 2), later); }));
  EXPECT_EQ(std::byte{2}, buffer.data()[0]);
}

// The gate is closed: nothing is transferred, and nothing waits.
TEST_F(MemFdHelperTest, NothingMovesWhileTheGateIsClosed) {
  Buffer buffer(kPage);
  buffer.fill(1);
  MemoryGate gate{};
  gate.closed = 1;
  std::vector<std::byte> bytes(8, std::byte{7});
  MemFdHelper::Target there = target(buffer.data());
  there.gate = &gate;
  const auto before = buffer.data()[0];
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(helper_->write(there, bytes));
  while (helper_->busy()) std::this_thread::yield();
  EXPECT_EQ(before, buffer.data()[0]);
  EXPECT_EQ(0u, gate.in_transfer.load());
  gate.closed = 0;
  EXPECT_EQ(MemFdResult::kOk, repeat([&] { return helper_->write(there, bytes); }));
}

// The memory moves between the question and the transfer: the old place is none of the region's.
TEST_F(MemFdHelperTest, WhatHasMovedMeanwhileIsPutOff) {
  Buffer buffer(kPage), much(64 * kMiB);
  buffer.fill(1);
  std::vector<std::byte> bytes(8);
  MemoryGate gate{};
  MemFdHelper::Target there = target(buffer.data());
  there.gate = &gate;
  // Its thread looks at many pages before.
  for (uint32_t psn = 100; psn < 104; ++psn) helper_->probe(target(much.data(), psn), much.size());
  EXPECT_FALSE(helper_->read(there, bytes));
  helper_->note_change();
  while (helper_->busy()) std::this_thread::yield();
  EXPECT_FALSE(helper_->read(there, bytes)) << "it was read at the old place";
  EXPECT_EQ(MemoryGate::kHelper, gate.wanted.load())
      << "whoever changes mappings has to let it through";
  EXPECT_EQ(MemFdResult::kOk, repeat([&] { return helper_->read(there, bytes); }));
  EXPECT_EQ(0, std::memcmp(bytes.data(), buffer.data(), 8));
}

// Results of a user that is gone are nobody's; others still get theirs.
TEST_F(MemFdHelperTest, WhoIsForgottenIsNotAnswered) {
  Buffer buffer(kPage);
  buffer.fill(1);
  std::vector<std::byte> bytes(8);
  for (uint32_t psn = 0; psn < 100; ++psn) {
    helper_->read(target(buffer.data(), psn), bytes);
    helper_->forget(&user_, &user_ + 1);
  }
  while (helper_->busy()) std::this_thread::yield();
  EXPECT_FALSE(helper_->busy_for(&user_, &user_ + 1));
  EXPECT_EQ(0u, references_.load());
  EXPECT_EQ(MemFdResult::kOk, repeat([&] { return helper_->read(target(buffer.data()), bytes); }));
}

TEST(BlockingMemory, FilesOfDisksMayBlock) {
  const auto piece = [](const void* at, size_t length) {
    MappedPiece made;
    made.va = reinterpret_cast<uint64_t>(at);
    made.length_bytes = length;
    return made;
  };
  Buffer anonymous(4 * kPage);
  anonymous.fill(1);
  EXPECT_FALSE(may_block(getpid(), std::vector{piece(anonymous.data(), 4 * kPage)}));
  const int shared = memfd_create("shared", MFD_CLOEXEC);
  ASSERT_EQ(0, ftruncate(shared, kPage));
  void* memory = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, shared, 0);
  EXPECT_FALSE(may_block(getpid(), std::vector{piece(memory, kPage)}));
  const int program = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  void* file = mmap(nullptr, kPage, PROT_READ, MAP_PRIVATE, program, 0);
  EXPECT_TRUE(may_block(getpid(), std::vector{piece(file, kPage)}));
  MappedPiece mapped = piece(file, kPage);
  mapped.host = static_cast<std::byte*>(file);
  EXPECT_FALSE(may_block(getpid(), std::vector{mapped})) << "not reached through the mem fd";
  EXPECT_TRUE(may_block(0, std::vector{piece(anonymous.data(), kPage)})) << "no such process";
  munmap(memory, kPage);
  munmap(file, kPage);
  close(shared);
  close(program);
}

}  // namespace
}  // namespace hostnic::memory_testing
