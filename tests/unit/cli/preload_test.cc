// SPDX-License-Identifier: BSD-3-Clause
// What hostnic preloads a command with, and what it reads from the command's file for that.
#include <elf.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>

#include "dataplane/cli/elf_program.h"
#include "dataplane/cli/locate.h"
#include "dataplane/cli/preload_obstacle.h"

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

// A file in /tmp that is gone with the test.
class ProgramFile {
 public:
  explicit ProgramFile(const std::string& content) {
    close(mkstemp(path_));
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << content;
    chmod(path_, 0755);
  }
  ~ProgramFile() { unlink(path_); }
  const char* path() const { return path_; }

 private:
  char path_[32] = "/tmp/cli-preload-test.XXXXXX";
};

// This program with its wish for a dynamic linker struck out.
std::string static_program() {
  std::ifstream self("/proc/self/exe", std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(self), {}};
  Elf64_Ehdr header;
  std::memcpy(&header, bytes.data(), sizeof(header));
  for (size_t i = 0; i < header.e_phnum; ++i) {
    const size_t at = header.e_phoff + i * sizeof(Elf64_Phdr);
    Elf64_Phdr segment;
    std::memcpy(&segment, bytes.data() + at, sizeof(segment));
    if (segment.p_type == PT_INTERP) segment.p_type = PT_NULL;
    std::memcpy(bytes.data() + at, &segment, sizeof(segment));
  }
  return bytes;
}

TEST(CliObstacle, StaticProgramsAndTheirScripts) {
  const ProgramFile program(static_program());
  const std::string name = program.path();
  EXPECT_EQ(preload_obstacle({name, "argument"}, nullptr), name + " is statically linked");
  const std::string directory = name.substr(0, name.rfind('/'));
  EXPECT_EQ(preload_obstacle({name.substr(directory.size() + 1)}, directory.c_str()),
            name.substr(directory.size() + 1) + " is statically linked");
  const ProgramFile script("#! " + name + " -x\nbody\n");
  EXPECT_EQ(preload_obstacle({script.path()}, nullptr),
            std::string(script.path()) + "'s interpreter " + name + " is statically linked");
  const ProgramFile outer("#!" + std::string(script.path()) + "\n");
  EXPECT_EQ(preload_obstacle({outer.path()}, nullptr),
            std::string(outer.path()) + "'s interpreter " + name + " is statically linked");
  const ProgramFile by_env("#!/usr/bin/env -S A=b " + name + " -x\n");
  EXPECT_EQ(preload_obstacle({by_env.path()}, nullptr),
            std::string(by_env.path()) + "'s interpreter " + name + " is statically linked");
}

TEST(CliObstacle, NothingStandsInTheWayOfOthers) {
  EXPECT_EQ(preload_obstacle({}, "/bin"), "");
  EXPECT_EQ(preload_obstacle({"/proc/self/exe"}, "/bin"), "");
  EXPECT_EQ(preload_obstacle({"no-such-program"}, "/bin"), "");
  // The dynamic linker as a program has no interpreter, and preloads.
  EXPECT_EQ(preload_obstacle({"/lib64/ld-linux-x86-64.so.2", "/bin/true"}, "/bin"), "");
  for (const char* text :
       {"", "#!", "#!\n", "#!/nonexistent\n", "#!/bin/sh\n", "#!/usr/bin/env\n",
        "#!/usr/bin/env sh", "#!/usr/bin/env -i no-such-program\n", "exit 0\n"}) {
    const ProgramFile script(text);
    EXPECT_EQ(preload_obstacle({script.path()}, "/bin"), "") << text;
  }
  // One that interprets itself; the kernel refuses it.
  const ProgramFile loop("");
  std::ofstream(loop.path()) << "#!" << loop.path() << "\n";
  EXPECT_EQ(preload_obstacle({loop.path()}, "/bin"), "");
}

TEST(CliObstacle, SetUidPrograms) {
  struct stat file {};
  file.st_uid = 7;
  file.st_gid = 8;
  file.st_mode = S_IFREG | 0755;
  EXPECT_FALSE(changes_identity(file, 1000, 1000));
  file.st_mode = S_IFREG | S_ISUID | 0755;
  EXPECT_TRUE(changes_identity(file, 1000, 1000));
  EXPECT_FALSE(changes_identity(file, 7, 1000)) << "it is that user already";
  file.st_mode = S_IFREG | S_ISGID | 0755;
  EXPECT_TRUE(changes_identity(file, 7, 1000));
  EXPECT_FALSE(changes_identity(file, 1000, 8));
  file.st_mode = S_IFREG | S_ISGID | 0745;
  EXPECT_FALSE(changes_identity(file, 7, 1000)) << "not executable by the group";
  // A script's bits count for nothing, its interpreter's do.
  const ProgramFile script("#!/bin/sh\n");
  EXPECT_EQ(chmod(script.path(), S_ISUID | 0755), 0);
  EXPECT_EQ(preload_obstacle({script.path()}, "/bin"), "");
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
