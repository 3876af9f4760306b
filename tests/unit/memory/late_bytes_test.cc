// SPDX-License-Identifier: BSD-3-Clause
// No byte of a NIC, and no report, gets to what is mapped where registered memory was.
#include <thread>

#include "tests/unit/memory/watching.h"

namespace hostnic::memory_testing {
namespace {

using memory::raw_mmap;
using memory::raw_munmap;

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

}  // namespace
}  // namespace hostnic::memory_testing
