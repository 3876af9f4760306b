// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/abi/event_queue.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <thread>
#include <vector>

namespace hostnic::abi {
namespace {

bool readable(int fd) {
  pollfd wanted{fd, POLLIN, 0};
  return poll(&wanted, 1, 0) == 1;
}

class AbiEventQueue : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(queue_.open(), 0); }
  void set_nonblocking() { fcntl(queue_.fd(), F_SETFL, fcntl(queue_.fd(), F_GETFL) | O_NONBLOCK); }
  // As the verbs do; EIO once the queue is closed and empty.
  int pop(uint64_t& record) {
    for (;;) {
      if (const int error = EventQueue::wait(queue_.fd())) return error;
      const EventQueue::Taken taken = queue_.take(record);
      if (taken != EventQueue::Taken::kNothing)
        return taken == EventQueue::Taken::kRecord ? 0 : EIO;
    }
  }
  EventQueue queue_;
};

TEST_F(AbiEventQueue, IsReadableWhileSomethingWaits) {
  EXPECT_FALSE(readable(queue_.fd()));
  queue_.push(7);
  queue_.push(8);
  EXPECT_TRUE(readable(queue_.fd()));
  uint64_t record = 0;
  EXPECT_EQ(pop(record), 0);
  EXPECT_EQ(record, 7u);
  EXPECT_TRUE(readable(queue_.fd()));
  EXPECT_EQ(pop(record), 0);
  EXPECT_EQ(record, 8u);
  EXPECT_FALSE(readable(queue_.fd()));
}

TEST_F(AbiEventQueue, HonoursNonblocking) {
  set_nonblocking();
  uint64_t record = 0;
  EXPECT_EQ(pop(record), EAGAIN);
}

TEST_F(AbiEventQueue, PopWaits) {
  std::thread producer([this] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    queue_.push(3);
  });
  uint64_t record = 0;
  EXPECT_EQ(pop(record), 0);
  EXPECT_EQ(record, 3u);
  producer.join();
}

// More than any buffer of the kernel's holds: nobody reads yet, and nobody may block or lose.
TEST_F(AbiEventQueue, KeepsAnyNumber) {
  constexpr uint64_t kCount = 20'000;
  for (uint64_t i = 0; i < kCount; ++i) queue_.push(i);
  set_nonblocking();
  for (uint64_t i = 0; i < kCount; ++i) {
    uint64_t record = 0;
    ASSERT_EQ(pop(record), 0) << "lost after " << i;
    ASSERT_EQ(record, i);
  }
  EXPECT_FALSE(readable(queue_.fd()));
}

TEST_F(AbiEventQueue, RemovesAndKeepsOthersInOrder) {
  constexpr uint64_t kCount = 5'000;
  for (uint64_t i = 0; i < kCount; ++i) queue_.push(i);
  queue_.remove_if([](uint64_t record) { return record % 2 == 0; });
  set_nonblocking();
  for (uint64_t i = 1; i < kCount; i += 2) {
    uint64_t record = 0;
    ASSERT_EQ(pop(record), 0);
    ASSERT_EQ(record, i);
  }
  uint64_t record = 0;
  EXPECT_EQ(pop(record), EAGAIN);
}

// Programs have thousands of channels.
TEST_F(AbiEventQueue, TakesOneDescriptor) {
  const int before = dup(0);
  close(before);
  EventQueue other;
  ASSERT_EQ(other.open(), 0);
  const int after = dup(0);
  close(after);
  EXPECT_EQ(after, before + 1);
}

// As many times readable as there are events left, also when one is removed while somebody waits.
TEST_F(AbiEventQueue, IsNotReadableForWhatWasRemoved) {
  queue_.push(1);
  queue_.push(2);
  queue_.remove_if([](uint64_t record) { return record == 1; });
  uint64_t record = 0;
  EXPECT_EQ(pop(record), 0);
  EXPECT_EQ(record, 2u);
  EXPECT_FALSE(readable(queue_.fd()));
  queue_.push(3);
  queue_.remove_if([](uint64_t) { return true; });
  EXPECT_FALSE(readable(queue_.fd()));
}

TEST_F(AbiEventQueue, ClosedGivesWhatThereIsAndThenErrors) {
  queue_.push(1);
  queue_.push(2);
  queue_.close();
  queue_.close();
  queue_.remove_if([](uint64_t record) { return record == 1; });
  uint64_t record = 0;
  EXPECT_EQ(pop(record), 0);
  EXPECT_EQ(record, 2u);
  for (int again = 0; again < 3; ++again) {
    EXPECT_TRUE(readable(queue_.fd()));
    EXPECT_EQ(pop(record), EIO);
  }
  queue_.push(3);
  EXPECT_EQ(pop(record), 0) << "what a CQ that is armed later finds";
  EXPECT_EQ(pop(record), EIO);
}

TEST_F(AbiEventQueue, ClosingWakesAllWhoWait) {
  std::vector<std::thread> waiting;
  for (int i = 0; i < 4; ++i)
    waiting.emplace_back([this] {
      uint64_t record = 0;
      EXPECT_EQ(pop(record), EIO);
    });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  queue_.close();
  for (std::thread& thread : waiting) thread.join();
}

TEST_F(AbiEventQueue, PushesPopsAndRemovalsAtOnce) {
  constexpr uint64_t kCount = 20'001, kLast = kCount + 1;
  std::atomic<bool> done{false};
  std::thread remover([&] {
    while (!done) {
      queue_.remove_if([](uint64_t record) { return record % 3 == 0; });
      // Nobody else gets the lock otherwise.
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  });
  std::thread producer([&] {
    for (uint64_t i = 1; i <= kCount; ++i) queue_.push(i);
    queue_.push(kLast);
  });
  uint64_t record = 0, previous = 0, wanted = 0;
  while (record != kLast) {
    ASSERT_EQ(pop(record), 0);
    EXPECT_GT(record, previous);
    previous = record;
    if (record % 3 != 0) ++wanted;
  }
  producer.join();
  done = true;
  remover.join();
  EXPECT_EQ(wanted, kLast - kLast / 3);
  queue_.remove_if([](uint64_t) { return true; });
  EXPECT_FALSE(readable(queue_.fd()));
}

}  // namespace
}  // namespace hostnic::abi
