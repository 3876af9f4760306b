// SPDX-License-Identifier: BSD-3-Clause
// Migrated memory that bare system calls move, grow and duplicate: the program finds what private
// memory has then, and keys follow.
#include <linux/io_uring.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include <cstring>

#include "tests/unit/memory/watching.h"

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

namespace hostnic::memory_testing {
namespace {

using memory::raw_mremap;
using memory::raw_munmap;

constexpr size_t kLength = 64 * kPage;

class MemoryBareMoves : public MemoryWatch {
 protected:
  void SetUp() override {
    MemoryWatch::SetUp();
    if (!migrates()) GTEST_SKIP() << registrar().status();
  }
  void add(const Buffer& buffer, Nic::Mr& mr, size_t length) {
    ASSERT_TRUE(nic.add(buffer.va(), length, mr)) << nic.error;
    ASSERT_TRUE(all_of_kind(mr, RegionKind::kMirror)) << registrar().status();
  }
  static size_t changed(const std::byte* at, size_t length, unsigned seed, size_t first = 0) {
    size_t count = 0;
    for (size_t i = 0; i < length; i++) count += at[i] != Buffer::pattern(seed, first + i);
    return count;
  }
  static size_t not_zero(const std::byte* at, size_t length) {
    return static_cast<size_t>(
        std::count_if(at, at + length, [](std::byte each) { return each != std::byte{0}; }));
  }
  // What a peer reads and writes by a key to `va` is what the program has at `at`.
  void expect_key_follows(uint64_t va, std::byte* at) {
    wait_for_revoker();
    bool left_mirror = false;
    EXPECT_EQ(device.place_of(va, &left_mirror), reinterpret_cast<uint64_t>(at));
    EXPECT_TRUE(left_mirror);
  }
};

TEST_F(MemoryBareMoves, PagesMove) {
  Buffer buffer(kLength), target(kLength);
  buffer.fill(3);
  Nic::Mr mr;
  add(buffer, mr, kLength);
  ASSERT_EQ(target.data(), raw_mremap(buffer.data(), kLength, kLength,
                                      MREMAP_MAYMOVE | MREMAP_FIXED, target.data()));
  EXPECT_EQ(changed(target.data(), kLength, 3), 0u);
  expect_key_follows(buffer.va(), target.data());
  // Other memory that comes to the old place, and is registered, is other memory.
  ASSERT_EQ(map_fixed(buffer.va(), kLength), buffer.data());
  Nic::Mr second;
  ASSERT_TRUE(nic.add(buffer.va(), kLength, second)) << nic.error;
  std::memset(buffer.data(), 9, kLength);
  EXPECT_EQ(changed(target.data(), kLength, 3), 0u);
  nic.remove(second);
  nic.remove(mr);
  EXPECT_EQ(0u, registrar().counters().in_mirror_bytes);
  EXPECT_EQ(mirror_file_bytes(registrar().mirror_fd()), 0u);
}

// What the call takes the place of is reported before it. At the old address lies something else
// by then, which no NIC may reach.
TEST_F(MemoryBareMoves, NothingGetsThroughBeforeTheMoveIsTold) {
  for (int round = 0; round < 20; round++) {
    Buffer buffer(kLength), target(kLength);
    buffer.fill(3);
    Nic::Mr mr, replaced;
    add(buffer, mr, kLength);
    add(target, replaced, kLength);
    ASSERT_EQ(target.data(), raw_mremap(buffer.data(), kLength, kLength,
                                        MREMAP_MAYMOVE | MREMAP_FIXED, target.data()));
    expect_key_follows(buffer.va(), target.data());
    EXPECT_FALSE(device.opened_too_early(buffer.va())) << "round " << round;
    nic.remove(replaced);
    nic.remove(mr);
    wait_for_revoker();
    device.forget_revocations();
  }
}

TEST_F(MemoryBareMoves, WhatStaysMappedIsEmpty) {
  for (const int fixed : {0, MREMAP_FIXED}) {
    device.forget_revocations();
    Buffer buffer(kLength), target(kLength);
    buffer.fill(3);
    Nic::Mr mr;
    add(buffer, mr, kLength);
    void* const to =
        raw_mremap(buffer.data() + kPage, kLength - 2 * kPage, kLength - 2 * kPage,
                   MREMAP_MAYMOVE | MREMAP_DONTUNMAP | fixed, fixed != 0 ? target.data() : nullptr);
    ASSERT_NE(to, MAP_FAILED) << std::strerror(errno);
    auto* const moved = static_cast<std::byte*>(to);
    EXPECT_EQ(changed(moved, kLength - 2 * kPage, 3, kPage), 0u);
    EXPECT_EQ(not_zero(buffer.data() + kPage, kLength - 2 * kPage), 0u);
    std::memset(buffer.data() + kPage, 7, kLength - 2 * kPage);
    EXPECT_EQ(changed(moved, kLength - 2 * kPage, 3, kPage), 0u) << "they are two pages";
    EXPECT_EQ(changed(buffer.data(), kPage, 3), 0u);
    expect_key_follows(buffer.va() + kPage, moved);
    nic.remove(mr);
    EXPECT_EQ(changed(moved, kLength - 2 * kPage, 3, kPage), 0u);
    raw_munmap(moved, kLength - 2 * kPage);
  }
}

// mlockall(MCL_FUTURE) locks what is mapped from then on, and not what moves.
TEST_F(MemoryBareMoves, WhatWasNotLockedIsNotLater) {
  Buffer buffer(kLength), target(kLength);
  buffer.fill(3);
  Nic::Mr mr;
  add(buffer, mr, kLength);
  if (mlockall(MCL_FUTURE) != 0) GTEST_SKIP() << std::strerror(errno);
  ASSERT_EQ(target.data(), raw_mremap(buffer.data(), kLength, kLength,
                                      MREMAP_MAYMOVE | MREMAP_FIXED, target.data()));
  EXPECT_EQ(changed(target.data(), kLength, 3), 0u);
  EXPECT_EQ(madvise(target.data(), kPage, MADV_DONTNEED), 0) << std::strerror(errno);
  munlockall();
  nic.remove(mr);
}

// Moves follow each other at once, and the key follows all of them.
TEST_F(MemoryBareMoves, PagesMoveOn) {
  Buffer buffer(kLength), first(kLength), second(kLength);
  for (int round = 0; round < 50; round++) {
    device.forget_revocations();
    ASSERT_EQ(map_fixed(buffer.va(), kLength), buffer.data());
    buffer.fill(3);
    Nic::Mr mr;
    add(buffer, mr, kLength);
    constexpr int kFlags = MREMAP_MAYMOVE | MREMAP_FIXED;
    ASSERT_NE(MAP_FAILED, raw_mremap(buffer.data(), kLength, kLength, kFlags, first.data()));
    ASSERT_NE(MAP_FAILED, raw_mremap(first.data(), kLength, kLength, kFlags, second.data()));
    EXPECT_EQ(changed(second.data(), kLength, 3), 0u);
    expect_key_follows(buffer.va() + kPage, second.data() + kPage);
    nic.remove(mr);
    if (HasFailure()) break;
  }
}

// What lies behind a part in the mirror is somebody's.
TEST_F(MemoryBareMoves, WhatHasGrownIsEmpty) {
  Buffer buffer(kLength);
  buffer.fill(3);
  Nic::Mr mr;
  add(buffer, mr, kLength);
  void* const to = raw_mremap(buffer.data(), 8 * kPage, 24 * kPage, MREMAP_MAYMOVE, nullptr);
  ASSERT_NE(to, MAP_FAILED) << std::strerror(errno);
  auto* const grown = static_cast<std::byte*>(to);
  ASSERT_NE(grown, buffer.data());
  EXPECT_EQ(changed(grown, 8 * kPage, 3), 0u);
  EXPECT_EQ(not_zero(grown + 8 * kPage, 16 * kPage), 0u);
  std::memset(grown + 8 * kPage, 7, 16 * kPage);
  EXPECT_EQ(changed(buffer.data() + 8 * kPage, kLength - 8 * kPage, 3, 8 * kPage), 0u);
  expect_key_follows(buffer.va() + kPage, grown + kPage);
  // It is one area.
  void* const again = raw_mremap(grown, 24 * kPage, 30 * kPage, MREMAP_MAYMOVE, nullptr);
  ASSERT_NE(again, MAP_FAILED) << std::strerror(errno);
  EXPECT_EQ(changed(static_cast<std::byte*>(again), 8 * kPage, 3), 0u);
  nic.remove(mr);
  raw_munmap(again, 30 * kPage);
}

// What has grown in place is a child's, too, when what had migrated before it has come home.
TEST_F(MemoryBareMoves, WhatHasGrownInPlaceIsInAChild) {
  Buffer buffer(kLength);
  std::memset(buffer.data(), 6, 32 * kPage);
  Nic::Mr mr;
  add(buffer, mr, 32 * kPage);
  ASSERT_EQ(raw_munmap(buffer.data() + 32 * kPage, 32 * kPage), 0);
  ASSERT_EQ(buffer.data(), raw_mremap(buffer.data(), 32 * kPage, kLength, 0, nullptr));
  std::memset(buffer.data() + 32 * kPage, 8, 32 * kPage);
  nic.remove(mr);
  const pid_t child = _Fork();
  if (child == 0) _exit(buffer.data()[40 * kPage] == std::byte{8} ? 0 : 1);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "by _Fork";
  in_child([&] {
    EXPECT_EQ(buffer.data()[31 * kPage], std::byte{6});
    EXPECT_EQ(buffer.data()[40 * kPage], std::byte{8});
    std::memset(buffer.data(), 1, kLength);
  });
  EXPECT_EQ(buffer.data()[0], std::byte{6});
  EXPECT_EQ(buffer.data()[40 * kPage], std::byte{8}) << "a child's pages are its own";
}

// What is unmapped is followed later, and may have grown anew by then.
TEST_F(MemoryBareMoves, WhatHasGrownInPlaceAgainIsEmpty) {
  for (int round = 0; round < 10 && !HasFailure(); round++) {
    Buffer buffer(8 * kPage);
    std::byte* const growth = buffer.data() + 2 * kPage;
    std::memset(buffer.data(), 6, 2 * kPage);
    // Without a Nic: its mapping of the mirror, in this process, would show the pages, too.
    auto mr = registrar().add(buffer.va(), 2 * kPage, true);
    ASSERT_TRUE(mr) << mr.error().message;
    mr->registering = {};
    ASSERT_EQ(raw_munmap(growth, 6 * kPage), 0);
    const auto resize = [&](size_t from, size_t to) {
      return raw_mremap(buffer.data(), from * kPage, to * kPage, 0, nullptr);
    };
    ASSERT_EQ(buffer.data(), resize(2, 4));
    std::memset(growth, 8, 2 * kPage);
    device.is_slow = true;
    if (round % 2 == 0)
      ASSERT_EQ(raw_munmap(growth, 2 * kPage), 0);
    else
      ASSERT_EQ(buffer.data(), resize(4, 2));
    ASSERT_EQ(buffer.data(), resize(2, 4)) << std::strerror(errno);
    EXPECT_EQ(not_zero(growth, 2 * kPage), 0u) << "round " << round;
    std::memset(growth, 9, 2 * kPage);
    wait_for_revoker();
    device.is_slow = false;
    EXPECT_EQ(std::count(growth, growth + 2 * kPage, std::byte{9}), ptrdiff_t{2 * kPage}) << round;
    registrar().remove(buffer.va(), 2 * kPage, mr->number);
  }
}

// What has grown in place is registered, and a part of it replaced: the rest stays as it is.
TEST_F(MemoryBareMoves, WhatHasGrownInPlaceIsReplacedInPart) {
  Buffer buffer(8 * kPage), other(kPage);
  std::memset(buffer.data(), 6, 2 * kPage);
  Nic::Mr first, second;
  add(buffer, first, 2 * kPage);
  ASSERT_EQ(raw_munmap(buffer.data() + 2 * kPage, 6 * kPage), 0);
  ASSERT_EQ(buffer.data() + kPage, raw_mremap(buffer.data() + kPage, kPage, 3 * kPage, 0, nullptr));
  std::memset(buffer.data() + 2 * kPage, 8, 2 * kPage);
  ASSERT_TRUE(nic.add(buffer.va() + kPage, 3 * kPage, second)) << nic.error;
  std::memset(other.data(), 9, kPage);
  ASSERT_EQ(
      buffer.data() + 2 * kPage,
      mremap(other.data(), kPage, kPage, MREMAP_MAYMOVE | MREMAP_FIXED, buffer.data() + 2 * kPage));
  const auto look = [&](const char* when) {
    const std::byte expected[] = {std::byte{6}, std::byte{6}, std::byte{9}, std::byte{8}};
    for (size_t i = 0; i < 4; i++) EXPECT_EQ(buffer.data()[i * kPage], expected[i]) << i << when;
  };
  wait_for_revoker();
  look(" after the move");
  nic.remove(second);
  look(" without the second");
  nic.remove(first);
  look(" at the end");
  wait_for_revoker();
  look(" later");
}

// What was mapped over the mirror's pages moves, and is nobody's but the program's: the key keeps
// the pages, also when nobody has followed the kernel's report yet.
TEST_F(MemoryBareMoves, WhatWasMappedOverMovesWithoutTheKey) {
  for (int round = 0; round < 20; round++) {
    Buffer buffer(4 * kPage), target(4 * kPage);
    Nic::Mr mr;
    add(buffer, mr, 4 * kPage);
    device.forget_revocations();
    device.is_slow = true;
    ASSERT_EQ(map_fixed(buffer.va(), 4 * kPage), buffer.data());
    ASSERT_EQ(target.data(), mremap(buffer.data(), 4 * kPage, 4 * kPage,
                                    MREMAP_MAYMOVE | MREMAP_FIXED, target.data()));
    device.is_slow = false;
    wait_for_revoker();
    ASSERT_FALSE(device.left_mirror(buffer.va())) << "round " << round;
    nic.remove(mr);
  }
}

// Growth in place is told to nobody. What it shows is empty, whatever was there before.
TEST_F(MemoryBareMoves, WhatHasGrownInPlaceIsEmpty) {
  Buffer buffer(kLength);
  Nic::Mr mr, second;
  add(buffer, mr, kLength);
  // The end goes, while a key leads to it.
  std::memset(buffer.data(), 5, kLength);
  ASSERT_EQ(raw_munmap(buffer.data() + 32 * kPage, 32 * kPage), 0);
  wait_for_revoker();
  auto* at = static_cast<std::byte*>(
      raw_mremap(buffer.data(), 32 * kPage, 40 * kPage, MREMAP_MAYMOVE, nullptr));
  ASSERT_NE(static_cast<void*>(at), MAP_FAILED) << std::strerror(errno);
  EXPECT_EQ(not_zero(at + 32 * kPage, 8 * kPage), 0u);
  nic.remove(mr);
  raw_munmap(at, 40 * kPage);

  // libc's munmap does the same.
  Buffer third(kLength);
  add(third, mr, kLength);
  std::memset(third.data(), 5, kLength);
  ASSERT_EQ(munmap(third.data() + 32 * kPage, 32 * kPage), 0);
  at = static_cast<std::byte*>(
      raw_mremap(third.data(), 32 * kPage, 40 * kPage, MREMAP_MAYMOVE, nullptr));
  ASSERT_NE(static_cast<void*>(at), MAP_FAILED) << std::strerror(errno);
  EXPECT_EQ(not_zero(at + 32 * kPage, 8 * kPage), 0u);
  nic.remove(mr);
  raw_munmap(at, 40 * kPage);

  // What had grown goes, and what comes next is registered.
  Buffer other(kLength);
  ASSERT_EQ(raw_munmap(other.data() + 32 * kPage, 32 * kPage), 0);
  std::memset(other.data(), 6, 32 * kPage);
  add(other, mr, 32 * kPage);
  ASSERT_EQ(other.data(), raw_mremap(other.data(), 32 * kPage, kLength, 0, nullptr));
  EXPECT_EQ(not_zero(other.data() + 32 * kPage, 32 * kPage), 0u);
  std::memset(other.data() + 32 * kPage, 8, 32 * kPage);
  in_child([&] {
    EXPECT_EQ(other.data()[40 * kPage], std::byte{8});
    std::memset(other.data(), 1, kLength);
  });
  EXPECT_EQ(other.data()[40 * kPage], std::byte{8});
  EXPECT_EQ(other.data()[0], std::byte{6});
  ASSERT_EQ(raw_munmap(other.data() + 32 * kPage, 32 * kPage), 0);
  ASSERT_EQ(map_fixed(other.va() + 32 * kPage, 32 * kPage), other.data() + 32 * kPage);
  other.data()[33 * kPage] = std::byte{2};
  ASSERT_TRUE(nic.add(other.va() + 32 * kPage, 32 * kPage, second)) << nic.error;
  EXPECT_EQ(not_zero(other.data() + 34 * kPage, 30 * kPage), 0u);
  EXPECT_EQ(nic.read(second, 2 * kPage, 1)[0], std::byte{0});
  EXPECT_EQ(nic.read(second, kPage, 1)[0], std::byte{2});
  nic.remove(second);
  nic.remove(mr);
  EXPECT_LT(mirror_file_bytes(registrar().mirror_fd()), 16 * kMiB)
      << "copies for children made pages where the mirror had none";
}

// What lies behind has gone before anything before it came to the mirror, or what lay between goes,
// of which nobody is told either.
TEST_F(MemoryBareMoves, WhatHasGrownInPlaceToWhatWasRegisteredIsEmpty) {
  for (const bool by_libc : {false, true}) {
    for (const bool is_last : {false, true}) {
      Buffer buffer(kLength);
      Nic::Mr first, last;
      std::memset(buffer.data(), 5, kLength);
      if (!is_last) add(buffer, first, 8 * kPage);
      ASSERT_TRUE(nic.add(buffer.va() + 32 * kPage, 32 * kPage, last)) << nic.error;
      void* const end = buffer.data() + 32 * kPage;
      ASSERT_EQ(by_libc ? munmap(end, 32 * kPage) : raw_munmap(end, 32 * kPage), 0);
      wait_for_revoker();
      ASSERT_EQ(raw_munmap(buffer.data() + 8 * kPage, 24 * kPage), 0);
      if (is_last) add(buffer, first, 8 * kPage);
      auto* const at = static_cast<std::byte*>(
          raw_mremap(buffer.data(), 8 * kPage, 40 * kPage, MREMAP_MAYMOVE, nullptr));
      ASSERT_NE(static_cast<void*>(at), MAP_FAILED) << std::strerror(errno);
      EXPECT_EQ(not_zero(at + 8 * kPage, 32 * kPage), 0u) << by_libc << is_last;
      EXPECT_EQ(nic.read(last, 7 * kPage, 1)[0], std::byte{5});
      nic.remove(last);
      nic.remove(first);
      raw_munmap(at, 40 * kPage);
    }
  }
}

// What was mapped over registered memory goes, and leaves a gap behind other pages of the mirror.
TEST_F(MemoryBareMoves, NothingGrowsIntoWhatASegmentHasLeft) {
  Buffer buffer(kLength);
  Nic::Mr mr;
  std::memset(buffer.data(), 5, kLength);
  add(buffer, mr, kLength);
  const int id = shmget(IPC_PRIVATE, 32 * kPage, IPC_CREAT | 0600);
  void* const half = buffer.data() + 32 * kPage;
  ASSERT_EQ(half, shmat(id, half, SHM_REMAP)) << std::strerror(errno);
  shmctl(id, IPC_RMID, nullptr);
  ASSERT_EQ(0, shmdt(half)) << std::strerror(errno);
  void* const grown =
      memory::raw_mremap(buffer.data(), 32 * kPage, 33 * kPage, MREMAP_MAYMOVE, nullptr);
  ASSERT_NE(grown, MAP_FAILED) << std::strerror(errno);
  EXPECT_EQ(std::byte{5}, static_cast<std::byte*>(grown)[32 * kPage - 1]);
  EXPECT_EQ(std::byte{0}, static_cast<std::byte*>(grown)[32 * kPage]);
  nic.remove(mr);
  munmap(grown, 33 * kPage);
}

// A page that keeps memory from growing is not the program's: where it lies is free.
TEST_F(MemoryBareMoves, GuardsAreInNobodysWay) {
  enum class Way { kNoReplace, kGrow, kGrowLater, kAttach };
  for (const Way way : {Way::kNoReplace, Way::kGrow, Way::kGrowLater, Way::kAttach}) {
    Buffer buffer(kLength);
    Nic::Mr mr;
    std::memset(buffer.data(), 5, kLength);
    add(buffer, mr, kLength);
    std::byte* const gap = buffer.data() + 32 * kPage;
    ASSERT_EQ(raw_munmap(gap, 32 * kPage), 0);
    wait_for_revoker();
    memory::TextRoom room;
    memory::Area guard;
    ASSERT_TRUE(memory::next_area(reinterpret_cast<uint64_t>(gap), guard, room));
    EXPECT_EQ(guard.start, reinterpret_cast<uint64_t>(gap)) << "there is no guard";
    if (way == Way::kGrowLater) nic.remove(mr);
    if (way == Way::kNoReplace) {
      EXPECT_EQ(gap, mmap(gap, kPage, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0))
          << std::strerror(errno);
      EXPECT_EQ(MAP_FAILED, mmap(gap, kPage, PROT_READ,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0))
          << "what the program has mapped is not free";
      EXPECT_EQ(errno, EEXIST);
    } else if (way == Way::kAttach) {
      const int id = shmget(IPC_PRIVATE, kPage, IPC_CREAT | 0600);
      EXPECT_EQ(gap, shmat(id, gap, 0)) << std::strerror(errno);
      EXPECT_EQ(reinterpret_cast<void*>(-1), shmat(id, gap, 0)) << "the program's is not free";
      EXPECT_EQ(errno, EINVAL);
      shmctl(id, IPC_RMID, nullptr);
    } else {
      EXPECT_EQ(buffer.data(), mremap(buffer.data(), 32 * kPage, 33 * kPage, 0))
          << std::strerror(errno);
    }
    if (HasFailure()) break;
    EXPECT_EQ(not_zero(gap, kPage), 0u);
    EXPECT_EQ(buffer.data()[31 * kPage], std::byte{5});
    if (way == Way::kGrowLater) continue;
    EXPECT_EQ(nic.read(mr, 40 * kPage, 1)[0], std::byte{5}) << "the key has lost its pages";
    nic.remove(mr);
  }
}

// Pages that io_uring, or another adapter, has pinned move as they are, and whoever has them goes
// on using them.
TEST_F(MemoryBareMoves, PinnedPagesMove) {
  Buffer buffer(kLength);
  buffer.fill(3);
  Nic::Mr mr;
  add(buffer, mr, kLength);
  // Pages do not change their place beside a ring.
  io_uring_params parameters{};
  const UniqueFd ring(static_cast<int>(syscall(SYS_io_uring_setup, 1, &parameters)));
  if (ring.get() < 0) GTEST_SKIP() << "io_uring_setup: " << std::strerror(errno);
  iovec pinned{buffer.data(), kLength};
  if (syscall(SYS_io_uring_register, ring.get(), IORING_REGISTER_BUFFERS, &pinned, 1) != 0)
    GTEST_SKIP() << "io_uring_register: " << std::strerror(errno);
  void* const to = mremap(buffer.data(), kLength, 2 * kLength, MREMAP_MAYMOVE);
  ASSERT_NE(to, MAP_FAILED) << std::strerror(errno);
  auto* const grown = static_cast<std::byte*>(to);
  EXPECT_EQ(changed(grown, kLength, 3), 0u);
  EXPECT_EQ(not_zero(grown + kLength, kLength), 0u);
  expect_key_follows(buffer.va() + kPage, grown + kPage);
  // What the pinned pages get is there for the program.
  std::byte byte{77};
  ASSERT_EQ(pwrite(registrar().mirror_fd(), &byte, 1, static_cast<off_t>(buffer.va() + 5)), 1);
  EXPECT_EQ(grown[5], byte);
  nic.remove(mr);
  EXPECT_EQ(grown[5], byte);
  raw_munmap(grown, 2 * kLength);
}

}  // namespace
}  // namespace hostnic::memory_testing
