// SPDX-License-Identifier: BSD-3-Clause
#include "protocol/hostif/standard_descriptors.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace hostnic {
namespace {

// In a child, with those of the mask closed: whether all three are open afterwards, and the next
// file gets a number of its own.
int filled(unsigned mask) {
  const pid_t child = fork();
  if (child == 0) {
    for (int fd = 0; fd < 3; ++fd)
      if (mask & (1u << fd)) close(fd);
    open_standard_descriptors();
    for (int fd = 0; fd < 3; ++fd)
      if (fcntl(fd, F_GETFD) != 0) _exit(1 + fd);
    const int next = open("/", O_PATH);
    _exit(next < 3 ? 10 : 0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(StandardDescriptors, AreOpenWhicheverWereClosed) {
  for (unsigned mask = 0; mask < 8; ++mask) EXPECT_EQ(filled(mask), 0) << mask;
}

TEST(StandardDescriptors, ThoseThatAreOpenStay) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    close(STDIN_FILENO);
    open_standard_descriptors();
    _exit(write(STDOUT_FILENO, "x", 1) == 1 ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  char byte = 0;
  EXPECT_EQ(read(ends[0], &byte, 1), 1);
  EXPECT_EQ(byte, 'x');
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace hostnic
