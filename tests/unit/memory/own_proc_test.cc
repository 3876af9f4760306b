// SPDX-License-Identifier: BSD-3-Clause
// Programs that can't open files in /proc any more keep their memory, and the kernel changes it as
// before.
#include "verbs-shim/memory/own_proc.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <grp.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <cstdlib>

#include "tests/unit/memory/testing.h"

namespace hostnic::memory_testing {
namespace {

constexpr uid_t kNobody = 65534;

void use_up_descriptors() {
  while (dup(STDIN_FILENO) >= 0) continue;
  ASSERT_EQ(EMFILE, errno);
}

// Below what is in use, so that whatever is closed makes no room.
void lower_limit() {
  rlimit limit{};
  ASSERT_EQ(0, getrlimit(RLIMIT_NOFILE, &limit));
  limit.rlim_cur = 3;
  ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &limit));
}

// The last that it may have.
void use_up_all() {
  rlimit limit{};
  ASSERT_EQ(0, getrlimit(RLIMIT_NOFILE, &limit));
  limit.rlim_max = limit.rlim_cur;
  ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &limit));
  use_up_descriptors();
}

void leave_proc() {
  char folder[] = "/tmp/hostnic-empty-XXXXXX";
  ASSERT_NE(nullptr, mkdtemp(folder));
  const int out = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  ASSERT_EQ(0, rmdir(folder)) << "what is open can be a root still";
  ASSERT_EQ(0, fchdir(out));
  close(out);
  ASSERT_EQ(0, chroot(".")) << std::strerror(errno);
}

void give_user_away() {
  ASSERT_EQ(0, setgroups(0, nullptr));
  ASSERT_EQ(0, setresuid(kNobody, kNobody, kNobody));
}

struct Loss {
  const char* name;
  void (*happens)();
  bool needs_root;
};

class MemoryWithoutProc : public MemoryTest, public testing::WithParamInterface<Loss> {
 protected:
  // Registers memory, loses /proc, and goes on with `body`, in a process of its own.
  template <typename Body>
  void afterwards(Body body) {
    if (!migrates()) GTEST_SKIP() << registrar().status();
    if (GetParam().needs_root && geteuid() != 0) GTEST_SKIP() << "needs root";
    in_child([&] {
      shared_mirror();
      Nic child_nic(registrar().mirror_fd());
      Buffer buffer(kBytes);
      buffer.fill(4);
      Nic::Mr mr;
      ASSERT_TRUE(child_nic.add(buffer.va(), kBytes, mr)) << child_nic.error;
      ASSERT_NO_FATAL_FAILURE(GetParam().happens());
      body(buffer);
    });
  }
  static void expect_zeros(const std::byte* at) {
    for (size_t page = 0; page < kBytes; page += kPage) ASSERT_EQ(std::byte{0}, at[page]) << page;
  }
  static void expect_pattern(const std::byte* at) {
    for (size_t page = 0; page < kBytes; page += kPage)
      ASSERT_EQ(Buffer::pattern(4, page), at[page]) << page;
  }

  static constexpr size_t kBytes = 64 * kPage;
};

TEST_P(MemoryWithoutProc, IsDiscarded) {
  afterwards([](const Buffer& buffer) {
    ASSERT_EQ(0, syscall(SYS_madvise, buffer.data(), kBytes, MADV_DONTNEED));
    expect_zeros(buffer.data());
    std::memset(buffer.data(), 1, kBytes);
    ASSERT_EQ(0, madvise(buffer.data(), kBytes, MADV_DONTNEED));
    expect_zeros(buffer.data());
  });
}

TEST_P(MemoryWithoutProc, IsTheChildsOwn) {
  afterwards([](const Buffer& buffer) {
    in_child([&] {
      expect_pattern(buffer.data());
      std::memset(buffer.data(), 1, kBytes);
    });
    expect_pattern(buffer.data());
  });
}

TEST_P(MemoryWithoutProc, Moves) {
  afterwards([](const Buffer& buffer) {
    void* const moved = mremap(buffer.data(), kBytes, 2 * kBytes, MREMAP_MAYMOVE);
    ASSERT_NE(MAP_FAILED, moved) << std::strerror(errno);
    expect_pattern(static_cast<std::byte*>(moved));
    expect_zeros(static_cast<std::byte*>(moved) + kBytes);
  });
}

INSTANTIATE_TEST_SUITE_P(By, MemoryWithoutProc,
                         testing::Values(Loss{"Descriptors", use_up_descriptors, false},
                                         Loss{"LastDescriptors", use_up_all, false},
                                         Loss{"LowLimit", lower_limit, false},
                                         Loss{"Chroot", leave_proc, true},
                                         Loss{"User", give_user_away, true}),
                         [](const auto& loss) { return loss.param.name; });

// Programs that register all of their memory have the C library's variables among it, which moving
// pages uses.
TEST_F(MemoryTest, VariablesOfTheCLibraryStayInPlace) {
  const void* const variable = dlsym(RTLD_DEFAULT, "__libc_single_threaded");
  if (variable == nullptr) GTEST_SKIP() << dlerror();
  in_child([&] {
    registrar().open_own_memory();
    shared_mirror();
    Nic child_nic(registrar().mirror_fd());
    Nic::Mr mr;
    const uint64_t page = memory::page_down(reinterpret_cast<uint64_t>(variable));
    ASSERT_TRUE(child_nic.add(page, kPage, mr)) << child_nic.error;
    EXPECT_TRUE(all_of_kind(mr, RegionKind::kMemFd));
    child_nic.remove(mr);
  });
}

// A child of a bare fork() has the parent's descriptors, which lead to the parent.
TEST_F(MemoryTest, TheListOfMappingsIsNotTheParents) {
  memory::keep_own_proc();
  EXPECT_GE(memory::own_maps(), 0);
  const auto child = static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
  if (child == 0) _exit(memory::own_maps() == -1 ? 0 : 1);
  int status = -1;
  ASSERT_EQ(child, waitpid(child, &status, 0));
  EXPECT_EQ(0, status);
  in_child([&] {
    EXPECT_EQ(-1, memory::own_maps());
    memory::keep_own_proc();
    EXPECT_GE(memory::own_maps(), 0);
    // Another file has come in its place.
    const int other = open("/dev/null", O_RDONLY | O_CLOEXEC);
    syscall(SYS_dup3, other, memory::own_maps(), O_CLOEXEC);
    EXPECT_EQ(-1, memory::own_maps());
  });
}

}  // namespace
}  // namespace hostnic::memory_testing
