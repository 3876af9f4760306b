// SPDX-License-Identifier: BSD-3-Clause
// Shared receive queues as programs see them: attributes, what is refused, what keeps what alive,
// events.
#include <poll.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <utility>

#include "tests/unit/abi/testing.h"
#include "verbs-shim/abi/limits.h"
#include "verbs-shim/abi/objects.h"

namespace hostnic {
namespace {

using namespace std::chrono_literals;

class AbiSrq : public AbiTest {
 protected:
  ibv_srq* create(uint32_t max_wr = 8, uint32_t max_sge = 2) {
    ibv_srq_init_attr attr{};
    attr.srq_context = this;
    attr.attr = {.max_wr = max_wr, .max_sge = max_sge, .srq_limit = 77};
    errno = 0;
    return ibv_create_srq(pd_, &attr);
  }
  ibv_qp* create_qp_on(ibv_srq* srq) {
    ibv_qp_init_attr init = init_attr(cq_);
    init.srq = srq;
    init.cap.max_recv_wr = init.cap.max_recv_sge = 1u << 30;  // without meaning
    return ibv_create_qp(pd_, &init);
  }
  static int post(ibv_srq* srq, uint64_t wr_id) {
    ibv_recv_wr wr{wr_id, nullptr, nullptr, 0};
    ibv_recv_wr* bad = nullptr;
    return ibv_post_srq_recv(srq, &wr, &bad);
  }
  static uint32_t limit_of(ibv_srq* srq) {
    ibv_srq_attr attr{};
    EXPECT_EQ(ibv_query_srq(srq, &attr), 0);
    return attr.srq_limit;
  }
  static int arm(ibv_srq* srq, uint32_t limit) {
    ibv_srq_attr attr{};
    attr.srq_limit = limit;
    return ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT);
  }
};

TEST_F(AbiSrq, HasWhatItWasCreatedWith) {
  ibv_srq* srq = create();
  ASSERT_NE(srq, nullptr);
  EXPECT_EQ(srq->context, context_);
  EXPECT_EQ(srq->pd, pd_);
  EXPECT_EQ(srq->srq_context, this);
  ibv_srq_attr attr{};
  ASSERT_EQ(ibv_query_srq(srq, &attr), 0);
  EXPECT_EQ(attr.max_wr, 8u);
  EXPECT_EQ(attr.max_sge, 2u);
  EXPECT_EQ(attr.srq_limit, 0u) << "not armed, whatever the creation's attributes say";
  EXPECT_EQ(ibv_destroy_srq(srq), 0);
}

TEST_F(AbiSrq, SizesAreChecked) {
  const std::pair<uint32_t, uint32_t> refused[] = {
      {0, 1}, {DeviceOffer{}.max_srq_wr + 1, 1}, {1, kMaxSge + 1}};
  for (const auto& [max_wr, max_sge] : refused) {
    EXPECT_EQ(create(max_wr, max_sge), nullptr);
    EXPECT_EQ(errno, EINVAL);
  }
  fake::behaviour().create_srq_error = ENOMEM;
  EXPECT_EQ(create(), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  fake::behaviour().create_srq_error = 0;
  EXPECT_EQ(ibv_dealloc_pd(pd_), 0) << "refused queues hold nothing";
  EXPECT_EQ(create(), nullptr);
}

TEST_F(AbiSrq, ExtendedCreationOfTheBasicType) {
  ibv_srq_init_attr_ex attr{};
  attr.attr = {.max_wr = 4, .max_sge = 1, .srq_limit = 0};
  attr.comp_mask = IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_TYPE;
  attr.pd = pd_;
  attr.srq_type = IBV_SRQT_BASIC;
  ibv_srq* srq = ibv_create_srq_ex(context_, &attr);
  ASSERT_NE(srq, nullptr);
  uint32_t number = 0;
  EXPECT_EQ(ibv_get_srq_num(srq, &number), EOPNOTSUPP);
  EXPECT_EQ(ibv_destroy_srq(srq), 0);
  for (const ibv_srq_type type : {IBV_SRQT_XRC, IBV_SRQT_TM}) {
    attr.srq_type = type;
    errno = 0;
    EXPECT_EQ(ibv_create_srq_ex(context_, &attr), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
  }
}

TEST_F(AbiSrq, InUseIsBusy) {
  ibv_srq* srq = create();
  ibv_qp* qp = create_qp_on(srq);
  ASSERT_NE(qp, nullptr);
  EXPECT_EQ(ibv_destroy_srq(srq), EBUSY);
  EXPECT_EQ(errno, EBUSY);
  EXPECT_EQ(ibv_dealloc_pd(pd_), EBUSY);
  EXPECT_EQ(post(srq, 1), 0) << "still alive";
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
  EXPECT_EQ(ibv_dealloc_pd(pd_), EBUSY) << "the queue is in it";
  EXPECT_EQ(ibv_destroy_srq(srq), 0);
  EXPECT_EQ(ibv_dealloc_pd(pd_), 0);
}

TEST_F(AbiSrq, OfAnotherContextIsRefused) {
  ibv_context* other = ibv_open_device(list_[1]);
  ASSERT_NE(other, nullptr);
  ibv_pd* pd = ibv_alloc_pd(other);
  ibv_srq_init_attr attr{};
  attr.attr = {.max_wr = 4, .max_sge = 1, .srq_limit = 0};
  ibv_srq* srq = ibv_create_srq(pd, &attr);
  ASSERT_NE(srq, nullptr);
  errno = 0;
  EXPECT_EQ(create_qp_on(srq), nullptr);
  EXPECT_EQ(errno, ENOENT);
  EXPECT_EQ(ibv_close_device(other), 0);
}

TEST_F(AbiSrq, ReceivesGoToWhoNeedsThem) {
  ibv_srq* srq = create(3);
  ibv_qp* first = create_qp_on(srq);
  ibv_qp* second = create_qp_on(srq);
  connect(first);
  connect(second);
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  ASSERT_EQ(ibv_query_qp(first, &attr, IBV_QP_CAP, &init), 0);
  EXPECT_EQ(init.srq, srq);
  ibv_recv_wr wrs[4] = {};
  for (uint32_t i = 0; i < 4; ++i) wrs[i] = {10 + i, i < 3 ? &wrs[i + 1] : nullptr, nullptr, 0};
  ibv_recv_wr* bad = nullptr;
  errno = 0;
  EXPECT_EQ(ibv_post_srq_recv(srq, wrs, &bad), ENOMEM);
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_EQ(bad, &wrs[3]) << "three fit";
  ibv_send_wr* bad_send = nullptr;
  for (ibv_qp* qp : {second, first}) {
    ibv_send_wr wr = send_wr(1);
    wr.send_flags = 0;
    ASSERT_EQ(ibv_post_send(qp, &wr, &bad_send), 0);
  }
  ibv_wc wc[4];
  ASSERT_EQ(ibv_poll_cq(cq_, 4, wc), 2);
  EXPECT_EQ(wc[0].wr_id, 10u);
  EXPECT_EQ(wc[0].qp_num, second->qp_num);
  EXPECT_EQ(wc[1].wr_id, 11u);
  EXPECT_EQ(wc[1].qp_num, first->qp_num);
  EXPECT_EQ(ibv_destroy_qp(first), 0);
  EXPECT_EQ(ibv_destroy_qp(second), 0);
  EXPECT_EQ(ibv_destroy_srq(srq), 0);
}

TEST_F(AbiSrq, PostsAreChecked) {
  ibv_srq* srq = create(4, 1);
  ibv_sge sges[2] = {};
  ibv_recv_wr wr{1, nullptr, sges, 2};
  ibv_recv_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_srq_recv(srq, &wr, &bad), EINVAL);
  EXPECT_EQ(bad, &wr);
  wr.num_sge = 1;
  EXPECT_EQ(ibv_post_srq_recv(srq, &wr, &bad), 0);
  EXPECT_EQ(ibv_destroy_srq(srq), 0);
}

TEST_F(AbiSrq, LimitIsArmedAndItsEventTakenOnce) {
  ibv_srq* srq = create();
  for (uint64_t i = 0; i < 4; ++i) ASSERT_EQ(post(srq, i), 0);
  EXPECT_EQ(arm(srq, 9), EINVAL);
  EXPECT_EQ(errno, EINVAL);
  ASSERT_EQ(arm(srq, 3), 0);
  EXPECT_EQ(limit_of(srq), 3u);
  ASSERT_EQ(arm(srq, 8), 0) << "four are there: reached";
  EXPECT_EQ(limit_of(srq), 0u);
  ibv_async_event event;
  ASSERT_EQ(ibv_get_async_event(context_, &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
  EXPECT_EQ(event.element.srq, srq);
  std::atomic<bool> destroyed{false};
  std::thread destroyer([&] {
    EXPECT_EQ(ibv_destroy_srq(srq), 0);
    destroyed = true;
  });
  std::this_thread::sleep_for(30ms);
  EXPECT_FALSE(destroyed) << "before the event is acknowledged";
  ibv_ack_async_event(&event);
  destroyer.join();
}

TEST_F(AbiSrq, DestructionDropsEventsThatNobodyFetched) {
  ibv_srq* srq = create();
  ASSERT_EQ(arm(srq, 1), 0);
  EXPECT_EQ(ibv_destroy_srq(srq), 0);
  pollfd waiting{context_->async_fd, POLLIN, 0};
  EXPECT_EQ(poll(&waiting, 1, 0), 0);
}

TEST_F(AbiSrq, ResizeAndUnknownAttributesAreRefused) {
  ibv_srq* srq = create();
  ibv_srq_attr attr{};
  attr.max_wr = 100;
  EXPECT_EQ(ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR), EOPNOTSUPP);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT), EOPNOTSUPP);
  EXPECT_EQ(ibv_modify_srq(srq, &attr, 1 << 5), EINVAL);
  EXPECT_EQ(ibv_modify_srq(srq, &attr, 0), 0);
}

TEST_F(AbiSrq, LastWqeReachedIsAboutItsQueuePair) {
  ibv_srq* srq = create();
  ibv_qp* qp = create_qp_on(srq);
  fake::raise(abi::object_of(context_)->driver->driver(), driver::AsyncEvent::kQpLastWqeReached,
              abi::object_of(qp)->qp, nullptr);
  ibv_async_event event;
  ASSERT_EQ(ibv_get_async_event(context_, &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_QP_LAST_WQE_REACHED);
  EXPECT_EQ(event.element.qp, qp);
  ibv_ack_async_event(&event);
}

}  // namespace
}  // namespace hostnic
