// SPDX-License-Identifier: BSD-3-Clause
// MADV_DONTNEED of migrated pages, by the C library or by a bare system call: the program reads
// zeros afterwards, as from any private memory, and so does who has a key.
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <thread>

#include "tests/unit/memory/testing.h"
#include "verbs-shim/memory/blocked_calls.h"
#include "verbs-shim/memory/mapping_watch.h"
#include "verbs-shim/memory/raw_memory.h"
#include "verbs-shim/memory/revoker.h"
#include "verbs-shim/memory/settled_discard.h"

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

namespace hostnic::memory_testing {
namespace {

bool parse(std::string_view line, memory::Discard& discard) {
  memory::BlockedCall call;
  return memory::parse_blocked_call(line.data(), line.data() + line.size(), call) &&
         memory::find_discard(call, 0, discard);
}

TEST(BlockedCalls, DiscardsAreToldFromOtherCalls) {
  memory::Discard discard;
  EXPECT_TRUE(parse("28 0x7000 0x1801 0x4 0x0 0x0 0x0 0x7ffc 0x7f00\n", discard));
  EXPECT_EQ(discard.start, 0x7000u);
  EXPECT_EQ(discard.end, 0x9000u);
  EXPECT_FALSE(discard.of_locked);
  EXPECT_TRUE(parse("28 0x7000 0x1801 0x18 0x0 0x0 0x0 0x7ffc 0x7f00\n", discard));
  EXPECT_TRUE(discard.of_locked);
  for (const char* other :
       {"running\n", "-1 0x7ffc 0x7f00\n", "28 0x7000 0x1000 0x8 0x0 0x0 0x0 0x0 0x0\n",
        "25 0x7000 0x1000 0x4 0x0 0x0 0x0 0x0 0x0\n", "28 0x7001 0x1000 0x4 0x0 0x0 0x0 0x0 0x0\n",
        "28 0x7000 0x0 0x4 0x0 0x0 0x0 0x0 0x0\n", "28 0xfffffffffffff000 0x2000 0x4 0x0\n",
        "28 0x7000", ""})
    EXPECT_FALSE(parse(other, discard)) << other;
}

TEST(BlockedCalls, DiscardsOfListsAreFound) {
  const iovec list[] = {{reinterpret_cast<void*>(0x7000), 0x1000},
                        {reinterpret_cast<void*>(0x9000), 0x1801},
                        {reinterpret_cast<void*>(0xb001), 0x1000}};
  memory::BlockedCall call{SYS_process_madvise,
                           {7, reinterpret_cast<uint64_t>(list), 3, MADV_DONTNEED, 0, 0}};
  memory::Discard discard;
  ASSERT_TRUE(memory::find_discard(call, 1, discard));
  EXPECT_EQ(discard.start, 0x9000u);
  EXPECT_EQ(discard.end, 0xb000u);
  EXPECT_FALSE(memory::find_discard(call, 2, discard)) << "not of whole pages";
  EXPECT_FALSE(memory::find_discard(call, 3, discard)) << "behind the list";
  call.arguments[1] = 0x10;
  EXPECT_FALSE(memory::find_discard(call, 0, discard)) << "a list that is not mapped";
  call.arguments[1] = reinterpret_cast<uint64_t>(list);
  call.arguments[3] = MADV_COLD;
  EXPECT_FALSE(memory::find_discard(call, 0, discard));
}

// Another thread may write to the same pages, and discard them past the library.
TEST(SettledDiscards, OneCallOfOneThreadIsCovered) {
  memory::SettledDiscard settled;
  const memory::Discard discard{0x7000, 0x9000, false};
  const memory::BlockedCall call{SYS_madvise, {0x7000, 0x2000, MADV_DONTNEED}, 5};
  EXPECT_FALSE(settled.covers(call, discard, 1)) << "nothing is noted";
  ASSERT_TRUE(settled.note(5, discard, 1));
  EXPECT_TRUE(settled.covers(call, discard, 1));
  EXPECT_FALSE(settled.covers(call, discard, 2)) << "pages may have come since";
  memory::BlockedCall other = call;
  other.thread = 6;
  EXPECT_FALSE(settled.covers(other, discard, 1)) << "another thread";
  other = call;
  other.number = SYS_process_madvise;
  EXPECT_FALSE(settled.covers(other, discard, 1)) << "another call";
  for (const memory::Discard& each :
       {memory::Discard{0x6000, 0x9000, false}, memory::Discard{0x7000, 0xa000, false},
        memory::Discard{0x7000, 0x9000, true}})
    EXPECT_FALSE(settled.covers(call, each, 1)) << "another range";
  EXPECT_FALSE(settled.note(6, discard, 1)) << "the place is taken";
  settled.forget();
  EXPECT_FALSE(settled.covers(call, discard, 1));
  EXPECT_TRUE(settled.note(6, discard, 1));
}

// A thread that discards a page of which a userfaultfd reports.
class ReportedDiscard {
 public:
  ReportedDiscard() {
    uffdio_api api{};
    api.api = UFFD_API;
    api.features = UFFD_FEATURE_EVENT_REMOVE;
    uffdio_register request{};
    request.range = {page_.va(), kPage};
    request.mode = UFFDIO_REGISTER_MODE_MISSING;
    if (fd_ < 0 || ioctl(fd_, UFFDIO_API, &api) != 0 || ioctl(fd_, UFFDIO_REGISTER, &request) != 0)
      return;
    thread_ = std::thread([this] {
      memory::raw_madvise(page_.data(), kPage, MADV_DONTNEED);
      returned = true;
    });
    pollfd readable{fd_, POLLIN, 0};
    while (poll(&readable, 1, -1) < 0) continue;
  }
  ~ReportedDiscard() {
    if (thread_.joinable()) thread_.join();
    if (fd_ >= 0) close(fd_);
  }
  bool works() const { return thread_.joinable(); }
  int fd() const { return fd_; }
  static bool is(const memory::BlockedCall& call) {
    memory::Discard discard;
    return memory::find_discard(call, 0, discard);
  }

  static inline std::atomic<bool> returned{false}, settled{false};

 private:
  int fd_ =
      static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY));
  Buffer page_{kPage};
  std::thread thread_;
};

// Zeros that come when the call is over would hit what the thread has written since. Another
// reader's event is read while this one, which has seen the call, waits for a processor.
TEST(BlockedCalls, ADiscardIsNotOverBeforeItIsSettled) {
  in_child([] {
    ReportedDiscard discard;
    if (!discard.works()) return;
    std::thread looks([] {
      memory::for_each_blocked_call(
          [](const memory::BlockedCall& call, const memory::EventReader&) -> uint64_t {
            if (!ReportedDiscard::is(call)) return 0;
            ReportedDiscard::settled = true;
            std::this_thread::sleep_for(std::chrono::milliseconds(300));
            EXPECT_FALSE(ReportedDiscard::returned);
            return 0;
          },
          {});
    });
    while (!ReportedDiscard::settled) std::this_thread::yield();
    uffd_msg event;
    EXPECT_EQ(static_cast<ssize_t>(sizeof(event)),
              memory::read_events_of(discard.fd(), &event, sizeof(event)));
    looks.join();
  });
}

// Has madvise() of the calling thread wait for an answer. Returns the descriptor for that, or -1.
int withhold_madvise() {
  sock_filter look[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{std::size(look), look};
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  return static_cast<int>(
      syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program));
}

// Its event may have been read: it waits for something else, after which it may write there.
TEST(BlockedCalls, ADiscardThatWaitsForNoEventIsNotSettled) {
  in_child([] {
    static std::atomic<int> listener{-2}, settled{0};
    Buffer page(kPage);
    std::thread discards([&] {
      listener = withhold_madvise();
      if (listener >= 0) memory::raw_madvise(page.data(), kPage, MADV_DONTNEED);
    });
    while (listener == -2) std::this_thread::yield();
    seccomp_notif call{};
    if (listener >= 0 && ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &call) == 0) {
      memory::for_each_blocked_call(
          [](const memory::BlockedCall& each, const memory::EventReader&) -> uint64_t {
            settled += ReportedDiscard::is(each);
            return 0;
          },
          {});
      EXPECT_EQ(0, settled);
      seccomp_notif_resp answer{};
      answer.id = call.id;
      answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
      EXPECT_EQ(0, ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer));
    }
    if (listener >= 0) close(listener);  // the end of a thread discards its stack
    discards.join();
  });
}

// Discards twice, the second time when the watch has read all there was: its next look at calls, if
// it makes one, takes place before that discard, and the discard must be looked at anew.
class TwoDiscards {
 public:
  static uint64_t look(const memory::BlockedCall& call, const memory::EventReader&) {
    memory::Discard discard;
    if (memory::find_discard(call, 0, discard)) {
      (discard.start == pages->va() ? first_was_seen : second_was_seen) = true;
      return 0;
    }
    // The thread that always waits is seen behind the first discard in the look at that; its second
    // sight is another look.
    if (call.number != SYS_read || !first_was_seen || ++looks != 2) return 0;
    second_wanted = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // it waits for its event by then
    return 0;
  }
  static void run() {
    memory::Revoker revoker;
    memory::MappingWatch watch;
    Buffer both(2 * kPage);
    pages = &both;
    std::memset(both.data(), 1, both.size());
    // Threads are looked at in the order of their numbers: this one before the one that waits.
    std::thread second([] {
      while (!second_wanted) std::this_thread::yield();
      memory::raw_madvise(pages->data() + kPage, kPage, MADV_DONTNEED);
    });
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    std::thread waits([&ends] {
      char byte = 0;
      EXPECT_EQ(read(ends[0], &byte, 1), 1);
    });
    ASSERT_EQ(0, revoker.start([](const MemoryChange&) {}));
    if (watch.start(revoker, "two-discards", look) &&
        watch.watch(both.va(), both.va() + 2 * kPage)) {
      memory::raw_madvise(both.data(), kPage, MADV_DONTNEED);
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      second_wanted = true;
      second.join();
      EXPECT_TRUE(second_was_seen);
    } else {
      second_wanted = true;
      second.join();
    }
    EXPECT_EQ(write(ends[1], "", 1), 1);
    waits.join();
    std::fflush(nullptr);
    _exit(::testing::Test::HasFailure() ? 1 : 0);  // the threads of both have no end
  }

 private:
  static inline const Buffer* pages = nullptr;
  static inline std::atomic<bool> first_was_seen{false}, second_was_seen{false},
      second_wanted{false};
  static inline std::atomic<int> looks{0};
};

TEST(BlockedCalls, ADiscardThatComesBetweenLookAndReadIsLookedAt) { in_child(TwoDiscards::run); }

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
  ASSERT_TRUE(all_of_kind(mr, RegionKind::kMirror)) << how_it_is();
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

// Each of several threads finds zeros in what it has discarded.
TEST_F(MemoryTest, ThreadsDiscardAtTheSameMoment) {
  if (!migrates()) GTEST_SKIP() << registrar().status();
  constexpr size_t kThreads = 4, kPart = 16 * kPage, kRounds = 400;
  Buffer buffer(kThreads * kPart);
  buffer.fill(3);
  Nic::Mr mr;
  ASSERT_TRUE(nic.add(buffer.va(), buffer.size(), mr)) << nic.error;
  ASSERT_TRUE(all_of_kind(mr, RegionKind::kMirror)) << how_it_is();
  std::atomic<size_t> wrong{0};
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kThreads; i++)
    threads.emplace_back([&, part = buffer.data() + i * kPart] {
      for (size_t round = 0; round < kRounds; round++) {
        std::memset(part, 1, kPart);
        if (registrar().system_calls().madvise(part, kPart, MADV_DONTNEED) != 0) wrong++;
        for (size_t at = 0; at < kPart; at += kPage) wrong += part[at] != std::byte{0};
      }
    });
  for (std::thread& each : threads) each.join();
  EXPECT_EQ(0u, wrong);
  nic.remove(mr);
}

// Bytes that this process has written by system calls.
uint64_t written_bytes() {
  std::ifstream io("/proc/self/io");
  for (std::string word; io >> word;)
    if (uint64_t bytes = 0; word == "wchar:" && io >> bytes) return bytes;
  return 0;
}

// It takes as long as to write all that is discarded: a GiB would take twice that.
TEST_F(MemoryTest, WhatOneOfSeveralThreadsDiscardsIsMadeZerosOnce) {
  if (!migrates()) GTEST_SKIP() << registrar().status();
  constexpr size_t kLength = 4 * kMiB;
  Buffer buffer(kLength);
  buffer.fill(3);
  Nic::Mr mr;
  ASSERT_TRUE(nic.add(buffer.va(), kLength, mr)) << nic.error;
  ASSERT_TRUE(all_of_kind(mr, RegionKind::kMirror)) << how_it_is();
  std::atomic<bool> stop{false};
  std::thread other([&] {
    while (!stop) std::this_thread::yield();
  });
  const uint64_t before = written_bytes();
  EXPECT_EQ(registrar().system_calls().madvise(buffer.data(), kLength, MADV_DONTNEED), 0);
  const uint64_t written = written_bytes() - before;
  stop = true;
  other.join();
  EXPECT_EQ(std::count(buffer.data(), buffer.data() + kLength, std::byte{0}),
            static_cast<ptrdiff_t>(kLength));
  EXPECT_GE(written, kLength);
  EXPECT_LT(written, kLength + kMiB);
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

TEST_P(MemoryDiscards, LockedPagesAreZerosWhereThatIsAsked) {
  if (!migrates()) GTEST_SKIP() << registrar().status();
  constexpr size_t kLength = 32 * kPage;
  Buffer buffer(kLength);
  buffer.fill(3);
  Nic::Mr mr;
  ASSERT_TRUE(nic.add(buffer.va(), kLength, mr)) << nic.error;
  if (syscall(SYS_mlock2, buffer.data(), kLength, MLOCK_ONFAULT) != 0)
    GTEST_SKIP() << std::strerror(errno);
  EXPECT_EQ(GetParam()(buffer.data() + kPage, kPage, MADV_DONTNEED_LOCKED), 0)
      << std::strerror(errno);
  EXPECT_EQ(changed(buffer, 0, kPage), 0u);
  EXPECT_EQ(not_zero(buffer, kPage, 2 * kPage), 0u);
  EXPECT_EQ(changed(buffer, 2 * kPage, kLength), 0u);
  syscall(SYS_munlock, buffer.data(), kLength);
  nic.remove(mr);
}

// The kernel goes from range to range, and stops where it meets locked memory.
TEST_F(MemoryTest, ListsAreDiscardedAsFarAsTheKernelDoes) {
  if (!migrates()) GTEST_SKIP() << registrar().status();
  constexpr size_t kLength = 32 * kPage;
  Buffer first(kLength), second(kLength), third(kLength);
  Nic::Mr mrs[3];
  for (int i = 0; Buffer * each : {&first, &second, &third}) {
    each->fill(3);
    ASSERT_TRUE(nic.add(each->va(), kLength, mrs[i++])) << nic.error;
  }
  const UniqueFd self(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
  if (syscall(SYS_mlock, second.data() + 2 * kPage, kPage) != 0)
    GTEST_SKIP() << std::strerror(errno);
  const iovec list[] = {{first.data(), kPage}, {second.data(), 4 * kPage}, {third.data(), kPage}};
  if (syscall(SYS_process_madvise, self.get(), list, 3, MADV_DONTNEED, 0) < 0)
    GTEST_SKIP() << std::strerror(errno);
  EXPECT_EQ(first.data()[0], std::byte{0});
  EXPECT_EQ(first.data()[kPage], Buffer::pattern(3, kPage));
  EXPECT_EQ(second.data()[kPage], std::byte{0});
  EXPECT_EQ(second.data()[3 * kPage], Buffer::pattern(3, 3 * kPage)) << "behind what is locked";
  EXPECT_EQ(third.data()[0], Buffer::pattern(3, 0)) << "behind what has failed";
  syscall(SYS_munlock, second.data() + 2 * kPage, kPage);
  for (const Nic::Mr& mr : mrs) nic.remove(mr);
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

// Linux 6.13; before, what another call does is as good.
int advise_by_process(void* at, size_t length, int advice) {
  const UniqueFd self(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
  const iovec range{at, length};
  const long done = syscall(SYS_process_madvise, self.get(), &range, 1, advice, 0);
  if (done < 0 && errno == EPERM) return memory::raw_madvise(at, length, advice);
  return done == static_cast<long>(length) ? 0 : -1;
}

std::string way_of(const ::testing::TestParamInfo<Madvise>& info) {
  return info.index == 0 ? "libc" : info.index == 1 ? "system_call" : "process";
}

INSTANTIATE_TEST_SUITE_P(By, MemoryDiscards,
                         ::testing::Values(&madvise, &memory::raw_madvise, &advise_by_process),
                         way_of);

}  // namespace
}  // namespace hostnic::memory_testing
