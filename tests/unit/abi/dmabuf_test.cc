// SPDX-License-Identifier: BSD-3-Clause
// Regions of dma-bufs: what is refused, and what the driver is told.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "protocol/hostif/descriptors.h"
#include "tests/unit/abi/testing.h"

namespace hostnic {
namespace {

using AbiDmaBuf = AbiTest;

#define EXPECT_NULL(call, error) \
  do {                           \
    errno = 0;                   \
    EXPECT_EQ(call, nullptr);    \
    EXPECT_EQ(errno, error);     \
  } while (0)

// As the kernel has it; a memfd stands for a dma-buf.
TEST_F(AbiDmaBuf, DmaBufsAreCheckedAsTheKernelDoes) {
  constexpr size_t kBytes = 8192;
  constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  const int fd = memfd_create("dma-buf", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(fd, kBytes), 0);
  const auto make = [&](uint64_t offset, size_t length, uint64_t iova, int of, int access) {
    return ibv_reg_dmabuf_mr(pd_, offset, length, iova, of, access);
  };
  EXPECT_NULL(make(0, kBytes, 0, -1, kAccess), EBADF);
  EXPECT_NULL(make(0, kBytes + 1, 0, fd, kAccess), EINVAL);
  EXPECT_NULL(make(4096, kBytes, 4096, fd, kAccess), EINVAL);
  EXPECT_NULL(make(UINT64_MAX - 4095, 8192, 0, fd, kAccess), EINVAL);
  EXPECT_NULL(make(0, 0, 0, fd, kAccess), EINVAL);
  EXPECT_NULL(make(0, 4096, 100, fd, kAccess), EINVAL);
  EXPECT_NULL(make(0, 4096, 0, fd, kAccess | IBV_ACCESS_ON_DEMAND), EOPNOTSUPP);
  EXPECT_NULL(make(0, 4096, 0, fd, kAccess | IBV_ACCESS_ZERO_BASED), EINVAL);
  EXPECT_NULL(make(0, 4096, 0, fd, IBV_ACCESS_REMOTE_WRITE), EINVAL);
  const int directory = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  EXPECT_NULL(make(0, 4096, 0, directory, kAccess), EINVAL);
  const int by_path = open("/", O_PATH | O_CLOEXEC);
  EXPECT_NULL(make(0, 4096, 0, by_path, kAccess), EBADF);
  close(by_path);
  close(directory);
  ibv_mr* mr = make(100, 5000, 0x7000'0000'0064, fd, kAccess | IBV_ACCESS_RELAXED_ORDERING);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(reinterpret_cast<uint64_t>(mr->addr), 100u) << "as libibverbs has it";
  EXPECT_EQ(mr->length, 5000u);
  EXPECT_EQ(fake::seen().iova, 0x7000'0000'0064u);
  EXPECT_NE(fake::seen().access & kAccessRevocable, 0u);
  errno = 0;
  EXPECT_NE(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 0), 0);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  // A descriptor that can only read: the memory can be written all the same.
  const int reader = open(("/proc/self/fd/" + std::to_string(fd)).c_str(), O_RDONLY | O_CLOEXEC);
  mr = make(0, kBytes, 0, reader, kAccess);
  ASSERT_NE(mr, nullptr);
  close(reader);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  close(fd);
}

// libhostnic-gpu exports a part of an allocation by the descriptor's position in its file.
TEST_F(AbiDmaBuf, ExportedPartsBeginWhereTheyAre) {
  const int fd = memfd_create("hostnic-gpu", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(fd, 3 * 4096), 0);
  ASSERT_EQ(lseek(fd, 4096, SEEK_SET), 4096);
  EXPECT_NULL(ibv_reg_dmabuf_mr(pd_, 0, 3 * 4096, 0, fd, IBV_ACCESS_LOCAL_WRITE), EINVAL);
  ibv_mr* mr = ibv_reg_dmabuf_mr(pd_, 0, 2 * 4096, 0, fd, IBV_ACCESS_LOCAL_WRITE);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  close(fd);
}

}  // namespace
}  // namespace hostnic
