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
