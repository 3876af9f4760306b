// SPDX-License-Identifier: BSD-3-Clause
// Migrated pages that come home while other threads write to them and hand them to system calls;
// registrations beside threads, of which nothing migrates.
#include <fcntl.h>

#include <fstream>
#include <string>
#include <thread>

#include "tests/unit/memory/testing.h"

namespace hostnic::memory_testing {
namespace {

using MemoryMigration = MemoryTest;

constexpr int kRounds = 20;
constexpr size_t kRaceBytes = 16 * kMiB;
constexpr size_t kPages = kRaceBytes / kPage;

uint32_t& page_counter(const Buffer& buffer, size_t page) {
  return *reinterpret_cast<uint32_t*>(buffer.data() + page * kPage);
}

// Increments a counter on every page, round and round.
class Writer {
 public:
  explicit Writer(const Buffer& buffer)
      : counts(kPages), thread_([this, &buffer] {
          while (!stop_.load(std::memory_order_relaxed))
            for (size_t page = 0; page < kPages; page++) {
              // Plain load and store: what a lost write would be visible in.
              volatile uint32_t& counter = page_counter(buffer, page);
              counter = counter + 1;
              counts[page]++;
            }
        }) {}
  void stop() {
    stop_ = true;
    thread_.join();
  }
  std::vector<uint32_t> counts;

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// Lets read(2) write into the second half of pages.
class SystemCaller {
 public:
  explicit SystemCaller(const Buffer& buffer)
      : thread_([this, &buffer] {
          const int random = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
          for (size_t page = 0; !stop_.load(std::memory_order_relaxed);
               page = (page + 37) % kPages) {
            std::byte* at = buffer.data() + page * kPage + 2048;
            if (read(random, at, 64) != 64) failures++;
            calls++;
          }
          close(random);
        }) {}
  void stop() {
    stop_ = true;
    thread_.join();
  }
  long calls = 0, failures = 0;

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// What others map meanwhile: AddressSanitizer's allocator does.
#ifdef __SANITIZE_ADDRESS__
constexpr size_t kStrayAreas = kRounds / 4;
#else
constexpr size_t kStrayAreas = 4;
#endif

// Pages migrate while the process is alone. With threads they come home in mremap.
TEST_F(MemoryMigration, NoWriteIsLostWhenPagesComeHome) {
  if (!migrates()) GTEST_SKIP() << registrar().status();
  const bool with_system_calls = stops_system_calls();
  {
    Buffer warm_up(kMiB);  // what the registrar and the thread library map once
    Nic::Mr mr;
    ASSERT_TRUE(nic.add(warm_up.va(), kMiB, mr)) << nic.error;
    nic.remove(mr);
    std::thread([] {}).join();
  }
  Buffer buffer(kRaceBytes);
  const size_t areas = area_count();
  for (int round = 0; round < kRounds; round++) {
    if (round % 2 == 0)  // untouched: first touches race, too
      ASSERT_EQ(0, madvise(buffer.data(), kRaceBytes, MADV_DONTNEED));
    else
      std::memset(buffer.data(), 0, kRaceBytes);
    Nic::Mr mr;
    // Head and tail fragments, too, in every third round.
    const uint64_t skew = round % 3 == 0 ? 64 : 0;
    ASSERT_TRUE(nic.add(buffer.va() + skew, kRaceBytes - 2 * skew, mr)) << nic.error;
    ASSERT_GE(registrar().counters().in_mirror_bytes, kRaceBytes - 2 * kPage) << how_it_is();
    Writer writer(buffer);
    std::unique_ptr<SystemCaller> caller;
    if (with_system_calls) caller = std::make_unique<SystemCaller>(buffer);
    while (std::atomic_ref(page_counter(buffer, 0)).load() == 0) std::this_thread::yield();
    ASSERT_EQ(buffer.data(), mremap(buffer.data(), kRaceBytes, kRaceBytes, MREMAP_MAYMOVE));
    EXPECT_EQ(0u, registrar().counters().in_mirror_bytes);
    writer.stop();
    if (caller) caller->stop();
    size_t wrong = 0;
    for (size_t page = 0; page < kPages; page++)
      wrong += page_counter(buffer, page) != writer.counts[page];
    EXPECT_EQ(0u, wrong) << "pages with lost writes";
    EXPECT_GT(writer.counts[0], 0u);
    if (caller) {
      EXPECT_EQ(0, caller->failures) << "of " << caller->calls << " read(2)";
    }
    nic.remove(mr);
  }
  EXPECT_LE(area_count(), areas + kStrayAreas) << "areas are left over or do not merge";
}

// malloc and free go on in other threads, sharing the heap with registered memory.
TEST_F(MemoryMigration, HeapGoesOnMeanwhile) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> users;
  for (int i = 0; i < 2; i++)
    users.emplace_back([&stop] {
      while (!stop) {
        std::vector<std::string> strings;
        for (size_t n = 0; n < 200; n++) strings.emplace_back(n * 37 % 5000, 'x');
      }
    });
  for (int round = 0; round < 100; round++) {
    std::vector<std::vector<std::byte>> blocks;
    std::vector<Nic::Mr> mrs(8);
    for (auto& mr : mrs) {
      blocks.emplace_back(100'000);
      ASSERT_TRUE(nic.add(reinterpret_cast<uint64_t>(blocks.back().data()), 100'000, mr))
          << nic.error;
      ASSERT_TRUE(nic.write(mr, 50'000, {std::byte{7}}));
    }
    for (size_t i = 0; i < mrs.size(); i++) {
      nic.remove(mrs[i]);
      EXPECT_EQ(std::byte{7}, blocks[i][50'000]);
    }
  }
  stop = true;
  for (auto& user : users) user.join();
}

// Threads register overlapping parts of one buffer, and each finds its own bytes.
TEST_F(MemoryMigration, ThreadsRegisterAtOnce) {
  Buffer buffer(4 * kMiB);
  std::vector<std::thread> threads;
  std::atomic<int> failures{0};
  for (size_t i = 0; i < 4; i++)
    threads.emplace_back([&, i] {
      auto& own = registrar();
      for (int round = 0; round < 50; round++) {
        const uint64_t va = buffer.va() + i * 512 * 1024 + static_cast<uint64_t>(round);
        auto added = own.add(va, 2 * kMiB, true);
        if (!added) {
          failures++;
          continue;
        }
        buffer.data()[i] = static_cast<std::byte>(round);
        own.remove(va, 2 * kMiB, added->number);
        if (buffer.data()[i] != static_cast<std::byte>(round)) failures++;
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(0, failures.load());
  EXPECT_EQ(0u, registrar().counters().in_mirror_bytes);
}

TEST_F(MemoryMigration, LockedMemoryStaysInPlace) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "AddressSanitizer makes mlock do nothing";
#endif
  Buffer buffer(16 * kPage);
  if (mlock(buffer.data(), buffer.size()) != 0) GTEST_SKIP() << "mlock: " << std::strerror(errno);
  Nic::Mr mr;
  ASSERT_TRUE(nic.add(buffer.va(), buffer.size(), mr)) << nic.error;
  EXPECT_TRUE(all_of_kind(mr, RegionKind::kMemFd));
  expect_right_bytes(mr);
  nic.remove(mr);
}

// The bytes of this process's memory that are locked.
uint64_t locked_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmLck:")) return std::stoull(line.substr(std::strlen("VmLck:"))) * 1024;
  return 0;
}

TEST_F(MemoryMigration, MemoryLockedMeanwhileIsLockedAtHome) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "AddressSanitizer makes mlock do nothing";
#endif
  Buffer buffer(16 * kPage);
  const uint64_t before = locked_bytes();
  Nic::Mr mr;
  ASSERT_TRUE(nic.add(buffer.va(), buffer.size(), mr)) << nic.error;
  ASSERT_TRUE(all_of_kind(mr, RegionKind::kMirror)) << how_it_is();
  ASSERT_EQ(0, mlock(buffer.data() + 4 * kPage, 8 * kPage)) << std::strerror(errno);
  nic.remove(mr);
  EXPECT_EQ(0u, registrar().counters().in_mirror_bytes);
  EXPECT_EQ(before + 8 * kPage, locked_bytes());
  // The kernel frees nothing of locked memory.
  EXPECT_EQ(-1, madvise(buffer.data() + 4 * kPage, kPage, MADV_FREE));
  EXPECT_EQ(0, munlock(buffer.data(), buffer.size()));
  EXPECT_EQ(before, locked_bytes());
}

}  // namespace
}  // namespace hostnic::memory_testing
