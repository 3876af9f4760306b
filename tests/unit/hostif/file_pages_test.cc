// SPDX-License-Identifier: BSD-3-Clause
#include "protocol/hostif/file_pages.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#include "protocol/hostif/unique_fd.h"
#include "tests/support/seccomp_filter.h"

namespace hostnic {
namespace {

constexpr uint64_t kPage = 4096;

// A file of eight pages, of which number 5 is a hole.
UniqueFd file_with_a_hole() {
  UniqueFd fd(memfd_create("pages", MFD_CLOEXEC));
  const std::vector<std::byte> bytes(5 * kPage, std::byte{1});
  EXPECT_EQ(ftruncate(fd.get(), 8 * kPage), 0);
  EXPECT_EQ(pwrite(fd.get(), bytes.data(), 5 * kPage, 0), static_cast<ssize_t>(5 * kPage));
  EXPECT_EQ(pwrite(fd.get(), bytes.data(), 2 * kPage, 6 * kPage), static_cast<ssize_t>(2 * kPage));
  return fd;
}

void expect_ends(int fd) {
  EXPECT_EQ(end_of_pages(fd, 0, 5 * kPage), 5 * kPage);
  EXPECT_EQ(end_of_pages(fd, 0, 4 * kPage + 1), 4 * kPage + 1);
  EXPECT_EQ(end_of_pages(fd, kPage, 2 * kPage), 2 * kPage);
  EXPECT_EQ(end_of_pages(fd, 0, 6 * kPage), 5 * kPage);
  EXPECT_EQ(end_of_pages(fd, 0, 5 * kPage + 1), 5 * kPage) << "a byte of the hole";
  EXPECT_EQ(end_of_pages(fd, 0, 8 * kPage), 5 * kPage);
  EXPECT_EQ(end_of_pages(fd, 5 * kPage, 8 * kPage), 5 * kPage) << "begins with the hole";
  EXPECT_EQ(end_of_pages(fd, 6 * kPage, 8 * kPage), 8 * kPage);
  EXPECT_EQ(end_of_pages(fd, 6 * kPage, 9 * kPage), 8 * kPage) << "behind the file's end";
  EXPECT_EQ(end_of_pages(fd, 9 * kPage, 10 * kPage), 9 * kPage) << "behind the file's end";
  EXPECT_EQ(end_of_pages(fd, 3 * kPage, 3 * kPage), 3 * kPage);
  EXPECT_EQ(end_of_pages(-1, 0, kPage), 0u);
}

TEST(FilePages, GoOnToTheNextHole) { expect_ends(file_with_a_hole().get()); }

// As before Linux 6.5, and in containers whose seccomp profile does not know the call.
bool forbid_cachestat() {
  constexpr uint32_t kCachestat = 451;
  const sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kCachestat, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  return filter_calls(filter);
}

TEST(FilePages, GoOnToTheNextHoleWithoutCachestat) {
  std::thread([] {
    if (!forbid_cachestat()) GTEST_SKIP() << "seccomp is refused";
    expect_ends(file_with_a_hole().get());
  }).join();
}

}  // namespace
}  // namespace hostnic
