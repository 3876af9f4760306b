// SPDX-License-Identifier: BSD-3-Clause
// Copies into and out of memory that programs watch (docs/transport.md rule 11).
#include "dataplane/nic/memory/copy.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>

#include <array>
#include <thread>
#include <vector>

namespace hostnic {
namespace {

using Copy = void (*)(std::byte*, const std::byte*, size_t);
constexpr Copy kCopies[] = {copy_to_memory, copy_from_memory, copy_tail_to_memory};

TEST(Copy, EveryByteAtEveryAlignmentAndNoOther) {
  constexpr size_t kGuard = 32, kLongest = 700;
  alignas(64) std::array<std::byte, kLongest + 64> from;
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 7 + i / 256 + 1);
  alignas(64) std::array<std::byte, kLongest + 64 + 2 * kGuard> to;
  for (const Copy copy : kCopies) {
    for (size_t to_at = kGuard; to_at < kGuard + 32; ++to_at) {
      for (const size_t from_at : {0, 1, 6, 8, 15}) {
        for (size_t length = 0; length <= kLongest; length += length < 140 ? 1 : 43) {
          to.fill(std::byte{0});
          copy(to.data() + to_at, from.data() + from_at, length);
          for (size_t i = 0; i < to.size(); ++i) {
            const bool inside = i >= to_at && i < to_at + length;
            ASSERT_EQ(to[i], inside ? from[from_at + i - to_at] : std::byte{0})
                << "byte " << i << ", " << length << " from " << from_at << " to " << to_at;
          }
        }
      }
    }
  }
}

// Long ones ask for memory ahead of what they copy, and so beyond the end of both sides.
TEST(Copy, LongCopiesUpToTheEndOfWhatIsMapped) {
  constexpr size_t kMapped = 512 * 1024;
  const auto map = [] {
    return static_cast<std::byte*>(
        mmap(nullptr, kMapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  };
  std::byte *const from = map(), *const to = map();
  for (size_t i = 0; i < kMapped; ++i) from[i] = static_cast<std::byte>(i * 7 + i / 256 + 1);
  for (const Copy copy : kCopies) {
    for (const size_t length : {size_t{127 * 1024 + 9}, size_t{128 * 1024}, size_t{300'003}}) {
      std::memset(to, 0, kMapped);
      copy(to + kMapped - length, from + kMapped - length, length);
      EXPECT_EQ(std::memcmp(to + kMapped - length, from + kMapped - length, length), 0) << length;
      EXPECT_EQ(to[kMapped - length - 1], std::byte{0});
    }
  }
  munmap(from, kMapped);
  munmap(to, kMapped);
}

// Two pages. The first one can't be written at first: what the second one holds when the copy
// comes to the first was stored before it.
class TwoPages {
 public:
  static constexpr size_t kPage = 4096;
  TwoPages() {
    base_ = static_cast<std::byte*>(
        mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    current_ = this;
    struct sigaction action {};
    action.sa_handler = [](int) { current_->on_fault(); };
    sigaction(SIGSEGV, &action, &before_);
  }
  ~TwoPages() {
    sigaction(SIGSEGV, &before_, nullptr);
    munmap(base_, 2 * kPage);
  }
  TwoPages(const TwoPages&) = delete;
  TwoPages& operator=(const TwoPages&) = delete;

  std::byte* border() const { return base_ + kPage; }
  void protect() {
    std::memset(base_, 0, 2 * kPage);
    faulted_ = false;
    mprotect(base_, kPage, PROT_READ);
  }
  bool faulted() const { return faulted_; }
  // Whether anything behind the border had been stored by then.
  bool stored_before() const { return stored_before_; }

 private:
  void on_fault() {
    faulted_ = true;
    stored_before_ = false;
    for (size_t i = 0; i < 8; ++i)
      if (border()[i] != std::byte{0}) stored_before_ = true;
    mprotect(base_, kPage, PROT_READ | PROT_WRITE);
  }
  static TwoPages* current_;
  std::byte* base_ = nullptr;
  volatile bool faulted_ = false, stored_before_ = false;
  struct sigaction before_ {};
};
TwoPages* TwoPages::current_ = nullptr;

TEST(Copy, Rule11_TheFinalWordIsStoredLast) {
  TwoPages pages;
  std::vector<std::byte> message(512, std::byte{0xa5});
  for (const size_t before : {1u, 7u, 8u, 9u, 56u, 64u, 100u, 256u}) {
    for (size_t in_last_word = 1; in_last_word <= 8; ++in_last_word) {
      pages.protect();
      copy_tail_to_memory(pages.border() - before, message.data() + before % 8,
                          before + in_last_word);
      ASSERT_TRUE(pages.faulted());
      EXPECT_FALSE(pages.stored_before()) << before << " bytes, then " << in_last_word;
      EXPECT_EQ(std::memcmp(pages.border() - before, message.data(), before + in_last_word), 0);
    }
  }
}

constexpr uint64_t kNone = 0, kAll = ~uint64_t{0};

// Bytes [6, 6 + 139) of `to` are copied, or nothing but units, all 0 or all 1, while another thread
// looks at the aligned units in between.
TEST(Copy, Rule11_AlignedUnitsAreSingleStores) {
  constexpr size_t kStart = 6, kLength = 139, kUnits = 17;  // of [8, 144)
  alignas(64) std::array<std::byte, 192> from{}, to{};
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> looks{0}, torn{0};
  std::thread observer([&] {
    auto* units = reinterpret_cast<uint64_t*>(to.data());
    while (!stop.load(std::memory_order_relaxed)) {
      for (size_t i = 1; i <= kUnits; ++i) {
        const uint64_t unit = __atomic_load_n(&units[i], __ATOMIC_RELAXED);
        torn += unit != kNone && unit != kAll;
      }
      ++looks;
    }
  });
  for (uint32_t i = 0; i < 300'000 || looks.load() < 10'000; ++i) {
    from.fill(i % 2 == 0 ? std::byte{0xff} : std::byte{0});
    // From every alignment: packets' payloads begin anywhere.
    const Copy copy = i % 3 == 0 ? copy_tail_to_memory : copy_to_memory;
    if (i % 4 < 2) {
      copy(to.data() + kStart, from.data() + i % 16, kLength);
    } else {
      copy(to.data() + 8, from.data() + i % 16, 8 * (1 + i / 4 % 8));
    }
  }
  stop = true;
  observer.join();
  EXPECT_EQ(torn.load(), 0u);
}

// The same of one as long as the widest instructions need, from alike and unlike alignments.
TEST(Copy, Rule11_AlignedUnitsOfLongCopiesAreSingleStores) {
  constexpr size_t kLength = 40 * 1024 + 13;
  constexpr size_t kUnits = kLength / 8;
  std::vector<uint64_t> from(kUnits + 16), to(kUnits + 16);
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> looks{0}, changes{0}, torn{0};
  std::thread observer([&] {
    uint64_t before = kNone;
    for (size_t i = 0; !stop.load(std::memory_order_relaxed); i = (i + 131) % kUnits) {
      const uint64_t unit = __atomic_load_n(&to[i], __ATOMIC_RELAXED);
      torn += unit != kNone && unit != kAll;
      changes += unit != before;
      before = unit;
      ++looks;
    }
  });
  for (uint32_t i = 0; i < 20'000 || looks.load() < 100'000 || changes.load() < 100; ++i) {
    std::fill(from.begin(), from.end(), i % 2 == 0 ? kAll : kNone);
    copy_to_memory(reinterpret_cast<std::byte*>(to.data()),
                   reinterpret_cast<const std::byte*>(from.data()) + i % 16, kLength);
  }
  stop = true;
  observer.join();
  EXPECT_EQ(torn.load(), 0u);
}

TEST(Copy, Rule11_AlignedUnitsAreSingleLoads) {
  constexpr size_t kStart = 6, kLength = 139, kUnits = 17;
  alignas(64) std::array<std::byte, 192> from{}, to{};
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> stores{0};
  std::thread program([&] {
    auto* units = reinterpret_cast<uint64_t*>(from.data());
    for (uint64_t round = 0; !stop.load(std::memory_order_relaxed); ++round) {
      for (size_t i = 1; i <= kUnits; ++i)
        __atomic_store_n(&units[i], round % 2 == 0 ? kAll : kNone, __ATOMIC_RELAXED);
      ++stores;
    }
  });
  uint64_t torn = 0;
  for (uint32_t i = 0; i < 300'000 || stores.load() < 10'000; ++i) {
    const size_t at = i % 16;
    copy_from_memory(to.data() + at, from.data() + kStart, kLength);
    for (size_t unit = 0; unit < kUnits; ++unit) {
      uint64_t value;
      std::memcpy(&value, to.data() + at + (8 - kStart) + unit * 8, 8);
      torn += value != kNone && value != kAll;
    }
  }
  stop = true;
  program.join();
  EXPECT_EQ(torn, 0u);
}

}  // namespace
}  // namespace hostnic
