// SPDX-License-Identifier: BSD-3-Clause
// Pages that change place keep their contents, whatever the kernel says of how far it has got.
#include "verbs-shim/memory/page_mover.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>

#include <cstdarg>

#include "tests/unit/memory/kernel_moves.h"
#include "tests/unit/memory/testing.h"
#include "verbs-shim/memory/raw_memory.h"
#include "verbs-shim/memory/userfault.h"

extern "C" {
int __real_ioctl(int fd, unsigned long request, ...);
int __wrap_ioctl(int fd, unsigned long request, ...);

// The linker leads all calls of ioctl here.
int __wrap_ioctl(int fd, unsigned long request, ...) {
  using hostnic::memory_testing::kernel_moves;
  va_list arguments;
  va_start(arguments, request);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  struct Move {
    uint64_t to, from, length_bytes, mode;
    int64_t moved_bytes;
  };
  if (request == UFFDIO_COPY && kernel_moves.copy_refusals > 0) {
    kernel_moves.copy_refusals--;
    errno = kernel_moves.copy_refusal;
    static_cast<uffdio_copy*>(argument)->copy = -errno;
    return -1;
  }
  if (request == UFFDIO_ZEROPAGE && kernel_moves.zero_refusals > 0) {
    kernel_moves.zero_refusals--;
    errno = kernel_moves.zero_refusal;
    static_cast<uffdio_zeropage*>(argument)->zeropage = -errno;
    return -1;
  }
  if (request != _IOWR(0xAA, 0x05, Move)) return __real_ioctl(fd, request, argument);
  auto& move = *static_cast<Move*>(argument);
  if (kernel_moves.refusals > 0) {
    kernel_moves.refusals--;
    errno = kernel_moves.refusal;
    move.moved_bytes = -errno;
    return -1;
  }
  const int result = __real_ioctl(fd, request, argument);
  const uint64_t told_bytes = kernel_moves.told_bytes;
  if (result != 0 || kernel_moves.miscounts <= 0 || move.length_bytes <= told_bytes) return result;
  kernel_moves.miscounts--;
  move.moved_bytes = told_bytes != 0 ? static_cast<int64_t>(told_bytes) : -EEXIST;
  errno = told_bytes != 0 ? EAGAIN : EEXIST;
  return -1;
}
}

namespace hostnic::memory_testing {
namespace {

// Pages of which each says which one it is, but for some that nobody has touched, and a place to
// which they may move.
class PageMoves : public ::testing::Test {
 protected:
  static constexpr uint64_t kPages = 32, kBytes = kPages * kPage, kHole = 7;

  void SetUp() override {
    if (!userfault_.open(-1) || !userfault_.moves_pages()) GTEST_SKIP() << userfault_.error();
    userfault_.use_pagemap(pagemap_);
    for (uint64_t page = 0; page < kPages; page++)
      if (page % kHole != 0) word(at_, page) = page + 1;
    ASSERT_EQ(0, userfault_.accept_pages(elsewhere_.va(), kBytes));
    ASSERT_EQ(0, userfault_.stop(at_.va(), kBytes, true));
  }
  void TearDown() override {
    kernel_moves.miscounts = kernel_moves.refusals = 0;
    close(pagemap_);
    userfault_.close();
  }
  static volatile uint64_t& word(const Buffer& buffer, uint64_t page) {
    return *reinterpret_cast<volatile uint64_t*>(buffer.data() + page * kPage);
  }
  static uint64_t wrong_pages(const Buffer& buffer) {
    uint64_t wrong = 0;
    for (uint64_t page = 0; page < kPages; page++)
      wrong += word(buffer, page) != (page % kHole != 0 ? page + 1 : 0);
    return wrong;
  }
  void lose_count(uint64_t told_bytes) {
    kernel_moves.told_bytes = told_bytes;
    kernel_moves.miscounts = 1;
  }
  int leave() { return userfault_.move_pages(elsewhere_.va(), at_.va(), kBytes); }
  void come_back() {
    userfault_.put_back(at_.va(), elsewhere_.va(), kBytes);
    userfault_.release(at_.va(), kBytes);
  }

  int pagemap_ = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  memory::Userfault userfault_;
  Buffer at_{kBytes}, elsewhere_{kBytes};
};

TEST_F(PageMoves, KeepContents) {
  ASSERT_EQ(0, leave());
  come_back();
  EXPECT_EQ(0u, wrong_pages(at_));
}

TEST_F(PageMoves, ArriveWhereTheKernelLosesCount) {
  lose_count(3 * kPage);
  EXPECT_EQ(0, leave());
  EXPECT_EQ(0, kernel_moves.miscounts);
  EXPECT_EQ(0u, wrong_pages(elsewhere_));
}

TEST_F(PageMoves, ArriveWhereTheKernelTellsOfNone) {
  lose_count(0);
  EXPECT_EQ(0, leave());
  EXPECT_EQ(0, kernel_moves.miscounts);
  EXPECT_EQ(0u, wrong_pages(elsewhere_));
}

TEST_F(PageMoves, ComeBackWhereTheKernelLosesCount) {
  for (const uint64_t told_bytes : {uint64_t{0}, 5 * kPage}) {
    ASSERT_EQ(0, leave());
    lose_count(told_bytes);
    come_back();
    EXPECT_EQ(0, kernel_moves.miscounts);
    EXPECT_EQ(0u, wrong_pages(at_));
    ASSERT_EQ(0, userfault_.stop(at_.va(), kBytes, true));
  }
  userfault_.release(at_.va(), kBytes);
}

TEST_F(PageMoves, AreNotTakenForMovedWhereSomethingIsInTheirPlace) {
  word(elsewhere_, 1) = 99;
  EXPECT_EQ(EEXIST, leave());
  EXPECT_EQ(99u, word(elsewhere_, 1));
  come_back();
  EXPECT_EQ(0u, wrong_pages(at_));
}

TEST_F(PageMoves, ComeBackInTimeIfTheyCanNotMove) {
  ASSERT_EQ(0, leave());
  constexpr int kForEver = 1'000'000;
  kernel_moves.refusal = EBUSY;
  kernel_moves.refusals = kForEver;
  come_back();
  EXPECT_GT(kernel_moves.refusals, 0);
  EXPECT_EQ(0u, wrong_pages(at_));
}

}  // namespace
}  // namespace hostnic::memory_testing
