// SPDX-License-Identifier: BSD-3-Clause
// Pages that get into the mirror late: whoever touches them finds their contents, and what the
// program maps in their place is not touched.
#include "verbs-shim/memory/late_fill.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <chrono>
#include <random>
#include <thread>

#include "tests/unit/memory/io_ring.h"
#include "tests/unit/memory/kernel_moves.h"
#include "tests/unit/memory/testing.h"

namespace hostnic::memory_testing {
namespace {

using memory::LateFill;

uint64_t pages_in_file(int file, uint64_t start, uint64_t end) {
  uint64_t pages = 0;
  for (uint64_t at = start; at < end; at += kPage)
    pages += lseek(file, static_cast<off_t>(at), SEEK_DATA) == static_cast<off_t>(at);
  return pages;
}

// Slices of private memory, each page of which says which one it is.
class Slices {
 public:
  explicit Slices(size_t count) : length_(count * kSliceBytes) {
    void* all = mmap(nullptr, length_ + kSliceBytes, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    start_ = (reinterpret_cast<uint64_t>(all) + kSliceBytes - 1) & ~(kSliceBytes - 1);
    EXPECT_NE(MAP_FAILED, mmap(memory::pointer(start_), length_, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
    for (uint64_t at = start_; at < end(); at += kPage) word(at) = at ^ kMark;
  }
  uint64_t start() const { return start_; }
  uint64_t end() const { return start_ + length_; }
  uint64_t slice(size_t i) const { return start_ + i * kSliceBytes; }
  static volatile uint64_t& word(uint64_t at) {
    return *static_cast<volatile uint64_t*>(memory::pointer(at));
  }
  static uint64_t wrong_pages(uint64_t start, uint64_t end) {
    uint64_t wrong = 0;
    for (uint64_t at = start; at < end; at += kPage) wrong += word(at) != (at ^ kMark);
    return wrong;
  }

 private:
  static constexpr uint64_t kMark = 0x5a5a;
  uint64_t start_ = 0, length_ = 0;
};

struct Late {
  int mirror = -1;
  memory::Userfault stops;
  // Lies in memory of its own, as the registrar does.
  LateFill& fill = *new (memory::map_or_throw(sizeof(LateFill))) LateFill;
  uint64_t stash_delta = 0;

  void move_aside(const Slices& slices) {
    stash_delta = memory::Migrator::reserve_stash(slices.start(), slices.end());
    ASSERT_NE(0u, stash_delta);
    ASSERT_EQ(0, fill.move_aside(slices.start(), slices.end(), stash_delta, mirror,
                                 PROT_READ | PROT_WRITE, stops));
  }
  uint64_t filled(const Slices& slices) const {
    return pages_in_file(mirror, slices.start(), slices.end()) * kPage / kSliceBytes;
  }
};

template <class Body>
void with_slices(size_t count, Body body, LateFill::Lost lost = nullptr) {
  in_child([&] {
    auto mirror = create_mirror();
    ASSERT_TRUE(mirror.has_value()) << mirror.error();
    Late late;
    late.mirror = *mirror;
    if (!late.stops.open(-1) || late.stops.mode() != memory::UserfaultMode::kFull) return;
    late.fill.copy_only_wanted();
    const int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    ASSERT_EQ(0, late.fill.start(
                     {.mirror = *mirror, .pagemap = pagemap}, [] {}, nullptr, lost));
    close(pagemap);
    Slices slices(count);
    body(late, slices);
  });
}

TEST(LateFill, CopiesWhatIsTouchedAndNothingElse) {
  with_slices(8, [](Late& late, Slices& slices) {
    late.move_aside(slices);
    EXPECT_EQ(0u, late.filled(slices));
    EXPECT_EQ(0u, Slices::wrong_pages(slices.slice(2), slices.slice(3)));
    Slices::word(slices.slice(5) + 8) = 7;
    EXPECT_EQ(2u, late.filled(slices));
    EXPECT_EQ(0, late.fill.fill(slices.start(), slices.end()));
    EXPECT_EQ(8u, late.filled(slices));
    EXPECT_FALSE(late.fill.asides().any_aside(slices.start(), slices.end()));
    EXPECT_EQ(0u, Slices::wrong_pages(slices.start(), slices.end()));
    EXPECT_EQ(7u, Slices::word(slices.slice(5) + 8));
  });
}

TEST(LateFill, LosesNoPageWhereTheKernelLosesCount) {
  with_slices(4, [](Late& late, Slices& slices) {
    late.move_aside(slices);
    for (size_t i = 0; i < 4; i++) {
      kernel_moves.told_bytes = i * 100 * kPage;
      kernel_moves.miscounts = 1;
      EXPECT_EQ(0u, Slices::wrong_pages(slices.slice(i), slices.slice(i + 1)));
      EXPECT_EQ(0, kernel_moves.miscounts);
    }
  });
}

// Somebody's change of mappings may take its time: the kernel refuses to move pages meanwhile.
TEST(LateFill, CopiesLaterWhatCanNotMoveNow) {
  with_slices(2, [](Late& late, Slices& slices) {
    late.move_aside(slices);
    kernel_moves.refusal = EAGAIN;
    kernel_moves.refusals = 1500;
    EXPECT_EQ(0u, Slices::wrong_pages(slices.start(), slices.end()));
    EXPECT_EQ(0, kernel_moves.refusals);
  });
}

// The kernel says no, and nothing else: the contents get to their place in another way.
TEST(LateFill, LosesNoPageThatTheKernelDoesNotPutIn) {
  for (const int error : {EFAULT, EINVAL, ENOENT, EIO})
    with_slices(2, [=](Late& late, Slices& slices) {
      late.move_aside(slices);
      kernel_moves.copy_refusal = error;
      kernel_moves.copy_refusals = 100;
      EXPECT_EQ(0u, Slices::wrong_pages(slices.start(), slices.end())) << std::strerror(error);
      EXPECT_EQ(0, kernel_moves.copy_refusals);
    });
}

// The order ends and says why; what had left the stash by then is not lost, and comes later.
TEST(LateFill, KeepsWhatItCanNotPutIn) {
  for (const int error : {ENOMEM, EAGAIN, EINTR})
    with_slices(2, [=](Late& late, Slices& slices) {
      late.move_aside(slices);
      memory::raw_madvise(memory::pointer(slices.start() + late.stash_delta + kPage), kPage,
                          MADV_DONTNEED);  // nobody has ever written there
      kernel_moves.copy_refusal = error;
      kernel_moves.copy_refusals = INT32_MAX;
      EXPECT_EQ(error, late.fill.fill(slices.slice(1), slices.end())) << std::strerror(error);
      EXPECT_TRUE(late.fill.asides().any_unfilled(slices.slice(1), slices.end()));
      EXPECT_EQ(0u, late.filled(slices));
      kernel_moves.copy_refusals = 0;
      EXPECT_EQ(0, late.fill.fill(slices.start(), slices.end()));
      EXPECT_EQ(1u, Slices::wrong_pages(slices.start(), slices.end()));
      EXPECT_EQ(0u, Slices::word(slices.start() + kPage));
    });
}

// The thread that has ordered waits for the bell's page, and no other thread waits for that.
TEST(LateFill, ServesOthersWhileTheBellCanNotBeAnswered) {
  with_slices(2, [](Late& late, Slices& slices) {
    late.move_aside(slices);
    kernel_moves.zero_refusal = EAGAIN;
    kernel_moves.zero_refusals = INT32_MAX;
    std::thread orders([&] { late.fill.fill(slices.start(), slices.slice(1)); });
    while (kernel_moves.zero_refusals == INT32_MAX) std::this_thread::yield();
    EXPECT_EQ(0u, Slices::wrong_pages(slices.slice(1), slices.end()));
    kernel_moves.zero_refusals = 0;
    orders.join();
    EXPECT_EQ(0u, Slices::wrong_pages(slices.start(), slices.end()));
  });
}

// A program that unmaps what is not its own: zeros would look like its data.
TEST(LateFill, WhatIsNowhereIsAnErrorAndNotZeros) {
  static std::atomic<uint64_t> lost_pages{0}, lost_at{0};
  with_slices(
      2,
      [](Late& late, Slices& slices) {
        late.move_aside(slices);
        const uint64_t gone = slices.start() + 7 * kPage;
        memory::raw_munmap(memory::pointer(gone + late.stash_delta), kPage);
        EXPECT_EQ(0u, Slices::wrong_pages(slices.start(), gone));
        EXPECT_EQ(0u, Slices::wrong_pages(gone + kPage, slices.end()));
        EXPECT_EQ(1u, lost_pages);
        EXPECT_EQ(gone, lost_at);
        const int mem = open("/proc/self/mem", O_RDONLY);
        char byte = 0;
        EXPECT_EQ(-1, pread(mem, &byte, 1, static_cast<off_t>(gone)));
        int ends[2];
        ASSERT_EQ(0, pipe(ends));
        EXPECT_EQ(-1, write(ends[1], memory::pointer(gone), 1));
        for (const int each : {mem, ends[0], ends[1]}) close(each);
      },
      [](uint64_t start, uint64_t end) {
        lost_at = start;
        lost_pages += (end - start) / kPage;
      });
}

TEST(LateFill, LosesNoWriteOfThreads) {
  with_slices(64, [](Late& late, Slices& slices) {
    constexpr size_t kThreads = 3;
    std::atomic<bool> stop{false};
    uint64_t writes[kThreads] = {};
    std::vector<std::thread> writers;
    for (size_t i = 0; i < kThreads; i++)
      writers.emplace_back([&, i] {
        std::minstd_rand random(static_cast<unsigned>(i + 1));
        while (!stop) {
          const uint64_t page = random() % ((slices.end() - slices.start()) / kPage);
          volatile uint64_t& word = Slices::word(slices.start() + page * kPage + 8 * (i + 1));
          word = word + 1;
          writes[i]++;
        }
      });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    late.move_aside(slices);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(0, late.fill.fill(slices.start(), slices.end()));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    stop = true;
    for (auto& writer : writers) writer.join();
    uint64_t found = 0, written = 0;
    for (uint64_t at = slices.start(); at < slices.end(); at += kPage)
      for (size_t i = 0; i < kThreads; i++) found += Slices::word(at + 8 * (i + 1));
    for (const uint64_t count : writes) written += count;
    EXPECT_EQ(written, found);
    EXPECT_EQ(0u, Slices::wrong_pages(slices.start(), slices.end()));
  });
}

TEST(LateFill, SystemCallsWait) {
  with_slices(4, [](Late& late, Slices& slices) {
    int sockets[2];
    ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, sockets));
    late.move_aside(slices);
    ASSERT_EQ(5, ::write(sockets[0], "hello", 5));
    EXPECT_EQ(5, ::read(sockets[1], memory::pointer(slices.slice(1) + 4094), 5)) << strerror(errno);
    EXPECT_EQ(0, std::memcmp(memory::pointer(slices.slice(1) + 4094), "hello", 5));
    ASSERT_EQ(8, ::write(sockets[0], memory::pointer(slices.slice(2)), 8)) << strerror(errno);
    EXPECT_EQ(8, recv(sockets[1], memory::pointer(slices.slice(3) + 16), 8, 0)) << strerror(errno);
    EXPECT_EQ(Slices::word(slices.slice(2)), Slices::word(slices.slice(3) + 16));
    EXPECT_EQ(3u, late.filled(slices));
  });
}

TEST(LateFill, WhatIsNotFilledGoesHomeByItsPageTables) {
  with_slices(8, [](Late& late, Slices& slices) {
    late.move_aside(slices);
    Slices::word(slices.slice(3) + 8) = 7;
    uint64_t home = 0;
    EXPECT_EQ(0, late.fill.bring_home(slices.start(), slices.end(), PROT_READ | PROT_WRITE,
                                      [&](uint64_t from, uint64_t to) { home += to - from; }));
    EXPECT_EQ(7 * kSliceBytes, home);
    EXPECT_EQ(1u, late.filled(slices));
    EXPECT_EQ(0u, Slices::wrong_pages(slices.start(), slices.end()));
    EXPECT_EQ(1u, late.filled(slices));
    EXPECT_EQ(7u, Slices::word(slices.slice(3) + 8));
    EXPECT_FALSE(late.fill.asides().any_aside(slices.start(), slices.end()));
  });
}

TEST(LateFill, ThreadsTouchWhatGoesHome) {
  with_slices(64, [](Late& late, Slices& slices) {
    std::atomic<bool> stop{false};
    uint64_t writes = 0;
    std::thread writer([&] {
      std::minstd_rand random(1);
      for (; !stop; writes++) {
        const uint64_t page = random() % ((slices.end() - slices.start()) / kPage);
        volatile uint64_t& word = Slices::word(slices.start() + page * kPage + 8);
        word = word + 1;
      }
    });
    late.move_aside(slices);
    EXPECT_EQ(0, late.fill.bring_home(slices.start(), slices.end(), PROT_READ | PROT_WRITE,
                                      [](uint64_t, uint64_t) {}));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    stop = true;
    writer.join();
    uint64_t found = 0;
    for (uint64_t at = slices.start(); at < slices.end(); at += kPage)
      found += Slices::word(at + 8);
    EXPECT_EQ(writes, found);
    EXPECT_EQ(0u, Slices::wrong_pages(slices.start(), slices.end()));
  });
}

// The mirror gets the old pages all the same: a key leads to them.
TEST(LateFill, WhatIsMappedAnewIsNotTouched) {
  with_slices(6, [](Late& late, Slices& slices) {
    late.move_aside(slices);
    const uint64_t hole = slices.slice(1) + kPage, hole_end = slices.slice(4) - kPage;
    ASSERT_EQ(0, syscall(SYS_munmap, hole, hole_end - hole));
    ASSERT_EQ(memory::pointer(hole),
              mmap(memory::pointer(hole), hole_end - hole, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0));
    for (uint64_t at = hole; at < hole_end; at += 2 * kPage) Slices::word(at) = 1;
    EXPECT_EQ(0, late.fill.fill(slices.start(), slices.end()));
    EXPECT_EQ(0u, Slices::wrong_pages(slices.start(), hole));
    EXPECT_EQ(0u, Slices::wrong_pages(hole_end, slices.end()));
    for (uint64_t at = hole; at < hole_end; at += 2 * kPage) ASSERT_EQ(1u, Slices::word(at));
    for (uint64_t at = hole + kPage; at < hole_end; at += 2 * kPage)
      ASSERT_EQ(0u, Slices::word(at));
    void* mirror = mmap(nullptr, slices.end() - slices.start(), PROT_READ, MAP_SHARED, late.mirror,
                        static_cast<off_t>(slices.start()));
    ASSERT_NE(MAP_FAILED, mirror);
    for (uint64_t at = slices.start(); at < slices.end(); at += kPage)
      ASSERT_EQ(at ^ 0x5a5a,
                Slices::word(reinterpret_cast<uint64_t>(mirror) + at - slices.start()));
  });
}

TEST(LateFill, WhatIsMovedByABareSystemCallKeepsItsContents) {
  with_slices(4, [](Late& late, Slices& slices) {
    late.move_aside(slices);
    void* moved = reinterpret_cast<void*>(syscall(SYS_mremap, slices.slice(1), 2 * kSliceBytes,
                                                  2 * kSliceBytes, MREMAP_MAYMOVE, nullptr));
    ASSERT_NE(MAP_FAILED, moved);
    if (moved == memory::pointer(slices.slice(1))) {  // it must be told to move
      Buffer room(2 * kSliceBytes);
      moved = reinterpret_cast<void*>(syscall(SYS_mremap, slices.slice(1), 2 * kSliceBytes,
                                              2 * kSliceBytes, MREMAP_MAYMOVE | MREMAP_FIXED,
                                              room.data()));
      ASSERT_EQ(room.data(), moved);
      for (uint64_t at = slices.slice(1); at < slices.slice(3); at += kPage)
        ASSERT_EQ(at ^ 0x5a5a, Slices::word(room.va() + at - slices.slice(1)));
    }
    EXPECT_EQ(0u, Slices::wrong_pages(slices.start(), slices.slice(1)));
    EXPECT_EQ(0u, Slices::wrong_pages(slices.slice(3), slices.end()));
  });
}

TEST(LateFill, AProgramThatClosesAllDescriptorsLosesNothing) {
  with_slices(4, [](Late& late, Slices& slices) {
    late.move_aside(slices);
    ASSERT_EQ(0, syscall(SYS_close_range, 3u, ~0u, 0u));
    EXPECT_EQ(0u, Slices::wrong_pages(slices.start(), slices.end()));
  });
}

// What a device writes into a page that it had in its hands before is not lost: the page gets into
// the mirror when the device lets go.
TEST(LateFill, WaitsForDevices) {
  with_slices(4, [](Late& late, Slices& slices) {
    IoRing ring;
    if (!ring.works()) return;
    const uint64_t page = slices.slice(1) + 77 * kPage;
    ASSERT_EQ(0, ring.pin(memory::pointer(page), kPage));
    late.move_aside(slices);
    EXPECT_EQ(EBUSY, late.fill.fill(slices.slice(1), slices.slice(2)));
    // Nothing of the slice goes home: a part of it is in the mirror.
    uint64_t home = 0;
    EXPECT_EQ(EBUSY, late.fill.bring_home(slices.start(), slices.end(), PROT_READ | PROT_WRITE,
                                          [&](uint64_t from, uint64_t to) { home += to - from; }));
    EXPECT_EQ(3 * kSliceBytes, home);
    EXPECT_EQ(0u, Slices::wrong_pages(slices.slice(1), page));
    EXPECT_EQ(0u, Slices::wrong_pages(page + kPage, slices.end()));
    const int file = memfd_create("what the device reads", MFD_CLOEXEC);
    ASSERT_EQ(5, ::write(file, "hello", 5));
    ASSERT_EQ(5, ring.read(file, memory::pointer(page + 8), 5, IORING_OP_READ_FIXED));
    std::thread lets_go([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      ring.unpin();
    });
    EXPECT_EQ(0u, Slices::wrong_pages(page, page + kPage));
    lets_go.join();
    EXPECT_EQ(0, std::memcmp(memory::pointer(page + 8), "hello", 5));
    EXPECT_EQ(0, late.fill.fill(slices.start(), slices.end()));
  });
}

TEST(LateFill, FindsNoOldPagesInTheMirror) {
  with_slices(2, [](Late& late, Slices& slices) {
    ASSERT_EQ(4, pwrite(late.mirror, "stale", 4, static_cast<off_t>(slices.slice(1))));
    late.move_aside(slices);
    EXPECT_EQ(0u, Slices::wrong_pages(slices.start(), slices.end()));
  });
}

// A page that a forked child shares is copied like any other.
TEST(LateFill, CopiesWhatAChildShares) {
  with_slices(2, [](Late& late, Slices& slices) {
    int pipe_fds[2];
    ASSERT_EQ(0, pipe(pipe_fds));
    const pid_t child = fork();
    if (child == 0) {
      char byte = 0;
      _exit(::read(pipe_fds[0], &byte, 1) == 1 &&
                    Slices::wrong_pages(slices.start(), slices.end()) == 0
                ? 0
                : 1);
    }
    late.move_aside(slices);
    EXPECT_EQ(0u, Slices::wrong_pages(slices.start(), slices.end()));
    Slices::word(slices.start()) = 1;
    ASSERT_EQ(1, ::write(pipe_fds[1], "", 1));
    int status = -1;
    ASSERT_EQ(child, waitpid(child, &status, 0));
    EXPECT_EQ(0, status);
  });
}

TEST(LateFill, ProtectsAsTheProgramLikes) {
  with_slices(4, [](Late& late, Slices& slices) {
    late.move_aside(slices);
    ASSERT_EQ(0, mprotect(memory::pointer(slices.start()), 2 * kSliceBytes, PROT_READ));
    EXPECT_EQ(0u, Slices::wrong_pages(slices.start(), slices.slice(1)));
    EXPECT_EQ(0, late.fill.bring_home(slices.slice(1), slices.slice(2), PROT_READ,
                                      [](uint64_t, uint64_t) {}));
    EXPECT_EQ(0u, Slices::wrong_pages(slices.start(), slices.end()));
    EXPECT_DEATH(Slices::word(slices.slice(1)) = 1, "");
  });
}

}  // namespace
}  // namespace hostnic::memory_testing
