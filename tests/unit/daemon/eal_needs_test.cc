// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/start/eal_needs.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>

namespace hostnic {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

class EalNeeds : public testing::Test {
 protected:
  EalNeeds() {
    char name[] = "/tmp/hostnic-needs-XXXXXX";
    directory_ = mkdtemp(name);
  }
  ~EalNeeds() override { fs::remove_all(directory_); }
  std::string make(const std::string& name) {
    const fs::path path = directory_ / name;
    fs::create_directories(path);
    return path;
  }
  fs::path directory_;
};

TEST_F(EalNeeds, TheUsualDirectoryIsTakenWhereItCanBe) {
  const std::string usual = make("usual"), other = make("other");
  auto chosen = choose_runtime_directory(usual.c_str(), other.c_str());
  ASSERT_TRUE(chosen);
  EXPECT_EQ(chosen->path, usual);
  EXPECT_FALSE(chosen->is_ours);
}

TEST_F(EalNeeds, ADirectoryThatIsNoneIsPassedOver) {
  const std::string other = make("other");
  auto chosen = choose_runtime_directory("/nonexistent", other.c_str());
  ASSERT_TRUE(chosen);
  EXPECT_EQ(chosen->path, other);
}

TEST_F(EalNeeds, WhereDpdksDirectoryIsOfNoUseAnotherOneIsTaken) {
  const std::string usual = make("usual"), other = make("other");
  std::ofstream(usual + "/dpdk") << "a file that nobody can enter, even root";
  auto chosen = choose_runtime_directory(usual.c_str(), other.c_str());
  ASSERT_TRUE(chosen);
  EXPECT_EQ(chosen->path, other);
}

TEST_F(EalNeeds, WithoutAnyDirectoryOneIsMade) {
  for (const char* nothing : {static_cast<const char*>(nullptr), "", "/nonexistent"}) {
    auto chosen = choose_runtime_directory(nothing, nothing);
    ASSERT_TRUE(chosen);
    EXPECT_TRUE(chosen->is_ours);
    EXPECT_TRUE(fs::is_directory(chosen->path));
    fs::remove(chosen->path);
  }
}

TEST_F(EalNeeds, TooFewDescriptorsAreSaidInOneLine) {
  EXPECT_TRUE(try_descriptors(20));
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit{16, 16};
    setrlimit(RLIMIT_NOFILE, &limit);
    auto tried = try_descriptors(20);
    _exit(!tried && tried.error().find("needs 20 descriptors") != std::string::npos &&
                  tried.error().find("ulimit -n") != std::string::npos &&
                  tried.error().find('\n') == std::string::npos
              ? 0
              : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST_F(EalNeeds, ALimitOfAddressesIsNamedWithItsRemedy) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  if (before.rlim_cur == RLIM_INFINITY) {
    EXPECT_EQ(limit_of_addresses(), "");
  }
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit{rlim_t{400} << 20, before.rlim_max};
    setrlimit(RLIMIT_AS, &limit);
    const std::string said = limit_of_addresses();
    const rlimit enough{before.rlim_max, before.rlim_max};
    setrlimit(RLIMIT_AS, &enough);
    _exit(said == " with 400 MB of addresses (see ulimit -v; `ulimit -v unlimited` lifts it)" ? 0
                                                                                              : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST_F(EalNeeds, HugePagesAreCountedWithoutThosePromised) {
  const fs::path meminfo = directory_ / "meminfo";
  std::ofstream(meminfo) << "MemTotal: 100 kB\nHugePages_Total:     200\nHugePages_Free:      130\n"
                            "HugePages_Rsvd:      100\nHugepagesize:       2048 kB\n";
  EXPECT_EQ(free_huge_megabytes(meminfo), 60u);
  std::ofstream(meminfo) << "HugePages_Free: 1\nHugePages_Rsvd: 2\nHugepagesize: 2048 kB\n";
  EXPECT_EQ(free_huge_megabytes(meminfo), 0u);
  EXPECT_EQ(free_huge_megabytes("/nonexistent"), 0u);
}

TEST_F(EalNeeds, NobodyPromisesMoreHugePagesThanThereAre) {
  EXPECT_FALSE(can_have_huge_megabytes(uint64_t{1} << 30));
}

TEST_F(EalNeeds, OneAtATimeCountsHugePages) {
  std::optional<HugePageTurn> first(std::in_place, 10s);
  ASSERT_TRUE(first->is_mine());
  EXPECT_FALSE(HugePageTurn(20ms).is_mine()) << "two have it";
  first.reset();
  EXPECT_TRUE(HugePageTurn(10s).is_mine());
}

}  // namespace
}  // namespace hostnic
