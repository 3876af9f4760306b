// SPDX-License-Identifier: BSD-3-Clause
// How processes end that others have started: while their parent has not asked, and afterwards.
#include "dataplane/daemon/clients/wait_status.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "protocol/hostif/unique_fd.h"

namespace hostnic {
namespace {

constexpr std::chrono::milliseconds kPatience{50};

// A child that ends at once in one of these ways, and is a zombie now.
struct Ended {
  explicit Ended(int exit_code, int signal = 0) {
    pid = fork();
    if (pid == 0) {
      if (signal != 0) kill(getpid(), signal);
      _exit(exit_code);
    }
    fd = UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    pollfd watched{fd.get(), POLLIN, 0};
    poll(&watched, 1, -1);
  }
  ~Ended() { reap(); }
  void reap() {
    if (pid > 0) waitpid(pid, nullptr, 0);
    pid = -1;
  }
  pid_t pid = -1;
  UniqueFd fd;
};

TEST(WaitStatus, OfZombies) {
  const Ended well(0), failed(3), killed(0, SIGKILL);
  EXPECT_EQ(wait_status_of(well.fd.get(), well.pid, kPatience).value_or(-1), 0);
  const int status = wait_status_of(failed.fd.get(), failed.pid, kPatience).value_or(-1);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 3) << status;
  const int signalled = wait_status_of(killed.fd.get(), killed.pid, kPatience).value_or(-1);
  EXPECT_TRUE(WIFSIGNALED(signalled) && WTERMSIG(signalled) == SIGKILL) << signalled;
}

TEST(WaitStatus, OfProcessesWhoseParentHasAsked) {
  Ended well(0), failed(3);
  const pid_t pids[] = {well.pid, failed.pid};
  well.reap();
  failed.reap();
  const auto status = wait_status_of(failed.fd.get(), pids[1], kPatience);
  if (!status) GTEST_SKIP() << "this kernel does not say how (before Linux 6.15)";
  EXPECT_TRUE(WIFEXITED(*status) && WEXITSTATUS(*status) == 3) << *status;
  EXPECT_EQ(wait_status_of(well.fd.get(), pids[0], kPatience).value_or(-1), 0);
}

}  // namespace
}  // namespace hostnic
