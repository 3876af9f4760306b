// SPDX-License-Identifier: BSD-3-Clause
// Completion channels and asynchronous events.
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <thread>

#include "tests/conformance/bench.h"

namespace hostnic::conformance {
namespace {

// One descriptor, edge-triggered.
class Epoll {
 public:
  explicit Epoll(int fd) : epoll_(epoll_create1(EPOLL_CLOEXEC)) {
    epoll_event wanted{};
    wanted.events = EPOLLIN | EPOLLET;
    EXPECT_EQ(epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &wanted), 0);
  }
  ~Epoll() { close(epoll_); }
  Epoll(const Epoll&) = delete;
  Epoll& operator=(const Epoll&) = delete;
  // Whether there is an edge within that time.
  bool one(std::chrono::milliseconds patience) const {
    epoll_event event{};
    return epoll_wait(epoll_, &event, 1, static_cast<int>(patience.count())) == 1 &&
           (event.events & EPOLLIN) != 0;
  }

 private:
  int epoll_;
};

// Far's receives report to a completion queue with a channel.
class Channels : public Conformance {
 protected:
  void SetUp() override {
    Conformance::SetUp();
    if (HasFatalFailure()) return;
    connect();
    channel_ = ibv_create_comp_channel(far_host->context);
    ASSERT_NE(channel_, nullptr);
    cq_ = ibv_create_cq(far_host->context, 64, this, channel_, 0);
    ASSERT_NE(cq_, nullptr);
    // The same queue pair again, on the other completion queue.
    ASSERT_EQ(ibv_destroy_qp(far->qp), 0);
    ibv_qp_init_attr init{};
    init.send_cq = far->cq;
    init.recv_cq = cq_;
    init.qp_type = IBV_QPT_RC;
    init.cap = {16, 64, 1, 1, 0};
    far->qp = ibv_create_qp(far_host->pd, &init);
    ASSERT_NE(far->qp, nullptr);
    ASSERT_EQ(near->to_reset(), 0);
    for (Endpoint* one : {near.get(), far.get()}) {
      ASSERT_EQ(one->to_init(), 0);
      ASSERT_EQ(one->to_rtr(one == near.get() ? *far : *near), 0);
      ASSERT_EQ(one->to_rts(), 0);
    }
    for (uint64_t i = 0; i < 20; ++i) ASSERT_EQ(far->post_receive(i, 64), 0);
  }
  void TearDown() override {
    if (far != nullptr && far->qp != nullptr) {
      EXPECT_EQ(ibv_destroy_qp(far->qp), 0);
    }
    if (far != nullptr) far->qp = nullptr;
    if (cq_ != nullptr) {
      EXPECT_EQ(ibv_destroy_cq(cq_), 0);
    }
    if (channel_ != nullptr) {
      EXPECT_EQ(ibv_destroy_comp_channel(channel_), 0);
    }
    Conformance::TearDown();
  }
  void send(bool solicited = false) {
    ibv_sge sge = near_host->sge(8);
    ibv_send_wr wr = request(1, IBV_WR_SEND, &sge, *far_host);
    if (solicited) wr.send_flags |= IBV_SEND_SOLICITED;
    ASSERT_EQ(near->post(wr), 0);
    near->expect(1);
  }
  void poll_one() {
    ibv_wc wc{};
    while (ibv_poll_cq(cq_, 1, &wc) == 0) std::this_thread::yield();
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  }
  bool readable(int patience_ms) {
    pollfd wanted{channel_->fd, POLLIN, 0};
    return poll(&wanted, 1, patience_ms) == 1;
  }
  bool comes() { return readable(20'000); }
  bool stays_away() { return !readable(static_cast<int>(kQuiet.count())); }
  void take_event() {
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    ASSERT_EQ(ibv_get_cq_event(channel_, &cq, &context), 0);
    EXPECT_EQ(cq, cq_);
    EXPECT_EQ(context, this);
    ibv_ack_cq_events(cq, 1);
  }

  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* cq_ = nullptr;
};

TEST_F(Channels, NoEventWithoutArming) {
  send();
  EXPECT_TRUE(stays_away());
}

TEST_F(Channels, OneEventForEachArming) {
  ASSERT_EQ(ibv_req_notify_cq(cq_, 0), 0);
  send();
  ASSERT_TRUE(comes());
  take_event();
  send();
  EXPECT_TRUE(stays_away());
  ASSERT_EQ(ibv_req_notify_cq(cq_, 0), 0);
  send();
  ASSERT_TRUE(comes());
  take_event();
}

TEST_F(Channels, WhatWasPolledBeforeRaisesNothing) {
  send();
  poll_one();
  ASSERT_EQ(ibv_req_notify_cq(cq_, 0), 0);
  EXPECT_TRUE(stays_away());
}

// The manual leaves it open; mlx4 and mlx5 do it, and programs that arm last and then sleep need
// it.
TEST_F(Channels, ACompletionThatWaitsRaisesAnEventWhenTheQueueIsArmed) {
  send();
  send();
  poll_one();  // and the other one has come, too
  ASSERT_EQ(ibv_req_notify_cq(cq_, 0), 0);
  ASSERT_TRUE(comes());
  take_event();
  EXPECT_TRUE(stays_away()) << "one arming, one event";
  ASSERT_EQ(ibv_req_notify_cq(cq_, 0), 0);
  EXPECT_TRUE(stays_away()) << "it has been told: an adapter compares with what it last notified";
  poll_one();
  ASSERT_EQ(ibv_req_notify_cq(cq_, 0), 0);
  EXPECT_TRUE(stays_away());
}

TEST_F(Channels, ArmingTwiceRaisesOneEvent) {
  send();
  send();
  poll_one();
  for (int i = 0; i < 2; ++i) ASSERT_EQ(ibv_req_notify_cq(cq_, 0), 0);
  ASSERT_TRUE(comes());
  take_event();
  EXPECT_TRUE(stays_away());
}

TEST_F(Channels, SolicitedOnlyLooksForASolicitedOneAmongThoseThatWait) {
  send();
  send();
  poll_one();
  ASSERT_EQ(ibv_req_notify_cq(cq_, 1), 0);
  EXPECT_TRUE(stays_away()) << "what waits is not solicited";
  send(true);
  ASSERT_TRUE(comes());
  take_event();
  send(true);
  ASSERT_EQ(ibv_req_notify_cq(cq_, 1), 0);
  ASSERT_TRUE(comes()) << "the third that waits is, and was not told";
  take_event();
  for (int i = 0; i < 3; ++i) poll_one();
  ASSERT_EQ(ibv_req_notify_cq(cq_, 1), 0);
  EXPECT_TRUE(stays_away());
}

TEST_F(Channels, SolicitedOnlyWaitsForASolicitedOne) {
  ASSERT_EQ(ibv_req_notify_cq(cq_, 1), 0);
  send();
  EXPECT_TRUE(stays_away());
  send(true);
  ASSERT_TRUE(comes());
  take_event();
}

TEST_F(Channels, AnErrorIsSolicited) {
  ASSERT_EQ(ibv_req_notify_cq(cq_, 1), 0);
  ASSERT_EQ(far->to(IBV_QPS_ERR), 0);
  ASSERT_TRUE(comes());
  take_event();
}

// Programs spread their queues over the device's vectors and expect no difference.
TEST_F(Channels, EachCompletionVectorBringsEvents) {
  ASSERT_GT(far_host->context->num_comp_vectors, 1);
  for (int vector = 0; vector < far_host->context->num_comp_vectors; ++vector) {
    ibv_cq* cq = ibv_create_cq(far_host->context, 4, nullptr, channel_, vector);
    ASSERT_NE(cq, nullptr) << vector;
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq;
    init.qp_type = IBV_QPT_RC;
    init.cap = {1, 1, 1, 1, 0};
    ibv_qp* qp = ibv_create_qp(far_host->pd, &init);
    ASSERT_NE(qp, nullptr);
    ASSERT_EQ(ibv_req_notify_cq(cq, 0), 0);
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    ASSERT_EQ(ibv_modify_qp(qp, &attr, far->init_mask()), 0);
    ibv_recv_wr receive{};
    ibv_recv_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_recv(qp, &receive, &bad), 0);
    attr.qp_state = IBV_QPS_ERR;
    ASSERT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
    ASSERT_TRUE(comes());
    ibv_cq* told = nullptr;
    void* context = nullptr;
    ASSERT_EQ(ibv_get_cq_event(channel_, &told, &context), 0);
    EXPECT_EQ(told, cq);
    ibv_ack_cq_events(told, 1);
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
  }
  EXPECT_EQ(
      ibv_create_cq(far_host->context, 4, nullptr, channel_, far_host->context->num_comp_vectors),
      nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(Channels, NonblockingSaysEagain) {
  ASSERT_EQ(fcntl(channel_->fd, F_SETFL, O_NONBLOCK), 0);
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  errno = 0;
  EXPECT_EQ(ibv_get_cq_event(channel_, &cq, &context), -1);
  EXPECT_EQ(errno, EAGAIN);
}

// An edge for each event: a reader that empties the channel each time is told of the next one.
TEST_F(Channels, EdgeTriggered) {
  ASSERT_EQ(fcntl(channel_->fd, F_SETFL, O_NONBLOCK), 0);
  const Epoll edges(channel_->fd);
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(ibv_req_notify_cq(cq_, 0), 0);
    EXPECT_FALSE(edges.one(kQuiet)) << "nothing new";
    send();
    ASSERT_TRUE(edges.one(kPatience));
    EXPECT_FALSE(edges.one(kQuiet)) << "the same event is no second edge";
    take_event();
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    EXPECT_EQ(ibv_get_cq_event(channel_, &cq, &context), -1);
    EXPECT_EQ(errno, EAGAIN);
    poll_one();
  }
}

// A reader of which more events wait than it took is told when another one comes.
TEST_F(Channels, EdgeTriggeredWithEventsLeft) {
  const Epoll edges(channel_->fd);
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(ibv_req_notify_cq(cq_, 0), 0);
    send();
    ASSERT_TRUE(edges.one(kPatience));
    poll_one();
  }
  for (int i = 0; i < 3; ++i) take_event();
  EXPECT_TRUE(stays_away());
}

TEST_F(Channels, BlockingAgainAfterNonblocking) {
  ASSERT_EQ(fcntl(channel_->fd, F_SETFL, O_NONBLOCK), 0);
  ASSERT_EQ(fcntl(channel_->fd, F_SETFL, 0), 0);
  ASSERT_EQ(ibv_req_notify_cq(cq_, 0), 0);
  std::thread sender([this] {
    std::this_thread::sleep_for(kQuiet);
    send();
  });
  take_event();
  sender.join();
}

TEST_F(Channels, NobodyNeedsToPollForAnEvent) {
  ASSERT_EQ(ibv_req_notify_cq(cq_, 0), 0);
  ibv_sge sge = near_host->sge(8);
  ASSERT_EQ(near->post(request(1, IBV_WR_SEND, &sge, *far_host)), 0);
  ASSERT_TRUE(comes());
  take_event();
  near->expect(1);
}

// ---- asynchronous events

using AsyncEvents = Conformance;

TEST_F(AsyncEvents, CommEstForWhatArrivesInRtr) {
  create();
  for (Endpoint* one : {near.get(), far.get()}) {
    ASSERT_EQ(one->to_init(), 0);
    ASSERT_EQ(one->to_rtr(one == near.get() ? *far : *near), 0);
  }
  ASSERT_EQ(near->to_rts(), 0);
  ASSERT_EQ(far->post_receive(1, 8), 0);
  ibv_sge sge = near_host->sge(8);
  ASSERT_EQ(near->post(request(2, IBV_WR_SEND, &sge, *far_host)), 0);
  ibv_async_event event{};
  ASSERT_TRUE(far_host->wait_async(IBV_EVENT_COMM_EST, event));
  EXPECT_EQ(event.element.qp, far->qp);
  far->expect(1);
  near->expect(2);
}

TEST_F(AsyncEvents, SqDrainedOnRequest) {
  connect();
  ibv_sge sge = near_host->sge(100'000);
  for (uint64_t i = 0; i < 8; ++i)
    ASSERT_EQ(near->post(request(i, IBV_WR_RDMA_WRITE, &sge, *far_host)), 0);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_SQD;
  attr.en_sqd_async_notify = 1;
  ASSERT_EQ(ibv_modify_qp(near->qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
  ibv_async_event event{};
  ASSERT_TRUE(near_host->wait_async(IBV_EVENT_SQ_DRAINED, event));
  EXPECT_EQ(event.element.qp, near->qp);
  ASSERT_EQ(near->to(IBV_QPS_RTS), 0);
  for (uint64_t i = 0; i < 8; ++i) near->expect(i);
}

TEST_F(AsyncEvents, NoneWhenTheQueueIsDrainedUnasked) {
  connect();
  ASSERT_EQ(near->to(IBV_QPS_SQD), 0);
  ibv_async_event event{};
  EXPECT_FALSE(near_host->wait_async(IBV_EVENT_SQ_DRAINED, event, kQuiet));
}

TEST_F(AsyncEvents, TheRequesterGetsACompletionAndNoEvent) {
  connect();
  ibv_sge sge = near_host->sge(8);
  ibv_send_wr wr = request(1, IBV_WR_RDMA_WRITE, &sge, *far_host);
  set_remote(wr, far_host->address(), kBadKey);
  ASSERT_EQ(near->post(wr), 0);
  near->expect(1, IBV_WC_REM_ACCESS_ERR);
  ibv_async_event event{};
  EXPECT_TRUE(far_host->wait_async(IBV_EVENT_QP_ACCESS_ERR, event));
  EXPECT_FALSE(near_host->wait_async(IBV_EVENT_QP_ACCESS_ERR, event, kQuiet));
}

TEST_F(AsyncEvents, ModifyingToErrRaisesNone) {
  connect();
  ASSERT_EQ(near->to(IBV_QPS_ERR), 0);
  ibv_async_event event{};
  EXPECT_FALSE(near_host->wait_async(IBV_EVENT_QP_FATAL, event, kQuiet));
}

TEST_F(AsyncEvents, NonblockingSaysEagain) {
  ASSERT_EQ(fcntl(near_host->context->async_fd, F_SETFL, O_NONBLOCK), 0);
  ibv_async_event event{};
  errno = 0;
  EXPECT_EQ(ibv_get_async_event(near_host->context, &event), -1);
  EXPECT_EQ(errno, EAGAIN);
}

TEST_F(AsyncEvents, EdgeTriggered) {
  ASSERT_EQ(fcntl(near_host->context->async_fd, F_SETFL, O_NONBLOCK), 0);
  const Epoll edges(near_host->context->async_fd);
  connect();
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(edges.one(kQuiet));
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_SQD;
    attr.en_sqd_async_notify = 1;
    ibv_sge sge = near_host->sge(100'000);
    ASSERT_EQ(near->post(request(1, IBV_WR_RDMA_WRITE, &sge, *far_host)), 0);
    ASSERT_EQ(ibv_modify_qp(near->qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
    ASSERT_TRUE(edges.one(kPatience));
    ibv_async_event event{};
    ASSERT_EQ(ibv_get_async_event(near_host->context, &event), 0);
    EXPECT_EQ(event.event_type, IBV_EVENT_SQ_DRAINED);
    ibv_ack_async_event(&event);
    EXPECT_EQ(ibv_get_async_event(near_host->context, &event), -1);
    EXPECT_EQ(errno, EAGAIN);
    ASSERT_EQ(near->to(IBV_QPS_RTS), 0);
    near->expect(1);
  }
}

}  // namespace
}  // namespace hostnic::conformance
