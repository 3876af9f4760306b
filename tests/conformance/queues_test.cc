// SPDX-License-Identifier: BSD-3-Clause
// Queues: limits of work requests and SGEs, completion queues that are resized and overflow, and
// objects that are in use.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

#include "tests/conformance/bench.h"

namespace hostnic::conformance {
namespace {

using Queues = Conformance;

ConnectOptions short_queues() {
  ConnectOptions options;
  options.caps.max_send_wr = 16;
  options.caps.max_recv_wr = 16;
  return options;
}

TEST_F(Queues, SendQueueTakesWhatWasGrantedAndNoMore) {
  connect(short_queues());
  ibv_sge sge = near_host->sge(8);
  const uint32_t granted = near->options.caps.max_send_wr;
  EXPECT_GE(granted, 16u);
  for (uint64_t i = 0; i < granted; ++i)
    ASSERT_EQ(near->post(request(i, IBV_WR_RDMA_WRITE, &sge, *far_host)), 0) << i;
  EXPECT_EQ(near->post(request(99, IBV_WR_RDMA_WRITE, &sge, *far_host)), ENOMEM);
  for (uint64_t i = 0; i < granted; ++i) near->expect(i);
}

TEST_F(Queues, SendSlotsAreFreeOnceACompletionIsPolled) {
  connect(short_queues());
  ibv_sge sge = near_host->sge(8);
  const uint32_t granted = near->options.caps.max_send_wr;
  for (uint64_t i = 0; i < granted; ++i) {
    ibv_send_wr wr = request(i, IBV_WR_RDMA_WRITE, &sge, *far_host);
    if (i + 1 != granted) wr.send_flags = 0;
    ASSERT_EQ(near->post(wr), 0);
  }
  near->expect(granted - 1);
  for (uint64_t i = 0; i < granted; ++i)
    ASSERT_EQ(near->post(request(i, IBV_WR_RDMA_WRITE, &sge, *far_host)), 0) << i;
  for (uint64_t i = 0; i < granted; ++i) near->expect(i);
}

TEST_F(Queues, ReceiveQueueTakesWhatWasGrantedAndNoMore) {
  connect(short_queues());
  const uint32_t granted = near->options.caps.max_recv_wr;
  EXPECT_GE(granted, 16u);
  for (uint64_t i = 0; i < granted; ++i) ASSERT_EQ(near->post_receive(i, 8), 0) << i;
  EXPECT_EQ(near->post_receive(99, 8), ENOMEM);
}

TEST_F(Queues, AListStopsAtItsFirstBadRequest) {
  connect(short_queues());
  ibv_sge sge = near_host->sge(8);
  ibv_sge sges[17];
  std::fill(std::begin(sges), std::end(sges), sge);
  ibv_send_wr good = request(1, IBV_WR_RDMA_WRITE, &sge, *far_host);
  ibv_send_wr wide = request(2, IBV_WR_RDMA_WRITE, sges, *far_host);
  ibv_send_wr after = request(3, IBV_WR_RDMA_WRITE, &sge, *far_host);
  wide.num_sge = static_cast<int>(near->options.caps.max_send_sge) + 1;
  good.next = &wide;
  wide.next = &after;
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_send(near->qp, &good, &bad), EINVAL);
  EXPECT_EQ(bad, &wide);
  near->expect(1);
  near->expect_nothing();
}

TEST_F(Queues, TooManySgesOfAReceive) {
  connect();
  ibv_sge sges[17];
  std::fill(std::begin(sges), std::end(sges), near_host->sge(8));
  ibv_recv_wr wr{1, nullptr, sges, static_cast<int>(near->options.caps.max_recv_sge) + 1};
  ibv_recv_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_recv(near->qp, &wr, &bad), EINVAL);
  EXPECT_EQ(bad, &wr);
}

TEST_F(Queues, InlineDataBeyondTheLimit) {
  connect();
  ibv_sge sge = near_host->sge(near->options.caps.max_inline_data + 1);
  ibv_send_wr wr = request(1, IBV_WR_RDMA_WRITE, &sge, *far_host);
  wr.send_flags |= IBV_SEND_INLINE;
  EXPECT_EQ(near->post(wr), EINVAL);
  sge.length = near->options.caps.max_inline_data;
  sge.lkey = kBadKey;  // inline data need no key, and may change at once
  ASSERT_EQ(near->post(wr), 0);
  near->expect(1);
}

TEST_F(Queues, ReadsCantBeInline) {
  connect();
  ibv_sge sge = near_host->sge(8);
  ibv_send_wr wr = request(1, IBV_WR_RDMA_READ, &sge, *far_host);
  wr.send_flags |= IBV_SEND_INLINE;
  EXPECT_EQ(near->post(wr), EINVAL);
}

TEST_F(Queues, UnknownOpcode) {
  connect();
  ibv_sge sge = near_host->sge(8);
  EXPECT_EQ(near->post(request(1, static_cast<ibv_wr_opcode>(77), &sge, *far_host)), EINVAL);
  near->expect_nothing();
}

TEST_F(Queues, AtomicsAreEightBytes) {
  connect();
  ibv_sge sge = near_host->sge(4);
  const int error = near->post(request(1, IBV_WR_ATOMIC_FETCH_AND_ADD, &sge, *far_host));
  if (error != 0) {
    EXPECT_EQ(error, EINVAL);
  } else {
    near->expect(1, IBV_WC_LOC_LEN_ERR);
  }
}

TEST_F(Queues, AdvertisedLimitsCanBeHad) {
  ibv_device_attr attr{};
  ASSERT_EQ(ibv_query_device(near_host->context, &attr), 0);
  ConnectOptions options;
  options.caps = {.max_send_wr = static_cast<uint32_t>(attr.max_qp_wr),
                  .max_recv_wr = static_cast<uint32_t>(attr.max_qp_wr),
                  .max_send_sge = static_cast<uint32_t>(attr.max_sge),
                  .max_recv_sge = static_cast<uint32_t>(attr.max_sge),
                  .max_inline_data = 0};
  options.cq_entries = attr.max_cqe;
  Endpoint all(*near_host, options);
  EXPECT_TRUE(all.valid()) << strerror(errno);
}

TEST_F(Queues, BeyondTheAdvertisedLimits) {
  ibv_device_attr attr{};
  ASSERT_EQ(ibv_query_device(near_host->context, &attr), 0);
  create();
  for (int field = 0; field < 4; ++field) {
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = near->cq;
    init.qp_type = IBV_QPT_RC;
    init.cap = {1, 1, 1, 1, 0};
    uint32_t* fields[] = {&init.cap.max_send_wr, &init.cap.max_recv_wr, &init.cap.max_send_sge,
                          &init.cap.max_recv_sge};
    *fields[field] = static_cast<uint32_t>(field < 2 ? attr.max_qp_wr : attr.max_sge) + 1;
    errno = 0;
    EXPECT_EQ(ibv_create_qp(near_host->pd, &init), nullptr) << "field " << field;
    EXPECT_EQ(errno, EINVAL);
  }
  for (int entries : {0, -1, attr.max_cqe + 1}) {
    errno = 0;
    EXPECT_EQ(ibv_create_cq(near_host->context, entries, nullptr, nullptr, 0), nullptr);
    EXPECT_EQ(errno, EINVAL) << entries;
  }
}

// ---- objects in use

using InUse = Conformance;

TEST_F(InUse, CompletionQueueOfAQueuePair) {
  create();
  errno = 0;
  EXPECT_EQ(ibv_destroy_cq(near->cq), EBUSY);
  EXPECT_EQ(errno, EBUSY);
}

TEST_F(InUse, ProtectionDomainOfARegion) {
  errno = 0;
  EXPECT_EQ(ibv_dealloc_pd(near_host->pd), EBUSY);
  EXPECT_EQ(errno, EBUSY);
}

TEST_F(InUse, ProtectionDomainOfAQueuePair) {
  create();
  ibv_pd* pd = ibv_alloc_pd(near_host->context);
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = near->cq;
  init.qp_type = IBV_QPT_RC;
  init.cap = {1, 1, 1, 1, 0};
  ibv_qp* qp = ibv_create_qp(pd, &init);
  ASSERT_NE(qp, nullptr);
  EXPECT_EQ(ibv_dealloc_pd(pd), EBUSY);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
}

TEST_F(InUse, ProtectionDomainOfAnAddressHandle) {
  ibv_pd* pd = ibv_alloc_pd(near_host->context);
  ibv_ah_attr attr{};
  attr.is_global = 1;
  attr.port_num = 1;
  attr.grh.dgid = far_host->gid();
  ibv_ah* ah = ibv_create_ah(pd, &attr);
  ASSERT_NE(ah, nullptr);
  EXPECT_EQ(ibv_dealloc_pd(pd), EBUSY);
  EXPECT_EQ(ibv_destroy_ah(ah), 0);
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
}

TEST_F(InUse, ChannelOfACompletionQueue) {
  ibv_comp_channel* channel = ibv_create_comp_channel(near_host->context);
  ibv_cq* cq = ibv_create_cq(near_host->context, 1, nullptr, channel, 0);
  ASSERT_NE(cq, nullptr);
  EXPECT_EQ(ibv_destroy_comp_channel(channel), EBUSY);
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
  EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
}

TEST_F(InUse, ObjectsOfAnotherDeviceDontFit) {
  create();
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = far->cq;
  init.qp_type = IBV_QPT_RC;
  init.cap = {1, 1, 1, 1, 0};
  errno = 0;
  EXPECT_EQ(ibv_create_qp(near_host->pd, &init), nullptr);
  EXPECT_EQ(errno, ENOENT);
}

// ---- receives

// What is checked is what a message reaches, on adapters, too.
TEST_F(Queues, AReceiveMayBeLongerThanItsRegion) {
  for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC}) {
    ConnectOptions options;
    options.type = type;
    connect(options);
    const std::span<std::byte> memory = far_host->bytes().first(4096);
    ibv_mr* mr = ibv_reg_mr(far_host->pd, memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE);
    ASSERT_NE(mr, nullptr);
    ibv_sge longer{far_host->address(), 8192, mr->lkey};
    ibv_recv_wr receive{1, nullptr, &longer, 1}, *bad = nullptr;
    for (const uint32_t bytes : {0u, 100u, 4096u}) {
      ASSERT_EQ(ibv_post_recv(far->qp, &receive, &bad), 0);
      std::ranges::fill(near_host->bytes().first(bytes), std::byte(bytes / 16 + 3));
      std::ranges::fill(memory, std::byte{0});
      ibv_sge sge = near_host->sge(bytes);
      ASSERT_EQ(near->post(request(2, IBV_WR_SEND, &sge, *far_host)), 0);
      near->expect(2);
      EXPECT_EQ(far->expect(1).byte_len, bytes);
      EXPECT_EQ(std::memcmp(memory.data(), near_host->bytes().data(), bytes), 0);
    }
    // One that reaches beyond does not fit.
    ASSERT_EQ(ibv_post_recv(far->qp, &receive, &bad), 0);
    ibv_sge sge = near_host->sge(4097);
    ASSERT_EQ(near->post(request(2, IBV_WR_SEND, &sge, *far_host)), 0);
    near->expect(2, type == IBV_QPT_RC ? IBV_WC_REM_OP_ERR : IBV_WC_SUCCESS);
    far->expect(1, IBV_WC_LOC_PROT_ERR);
    far.reset();
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
  }
}

TEST_F(Queues, AReadMayLandInAnElementLongerThanItsRegion) {
  connect();
  ibv_mr* mr = ibv_reg_mr(near_host->pd, near_host->bytes().data(), 4096, IBV_ACCESS_LOCAL_WRITE);
  ASSERT_NE(mr, nullptr);
  // The result of an atomic is 8 bytes, whatever the element says.
  ibv_sge sge{near_host->address(4088), 16, mr->lkey};
  ibv_send_wr wr = request(1, IBV_WR_ATOMIC_FETCH_AND_ADD, &sge, *far_host);
  ASSERT_EQ(near->post(wr), 0);
  near->expect(1);
  near.reset();
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

// ---- completion queues

class CompletionQueues : public Conformance {
 protected:
  // `count` completions come to near's queue; most, or all, are there when it returns.
  void fill(uint64_t count) {
    ibv_sge sge = near_host->sge(8);
    for (uint64_t i = 0; i < count; ++i)
      ASSERT_EQ(near->post(request(i, IBV_WR_RDMA_WRITE, &sge, *far_host)), 0);
    std::this_thread::sleep_for(kQuiet);
  }
};

TEST_F(CompletionQueues, Grow) {
  connect();
  ASSERT_EQ(ibv_resize_cq(near->cq, 5000), 0);
  EXPECT_GE(near->cq->cqe, 5000);
  ASSERT_NO_FATAL_FAILURE(fill(50));
  for (uint64_t i = 0; i < 50; ++i) near->expect(i);
}

TEST_F(CompletionQueues, ShrinkKeepsWhatIsInside) {
  connect();
  ASSERT_NO_FATAL_FAILURE(fill(40));
  ASSERT_EQ(ibv_resize_cq(near->cq, 64), 0);
  EXPECT_GE(near->cq->cqe, 64);
  for (uint64_t i = 0; i < 40; ++i) near->expect(i);
}

TEST_F(CompletionQueues, DontShrinkBelowWhatIsInside) {
  connect();
  for (uint64_t i = 0; i < 40; ++i) ASSERT_EQ(near->post_receive(i, 8), 0);
  ASSERT_EQ(near->to(IBV_QPS_ERR), 0);
  std::this_thread::sleep_for(kQuiet);
  const int before = near->cq->cqe;
  errno = 0;
  EXPECT_EQ(ibv_resize_cq(near->cq, 39), EINVAL);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(near->cq->cqe, before);
  EXPECT_EQ(ibv_resize_cq(near->cq, 40), 0);
  for (uint64_t i = 0; i < 40; ++i) near->expect(i, IBV_WC_WR_FLUSH_ERR);
}

TEST_F(CompletionQueues, AreGrantedAsAskedForAndNotBelowWhatWasSent) {
  connect();
  ASSERT_EQ(ibv_resize_cq(near->cq, 7), 0);
  EXPECT_EQ(near->cq->cqe, 7);
  ibv_sge sge = near_host->sge(8);
  for (uint64_t i = 0; i < 6; ++i)
    ASSERT_EQ(near->post(request(i, IBV_WR_RDMA_WRITE, &sge, *far_host)), 0);
  // Nobody has polled or waited: they are there all the same.
  EXPECT_EQ(ibv_resize_cq(near->cq, 1), EINVAL);
  EXPECT_EQ(near->cq->cqe, 7);
  for (uint64_t i = 0; i < 6; ++i) near->expect(i);
  EXPECT_EQ(ibv_resize_cq(near->cq, 1), 0);
  EXPECT_EQ(near->cq->cqe, 1);
}

TEST_F(CompletionQueues, SizesThatAreNone) {
  create();
  const int before = near->cq->cqe;
  for (int entries : {0, -1}) {
    errno = 0;
    EXPECT_EQ(ibv_resize_cq(near->cq, entries), EINVAL);
    EXPECT_EQ(errno, EINVAL);
  }
  ibv_device_attr attr{};
  ASSERT_EQ(ibv_query_device(near_host->context, &attr), 0);
  EXPECT_EQ(ibv_resize_cq(near->cq, attr.max_cqe + 1), EINVAL);
  EXPECT_EQ(near->cq->cqe, before);
}

TEST_F(CompletionQueues, ResizedWhileInUse) {
  connect();
  std::atomic<bool> done{false};
  std::thread resizer([&] {
    for (int size = 200; !done; size = size == 200 ? 3000 : 200)
      EXPECT_EQ(ibv_resize_cq(near->cq, size), 0);
  });
  ibv_sge sge = near_host->sge(8);
  for (uint64_t i = 0; i < 2000; i += 50) {
    for (uint64_t j = i; j < i + 50; ++j)
      EXPECT_EQ(near->post(request(j, IBV_WR_RDMA_WRITE, &sge, *far_host)), 0);
    for (uint64_t j = i; j < i + 50; ++j) near->expect(j);
  }
  done = true;
  resizer.join();
}

TEST_F(CompletionQueues, OverflowIsToldAndEndsTheQueuePair) {
  ConnectOptions options;
  options.cq_entries = 1;
  options.caps.max_send_wr = 1024;
  connect(options);
  const auto entries = static_cast<uint64_t>(near->cq->cqe);
  ASSERT_LT(entries, 512u);
  ibv_sge sge = near_host->sge(8);
  for (uint64_t i = 0; i < entries + 1; ++i)
    ASSERT_EQ(near->post(request(i, IBV_WR_RDMA_WRITE, &sge, *far_host)), 0);
  ibv_async_event event{};
  ASSERT_TRUE(near_host->wait_async(IBV_EVENT_CQ_ERR, event));
  EXPECT_EQ(event.element.cq, near->cq);
  ASSERT_TRUE(near_host->wait_async(IBV_EVENT_QP_FATAL, event));
  EXPECT_EQ(event.element.qp, near->qp);
  EXPECT_TRUE(near->reaches(IBV_QPS_ERR));
  for (uint64_t i = 0; i < entries; ++i) near->expect(i);  // what was inside is not lost
  near->expect_nothing();
}

TEST_F(CompletionQueues, ExactlyFullIsNoOverflow) {
  ConnectOptions options;
  options.cq_entries = 1;
  options.caps.max_send_wr = 1024;
  connect(options);
  ASSERT_NO_FATAL_FAILURE(fill(static_cast<uint64_t>(near->cq->cqe)));
  for (uint64_t i = 0; i < static_cast<uint64_t>(near->cq->cqe); ++i) near->expect(i);
  EXPECT_EQ(near->state(), IBV_QPS_RTS);
}

TEST_F(CompletionQueues, ModerationIsAccepted) {
  create();
  ibv_device_attr_ex attr{};
  ASSERT_EQ(ibv_query_device_ex(near_host->context, nullptr, &attr), 0);
  EXPECT_GT(attr.cq_mod_caps.max_cq_count, 0);
  EXPECT_GT(attr.cq_mod_caps.max_cq_period, 0);
  ibv_modify_cq_attr moderation{IBV_CQ_ATTR_MODERATE, {attr.cq_mod_caps.max_cq_count, 100}};
  EXPECT_EQ(ibv_modify_cq(near->cq, &moderation), 0);
  moderation.attr_mask = 0;
  EXPECT_EQ(ibv_modify_cq(near->cq, &moderation), EINVAL);
  moderation.attr_mask = IBV_CQ_ATTR_MODERATE | IBV_CQ_ATTR_RESERVED;
  EXPECT_EQ(ibv_modify_cq(near->cq, &moderation), EOPNOTSUPP);
}

TEST_F(CompletionQueues, DestroyedQueuePairsTakeTheirCompletionsAlong) {
  connect();
  ASSERT_NO_FATAL_FAILURE(fill(10));
  ASSERT_EQ(ibv_destroy_qp(near->qp), 0);
  near->qp = nullptr;
  near->expect_nothing();
}

}  // namespace
}  // namespace hostnic::conformance
