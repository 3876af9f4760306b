// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/elf/stat_calls.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "verbs-shim/elf/symbols.h"

namespace hostnic::elf {
namespace {

template <typename Function>
Function* call(const char* name) {
  return reinterpret_cast<Function*>(stat_call(name));
}

class StatCalls : public testing::TestWithParam<const char*> {
 protected:
  StatCalls() {
    const int fd = open(file_.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    EXPECT_EQ(write(fd, "12345", 5), 5);
    close(fd);
    EXPECT_EQ(symlink(file_.c_str(), link_.c_str()), 0);
  }
  ~StatCalls() override {
    unlink(file_.c_str());
    unlink(link_.c_str());
  }
  std::string name(const char* plain) const { return plain + std::string(GetParam()); }
  std::string file_ = testing::TempDir() + "hostnic-stat-" + std::to_string(getpid());
  std::string link_ = file_ + "-link";
  struct stat status_ {};
};

TEST_P(StatCalls, FollowLinksOrNot) {
  using Stat = int(const char*, struct stat*);
  EXPECT_EQ(call<Stat>(name("stat").c_str())(link_.c_str(), &status_), 0);
  EXPECT_TRUE(S_ISREG(status_.st_mode));
  EXPECT_EQ(status_.st_size, 5);
  EXPECT_EQ(call<Stat>(name("lstat").c_str())(link_.c_str(), &status_), 0);
  EXPECT_TRUE(S_ISLNK(status_.st_mode));
}

TEST_P(StatCalls, TakeDescriptorsAndFlags) {
  const int fd = open(file_.c_str(), O_RDONLY | O_CLOEXEC);
  EXPECT_EQ(call<int(int, struct stat*)>(name("fstat").c_str())(fd, &status_), 0);
  EXPECT_EQ(status_.st_size, 5);
  close(fd);
  const auto fstatat_call = call<int(int, const char*, struct stat*, int)>(name("fstatat").c_str());
  EXPECT_EQ(fstatat_call(AT_FDCWD, link_.c_str(), &status_, AT_SYMLINK_NOFOLLOW), 0);
  EXPECT_TRUE(S_ISLNK(status_.st_mode));
}

TEST_P(StatCalls, SetErrno) {
  EXPECT_EQ(call<int(const char*, struct stat*)>(name("stat").c_str())("/nowhere/x", &status_), -1);
  EXPECT_EQ(errno, ENOENT);
}

INSTANTIATE_TEST_SUITE_P(PlainAnd64, StatCalls, testing::Values("", "64"));

TEST(StatCallsOf, OtherNamesAreNull) { EXPECT_EQ(stat_call("open"), nullptr); }

// Before glibc 2.34 the first is in libdl, and the second in libpthread.
TEST(LibcSymbol, IsFoundInWhicheverPartHasIt) {
  EXPECT_NE(libc_symbol("dlsym"), nullptr);
  EXPECT_NE(libc_symbol("pthread_create"), nullptr);
  EXPECT_EQ(libc_symbol("no_such_function"), nullptr);
}

}  // namespace
}  // namespace hostnic::elf
