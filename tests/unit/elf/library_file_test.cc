// SPDX-License-Identifier: BSD-3-Clause
// What is read of libraries before they are loaded, above all of damaged ones.
#include "verbs-shim/elf/library_file.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace hostnic::elf {
namespace {

std::string file_of(const void* address) {
  Dl_info info;
  return dladdr(address, &info) != 0 ? info.dli_fname : "";
}

// A library without a word of verbs, and one that names its functions.
// The function is asked for by its library, since a sanitizer's stand before others.
std::string file_with(const char* library, const char* function) {
  void* handle = dlopen(library, RTLD_LAZY | RTLD_LOCAL);
  return handle != nullptr ? file_of(dlsym(handle, function)) : "";
}
std::string libc() { return file_with("libc.so.6", "strlen"); }
std::string librdmacm() { return file_with("librdmacm.so.1", "rdma_create_id"); }

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class TemporaryFile {
 public:
  TemporaryFile() { close(mkstemp(path_)); }
  ~TemporaryFile() { unlink(path_); }
  const char* path() const { return path_; }
  void fill(const std::string& content) const {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << content;
  }

 private:
  char path_[40] = "/tmp/abi-library-file-test.XXXXXX";
};

TEST(AbiLibraryFile, TellsWhoUsesVerbs) {
  const auto with = read_library_file(librdmacm().c_str());
  ASSERT_TRUE(with.has_value());
  EXPECT_TRUE(with->names_verbs);
  EXPECT_NE(std::find(with->needed.begin(), with->needed.end(), "libibverbs.so.1"),
            with->needed.end());
  const auto without = read_library_file(libc().c_str());
  ASSERT_TRUE(without.has_value());
  EXPECT_FALSE(without->names_verbs);
  EXPECT_FALSE(without->needed.empty()) << "the dynamic linker";
}

TEST(AbiLibraryFile, WhatIsNoLibrarySaysNothing) {
  EXPECT_FALSE(read_library_file("/nonexistent").has_value());
  EXPECT_FALSE(read_library_file("/tmp").has_value());
  EXPECT_FALSE(read_library_file("/dev/zero").has_value());
  const TemporaryFile file;
  for (const char* text : {"",
                           "\x7f"
                           "ELF",
                           "a text about ibv_open_device and libibverbs.so"}) {
    file.fill(text);
    const auto found = read_library_file(file.path());
    ASSERT_TRUE(found.has_value());
    EXPECT_FALSE(found->names_verbs) << text;
    EXPECT_TRUE(found->needed.empty()) << text;
  }
}

// Nothing is read beyond the file's end: that would be a SIGBUS or SIGSEGV.
TEST(AbiLibraryFile, TruncatedAndDamagedFilesAreRead) {
  const std::string whole = content_of(librdmacm());
  ASSERT_GT(whole.size(), 4096u);
  const TemporaryFile file;
  for (size_t size = 0; size < whole.size(); size += 1 + size / 16) {
    file.fill(whole.substr(0, size));
    EXPECT_TRUE(read_library_file(file.path()).has_value());
  }
  // Each word of the headers, and of the dynamic segment.
  Elf64_Ehdr header;
  memcpy(&header, whole.data(), sizeof(header));
  std::vector<size_t> words;
  for (size_t at = EI_NIDENT; at < header.e_phoff + header.e_phnum * sizeof(Elf64_Phdr); at += 4)
    words.push_back(at);
  for (size_t i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    memcpy(&segment, whole.data() + header.e_phoff + i * sizeof(segment), sizeof(segment));
    if (segment.p_type != PT_DYNAMIC) continue;
    for (size_t at = 0; at + 4 <= segment.p_filesz; at += 4) words.push_back(segment.p_offset + at);
  }
  file.fill(whole);
  const int fd = open(file.path(), O_WRONLY);
  ASSERT_GE(fd, 0);
  for (const size_t at : words) {
    for (const uint32_t value : {UINT32_MAX, uint32_t{0x7fffffff}, uint32_t{0}}) {
      ASSERT_EQ(pwrite(fd, &value, 4, static_cast<off_t>(at)), 4);
      EXPECT_TRUE(read_library_file(file.path()).has_value());
    }
    ASSERT_EQ(pwrite(fd, whole.data() + at, 4, static_cast<off_t>(at)), 4);
  }
  close(fd);
}

// Without section headers the constants are still found.
TEST(AbiLibraryFile, ConstantsAreFoundInStrippedFiles) {
  std::string bytes = content_of(libc());
  const TemporaryFile file;
  Elf64_Ehdr header;
  memcpy(&header, bytes.data(), sizeof(header));
  header.e_shoff = header.e_shnum = header.e_shstrndx = 0;
  memcpy(bytes.data(), &header, sizeof(header));
  file.fill(bytes);
  EXPECT_FALSE(read_library_file(file.path())->names_verbs);
  const std::string constant = "/usr/share/zoneinfo";
  const size_t at = bytes.find(constant);
  ASSERT_NE(at, std::string::npos) << "a constant of libc";
  bytes.replace(at, constant.size(), "libibverbs.so.1\0lib", constant.size());
  file.fill(bytes);
  EXPECT_TRUE(read_library_file(file.path())->names_verbs);
}

TEST(AbiLibraryFile, DependenciesAreSearchedAsByTheDynamicLinker) {
  const auto* here = reinterpret_cast<const void*>(&librdmacm);
  EXPECT_TRUE(brings_verbs("librdmacm.so.1", here)) << "in the linker's cache";
  EXPECT_TRUE(brings_verbs(librdmacm().c_str(), here));
  EXPECT_FALSE(brings_verbs("libc.so.6", here));
  EXPECT_FALSE(brings_verbs("no-such-library.so", here));
  EXPECT_FALSE(brings_verbs("libc.so.6", nullptr)) << "generated code";
}

}  // namespace
}  // namespace hostnic::elf
