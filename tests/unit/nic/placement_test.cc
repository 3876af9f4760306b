// SPDX-License-Identifier: BSD-3-Clause
// Bytes of packets go to memory, or count for nothing where the memory was cut off: nobody may hear
// that they have arrived.
#include "dataplane/nic/memory/placement.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <span>
#include <thread>

namespace hostnic {
namespace {

constexpr size_t kPage = 4096;
constexpr VirtualAddress kVa = 0x10000;

class PlacementInFile : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(install_sigbus_guard());
    file_ = memfd_create("placement", MFD_CLOEXEC);
    ASSERT_EQ(ftruncate(file_, kPages * kPage), 0);
    at_ = static_cast<std::byte*>(
        mmap(nullptr, kPages * kPage, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0));
    ASSERT_NE(at_, MAP_FAILED);
    ASSERT_TRUE(add_sigbus_range(at_, kPages * kPage, kPage, &cut_off_));
  }
  void TearDown() override {
    forget_fault();
    remove_sigbus_range(at_);
    munmap(at_, kPages * kPage);
    close(file_);
  }

  // A region of the file's pages, in pieces of so many.
  MemoryRegionEntry& region_of(size_t pages_each) {
    MrTable::Init init{.client_id = 1, .va = kVa, .iova = kVa, .length_bytes = kPages * kPage};
    for (size_t page = 0; page < kPages; page += pages_each)
      init.pieces.push_back({.va = kVa + page * kPage,
                             .length_bytes = pages_each * kPage,
                             .host = at_ + page * kPage});
    key_ = mrs_.add(std::move(init));
    return *mrs_.find(key_);
  }
  PlaceResult place(MemoryRegionEntry& region, uint64_t offset, size_t bytes, bool ahead) {
    const PlaceRequest request{
        .early_writes = early_writes_, .window = window_, .psn = Psn(7), .ahead = ahead};
    return placement_.place(request, region, kVa + offset, std::span(bytes_).first(bytes));
  }

  static constexpr size_t kPages = 4;
  int file_ = -1;
  std::byte* at_ = nullptr;
  std::atomic<bool> cut_off_{false};
  uint32_t key_ = 0;
  MrTable mrs_{8};
  WindowTable windows_{mrs_};
  Counters counters_;
  Placement placement_{mrs_, windows_, counters_};
  EarlyWrites early_writes_;
  ReceiveWindow window_;
  std::array<std::byte, 2 * kPage> bytes_{std::byte{5}};
};

// The packet is held, and comes again in a turn in which nothing faults any more.
TEST_F(PlacementInFile, OfBytesIntoReplacedMemoryCountsForNothing) {
  for (const size_t pages_each : {kPages, size_t{1}}) {
    ASSERT_EQ(ftruncate(file_, kPages * kPage), 0);
    MemoryRegionEntry& region = region_of(pages_each);
    if (!cut_off_) {
      EXPECT_EQ(place(region, 2 * kPage, 8, false), PlaceResult::kDone);
    }
    ASSERT_EQ(ftruncate(file_, kPage), 0);
    for (const bool ahead : {false, true}) {
      for (const size_t bytes : {size_t{8}, size_t{1000}, 2 * kPage}) {
        for (int tries = 0; tries < 3; ++tries) {
          EXPECT_EQ(place(region, 2 * kPage, bytes, ahead), PlaceResult::kNotNow)
              << bytes << " bytes, try " << tries << ", pieces of " << pages_each;
          forget_fault();  // the turn is over
        }
      }
    }
    EXPECT_TRUE(early_writes_.empty()) << "nothing has been written ahead";
    EXPECT_EQ(place(region, 0, kPage, false), PlaceResult::kDone) << "it is there";
  }
}

// Another NIC of the same program has met it: this thread's own writes do not fault.
TEST_F(PlacementInFile, OfBytesIntoMemoryThatAnotherThreadFoundCutOffCountsForNothing) {
  MemoryRegionEntry& region = region_of(kPages);
  ASSERT_EQ(ftruncate(file_, kPage), 0);
  std::thread([&] { EXPECT_EQ(place(region, 2 * kPage, 8, false), PlaceResult::kNotNow); }).join();
  EXPECT_FALSE(has_faulted());
  EXPECT_EQ(place(region, 2 * kPage, 8, false), PlaceResult::kNotNow);
  EXPECT_TRUE(has_faulted()) << "what else this turn does counts for nothing";
}

}  // namespace
}  // namespace hostnic
