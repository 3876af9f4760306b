// SPDX-License-Identifier: BSD-3-Clause
// Whose a descriptor is.
#include "verbs-shim/base/own_descriptors.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <limits.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "protocol/hostif/unique_fd.h"

namespace hostnic {
namespace {

bool is_open(int fd) { return fcntl(fd, F_GETFD) >= 0; }

TEST(OwnDescriptors, AKeptCopyIsTheLibrarysUntilItGoes) {
  const UniqueFd fd(eventfd(0, EFD_CLOEXEC));
  int number = -1;
  {
    const OwnFd own = OwnFd::copy_of(fd.get());
    number = own.get();
    ASSERT_TRUE(own);
    EXPECT_NE(number, fd.get());
    EXPECT_TRUE(is_kept(number));
    EXPECT_TRUE(still_ours(number));
    EXPECT_EQ(next_kept(0), number);
    EXPECT_EQ(next_kept(number + 1), INT_MAX);
    note_closed(0, INT_MAX - 1);
    EXPECT_TRUE(is_kept(number)) << "the program can't close it";
  }
  EXPECT_FALSE(is_open(number));
  EXPECT_FALSE(still_ours(number));
  EXPECT_EQ(next_kept(0), INT_MAX);
}

TEST(OwnDescriptors, ALentOneIsTheLibrarysUntilTheProgramClosesIt) {
  const int fd = eventfd(0, EFD_CLOEXEC);
  lend(fd);
  EXPECT_TRUE(still_ours(fd));
  EXPECT_FALSE(is_kept(fd));
  note_closed(fd, fd);
  EXPECT_FALSE(still_ours(fd));
  close_ours(fd);
  EXPECT_TRUE(is_open(fd)) << "it may be a file of the program's by now";
  lend(fd);
  close_ours(fd);
  EXPECT_FALSE(is_open(fd));
}

TEST(OwnDescriptors, AThreadWithATableOfItsOwnClosesNothingOfTheProcess) {
  const int fd = eventfd(0, EFD_CLOEXEC);
  lend(fd);
  std::thread([fd] {
    ASSERT_EQ(unshare(CLONE_FILES), 0);
    note_own_table();
    note_closed(fd, fd);
  }).join();
  EXPECT_FALSE(has_own_table());
  EXPECT_TRUE(still_ours(fd)) << "the thread's number led elsewhere";
  close_ours(fd);
}

TEST(OwnDescriptors, AChildMayCloseWhatIsItsParents) {
  const UniqueFd fd(eventfd(0, EFD_CLOEXEC));
  const OwnFd own = OwnFd::copy_of(fd.get());
  lend_kept_in_child();
  EXPECT_FALSE(is_kept(own.get()));
  EXPECT_TRUE(still_ours(own.get()));
}

// As subprocess.Popen of Python does, and posix_spawn().
TEST(OwnDescriptors, AChildOfVforkClosesItsOwn) {
  const int fd = eventfd(0, EFD_CLOEXEC);
  lend(fd);
  const pid_t child = vfork();
  if (child == 0) {
    note_closed(0, INT_MAX - 1);
    _exit(0);
  }
  ASSERT_GT(child, 0);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(still_ours(fd));
  close_ours(fd);
}

TEST(OwnDescriptors, WhatIsNoDescriptorIsNobodys) {
  EXPECT_FALSE(OwnFd::copy_of(-1));
  for (const int fd : {-1, INT_MIN, INT_MAX, 1 << 20}) {
    lend(fd);
    EXPECT_FALSE(still_ours(fd));
    close_ours(fd);
  }
}

}  // namespace
}  // namespace hostnic
