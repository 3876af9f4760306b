// SPDX-License-Identifier: BSD-3-Clause
// Large registrations return before their pages are in the mirror, and nobody finds a wrong byte:
// neither the program nor its system calls nor hostnicd, which is played here.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <chrono>
#include <memory>
#include <random>
#include <thread>

#include "tests/unit/memory/io_ring.h"
#include "tests/unit/memory/testing.h"
#include "verbs-shim/memory/raw_memory.h"

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

namespace hostnic::memory_testing {
namespace {

using std::chrono::milliseconds;

// What hostnicd does with the memory of a client: looks at the fill map and waits.
class LateNic {
 public:
  struct Mr {
    uint64_t va = 0, length = 0;
    memory::Registration registration;
    void* map = nullptr;
    bool any_late() const {
      return std::ranges::any_of(registration.regions, [](const MemoryRegion& region) {
        return region.kind == RegionKind::kMirrorLate;
      });
    }
  };

  LateNic() {
    // Far from where mmap puts things: it would put the next ones below it.
    void* const far = reinterpret_cast<void*>(uint64_t{32} << 40);
    mirror_ = static_cast<std::byte*>(mmap(far, kBytes, PROT_READ | PROT_WRITE,
                                           MAP_SHARED | MAP_NORESERVE, registrar().mirror_fd(),
                                           static_cast<off_t>(kBase)));
    EXPECT_NE(MAP_FAILED, static_cast<void*>(mirror_)) << std::strerror(errno);
  }
  static memory::MemoryRegistrar& registrar() { return memory::MemoryRegistrar::process(); }

  bool add(uint64_t va, uint64_t length, Mr& mr) {
    auto added = registrar().add(va, length, true);
    if (!added) {
      ADD_FAILURE() << added.error().message;
      return false;
    }
    EXPECT_TRUE(covers_exactly(added->regions, va, length));
    mr.va = va;
    mr.length = length;
    mr.registration = std::move(*added);
    mr.registration.registering = {};
    for (const MemoryRegion& region : mr.registration.regions) {
      if (region.kind != RegionKind::kMirrorLate) continue;
      EXPECT_EQ(0u, region.va % kSliceBytes);
      EXPECT_EQ(0u, region.length_bytes % kSliceBytes);
      const int fd = mr.registration.fds.at(region.file_index).get();
      EXPECT_EQ(F_SEAL_SHRINK | F_SEAL_GROW, fcntl(fd, F_GET_SEALS));
      struct stat file {};
      EXPECT_EQ(0, fstat(fd, &file));
      EXPECT_LE(region.file_offset + region.length_bytes / kSliceBytes,
                static_cast<uint64_t>(file.st_size));
      if (mr.map != nullptr) continue;
      mr.map = mmap(nullptr, static_cast<size_t>(file.st_size), PROT_READ | PROT_WRITE, MAP_SHARED,
                    fd, 0);
    }
    return true;
  }
  void remove(const Mr& mr) { registrar().remove(mr.va, mr.length, mr.registration.number); }

  // A byte of the region, which lies in one page.
  std::byte& at(const Mr& mr, uint64_t va) {
    for (const MemoryRegion& region : mr.registration.regions) {
      if (va < region.va || va >= region.va + region.length_bytes) continue;
      EXPECT_NE(RegionKind::kFile, region.kind);
      if (region.kind == RegionKind::kMemFd) return *reinterpret_cast<std::byte*>(va);
      if (region.kind == RegionKind::kMirrorLate)
        wait_for(
            static_cast<uint8_t*>(mr.map)[region.file_offset + (va - region.va) / kSliceBytes]);
      return mirror_[va - kBase];
    }
    ADD_FAILURE() << "not in the region";
    return mirror_[0];
  }
  uint64_t wrong(const Mr& mr, unsigned seed, uint64_t step = 997) {
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < mr.length; i += step)
      wrong += at(mr, mr.va + i) != Buffer::pattern(seed, i);
    return wrong;
  }

 private:
  // Where mmap puts things.
  static constexpr uint64_t kBytes = uint64_t{20} << 40, kBase = kMirrorBytes / 2 - kBytes;

  static void wait_for(uint8_t& byte) {
    std::atomic_ref<uint8_t> state(byte);
    const bool filled = comes_true([&] {
      auto seen = static_cast<uint8_t>(SliceState::kAside);
      if (state.compare_exchange_strong(seen, static_cast<uint8_t>(SliceState::kWanted)))
        return false;
      return seen == static_cast<uint8_t>(SliceState::kFilled);
    });
    EXPECT_TRUE(filled);
  }

  std::byte* mirror_;
};

bool is_right(const Buffer& buffer, unsigned seed, size_t from = 0) {
  for (size_t i = from; i < buffer.size(); i += 997)
    if (buffer.data()[i] != Buffer::pattern(seed, i)) return false;
  return true;
}

enum class Copies { kWanted, kAll };

// Runs `body(nic, registrar, buffer)` in a process of its own that can be late.
template <class Body>
void late_child(Copies copies, Body body) {
  in_child([&] {
    unsetenv("HOSTNIC_MIGRATE");
    auto mirror = create_mirror();
    ASSERT_TRUE(mirror.has_value()) << mirror.error();
    auto& registrar = memory::MemoryRegistrar::process();
    ASSERT_TRUE(registrar.init(*mirror).has_value());
    close(*mirror);
    if (registrar.status() != "private memory migrates") return;
    if (copies == Copies::kWanted) registrar.copy_only_wanted();
    Buffer buffer(kLarge);
    buffer.fill(1);
    LateNic nic;  // maps much: what comes after lies elsewhere
    body(nic, registrar, buffer);
  });
}

TEST(LateRegistration, CopiesNothingButEdges) {
  late_child(Copies::kWanted, [](LateNic& nic, auto& registrar, Buffer& buffer) {
    LateNic::Mr mr;
    ASSERT_TRUE(nic.add(buffer.va() + 5, kLarge - 100, mr));
    EXPECT_TRUE(mr.any_late());
    EXPECT_LT(mirror_file_bytes(registrar.mirror_fd()), 2 * kSliceBytes);
    EXPECT_TRUE(registrar.fills_late(mr.va, mr.length));
    const uint64_t i = 33 * kMiB + 77;
    EXPECT_EQ(Buffer::pattern(1, i), nic.at(mr, buffer.va() + i));
    EXPECT_EQ(Buffer::pattern(1, 10), nic.at(mr, buffer.va() + 10));
    nic.at(mr, buffer.va() + i) = std::byte{99};
    EXPECT_EQ(std::byte{99}, buffer.data()[i]);
    EXPECT_LT(mirror_file_bytes(registrar.mirror_fd()), 4 * kSliceBytes);
    nic.remove(mr);
    EXPECT_EQ(std::byte{99}, buffer.data()[i]);
    buffer.data()[i] = Buffer::pattern(1, i);
    EXPECT_TRUE(is_right(buffer, 1));
    EXPECT_LT(registrar.counters().in_mirror_bytes, 4 * kSliceBytes);
    EXPECT_FALSE(registrar.fills_late(mr.va, mr.length));
  });
}

// Some of it is in the mirror and the rest at home: it moves as the one area that it is.
TEST(LateRegistration, WhatIsAtHomeInPartMoves) {
  late_child(Copies::kWanted, [](LateNic& nic, auto&, Buffer& buffer) {
    LateNic::Mr mr;
    ASSERT_TRUE(nic.add(buffer.va(), kLarge, mr));
    const uint64_t i = 33 * kMiB;
    EXPECT_EQ(Buffer::pattern(1, i), nic.at(mr, buffer.va() + i));
    nic.remove(mr);
    Buffer target(kLarge);
    ASSERT_EQ(target.data(),
              mremap(buffer.data(), kLarge, kLarge, MREMAP_MAYMOVE | MREMAP_FIXED, target.data()))
        << std::strerror(errno);
    EXPECT_TRUE(is_right(target, 1));
  });
}

// The bytes of private memory that can be written to, which mlockall() would bring pages for.
uint64_t writable_private_bytes() {
  memory::TextRoom room;
  uint64_t bytes = 0;
  memory::for_each_area(room, [&](const memory::Area& area) {
    if (!area.shared && (area.prot & PROT_WRITE) != 0) bytes += area.end - area.start;
    return true;
  });
  return bytes;
}

TEST(LateRegistration, WhereItCameFromCanNotBeAccessed) {
  late_child(Copies::kAll, [](LateNic& nic, auto& registrar, Buffer& buffer) {
    const uint64_t before = writable_private_bytes();
    LateNic::Mr mr;
    ASSERT_TRUE(nic.add(buffer.va(), kLarge, mr));
    ASSERT_TRUE(comes_true([&] { return !registrar.fills_late(mr.va, mr.length); }));
    ASSERT_TRUE(comes_true([&] { return writable_private_bytes() < before; }))
        << "mlockall() would bring pages there";
    EXPECT_LE(writable_private_bytes(), before - kLarge + 4 * kMiB);
    nic.remove(mr);
    EXPECT_TRUE(is_right(buffer, 1));
  });
}

// A program that has reached its limit goes on with the memory that it has.
TEST(LateRegistration, WhereNothingMayBeMapped) {
  late_child(Copies::kWanted, [](LateNic& nic, auto&, Buffer& buffer) {
    rlimit limit{};
    ASSERT_EQ(0, getrlimit(RLIMIT_DATA, &limit));
    const rlimit reached{kMiB, limit.rlim_max};
    LateNic::Mr mr;
    ASSERT_TRUE(nic.add(buffer.va(), kLarge, mr));
    ASSERT_EQ(0, setrlimit(RLIMIT_DATA, &reached));
    const bool right = is_right(buffer, 1);
    ASSERT_EQ(0, setrlimit(RLIMIT_DATA, &limit));
    EXPECT_TRUE(right);
    nic.remove(mr);
  });
}

class Told final : public memory::RegionUser {
 public:
  MemoryGate& memory_gate() override { return gate_; }
  void memory_gate_opened() override {}
  uint64_t nic_turn_ns() override { return UINT64_MAX; }
  void follow_memory(const MemoryChange&) override {}
  void memory_filled() override { filled++; }
  std::atomic<int> filled{0};

 private:
  MemoryGate gate_{};
};

TEST(LateRegistration, EverythingIsFilledByAndByAndToldOf) {
  late_child(Copies::kAll, [](LateNic& nic, auto& registrar, Buffer& buffer) {
    Told told;
    registrar.attach(told);
    LateNic::Mr mr;
    ASSERT_TRUE(nic.add(buffer.va(), kLarge, mr));
    EXPECT_TRUE(comes_true([&] { return !registrar.fills_late(mr.va, mr.length); }));
    EXPECT_TRUE(comes_true([&] { return told.filled != 0; }));
    EXPECT_EQ(kLarge, mirror_file_bytes(registrar.mirror_fd()));
    EXPECT_EQ(0u, nic.wrong(mr, 1));
    EXPECT_TRUE(is_right(buffer, 1));
    LateNic::Mr again;
    ASSERT_TRUE(nic.add(buffer.va(), kLarge, again));
    EXPECT_FALSE(again.any_late()) << "it is there already";
    nic.remove(mr);
    nic.remove(again);
    EXPECT_EQ(kLarge, registrar.counters().parked_bytes);
    EXPECT_TRUE(is_right(buffer, 1));
    registrar.detach(told);
  });
}

// What is lost where no page is must not have to wait: a receive for datagrams, UC's WRITEs, and
// regions that are named by other addresses than the memory's.
TEST(LateRegistration, WhatCannotWaitIsBrought) {
  late_child(Copies::kWanted, [](LateNic& nic, auto& registrar, Buffer& buffer) {
    EXPECT_FALSE(memory::AsideTable::anything_aside());
    LateNic::Mr mr;
    ASSERT_TRUE(nic.add(buffer.va(), kLarge, mr));
    EXPECT_TRUE(memory::AsideTable::anything_aside());
    const uint64_t before = mirror_file_bytes(registrar.mirror_fd());
    registrar.bring(buffer.va() + 20 * kMiB + 100, 200);
    EXPECT_EQ(before + kSliceBytes, mirror_file_bytes(registrar.mirror_fd()));
    registrar.bring(buffer.va() + 20 * kMiB + 100, 200);
    registrar.bring(buffer.va() + kLarge + kMiB, 200);
    registrar.bring(UINT64_MAX - 5, 200);
    EXPECT_EQ(before + kSliceBytes, mirror_file_bytes(registrar.mirror_fd()));
    auto now = registrar.add(buffer.va() + 30 * kMiB, 20 * kMiB, true, memory::Paging::kAsMapped,
                             memory::Arrival::kNow);
    ASSERT_TRUE(now.has_value());
    EXPECT_TRUE(std::ranges::all_of(now->regions, [](const MemoryRegion& region) {
      return region.kind == RegionKind::kMirror;
    }));
    now->registering = {};
    registrar.remove(buffer.va() + 30 * kMiB, 20 * kMiB, now->number);
    registrar.bring_all();
    EXPECT_FALSE(registrar.fills_late(buffer.va(), kLarge));
    EXPECT_EQ(kLarge, mirror_file_bytes(registrar.mirror_fd()));
    EXPECT_EQ(0u, nic.wrong(mr, 1));
    Buffer other(kLarge);
    other.fill(2);
    LateNic::Mr next;
    ASSERT_TRUE(nic.add(other.va(), kLarge, next));
    EXPECT_FALSE(next.any_late()) << "from now on";
    EXPECT_EQ(0u, nic.wrong(next, 2));
    nic.remove(next);
    nic.remove(mr);
    EXPECT_TRUE(is_right(buffer, 1));
    EXPECT_TRUE(is_right(other, 2));
    EXPECT_FALSE(memory::AsideTable::anything_aside());
  });
}

// Borders that are no slices': each registration finds its pages, and leaves the others theirs.
TEST(LateRegistration, RegistrationsOverlap) {
  late_child(Copies::kWanted, [](LateNic& nic, auto& registrar, Buffer& buffer) {
    LateNic::Mr whole, part, end;
    ASSERT_TRUE(nic.add(buffer.va(), 40 * kMiB, whole));
    ASSERT_TRUE(nic.add(buffer.va() + 7 * kMiB + 5 * kPage, 50 * kMiB, part));
    EXPECT_TRUE(part.any_late());
    nic.remove(whole);
    EXPECT_EQ(Buffer::pattern(1, 8 * kMiB), nic.at(part, buffer.va() + 8 * kMiB));
    ASSERT_TRUE(nic.add(buffer.va(), 40 * kMiB, whole));
    EXPECT_TRUE(is_right(buffer, 1, 60 * kMiB));
    EXPECT_EQ(0u, nic.wrong(whole, 1, 5003));
    nic.remove(part);
    EXPECT_EQ(0u, nic.wrong(whole, 1, 5003));
    nic.remove(whole);
    EXPECT_TRUE(is_right(buffer, 1));
    EXPECT_FALSE(registrar.fills_late(buffer.va(), kLarge));
  });
}

TEST(LateRegistration, AForkedChildHasItAll) {
  late_child(Copies::kWanted, [](LateNic& nic, auto& registrar, Buffer& buffer) {
    LateNic::Mr mr;
    ASSERT_TRUE(nic.add(buffer.va(), kLarge, mr));
    in_child([&] {
      EXPECT_TRUE(is_right(buffer, 1));
      std::memset(buffer.data(), 7, kLarge);
    });
    EXPECT_EQ(0u, nic.wrong(mr, 1));
    EXPECT_TRUE(is_right(buffer, 1));
    nic.remove(mr);
    ASSERT_TRUE(nic.add(buffer.va(), kLarge, mr));
    EXPECT_EQ(0u, nic.wrong(mr, 1));
    nic.remove(mr);
    EXPECT_TRUE(is_right(buffer, 1));
    static_cast<void>(registrar);
  });
}

TEST(LateRegistration, AForkedChildRegistersItsOwn) {
  late_child(Copies::kAll, [](LateNic& nic, auto& registrar, Buffer& buffer) {
    LateNic::Mr mr;
    ASSERT_TRUE(nic.add(buffer.va(), kLarge, mr));
    in_child([&] {
      auto mirror = create_mirror();
      ASSERT_TRUE(mirror.has_value()) << mirror.error();
      ASSERT_TRUE(registrar.init(*mirror).has_value());
      LateNic own;
      LateNic::Mr its;
      // The stack of the child's own thread may lie beside the buffer: what is close to that is
      // not late.
      constexpr uint64_t kBeside = 4 * kMiB;
      ASSERT_TRUE(own.add(buffer.va() + kBeside, kLarge - 2 * kBeside, its));
      EXPECT_TRUE(its.any_late());
      for (uint64_t i = kBeside; i < kLarge - kBeside; i += 997)
        ASSERT_EQ(Buffer::pattern(1, i), own.at(its, buffer.va() + i));
      own.remove(its);
      EXPECT_TRUE(is_right(buffer, 1));
    });
    EXPECT_EQ(0u, nic.wrong(mr, 1));
    nic.remove(mr);
  });
}

// A key leads to the old pages.
TEST(LateRegistration, UnmappedDiscardedAndMoved) {
  late_child(Copies::kWanted, [](LateNic& nic, auto& registrar, Buffer& buffer) {
    LateNic::Mr mr;
    ASSERT_TRUE(nic.add(buffer.va(), kLarge, mr));
    ASSERT_EQ(0, registrar.system_calls().madvise(buffer.data() + kMiB, 8 * kMiB, MADV_DONTNEED));
    EXPECT_EQ(std::byte{0}, buffer.data()[kMiB]);
    EXPECT_EQ(std::byte{0}, buffer.data()[9 * kMiB - 1]);
    EXPECT_EQ(Buffer::pattern(1, 9 * kMiB), buffer.data()[9 * kMiB]);
    EXPECT_EQ(Buffer::pattern(1, kMiB - 1), nic.at(mr, buffer.va() + kMiB - 1));
    EXPECT_EQ(std::byte{0}, nic.at(mr, buffer.va() + kMiB));
    ASSERT_EQ(0, registrar.system_calls().munmap(buffer.data() + 20 * kMiB, 9 * kMiB + kPage));
    EXPECT_EQ(Buffer::pattern(1, 21 * kMiB), nic.at(mr, buffer.va() + 21 * kMiB));
    ASSERT_EQ(buffer.data() + 20 * kMiB,
              mmap(buffer.data() + 20 * kMiB, 9 * kMiB + kPage, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0));
    std::memset(buffer.data() + 20 * kMiB, 3, 9 * kMiB + kPage);
    EXPECT_EQ(Buffer::pattern(1, 22 * kMiB), nic.at(mr, buffer.va() + 22 * kMiB));
    auto* moved = static_cast<std::byte*>(registrar.system_calls().mremap(
        buffer.data() + 40 * kMiB, 9 * kMiB, 18 * kMiB, MREMAP_MAYMOVE, nullptr));
    ASSERT_NE(MAP_FAILED, static_cast<void*>(moved)) << std::strerror(errno);
    for (size_t i = 0; i < 9 * kMiB; i += 997)
      ASSERT_EQ(Buffer::pattern(1, 40 * kMiB + i), moved[i]);
    nic.remove(mr);
    EXPECT_TRUE(is_right(buffer, 1, 50 * kMiB));
    EXPECT_EQ(std::byte{3}, buffer.data()[25 * kMiB]);
    EXPECT_FALSE(registrar.fills_late(buffer.va(), kLarge));
  });
}

// The kernel takes no range from a userfaultfd in which such a segment lies.
TEST(LateRegistration, WhatLiesBesideASegmentComesHome) {
  late_child(Copies::kAll, [](LateNic& nic, auto& registrar, Buffer& buffer) {
    LateNic::Mr mr;
    ASSERT_TRUE(nic.add(buffer.va(), kLarge, mr));
    const size_t slice = kSliceBytes - buffer.va() % kSliceBytes;
    const int id = shmget(IPC_PRIVATE, 64 * kPage, IPC_CREAT | 0600);
    ASSERT_EQ(buffer.data() + slice,
              registrar.system_calls().shmat_over(id, buffer.data() + slice, SHM_REMAP))
        << std::strerror(errno);
    shmctl(id, IPC_RMID, nullptr);
    EXPECT_TRUE(comes_true([&] { return !registrar.fills_late(mr.va, mr.length); }));
    const size_t from = slice + 64 * kPage;
    auto* const moved = static_cast<std::byte*>(registrar.system_calls().mremap(
        buffer.data() + from, 16 * kPage, 32 * kPage, MREMAP_MAYMOVE, nullptr));
    ASSERT_NE(MAP_FAILED, static_cast<void*>(moved)) << std::strerror(errno);
    for (size_t i = 0; i < 16 * kPage; i += 97) ASSERT_EQ(Buffer::pattern(1, from + i), moved[i]);
    EXPECT_EQ(std::byte{0}, moved[16 * kPage]);
    munmap(moved, 32 * kPage);
    nic.remove(mr);
  });
}

size_t not_zero(const std::byte* at, size_t length) {
  return static_cast<size_t>(
      std::count_if(at, at + length, [](std::byte each) { return each != std::byte{0}; }));
}

// Slices that somebody has touched are in the mirror, the rest lies aside.
TEST(LateRegistration, DiscardedByABareCall) {
  late_child(Copies::kWanted, [](LateNic& nic, auto&, Buffer& buffer) {
    LateNic::Mr mr;
    ASSERT_TRUE(nic.add(buffer.va(), kLarge, mr));
    constexpr size_t kFrom = 20 * kMiB + kPage, kTo = 30 * kMiB;
    EXPECT_EQ(Buffer::pattern(1, kFrom), buffer.data()[kFrom]);
    ASSERT_EQ(memory::raw_madvise(buffer.data() + kFrom, kTo - kFrom, MADV_DONTNEED), 0);
    EXPECT_EQ(0u, not_zero(buffer.data() + kFrom, kTo - kFrom));
    EXPECT_EQ(std::byte{0}, nic.at(mr, buffer.va() + kFrom));
    EXPECT_EQ(Buffer::pattern(1, kFrom - 1), buffer.data()[kFrom - 1]);
    EXPECT_TRUE(is_right(buffer, 1, kTo));
  });
}

// Guard pages (Linux 6.13) take the contents of what they guard, and of what lies aside.
TEST(LateRegistration, MadeToGuards) {
  late_child(Copies::kWanted, [](LateNic& nic, auto&, Buffer& buffer) {
    constexpr int kInstall = 102, kRemove = 103;
    LateNic::Mr mr;
    ASSERT_TRUE(nic.add(buffer.va(), kLarge, mr));
    constexpr size_t kFrom = 20 * kMiB + kPage, kTo = 22 * kMiB + 3 * kPage;
    if (madvise(buffer.data() + kFrom, kTo - kFrom, kInstall) != 0) return;
    ASSERT_EQ(madvise(buffer.data() + kFrom, kTo - kFrom, kRemove), 0);
    EXPECT_EQ(0u, not_zero(buffer.data() + kFrom, kTo - kFrom));
    EXPECT_EQ(Buffer::pattern(1, kFrom - 1), buffer.data()[kFrom - 1]);
    EXPECT_TRUE(is_right(buffer, 1, kTo));
  });
}

TEST(LateRegistration, MovedByBareCalls) {
  late_child(Copies::kWanted, [](LateNic& nic, auto&, Buffer& buffer) {
    LateNic::Mr mr;
    ASSERT_TRUE(nic.add(buffer.va(), kLarge, mr));
    const auto right = [](const std::byte* at, size_t from, size_t length) {
      size_t wrong = 0;
      for (size_t i = 0; i < length; i++) wrong += at[i] != Buffer::pattern(1, from + i);
      return wrong == 0;
    };
    constexpr size_t kFrom = 20 * kMiB, kBytes = 8 * kMiB, kGrows = 40 * kMiB;
    EXPECT_EQ(Buffer::pattern(1, kFrom), buffer.data()[kFrom]);
    void* const to = memory::raw_mremap(buffer.data() + kFrom, kBytes, kBytes,
                                        MREMAP_MAYMOVE | MREMAP_DONTUNMAP, nullptr);
    ASSERT_NE(to, MAP_FAILED) << std::strerror(errno);
    const auto* const moved = static_cast<std::byte*>(to);
    EXPECT_TRUE(right(moved, kFrom, kBytes));
    EXPECT_EQ(0u, not_zero(buffer.data() + kFrom, kBytes));
    void* const grown_to =
        memory::raw_mremap(buffer.data() + kGrows, kMiB, 3 * kMiB, MREMAP_MAYMOVE, nullptr);
    ASSERT_NE(grown_to, MAP_FAILED) << std::strerror(errno);
    const auto* const grown = static_cast<std::byte*>(grown_to);
    EXPECT_TRUE(right(grown, kGrows, kMiB));
    EXPECT_EQ(0u, not_zero(grown + kMiB, 2 * kMiB));
    EXPECT_TRUE(is_right(buffer, 1, kGrows + kMiB));
    nic.remove(mr);
    EXPECT_TRUE(right(moved, kFrom, kBytes));
    EXPECT_TRUE(right(grown, kGrows, kMiB));
    EXPECT_EQ(0u, not_zero(buffer.data() + kFrom, kBytes));
  });
}

// It is watched at its new place as well.
TEST(LateRegistration, MovedByABareCallAndDiscarded) {
  late_child(Copies::kWanted, [](LateNic& nic, auto&, Buffer& buffer) {
    LateNic::Mr mr;
    ASSERT_TRUE(nic.add(buffer.va(), kLarge, mr));
    constexpr size_t kFrom = 20 * kMiB, kBytes = 8 * kMiB;
    void* const to =
        memory::raw_mremap(buffer.data() + kFrom, kBytes, kBytes, MREMAP_MAYMOVE, nullptr);
    ASSERT_NE(to, MAP_FAILED) << std::strerror(errno);
    auto* const moved = static_cast<std::byte*>(to);
    EXPECT_EQ(Buffer::pattern(1, kFrom), moved[0]);  // by then it has been followed
    EXPECT_EQ(0, memory::raw_madvise(moved, kBytes / 2, MADV_DONTNEED));
    EXPECT_EQ(0u, not_zero(moved, kBytes / 2));
    EXPECT_EQ(Buffer::pattern(1, kFrom + kBytes / 2), moved[kBytes / 2]);
    nic.remove(mr);
  });
}

TEST(LateRegistration, OnDemandOverItReachesAllByTheMemFd) {
  late_child(Copies::kWanted, [](LateNic& nic, auto& registrar, Buffer& buffer) {
    LateNic::Mr mr;
    ASSERT_TRUE(nic.add(buffer.va(), kLarge, mr));
    auto added =
        registrar.add(buffer.va() + 9 * kMiB + 3, 30 * kMiB, true, memory::Paging::kOnDemand);
    ASSERT_TRUE(added.has_value());
    added->registering = {};
    std::byte got{};
    for (size_t i = 10 * kMiB; i < 39 * kMiB; i += kMiB + 1) {
      ASSERT_EQ(1, pread(registrar.mem_fd(), &got, 1, static_cast<off_t>(buffer.va() + i)));
      ASSERT_EQ(Buffer::pattern(1, i), got);
    }
    registrar.remove(buffer.va() + 9 * kMiB + 3, 30 * kMiB, added->number);
    nic.remove(mr);
    EXPECT_TRUE(is_right(buffer, 1));
  });
}

TEST(LateRegistration, AnotherHostnicd) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "AddressSanitizer leaves no room for two mirrors";
#endif
  late_child(Copies::kAll, [](LateNic& nic, auto& registrar, Buffer& buffer) {
    for (int round = 0; round < 3; round++) {
      LateNic::Mr mr;
      ASSERT_TRUE(nic.add(buffer.va(), kLarge, mr));
      EXPECT_TRUE(mr.any_late());
      EXPECT_EQ(0u, nic.wrong(mr, 1, 50'021));
      nic.remove(mr);
      auto next = create_mirror();
      ASSERT_TRUE(next.has_value()) << next.error();
      auto ready = registrar.init(*next);
      ASSERT_TRUE(ready.has_value()) << ready.error().message;
      close(*next);
      nic = LateNic();
      EXPECT_TRUE(is_right(buffer, 1));
    }
  });
}

// Threads that write by themselves and by system calls, while registrations come and go and
// hostnicd writes, too: each has a byte of its own on every page.
TEST(LateRegistration, NoByteOfAnybodyIsLost) {
  late_child(Copies::kAll, [](LateNic& nic, auto&, Buffer& buffer) {
    constexpr size_t kPages = kLarge / kPage;
    std::memset(buffer.data(), 0, kLarge);
    std::atomic<bool> stop{false};
    uint64_t failures = 0, calls = 0;
    std::vector<uint8_t> own(kPages), received(kPages), nics(kPages);
    std::thread writer([&] {
      std::minstd_rand random(1);
      while (!stop) {
        const size_t page = random() % kPages;
        auto* at = reinterpret_cast<volatile uint8_t*>(buffer.data()) + page * kPage + 1;
        *at = static_cast<uint8_t>(*at + 1);
        own[page]++;
      }
    });
    std::thread caller([&] {
      int sockets[2];
      ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, sockets));
      IoRing ring;
      std::minstd_rand random(2);
      for (; !stop; calls++) {
        const size_t page = random() % kPages;
        const uint8_t value = ++received[page];
        std::byte* at = buffer.data() + page * kPage + 2048;
        failures += ::write(sockets[0], &value, 1) != 1;
        failures += (calls % 3 == 0                   ? ::read(sockets[1], at, 1)
                     : calls % 3 == 1 && ring.works() ? ring.read(sockets[1], at, 1)
                                                      : recv(sockets[1], at, 1, 0)) != 1;
      }
    });
    std::minstd_rand random(3);
    for (int round = 0; round < 40; round++) {
      LateNic::Mr mr;
      ASSERT_TRUE(nic.add(buffer.va(), kLarge, mr));
      for (int i = 0; i < 300; i++) {
        const size_t page = random() % kPages;
        std::byte& byte = nic.at(mr, buffer.va() + page * kPage + 4000);
        EXPECT_EQ(nics[page], static_cast<uint8_t>(byte));
        byte = std::byte{++nics[page]};
      }
      if (round % 4 == 0) std::this_thread::sleep_for(milliseconds(20));
      nic.remove(mr);
    }
    stop = true;
    writer.join();
    caller.join();
    uint64_t lost = 0;
    for (size_t page = 0; page < kPages; page++) {
      const auto* at = reinterpret_cast<const uint8_t*>(buffer.data()) + page * kPage;
      lost += at[1] != own[page];
      lost += at[2048] != received[page];
      lost += at[4000] != nics[page];
    }
    EXPECT_EQ(0u, lost);
    EXPECT_EQ(0u, failures) << "of " << calls;
    EXPECT_GT(calls, 0u);
  });
}

}  // namespace
}  // namespace hostnic::memory_testing
