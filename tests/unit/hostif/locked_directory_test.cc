// SPDX-License-Identifier: BSD-3-Clause
#include "protocol/hostif/locked_directory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <ctime>
#include <filesystem>
#include <thread>
#include <vector>

namespace hostnic {
namespace {

namespace fs = std::filesystem;
constexpr const char* kPrefix = "some-";

class LockedDirectories : public testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/locked-directory-test.XXXXXX";
    ASSERT_NE(mkdtemp(path), nullptr);
    base_ = path;
  }
  void TearDown() override { fs::remove_all(base_); }
  // Makes a directory that nobody has locked.
  std::string leave(const std::string& name) const {
    fs::create_directories(base_ + "/" + name + "/with/contents");
    return base_ + "/" + name;
  }
  std::string base_;
};

TEST_F(LockedDirectories, AreNamedAndPrivate) {
  const auto made = make_locked_directory(base_, kPrefix);
  ASSERT_TRUE(made);
  EXPECT_EQ(made->path.substr(0, made->path.size() - kUniqueLetters), base_ + "/" + kPrefix);
  struct stat status {};
  ASSERT_EQ(stat(made->path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
  EXPECT_FALSE(make_locked_directory(base_ + "/none", kPrefix));
}

TEST_F(LockedDirectories, OnlyAbandonedOnesAreRemoved) {
  const auto made = make_locked_directory(base_, kPrefix);
  ASSERT_TRUE(made);
  const std::string abandoned = leave("some-abcdef"), other = leave("other-abcdef"),
                    longer = leave("some-abcdefg"), young = leave("new-some-abcdef"),
                    old = leave("new-some-ghijkl");
  const timespec long_ago[2] = {{time(nullptr) - 3600, 0}, {time(nullptr) - 3600, 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, old.c_str(), long_ago, 0), 0);
  remove_abandoned_directories(base_, kPrefix);
  EXPECT_FALSE(fs::exists(abandoned));
  EXPECT_FALSE(fs::exists(old)) << "its maker was killed";
  EXPECT_TRUE(fs::exists(made->path) && fs::exists(other) && fs::exists(longer));
  EXPECT_TRUE(fs::exists(young)) << "it is being made";
}

// Programs that start together look for what the dead have left, each while others make theirs.
TEST_F(LockedDirectories, ManyAtOnceHaveOneEach) {
  constexpr int kMakers = 8, kEach = 50;
  std::atomic<int> missing{0};
  std::vector<std::thread> makers;
  for (int i = 0; i < kMakers; ++i) {
    makers.emplace_back([&] {
      for (int k = 0; k < kEach; ++k) {
        remove_abandoned_directories(base_, kPrefix);
        const auto made = make_locked_directory(base_, kPrefix);
        missing += !made || !fs::is_directory(made->path);
      }
    });
  }
  for (std::thread& maker : makers) maker.join();
  EXPECT_EQ(missing.load(), 0);
  remove_abandoned_directories(base_, kPrefix);
  EXPECT_TRUE(fs::is_empty(base_));
}

}  // namespace
}  // namespace hostnic
