// SPDX-License-Identifier: BSD-3-Clause
// Memory that is unmapped while it is registered is reported, whoever unmaps it.
#include <fcntl.h>
#include <malloc.h>
#include <sys/shm.h>

#include <thread>

#include "tests/support/forbid_userfaultfd.h"
#include "tests/unit/memory/watching.h"

namespace hostnic::memory_testing {
namespace {

using memory::raw_munmap;

UniqueFd unlinked_file(uint64_t length_bytes) {
  char path[] = "/tmp/hostnic-watch-XXXXXX";
  UniqueFd file(mkstemp(path));
  unlink(path);
  EXPECT_EQ(ftruncate(file.get(), static_cast<off_t>(length_bytes)), 0);
  return file;
}

TEST_F(MemoryWatch, RawUnmapIsTold) {
  needs_watch();
  Buffer buffer(kMiB);
  Device second;
  Nic::Mr mr;
  ASSERT_TRUE(nic.add(buffer.va() + kSkew, kMiB - kSkew, mr)) << nic.error;
  ASSERT_EQ(0, raw_munmap(buffer.data(), kMiB));
  // A gap might be taken by somebody else.
  ASSERT_NE(MAP_FAILED, map_fixed(buffer.va(), kMiB));
  wait_for_revoker();
  EXPECT_TRUE(device.revoked(buffer.va() + kSkew));
  EXPECT_TRUE(second.revoked(buffer.va() + kSkew)) << "each device has regions of its own";
  nic.remove(mr);
  wait_for_revoker();  // mapping over what was still registered may be told, too
  const size_t before = device.revocations(buffer.va(), kMiB);
  ASSERT_TRUE(nic.add(buffer.va() + kSkew, kMiB - kSkew, mr)) << nic.error;
  expect_right_bytes(mr);
  nic.remove(mr);
  EXPECT_EQ(before, device.revocations(buffer.va(), kMiB))
      << "a later registration of the addresses is another";
}

TEST_F(MemoryWatch, RawMapOverIsTold) {
  needs_watch();
  Buffer buffer(kMiB);
  Nic::Mr mr;
  ASSERT_TRUE(nic.add(buffer.va() + kSkew, kMiB - 2 * kSkew, mr)) << nic.error;
  ASSERT_NE(MAP_FAILED, map_fixed(buffer.va() + kMiB - kPage, kPage));
  wait_for_revoker();
  EXPECT_TRUE(device.revoked(buffer.va() + kMiB - kPage));
  EXPECT_FALSE(device.revoked(buffer.va() + kSkew)) << "still there";
  nic.remove(mr);
}

// The area that a bare call leaves mapped remains one: the kernel moves no two.
TEST_F(MemoryWatch, WhatStaysMappedIsOfTheSameArea) {
  needs_watch();
  constexpr int kLeaves = 4;  // MREMAP_DONTUNMAP
  for (const size_t first : {size_t{0}, size_t{4}}) {
    Buffer buffer(16 * kPage), target(16 * kPage);
    Nic::Mr mr;
    ASSERT_TRUE(nic.add(buffer.va() + 8 * kPage + kSkew, 1000, mr)) << nic.error;
    void* const moved = memory::raw_mremap(buffer.data() + first * kPage, 3 * kPage, 3 * kPage,
                                           MREMAP_MAYMOVE | kLeaves, nullptr);
    ASSERT_NE(moved, MAP_FAILED) << std::strerror(errno);
    wait_for_revoker();
    ASSERT_EQ(target.data(), memory::raw_mremap(buffer.data(), 16 * kPage, 16 * kPage,
                                                MREMAP_MAYMOVE | MREMAP_FIXED, target.data()))
        << std::strerror(errno);
    wait_for_revoker();
    EXPECT_EQ(device.place_of(buffer.va() + 8 * kPage), target.va() + 8 * kPage);
    nic.remove(mr);
    raw_munmap(moved, 3 * kPage);
    device.forget_revocations();
  }
}

// So does what had been moved by a bare call before: only the kernel knows that it is watched.
TEST_F(MemoryWatch, WhatStaysMappedOfMovedMemoryIsOfTheSameArea) {
  needs_watch();
  constexpr int kLeaves = 4;  // MREMAP_DONTUNMAP
  Buffer buffer(16 * kPage), away(3 * kPage), target(3 * kPage);
  Nic::Mr mr;
  ASSERT_TRUE(nic.add(buffer.va() + 8 * kPage + kSkew, 1000, mr)) << nic.error;
  constexpr int kMoves = MREMAP_MAYMOVE | MREMAP_FIXED;
  ASSERT_EQ(away.data(),
            memory::raw_mremap(buffer.data(), 3 * kPage, 3 * kPage, kMoves, away.data()));
  wait_for_revoker();
  void* const moved =
      memory::raw_mremap(away.data() + kPage, kPage, kPage, MREMAP_MAYMOVE | kLeaves, nullptr);
  ASSERT_NE(moved, MAP_FAILED) << std::strerror(errno);
  wait_for_revoker();
  EXPECT_EQ(target.data(),
            memory::raw_mremap(away.data(), 3 * kPage, 3 * kPage, kMoves, target.data()))
      << std::strerror(errno);
  nic.remove(mr);
  raw_munmap(moved, kPage);
}

// Private memory of a file is watched as well, where the kernel can (Linux 6.7).
TEST_F(MemoryWatch, RawUnmapOfAPrivateFileIsTold) {
  needs_watch();
  const UniqueFd file = unlinked_file(4 * kPage);
  Buffer buffer(4 * kPage, MAP_PRIVATE, file.get());
  Nic::Mr mr;
  ASSERT_TRUE(nic.add(buffer.va(), 4 * kPage, mr)) << nic.error;
  ASSERT_EQ(0, raw_munmap(buffer.data(), kPage));
  wait_for_revoker();
  if (!registrar().watches_any_memory()) GTEST_SKIP() << "the kernel can't";
  EXPECT_TRUE(device.revoked(buffer.va()));
  EXPECT_FALSE(device.revoked(buffer.va() + kPage));
  Buffer target(3 * kPage);
  ASSERT_EQ(target.data(), memory::raw_mremap(buffer.data() + kPage, 3 * kPage, 3 * kPage,
                                              MREMAP_MAYMOVE | MREMAP_FIXED, target.data()));
  wait_for_revoker();
  EXPECT_EQ(device.place_of(buffer.va() + kPage), target.va());
  nic.remove(mr);
}

// Shared memory that hostnicd can't map is kept in a mapping of our own, whatever the program does
// to its mapping.
TEST_F(MemoryWatch, SharedMemoryIsKept) {
  const UniqueFd file(memfd_create("sealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(file.get(), 4 * kPage), 0);
  Buffer buffer(4 * kPage, MAP_SHARED, file.get());
  ASSERT_EQ(fcntl(file.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE), 0);
  buffer.fill(5);
  auto first = registrar().add(buffer.va() + kSkew, 3 * kPage, true);
  ASSERT_TRUE(first) << first.error().message;
  auto second = registrar().add(buffer.va() + kSkew, 3 * kPage, true);
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_NE(first->number, 0u);
  registrar().tell_pins(*first);
  const uint64_t place = device.place_of(buffer.va() + kSkew);
  ASSERT_NE(place, 0u);
  ASSERT_NE(place, buffer.va() + kSkew);
  registrar().remove(buffer.va() + kSkew, 3 * kPage, second->number);
  ASSERT_EQ(mprotect(buffer.data(), 4 * kPage, PROT_NONE), 0);
  ASSERT_NE(MAP_FAILED, map_fixed(buffer.va(), 4 * kPage));
  std::byte byte{};
  ASSERT_EQ(read_client(registrar().mem_fd(), place, {&byte, 1}), MemFdResult::kOk);
  EXPECT_EQ(byte, Buffer::pattern(5, kSkew));
  byte = std::byte{77};
  ASSERT_EQ(write_client(registrar().mem_fd(), place, {&byte, 1}), MemFdResult::kOk);
  std::byte written{};
  ASSERT_EQ(pread(file.get(), &written, 1, kSkew), 1);
  EXPECT_EQ(written, byte);
  registrar().remove(buffer.va() + kSkew, 3 * kPage, first->number);
  EXPECT_NE(read_client(registrar().mem_fd(), place, {&byte, 1}), MemFdResult::kOk)
      << "nothing is kept for nobody";
}

// A program that closes the gate again and again lets the NIC through.
TEST_F(MemoryWatch, NicsGetThroughWhereMappingsChangeAllTheTime) {
  Buffer buffer(kMiB);
  Nic::Mr mr;
  ASSERT_TRUE(nic.add(buffer.va() + kSkew, kMiB - kSkew, mr)) << nic.error;
  std::atomic<bool> over{false};
  std::vector<std::thread> changers;
  for (int i = 0; i < 4; i++)
    changers.emplace_back([&, i] {
      // Registered again and again, so that each unmapping concerns a region.
      while (!over) {
        Buffer other(4 * kPage);
        Nic own(registrar().mirror_fd());
        Nic::Mr region;
        if (!own.add(other.va() + kSkew, kPage + static_cast<uint64_t>(i), region)) continue;
        map_fixed(other.va(), 4 * kPage);  // a gap might be taken by another of them
        own.remove(region);
      }
    });
  int written = 0;
  EXPECT_TRUE(comes_true([&] {
    for (int tries = 0; tries < 100; tries++)
      written += device.write(buffer.va() + 200, std::byte{1});
    return written > 100;
  }));
  over = true;
  for (std::thread& changer : changers) changer.join();
  nic.remove(mr);
}

TEST_F(MemoryWatch, FreeIsTold) {
  needs_watch();
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "AddressSanitizer keeps freed memory for a while";
#endif
  mallopt(M_MMAP_THRESHOLD, 128 << 10);
  // More than the heap may have left from other tests.
  auto* block = static_cast<std::byte*>(std::malloc(64 * kMiB));
  const auto va = reinterpret_cast<uint64_t>(block);
  std::memset(block, 1, kMiB);
  Nic::Mr mr;
  ASSERT_TRUE(nic.add(va, kMiB, mr)) << nic.error;
  std::free(block);
  wait_for_revoker();
  EXPECT_TRUE(device.revoked(va));
  nic.remove(mr);
}

// Where userfaultfd is forbidden nobody tells of what libc unmaps by itself.
class MemoryUntold : public MemoryTest {
 protected:
  // Runs `body(nic, device)` in a process without userfaultfd.
  template <typename Body>
  void without_userfaultfd(Body body) {
#ifdef __SANITIZE_ADDRESS__
    GTEST_SKIP() << "AddressSanitizer keeps freed memory for a while";
#endif
    in_child([&] {
      ASSERT_TRUE(forbid_userfaultfd()) << std::strerror(errno);
      mallopt(M_MMAP_THRESHOLD, 128 << 10);
      shared_mirror();
      ASSERT_NE(registrar().status().find("through the mem fd: userfaultfd"), std::string::npos)
          << registrar().status();
      Device device;
      Nic nic(registrar().mirror_fd());
      body(nic, device);
    });
  }
  // Registers [va, va + length), does `change`, and waits until what it did is told.
  template <typename Change>
  static void change_registered(Nic& nic, uint64_t va, uint64_t length, Change change) {
    Nic::Mr mr, later;
    ASSERT_TRUE(nic.add(va, length, mr)) << nic.error;
    change();
    Buffer other(kPage);
    ASSERT_TRUE(nic.add(other.va(), 64, later)) << nic.error;
  }
};

TEST_F(MemoryUntold, FreedMappingsAreNoticed) {
  without_userfaultfd([](Nic& nic, Device& device) {
    void* block = std::malloc(64 * kMiB);
    const auto va = reinterpret_cast<uint64_t>(block);
    change_registered(nic, va, kMiB, [&] { std::free(block); });
    EXPECT_TRUE(device.revoked(va));
    EXPECT_TRUE(device.revoked(va + kMiB - 1));
  });
}

TEST_F(MemoryUntold, ShrunkMappingsAreNoticed) {
  without_userfaultfd([](Nic& nic, Device& device) {
    void* block = std::malloc(64 * kMiB);
    const auto va = reinterpret_cast<uint64_t>(block);
    change_registered(nic, va, 2 * kMiB, [&] { ASSERT_EQ(block, std::realloc(block, kMiB)); });
    EXPECT_FALSE(device.revoked(va));
    EXPECT_FALSE(device.revoked(va + kMiB - 1)) << "still there";
    EXPECT_TRUE(device.revoked(va + 2 * kMiB - 1));
  });
}

TEST_F(MemoryUntold, AHeapThatEndsEarlierIsNoticed) {
  without_userfaultfd([](Nic& nic, Device& device) {
    mallopt(M_TRIM_THRESHOLD, 256 << 10);
    mallopt(M_TOP_PAD, 0);
    constexpr size_t kBytes = 100'000, kCount = 16;
    void* blocks[kCount];
    for (void*& each : blocks) each = std::malloc(kBytes);
    const auto va = reinterpret_cast<uint64_t>(blocks[kCount - 1]);
    ASSERT_LT(va, reinterpret_cast<uint64_t>(sbrk(0))) << "no mapping of its own";
    change_registered(nic, va, kBytes, [&] {
      for (size_t i = kCount; i-- > 0;) std::free(blocks[i]);
    });
    ASSERT_GT(va, reinterpret_cast<uint64_t>(sbrk(0)));
    EXPECT_TRUE(device.revoked(va));
  });
}

TEST_F(MemoryUntold, AProgramsBreakIsNoticed) {
  without_userfaultfd([](Nic& nic, Device& device) {
    for (const bool by_brk : {false, true}) {
      auto* const old_break = static_cast<std::byte*>(sbrk(16 * kPage));
      ASSERT_NE(reinterpret_cast<void*>(-1), old_break);
      const uint64_t va = memory::page_up(reinterpret_cast<uint64_t>(old_break)) + kPage + kSkew;
      device.forget_revocations();
      change_registered(nic, va, 1000, [&] {
        if (by_brk)
          ASSERT_EQ(0, brk(old_break));
        else
          ASSERT_NE(reinterpret_cast<void*>(-1), sbrk(-static_cast<intptr_t>(16 * kPage)));
      });
      EXPECT_EQ(sbrk(0), old_break);
      EXPECT_TRUE(device.revoked(va)) << by_brk;
    }
  });
}

TEST_F(MemoryUntold, SegmentsThatAreAttachedOverAreNoticed) {
  without_userfaultfd([](Nic& nic, Device& device) {
    const int id = shmget(IPC_PRIVATE, 2 * kPage, IPC_CREAT | 0600);
    ASSERT_GE(id, 0);
    Buffer buffer(4 * kPage);
    change_registered(nic, buffer.va(), 4 * kPage, [&] {
      ASSERT_EQ(buffer.data(), shmat(id, buffer.data() + 50, SHM_REMAP | SHM_RND));
    });
    EXPECT_TRUE(device.revoked(buffer.va()));
    EXPECT_TRUE(device.revoked(buffer.va() + 2 * kPage - 1));
    EXPECT_FALSE(device.revoked(buffer.va() + 2 * kPage));
    EXPECT_EQ(shmdt(buffer.data()), 0);
    shmctl(id, IPC_RMID, nullptr);
  });
}

TEST_F(MemoryWatch, ShrinkingHeapIsTold) {
  needs_watch();
  in_child([&] {
    shared_mirror();
    Device child_device;
    Nic child_nic(registrar().mirror_fd());
    auto* old_break = static_cast<std::byte*>(sbrk(16 * kPage));
    ASSERT_NE(reinterpret_cast<void*>(-1), old_break);
    const uint64_t va = memory::page_up(reinterpret_cast<uint64_t>(old_break)) + kPage + kSkew;
    Nic::Mr mr;
    ASSERT_TRUE(child_nic.add(va, 1000, mr)) << child_nic.error;
    ASSERT_NE(reinterpret_cast<void*>(-1), sbrk(-static_cast<intptr_t>(16 * kPage)));
    Buffer other(kPage);
    Nic::Mr later;
    ASSERT_TRUE(child_nic.add(other.va(), 64, later)) << child_nic.error;
    EXPECT_TRUE(child_device.revoked(va));
  });
}

TEST_F(MemoryWatch, OnDemandIsNotTold) {
  needs_watch();
  Buffer buffer(kMiB);
  Nic::Mr mr;
  ASSERT_TRUE(nic.add_on_demand(buffer.va(), kMiB, mr)) << nic.error;
  const size_t before = device.revocations(buffer.va(), kMiB);
  ASSERT_EQ(0, munmap(buffer.data(), kMiB));
  ASSERT_NE(MAP_FAILED, map_fixed(buffer.va(), kMiB));
  wait_for_revoker();
  EXPECT_EQ(before, device.revocations(buffer.va(), kMiB));
  nic.remove(mr);
}

TEST_F(MemoryWatch, UnregisteredMemoryIsWatchedNoMore) {
  needs_watch();
  Buffer buffer(kMiB);
  Nic::Mr mr;
  ASSERT_TRUE(nic.add(buffer.va() + kSkew, kMiB - 2 * kSkew, mr)) << nic.error;
  nic.remove(mr);
  const size_t before = device.revocations(buffer.va(), kMiB);
  ASSERT_EQ(0, raw_munmap(buffer.data(), kMiB));
  wait_for_revoker();
  EXPECT_EQ(before, device.revocations(buffer.va(), kMiB));
}

// The kernel moves one area, and watched memory is one of its own.
TEST_F(MemoryWatch, MemoryBesideWhatIsRegisteredIsWatchedNoMore) {
  needs_watch();
  const UniqueFd file = unlinked_file(kPage);
  if (!registrar().watches_any_memory()) GTEST_SKIP() << "the kernel can't watch a private file";
  Buffer buffer(4 * kPage);
  ASSERT_NE(MAP_FAILED, memory::raw_mmap(buffer.data() + 3 * kPage, kPage, PROT_READ | PROT_WRITE,
                                         MAP_PRIVATE | MAP_FIXED, file.get(), 0));
  ASSERT_EQ(0, raw_munmap(buffer.data(), kPage));
  Nic::Mr mr, beside;
  ASSERT_TRUE(nic.add(buffer.va() + kPage + kSkew, 1000, mr)) << nic.error;
  ASSERT_TRUE(nic.add(buffer.va() + 3 * kPage + kSkew, 1000, beside)) << nic.error;
  nic.remove(mr);
  ASSERT_NE(MAP_FAILED, map_fixed(buffer.va(), kPage));
  Buffer target(3 * kPage);
  EXPECT_EQ(target.data(), memory::raw_mremap(buffer.data(), 3 * kPage, 3 * kPage,
                                              MREMAP_MAYMOVE | MREMAP_FIXED, target.data()))
      << std::strerror(errno);
  nic.remove(beside);
}

// Each range costs two areas, so a thousand must not be watched one by one.
TEST_F(MemoryWatch, ManySmallRegionsStayFewAreas) {
  needs_watch();
  constexpr size_t kRegions = 4000;
  Buffer buffer(2 * kRegions * kPage);
  const size_t before = area_count();
  std::vector<Nic::Mr> mrs(kRegions);
  for (size_t i = 0; i < kRegions; i++)
    ASSERT_TRUE(nic.add(buffer.va() + 2 * i * kPage + kSkew, 64, mrs[i])) << nic.error;
  EXPECT_LT(area_count(), before + 1500);
  for (const Nic::Mr& mr : mrs) nic.remove(mr);
  EXPECT_LT(area_count(), before + 20);
}

// The event of an unmapping is pending, or about to be, when another thread forks.
TEST_F(MemoryWatch, ForksWhileMemoryGoes) {
  std::atomic<bool> stop{false};
  wait_for_revoker();
  std::thread unmapper([&] {
    while (!stop.load()) {
      // A Buffer would unmap it once more, and by then it may be another thread's.
      void* const page =
          mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      ASSERT_NE(page, MAP_FAILED);
      Nic::Mr mr;
      ASSERT_TRUE(nic.add(reinterpret_cast<uint64_t>(page) + kSkew, 64, mr)) << nic.error;
      raw_munmap(page, kPage);
      nic.remove(mr);
    }
  });
  for (int i = 0; i < 50; i++)
    in_child([] {
      // Its own memory and mappings, with nobody else's thread to wait for.
      Buffer own(kPage);
      raw_munmap(own.data(), kPage);
    });
  stop.store(true);
  unmapper.join();
}

}  // namespace
}  // namespace hostnic::memory_testing
