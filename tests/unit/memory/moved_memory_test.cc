// SPDX-License-Identifier: BSD-3-Clause
// Memory that the program moves, grows and shrinks while a key leads to it.
#include "tests/unit/memory/watching.h"

namespace hostnic::memory_testing {
namespace {

using memory::raw_munmap;

TEST_F(MemoryWatch, RawMoveIsTold) {
  needs_watch();
  Buffer buffer(kPage), target(kPage);
  Nic::Mr mr;
  ASSERT_TRUE(nic.add(buffer.va() + kSkew, 1000, mr)) << nic.error;
  ASSERT_EQ(target.data(), memory::raw_mremap(buffer.data(), kPage, kPage,
                                              MREMAP_MAYMOVE | MREMAP_FIXED, target.data()));
  wait_for_revoker();
  EXPECT_EQ(device.place_of(buffer.va() + kSkew), target.va() + kSkew);
  // It moves on, and goes where it is then.
  Buffer last(kPage);
  ASSERT_EQ(last.data(), memory::raw_mremap(target.data(), kPage, kPage,
                                            MREMAP_MAYMOVE | MREMAP_FIXED, last.data()));
  wait_for_revoker();
  EXPECT_EQ(device.place_of(buffer.va() + kSkew), last.va() + kSkew);
  ASSERT_EQ(raw_munmap(last.data(), kPage), 0);
  wait_for_revoker();
  EXPECT_EQ(device.place_of(buffer.va() + kSkew), 0u);
  nic.remove(mr);
}

TEST_F(MemoryWatch, InterposedMovesTakePagesOutOfTheMirror) {
  Buffer buffer(kMiB), target(kMiB);
  buffer.fill(3);
  Nic::Mr mr;
  ASSERT_TRUE(nic.add(buffer.va(), kMiB, mr)) << nic.error;
  const bool in_mirror = all_of_kind(mr, RegionKind::kMirror);
  ASSERT_EQ(target.data(),
            mremap(buffer.data(), kMiB, kMiB, MREMAP_MAYMOVE | MREMAP_FIXED, target.data()));
  for (size_t i = 0; i < kMiB; i += 997) ASSERT_EQ(Buffer::pattern(3, i), target.data()[i]);
  wait_for_revoker();
  bool left_mirror = false;
  EXPECT_EQ(device.place_of(buffer.va() + kPage, &left_mirror), target.va() + kPage);
  EXPECT_EQ(left_mirror, in_mirror);
  ASSERT_EQ(raw_munmap(target.data(), kMiB), 0);
  wait_for_revoker();
  EXPECT_EQ(device.place_of(buffer.va() + kPage), 0u);
  nic.remove(mr);
  EXPECT_EQ(0u, registrar().counters().in_mirror_bytes);
}

// A key goes on leading to pages that were unmapped, when what lies there since leaves the mirror.
TEST_F(MemoryWatch, UnmappedPagesStayInTheMirrorWhenOthersLeave) {
  Buffer buffer(4 * kPage);
  Nic::Mr mr, second;
  ASSERT_TRUE(nic.add(buffer.va(), 4 * kPage, mr)) << nic.error;
  if (!all_of_kind(mr, RegionKind::kMirror)) GTEST_SKIP() << registrar().status();
  ASSERT_EQ(0, munmap(buffer.data() + kPage, kPage));
  ASSERT_NE(MAP_FAILED, map_fixed(buffer.va() + kPage, kPage));
  wait_for_revoker();
  device.forget_revocations();
  ASSERT_EQ(buffer.data(), mremap(buffer.data(), 4 * kPage, 4 * kPage, 0)) << std::strerror(errno);
  wait_for_revoker();
  bool left = false;
  device.place_of(buffer.va(), &left);
  EXPECT_TRUE(left);
  device.place_of(buffer.va() + 2 * kPage, &(left = false));
  EXPECT_TRUE(left);
  device.place_of(buffer.va() + kPage, &(left = false));
  EXPECT_FALSE(left) << "what is there now is not what was registered";
  nic.remove(mr);
}

// What lies beside registered memory in one mapping moves along with it, and both move on.
TEST_F(MemoryWatch, PartOfAMappingMovesAgainAndAgain) {
  Buffer buffer(2 * kPage), target(2 * kPage), last(2 * kPage);
  const auto move = [](const Buffer& from, const Buffer& to) {
    return mremap(from.data(), 2 * kPage, 2 * kPage, MREMAP_MAYMOVE | MREMAP_FIXED, to.data());
  };
  Nic::Mr mr, replaced;
  ASSERT_TRUE(nic.add(buffer.va() + kSkew, 1000, mr)) << nic.error;
  ASSERT_TRUE(nic.add(target.va() + kSkew, 1000, replaced)) << nic.error;
  ASSERT_EQ(target.data(), move(buffer, target));
  wait_for_revoker();
  EXPECT_EQ(device.place_of(buffer.va() + kSkew), target.va() + kSkew);
  ASSERT_EQ(last.data(), move(target, last)) << std::strerror(errno);
  wait_for_revoker();
  EXPECT_EQ(device.place_of(buffer.va() + kSkew), last.va() + kSkew);
  nic.remove(replaced);
  nic.remove(mr);
}

// What moves to where pages of the mirror were is not forgotten with them.
TEST_F(MemoryWatch, MemoryMovesOntoMigratedMemory) {
  for (int round = 0; round < 100; round++) {
    Buffer buffer(2 * kPage), target(2 * kPage);
    Nic::Mr mr, replaced;
    ASSERT_TRUE(nic.add(buffer.va() + kSkew, 1000, mr)) << nic.error;
    ASSERT_TRUE(nic.add(target.va(), 2 * kPage, replaced)) << nic.error;
    ASSERT_EQ(target.data(), mremap(buffer.data(), 2 * kPage, 2 * kPage,
                                    MREMAP_MAYMOVE | MREMAP_FIXED, target.data()));
    nic.remove(replaced);
    wait_for_revoker();
    ASSERT_EQ(device.place_of(buffer.va() + kSkew), target.va() + kSkew) << "round " << round;
    nic.remove(mr);
    device.forget_revocations();
  }
}

// What has grown by a bare system call is one area still.
TEST_F(MemoryWatch, GrownMemoryMoves) {
  Buffer buffer(4 * kPage), target(4 * kPage);
  ASSERT_EQ(raw_munmap(buffer.data() + 2 * kPage, 2 * kPage), 0);
  Nic::Mr mr;
  ASSERT_TRUE(nic.add(buffer.va() + kSkew, 1000, mr)) << nic.error;
  ASSERT_EQ(buffer.data(), memory::raw_mremap(buffer.data(), 2 * kPage, 4 * kPage, 0, nullptr));
  ASSERT_EQ(target.data(), mremap(buffer.data(), 4 * kPage, 4 * kPage,
                                  MREMAP_MAYMOVE | MREMAP_FIXED, target.data()))
      << std::strerror(errno);
  wait_for_revoker();
  EXPECT_EQ(device.place_of(buffer.va() + kSkew), target.va() + kSkew);
  nic.remove(mr);
}

// When it is registered no longer, too.
TEST_F(MemoryWatch, GrownMemoryIsOneAreaAfterwards) {
  Buffer buffer(4 * kPage);
  ASSERT_EQ(raw_munmap(buffer.data() + kPage, 3 * kPage), 0);
  Nic::Mr mr;
  ASSERT_TRUE(nic.add(buffer.va() + kSkew, 1000, mr)) << nic.error;
  ASSERT_EQ(buffer.data(), memory::raw_mremap(buffer.data(), kPage, 2 * kPage, 0, nullptr));
  nic.remove(mr);
  ASSERT_EQ(buffer.data(), memory::raw_mremap(buffer.data(), 2 * kPage, 4 * kPage, 0, nullptr))
      << std::strerror(errno);
}

// A part of a watched area migrates: what is beside it is one area with it when nobody has
// registered it any more, and the area grows.
TEST_F(MemoryWatch, WhatLiesBesideMigratedMemoryIsOneAreaAfterwards) {
  Buffer buffer(4 * kPage);
  Nic::Mr in_place, mr;
  ASSERT_TRUE(nic.add(buffer.va() + 2 * kPage + kSkew, 1000, in_place)) << nic.error;
  ASSERT_TRUE(nic.add(buffer.va() + kPage, 3 * kPage, mr)) << nic.error;
  nic.remove(in_place);
  nic.remove(mr);
  void* const at = memory::raw_mremap(buffer.data(), 4 * kPage, 5 * kPage, MREMAP_MAYMOVE, nullptr);
  ASSERT_NE(at, MAP_FAILED) << std::strerror(errno);
  raw_munmap(at, 5 * kPage);
}

TEST_F(MemoryWatch, WhatAMoveLeavesBehindIsOneAreaWithItsNeighbours) {
  Buffer buffer(4 * kPage), target(kPage), last(4 * kPage);
  Nic::Mr first, mr;
  ASSERT_TRUE(nic.add(buffer.va() + kSkew, 1000, first)) << nic.error;
  ASSERT_TRUE(nic.add(buffer.va() + 2 * kPage + kSkew, 1000, mr)) << nic.error;
  ASSERT_EQ(target.data(), mremap(buffer.data() + 2 * kPage, kPage, kPage,
                                  MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, target.data()))
      << std::strerror(errno);
  wait_for_revoker();
  EXPECT_EQ(device.place_of(buffer.va() + 2 * kPage + kSkew), target.va() + kSkew);
  ASSERT_EQ(last.data(), memory::raw_mremap(buffer.data(), 4 * kPage, 4 * kPage,
                                            MREMAP_MAYMOVE | MREMAP_FIXED, last.data()))
      << std::strerror(errno);
  wait_for_revoker();
  EXPECT_EQ(device.place_of(buffer.va() + kSkew), last.va() + kSkew);
  EXPECT_EQ(device.place_of(buffer.va() + 2 * kPage + kSkew), target.va() + kSkew);
  nic.remove(first);
  nic.remove(mr);
}

}  // namespace
}  // namespace hostnic::memory_testing
