// SPDX-License-Identifier: BSD-3-Clause
// A region's memory moves, by mremap or realloc, before the region is deregistered. An adapter has
// the pages pinned, and they move along with the mapping: the key leads to them, peers' WRITEs are
// seen at the new place, and peers READ what the program writes there.
#include <malloc.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/conformance/bench.h"

namespace hostnic::conformance {
namespace {

constexpr size_t kPage = 4096, kLength = 32 * kPage;
// More than the heap has left over: it gets a mapping of its own.
constexpr size_t kBlock = 64 << 20;

std::byte* map(size_t length, int prot = PROT_READ | PROT_WRITE) {
  return static_cast<std::byte*>(mmap(nullptr, length, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
}
std::byte pattern(unsigned seed, size_t i) {
  return static_cast<std::byte>(i * 7 + (i >> 8) + seed);
}
void fill(std::byte* at, size_t length, unsigned seed) {
  for (size_t i = 0; i < length; ++i) at[i] = pattern(seed, i);
}
size_t differences(const std::byte* at, size_t length, unsigned seed) {
  size_t count = 0;
  for (size_t i = 0; i < length; ++i) count += at[i] != pattern(seed, i);
  return count;
}

struct Move {
  const char* name;
  std::byte* (*get)();
  // Returns where the memory is now, or MAP_FAILED.
  void* (*move)(std::byte* memory);
  size_t kept_bytes = kLength;
  // Whether the memory may lie in two areas, of which one can't be moved alone by a bare call.
  bool in_one_area = false;
};

const Move kMoves[] = {
    {"moved", [] { return map(kLength); },
     [](std::byte* memory) {
       return mremap(memory, kLength, kLength, MREMAP_MAYMOVE | MREMAP_FIXED, map(kLength));
     }},
    {"moved_by_system_call", [] { return map(kLength); },
     [](std::byte* memory) {
       return reinterpret_cast<void*>(syscall(SYS_mremap, memory, kLength, kLength,
                                              MREMAP_MAYMOVE | MREMAP_FIXED, map(kLength)));
     },
     kLength, true},
    {"moved_leaving_a_mapping", [] { return map(kLength); },
     [](std::byte* memory) {
       return mremap(memory, kLength, kLength, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, nullptr);
     }},
    {"moved_twice", [] { return map(kLength); },
     [](std::byte* memory) {
       constexpr int kFlags = MREMAP_MAYMOVE | MREMAP_FIXED;
       void* first = mremap(memory, kLength, kLength, kFlags, map(kLength));
       return mremap(first, kLength, kLength, kFlags, map(kLength));
     }},
    {"grown_in_place",
     [] {
       std::byte* memory = map(2 * kLength);
       munmap(memory + kLength, kLength);
       return memory;
     },
     [](std::byte* memory) { return mremap(memory, kLength, 2 * kLength, MREMAP_MAYMOVE); }},
    {"shrunk", [] { return map(kLength); },
     [](std::byte* memory) { return mremap(memory, kLength, kLength / 2, 0); }, kLength / 2},
    {"reallocated",
     [] {
       mallopt(M_MMAP_THRESHOLD, 128 << 10);
       return static_cast<std::byte*>(std::malloc(kBlock));
     },
     [](std::byte* memory) { return std::realloc(memory, 2 * kBlock); }},
};

class MovedMemory : public Conformance, public testing::WithParamInterface<Move> {
 protected:
  void transfer(ibv_wr_opcode opcode, std::byte* named, uint32_t rkey, size_t length) {
    ibv_sge sge = near_host->sge(static_cast<uint32_t>(length));
    ibv_send_wr wr = request(1, opcode, &sge, *far_host);
    set_remote(wr, reinterpret_cast<uint64_t>(named), rkey);
    ASSERT_EQ(near->post(wr), 0);
    near->expect(1);
  }
};

TEST_P(MovedMemory, KeysFollow) {
  for (const size_t skew : {size_t{0}, size_t{100}}) {
    if (skew != 0 && GetParam().in_one_area) continue;
    connect();
    std::byte* const memory = GetParam().get();
    ASSERT_NE(memory, MAP_FAILED);
    fill(memory, kLength, 1);
    ibv_mr* mr = ibv_reg_mr(far_host->pd, memory + skew, kLength - 2 * skew, kAllAccess);
    ASSERT_NE(mr, nullptr) << strerror(errno);
    void* const moved = GetParam().move(memory);
    ASSERT_NE(moved, MAP_FAILED) << strerror(errno);
    ASSERT_NE(moved, nullptr);
    auto* const now = static_cast<std::byte*>(moved);
    const size_t length = GetParam().kept_bytes - 2 * skew;
    EXPECT_EQ(differences(now, GetParam().kept_bytes, 1), 0u) << "by moving";
    fill(near_host->bytes().data(), length, 2);
    transfer(IBV_WR_RDMA_WRITE, memory + skew, mr->rkey, length);
    EXPECT_EQ(differences(now + skew, length, 2), 0u) << "by the peer's WRITE";
    fill(now + skew, length, 3);
    transfer(IBV_WR_RDMA_READ, memory + skew, mr->rkey, length);
    EXPECT_EQ(differences(near_host->bytes().data(), length, 3), 0u) << "by the peer's READ";
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
    EXPECT_EQ(differences(now + skew, length, 3), 0u) << "by deregistration";
    // The new place is registered as any memory.
    mr = ibv_reg_mr(far_host->pd, now + skew, length, kAllAccess);
    ASSERT_NE(mr, nullptr) << strerror(errno);
    transfer(IBV_WR_RDMA_WRITE, now + skew, mr->rkey, length);
    EXPECT_EQ(differences(now + skew, length, 3), 0u) << "what had been read";
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
  }
}

// What is mapped at the old place is nobody's but the program's, and what is unmapped at the new
// one is gone.
TEST_P(MovedMemory, OldPlacesAreLeftAlone) {
  if (GetParam().kept_bytes != kLength) GTEST_SKIP() << "it stays in its place";
  connect();
  std::byte* const memory = GetParam().get();
  fill(memory, kLength, 1);
  ibv_mr* mr = ibv_reg_mr(far_host->pd, memory, kLength, kAllAccess);
  ASSERT_NE(mr, nullptr) << strerror(errno);
  void* const moved = GetParam().move(memory);
  ASSERT_NE(moved, MAP_FAILED) << strerror(errno);
  if (moved == memory) {
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
    GTEST_SKIP() << "it stays in its place";
  }
  const auto first = (reinterpret_cast<uintptr_t>(memory) + kPage - 1) & ~(kPage - 1);
  auto* const fresh = reinterpret_cast<std::byte*>(first);
  ASSERT_EQ(mmap(fresh, kLength - kPage, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
            fresh);
  fill(near_host->bytes().data(), kLength, 2);
  transfer(IBV_WR_RDMA_WRITE, memory, mr->rkey, kLength);
  EXPECT_TRUE(std::all_of(fresh, fresh + kLength - kPage,
                          [](std::byte byte) { return byte == std::byte{0}; }));
  EXPECT_EQ(differences(static_cast<std::byte*>(moved), kLength, 2), 0u);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

INSTANTIATE_TEST_SUITE_P(Moves, MovedMemory, testing::ValuesIn(kMoves),
                         [](const auto& info) { return std::string(info.param.name); });

using ChangingMemory = Conformance;

// Another thread maps over pages of the region without a pause.
TEST_F(ChangingMemory, IsServed) {
  connect();
  std::byte* const memory = map(kLength);
  fill(memory, kLength, 1);
  ibv_mr* mr = ibv_reg_mr(far_host->pd, memory, kLength, kAllAccess);
  ASSERT_NE(mr, nullptr) << strerror(errno);
  std::atomic<bool> over{false};
  std::atomic<unsigned> changes{0};
  std::thread changer([&] {
    while (!over) {
      std::byte* const page = memory + 4 * kPage + changes % 8 * kPage;
      static_cast<void>(mmap(page, kPage, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
      changes++;
    }
  });
  for (unsigned i = 0; i < 200 && !HasFatalFailure(); ++i) {
    const bool write = i % 2 == 0;
    fill(near_host->bytes().data(), 2 * kPage, i);
    ibv_sge sge = near_host->sge(2 * kPage);
    ibv_send_wr wr = request(i, write ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ, &sge, *far_host);
    set_remote(wr, reinterpret_cast<uint64_t>(memory), mr->rkey);
    EXPECT_EQ(near->post(wr), 0);
    near->expect(i);
    if (write) {
      EXPECT_EQ(differences(memory, 2 * kPage, i), 0u);
    }
  }
  over = true;
  changer.join();
  EXPECT_GT(changes, 0u);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

// A thread empties or moves pages while another registers and deregisters the memory around them.
TEST_F(ChangingMemory, KeepsWhatTheProgramDid) {
  std::byte* const memory = map(kLength);
  std::byte* const place = map(kPage);
  std::atomic<bool> over{false};
  size_t wrong = 0, rounds = 0;
  std::thread changer([&] {
    for (; !over; ++rounds) {
      std::byte* const page = memory + rounds % 32 * kPage;
      fill(page, kPage, 9);
      // Past libc, as allocators' own code does.
      if (rounds % 2 == 0) {
        syscall(SYS_madvise, page, kPage, MADV_DONTNEED);
        wrong +=
            std::any_of(page, page + kPage, [](std::byte byte) { return byte != std::byte{0}; });
      } else {
        // Both places stay mapped: the library's threads map memory, too.
        constexpr int kFlags = MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP;
        const bool there = mremap(page, kPage, kPage, kFlags, place) == place;
        wrong += !there || differences(place, kPage, 9) != 0;
        fill(place, kPage, 10);
        const bool back = mremap(place, kPage, kPage, kFlags, page) == page;
        wrong += !back || differences(page, kPage, 10) != 0;
      }
    }
  });
  for (unsigned i = 0; i < 200; ++i) {
    ibv_mr* mr = ibv_reg_mr(far_host->pd, memory, kLength, kAllAccess);
    EXPECT_NE(mr, nullptr) << strerror(errno);
    if (mr == nullptr) break;
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
  }
  over = true;
  changer.join();
  EXPECT_EQ(wrong, 0u) << "of " << rounds;
}

// The child looks when the parent has long gone on.
TEST_F(ChangingMemory, AChildHasItsOwn) {
  std::byte* const memory = map(kLength);
  fill(memory, kLength, 1);
  ibv_mr* mr = ibv_reg_mr(far_host->pd, memory, kLength, kAllAccess);
  ASSERT_NE(mr, nullptr) << strerror(errno);
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    char byte = 0;
    const bool told = read(pipe_ends[0], &byte, 1) == 1;
    _exit(told && differences(memory, kLength, 1) == 0 ? 0 : 1);
  }
  fill(memory, kLength, 2);
  ASSERT_EQ(write(pipe_ends[1], "", 1), 1);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(differences(memory, kLength, 2), 0u);
  close(pipe_ends[0]);
  close(pipe_ends[1]);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

// Nothing waits for ever, and nothing that is only reserved becomes memory.
TEST_F(ChangingMemory, CanBeLocked) {
  constexpr size_t kLarge = 64 << 20;
  for (const int flags : {MCL_FUTURE, MCL_CURRENT | MCL_FUTURE, MCL_CURRENT}) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child != 0) {
      int status = -1;
      ASSERT_EQ(waitpid(child, &status, 0), child);
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << flags << ": " << status;
      continue;
    }
    alarm(20);
    Host own("hnic1");
    std::byte* const memory = map(kLarge);
    fill(memory, kLarge, 1);
    const bool before = flags == MCL_FUTURE;
    if (before && mlockall(flags) != 0) _exit(errno == EPERM || errno == ENOMEM ? 0 : 2);
    ibv_mr* mr = ibv_reg_mr(own.pd, memory, kLarge, kAllAccess);
    if (mr == nullptr) _exit(3);
    if (!before && mlockall(flags) != 0) _exit(errno == EPERM || errno == ENOMEM ? 0 : 4);
    if (differences(memory, kLarge, 1) != 0) _exit(5);
    if (ibv_dereg_mr(mr) != 0) _exit(6);
    if (differences(memory, kLarge, 1) != 0) _exit(7);
    _exit(0);
  }
}

}  // namespace
}  // namespace hostnic::conformance
