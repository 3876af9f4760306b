// SPDX-License-Identifier: BSD-3-Clause
// How long a process is kept from a processor, and whose end is waited for longer because of it.
#include "dataplane/cli/processor_wait.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "dataplane/cli/process.h"

namespace hostnic::cli {
namespace {

class Tasks : public testing::Test {
 protected:
  Tasks() {
    char path[] = "/tmp/hostnic-tasks-XXXXXX";
    if (mkdtemp(path) != nullptr) directory_ = path;
  }
  ~Tasks() override { std::filesystem::remove_all(directory_); }
  void write(const std::string& thread, const std::string& schedstat) {
    std::filesystem::create_directories(directory_ + "/" + thread);
    std::ofstream(directory_ + "/" + thread + "/schedstat") << schedstat;
  }
  std::string directory_;
};

TEST_F(Tasks, EachThreadsWaitIsRead) {
  write("17", "1000 250 3\n");
  write("18", "0 9000000000 1\n");
  write("19", "nonsense\n");
  write("self", "1 2 3\n");
  const ProcessorWaits expected = {{17, 250}, {18, 9'000'000'000}};
  EXPECT_EQ(processor_waits(directory_), expected);
  EXPECT_TRUE(processor_waits(directory_ + "/none").empty());
}

TEST_F(Tasks, TheThreadThatWaitedMostCounts) {
  const ProcessorWaits before = {{17, 250}, {18, 1000}, {20, 7}};
  const ProcessorWaits after = {{17, 300}, {18, 1020}, {19, 40}, {20, 5}};
  EXPECT_EQ(longest_wait_ns(before, after), 50u);
  EXPECT_EQ(longest_wait_ns(after, {}), 0u);
}

// One that sleeps is not kept from a processor.
TEST(WaitChildAtWork, EndsAtItsLimitAndTellsTheStatus) {
  const pid_t sleeper = start_child({"sleep", "600"}, {});
  ASSERT_GT(sleeper, 0);
  EXPECT_FALSE(wait_child_at_work(sleeper, 50));
  kill(sleeper, SIGKILL);
  const auto status = wait_child_at_work(sleeper, 10'000);
  ASSERT_TRUE(status);
  EXPECT_EQ(exit_code_of(*status), 128 + SIGKILL);
}

// A child that is kept from a processor all the time, until an end that is behind the limit.
TEST(WaitChildAtWork, WaitsLongerForOneThatIsKeptFromAProcessor) {
  using std::chrono::steady_clock;
  const auto starved = [] {
    const auto now = std::chrono::nanoseconds(steady_clock::now().time_since_epoch());
    return ProcessorWaits{{1, static_cast<uint64_t>(now.count())}};
  };
  constexpr int kLimitMs = 1'000;
  const pid_t late = start_child({"sleep", "2"}, {});
  ASSERT_GT(late, 0);
  const auto status = wait_child_at_work(late, kLimitMs, starved);
  ASSERT_TRUE(status) << "given up at the limit";
  EXPECT_EQ(exit_code_of(*status), 0);
  // But not for ever.
  const pid_t sleeper = start_child({"sleep", "600"}, {});
  ASSERT_GT(sleeper, 0);
  EXPECT_FALSE(wait_child_at_work(sleeper, 20, starved));
  kill(sleeper, SIGKILL);
  EXPECT_TRUE(wait_child(sleeper, 10'000));
}

}  // namespace
}  // namespace hostnic::cli
