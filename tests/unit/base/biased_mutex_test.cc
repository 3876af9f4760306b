// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/base/biased_mutex.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace hostnic {
namespace {

void become_favourite(BiasedMutex& mutex) {
  for (uint32_t i = 0; i <= BiasedMutex::kTimesToFavour; ++i) std::lock_guard lock(mutex);
}

TEST(BiasedMutex, HeldByTheFavouriteItIsHeld) {
  BiasedMutex mutex;
  become_favourite(mutex);
  mutex.lock();
  bool got = true;
  std::thread([&] { got = mutex.try_lock(); }).join();
  EXPECT_FALSE(got);
  mutex.unlock();
  std::thread([&] {
    got = mutex.try_lock();
    if (got) mutex.unlock();
  }).join();
  EXPECT_TRUE(got);
}

// As from a signal handler.
TEST(BiasedMutex, TheFavouriteDoesNotGetItTwice) {
  BiasedMutex mutex;
  become_favourite(mutex);
  mutex.lock();
  EXPECT_FALSE(mutex.try_lock());
  mutex.unlock();
  EXPECT_TRUE(mutex.try_lock());
  mutex.unlock();
}

TEST(BiasedMutex, TheFavouriteWaitsForOthers) {
  BiasedMutex mutex;
  become_favourite(mutex);
  std::atomic<bool> held{false}, released{false};
  std::thread other([&] {
    mutex.lock();
    held = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    released = true;
    mutex.unlock();
  });
  while (!held) std::this_thread::yield();
  EXPECT_FALSE(mutex.try_lock());
  mutex.lock();
  EXPECT_TRUE(released);
  mutex.unlock();
  other.join();
}

// Others come while the favourite waits outside, is inside, and is on its way in or out. What the
// mutex guards is two words that agree whenever nobody is inside.
TEST(BiasedMutex, OneAtATime) {
  constexpr int kRounds = 1'500, kOthers = 2;
  BiasedMutex mutex;
  uint64_t first = 0, second = 0, disagreed = 0;
  const auto work = [&](int spins) {
    disagreed += first != second;
    first = first + 1;
    for (int i = 0; i < spins; ++i) std::atomic_signal_fence(std::memory_order_seq_cst);
    second = second + 1;
  };
  // Longer than a fence takes to interrupt the favourite: who is let in wrongly meets somebody.
  constexpr int kLong = 3'000;
  std::atomic<bool> stop{false};
  std::atomic<int> rounds{0};
  std::vector<std::thread> others;
  uint64_t taken[kOthers + 1] = {};
  for (int i = 0; i < kOthers; ++i) {
    others.emplace_back([&, i] {
      while (!stop) {
        if (i == 0 || mutex.try_lock()) {
          if (i == 0) mutex.lock();
          work(kLong);
          ++taken[i];
          mutex.unlock();
          ++rounds;
        }
        // Long enough for the favourite to become one again.
        for (int spin = 0; spin < 300'000 && !stop; ++spin)
          std::atomic_signal_fence(std::memory_order_seq_cst);
      }
    });
  }
  while (rounds < kRounds) {
    for (uint32_t i = 0; i < 10'000; ++i) {
      std::lock_guard lock(mutex);
      // Mostly at the door; inside for longer than it takes to come in, now and then.
      work(i % 16 == 0 ? 500 : 0);
    }
    taken[kOthers] += 10'000;
  }
  stop = true;
  for (std::thread& other : others) other.join();
  EXPECT_EQ(disagreed, 0u);
  EXPECT_EQ(first, taken[0] + taken[1] + taken[2]);
  EXPECT_EQ(second, first);
}

}  // namespace
}  // namespace hostnic
