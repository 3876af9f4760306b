// SPDX-License-Identifier: BSD-3-Clause
// Fork: the child gets the bytes as they were, the parent's registration is none the worse.
#include <poll.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/syscall.h>

#include <thread>

#include "tests/unit/memory/testing.h"

extern char** environ;

namespace hostnic::memory_testing {
namespace {

// Registers and deregisters memory of its own until its end.
class RegisteringThread {
 public:
  RegisteringThread() = default;
  void end() {
    stop_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_{[this] {
    Buffer buffer(kMiB);
    while (!stop_) {
      auto added = memory::MemoryRegistrar::process().add(buffer.va(), buffer.size(), true);
      if (added)
        memory::MemoryRegistrar::process().remove(buffer.va(), buffer.size(), added->number);
    }
  }};
};

using MemoryFork = MemoryTest;

TEST_F(MemoryFork, ChildHasItsOwnCopy) {
  Buffer buffer(2 * kMiB);
  buffer.fill(5);
  Nic::Mr mr;
  ASSERT_TRUE(nic.add(buffer.va(), buffer.size(), mr)) << nic.error;
  const std::vector<std::byte> before(buffer.data(), buffer.data() + buffer.size());
  in_child([&] {
    EXPECT_EQ(0, std::memcmp(before.data(), buffer.data(), buffer.size()));
    std::memset(buffer.data(), 1, buffer.size());
    EXPECT_LT(registrar().mirror_fd(), 0) << "the parent's descriptors are closed";
    EXPECT_LT(registrar().mem_fd(), 0);
  });
  EXPECT_EQ(0, std::memcmp(before.data(), buffer.data(), buffer.size()));
  expect_right_bytes(mr);
  // The parent's writes after the fork are not the child's.
  nic.remove(mr);
}

TEST_F(MemoryFork, ChildRegistersAnew) {
  Buffer buffer(kMiB);
  buffer.fill(6);
  Nic::Mr mr;
  ASSERT_TRUE(nic.add(buffer.va(), buffer.size(), mr)) << nic.error;
  in_child([&] {
    struct Body : MemoryTest {
      void TestBody() override {}
      void run(const Buffer& memory) {
        Nic::Mr own;
        ASSERT_TRUE(nic.add(memory.va(), memory.size(), own)) << nic.error;
        EXPECT_EQ(Buffer::pattern(6, 123456), nic.read(own, 123456, 1)[0]);
        expect_right_bytes(own);
        nic.remove(own);
      }
    } body;
    body.run(buffer);
  });
  EXPECT_EQ(Buffer::pattern(6, 0), buffer.data()[0]);
  expect_right_bytes(mr);
  nic.remove(mr);
}

TEST_F(MemoryFork, ManyForksWhileOthersWork) {
  Buffer buffer(kMiB);
  Nic::Mr mr;
  ASSERT_TRUE(nic.add(buffer.va(), buffer.size(), mr)) << nic.error;
  RegisteringThread others;
  for (int round = 0; round < 40; round++) {
    std::memset(buffer.data(), round, buffer.size());
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(kHangsSeconds);
      bool right = true;
      for (size_t i = 0; i < buffer.size(); i++)
        right &= buffer.data()[i] == static_cast<std::byte>(round);
      _exit(right ? 0 : 1);
    }
    std::memset(buffer.data(), 255, buffer.size());  // the child has copied by now
    int status = -1;
    ASSERT_EQ(child, waitpid(child, &status, 0));
    EXPECT_EQ(0, status) << "round " << round;
  }
  others.end();
  expect_right_bytes(mr);
  nic.remove(mr);
}

TEST_F(MemoryFork, RawForkLeavesTheParentIntact) {
  Buffer buffer(kMiB);
  buffer.fill(8);
  Nic::Mr mr;
  ASSERT_TRUE(nic.add(buffer.va(), buffer.size(), mr)) << nic.error;
  const auto child =
      static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr));
  if (child == 0) {
    signal(SIGSEGV, SIG_DFL);
    *reinterpret_cast<volatile char*>(buffer.data() + kPage) = 1;
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(child, waitpid(child, &status, 0));
  if (migrates()) {
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV) << status;
  }
  EXPECT_EQ(Buffer::pattern(8, kPage), buffer.data()[kPage]);
  expect_right_bytes(mr);
  nic.remove(mr);
}

// Its calls are of its own memory, and don't wait for locks that another thread had as it was made.
TEST_F(MemoryFork, RawForksChildrenUnmapAndForkWhileOthersWork) {
  Buffer buffer(kMiB);
  buffer.fill(9);
  Nic::Mr mr;
  ASSERT_TRUE(nic.add(buffer.va(), buffer.size(), mr)) << nic.error;
  RegisteringThread others;
  const auto bare_fork = [] {
    return static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr));
  };
  const bool is_elsewhere = migrates();  // then it is not in the child
  constexpr int kChildMs = 20'000;
  int hung = 0, wrong = 0;
  for (int round = 0; round < 100 && hung + wrong < 3; round++) {
    const pid_t child = bare_fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const bool advised = madvise(buffer.data() + kPage, kPage, MADV_DONTNEED) == 0;
      const bool unmapped = munmap(buffer.data(), buffer.size()) == 0;
      const pid_t grandchild = memory::MemoryRegistrar::fork_without_handlers(bare_fork);
      if (grandchild == 0) _exit(0);
      int status = -1;
      const bool reaped = waitpid(grandchild, &status, 0) == grandchild && status == 0;
      _exit(unmapped && reaped && (advised || is_elsewhere) ? 0 : 1);
    }
    // Not by an alarm, which waits as long as the child waits for a lock.
    const int watched = static_cast<int>(syscall(SYS_pidfd_open, child, 0));
    ASSERT_GE(watched, 0);
    pollfd ended{watched, POLLIN, 0};
    if (poll(&ended, 1, kChildMs) == 0) kill(child, SIGKILL);
    close(watched);
    int status = -1;
    ASSERT_EQ(child, waitpid(child, &status, 0));
    const bool timed_out = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    hung += timed_out ? 1 : 0;
    wrong += status == 0 || timed_out ? 0 : 1;
  }
  others.end();
  EXPECT_EQ(hung, 0);
  EXPECT_EQ(wrong, 0);
  expect_right_bytes(mr);
  nic.remove(mr);
}

TEST_F(MemoryFork, ForkWithoutHandlersHasItsCopy) {
  Buffer buffer(kMiB);
  buffer.fill(4);
  Nic::Mr mr;
  ASSERT_TRUE(nic.add(buffer.va(), kMiB, mr)) << nic.error;
  const pid_t child = memory::MemoryRegistrar::fork_without_handlers([] {
    return static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr));
  });
  if (child == 0) {
    bool right = true;
    for (size_t i = 0; i < kMiB; i++) right &= buffer.data()[i] == Buffer::pattern(4, i);
    buffer.data()[0] = std::byte{99};
    _exit(right ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(child, waitpid(child, &status, 0));
  EXPECT_EQ(status, 0);
  EXPECT_EQ(buffer.data()[0], Buffer::pattern(4, 0));
  expect_right_bytes(mr);
  nic.remove(mr);
}

// In a child, which has forgotten what other tests have left in the mirror.
TEST_F(MemoryFork, ForkWithoutHandlersForgetsTheParentWhereNothingIsRegistered) {
  in_child([] {
    registrar().open_own_memory();
    ASSERT_GE(registrar().mem_fd(), 0);
    const pid_t child = memory::MemoryRegistrar::fork_without_handlers([] {
      return static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr));
    });
    if (child == 0) _exit(registrar().mem_fd() < 0 && !memory::OwnProcess::is_bare_child() ? 0 : 1);
    int status = -1;
    ASSERT_EQ(child, waitpid(child, &status, 0));
    EXPECT_EQ(status, 0);
  });
}

TEST_F(MemoryFork, SpawnAndSystemWork) {
  Buffer buffer(kMiB);
  Nic::Mr mr;
  ASSERT_TRUE(nic.add(buffer.va(), buffer.size(), mr)) << nic.error;
  EXPECT_EQ(0, std::system("true"));
  pid_t child = 0;
  char name[] = "/bin/true";
  char* arguments[] = {name, nullptr};
  ASSERT_EQ(0, posix_spawn(&child, name, nullptr, nullptr, arguments, environ));
  int status = -1;
  ASSERT_EQ(child, waitpid(child, &status, 0));
  EXPECT_EQ(0, status);
  expect_right_bytes(mr);
  nic.remove(mr);
}

// Last of this file, in a child because it can't be undone.
TEST_F(MemoryFork, AfterForkInitTheChildHasNoCopy) {
  in_child([] {
    struct Body : MemoryTest {
      void TestBody() override {}
      void run() {
        registrar().set_fork_init();
        Buffer buffer(kMiB);
        buffer.fill(9);
        Nic::Mr mr;
        ASSERT_TRUE(nic.add(buffer.va(), buffer.size(), mr)) << nic.error;
        const bool migrated = all_of_kind(mr, RegionKind::kMirror);
        const pid_t child = fork();
        if (child == 0) {
          unsigned char resident = 0;
          const bool mapped = mincore(buffer.data(), kPage, &resident) == 0;
          _exit(mapped ? 1 : 0);
        }
        int status = -1;
        waitpid(child, &status, 0);
        EXPECT_EQ(migrated ? 0 : 1, WEXITSTATUS(status));
        EXPECT_EQ(Buffer::pattern(9, 77), buffer.data()[77]);
        nic.remove(mr);
      }
    } body;
    body.run();
  });
}

// Migrated memory that went without an interposed call, and whose place has other memory since.
TEST_F(MemoryFork, WhatIsGoneStaysGone) {
  Buffer buffer(kMiB);
  buffer.fill(1);
  Nic::Mr mr;
  ASSERT_TRUE(nic.add(buffer.va(), kMiB, mr)) << nic.error;
  ASSERT_EQ(0, memory::raw_munmap(buffer.data(), kMiB / 2));
  ASSERT_EQ(buffer.data(), memory::raw_mmap(buffer.data(), kMiB / 4, PROT_READ | PROT_WRITE,
                                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
  buffer.data()[5] = std::byte{55};
  in_child([&] {
    EXPECT_EQ(std::byte{55}, buffer.data()[5]);
    EXPECT_EQ(Buffer::pattern(1, 700'000), buffer.data()[700'000]);
    unsigned char there = 0;
    EXPECT_EQ(-1, mincore(buffer.data() + kMiB / 4, kPage, &there)) << "came to life again";
  });
  EXPECT_EQ(std::byte{55}, buffer.data()[5]);
  nic.remove(mr);
  EXPECT_EQ(std::byte{55}, buffer.data()[5]);
}

}  // namespace
}  // namespace hostnic::memory_testing
