// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/start/service_manager.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>

#include "tests/unit/daemon/notify_socket.h"

namespace hostnic {
namespace {

class ServiceManager : public testing::Test {
 protected:
  ~ServiceManager() override { unlink(path_.c_str()); }
  std::string path_ = testing::TempDir() + "hostnic-notify-" + std::to_string(getpid());
};

TEST_F(ServiceManager, HearsThatHostnicdIsReady) {
  NotifySocket manager(path_);
  EXPECT_TRUE(tell_service_manager("READY=1"));
  EXPECT_EQ(manager.heard(), "READY=1");
}

TEST_F(ServiceManager, HearsItByAnAbstractName) {
  NotifySocket manager("@hostnic-notify-" + std::to_string(getpid()));
  EXPECT_TRUE(tell_service_manager("READY=1"));
  EXPECT_EQ(manager.heard(), "READY=1");
}

TEST_F(ServiceManager, OneThatDoesNotReadHoldsNobodyUp) {
  NotifySocket manager(path_);
  int told = 0;
  while (told < 100'000 && tell_service_manager("WATCHDOG=1")) ++told;
  EXPECT_LT(told, 100'000);
  EXPECT_GT(told, 0);
}

TEST_F(ServiceManager, WhereThereIsNoneNobodyIsTold) {
  unsetenv("NOTIFY_SOCKET");
  EXPECT_FALSE(tell_service_manager("READY=1"));
  for (const std::string& name : {std::string(), path_, std::string(200, 'x')}) {
    setenv("NOTIFY_SOCKET", name.c_str(), 1);
    EXPECT_FALSE(tell_service_manager("READY=1")) << name;
  }
  unsetenv("NOTIFY_SOCKET");
}

TEST_F(ServiceManager, WaitsAsLongAsItSays) {
  const std::string own_pid = std::to_string(getpid());
  EXPECT_EQ(watchdog_limit_ns(), 0u);
  for (const auto& [limit, pid, want_ns] :
       {std::tuple{"30000000", own_pid.c_str(), uint64_t{30'000'000'000}},
        {"30000000", "", 0},
        {"30000000", "1", 0},
        {"-1", own_pid.c_str(), 0},
        {"1s", own_pid.c_str(), 0},
        {"18446744073709551615", own_pid.c_str(), 0}}) {
    setenv("WATCHDOG_USEC", limit, 1);
    setenv("WATCHDOG_PID", pid, 1);
    EXPECT_EQ(watchdog_limit_ns(), want_ns) << limit << " " << pid;
  }
  unsetenv("WATCHDOG_PID");
  setenv("WATCHDOG_USEC", "1000", 1);
  EXPECT_EQ(watchdog_limit_ns(), 1'000'000u);
  unsetenv("WATCHDOG_USEC");
}

// In a process of its own, whose descriptors from 3 on are the test's to choose.
bool in_a_child(const std::function<bool()>& test) {
  const pid_t child = fork();
  if (child == 0) {
    closefrom(3);
    _exit(test() ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

void pass(const std::string& count, pid_t pid = getpid()) {
  setenv("LISTEN_FDS", count.c_str(), 1);
  setenv("LISTEN_PID", std::to_string(pid).c_str(), 1);
}

TEST_F(ServiceManager, PassesSocketsToTheProcessThatItNames) {
  EXPECT_TRUE(in_a_child([] {
    if (open("/dev/null", O_RDONLY) != 3 || open("/dev/zero", O_RDONLY) != 4) return false;
    pass("2", getpid() + 1);
    if (const auto none = take_passed_sockets(); !none || !none->empty()) return false;
    pass("2");
    const auto both = take_passed_sockets();
    if (!both || both->size() != 2 || (*both)[0].get() != 3 || (*both)[1].get() != 4) return false;
    // Programs that hostnicd might start don't get them.
    if (fcntl(3, F_GETFD) != FD_CLOEXEC || getenv("LISTEN_FDS") != nullptr) return false;
    const auto again = take_passed_sockets();
    return again && again->empty();
  }));
}

TEST_F(ServiceManager, NumbersThatCannotBeAreAnError) {
  for (const char* count : {"1", "-1", "x", "", "65", "99999999999999999999"})
    EXPECT_TRUE(in_a_child([count] {
      pass(count);
      return !take_passed_sockets();
    })) << count;
}

}  // namespace
}  // namespace hostnic
