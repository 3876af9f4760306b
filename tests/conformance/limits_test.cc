// What the device promises in ibv_query_device() can be had, and what is beyond is refused with
// ENOMEM and harms nobody.
#include <cerrno>
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
  EXPECT_EQ(regions.size() + 2, static_cast<size_t>(promised)) << "and one of each host: all NICs "
                                                                  "of a hostnicd share the table";
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
