// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/memory/fork_handlers.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

namespace hostnic::memory_testing {
namespace {

std::string& order() {
  static std::string order;
  return order;
}

void run() {
  memory::register_fork_handlers();  // as before the first of a program's handlers
  pthread_atfork([] { order() += "p"; }, [] { order() += "P"; }, [] { order() += "C"; });
  memory::add_fork_handlers(
      {[] { order() += "1"; }, [] { order() += "1"; }, [] { order() += "1"; }});
  memory::add_fork_handlers(
      {[] { order() += "2"; }, [] { order() += "2"; }, [] { order() += "2"; }});
  order().clear();
  const pid_t child = fork();
  if (child == 0) _exit(order() == "p2112C" ? 0 : 1);
  int status = 0;
  ASSERT_EQ(child, waitpid(child, &status, 0));
  EXPECT_EQ("p2112P", order());
  EXPECT_EQ(0, status) << "in the child";
}

// Ours run when the program holds its locks: behind its handlers before a fork, ahead of them
// after it. In a process of its own, since handlers stay.
TEST(ForkHandlers, RunInnermost) {
  const pid_t child = fork();
  if (child == 0) {
    run();
    _exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(child, waitpid(child, &status, 0));
  EXPECT_EQ(0, status);
}

}  // namespace
}  // namespace hostnic::memory_testing
