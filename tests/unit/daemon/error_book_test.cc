// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/observe/error_book.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <fstream>

namespace hostnic {
namespace {

class ErrorBookFile : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/hostnic-error-book-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    directory_ = name;
  }
  void TearDown() override {
    unlink(path().c_str());
    rmdir(directory_.c_str());
  }
  std::string path() const { return directory_ + "/errors.tsv"; }
  std::string directory_;
};

TEST(ErrorBook, CountsEachKindOnce) {
  ErrorBook book;
  EXPECT_EQ(book.note("hnic0: client 7 (a.out, pid 12, uid 5) has met a limit", 100), 1u);
  EXPECT_EQ(book.note("hnic1: client 8 (a.out, pid 13, uid 5) has met a limit", 107), 2u);
  EXPECT_EQ(book.note("something else", 105), 1u);
  const auto entries = book.entries();
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].count, 2u) << "the latest one is first";
  EXPECT_EQ(entries[0].first_s, 100u);
  EXPECT_EQ(entries[0].last_s, 107u);
  EXPECT_EQ(entries[0].example, "hnic1: client 8 (a.out, pid 13, uid 5) has met a limit");
}

TEST(ErrorBook, KindsHaveNoNumbersAndNoNames) {
  EXPECT_EQ(ErrorBook::kind_of("hnic0 QP 0x66c7 of ib_write_bw (pid 4): WRITE at 127.77.0.1: no"),
            "hnicN QP N of NAME (pid N): WRITE at N: no");
  EXPECT_EQ(ErrorBook::kind_of("up again, after 1.5 s."), "up again, after N s.");
  EXPECT_EQ(ErrorBook::kind_of("x (pid 1) and y (pid 2)"), "NAME (pid N) and NAME (pid N)");
  EXPECT_EQ(ErrorBook::kind_of(" (pid 1)"), "NAME (pid N)");
  EXPECT_EQ(ErrorBook::kind_of(""), "");
}

TEST(ErrorBook, TheKindThatWasLongestAgoMakesRoom) {
  ErrorBook book;
  // Letters, since kinds that differ in numbers are one.
  const auto line = [](size_t i) {
    return std::string{static_cast<char>('a' + i / 26 % 26), static_cast<char>('a' + i % 26),
                       static_cast<char>('a' + i / 676)};
  };
  for (size_t i = 0; i < ErrorBook::kMaxKinds + 3; ++i) book.note(line(i), 1000 + i);
  const auto entries = book.entries();
  ASSERT_EQ(entries.size(), ErrorBook::kMaxKinds);
  EXPECT_EQ(entries.back().example, line(3));
  EXPECT_EQ(book.forgotten(), 3u);
}

TEST(ErrorBook, LinesAreOneShortLine) {
  ErrorBook book;
  book.note("two\nlines\t" + std::string(5000, 'x'), 1);
  const std::string example = book.entries()[0].example;
  EXPECT_EQ(example.size(), ErrorBook::kMaxLineBytes);
  EXPECT_TRUE(example.starts_with("two?lines?x"));
}

TEST_F(ErrorBookFile, SurvivesARestart) {
  {
    ErrorBook book;
    ASSERT_EQ(book.keep_in(directory_), 0);
    book.note("client 7 was dropped", 100);
    book.note("client 8 was dropped", 200);
    EXPECT_TRUE(book.unsaved());
    ASSERT_EQ(book.save(), 0);
    EXPECT_FALSE(book.unsaved());
  }
  ErrorBook next;
  next.note("client 9 was dropped", 300);
  ASSERT_EQ(next.keep_in(directory_), 0);
  ASSERT_EQ(next.entries().size(), 1u);
  EXPECT_EQ(next.entries()[0].count, 3u);
  EXPECT_EQ(next.entries()[0].first_s, 100u);
  EXPECT_EQ(next.entries()[0].last_s, 300u);
  EXPECT_EQ(next.entries()[0].example, "client 9 was dropped");
}

TEST_F(ErrorBookFile, LinesThatMakeNoSenseAreLeftOut) {
  std::ofstream(path()) << "garbage\n0\t1\t2\tnever\n3\t9\t5\tlast before first\n"
                        << "99999999999999999999999\t1\t2\ttoo many\n2\t1\t5\tgood one\n"
                        << "4\t1\t5\t\n1\t2\t";
  ErrorBook book;
  ASSERT_EQ(book.keep_in(directory_), 0);
  ASSERT_EQ(book.entries().size(), 1u);
  EXPECT_EQ(book.entries()[0].example, "good one");
  EXPECT_EQ(book.entries()[0].count, 2u);
}

TEST_F(ErrorBookFile, ADirectoryThatIsNoneIsSaidAtOnce) {
  ErrorBook book;
  EXPECT_EQ(book.keep_in(directory_ + "/none"), ENOENT);
}

TEST(ErrorBook, LogsSayTheSameEverMoreRarely) {
  size_t lines = 0;
  for (uint64_t count = 1; count <= 1000; ++count) lines += worth_a_line(count) ? 1 : 0;
  EXPECT_EQ(lines, 16u + 5) << "the first 16, then the 32nd to the 512th";
}

}  // namespace
}  // namespace hostnic
