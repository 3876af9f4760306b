// SPDX-License-Identifier: BSD-3-Clause
// An ordinary user's userfaultfd stops no system call: pages migrate while the program is alone.
#include <fcntl.h>
#include <grp.h>
#include <sys/prctl.h>

#include <chrono>
#include <thread>

#include "tests/unit/memory/watching.h"

namespace hostnic::memory_testing {
namespace {

using memory::raw_munmap;

// Runs `body(nic)` as nobody, without full userfaultfd.
template <typename Body>
void as_ordinary_user(Body body) {
  if (getuid() != 0) GTEST_SKIP() << "needs root to become somebody else";
  in_child([&] {
    ASSERT_EQ(0, setgroups(0, nullptr));
    ASSERT_EQ(0, setresgid(65534, 65534, 65534));
    ASSERT_EQ(0, setresuid(65534, 65534, 65534));
    ASSERT_EQ(0, prctl(PR_SET_DUMPABLE, 1));
    auto mirror = create_mirror();
    ASSERT_TRUE(mirror.has_value()) << mirror.error();
    auto& registrar = memory::MemoryRegistrar::process();
    auto ready = registrar.init(*mirror);
    ASSERT_TRUE(ready.has_value()) << ready.error().message;
    if (registrar.status().find("user mode only") == std::string::npos) return;
    Nic nic(registrar.mirror_fd());
    body(nic, registrar);
  });
}

class MemoryOrdinaryUser : public MemoryTest {};

bool in_mirror(const Nic::Mr& mr) {
  return std::ranges::all_of(
      mr.regions, [](const MemoryRegion& region) { return region.kind == RegionKind::kMirror; });
}

// Two threads that read into `buffer` by system calls as fast as they can.
class Readers {
 public:
  explicit Readers(Buffer& buffer) {
    for (std::thread& thread : threads_)
      thread = std::thread([this, &buffer] { read_zeros(buffer); });
    while (reads_.load() < 4) std::this_thread::yield();
  }
  ~Readers() { end(); }
  void end() {
    stop_.store(true);
    for (std::thread& thread : threads_)
      if (thread.joinable()) thread.join();
  }
  uint64_t failed() const { return failed_.load(); }
  uint64_t reads() const { return reads_.load(); }

 private:
  void read_zeros(Buffer& buffer) {
    const int zeros = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    while (!stop_.load()) {
      if (read(zeros, buffer.data(), buffer.size()) != static_cast<ssize_t>(buffer.size()))
        failed_.fetch_add(1);
      reads_.fetch_add(1);
    }
    close(zeros);
  }
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> reads_{0}, failed_{0};
  std::thread threads_[2];
};

TEST_F(MemoryOrdinaryUser, AloneGetsTheFastWay) {
  as_ordinary_user([](Nic& nic, memory::MemoryRegistrar& registrar) {
    Buffer buffer(2 * kMiB);
    buffer.fill(1);
    for (int round = 0; round < 2; round++) {
      Nic::Mr mr;
      // With a fragment, so that our own threads run.
      ASSERT_TRUE(nic.add(buffer.va() + (round == 0 ? 0 : kSkew), kMiB, mr)) << nic.error;
      EXPECT_EQ(round == 0, in_mirror(mr));
      EXPECT_GE(registrar.counters().in_mirror_bytes, kMiB - kPage) << registrar.status();
      EXPECT_EQ(Buffer::pattern(1, kMiB / 2),
                nic.read(mr, kMiB / 2 - (round == 0 ? 0 : kSkew), 1)[0]);
      nic.remove(mr);
      EXPECT_EQ(0u, registrar.counters().in_mirror_bytes);
      EXPECT_EQ(Buffer::pattern(1, kMiB / 2), buffer.data()[kMiB / 2]);
    }
  });
}

TEST_F(MemoryOrdinaryUser, NoSystemCallOfOthersFails) {
  as_ordinary_user([](Nic& nic, memory::MemoryRegistrar& registrar) {
    Buffer early(kMiB), late(kMiB);
    Nic::Mr parked, mr;
    ASSERT_TRUE(nic.add(early.va(), kMiB, parked)) << nic.error;
    ASSERT_TRUE(in_mirror(parked)) << registrar.status();
    Readers into_early(early), into_late(late);
    for (int round = 0; round < 200; round++) {
      nic.remove(parked);
      ASSERT_EQ(kMiB, registrar.counters().parked_bytes) << "may not go home now";
      ASSERT_TRUE(nic.add(late.va(), kMiB, mr)) << nic.error;
      ASSERT_FALSE(in_mirror(mr));
      ASSERT_TRUE(nic.add(early.va(), kMiB, parked)) << nic.error;
      ASSERT_TRUE(in_mirror(parked)) << "it lies there";
      ASSERT_EQ(0u, registrar.counters().parked_bytes);
      nic.remove(mr);
    }
    into_early.end();
    into_late.end();
    EXPECT_EQ(0u, into_early.failed()) << "of " << into_early.reads();
    EXPECT_EQ(0u, into_late.failed()) << "of " << into_late.reads();
    // Alone again, as soon as the kernel has forgotten the threads.
    for (int tries = 0; tries < 500; tries++) {
      nic.remove(parked);
      if (registrar.counters().in_mirror_bytes == 0) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      ASSERT_TRUE(nic.add(early.va(), kMiB, parked)) << nic.error;
    }
    EXPECT_EQ(0u, registrar.counters().in_mirror_bytes) << "it comes home";
  });
}

TEST_F(MemoryOrdinaryUser, ParkedPagesFollowTheProgram) {
  as_ordinary_user([](Nic& nic, memory::MemoryRegistrar& registrar) {
    Buffer freed(kMiB), kept(kMiB);
    kept.fill(3);
    Nic::Mr mr, other;
    ASSERT_TRUE(nic.add(freed.va(), kMiB, mr)) << nic.error;
    ASSERT_TRUE(nic.add(kept.va(), kMiB, other)) << nic.error;
    // So that our threads run.
    Nic::Mr small;
    Buffer fragment(kPage);
    ASSERT_TRUE(nic.add(fragment.va() + kSkew, 64, small)) << nic.error;
    std::atomic<bool> stop{false};
    std::thread somebody([&] {
      while (!stop.load()) std::this_thread::yield();
    });
    nic.remove(mr);
    nic.remove(other);
    ASSERT_EQ(2 * kMiB, registrar.counters().parked_bytes);
    raw_munmap(freed.data(), kMiB);
    nic.remove(small);
    ASSERT_TRUE(nic.add(fragment.va() + kSkew, 64, small)) << nic.error;
    EXPECT_EQ(kMiB, registrar.counters().in_mirror_bytes) << "the mirror's pages went, too";
    // A forked child has its copy, even where registered memory is not copied: this one is not
    // registered.
    registrar.set_fork_init();
    in_child([&] {
      EXPECT_EQ(Buffer::pattern(3, 77777), kept.data()[77777]);
      kept.data()[77777] = std::byte{1};
    });
    EXPECT_EQ(Buffer::pattern(3, 77777), kept.data()[77777]);
    // Deregistering something else brings them home once nobody can be disturbed.
    stop.store(true);
    somebody.join();
    for (int tries = 0; tries < 500 && registrar.counters().in_mirror_bytes != 0; tries++) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      ASSERT_TRUE(nic.add(freed.va() - kPage, 0 + kPage, mr, false)) << nic.error;
      nic.remove(mr);
    }
    EXPECT_EQ(0u, registrar.counters().in_mirror_bytes);
    EXPECT_EQ(Buffer::pattern(3, 77777), kept.data()[77777]);
  });
}

}  // namespace
}  // namespace hostnic::memory_testing
