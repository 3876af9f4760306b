// SPDX-License-Identifier: BSD-3-Clause
// Refused connects inside a lab: who is waited for, and for how long in all.
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <vector>

#include "verbs-shim/hooks/lab_programs.h"

namespace hostnic::hooks {
namespace {

using Programs = std::vector<LabProgram>;

// The processor time of a program that came to its connect() at once.
constexpr uint64_t kOwnCpuMs = 10;

uint32_t pauses(ConnectPatience& patience, const Programs& others,
                uint64_t own_cpu_ms = kOwnCpuMs) {
  uint32_t count = 0;
  while (count < 100'000 && patience.once_more(others, own_cpu_ms)) ++count;
  return count;
}

TEST(AbiConnect, WellKnownPortsAndDisplaysAreNoPortsOfALab) {
  for (const uint16_t port : {22, 80, 1023, 6000, 6009, 6063})
    EXPECT_FALSE(ConnectPatience::concerns(port)) << port;
  for (const uint16_t port : {1024, 5999, 6064, 18515, 65535})
    EXPECT_TRUE(ConnectPatience::concerns(port)) << port;
}

TEST(AbiConnect, AloneNobodyIsWaitedFor) {
  ConnectPatience patience;
  EXPECT_EQ(pauses(patience, {}), 0u);
  EXPECT_EQ(pauses(patience, {{.age_ms = 60'000, .cpu_ms = 10, .runs = true}}), 0u);
  EXPECT_EQ(pauses(patience, {{.age_ms = 5'000, .cpu_ms = 1'000, .runs = true}}), 0u);
}

// However many ports are tried.
TEST(AbiConnect, FractionsOfASecondInAll) {
  ConnectPatience patience;
  const Programs begun = {{.age_ms = 100, .cpu_ms = 400, .runs = true}};
  EXPECT_EQ(pauses(patience, begun), ConnectPatience::kPauses);
  EXPECT_LT(ConnectPatience::kPauses * ConnectPatience::kPauseMs, 1'000u);
  EXPECT_EQ(pauses(patience, begun), 0u);
  ConnectPatience asleep;
  EXPECT_LE(pauses(asleep, {{.age_ms = 100, .cpu_ms = 1, .runs = false}}),
            ConnectPatience::kPauses + ConnectPatience::kIdlePauses);
}

TEST(AbiConnect, LongerForWhoeverGetsNoProcessor) {
  ConnectPatience patience;
  const Programs starved = {{.age_ms = 2'000, .cpu_ms = 20, .runs = true}};
  EXPECT_EQ(pauses(patience, starved), ConnectPatience::kPauses + ConnectPatience::kStarvedPauses);
  ConnectPatience other;
  pauses(other, {{.age_ms = 100, .cpu_ms = 400, .runs = true}});
  EXPECT_TRUE(other.once_more(starved, kOwnCpuMs));
  // It waits for hostnicd in between.
  EXPECT_TRUE(other.once_more({{{.age_ms = 2'100, .cpu_ms = 30, .runs = false}}}, kOwnCpuMs));
  EXPECT_TRUE(other.once_more(starved, kOwnCpuMs));
  EXPECT_FALSE(other.once_more({{{.age_ms = 2'500, .cpu_ms = 300, .runs = true}}}, kOwnCpuMs));
}

// A look every 20 ms rarely meets a program that runs a millisecond at a time.
TEST(AbiConnect, OneThatRanBetweenTwoLooksIsNotIdle) {
  ConnectPatience patience;
  uint32_t looks = 0;
  for (uint64_t cpu_ms = 10; cpu_ms < 200; ++looks) {
    if (looks % 20 == 0) cpu_ms += 10;
    ASSERT_TRUE(
        patience.once_more({{{.age_ms = 4'000, .cpu_ms = cpu_ms, .runs = false}}}, kOwnCpuMs));
  }
  EXPECT_GT(looks, ConnectPatience::kPauses + 3 * ConnectPatience::kIdlePauses);
  EXPECT_EQ(pauses(patience, {{.age_ms = 4'000, .cpu_ms = 200, .runs = false}}),
            ConnectPatience::kIdlePauses - 1)
      << "from then on it is idle";
}

// Under a sanitizer, `server & client` of the same program take a second each to come that far: 300
// ms of the processor do not show that the server will never listen.
TEST(AbiConnect, AsLongAsThisProgramItselfNeededTwice) {
  const Programs slow = {{.age_ms = 1'500, .cpu_ms = 900, .runs = true}};
  ConnectPatience quick, patience, begun;
  EXPECT_EQ(pauses(quick, slow, 100), ConnectPatience::kPauses);
  EXPECT_EQ(pauses(patience, slow, 600),
            ConnectPatience::kPauses + ConnectPatience::kStarvedPauses);
  const Programs computes = {{.age_ms = 8'000, .cpu_ms = 6'000, .runs = true}};
  EXPECT_EQ(pauses(begun, computes, 100'000), 0u) << "one that began long before is not waited for";
}

// A process with this environment from its start, that has nothing to do with the child that looks.
pid_t start(const char* lab, const char* socket) {
  const pid_t pid = fork();
  if (pid == 0) {
    if (lab != nullptr) setenv("HOSTNIC_LAB", lab, 1);
    setenv("HOSTNIC_SOCKET", socket, 1);
    execlp("sleep", "sleep", "60", nullptr);
    _exit(127);
  }
  return pid;
}

TEST(AbiConnect, FindsTheOtherProgramsOfTheLab) {
  const char* socket = "/tmp/abi-connect-test/socket";
  const std::vector<pid_t> begun = {start("1", socket), start("1", "/tmp/abi-connect-test/socket2"),
                                    start(nullptr, socket)};
  // This process is above all of them: only one beside them sees them.
  const pid_t child = fork();
  if (child == 0) {
    setenv("HOSTNIC_SOCKET", socket, 1);
    for (int i = 0; i < 1000; ++i) {
      const auto found = other_lab_programs(600'000);
      if (found.size() > 1) _exit(1);
      if (found.size() == 1) _exit(found[0].age_ms < 600'000 ? 0 : 2);
      usleep(10'000);  // not executed yet
    }
    _exit(3);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  setenv("HOSTNIC_SOCKET", socket, 1);
  EXPECT_TRUE(other_lab_programs(600'000).empty()) << "those below the process don't count";
  unsetenv("HOSTNIC_SOCKET");
  for (const pid_t pid : begun) {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
}

// Where each host of a lab has a socket of its own, its directory makes programs known.
TEST(AbiConnect, FindsProgramsOfOtherHostsOfTheLab) {
  setenv("HOSTNIC_LAB_DIR", "/tmp/abi-connect-test/lab", 1);
  const pid_t other = start("1", "/tmp/abi-connect-test/lab/host2/socket");
  setenv("HOSTNIC_LAB_DIR", "/tmp/abi-connect-test/lab2", 1);
  const pid_t stranger = start("1", "/tmp/abi-connect-test/lab2/host1/socket");
  const pid_t child = fork();
  if (child == 0) {
    setenv("HOSTNIC_LAB_DIR", "/tmp/abi-connect-test/lab", 1);
    setenv("HOSTNIC_SOCKET", "/tmp/abi-connect-test/lab/host1/socket", 1);
    for (int i = 0; i < 1000; ++i) {
      if (other_lab_programs(600'000).size() == 1) _exit(0);
      usleep(10'000);  // not executed yet
    }
    _exit(3);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  unsetenv("HOSTNIC_LAB_DIR");
  for (const pid_t pid : {other, stranger}) {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
}

// Processes that end while they are looked at.
TEST(AbiConnect, OthersMayComeAndGo) {
  const pid_t busy = fork();
  if (busy == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) {
      const pid_t brief = fork();
      if (brief == 0) _exit(0);
      waitpid(brief, nullptr, 0);
    }
  }
  const std::unique_ptr<const pid_t, void (*)(const pid_t*)> end(&busy, [](const pid_t* pid) {
    kill(*pid, SIGKILL);
    waitpid(*pid, nullptr, 0);
  });
  setenv("HOSTNIC_SOCKET", "/tmp/abi-connect-test/socket", 1);
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(other_lab_programs(600'000).empty());
  unsetenv("HOSTNIC_SOCKET");
}

}  // namespace
}  // namespace hostnic::hooks
