// SPDX-License-Identifier: BSD-3-Clause
// Programs that unmap, replace, move or discard memory while it is registered.

// The interposers are in this program as a whole (meson.build), and serve its other tests, too.
#include <malloc.h>
#include <sys/shm.h>
#include <sys/syscall.h>

#include "tests/unit/memory/watching.h"
#include "verbs-shim/elf/symbols.h"
#include "verbs-shim/memory/raw_memory.h"

namespace hostnic::memory_testing {
namespace {

using namespace memory;
using MemoryInterpose = MemoryTest;

void* map_at(uint64_t va, size_t length) {
  return mmap(reinterpret_cast<void*>(va), length, PROT_READ | PROT_WRITE,
              MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

TEST_F(MemoryInterpose, UnmapThenRegisterAgain) {
  Buffer buffer(2 * kMiB);
  buffer.fill(1);
  Nic::Mr old, fresh;
  ASSERT_TRUE(nic.add(buffer.va(), buffer.size(), old)) << nic.error;
  ASSERT_EQ(0, munmap(buffer.data(), buffer.size()));
  EXPECT_EQ(0u, registrar().counters().in_mirror_bytes);
  ASSERT_EQ(buffer.data(), map_at(buffer.va(), buffer.size()));
  EXPECT_EQ(std::byte{0}, buffer.data()[123]);
  // Also while the stale registration is still there, and after.
  ASSERT_TRUE(nic.add(buffer.va(), buffer.size(), fresh)) << nic.error;
  expect_right_bytes(fresh);
  nic.remove(old);
  expect_right_bytes(fresh);
  nic.remove(fresh);
  ASSERT_TRUE(nic.add(buffer.va(), buffer.size(), fresh)) << nic.error;
  if (migrates()) {
    EXPECT_TRUE(all_of_kind(fresh, RegionKind::kMirror));
  }
  expect_right_bytes(fresh);
  nic.remove(fresh);
}

TEST_F(MemoryInterpose, PartIsReplacedByMmapFixed) {
  Buffer buffer(2 * kMiB);
  buffer.fill(2);
  Nic::Mr mr;
  ASSERT_TRUE(nic.add(buffer.va(), buffer.size(), mr)) << nic.error;
  ASSERT_NE(MAP_FAILED, map_at(buffer.va() + kMiB, 16 * kPage));
  buffer.data()[kMiB] = std::byte{77};
  nic.remove(mr);
  EXPECT_EQ(std::byte{77}, buffer.data()[kMiB]) << "overwritten by what was there before";
  EXPECT_EQ(Buffer::pattern(2, kMiB - 1), buffer.data()[kMiB - 1]);
  EXPECT_EQ(Buffer::pattern(2, kMiB + 16 * kPage), buffer.data()[kMiB + 16 * kPage]);
}

// The kernel tells of what MAP_FIXED replaces when the new mapping is there already.
TEST_F(MemoryWatch, NothingIsWrittenToWhatIsMappedOver) {
  Buffer buffer(kPage);
  std::atomic<bool> writes{false}, over{false};
  std::atomic<int> written{0}, pauses{0};
  std::thread nic_thread([&] {
    while (!over) {
      if (writes)
        written += device.write(buffer.va() + kSkew, std::byte{1});
      else
        pauses++;
    }
  });
  for (int round = 0; round < 200; round++) {
    Nic::Mr mr;
    ASSERT_TRUE(nic.add(buffer.va() + kSkew, 1000, mr)) << nic.error;
    device.forget_revocations();
    const int before = written;
    writes = true;
    while (written == before) std::this_thread::yield();
    ASSERT_EQ(buffer.data(), map_at(buffer.va(), kPage));
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    writes = false;
    for (const int paused = pauses; pauses < paused + 2;) std::this_thread::yield();
    ASSERT_EQ(buffer.data()[kSkew], std::byte{0}) << "round " << round;
    nic.remove(mr);
  }
  over = true;
  nic_thread.join();
}

// A NIC that writes to registered memory whenever it is let, as long as this lives.
class Writer {
 public:
  Writer(Device& device, uint64_t va)
      : thread_([this, &device, va] {
          while (!over_) {
            if (writes_)
              written_ += device.write(va, std::byte{1});
            else
              pauses_++;
          }
        }) {}
  ~Writer() {
    over_ = true;
    thread_.join();
  }
  void begin() {
    const int before = written_;
    writes_ = true;
    while (written_ == before) std::this_thread::yield();
  }
  void end() {
    writes_ = false;
    for (const int paused = pauses_; pauses_ < paused + 2;) std::this_thread::yield();
  }

 private:
  std::atomic<bool> writes_{false}, over_{false};
  std::atomic<int> written_{0}, pauses_{0};
  std::thread thread_;
};

TEST_F(MemoryWatch, NothingIsWrittenToASegmentThatIsAttachedOver) {
  const int id = shmget(IPC_PRIVATE, kPage, IPC_CREAT | 0600);
  ASSERT_GE(id, 0);
  auto* const seen = static_cast<std::byte*>(shmat(id, nullptr, 0));
  Buffer buffer(kPage);
  for (int round = 0; round < 60 && !HasFailure(); round++) {
    ASSERT_EQ(buffer.data(), map_at(buffer.va(), kPage));
    Nic::Mr mr;
    ASSERT_TRUE(nic.add(buffer.va() + kSkew, 1000, mr)) << nic.error;
    device.forget_revocations();
    Writer writer(device, buffer.va() + kSkew);
    writer.begin();
    ASSERT_EQ(buffer.data(), shmat(id, buffer.data(), SHM_REMAP)) << std::strerror(errno);
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    writer.end();
    ASSERT_EQ(seen[kSkew], std::byte{0}) << "round " << round;
    nic.remove(mr);
  }
  EXPECT_EQ(shmdt(buffer.data()), 0);
  EXPECT_EQ(shmdt(seen), 0);
  EXPECT_EQ(shmdt(seen), -1);
  shmctl(id, IPC_RMID, nullptr);
}

// A block with a mapping of its own is unmapped by libc itself, and another thread may map
// something there before the kernel's report is read.
TEST_F(MemoryWatch, NothingIsWrittenToWhatOthersMapWhereABlockWas) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "AddressSanitizer keeps freed memory for a while";
#endif
  mallopt(M_MMAP_THRESHOLD, 128 << 10);
  constexpr int kNoReplace = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
  for (int round = 0; round < 60 && !HasFailure(); round++) {
    auto* const block = static_cast<std::byte*>(std::malloc(kMiB));
    const uint64_t page = memory::page_up(reinterpret_cast<uint64_t>(block)) + kPage;
    Nic::Mr mr;
    ASSERT_TRUE(nic.add(page + kSkew, 1000, mr)) << nic.error;
    device.forget_revocations();
    std::atomic<bool> ready{false};
    std::thread other([&] {
      ready = true;
      while (memory::raw_mmap(reinterpret_cast<void*>(page), kPage, PROT_READ | PROT_WRITE,
                              kNoReplace, -1, 0) == MAP_FAILED)
        continue;
    });
    while (!ready) std::this_thread::yield();
    Writer writer(device, page + kSkew);
    writer.begin();
    std::free(block);
    other.join();
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    writer.end();
    EXPECT_EQ(reinterpret_cast<std::byte*>(page)[kSkew], std::byte{0}) << "round " << round;
    nic.remove(mr);
    memory::raw_munmap(reinterpret_cast<void*>(page), kPage);
  }
}

// Past the interposers, as free and brk within the C library do.
TEST_F(MemoryInterpose, ReplacedBehindOurBack) {
  Buffer buffer(kMiB);
  Nic::Mr mr;
  ASSERT_TRUE(nic.add(buffer.va(), buffer.size(), mr)) << nic.error;
  memory::raw_munmap(buffer.data(), buffer.size());
  ASSERT_NE(MAP_FAILED, memory::raw_mmap(buffer.data(), buffer.size(), PROT_READ | PROT_WRITE,
                                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
  buffer.fill(3);
  Nic::Mr again;
  ASSERT_TRUE(nic.add(buffer.va(), buffer.size(), again)) << nic.error;
  expect_right_bytes(again);
  nic.remove(again);
  const std::byte value = buffer.data()[kMiB / 2];
  nic.remove(mr);
  EXPECT_EQ(value, buffer.data()[kMiB / 2]);
  EXPECT_EQ(0u, registrar().counters().in_mirror_bytes);
}

TEST_F(MemoryInterpose, DiscardedMemoryReadsAsZero) {
  Buffer buffer(kMiB);
  buffer.fill(4);
  Nic::Mr mr;
  ASSERT_TRUE(nic.add(buffer.va() + kPage, kMiB - 2 * kPage, mr)) << nic.error;
  ASSERT_EQ(0, madvise(buffer.data(), kMiB, MADV_DONTNEED));
  for (size_t i = 0; i < kMiB; i += 512) ASSERT_EQ(std::byte{0}, buffer.data()[i]) << i;
  EXPECT_EQ(std::byte{0}, nic.read(mr, kMiB / 2, 1)[0]);
  expect_right_bytes(mr);
  EXPECT_EQ(0, madvise(buffer.data(), kMiB, MADV_FREE));
  EXPECT_EQ(0, madvise(buffer.data(), kMiB, MADV_NOHUGEPAGE));
  EXPECT_EQ(0, madvise(buffer.data(), kMiB, MADV_DONTFORK));
  EXPECT_EQ(0, madvise(buffer.data(), kMiB, MADV_DOFORK));
  nic.remove(mr);
  in_child([&] { EXPECT_EQ(std::byte{0}, buffer.data()[0]); });  // DOFORK took effect
}

// Guard pages (Linux 6.13) take the contents of what they guard.
TEST_F(MemoryInterpose, GuardedMemoryIsEmptyAfterwards) {
  constexpr int kInstall = 102, kRemove = 103;
  Buffer buffer(kMiB);
  buffer.fill(4);
  Nic::Mr mr;
  ASSERT_TRUE(nic.add(buffer.va(), kMiB, mr)) << nic.error;
  if (madvise(buffer.data() + kPage, 2 * kPage, kInstall) != 0)
    GTEST_SKIP() << std::strerror(errno);
  ASSERT_EQ(0, madvise(buffer.data() + kPage, 2 * kPage, kRemove));
  EXPECT_EQ(std::byte{0}, buffer.data()[kPage]);
  EXPECT_EQ(std::byte{0}, buffer.data()[3 * kPage - 1]);
  EXPECT_EQ(Buffer::pattern(4, kPage - 1), buffer.data()[kPage - 1]);
  EXPECT_EQ(Buffer::pattern(4, 3 * kPage), buffer.data()[3 * kPage]);
  nic.remove(mr);
}

// The C library lets its heap grow without asking anybody.
TEST_F(MemoryInterpose, AHeapGrowsAgainWhereItWasRegistered) {
  if (!migrates()) GTEST_SKIP() << registrar().status();
  in_child([&] {
    shared_mirror();
    Nic child_nic(registrar().mirror_fd());
    auto* const heap = static_cast<std::byte*>(sbrk(16 * kPage));
    ASSERT_NE(reinterpret_cast<void*>(-1), heap);
    const uint64_t start = memory::page_up(reinterpret_cast<uint64_t>(heap));
    Nic::Mr mr;
    ASSERT_TRUE(child_nic.add(start, 12 * kPage, mr)) << child_nic.error;
    ASSERT_EQ(0, brk(reinterpret_cast<void*>(start + 6 * kPage)));
    EXPECT_EQ(reinterpret_cast<void*>(start + 6 * kPage), sbrk(4 * kPage)) << std::strerror(errno);
    EXPECT_EQ(std::byte{0}, *reinterpret_cast<std::byte*>(start + 6 * kPage));
    child_nic.remove(mr);
  });
}

// What a bare mremap has grown in place is in the mirror, of which the program knows nothing.
TEST_F(MemoryInterpose, GrowthTakesAdviceAboutPrivateMemory) {
  if (!migrates()) GTEST_SKIP() << registrar().status();
  Buffer buffer(8 * kPage);
  std::memset(buffer.data(), 6, 2 * kPage);
  Nic::Mr mr;
  ASSERT_TRUE(nic.add(buffer.va(), 2 * kPage, mr)) << nic.error;
  ASSERT_EQ(0, memory::raw_munmap(buffer.data() + 2 * kPage, 6 * kPage));
  void* const second = buffer.data() + kPage;
  ASSERT_EQ(second, memory::raw_mremap(second, kPage, 3 * kPage, 0, nullptr))
      << std::strerror(errno);
  EXPECT_EQ(0, madvise(buffer.data() + 2 * kPage, 2 * kPage, MADV_FREE)) << std::strerror(errno);
  EXPECT_EQ(0, madvise(buffer.data(), 4 * kPage, MADV_FREE)) << std::strerror(errno);
  std::byte* const beside = buffer.data() + 4 * kPage;
  ASSERT_EQ(beside, mmap(beside, kPage, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0));
  EXPECT_EQ(0, madvise(buffer.data() + 2 * kPage, 3 * kPage, MADV_FREE)) << std::strerror(errno);
  EXPECT_EQ(0, madvise(buffer.data(), 5 * kPage, MADV_FREE)) << std::strerror(errno);
  EXPECT_EQ(-1, madvise(buffer.data(), 6 * kPage, MADV_FREE)) << "there is a hole";
  EXPECT_EQ(ENOMEM, errno);
  EXPECT_EQ(0, madvise(buffer.data() + 2 * kPage, kPage, MADV_WIPEONFORK)) << std::strerror(errno);
  EXPECT_EQ(0, madvise(buffer.data() + 3 * kPage, kPage, MADV_DONTFORK)) << std::strerror(errno);
  in_child([&] {
    EXPECT_EQ(std::byte{0}, buffer.data()[2 * kPage]);
    EXPECT_EQ(-1, msync(buffer.data() + 3 * kPage, kPage, MS_ASYNC)) << "it is not mapped";
  });
  expect_right_bytes(mr);
  nic.remove(mr);
  EXPECT_EQ(0, madvise(buffer.data(), 4 * kPage, MADV_FREE)) << std::strerror(errno);
  EXPECT_EQ(0, madvise(buffer.data(), 4 * kPage, MADV_WIPEONFORK)) << std::strerror(errno);
}

TEST_F(MemoryInterpose, GrowthThatIsLockedStaysSo) {
  if (!migrates()) GTEST_SKIP() << registrar().status();
  Buffer buffer(8 * kPage);
  std::memset(buffer.data(), 6, 2 * kPage);
  Nic::Mr mr;
  ASSERT_TRUE(nic.add(buffer.va(), 2 * kPage, mr)) << nic.error;
  ASSERT_EQ(0, memory::raw_munmap(buffer.data() + 2 * kPage, 6 * kPage));
  void* const second = buffer.data() + kPage;
  ASSERT_EQ(second, memory::raw_mremap(second, kPage, 4 * kPage, 0, nullptr))
      << std::strerror(errno);
  std::byte* const locked = buffer.data() + 3 * kPage;
  // AddressSanitizer makes mlock do nothing.
  if (syscall(SYS_mlock, locked, kPage) != 0) GTEST_SKIP() << std::strerror(errno);
  ASSERT_EQ(0, madvise(buffer.data() + 2 * kPage, 3 * kPage, MADV_DONTFORK));
  EXPECT_EQ(-1, madvise(locked, kPage, MADV_DONTNEED)) << "it is not locked";
  EXPECT_EQ(0, madvise(locked - kPage, kPage, MADV_DONTNEED)) << std::strerror(errno);
  nic.remove(mr);
  syscall(SYS_munlock, locked, kPage);
}

TEST_F(MemoryInterpose, RegisteredGrowthMayBeFreed) {
  if (!migrates()) GTEST_SKIP() << registrar().status();
  Buffer buffer(8 * kPage);
  std::memset(buffer.data(), 6, 2 * kPage);
  Nic::Mr mr, whole;
  ASSERT_TRUE(nic.add(buffer.va(), 2 * kPage, mr)) << nic.error;
  ASSERT_EQ(0, memory::raw_munmap(buffer.data() + 2 * kPage, 6 * kPage));
  ASSERT_EQ(buffer.data(), memory::raw_mremap(buffer.data(), 2 * kPage, 4 * kPage, 0, nullptr))
      << std::strerror(errno);
  ASSERT_TRUE(nic.add(buffer.va(), 4 * kPage, whole)) << nic.error;
  EXPECT_EQ(0, madvise(buffer.data() + kPage, 3 * kPage, MADV_FREE)) << std::strerror(errno);
  EXPECT_EQ(0, madvise(buffer.data() + 2 * kPage, kPage, MADV_FREE)) << std::strerror(errno);
  nic.remove(whole);
  nic.remove(mr);
}

// A bare call has put other memory where registered memory was, and its report may still be under
// way.
TEST_F(MemoryInterpose, AdviceIsForWhatIsThereNow) {
  if (!migrates()) GTEST_SKIP() << registrar().status();
  constexpr int kRounds = 20;
  for (int round = 0; round < kRounds; ++round) {
    Buffer buffer(32 * kPage);
    buffer.fill(6);
    Nic::Mr mr;
    ASSERT_TRUE(nic.add(buffer.va(), buffer.size(), mr)) << nic.error;
    ASSERT_EQ(buffer.data(), memory::raw_mmap(buffer.data(), buffer.size(), PROT_READ | PROT_WRITE,
                                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
    ASSERT_EQ(0, madvise(buffer.data(), buffer.size(), MADV_WIPEONFORK)) << std::strerror(errno);
    std::memset(buffer.data(), 7, buffer.size());
    in_child([&] {
      for (size_t page = 0; page < 32; ++page)
        ASSERT_EQ(std::byte{0}, buffer.data()[page * kPage]) << round << ", page " << page;
    });
    nic.remove(mr);
  }
}

TEST_F(MemoryInterpose, MovedMemoryKeepsItsBytes) {
  Buffer buffer(kMiB), target(kMiB);
  buffer.fill(5);
  Nic::Mr mr;
  ASSERT_TRUE(nic.add(buffer.va(), buffer.size(), mr)) << nic.error;
  ASSERT_EQ(target.data(),
            mremap(buffer.data(), kMiB, kMiB, MREMAP_MAYMOVE | MREMAP_FIXED, target.data()));
  EXPECT_EQ(Buffer::pattern(5, 654321), target.data()[654321]);
  Nic::Mr moved;
  ASSERT_TRUE(nic.add(target.va(), kMiB, moved)) << nic.error;
  EXPECT_EQ(Buffer::pattern(5, 654321), nic.read(moved, 654321, 1)[0]);
  expect_right_bytes(moved);
  nic.remove(moved);
  nic.remove(mr);
}

TEST_F(MemoryInterpose, ErrorsAreTheKernels) {
  Buffer buffer(kMiB);
  Nic::Mr mr;
  ASSERT_TRUE(nic.add(buffer.va(), buffer.size(), mr)) << nic.error;
  errno = 0;
  EXPECT_EQ(-1, munmap(buffer.data() + 1, kPage));
  EXPECT_EQ(EINVAL, errno);
  EXPECT_EQ(-1, madvise(buffer.data() + 1, kPage, MADV_DONTNEED));
  EXPECT_EQ(EINVAL, errno);
  EXPECT_EQ(MAP_FAILED, mmap(buffer.data() + 1, kPage, PROT_READ,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
  EXPECT_EQ(MAP_FAILED, mremap(buffer.data() + 1, kPage, kPage, 0));
  expect_right_bytes(mr);
  nic.remove(mr);
}

#ifdef __x86_64__
// A jump over the code of libc's `name`, as UCX and Open MPI write it to learn of changed mappings.
void jump_from(const char* name, void* target) {
  auto* code = static_cast<std::byte*>(elf::libc_symbol(name));
  ASSERT_NE(nullptr, code);
  const auto page = reinterpret_cast<uint64_t>(code) & ~uint64_t{kPage - 1};
  ASSERT_EQ(0,
            mprotect(reinterpret_cast<void*>(page), 2 * kPage, PROT_READ | PROT_WRITE | PROT_EXEC));
  unsigned char jump[] = {0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0};  // mov rax; jmp rax
  std::memcpy(jump + 2, &target, sizeof(target));
  std::memcpy(code, jump, sizeof(jump));
}

// What such a hook does: the registration goes, then the system call runs.
struct Hook {
  Nic* nic = nullptr;
  Nic::Mr mr;
  unsigned calls = 0;
  void before_change() {
    if (nic == nullptr) return;  // the NIC's own mappings
    calls++;
    Nic* deregisters = std::exchange(nic, nullptr);
    if (mr.length != 0) deregisters->remove(std::exchange(mr, {}));
    nic = deregisters;
  }
} hook;
int hooked_munmap(void* at, size_t length) {
  hook.before_change();
  return raw_munmap(at, length);
}
void* hooked_mmap(void* at, size_t length, int prot, int flags, int fd, off_t offset) {
  hook.before_change();
  return raw_mmap(at, length, prot, flags, fd, offset);
}
int hooked_madvise(void* at, size_t length, int advice) {
  hook.before_change();
  return raw_madvise(at, length, advice);
}
void* hooked_mremap(void* from, size_t old_length, size_t length, int flags, void* to) {
  hook.before_change();
  return raw_mremap(from, old_length, length, flags, to);
}

// Whoever hooked libc's function hears of each call, registered memory or not, and may deregister
// before it takes effect.
TEST_F(MemoryInterpose, HooksInLibcAreCalled) {
  in_child([] {
    shared_mirror();
    Nic child_nic(registrar().mirror_fd());
    hook.nic = &child_nic;
    jump_from("munmap", reinterpret_cast<void*>(hooked_munmap));
    jump_from("mmap", reinterpret_cast<void*>(hooked_mmap));
    jump_from("madvise", reinterpret_cast<void*>(hooked_madvise));
    jump_from("mremap", reinterpret_cast<void*>(hooked_mremap));
    for (const uint64_t skew : {uint64_t{0}, uint64_t{100}})  // in the mirror, and partly not
      for (int change = 0; change < 4; change++) {
        Buffer buffer(kMiB), target(kMiB);
        buffer.fill(8);
        ASSERT_TRUE(child_nic.add(buffer.va() + skew, kMiB - 2 * skew, hook.mr)) << child_nic.error;
        hook.calls = 0;
        if (change == 0) {
          ASSERT_EQ(0, munmap(buffer.data(), kMiB));
        } else if (change == 1) {
          ASSERT_EQ(buffer.data(), map_at(buffer.va(), kMiB));
        } else if (change == 2) {
          ASSERT_EQ(0, madvise(buffer.data(), kMiB, MADV_DONTNEED));
        } else {
          ASSERT_EQ(target.data(), mremap(buffer.data(), kMiB, kMiB, MREMAP_MAYMOVE | MREMAP_FIXED,
                                          target.data()));
          EXPECT_EQ(Buffer::pattern(8, 500'000), target.data()[500'000]);
        }
        EXPECT_EQ(1u, hook.calls) << "change " << change;
        EXPECT_EQ(0u, hook.mr.length) << "change " << change;
        if (change == 1 || change == 2) {
          EXPECT_EQ(std::byte{0}, buffer.data()[500'000]) << "change " << change;
        }
        EXPECT_EQ(0u, registrar().counters().in_mirror_bytes) << "change " << change;
      }
  });
}
#endif

}  // namespace
}  // namespace hostnic::memory_testing
