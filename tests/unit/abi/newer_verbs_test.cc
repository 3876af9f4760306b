// SPDX-License-Identifier: BSD-3-Clause
// Verbs that the headers here do not have: called as a program built with newer ones does.
#include "tests/unit/abi/testing.h"
#include "verbs-shim/abi/objects.h"

struct ibv_dmah;
struct ibv_comp_cntr;
struct ibv_buf;

// What such a program's headers say.
struct ibv_mr_init_attr {
  size_t length;
  int access;
  uint64_t comp_mask;
  uint64_t iova;
  void* addr;
  int fd;
  uint64_t fd_offset;
  ibv_dmah* dmah;
  ibv_buf* buf;
};
extern "C" {
ibv_mr* ibv_reg_mr_ex(ibv_pd* pd, ibv_mr_init_attr* attr);
int ibv_query_port_speed(ibv_context* context, uint32_t port, uint64_t* speed_100mbps);
ibv_dmah* ibv_alloc_dmah(ibv_context* context, void* attr);
void* ibv_alloc_buf(ibv_pd* pd, size_t size, ibv_buf** buffer);
void ibv_free_buf(ibv_buf* buffer);
int ibv_export_buf_dmabuf_fd(ibv_buf* buffer);
ibv_mr* ibv_reg_buf_mr(ibv_pd* pd, ibv_buf* buffer, void* address, size_t length, int access);
int _ibv_query_comp_cntr_caps(ibv_context* context, void* caps, size_t size_bytes);
ibv_comp_cntr* ibv_create_comp_cntr(ibv_context* context, void* attr);
}

namespace hostnic {
namespace {

using AbiNewerVerbs = AbiTest;

constexpr uint64_t kIova = 1, kAddr = 2, kFd = 4, kBuffer = 32;

TEST_F(AbiNewerVerbs, RegMrExRegistersMemory) {
  alignas(64) static char memory[4096];
  ibv_mr_init_attr attr{};
  attr.length = sizeof memory;
  attr.access = IBV_ACCESS_LOCAL_WRITE;
  attr.comp_mask = kAddr;
  attr.iova = 77;  // not named by the mask
  attr.addr = memory;
  ibv_mr* mr = ibv_reg_mr_ex(pd_, &attr);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(mr->addr, memory);
  EXPECT_EQ(mr->length, sizeof memory);
  EXPECT_EQ(mr->pd, pd_);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  attr.comp_mask = kAddr | kIova;
  attr.iova = 0x10000;
  mr = ibv_reg_mr_ex(pd_, &attr);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(AbiNewerVerbs, RegMrExRefusesTheRest) {
  ibv_mr_init_attr attr{};
  attr.length = 4096;
  const auto refused = [&](uint64_t mask) {
    attr.comp_mask = mask;
    errno = 0;
    EXPECT_EQ(ibv_reg_mr_ex(pd_, &attr), nullptr) << mask;
    return errno;
  };
  EXPECT_EQ(refused(kFd | kIova), EINVAL) << "a file has an offset";
  EXPECT_EQ(refused(0), EINVAL);
  EXPECT_EQ(refused(kAddr | 1 << 10), EINVAL);
}

TEST_F(AbiNewerVerbs, BuffersAreMemoryThatIsRegistered) {
  constexpr size_t kBytes = 10000;
  ibv_buf* buffer = nullptr;
  auto* memory = static_cast<char*>(ibv_alloc_buf(pd_, kBytes, &buffer));
  ASSERT_NE(memory, nullptr);
  ASSERT_NE(buffer, nullptr);
  for (size_t i = 0; i < kBytes; ++i) memory[i] = 'x';
  ibv_mr* mr = ibv_reg_buf_mr(pd_, buffer, memory + 100, kBytes - 100, IBV_ACCESS_LOCAL_WRITE);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(mr->addr, memory + 100);
  EXPECT_EQ(mr->length, kBytes - 100);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  ibv_mr_init_attr attr{};
  attr.length = kBytes;
  attr.access = IBV_ACCESS_LOCAL_WRITE;
  attr.comp_mask = kAddr | kBuffer;
  attr.addr = memory;
  attr.buf = buffer;
  mr = ibv_reg_mr_ex(pd_, &attr);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  errno = 0;
  EXPECT_EQ(ibv_export_buf_dmabuf_fd(buffer), -1);
  EXPECT_EQ(errno, ENODATA);
  ibv_free_buf(buffer);
}

TEST_F(AbiNewerVerbs, WhatIsInNoBufferIsNotRegisteredAsOne) {
  constexpr size_t kBytes = 8192;
  ibv_buf* buffer = nullptr;
  errno = 0;
  EXPECT_EQ(ibv_alloc_buf(pd_, 0, &buffer), nullptr);
  EXPECT_EQ(errno, EINVAL);
  auto* memory = static_cast<char*>(ibv_alloc_buf(pd_, kBytes, &buffer));
  ASSERT_NE(memory, nullptr);
  const auto refused = [&](ibv_pd* pd, ibv_buf* of, char* at, size_t length) {
    errno = 0;
    EXPECT_EQ(ibv_reg_buf_mr(pd, of, at, length, IBV_ACCESS_LOCAL_WRITE), nullptr);
    return errno;
  };
  EXPECT_EQ(refused(pd_, buffer, memory + 1, kBytes), EINVAL);
  EXPECT_EQ(refused(pd_, buffer, memory - 1, 1), EINVAL);
  EXPECT_EQ(refused(pd_, buffer, memory, SIZE_MAX), EINVAL);
  EXPECT_EQ(refused(pd_, reinterpret_cast<ibv_buf*>(&memory), memory, kBytes), EINVAL);
  ibv_pd* another = ibv_alloc_pd(context_);
  EXPECT_EQ(refused(another, buffer, memory, kBytes), EINVAL);
  EXPECT_EQ(ibv_dealloc_pd(another), 0);
  ibv_free_buf(buffer);
  EXPECT_EQ(refused(pd_, buffer, memory, kBytes), EINVAL);
}

TEST_F(AbiNewerVerbs, PortSpeedIsInHundredsOfMegabits) {
  uint64_t speed = 0;
  ASSERT_EQ(ibv_query_port_speed(context_, 1, &speed), 0);
  EXPECT_EQ(speed, abi::object_of(context_)->driver->device().speed_mbps / 100);
  EXPECT_GT(speed, 0u);
  EXPECT_EQ(ibv_query_port_speed(context_, 2, &speed), EINVAL);
}

TEST_F(AbiNewerVerbs, WhatIsNotThereSaysSo) {
  EXPECT_EQ(ibv_alloc_dmah(context_, nullptr), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  errno = 0;
  EXPECT_EQ(ibv_create_comp_cntr(context_, nullptr), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(_ibv_query_comp_cntr_caps(context_, nullptr, 0), EOPNOTSUPP);
}

}  // namespace
}  // namespace hostnic
