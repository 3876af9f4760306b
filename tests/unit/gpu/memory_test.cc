// SPDX-License-Identifier: BSD-3-Clause
// The allocator of the stand-in for GPUs. HOSTNIC_GPU is set for all of the program: two GPUs.
#include "verbs-shim/gpu/memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace hostnic::gpu {
namespace {

constexpr size_t kBytes = 100'000;

// Before anything asks.
const int kSet = setenv("HOSTNIC_GPU", "2,memory=64M", 1);

class GpuMemory : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(kSet, 0);
    ASSERT_EQ(allocate(Kind::kDevice, 1, kBytes, &memory_), Result::kSuccess);
  }
  void TearDown() override { EXPECT_EQ(release_device(memory_), Result::kSuccess); }
  std::byte* at(size_t offset = 0) const { return static_cast<std::byte*>(memory_) + offset; }

  void* memory_ = nullptr;
};

TEST_F(GpuMemory, IsFoundByAnyAddressInIt) {
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory_) % (64 << 10), 0u) << "a GPU's page";
  const auto block = gpu::find(at(kBytes - 1));
  ASSERT_TRUE(block);
  EXPECT_EQ(block->address, reinterpret_cast<uintptr_t>(memory_));
  EXPECT_EQ(block->bytes, kBytes);
  EXPECT_EQ(block->device, 1);
  EXPECT_FALSE(gpu::find(at(kBytes)));
  EXPECT_FALSE(gpu::find(at() - 1));
  EXPECT_FALSE(gpu::find(&block));
}

TEST_F(GpuMemory, CanNotBeTouched) {
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGSEGV, SIG_DFL);
    volatile char byte = *reinterpret_cast<volatile char*>(at());
    static_cast<void>(byte);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) || (WIFEXITED(status) && WEXITSTATUS(status) != 0));
}

TEST_F(GpuMemory, IsCopiedToAndFrom) {
  std::vector<std::byte> out(kBytes), in(kBytes, std::byte{3});
  EXPECT_EQ(gpu::copy(memory_, in.data(), kBytes), Result::kSuccess);
  EXPECT_EQ(gpu::copy(out.data(), at(1000), kBytes - 1000), Result::kSuccess);
  EXPECT_EQ(out[kBytes - 1001], std::byte{3});
  EXPECT_EQ(out[kBytes - 1000], std::byte{0});
  EXPECT_EQ(gpu::copy(at(1), in.data(), kBytes), Result::kInvalidValue) << "it ends before";
  EXPECT_EQ(gpu::copy(out.data(), at(1), kBytes), Result::kInvalidValue);
  EXPECT_EQ(gpu::copy(out.data(), in.data(), kBytes), Result::kSuccess)
      << "between two of the host's";
}

TEST_F(GpuMemory, IsCopiedToAnotherGpu) {
  void* other = nullptr;
  ASSERT_EQ(allocate(Kind::kDevice, 0, kBytes, &other), Result::kSuccess);
  EXPECT_EQ(gpu::fill(memory_, 0x01020304, 4, 25), Result::kSuccess);
  EXPECT_EQ(gpu::copy(other, memory_, 100), Result::kSuccess);
  uint32_t word = 0;
  EXPECT_EQ(gpu::copy(&word, static_cast<std::byte*>(other) + 96, 4), Result::kSuccess);
  EXPECT_EQ(word, 0x01020304u);
  EXPECT_EQ(release_device(other), Result::kSuccess);
}

TEST_F(GpuMemory, RowsAreCopied) {
  const std::vector<std::byte> rows(64, std::byte{5});
  EXPECT_EQ(copy_rows({at(), 100}, {rows.data(), 16}, 16, 4), Result::kSuccess);
  std::byte seen[2];
  EXPECT_EQ(gpu::copy(seen, at(300 + 15), 2), Result::kSuccess);
  EXPECT_EQ(seen[0], std::byte{5});
  EXPECT_EQ(seen[1], std::byte{0});
  EXPECT_EQ(copy_rows({at(), 15}, {rows.data(), 16}, 16, 4), Result::kInvalidValue);
}

TEST_F(GpuMemory, FillsStayInside) {
  EXPECT_EQ(gpu::fill(at(kBytes - 4), 7, 1, 4), Result::kSuccess);
  EXPECT_EQ(gpu::fill(at(kBytes - 4), 7, 1, 5), Result::kInvalidValue);
  EXPECT_EQ(gpu::fill(memory_, 7, 4, SIZE_MAX / 2), Result::kInvalidValue);
}

TEST_F(GpuMemory, ExportsAreTheMemory) {
  int fd = -1;
  ASSERT_EQ(export_range(memory_, 4096, &fd), Result::kSuccess);
  EXPECT_EQ(lseek(fd, 0, SEEK_CUR), 0);
  ASSERT_EQ(pwrite(fd, "dma", 4, 100), 4);
  char text[4] = {};
  EXPECT_EQ(gpu::copy(text, at(100), 4), Result::kSuccess);
  EXPECT_STREQ(text, "dma");
  close(fd);
  ASSERT_EQ(export_range(at(8192), 4096, &fd), Result::kSuccess);
  EXPECT_EQ(lseek(fd, 0, SEEK_CUR), 8192) << "where the part begins";
  close(fd);
  uint64_t offset = 0;
  ASSERT_EQ(export_file(at(5000), 10, &fd, &offset), Result::kSuccess);
  EXPECT_EQ(offset, 5000u);
  close(fd);
  EXPECT_EQ(export_range(at(1), 4096, &fd), Result::kInvalidValue) << "whole pages";
  EXPECT_EQ(export_range(memory_, 200 << 10, &fd), Result::kInvalidValue) << "beyond its end";
  EXPECT_EQ(export_range(&fd, 4096, &fd), Result::kInvalidValue);
}

TEST_F(GpuMemory, FreedMemoryIsCutOffItsFile) {
  void* freed = nullptr;
  ASSERT_EQ(allocate(Kind::kDevice, 0, kBytes, &freed), Result::kSuccess);
  int fd = -1;
  ASSERT_EQ(export_range(freed, 4096, &fd), Result::kSuccess);
  ASSERT_EQ(release_device(freed), Result::kSuccess);
  struct stat file {};
  ASSERT_EQ(fstat(fd, &file), 0);
  EXPECT_EQ(file.st_size, 0);
  close(fd);
  EXPECT_FALSE(gpu::find(freed));
  EXPECT_EQ(release_device(freed), Result::kInvalidValue);
}

TEST_F(GpuMemory, AChildTakesNothingFromItsParent) {
  const pid_t child = fork();
  if (child == 0) _exit(release_device(memory_) == Result::kSuccess ? 0 : 1);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  char byte = 1;
  EXPECT_EQ(gpu::copy(&byte, at(kBytes - 1), 1), Result::kSuccess);
  EXPECT_EQ(byte, 0);
}

TEST_F(GpuMemory, IsLimited) {
  size_t before = 0, after = 0, total = 0;
  memory_info(0, &before, &total);
  EXPECT_EQ(total, 64u << 20);
  EXPECT_EQ(before, total) << "each GPU has its own";
  void* more = nullptr;
  EXPECT_EQ(allocate(Kind::kDevice, 0, total + 1, &more), Result::kOutOfMemory);
  EXPECT_EQ(allocate(Kind::kDevice, 0, SIZE_MAX, &more), Result::kOutOfMemory);
  ASSERT_EQ(allocate(Kind::kManaged, 0, 1, &more), Result::kSuccess);
  memory_info(0, &after, nullptr);
  EXPECT_EQ(before - after, 64u << 10);
  EXPECT_EQ(release_device(more), Result::kSuccess);
  memory_info(0, &after, nullptr);
  EXPECT_EQ(before, after);
}

TEST_F(GpuMemory, RefusesWhatIsWrong) {
  void* out = nullptr;
  EXPECT_EQ(allocate(Kind::kDevice, 0, 0, &out), Result::kInvalidValue);
  EXPECT_EQ(allocate(Kind::kDevice, 0, 1, nullptr), Result::kInvalidValue);
  EXPECT_EQ(allocate(Kind::kDevice, 2, 1, &out), Result::kInvalidDevice);
  EXPECT_EQ(allocate(Kind::kDevice, -1, 1, &out), Result::kInvalidDevice);
  EXPECT_EQ(release(Kind::kHost, memory_), Result::kInvalidValue);
  EXPECT_EQ(release_device(at(1)), Result::kInvalidValue);
  EXPECT_EQ(release_device(nullptr), Result::kSuccess);
}

TEST_F(GpuMemory, PinnedRangesDoNotOverlap) {
  std::vector<char> own(10'000);
  EXPECT_EQ(register_host(own.data(), own.size()), Result::kSuccess);
  EXPECT_EQ(register_host(own.data() + 5000, 10), Result::kAlreadyRegistered);
  EXPECT_EQ(register_host(own.data() - 1, 10), Result::kAlreadyRegistered);
  EXPECT_EQ(gpu::find(own.data() + 1)->kind, Kind::kRegistered);
  int fd = -1;
  EXPECT_EQ(export_range(own.data(), 4096, &fd), Result::kInvalidValue);
  EXPECT_EQ(unregister_host(own.data() + 1), Result::kNotRegistered);
  EXPECT_EQ(unregister_host(own.data()), Result::kSuccess);
  EXPECT_FALSE(gpu::find(own.data()));
  own[0] = 1;  // it is the program's still
}

}  // namespace
}  // namespace hostnic::gpu
