// SPDX-License-Identifier: BSD-3-Clause
// Shared receive queues: far's queue pairs take their receives from one queue.
#include <atomic>
#include <cstring>
#include <thread>

#include "tests/conformance/bench.h"

namespace hostnic::conformance {
namespace {

constexpr uint32_t kMaxWr = 32;
constexpr uint32_t kMaxSge = 2;
constexpr uint32_t kBytes = 64;  // of a receive

class SharedReceives : public Conformance {
 protected:
  void SetUp() override {
    Conformance::SetUp();
    if (HasFatalFailure()) return;
    srq_ = make_queue(far_host->pd);
    ASSERT_NE(srq_, nullptr) << strerror(errno);
  }
  void TearDown() override {
    near_.clear();
    far_.clear();
    if (srq_ != nullptr) {
      EXPECT_EQ(ibv_destroy_srq(srq_), 0);
    }
    Conformance::TearDown();
  }
  static ibv_srq* make_queue(ibv_pd* pd, uint32_t max_wr = kMaxWr, uint32_t max_sge = kMaxSge) {
    ibv_srq_init_attr init{};
    init.attr = {.max_wr = max_wr, .max_sge = max_sge, .srq_limit = 0};
    errno = 0;
    return ibv_create_srq(pd, &init);
  }
  void connect_pairs(int count, ConnectOptions options = {}) {
    ConnectOptions shared = options;
    shared.srq = srq_;
    for (int i = 0; i < count; ++i) {
      near_.push_back(std::make_unique<Endpoint>(*near_host, options));
      far_.push_back(std::make_unique<Endpoint>(*far_host, shared));
      ASSERT_TRUE(near_.back()->valid() && far_.back()->valid()) << strerror(errno);
      ASSERT_NO_FATAL_FAILURE(connect_endpoints(*near_.back(), *far_.back()));
    }
  }
  // What ibv_post_srq_recv answers.
  int post_receive(uint64_t wr_id) { return post_receive(wr_id, far_host->sge(kBytes)); }
  int post_receive(uint64_t wr_id, ibv_sge sge) {
    ibv_recv_wr wr{wr_id, nullptr, &sge, 1};
    ibv_recv_wr* bad = nullptr;
    const int error = ibv_post_srq_recv(srq_, &wr, &bad);
    if (error != 0) {
      EXPECT_EQ(bad, &wr);
    }
    return error;
  }
  void post_receives(uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) ASSERT_EQ(post_receive(i), 0) << i;
  }
  int send(size_t pair, uint64_t wr_id, uint32_t bytes = kBytes) {
    ibv_sge sge = near_host->sge(bytes);
    return near_[pair]->post(request(wr_id, IBV_WR_SEND, &sge, *far_host));
  }
  void deliver(size_t pair, uint64_t wr_id) {
    ASSERT_EQ(send(pair, 100), 0);
    near_[pair]->expect(100);
    far_[pair]->expect(wr_id);
  }
  int arm(uint32_t limit) {
    ibv_srq_attr attr{.max_wr = 0, .max_sge = 0, .srq_limit = limit};
    return ibv_modify_srq(srq_, &attr, IBV_SRQ_LIMIT);
  }
  uint32_t limit() {
    ibv_srq_attr attr{};
    EXPECT_EQ(ibv_query_srq(srq_, &attr), 0);
    return attr.srq_limit;
  }
  bool limit_event(std::chrono::milliseconds patience = kPatience) {
    ibv_async_event event{};
    if (!far_host->wait_async(IBV_EVENT_SRQ_LIMIT_REACHED, event, patience)) return false;
    EXPECT_EQ(event.element.srq, srq_);
    return true;
  }

  ibv_srq* srq_ = nullptr;
  std::vector<std::unique_ptr<Endpoint>> near_, far_;
};

TEST_F(SharedReceives, GoToWhateverQueuePairAMessageComesTo) {
  connect_pairs(3);
  post_receives(6);
  uint64_t next = 0;
  for (const size_t pair : {1, 0, 2, 2, 1, 0}) deliver(pair, next++);
}

TEST_F(SharedReceives, AreTakenByWritesWithImmediate) {
  connect_pairs(2);
  post_receives(2);
  ibv_sge sge = near_host->sge(16);
  for (const uint64_t pair : {1, 0}) {
    ibv_send_wr wr = request(5, IBV_WR_RDMA_WRITE_WITH_IMM, &sge, *far_host);
    wr.imm_data = 77;
    ASSERT_EQ(near_[pair]->post(wr), 0);
    near_[pair]->expect(5);
    const ibv_wc wc = far_[pair]->expect(1 - pair);
    EXPECT_EQ(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
    EXPECT_EQ(wc.imm_data, 77u);
    EXPECT_EQ(wc.byte_len, 16u);
  }
}

TEST_F(SharedReceives, AnEmptyQueueIsReceiverNotReady) {
  connect_pairs(1);
  ASSERT_EQ(send(0, 1), 0);
  near_[0]->expect_nothing();
  ASSERT_EQ(post_receive(7), 0);
  near_[0]->expect(1);
  far_[0]->expect(7);
}

TEST_F(SharedReceives, AnEmptyQueueExhaustsRnrRetries) {
  ConnectOptions options;
  options.rnr_retry = 0;
  connect_pairs(1, options);
  ASSERT_EQ(send(0, 1), 0);
  near_[0]->expect(1, IBV_WC_RNR_RETRY_EXC_ERR);
  EXPECT_EQ(far_[0]->state(), IBV_QPS_RTS);
}

TEST_F(SharedReceives, TooSmallEndsOneQueuePairAndNotTheOthers) {
  connect_pairs(2);
  post_receives(3);
  ASSERT_EQ(send(0, 1, kBytes + 1), 0);
  near_[0]->expect(1, IBV_WC_REM_INV_REQ_ERR);
  far_[0]->expect(0, IBV_WC_LOC_LEN_ERR);
  EXPECT_TRUE(far_[0]->reaches(IBV_QPS_ERR));
  deliver(1, 1);
  deliver(1, 2);
}

TEST_F(SharedReceives, AQueuePairInErrorSaysThatItTakesNoMore) {
  connect_pairs(2);
  post_receives(3);
  deliver(0, 0);
  ASSERT_EQ(far_[0]->to(IBV_QPS_ERR), 0);
  ibv_async_event event{};
  ASSERT_TRUE(far_host->wait_async(IBV_EVENT_QP_LAST_WQE_REACHED, event));
  EXPECT_EQ(event.element.qp, far_[0]->qp);
  far_[0]->expect_nothing();  // what it had not taken stays
  deliver(1, 1);
  deliver(1, 2);
  EXPECT_FALSE(far_host->wait_async(IBV_EVENT_QP_LAST_WQE_REACHED, event, kQuiet));
}

TEST_F(SharedReceives, AQueuePairWithReceivesOfItsOwnSaysNoSuchThing) {
  connect();
  ASSERT_EQ(far->to(IBV_QPS_ERR), 0);
  ibv_async_event event{};
  EXPECT_FALSE(far_host->wait_async(IBV_EVENT_QP_LAST_WQE_REACHED, event, kQuiet));
}

TEST_F(SharedReceives, OutliveAResetOfTheirQueuePair) {
  connect_pairs(1);
  post_receives(2);
  deliver(0, 0);
  ASSERT_EQ(near_[0]->to_reset(), 0);
  ASSERT_EQ(far_[0]->to_reset(), 0);
  ASSERT_NO_FATAL_FAILURE(connect_endpoints(*near_[0], *far_[0]));
  deliver(0, 1);
}

TEST_F(SharedReceives, MemoryIsOfTheQueuesDomain) {
  ibv_pd* pd = ibv_alloc_pd(far_host->context);
  ibv_mr* mr = ibv_reg_mr(pd, far_host->bytes().data(), Host::kBytes, kAllAccess);
  ASSERT_NE(mr, nullptr);
  ASSERT_EQ(ibv_destroy_srq(srq_), 0);
  srq_ = make_queue(pd);
  ASSERT_NE(srq_, nullptr);
  connect_pairs(2);
  ibv_sge sge = far_host->sge(kBytes);
  sge.lkey = mr->lkey;
  ASSERT_EQ(post_receive(1, sge), 0);
  ASSERT_EQ(post_receive(2), 0);  // memory of the queue pairs' domain
  deliver(0, 1);
  ASSERT_EQ(send(1, 3), 0);
  near_[1]->expect(3, IBV_WC_REM_OP_ERR);
  far_[1]->expect(2, IBV_WC_LOC_PROT_ERR);
  far_.clear();
  EXPECT_EQ(ibv_destroy_srq(srq_), 0);
  srq_ = nullptr;
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
}

TEST_F(SharedReceives, ManyThreadsShareTheQueue) {
  constexpr uint64_t kMessages = 500;  // of a queue pair
  constexpr size_t kPairs = 4;
  connect_pairs(kPairs);
  post_receives(kMaxWr);
  std::atomic<uint64_t> seen{0};
  std::vector<std::thread> threads;
  for (size_t pair = 0; pair < kPairs; ++pair) {
    threads.emplace_back([&, pair] {
      for (uint64_t i = 0; i < kMessages; ++i) {
        EXPECT_EQ(send(pair, i), 0);
        near_[pair]->expect(i);
      }
    });
    threads.emplace_back([&, pair] {
      for (uint64_t i = 0; i < kMessages; ++i) {
        const ibv_wc wc = far_[pair]->next();
        EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
        EXPECT_EQ(wc.byte_len, kBytes);
        EXPECT_EQ(post_receive(wc.wr_id), 0);
        ++seen;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(seen, kPairs * kMessages);
}

// ---- the limit

TEST_F(SharedReceives, LimitIsReachedWhenFewerAreLeft) {
  connect_pairs(2);
  post_receives(6);
  ASSERT_EQ(arm(4), 0);
  EXPECT_EQ(limit(), 4u);
  deliver(0, 0);
  deliver(1, 1);
  EXPECT_FALSE(limit_event(kQuiet)) << "four are left";
  deliver(1, 2);
  EXPECT_TRUE(limit_event());
}

TEST_F(SharedReceives, LimitIsToldOnceForEachArming) {
  connect_pairs(1);
  post_receives(6);
  ASSERT_EQ(arm(6), 0);
  deliver(0, 0);
  ASSERT_TRUE(limit_event());
  EXPECT_EQ(limit(), 0u);
  deliver(0, 1);
  EXPECT_FALSE(limit_event(kQuiet));
  ASSERT_EQ(arm(4), 0);
  deliver(0, 2);
  EXPECT_TRUE(limit_event());
}

TEST_F(SharedReceives, LimitIsToldThoughNobodyPolls) {
  connect_pairs(1);
  post_receives(2);
  ASSERT_EQ(arm(2), 0);
  ASSERT_EQ(send(0, 1), 0);
  EXPECT_TRUE(limit_event());
  near_[0]->expect(1);
  far_[0]->expect(0);
}

TEST_F(SharedReceives, LimitIsDisarmedByZero) {
  connect_pairs(1);
  post_receives(2);
  ASSERT_EQ(arm(2), 0);
  ASSERT_EQ(arm(0), 0);
  deliver(0, 0);
  EXPECT_FALSE(limit_event(kQuiet));
}

TEST_F(SharedReceives, LimitAboveTheLength) {
  EXPECT_EQ(arm(kMaxWr), 0);
  errno = 0;
  EXPECT_EQ(arm(kMaxWr + 1), EINVAL);
  EXPECT_EQ(errno, EINVAL);
}

// ---- limits and wrong arguments

TEST_F(SharedReceives, QueryTellsWhatWasGranted) {
  ibv_srq_attr attr{};
  ASSERT_EQ(ibv_query_srq(srq_, &attr), 0);
  EXPECT_GE(attr.max_wr, kMaxWr);
  EXPECT_GE(attr.max_sge, kMaxSge);
  EXPECT_EQ(attr.srq_limit, 0u);
}

TEST_F(SharedReceives, ResizingIsNotAdvertisedAndRefused) {
  ibv_device_attr device{};
  ASSERT_EQ(ibv_query_device(far_host->context, &device), 0);
  EXPECT_EQ(device.device_cap_flags & IBV_DEVICE_SRQ_RESIZE, 0u);
  ibv_srq_attr attr{.max_wr = 2 * kMaxWr, .max_sge = 0, .srq_limit = 1};
  errno = 0;
  EXPECT_EQ(ibv_modify_srq(srq_, &attr, IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT), EOPNOTSUPP);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(ibv_modify_srq(srq_, &attr, 4), EINVAL);
  ASSERT_EQ(ibv_query_srq(srq_, &attr), 0);
  EXPECT_EQ(attr.max_wr, kMaxWr);
  EXPECT_EQ(attr.srq_limit, 0u) << "all or nothing";
}

TEST_F(SharedReceives, TheQueueTakesWhatWasGrantedAndNoMore) {
  connect_pairs(1);
  post_receives(kMaxWr);
  EXPECT_EQ(post_receive(99), ENOMEM);
  deliver(0, 0);
  EXPECT_EQ(post_receive(99), 0);
  EXPECT_EQ(post_receive(100), ENOMEM);
}

TEST_F(SharedReceives, AListStopsAtItsFirstBadRequest) {
  connect_pairs(1);
  ibv_sge sges[kMaxSge + 1];
  for (ibv_sge& sge : sges) sge = far_host->sge(8);
  ibv_recv_wr after{3, nullptr, sges, 1};
  ibv_recv_wr wide{2, &after, sges, kMaxSge + 1};
  ibv_recv_wr good{1, &wide, sges, kMaxSge};
  ibv_recv_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_srq_recv(srq_, &good, &bad), EINVAL);
  EXPECT_EQ(bad, &wide);
  ASSERT_EQ(send(0, 1, 16), 0);
  far_[0]->expect(1);
  ASSERT_EQ(send(0, 2, 8), 0);
  far_[0]->expect_nothing();
}

TEST_F(SharedReceives, AreNotPostedToTheQueuePair) {
  connect_pairs(1);
  EXPECT_EQ(far_[0]->post_receive(1, 8), EINVAL);
}

TEST_F(SharedReceives, SizesThatAreNone) {
  ibv_device_attr device{};
  ASSERT_EQ(ibv_query_device(far_host->context, &device), 0);
  const auto max_wr = static_cast<uint32_t>(device.max_srq_wr);
  const auto max_sge = static_cast<uint32_t>(device.max_srq_sge);
  ibv_srq* most = make_queue(far_host->pd, max_wr, max_sge);
  ASSERT_NE(most, nullptr) << "advertised limits can be had";
  EXPECT_EQ(ibv_destroy_srq(most), 0);
  for (const auto& [wr, sge] : {std::pair{0u, 1u}, {max_wr + 1, 1u}, {1u, max_sge + 1}}) {
    EXPECT_EQ(make_queue(far_host->pd, wr, sge), nullptr) << wr << " " << sge;
    EXPECT_EQ(errno, EINVAL);
  }
}

TEST_F(SharedReceives, AsManyQueuesAsAdvertised) {
  ibv_device_attr device{};
  ASSERT_EQ(ibv_query_device(far_host->context, &device), 0);
  ASSERT_GT(device.max_srq, 1);
  std::vector<ibv_srq*> all;
  while (all.size() <= static_cast<size_t>(device.max_srq)) {
    ibv_srq* one = make_queue(far_host->pd, 1, 1);
    if (one == nullptr) break;
    all.push_back(one);
  }
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_EQ(all.size(), static_cast<size_t>(device.max_srq) - 1) << "srq_ is one";
  for (ibv_srq* one : all) ASSERT_EQ(ibv_destroy_srq(one), 0);
}

TEST_F(SharedReceives, OnlyTheBasicTypeExists) {
  ibv_srq_init_attr_ex init{};
  init.attr = {.max_wr = 8, .max_sge = 1, .srq_limit = 0};
  init.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
  init.srq_type = IBV_SRQT_BASIC;
  init.pd = far_host->pd;
  ibv_srq* basic = ibv_create_srq_ex(far_host->context, &init);
  ASSERT_NE(basic, nullptr);
  uint32_t number = 0;
  EXPECT_EQ(ibv_get_srq_num(basic, &number), EOPNOTSUPP) << "only XRC's has one";
  EXPECT_EQ(ibv_destroy_srq(basic), 0);
  for (const ibv_srq_type type : {IBV_SRQT_XRC, IBV_SRQT_TM}) {
    init.srq_type = type;
    errno = 0;
    EXPECT_EQ(ibv_create_srq_ex(far_host->context, &init), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
  }
}

// ---- objects in use

TEST_F(SharedReceives, InUseByQueuePairs) {
  connect_pairs(2);
  errno = 0;
  EXPECT_EQ(ibv_destroy_srq(srq_), EBUSY);
  EXPECT_EQ(errno, EBUSY);
  far_.pop_back();
  EXPECT_EQ(ibv_destroy_srq(srq_), EBUSY);
  far_.pop_back();
  EXPECT_EQ(ibv_destroy_srq(srq_), 0);
  srq_ = nullptr;
}

TEST_F(SharedReceives, KeepTheirDomain) {
  ibv_pd* pd = ibv_alloc_pd(far_host->context);
  ibv_srq* queue = make_queue(pd);
  ASSERT_NE(queue, nullptr);
  EXPECT_EQ(ibv_dealloc_pd(pd), EBUSY);
  EXPECT_EQ(ibv_destroy_srq(queue), 0);
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
}

TEST_F(SharedReceives, OfAnotherDeviceDontFit) {
  create();
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = near->cq;
  init.srq = srq_;
  init.qp_type = IBV_QPT_RC;
  init.cap = {1, 0, 1, 0, 0};
  errno = 0;
  EXPECT_EQ(ibv_create_qp(near_host->pd, &init), nullptr);
  EXPECT_EQ(errno, ENOENT);
}

TEST_F(SharedReceives, TheQueuePairKnowsItsQueue) {
  connect_pairs(1);
  EXPECT_EQ(far_[0]->qp->srq, srq_);
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  ASSERT_EQ(ibv_query_qp(far_[0]->qp, &attr, IBV_QP_CAP, &init), 0);
  EXPECT_EQ(init.srq, srq_);
  EXPECT_EQ(attr.cap.max_recv_wr, 0u);
}

TEST_F(SharedReceives, DestroyingWaitsForAcknowledgedEvents) {
  post_receives(1);
  ASSERT_EQ(arm(2), 0);
  ibv_async_event event{};
  ASSERT_EQ(ibv_get_async_event(far_host->context, &event), 0);
  ASSERT_EQ(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
  std::atomic<bool> destroyed{false};
  std::thread destroyer([&] {
    EXPECT_EQ(ibv_destroy_srq(srq_), 0);
    destroyed = true;
  });
  std::this_thread::sleep_for(kQuiet);
  EXPECT_FALSE(destroyed);
  ibv_ack_async_event(&event);
  destroyer.join();
  srq_ = nullptr;
}

// ---- UC and UD

using UnreliableSharedReceives = SharedReceives;

TEST_F(UnreliableSharedReceives, GoToWhateverQueuePairAMessageComesTo) {
  ConnectOptions options;
  options.type = IBV_QPT_UC;
  connect_pairs(2, options);
  post_receives(4);
  uint64_t next = 0;
  for (const size_t pair : {1, 0, 0, 1}) deliver(pair, next++);
}

TEST_F(UnreliableSharedReceives, StartWithAHeaderForDatagrams) {
  ConnectOptions options;
  options.type = IBV_QPT_UD;
  connect_pairs(2, options);
  ibv_ah_attr attr{};
  attr.is_global = 1;
  attr.port_num = 1;
  attr.grh.dgid = far_host->gid();
  ibv_ah* ah = ibv_create_ah(near_host->pd, &attr);
  ASSERT_NE(ah, nullptr);
  post_receives(2);
  uint64_t next = 0;
  for (const size_t pair : {1, 0}) {
    ibv_sge sge = near_host->sge(8);
    ibv_send_wr wr = request(1, IBV_WR_SEND, &sge, *far_host);
    wr.wr.ud = {ah, far_[pair]->qp->qp_num, far_[pair]->init_attributes().qkey};
    ASSERT_EQ(near_[pair]->post(wr), 0);
    near_[pair]->expect(1);
    const ibv_wc wc = far_[pair]->expect(next++);
    EXPECT_EQ(wc.byte_len, 40u + 8);
    EXPECT_EQ(wc.src_qp, near_[pair]->qp->qp_num);
  }
  EXPECT_EQ(ibv_destroy_ah(ah), 0);
}

}  // namespace
}  // namespace hostnic::conformance
