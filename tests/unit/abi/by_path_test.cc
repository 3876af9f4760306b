// SPDX-License-Identifier: BSD-3-Clause
// Our libibverbs.so.1 in a process that is not preloaded: whose functions of libc other libraries
// call from then on (elf/imports.h). $HOSTNIC_OUR_LIBIBVERBS is its path.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

// This program's own: libraries that import it are bound to it, and stay so.
extern "C" int malloc_trim(size_t) { return 0; }

namespace {

using Address = void* (*)();

std::string library_of(void* address) {
  Dl_info info;
  if (address == nullptr || dladdr(address, &info) == 0) return "none";
  const std::string path = info.dli_fname;
  return path.substr(path.rfind('/') + 1);
}

void* load(const char* path, int flags = RTLD_NOW | RTLD_LOCAL) {
  void* library = dlopen(path, flags);
  EXPECT_NE(library, nullptr) << dlerror();
  return library;
}

// The library to which `plugin` is bound for `function`.
std::string bound_to(void* plugin, const std::string& function) {
  const auto imported = reinterpret_cast<Address>(dlsym(plugin, ("imported_" + function).c_str()));
  return imported != nullptr ? library_of(imported()) : "no such function";
}

class ByPath : public testing::Test {
 protected:
  void SetUp() override {
    // Builds with sanitizers have none: a sanitizer's functions stand before libc's.
    const char* const ours = getenv("HOSTNIC_OUR_LIBIBVERBS");
    if (ours == nullptr || access(ours, R_OK) != 0) GTEST_SKIP() << "no libibverbs of ours here";
  }
};

void load_ours() { load(getenv("HOSTNIC_OUR_LIBIBVERBS")); }

TEST_F(ByPath, LibrariesThatAreThereAlreadyCallOurFunctions) {
  void* plugin = load("libplugin-importing.so");
  EXPECT_EQ(bound_to(plugin, "munmap").substr(0, 5), "libc.");
  load_ours();
  for (const char* function : {"munmap", "free"})
    EXPECT_EQ(bound_to(plugin, function), "libhostnic-verbs.so") << function;
}

TEST_F(ByPath, LibrariesThatComeLaterDoAsWell) {
  load_ours();
  void* plugin = load("libplugin-importing-later.so");
  for (const char* function : {"munmap", "free"})
    EXPECT_EQ(bound_to(plugin, function), "libhostnic-verbs.so") << function;
}

TEST_F(ByPath, WhatIsNotLibcsStays) {
  void* plugin = load("libplugin-importing.so");
  const std::string before = bound_to(plugin, "malloc_trim");
  load_ours();
  EXPECT_EQ(bound_to(plugin, "malloc_trim"), before);
  EXPECT_NE(before.substr(0, 3), "lib");
  EXPECT_EQ(bound_to(plugin, "getpid").substr(0, 5), "libc.");
}

TEST_F(ByPath, CallsThatAreNotBoundYetWork) {
  void* plugin = load("libplugin-importing-lazily.so", RTLD_LAZY | RTLD_LOCAL);
  load_ours();
  const auto call = reinterpret_cast<int (*)(const char*)>(dlsym(plugin, "calls_eaccess"));
  ASSERT_NE(call, nullptr);
  EXPECT_EQ(call("/"), 0);
  EXPECT_EQ(call("/no/such/file"), -1);
}

TEST_F(ByPath, MemoryIsAllocatedAndFreedAcross) {
  void* before = malloc(1 << 20);
  load_ours();
  void* after = malloc(1 << 20);
  free(before);
  free(realloc(after, 1 << 24));
}

}  // namespace
