// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/lcore/scheduling_group.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace hostnic {
namespace {

class SchedulingGroup : public testing::Test {
 protected:
  SchedulingGroup() {
    proc_ = testing::TempDir() + "hostnic-proc-" + std::to_string(getpid());
    write("sys/kernel/sched_autogroup_enabled", "1\n");
    write("self/autogroup", "/autogroup-17 nice 0\n");
    write("42/autogroup", "/autogroup-1 nice 0\n");
    write("43/autogroup", "/autogroup-17 nice 0\n");
  }
  ~SchedulingGroup() override { std::filesystem::remove_all(proc_); }
  void write(const std::string& name, const std::string& text) {
    const std::filesystem::path path = proc_ + "/" + name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  std::string proc_;
};

TEST_F(SchedulingGroup, AProcessOfAnotherSessionIsApart) {
  EXPECT_TRUE(scheduled_apart_from(42, proc_));
  EXPECT_FALSE(scheduled_apart_from(43, proc_));
}

TEST_F(SchedulingGroup, NobodyIsWhereSessionsAreNoGroups) {
  write("sys/kernel/sched_autogroup_enabled", "0\n");
  EXPECT_FALSE(scheduled_apart_from(42, proc_));
  std::filesystem::remove_all(proc_ + "/sys");
  EXPECT_FALSE(scheduled_apart_from(42, proc_));
}

TEST_F(SchedulingGroup, NobodyIsOfWhomNothingIsKnown) {
  EXPECT_FALSE(scheduled_apart_from(44, proc_));
  write("self/autogroup", "");
  EXPECT_FALSE(scheduled_apart_from(42, proc_));
}

TEST(SchedulingGroupOfThisKernel, AProcessIsNotApartFromItself) {
  EXPECT_FALSE(scheduled_apart_from(static_cast<uint32_t>(getpid())));
}

}  // namespace
}  // namespace hostnic
