// SPDX-License-Identifier: BSD-3-Clause
// Much memory that libc's mremap moves stays in the mirror, and is the program's like any other.
#include "verbs-shim/memory/large_moves.h"

#include <malloc.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <cstring>

#include "tests/unit/memory/watching.h"

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

namespace hostnic::memory_testing {
namespace {

using memory::kLargeMoveBytes;
using memory::raw_munmap;

constexpr size_t kMuch = kLargeMoveBytes + 2 * kMiB;

class MemoryLargeMoves : public MemoryWatch {
 protected:
  void SetUp() override {
    MemoryWatch::SetUp();
    if (!migrates()) GTEST_SKIP() << registrar().status();
  }
  void add(const Buffer& buffer, Nic::Mr& mr) {
    buffer_fill(buffer);
    ASSERT_TRUE(nic.add(buffer.va(), buffer.size(), mr)) << nic.error;
    ASSERT_TRUE(all_of_kind(mr, RegionKind::kMirror)) << how_it_is();
  }
  static void buffer_fill(const Buffer& buffer) {
    for (size_t i = 0; i < buffer.size(); i += 61) buffer.data()[i] = Buffer::pattern(3, i);
  }
  static size_t changed(const std::byte* at, size_t length, size_t first = 0) {
    size_t count = 0;
    for (size_t i = (first + 60) / 61 * 61; i < first + length; i += 61)
      count += at[i - first] != Buffer::pattern(3, i);
    return count;
  }
  static size_t not_zero(const std::byte* at, size_t length) {
    return static_cast<size_t>(
        std::count_if(at, at + length, [](std::byte each) { return each != std::byte{0}; }));
  }
  // The bytes of [at, at + length) that are the mirror's.
  static size_t in_mirror(const std::byte* at, size_t length) {
    struct stat mirror {};
    EXPECT_EQ(0, fstat(registrar().mirror_fd(), &mirror));
    memory::RawVector<memory::Area> areas;
    const auto start = reinterpret_cast<uint64_t>(at);
    EXPECT_TRUE(memory::read_areas(start, start + length, areas));
    size_t bytes = 0;
    for (const memory::Area& area : areas)
      if (area.shared && area.inode == mirror.st_ino)
        bytes += std::min(area.end, start + length) - std::max(area.start, start);
    return bytes;
  }
  static std::byte* move(std::byte* from, size_t length, size_t new_length, const Buffer* to) {
    void* const at =
        mremap(from, length, new_length, MREMAP_MAYMOVE | (to != nullptr ? MREMAP_FIXED : 0),
               to != nullptr ? to->data() : nullptr);
    EXPECT_NE(at, MAP_FAILED) << std::strerror(errno);
    return at == MAP_FAILED ? nullptr : static_cast<std::byte*>(at);
  }
  void expect_key_follows(const Nic::Mr& mr, std::byte* at) {
    wait_for_revoker();
    bool left_mirror = false;
    EXPECT_EQ(device.place_of(mr.va, &left_mirror), reinterpret_cast<uint64_t>(at));
    EXPECT_TRUE(left_mirror);
  }
  // The old place has zeros, which are private memory, and the new one the bytes that were there.
  void move_and_leave_mapped(std::byte* to) {
    Buffer buffer(kMuch);
    Nic::Mr mr;
    add(buffer, mr);
    const int flags = MREMAP_MAYMOVE | MREMAP_DONTUNMAP | (to != nullptr ? MREMAP_FIXED : 0);
    void* const moved = mremap(buffer.data(), kMuch, kMuch, flags, to);
    ASSERT_NE(moved, MAP_FAILED) << std::strerror(errno);
    auto* const at = static_cast<std::byte*>(moved);
    EXPECT_EQ(in_mirror(at, kMuch), kMuch) << "nothing was copied";
    EXPECT_EQ(in_mirror(buffer.data(), kMuch), 0u);
    EXPECT_EQ(changed(at, kMuch), 0u);
    EXPECT_EQ(not_zero(buffer.data(), kMuch), 0u);
    std::memset(buffer.data(), 4, kMuch);
    EXPECT_EQ(changed(at, kMuch), 0u);
    expect_key_follows(mr, at);
    nic.remove(mr);
    if (to == nullptr) {
      ASSERT_EQ(munmap(at, kMuch), 0);
    }
  }
};

TEST_F(MemoryLargeMoves, PagesStayInTheMirror) {
  Buffer buffer(kMuch), target(kMuch);
  Nic::Mr mr;
  add(buffer, mr);
  ASSERT_EQ(target.data(), move(buffer.data(), kMuch, kMuch, &target));
  EXPECT_EQ(in_mirror(target.data(), kMuch), kMuch)
      << "nothing was copied; locked: " << memory::process_memory().locked_kb;
  EXPECT_EQ(changed(target.data(), kMuch), 0u);
  expect_key_follows(mr, target.data());
  // What comes to the old place, and is registered, is other memory.
  ASSERT_EQ(map_fixed(buffer.va(), kMuch), buffer.data());
  Nic::Mr second;
  ASSERT_TRUE(nic.add(buffer.va(), kMuch, second)) << nic.error;
  EXPECT_EQ(not_zero(buffer.data(), kMuch), 0u);
  std::memset(buffer.data(), 9, kMuch);
  EXPECT_EQ(changed(target.data(), kMuch), 0u);
  nic.remove(second);
  nic.remove(mr);
  EXPECT_EQ(changed(target.data(), kMuch), 0u);
  ASSERT_EQ(munmap(target.data(), kMuch), 0);
  ASSERT_NE(map_fixed(target.va(), kMuch), MAP_FAILED);  // a gap might be taken by somebody else
  wait_for_revoker();
  EXPECT_FALSE(
      memory::Migrator::has_pages(registrar().mirror_fd(), buffer.va(), buffer.va() + kMuch))
      << "nobody sees the pages any more";
}

TEST_F(MemoryLargeMoves, WhatGrowsIsEmptyAndMovesOn) {
  Buffer buffer(kMuch);
  Nic::Mr mr;
  add(buffer, mr);
  std::byte* at = move(buffer.data(), kMuch, kMuch + 4 * kMiB, nullptr);
  ASSERT_NE(at, nullptr);
  EXPECT_EQ(not_zero(at + kMuch, 4 * kMiB), 0u);
  std::memset(at + kMuch, 7, 4 * kMiB);
  EXPECT_EQ(changed(at, kMuch), 0u);
  expect_key_follows(mr, at);
  // With what has grown it is one piece for the program.
  Buffer target(kMuch + 4 * kMiB);
  ASSERT_EQ(move(at, kMuch + 4 * kMiB, kMuch + 4 * kMiB, &target), target.data());
  EXPECT_EQ(in_mirror(target.data(), kMuch + 4 * kMiB), kMuch);
  EXPECT_EQ(changed(target.data(), kMuch), 0u);
  EXPECT_EQ(target.data()[kMuch], std::byte{7});
  expect_key_follows(mr, target.data());
  at = move(target.data(), kMuch + 4 * kMiB, kMuch + 8 * kMiB, nullptr);
  ASSERT_NE(at, nullptr);
  EXPECT_EQ(changed(at, kMuch), 0u);
  EXPECT_EQ(at[kMuch + 4 * kMiB - 1], std::byte{7});
  EXPECT_EQ(not_zero(at + kMuch + 4 * kMiB, 4 * kMiB), 0u);
  nic.remove(mr);
  // Now a small part of it, and what lies beside it.
  Buffer small(4 * kPage);
  ASSERT_EQ(move(at + kMuch - 2 * kPage, 4 * kPage, 4 * kPage, &small), small.data());
  EXPECT_EQ(changed(small.data(), 2 * kPage, kMuch - 2 * kPage), 0u);
  EXPECT_EQ(small.data()[2 * kPage], std::byte{7});
  EXPECT_EQ(changed(at, kMuch - 2 * kPage), 0u);
  ASSERT_EQ(munmap(at, kMuch + 8 * kMiB), 0);
}

TEST_F(MemoryLargeMoves, WhatGrowsInPlaceIsEmpty) {
  Buffer buffer(kMuch), behind(kMuch);
  Nic::Mr mr, other;
  add(behind, other);
  add(buffer, mr);
  ASSERT_EQ(raw_munmap(buffer.data() + kMuch, kPage), 0);
  ASSERT_EQ(buffer.data(), mremap(buffer.data(), kMuch, kMuch + kPage, 0)) << std::strerror(errno);
  EXPECT_EQ(not_zero(buffer.data() + kMuch, kPage), 0u);
  EXPECT_EQ(changed(buffer.data(), kMuch), 0u);
  nic.remove(mr);
  nic.remove(other);
}

// The library's own mappings are in nobody's way: room that was free for the program stays so.
TEST_F(MemoryLargeMoves, WhatGrowsInPlaceFindsItsRoom) {
  Buffer buffer(3 * kMuch);
  ASSERT_EQ(raw_munmap(buffer.data() + kMuch, 2 * kMuch), 0);
  for (size_t i = 0; i < kMuch; i += 61) buffer.data()[i] = Buffer::pattern(3, i);
  Nic::Mr mr;
  ASSERT_TRUE(nic.add(buffer.va(), kMuch, mr)) << nic.error;
  ASSERT_EQ(buffer.data(), mremap(buffer.data(), kMuch, 2 * kMuch, 0)) << std::strerror(errno);
  EXPECT_EQ(changed(buffer.data(), kMuch), 0u);
  EXPECT_EQ(not_zero(buffer.data() + kMuch, kMuch), 0u);
  nic.remove(mr);
}

TEST_F(MemoryLargeMoves, WhatShrinksKeepsItsKey) {
  Buffer buffer(kMuch + kMiB), target(kMuch);
  Nic::Mr mr;
  add(buffer, mr);
  ASSERT_EQ(buffer.data(), mremap(buffer.data(), kMuch + kMiB, kMuch, 0)) << std::strerror(errno);
  ASSERT_EQ(map_fixed(buffer.va() + kMuch, kMiB), buffer.data() + kMuch);
  EXPECT_EQ(changed(buffer.data(), kMuch), 0u);
  EXPECT_EQ(nic.read(mr, kMuch + 61 - kMuch % 61, 1)[0],
            Buffer::pattern(3, kMuch + 61 - kMuch % 61));
  ASSERT_EQ(move(buffer.data(), kMuch, kMuch - kMiB, &target), target.data());
  EXPECT_EQ(changed(target.data(), kMuch - kMiB), 0u);
  nic.remove(mr);
}

TEST_F(MemoryLargeMoves, AChildHasItsOwn) {
  Buffer buffer(kMuch), target(kMuch);
  Nic::Mr mr;
  add(buffer, mr);
  ASSERT_EQ(target.data(), move(buffer.data(), kMuch, kMuch, &target));
  for (const bool registered : {true, false}) {
    if (!registered) nic.remove(mr);
    in_child([&] {
      EXPECT_EQ(changed(target.data(), kMuch), 0u);
      std::memset(target.data(), 1, kMuch);
    });
    EXPECT_EQ(changed(target.data(), kMuch), 0u) << "a child's pages are its own";
  }
  EXPECT_EQ(in_mirror(target.data(), kMuch), 0u) << "it has come home, and is shared with children";
}

TEST_F(MemoryLargeMoves, WhatIsUnmappedStaysWithTheKey) {
  Buffer buffer(kMuch), target(kMuch);
  Nic::Mr mr;
  add(buffer, mr);
  ASSERT_EQ(target.data(), move(buffer.data(), kMuch, kMuch, &target));
  ASSERT_EQ(target.data(), mmap(target.data(), kMuch, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
  EXPECT_EQ(not_zero(target.data(), kMuch), 0u);
  wait_for_revoker();
  const uint64_t kept = device.place_of(mr.va);
  ASSERT_NE(kept, 0u);
  EXPECT_NE(kept, target.va());
  std::vector<std::byte> bytes(kPage);
  ASSERT_EQ(read_client(registrar().mem_fd(), kept, {bytes.data(), kPage}), MemFdResult::kOk);
  EXPECT_EQ(changed(bytes.data(), kPage), 0u);
  nic.remove(mr);
  EXPECT_NE(read_client(registrar().mem_fd(), kept, {bytes.data(), kPage}), MemFdResult::kOk);
}

TEST_F(MemoryLargeMoves, WhatIsDiscardedOrAdvisedThere) {
  Buffer buffer(kMuch), target(kMuch);
  Nic::Mr mr;
  add(buffer, mr);
  ASSERT_EQ(target.data(), move(buffer.data(), kMuch, kMuch, &target));
  ASSERT_EQ(madvise(target.data() + kMiB, kMiB, MADV_DONTNEED), 0) << std::strerror(errno);
  EXPECT_EQ(not_zero(target.data() + kMiB, kMiB), 0u);
  EXPECT_EQ(changed(target.data() + 2 * kMiB, kMuch - 2 * kMiB, 2 * kMiB), 0u);
  EXPECT_EQ(madvise(target.data(), kMiB, MADV_FREE), 0) << std::strerror(errno);
  nic.remove(mr);
  EXPECT_EQ(madvise(target.data() + kMiB, kMiB, MADV_WIPEONFORK), 0) << std::strerror(errno);
  EXPECT_EQ(changed(target.data() + 2 * kMiB, kMuch - 2 * kMiB, 2 * kMiB), 0u);
}

// Guard pages (Linux 6.13) take the contents of what they guard, wherever the mirror shows it.
TEST_F(MemoryLargeMoves, GuardedMemoryIsEmptyAfterwards) {
  constexpr int kInstall = 102, kRemove = 103;
  Buffer buffer(kMuch), target(kMuch);
  Nic::Mr mr;
  add(buffer, mr);
  ASSERT_EQ(target.data(), move(buffer.data(), kMuch, kMuch, &target));
  for (const size_t at : {kMiB, 3 * kMiB}) {
    if (madvise(target.data() + at, kMiB, kInstall) != 0) GTEST_SKIP() << std::strerror(errno);
    ASSERT_EQ(madvise(target.data() + at, kMiB, kRemove), 0) << std::strerror(errno);
    EXPECT_EQ(not_zero(target.data() + at, kMiB), 0u);
    EXPECT_EQ(changed(target.data() + at - kMiB, kMiB, at - kMiB), 0u);
    nic.remove(mr);  // a key led there, and leads there no more
    mr = {};
  }
  EXPECT_EQ(changed(target.data() + 4 * kMiB, kMuch - 4 * kMiB, 4 * kMiB), 0u);
}

// What stayed mapped in the middle has become an area of its own, which the kernel doesn't move
// with its neighbours.
TEST_F(MemoryLargeMoves, WhatTheMirrorHasDividedIsOnePiece) {
  constexpr size_t kBytes = kMiB, kAt = 20 * kPage, kLeft = 2 * kPage;
  Buffer buffer(kBytes), away(kLeft);
  Nic::Mr mr;
  add(buffer, mr);
  std::byte* const left = buffer.data() + kAt;
  ASSERT_EQ(away.data(), mremap(left, kLeft, kLeft,
                                MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, away.data()))
      << std::strerror(errno);
  std::memset(left, 1, kLeft);
  std::byte* const at = move(buffer.data(), kBytes, 2 * kBytes, nullptr);
  ASSERT_NE(at, nullptr);
  EXPECT_EQ(changed(at, kAt), 0u);
  EXPECT_EQ(at[kAt], std::byte{1});
  EXPECT_EQ(changed(at + kAt + kLeft, kBytes - kAt - kLeft, kAt + kLeft), 0u);
  EXPECT_EQ(not_zero(at + kBytes, kBytes), 0u);
  nic.remove(mr);
}

TEST_F(MemoryLargeMoves, WhatTheMirrorHasDividedIsOnePieceAfterwards) {
  constexpr size_t kBytes = kMiB, kLeft = kBytes - kPage;
  Buffer buffer(kBytes), away(kLeft);
  Nic::Mr mr;
  add(buffer, mr);
  ASSERT_EQ(away.data(), mremap(buffer.data(), kLeft, kLeft,
                                MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, away.data()))
      << std::strerror(errno);
  std::memset(buffer.data(), 1, kLeft);
  nic.remove(mr);
  std::byte* const at = move(buffer.data(), kBytes, 2 * kBytes, nullptr);
  ASSERT_NE(at, nullptr);
  EXPECT_EQ(at[kLeft - 1], std::byte{1});
  EXPECT_EQ(changed(at + kLeft, kPage, kLeft), 0u);
  EXPECT_EQ(not_zero(at + kBytes, kBytes), 0u);
}

TEST_F(MemoryLargeMoves, WhatStaysMappedIsEmpty) { move_and_leave_mapped(nullptr); }

TEST_F(MemoryLargeMoves, WhatStaysMappedWhereThePlaceIsFixedIsEmpty) {
  Buffer target(kMuch);
  move_and_leave_mapped(target.data());
}

// It stays locked, as a whole with what grows.
TEST_F(MemoryLargeMoves, WhatIsLockedStaysLocked) {
  Buffer buffer(kMuch);
  Nic::Mr mr;
  add(buffer, mr);
  // Not by the C library's function, which AddressSanitizer leaves out.
  if (syscall(SYS_mlock, buffer.data(), kMuch) != 0) GTEST_SKIP() << std::strerror(errno);
  std::byte* const at = move(buffer.data(), kMuch, kMuch + kMiB, nullptr);
  ASSERT_NE(at, nullptr);
  EXPECT_EQ(in_mirror(at, kMuch), kMuch) << "nothing was copied";
  EXPECT_EQ(changed(at, kMuch), 0u);
  EXPECT_EQ(not_zero(at + kMuch, kMiB), 0u);
  memory::RawVector<memory::Area> areas;
  const auto start = reinterpret_cast<uint64_t>(at);
  ASSERT_TRUE(memory::read_areas(start, start + kMuch + kMiB, areas));
  ASSERT_TRUE(memory::mark_locked(areas));
  EXPECT_TRUE(std::ranges::all_of(areas, &memory::Area::locked));
  expect_key_follows(mr, at);
  nic.remove(mr);
  ASSERT_EQ(munmap(at, kMuch + kMiB), 0);
}

// glibc's words lie before the block, on a page of their own as far as the registration goes.
TEST_F(MemoryLargeMoves, ABlockThatGrowsStaysInTheMirror) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "AddressSanitizer has an allocator of its own";
#endif
  auto* block = static_cast<std::byte*>(std::malloc(kMuch));
  ASSERT_NE(block, nullptr);
  const auto fill = [&](size_t first, size_t last) {
    for (size_t i = (first + 60) / 61 * 61; i < last; i += 61) block[i] = Buffer::pattern(3, i);
  };
  fill(0, kMuch);
  Nic::Mr mr;
  ASSERT_TRUE(nic.add(reinterpret_cast<uint64_t>(block), kMuch, mr)) << nic.error;
  size_t length = kMuch;
  for (const size_t more : {size_t{1}, 4 * kMiB, 3 * kMiB + 77}) {
    const size_t before = length;
    length += more;
    block = static_cast<std::byte*>(std::realloc(block, length));
    ASSERT_NE(block, nullptr);
    EXPECT_GE(in_mirror(block, kMuch), kMuch - 2 * kPage) << "nothing was copied";
    EXPECT_EQ(changed(block, before), 0u);
    EXPECT_GE(malloc_usable_size(block), length);
    fill(before, length);
  }
  wait_for_revoker();
  EXPECT_EQ(device.place_of(mr.va + kPage), reinterpret_cast<uint64_t>(block) + kPage);
  nic.remove(mr);
  block = static_cast<std::byte*>(std::realloc(block, kMiB));
  ASSERT_NE(block, nullptr);
  EXPECT_EQ(changed(block, kMiB), 0u);
  std::free(block);
}

// A bare call moves on what has moved, and shows nothing of what lies behind it in the mirror.
TEST_F(MemoryLargeMoves, ABareCallMovesItOn) {
  Buffer buffer(kMuch + kMiB), target(kMuch);
  Nic::Mr mr;
  add(buffer, mr);
  ASSERT_EQ(target.data(), move(buffer.data(), kMuch, kMuch, &target));
  auto* const at = static_cast<std::byte*>(
      memory::raw_mremap(target.data(), kMuch, kMuch + kMiB, MREMAP_MAYMOVE, nullptr));
  ASSERT_NE(static_cast<void*>(at), MAP_FAILED) << std::strerror(errno);
  EXPECT_EQ(changed(at, kMuch), 0u);
  EXPECT_EQ(not_zero(at + kMuch, kMiB), 0u) << "others' pages";
  std::memset(at + kMuch, 1, kMiB);
  EXPECT_EQ(changed(buffer.data() + kMuch, kMiB, kMuch), 0u);
  expect_key_follows(mr, at);
  nic.remove(mr);
  ASSERT_EQ(munmap(at, kMuch + kMiB), 0);
}

// The place that something had moved to is given to other memory, which is registered and moves.
TEST_F(MemoryLargeMoves, ABareCallMovesOtherMemoryFromThatPlace) {
  Buffer buffer(kMuch + kMiB), target(kMuch + kMiB);
  Nic::Mr mr, other;
  add(buffer, mr);
  ASSERT_EQ(target.data(), move(buffer.data(), kMuch, kMuch, &target));
  ASSERT_EQ(munmap(target.data(), kMuch), 0);
  ASSERT_EQ(map_fixed(target.va(), kMuch), target.data());
  add(target, other);
  auto* const at = static_cast<std::byte*>(
      memory::raw_mremap(target.data(), kMuch, kMuch + kMiB, MREMAP_MAYMOVE, nullptr));
  ASSERT_NE(static_cast<void*>(at), MAP_FAILED) << std::strerror(errno);
  EXPECT_EQ(changed(at, kMuch), 0u);
  EXPECT_EQ(not_zero(at + kMuch, kMiB), 0u) << "others' pages";
  nic.remove(other);
  nic.remove(mr);
  ASSERT_EQ(munmap(at, kMuch + kMiB), 0);
}

TEST_F(MemoryLargeMoves, WhatABareCallMovesStaysInTheMirror) {
  Buffer buffer(kMuch);
  Nic::Mr mr;
  add(buffer, mr);
  auto* const at = static_cast<std::byte*>(
      memory::raw_mremap(buffer.data(), kMuch, kMuch + kMiB, MREMAP_MAYMOVE, nullptr));
  ASSERT_NE(static_cast<void*>(at), MAP_FAILED) << std::strerror(errno);
  EXPECT_EQ(in_mirror(at, kMuch + kMiB), kMuch) << "nothing was copied";
  EXPECT_EQ(changed(at, kMuch), 0u);
  EXPECT_EQ(not_zero(at + kMuch, kMiB), 0u);
  expect_key_follows(mr, at);
  in_child([&] {
    EXPECT_EQ(changed(at, kMuch), 0u);
    std::memset(at, 1, kMuch);
  });
  EXPECT_EQ(changed(at, kMuch), 0u);
  nic.remove(mr);
  ASSERT_EQ(munmap(at, kMuch + kMiB), 0);
}

// It can be registered where it is now, and then reached by the way that is found.
TEST_F(MemoryLargeMoves, ItIsRegisteredAgain) {
  Buffer buffer(kMuch), target(kMuch), last(kMuch);
  Nic::Mr mr, again;
  add(buffer, mr);
  ASSERT_EQ(target.data(), move(buffer.data(), kMuch, kMuch, &target));
  ASSERT_TRUE(nic.add(target.va(), kMuch, again)) << nic.error;
  expect_right_bytes(again);
  nic.remove(mr);
  expect_right_bytes(again);
  EXPECT_EQ(madvise(target.data(), kMiB, MADV_DONTFORK), 0) << std::strerror(errno);
  expect_right_bytes(again);
  nic.remove(again);
}

}  // namespace
}  // namespace hostnic::memory_testing
