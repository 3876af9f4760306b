// SPDX-License-Identifier: BSD-3-Clause
// Memory that is unmapped while it is registered, by ways that no interposer sees, and that others
// use while it is registered.
#include <fcntl.h>
#include <grp.h>
#include <malloc.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <chrono>
#include <mutex>
#include <thread>

#include "tests/unit/memory/testing.h"
#include "verbs-shim/memory/raw_memory.h"

namespace hostnic::memory_testing {
namespace {

using memory::raw_mmap;
using memory::raw_munmap;

void* map_fixed(uint64_t va, size_t length) {
  return raw_mmap(reinterpret_cast<void*>(va), length, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

constexpr size_t kMostTold = 16 * 1024;

// A device whose NIC is one thread.
class Device final : public memory::RegionUser {
 public:
  // Has room for what is told from the start: the revoker's thread must map nothing.
  Device() {
    revoked_.reserve(kMostTold);
    changes_.reserve(kMostTold);
    memory::MemoryRegistrar::process().attach(*this);
  }
  ~Device() { memory::MemoryRegistrar::process().detach(*this); }

  MemoryGate& memory_gate() override { return gate_; }
  void memory_gate_opened() override {}
  void follow_memory(const MemoryChange& change) override {
    const std::lock_guard lock(mutex_);
    if (change.kind == MemoryChangeKind::kGone)
      revoked_.push_back({change.va, change.va + change.length_bytes});
    changes_.push_back(change);
  }
  // Where a byte is that was registered at `va`, as far as was told; 0: gone. `left_mirror` says
  // whether it is said to have left the mirror.
  uint64_t place_of(uint64_t va, bool* left_mirror = nullptr) {
    const std::lock_guard lock(mutex_);
    for (const MemoryChange& change : changes_) {
      if (va == 0 || va - change.va >= change.length_bytes) continue;
      if (change.kind == MemoryChangeKind::kGone) va = 0;
      if (change.kind == MemoryChangeKind::kMoved) va += change.moved_to - change.va;
      if (change.kind == MemoryChangeKind::kOutside && left_mirror != nullptr) *left_mirror = true;
    }
    return va;
  }
  bool revoked(uint64_t va) {
    const std::lock_guard lock(mutex_);
    return std::ranges::any_of(
        revoked_, [va](const auto& range) { return va >= range.first && va < range.second; });
  }
  // Of something in [va, va + length_bytes): other memory of the process comes and goes, too.
  size_t revocations(uint64_t va, uint64_t length_bytes) {
    const std::lock_guard lock(mutex_);
    return static_cast<size_t>(std::ranges::count_if(revoked_, [=](const auto& range) {
      return range.first < va + length_bytes && va < range.second;
    }));
  }
  // What was revoked so far was about memory that was there before.
  void forget_revocations() {
    const std::lock_guard lock(mutex_);
    revoked_.clear();
    changes_.clear();
  }
  // What an lcore does with a packet. False: not now, or the memory is gone.
  bool write(uint64_t va, std::byte value) {
    bool done = false;
    if (gate_.enter() && !revoked(va))
      done = write_client(memory::MemoryRegistrar::process().mem_fd(), va, {&value, 1}) ==
             MemFdResult::kOk;
    gate_.leave();
    return done;
  }

 private:
  MemoryGate gate_{};
  std::mutex mutex_;
  std::vector<std::pair<uint64_t, uint64_t>> revoked_;
  std::vector<MemoryChange> changes_;
};

// The first page of a region that begins in its midst is reached by the mem fd.
constexpr uint64_t kSkew = 100;

class MemoryWatch : public MemoryTest {
 protected:
  // Addresses of earlier tests' memory are given out again, and its revocations may be told late:
  // they are not this test's.
  void SetUp() override {
    wait_for_revoker();
    device.forget_revocations();
  }
  // Registrations wait for what is to be revoked.
  void wait_for_revoker() {
    Buffer other(kPage);
    Nic::Mr mr;
    ASSERT_TRUE(nic.add(other.va(), 64, mr)) << nic.error;
    nic.remove(mr);
  }
  bool watches() {
    wait_for_revoker();
    return registrar().status().find("interposition only") == std::string::npos;
  }
  void needs_watch() {
    if (!watches()) GTEST_SKIP() << registrar().status();
  }
  Device device;
};

TEST_F(MemoryWatch, RawUnmapIsTold) {
  needs_watch();
  Buffer buffer(kMiB);
  Device second;
  Nic::Mr mr;
  ASSERT_TRUE(nic.add(buffer.va() + kSkew, kMiB - kSkew, mr)) << nic.error;
  ASSERT_EQ(0, raw_munmap(buffer.data(), kMiB));
  wait_for_revoker();
  EXPECT_TRUE(device.revoked(buffer.va() + kSkew));
  EXPECT_TRUE(second.revoked(buffer.va() + kSkew)) << "each device has regions of its own";
  ASSERT_NE(MAP_FAILED, map_fixed(buffer.va(), kMiB));
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
  ASSERT_EQ(munmap(target.data(), kMiB), 0);
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

// Private memory of a file is watched as well, where the kernel can (Linux 6.7).
TEST_F(MemoryWatch, RawUnmapOfAPrivateFileIsTold) {
  needs_watch();
  char path[] = "/tmp/hostnic-watch-XXXXXX";
  const UniqueFd file(mkstemp(path));
  ASSERT_GE(file.get(), 0);
  unlink(path);
  ASSERT_EQ(ftruncate(file.get(), 4 * kPage), 0);
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
  EXPECT_NE(first->pinned, 0u);
  registrar().tell_pins(*first);
  const uint64_t place = device.place_of(buffer.va() + kSkew);
  ASSERT_NE(place, 0u);
  ASSERT_NE(place, buffer.va() + kSkew);
  registrar().remove(buffer.va() + kSkew, 3 * kPage, second->pinned);
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
  registrar().remove(buffer.va() + kSkew, 3 * kPage, first->pinned);
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
        raw_munmap(other.data(), 4 * kPage);
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

// What one thread unmaps another gets and registers before the kernel has reported the end of the
// first: that report is not about the second.
TEST_F(MemoryWatch, RoomGivenOutAgainIsNotRevoked) {
  needs_watch();
  std::atomic<bool> stop{false};
  std::thread unmapper([&] {
    Nic other(registrar().mirror_fd());
    while (!stop.load()) {
      void* page =
          raw_mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      Nic::Mr mr;
      ASSERT_TRUE(other.add(reinterpret_cast<uint64_t>(page) + kSkew, 64, mr)) << other.error;
      raw_munmap(page, kPage);
      other.remove(mr);
    }
  });
  for (int round = 0; round < 500 && !HasFailure(); round++) {
    void* page =
        raw_mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const auto va = reinterpret_cast<uint64_t>(page);
    Nic::Mr mr;
    ASSERT_TRUE(nic.add(va + kSkew, 64, mr)) << nic.error;
    const size_t before = device.revocations(va, kPage);
    for (int turn = 0; turn < 20; turn++) std::this_thread::yield();
    EXPECT_EQ(before, device.revocations(va, kPage)) << "round " << round;
    nic.remove(mr);
    raw_munmap(page, kPage);
  }
  stop.store(true);
  unmapper.join();
}

// A program that unmaps may map at that very place next: none of our threads takes it meanwhile.
TEST_F(MemoryWatch, RoomThatWasMadeStaysFree) {
  needs_watch();
  for (int round = 0; round < 2000; round++) {
    void* room =
        raw_mmap(nullptr, kMiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(MAP_FAILED, room);
    Nic::Mr mr;
    ASSERT_TRUE(nic.add(reinterpret_cast<uint64_t>(room) + kSkew, 2 * kPage, mr)) << nic.error;
    ASSERT_EQ(0, raw_munmap(room, kMiB));
    for (int look = 0; look < 20; look++) {
      ASSERT_EQ(room, raw_mmap(room, kMiB, PROT_NONE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0))
          << "round " << round << ": " << std::strerror(errno);
      ASSERT_EQ(0, raw_munmap(room, kMiB));
    }
    nic.remove(mr);
  }
}

// The NIC writes as fast as it can while the program unmaps and maps: no byte gets into what the
// program has mapped anew.
void expect_no_late_byte(Device& device, Nic& nic, int (*unmap)(void*, size_t)) {
  constexpr int kRounds = 300;
  const uint64_t page_va = reinterpret_cast<uint64_t>(raw_mmap(
      nullptr, kRounds * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  std::atomic<uint64_t> target{0};
  std::atomic<bool> stop{false};
  std::thread lcore([&] {
    while (!stop.load())
      if (const uint64_t va = target.load(); va != 0) device.write(va, std::byte{77});
  });
  for (int round = 0; round < kRounds; round++) {
    const uint64_t va = page_va + static_cast<uint64_t>(round) * kPage;
    auto* page = reinterpret_cast<std::byte*>(va);
    Nic::Mr mr;
    ASSERT_TRUE(nic.add(va + kSkew, 1000, mr)) << nic.error;
    target.store(va + kSkew);
    while (std::atomic_ref(page[kSkew]).load() != std::byte{77}) std::this_thread::yield();
    ASSERT_EQ(0, unmap(page, kPage));
    ASSERT_EQ(page, map_fixed(va, kPage));
    for (int look = 0; look < 3; look++) {
      ASSERT_EQ(std::byte{0}, std::atomic_ref(page[kSkew]).load()) << "round " << round;
      std::this_thread::yield();
    }
    nic.remove(mr);
  }
  stop.store(true);
  lcore.join();
  raw_munmap(reinterpret_cast<void*>(page_va), kRounds * kPage);
}

TEST_F(MemoryWatch, NoLateByteAfterARawUnmap) {
  needs_watch();
  expect_no_late_byte(device, nic, raw_munmap);
}

TEST_F(MemoryWatch, NoLateByteAfterAnUnmap) { expect_no_late_byte(device, nic, munmap); }

// The event of an unmapping is pending, or about to be, when another thread forks.
TEST_F(MemoryWatch, ForksWhileMemoryGoes) {
  std::atomic<bool> stop{false};
  wait_for_revoker();
  std::thread unmapper([&] {
    while (!stop.load()) {
      Buffer buffer(kPage);
      Nic::Mr mr;
      ASSERT_TRUE(nic.add(buffer.va() + kSkew, 64, mr)) << nic.error;
      raw_munmap(buffer.data(), kPage);
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

// ---- an ordinary user, whose userfaultfd stops no system call

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
