// SPDX-License-Identifier: BSD-3-Clause
// The first verbs calls of a process, by several threads at the same time. Each round is a forked
// child, for which everything is the first.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <barrier>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "tests/conformance/bench.h"

namespace hostnic::conformance {
namespace {

constexpr int kThreads = 8, kRounds = 10;
constexpr size_t kBytes = 1 << 20;

struct Opened {
  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_mr* mr = nullptr;
  std::byte* memory = nullptr;
};

// 0, or the number of the step that failed.
int open_first(const char* device, Opened& opened) {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  if (list == nullptr || count < 2) return 1;
  for (int i = 0; i < count; ++i) {
    if (strcmp(ibv_get_device_name(list[i]), device) == 0)
      opened.context = ibv_open_device(list[i]);
  }
  ibv_free_device_list(list);
  if (opened.context == nullptr) return 2;
  opened.pd = ibv_alloc_pd(opened.context);
  if (opened.pd == nullptr) return 3;
  void* mapped = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return 4;
  opened.memory = static_cast<std::byte*>(mapped);
  memset(opened.memory, 7, kBytes);
  opened.mr = ibv_reg_mr(opened.pd, opened.memory, kBytes, kAllAccess);
  return opened.mr != nullptr ? 0 : 5;
}

int close_again(const Opened& opened) {
  if (ibv_dereg_mr(opened.mr) != 0) return 11;
  if (opened.memory[kBytes / 2] != std::byte{7}) return 12;
  munmap(opened.memory, kBytes);
  if (ibv_dealloc_pd(opened.pd) != 0) return 13;
  return ibv_close_device(opened.context) == 0 ? 0 : 14;
}

// Both devices by turns. 0, or what failed.
int open_in_threads() {
  std::barrier start(kThreads);
  std::atomic<int> failed{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      for (int again = 0; again < 3; ++again) {
        Opened opened;
        start.arrive_and_wait();
        int step = open_first(i % 2 == 0 ? "hnic0" : "hnic1", opened);
        start.arrive_and_wait();  // while all are open
        if (step == 0) step = close_again(opened);
        if (step != 0) failed.store(step);
      }
    });
  }
  for (std::thread& one : threads) one.join();
  return failed.load();
}

int status_of_child(int (*work)()) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    _exit(work());
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST(FirstUse, ThreadsOpenAtTheSameTime) {
  for (int round = 0; round < kRounds; ++round) ASSERT_EQ(status_of_child(open_in_threads), 0);
}

// A fork while another thread is in its first calls must not leave the child with a lock that
// nobody holds.
TEST(FirstUse, AForkCatchesNoLock) {
  const auto forks_early = [] {
    std::thread other([] {
      Opened opened;
      for (int i = 0; i < 30; ++i) {
        int count = 0;
        ibv_free_device_list(ibv_get_device_list(&count));
      }
    });
    int failed = 0;
    for (int i = 0; i < 30 && failed == 0; ++i) {
      failed = status_of_child([] {
        int count = 0;
        ibv_device** list = ibv_get_device_list(&count);
        if (count < 2) return 1;
        ibv_context* context = ibv_open_device(list[0]);
        return context != nullptr && ibv_close_device(context) == 0 ? 0 : 2;
      });
    }
    other.join();
    return failed == 0 ? 0 : 20;
  };
  for (int round = 0; round < 3; ++round) ASSERT_EQ(status_of_child(forks_early), 0);
}

}  // namespace
}  // namespace hostnic::conformance
