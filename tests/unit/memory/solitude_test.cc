// SPDX-License-Identifier: BSD-3-Clause
// Solitude is about other threads: the cases say which count as such. Each is a process of its own,
// because the main thread ends.
#include "verbs-shim/memory/solitude.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <thread>

namespace hostnic::memory {
namespace {

// The state letter of the main thread, as the kernel tells it.
char state_of_main_thread() {
  const std::string id = std::to_string(getpid());
  std::ifstream file("/proc/self/task/" + id + "/stat");
  std::string line;
  std::getline(file, line);
  return line.substr(line.rfind(')') + 2, 1)[0];
}

// Runs `check` on a second thread of a child, whose main thread has ended if `main_ends`; returns
// the child's exit status.
template <class Check>
int in_second_thread(bool main_ends, Check check) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(300);
    std::thread([main_ends, check] {
      while (main_ends && state_of_main_thread() != 'Z') usleep(1000);
      _exit(check() ? 0 : 1);
    }).detach();
    if (main_ends) syscall(SYS_exit, 0);  // pthread_exit would unwind through GoogleTest
    for (;;) pause();
  }
  int status = -1;
  EXPECT_EQ(child, waitpid(child, &status, 0));
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST(Solitude, AThreadThatHasEndedIsNobody) {
  EXPECT_EQ(0, in_second_thread(/*main_ends=*/true, [] { return is_alone({}); }));
}

TEST(Solitude, AThreadThatSleepsIsSomebody) {
  EXPECT_EQ(0, in_second_thread(/*main_ends=*/false, [] { return !is_alone({}); }));
}

// A thread that is joined may be in the kernel's list for a moment more.
TEST(Solitude, AThreadThatIsJoinedIsNobody) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(300);
    for (int round = 0; round < 200; round++) {
      std::thread([] {}).join();
      if (!is_alone({})) _exit(1);
    }
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(child, waitpid(child, &status, 0));
  EXPECT_EQ(0, status);
}

TEST(Solitude, OwnThreadsAreNobody) {
  EXPECT_EQ(0, in_second_thread(/*main_ends=*/false, [] {
              const pid_t main_thread[] = {getpid()};
              return is_alone(main_thread);
            }));
}

}  // namespace
}  // namespace hostnic::memory
