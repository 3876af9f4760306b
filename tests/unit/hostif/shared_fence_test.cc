// SPDX-License-Identifier: BSD-3-Clause
#include "protocol/hostif/shared_fence.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <thread>

namespace hostnic {
namespace {

// Not std::atomic: without optimisation its stores are all sequentially consistent.
struct alignas(64) Line {
  int word = 0;
  void store(int value) { __atomic_store_n(&word, value, __ATOMIC_RELAXED); }
  void publish(int value) { __atomic_store_n(&word, value, __ATOMIC_RELEASE); }
  int load() const { return __atomic_load_n(&word, __ATOMIC_ACQUIRE); }
};

// Has each processor serve another process: until then one that idled in our memory when we asked
// for fences may not hear of fence_processes() (shared_fence.h).
void leave_all_processors() {
  cpu_set_t all;
  ASSERT_EQ(sched_getaffinity(0, sizeof(all), &all), 0);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &all)) continue;
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      cpu_set_t one;
      CPU_ZERO(&one);
      CPU_SET(cpu, &one);
      sched_setaffinity(0, sizeof(one), &one);
      _exit(0);
    }
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
  }
}

// Two flags of Dekker's kind: the often side only stores and looks, the seldom one fences for both.
// At least one of them sees the other's flag. With a fence of the caller alone some hundred rounds
// fail.
void nobody_misses_the_other(bool (*fence)()) {
  if (!takes_shared_fences()) GTEST_SKIP() << "membarrier is not to be had";
  leave_all_processors();
  constexpr int kRounds = 50'000;
  Line often, seldom, often_done, seldom_done, seen_by_often;
  // Stores to lines that the other thread has written wait for them, and the next store behind.
  std::array<Line, 16> busy;
  int missed = 0, saw_often = 0, saw_seldom = 0, not_fenced = 0;
  std::thread thread([&] {
    for (int round = 1; round <= kRounds; ++round) {
      while (seldom_done.load() < round - 1) {
      }
      for (Line& line : busy) line.store(round);
      often.store(round);
      std::atomic_signal_fence(std::memory_order_seq_cst);
      seen_by_often.store(seldom.load());
      often_done.publish(round);
    }
  });
  for (int round = 1; round <= kRounds; ++round) {
    // Until the other one comes along: sooner and later.
    for (int i = 0; i < round % 500; ++i) std::atomic_signal_fence(std::memory_order_seq_cst);
    seldom.store(round);
    not_fenced += !fence();
    const bool sees = often.load() == round;
    while (often_done.load() < round) {
    }
    const bool seen = seen_by_often.load() == round;
    missed += !sees && !seen;
    saw_often += sees;
    saw_seldom += seen;
    for (Line& line : busy) line.store(-round);
    seldom_done.publish(round);
  }
  thread.join();
  EXPECT_EQ(not_fenced, 0);
  EXPECT_EQ(missed, 0) << saw_often << " and " << saw_seldom << " of " << kRounds << " seen";
}

TEST(SharedFence, WithinAProcess) { nobody_misses_the_other(fence_own_threads); }
TEST(SharedFence, OfAllProcesses) { nobody_misses_the_other(fence_processes); }

}  // namespace
}  // namespace hostnic
