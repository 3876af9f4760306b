// SPDX-License-Identifier: BSD-3-Clause
// What the device promises in ibv_query_device() can be had, and what is beyond is refused with
// ENOMEM and harms nobody.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <vector>

#include "tests/conformance/bench.h"

namespace hostnic::conformance {
namespace {

using Limits = Conformance;

ConnectOptions tiny_queues() {
  ConnectOptions options;
  options.caps = {.max_send_wr = 1,
                  .max_recv_wr = 1,
                  .max_send_sge = 1,
                  .max_recv_sge = 1,
                  .max_inline_data = 0};
  return options;
}

ibv_device_attr attributes_of(const Host& host) {
  ibv_device_attr attributes{};
  EXPECT_EQ(ibv_query_device(host.context, &attributes), 0);
  return attributes;
}

TEST_F(Limits, AllPromisedQueuePairs) {
  const int promised = attributes_of(*near_host).max_qp;
  connect(tiny_queues());
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = near->cq;
  init.cap = tiny_queues().caps;
  init.qp_type = IBV_QPT_RC;
  std::vector<ibv_qp*> qps;
  while (ibv_qp* qp = ibv_create_qp(near_host->pd, &init)) {
    qps.push_back(qp);
    ASSERT_LE(qps.size(), static_cast<size_t>(promised));
  }
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_EQ(qps.size() + 1, static_cast<size_t>(promised)) << "and the one of `near`";
  ibv_sge sge = near_host->sge(8);
  ASSERT_EQ(near->post(request(1, IBV_WR_RDMA_WRITE, &sge, *far_host)), 0);
  near->expect(1);
  for (ibv_qp* qp : qps) ASSERT_EQ(ibv_destroy_qp(qp), 0);
  ibv_qp* again = ibv_create_qp(near_host->pd, &init);
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(ibv_destroy_qp(again), 0);
}

uint64_t resident_mebibytes() {
  uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages >> pages;
  return pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) >> 20;
}

// As many as the device promises, of any shape; and they cost what they use, while they are there.
void expect_all_queue_pairs(const Host& host, ibv_qp_init_attr init, uint64_t most_mebibytes) {
  const auto promised = static_cast<size_t>(attributes_of(host).max_qp);
  const uint64_t before = resident_mebibytes();
  std::vector<ibv_qp*> qps;
  while (qps.size() <= promised) {
    ibv_qp_init_attr wanted = init;
    ibv_qp* qp = ibv_create_qp(host.pd, &wanted);
    if (qp == nullptr) break;
    qps.push_back(qp);
  }
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_EQ(qps.size(), promised);
  EXPECT_LE(resident_mebibytes() - std::min(before, resident_mebibytes()), most_mebibytes);
  for (ibv_qp* qp : qps) ASSERT_EQ(ibv_destroy_qp(qp), 0);
  EXPECT_LE(resident_mebibytes(), before + most_mebibytes / 4) << "it is given back";
}

TEST_F(Limits, AllPromisedQueuePairsOnOneDeepSharedQueue) {
  ibv_srq_init_attr deep{};
  deep.attr.max_wr = static_cast<uint32_t>(attributes_of(*near_host).max_srq_wr);
  deep.attr.max_sge = 1;
  ibv_srq* srq = ibv_create_srq(near_host->pd, &deep);
  ASSERT_NE(srq, nullptr);
  ibv_cq* cq = ibv_create_cq(near_host->context, 64, nullptr, nullptr, 0);
  ASSERT_NE(cq, nullptr);
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq;
  init.srq = srq;
  init.cap = {.max_send_wr = 16,
              .max_recv_wr = 0,
              .max_send_sge = 1,
              .max_recv_sge = 0,
              .max_inline_data = 0};
  init.qp_type = IBV_QPT_RC;
  expect_all_queue_pairs(*near_host, init, 500);
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
  EXPECT_EQ(ibv_destroy_srq(srq), 0);
}

TEST_F(Limits, AllPromisedQueuePairsWithTheDeepestQueues) {
  const ibv_device_attr attributes = attributes_of(*near_host);
  ibv_cq* cq = ibv_create_cq(near_host->context, 64, nullptr, nullptr, 0);
  ASSERT_NE(cq, nullptr);
  const auto wr = static_cast<uint32_t>(attributes.max_qp_wr);
  const auto sge = static_cast<uint32_t>(attributes.max_sge);
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq;
  init.cap = {.max_send_wr = wr,
              .max_recv_wr = wr,
              .max_send_sge = sge,
              .max_recv_sge = sge,
              .max_inline_data = 64};
  init.qp_type = IBV_QPT_RC;
  expect_all_queue_pairs(*near_host, init, 800);
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
}

// Every receive of a deep shared queue can be in one queue pair's hands, before the program polls.
TEST_F(Limits, OneQueuePairTakesAllOfADeepSharedQueue) {
  constexpr uint32_t kDepth = 16384;
  ibv_srq_init_attr deep{};
  deep.attr.max_wr = kDepth;
  deep.attr.max_sge = 1;
  ibv_srq* srq = ibv_create_srq(far_host->pd, &deep);
  ASSERT_NE(srq, nullptr);
  ConnectOptions options;
  options.cq_entries = kDepth;
  ConnectOptions shared = options;
  shared.srq = srq;
  near = std::make_unique<Endpoint>(*near_host, options);
  far = std::make_unique<Endpoint>(*far_host, shared);
  ASSERT_NO_FATAL_FAILURE(connect_endpoints(*near, *far));
  for (uint32_t i = 0; i < kDepth; ++i) {
    ibv_sge sge = far_host->sge(8, i % 1000 * 8);
    ibv_recv_wr wr{i, nullptr, &sge, 1};
    ibv_recv_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_srq_recv(srq, &wr, &bad), 0) << i;
  }
  for (uint32_t i = 0; i < kDepth; ++i) {
    ibv_sge sge = near_host->sge(8);
    ASSERT_EQ(near->post(request(i, IBV_WR_SEND, &sge, *far_host)), 0);
    near->expect(i);  // far's queue is not polled
  }
  for (uint32_t i = 0; i < kDepth; ++i) ASSERT_EQ(far->expect(i).wr_id, i);
  far->expect_nothing();
  near.reset();
  far.reset();
  EXPECT_EQ(ibv_destroy_srq(srq), 0);
}

// A thousand contexts in one process, which a job of many ranks has in many.
TEST_F(Limits, AThousandOpenDevices) {
  constexpr size_t kContexts = 1000;
  rlimit descriptors{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &descriptors), 0);
  if (descriptors.rlim_max < 16'384)
    GTEST_SKIP() << "no more than " << descriptors.rlim_max << " descriptors are granted";
  const rlimit more{descriptors.rlim_max, descriptors.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &more), 0);
  connect();
  std::vector<ibv_context*> contexts;
  for (size_t i = 0; i < kContexts; ++i) {
    ibv_context* context =
        ibv_open_device(i % 2 == 0 ? near_host->context->device : far_host->context->device);
    ASSERT_NE(context, nullptr) << "after " << contexts.size() << ": " << strerror(errno);
    contexts.push_back(context);
  }
  // Each of them works, and so does who was there before.
  for (size_t i = 0; i < kContexts; i += 97) {
    ibv_pd* pd = ibv_alloc_pd(contexts[i]);
    ibv_cq* cq = ibv_create_cq(contexts[i], 16, nullptr, nullptr, 0);
    ASSERT_TRUE(pd != nullptr && cq != nullptr);
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq;
    init.cap = tiny_queues().caps;
    init.qp_type = IBV_QPT_RC;
    ibv_qp* qp = ibv_create_qp(pd, &init);
    ASSERT_NE(qp, nullptr) << strerror(errno);
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
    EXPECT_EQ(ibv_dealloc_pd(pd), 0);
  }
  ibv_sge sge = near_host->sge(8);
  ASSERT_EQ(near->post(request(1, IBV_WR_RDMA_WRITE, &sge, *far_host)), 0);
  near->expect(1);
  for (ibv_context* context : contexts) EXPECT_EQ(ibv_close_device(context), 0);
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &descriptors), 0);
}

size_t open_descriptors() {
  size_t count = 0;
  for (int fd = 0; fd < 4096; ++fd) count += fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
  return count;
}

TEST_F(Limits, ACompletionChannelIsOneDescriptor) {
  const size_t before = open_descriptors();
  std::vector<ibv_comp_channel*> channels;
  for (int i = 0; i < 100; ++i) {
    channels.push_back(ibv_create_comp_channel(near_host->context));
    ASSERT_NE(channels.back(), nullptr);
  }
  EXPECT_EQ(open_descriptors(), before + 100);
  for (ibv_comp_channel* channel : channels) EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
}

TEST_F(Limits, AllPromisedMemoryRegions) {
  const int promised = attributes_of(*near_host).max_mr;
  connect();
  std::vector<ibv_mr*> regions;
  // Overlapping ones: what is limited is their number.
  const auto add = [&] {
    return ibv_reg_mr(near_host->pd, near_host->bytes().data() + regions.size() % 1000, 64,
                      IBV_ACCESS_LOCAL_WRITE);
  };
  while (ibv_mr* region = add()) {
    regions.push_back(region);
    ASSERT_LE(regions.size(), static_cast<size_t>(promised));
  }
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_EQ(regions.size() + 1, static_cast<size_t>(promised)) << "and the host's own";
  ibv_mr* const others = ibv_reg_mr(far_host->pd, far_host->bytes().data(), 64, 0);
  ASSERT_NE(others, nullptr) << "another device's programs have as many";
  EXPECT_EQ(ibv_dereg_mr(others), 0);
  ibv_mr* last = regions.back();
  ibv_sge sge{reinterpret_cast<uintptr_t>(last->addr), 64, last->lkey};
  ASSERT_EQ(near->post(request(1, IBV_WR_RDMA_WRITE, &sge, *far_host)), 0);
  near->expect(1);
  for (ibv_mr* region : regions) ASSERT_EQ(ibv_dereg_mr(region), 0);
  ibv_mr* again = add();
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(ibv_dereg_mr(again), 0);
}

}  // namespace
}  // namespace hostnic::conformance
