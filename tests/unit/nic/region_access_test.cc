// SPDX-License-Identifier: BSD-3-Clause
// Memory reached through the mem fd that is no longer there, and of which nobody says so.
#include "dataplane/nic/memory/region_access.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>

namespace hostnic {
namespace {

constexpr uint64_t kPage = 4096, kPages = 4;

class UntoldEnd : public testing::Test {
 protected:
  UntoldEnd() : mem_fd_(open("/proc/self/mem", O_RDWR | O_CLOEXEC)) {
    void* at =
        mmap(nullptr, kPages * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(at, MAP_FAILED);
    va_ = reinterpret_cast<uint64_t>(at);
    region_.length_bytes = kPages * kPage;
    region_.va_delta = va_;
    region_.mem_fd = mem_fd_;
    region_.gate = &gate_;
    region_.turn_ns = &now_ns_;
    region_.pieces = {{.va = va_, .length_bytes = kPages * kPage}};
  }
  ~UntoldEnd() override {
    munmap(reinterpret_cast<void*>(va_), kPages * kPage);
    close(mem_fd_);
  }
  MemoryAccess read_page(uint64_t page) {
    std::array<std::byte, 8> bytes;
    return read_through(region_, region_.pieces[0], page * kPage, bytes, {});
  }
  MemoryAccess look() { return has_memory(region_, 0, kPages * kPage, {}); }

  int mem_fd_;
  uint64_t va_ = 0;
  MemoryGate gate_{};
  TimeNs now_ns_ = 0;
  MemoryRegionEntry region_;
};

// A READ that looks before it promises an answer would otherwise be asked again for ever.
TEST_F(UntoldEnd, ReadsAreRefusedAfterATransferFoundNothing) {
  EXPECT_EQ(look(), MemoryAccess::kDone);
  munmap(reinterpret_cast<void*>(va_ + 2 * kPage), kPage);
  EXPECT_EQ(look(), MemoryAccess::kDone) << "nobody has said so";
  EXPECT_EQ(read_page(2), MemoryAccess::kNotNow) << "it may have moved, which is said soon";
  EXPECT_EQ(look(), MemoryAccess::kNotNow);
  // Others reach what is there, which does not put off the end.
  now_ns_ = 99'999'999;
  EXPECT_EQ(read_page(1), MemoryAccess::kDone);
  EXPECT_EQ(look(), MemoryAccess::kNotNow);
  now_ns_ = 100'000'001;
  EXPECT_EQ(look(), MemoryAccess::kGone);
  EXPECT_EQ(read_page(2), MemoryAccess::kGone);
  EXPECT_EQ(has_memory(region_, 0, 2 * kPage, {}), MemoryAccess::kDone);
}

TEST_F(UntoldEnd, MemoryThatComesBackIsThere) {
  munmap(reinterpret_cast<void*>(va_), kPage);
  EXPECT_EQ(read_page(0), MemoryAccess::kNotNow);
  static_cast<void>(mmap(reinterpret_cast<void*>(va_), kPage, PROT_READ,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
  EXPECT_EQ(look(), MemoryAccess::kDone);
  EXPECT_EQ(region_.fault_since_ns, 0u);
}

TEST_F(UntoldEnd, NothingIsLookedAtWhileMappingsChange) {
  munmap(reinterpret_cast<void*>(va_), kPage);
  EXPECT_EQ(read_page(0), MemoryAccess::kNotNow);
  gate_.closed.store(1);
  EXPECT_EQ(look(), MemoryAccess::kNotNow);
}

}  // namespace
}  // namespace hostnic
