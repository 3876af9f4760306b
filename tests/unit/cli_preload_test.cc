// What hostnic preloads a command with, and what it reads from the command's file for that.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "dataplane/cli/elf_program.h"
#include "dataplane/cli/locate.h"

namespace hostnic::cli {
namespace {

TEST(CliPreload, TheShimComesBehindWhatWasPreloaded) {
  EXPECT_EQ(join_preloads({}, "", "/x/shim.so"), "/x/shim.so");
  EXPECT_EQ(join_preloads({}, "/lib/libasan.so:/lib/a.so", "/x/shim.so"),
            "/lib/libasan.so:/lib/a.so:/x/shim.so");
  EXPECT_EQ(join_preloads({}, "a.so b.so", "/x/shim.so"), "a.so:b.so:/x/shim.so");
}

TEST(CliPreload, ASanitizersRuntimeComesFirst) {
  EXPECT_EQ(join_preloads({"libasan.so.8"}, "a.so", "/x/shim.so"), "libasan.so.8:a.so:/x/shim.so");
  ElfProgram program;
  program.needed = {"libibverbs.so.1", "libasan.so.8", "libc.so.6", "libtsan.so.2"};
  EXPECT_EQ(sanitizer_runtimes(program),
            (std::vector<std::string>{"libasan.so.8", "libtsan.so.2"}));
}

TEST(CliPreload, NestedNothingIsThereTwice) {
  const std::string once = join_preloads({"libasan.so.8"}, "a.so", "/x/shim.so");
  EXPECT_EQ(join_preloads({"libasan.so.8"}, once, "/x/shim.so"), once);
  EXPECT_EQ(join_preloads({}, once, "/x/shim.so"), once);
}

TEST(CliPreload, TheLinkOrderIsNotChecked) {
  EXPECT_EQ(asan_options_value(nullptr), "verify_asan_link_order=0");
  EXPECT_EQ(asan_options_value("detect_leaks=0"), "detect_leaks=0:verify_asan_link_order=0");
  EXPECT_EQ(asan_options_value("verify_asan_link_order=1"), "verify_asan_link_order=1");
}

TEST(CliElf, ReadsThisProgram) {
  const ElfProgram program = read_elf_program("/proc/self/exe");
  EXPECT_TRUE(program.is_elf);
  EXPECT_FALSE(program.is_static);
  EXPECT_NE(std::find(program.needed.begin(), program.needed.end(), "libc.so.6"),
            program.needed.end());
}

TEST(CliElf, ScriptsAndDamagedFilesAreNone) {
  char path[] = "/tmp/cli-preload-test.XXXXXX";
  const int fd = mkstemp(path);
  ASSERT_GE(fd, 0);
  close(fd);
  for (const std::string& text : {std::string(), std::string("#!/bin/sh\nexit 0\n"),
                                  std::string("\x7f"
                                              "ELF\2\1\1")}) {
    std::ofstream(path, std::ios::trunc) << text;
    const ElfProgram program = read_elf_program(path);
    EXPECT_FALSE(program.is_elf || program.is_static) << text;
  }
  // Offsets that lead out of the file.
  std::ifstream self("/proc/self/exe", std::ios::binary);
  std::string head(4096, '\0');
  self.read(head.data(), static_cast<std::streamsize>(head.size()));
  std::ofstream(path, std::ios::trunc | std::ios::binary) << head;
  EXPECT_TRUE(read_elf_program(path).needed.empty());
  EXPECT_FALSE(read_elf_program("/nonexistent").is_elf);
  unlink(path);
}

TEST(CliElf, FindsProgramsByPath) {
  EXPECT_EQ(find_program("./here", nullptr), "./here");
  EXPECT_EQ(find_program("sh", "/nonexistent:/bin"), "/bin/sh");
  EXPECT_EQ(find_program("no-such-program", "/bin:/usr/bin"), "");
}

}  // namespace
}  // namespace hostnic::cli
