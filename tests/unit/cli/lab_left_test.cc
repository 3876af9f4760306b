// SPDX-License-Identifier: BSD-3-Clause
// What a lab leaves to others to find: its directory, and programs that have to be ended.
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>

#include "dataplane/cli/lab_directory.h"
#include "dataplane/cli/lab_members.h"
#include "dataplane/cli/lab_record.h"
#include "dataplane/cli/namespaces.h"

namespace hostnic::cli {
namespace {

namespace fs = std::filesystem;

class LabDirectories : public testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/lab-test.XXXXXX";
    ASSERT_NE(mkdtemp(path), nullptr);
    base_ = path;
    setenv("TMPDIR", path, 1);
  }
  void TearDown() override {
    unsetenv("TMPDIR");
    fs::remove_all(base_);
  }
  size_t files() const {
    return std::distance(fs::directory_iterator(base_), fs::directory_iterator());
  }
  std::string base_;
};

TEST_F(LabDirectories, OneGoesWithItsLab) {
  {
    auto directory = LabDirectory::create(kHostsPrefix);
    ASSERT_TRUE(directory) << directory.error();
    EXPECT_TRUE(directory->path().starts_with(base_ + "/hostnic-hosts-"));
    std::ofstream(directory->file("log")) << "x";
    EXPECT_EQ(files(), 1u);
  }
  EXPECT_EQ(files(), 0u);
}

TEST_F(LabDirectories, OneThatAKilledLabLeftIsRemovedAndOneInUseIsNot) {
  auto living = LabDirectory::create(kHostsPrefix);
  ASSERT_TRUE(living);
  fs::create_directories(base_ + "/hostnic-hosts-kiLLed/host1");
  fs::create_directories(base_ + "/hostnic-hosts-others-own");
  fs::create_directories(base_ + "/hostnic-lab-plain1");
  auto next = LabDirectory::create(kHostsPrefix);
  ASSERT_TRUE(next);
  EXPECT_FALSE(fs::exists(base_ + "/hostnic-hosts-kiLLed"));
  EXPECT_TRUE(fs::exists(living->path()));
  EXPECT_TRUE(fs::exists(base_ + "/hostnic-hosts-others-own"));
  EXPECT_TRUE(fs::exists(base_ + "/hostnic-lab-plain1"));
}

TEST_F(LabDirectories, OneThatIsKeptIsNotTakenForOneThatWasLeft) {
  std::string kept;
  {
    auto directory = LabDirectory::create(kHostsPrefix);
    ASSERT_TRUE(directory);
    std::ofstream(directory->file("log")) << "x";
    kept = directory->keep();
  }
  EXPECT_TRUE(LabDirectory::create(kHostsPrefix));
  EXPECT_TRUE(fs::exists(kept + "/log"));
}

// A child that has a child; both wait for signals.
pid_t start_family(bool ignores) {
  int ready[2];
  if (pipe(ready) != 0) return -1;
  const pid_t child = fork();
  if (child == 0) {
    if (ignores) signal(SIGTERM, SIG_IGN);
    if (fork() == 0) [[maybe_unused]]
      const ssize_t told = write(ready[1], "x", 1);
    for (;;) pause();
  }
  char byte = 0;
  EXPECT_EQ(read(ready[0], &byte, 1), 1);
  close(ready[0]);
  close(ready[1]);
  return child;
}

TEST(LabMembers, AFamilyIsFoundAndEnded) {
  for (const bool ignores : {false, true}) {
    const pid_t child = start_family(ignores);
    ASSERT_GT(child, 0);
    std::set<pid_t> known = {child};
    EXPECT_EQ(with_descendants(known).size(), 2u);
    EXPECT_TRUE(processes_in({network_id_of(child)}, {}).contains(child));
    EXPECT_FALSE(processes_in({network_id_of(child)}, {child}).contains(child));
    end_processes([&] { return known = with_descendants(known); }, 100);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, WNOHANG), child) << "it has ended";
    EXPECT_EQ(WTERMSIG(status), ignores ? SIGKILL : SIGTERM);
    EXPECT_TRUE(known.empty());
  }
}

struct NamespaceKeeper {
  pid_t pid = 0;
  ino_t network_id = 0;
  int network_fd = -1;
};

// A process in a network namespace of its own; nothing where that is forbidden.
NamespaceKeeper start_in_own_network() {
  int told[2];
  if (pipe(told) != 0) return {};
  NamespaceKeeper keeper;
  keeper.pid = fork();
  if (keeper.pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!enter_lab_namespaces()) _exit(1);
    const UniqueFd network = own_namespace("net");
    keeper = {getpid(), network_id_of(getpid()), network.get()};
    [[maybe_unused]] const ssize_t written = write(told[1], &keeper, sizeof keeper);
    for (;;) pause();
  }
  close(told[1]);
  const bool started = read(told[0], &keeper, sizeof keeper) == sizeof keeper;
  close(told[0]);
  if (!started) waitpid(keeper.pid, nullptr, 0);
  return started ? keeper : NamespaceKeeper{};
}

void end_keeper(const NamespaceKeeper& keeper) {
  kill(keeper.pid, SIGKILL);
  waitpid(keeper.pid, nullptr, 0);
}

// Whether one of `count` new network namespaces gets this number.
bool is_given_again(ino_t network_id, int count) {
  bool found = false;
  for (int i = 0; i < count && !found; ++i) {
    const NamespaceKeeper next = start_in_own_network();
    found = next.network_id == network_id;
    end_keeper(next);
    usleep(2000);  // the kernel takes namespaces apart a little later
  }
  return found;
}

TEST(HeldNetworks, TheNumberOfAHostIsNobodyElsesWhileItIsHeld) {
  const NamespaceKeeper guardian = start_in_own_network();
  if (guardian.pid == 0) GTEST_SKIP() << "no namespaces may be made here";
  const LabRecord record{.guardian = guardian.pid,
                         .user_fd = -1,
                         .hosts = {{.name = "host1",
                                    .address = "10.0.0.1",
                                    .network_fd = guardian.network_fd,
                                    .mounts_fd = -1,
                                    .names_fd = -1,
                                    .network_id = guardian.network_id}}};
  {
    const HeldNetworks held(record);
    EXPECT_EQ(held.ids(), std::set<ino_t>{guardian.network_id});
    end_keeper(guardian);
    EXPECT_FALSE(is_given_again(guardian.network_id, 30));
  }
  if (!is_given_again(guardian.network_id, 200))
    GTEST_SKIP() << "this kernel does not give numbers again so soon";
  EXPECT_TRUE(HeldNetworks(record).ids().empty()) << "that guardian is gone";
}

// Whoever has the number of a guardian that was killed may have any network open.
TEST(HostRecord, AnotherNetworkIsNotTheHosts) {
  const UniqueFd network = own_namespace("net");
  const ino_t id = network_id_of(getpid());
  EXPECT_TRUE(is_network_of({.network_id = id}, network));
  EXPECT_FALSE(is_network_of({.network_id = id + 1}, network));
  EXPECT_FALSE(is_network_of({.network_id = id}, UniqueFd()));
}

// Processes that end while they are looked at.
TEST(LabMembers, OthersMayComeAndGo) {
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
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(with_descendants({busy}).contains(busy));
}

}  // namespace
}  // namespace hostnic::cli
