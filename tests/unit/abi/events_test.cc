// SPDX-License-Identifier: BSD-3-Clause
// Completion events and async events: delivery, acknowledgement, destruction meanwhile.
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <string>
#include <thread>

#include "tests/unit/abi/testing.h"
#include "verbs-shim/abi/context_table.h"
#include "verbs-shim/abi/objects.h"

namespace hostnic {
namespace {

using namespace std::chrono_literals;

bool readable(int fd) {
  pollfd wanted{fd, POLLIN, 0};
  return poll(&wanted, 1, 0) == 1;
}

// Runs a function in a thread of its own and returns once that sleeps.
std::thread asleep_in(auto function) {
  std::atomic<pid_t> id{0};
  std::thread thread([&id, function] {
    id = gettid();
    function();
  });
  std::string state;
  while (state != "S") {
    std::this_thread::sleep_for(100us);
    std::string word;
    std::ifstream stat("/proc/self/task/" + std::to_string(id.load()) + "/stat");
    while (stat >> word && !word.ends_with(")")) continue;
    stat >> state;
  }
  return thread;
}

class AbiCompletionEvents : public AbiTest {
 protected:
  void SetUp() override {
    AbiTest::SetUp();
    channel_ = ibv_create_comp_channel(context_);
    ASSERT_NE(channel_, nullptr);
    event_cq_ = ibv_create_cq(context_, 16, this, channel_, 0);
    ASSERT_NE(event_cq_, nullptr);
    ibv_qp_init_attr init = init_attr(event_cq_);
    qp_ = ibv_create_qp(pd_, &init);
    connect(qp_);
  }
  void post(unsigned int extra_flags = 0) {
    ibv_send_wr wr = send_wr(1);
    wr.send_flags |= extra_flags;
    ibv_send_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_send(qp_, &wr, &bad), 0);
  }
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* event_cq_ = nullptr;
  ibv_qp* qp_ = nullptr;
};

TEST_F(AbiCompletionEvents, OnePerArming) {
  post();
  EXPECT_FALSE(readable(channel_->fd)) << "not armed";
  ASSERT_EQ(ibv_req_notify_cq(event_cq_, 0), 0);
  post();
  post();
  ASSERT_TRUE(readable(channel_->fd));
  ibv_cq* cq = nullptr;
  void* cq_context = nullptr;
  ASSERT_EQ(ibv_get_cq_event(channel_, &cq, &cq_context), 0);
  EXPECT_EQ(cq, event_cq_);
  EXPECT_EQ(cq_context, this);
  EXPECT_FALSE(readable(channel_->fd));
  ibv_ack_cq_events(cq, 1);
}

TEST_F(AbiCompletionEvents, SolicitedOnly) {
  ibv_recv_wr recv{1, nullptr, nullptr, 0};
  ibv_recv_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_recv(qp_, &recv, &bad), 0);
  ASSERT_EQ(ibv_post_recv(qp_, &recv, &bad), 0);
  ASSERT_EQ(ibv_req_notify_cq(event_cq_, 1), 0);
  post();
  EXPECT_FALSE(readable(channel_->fd));
  post(IBV_SEND_SOLICITED);
  EXPECT_TRUE(readable(channel_->fd));
}

TEST_F(AbiCompletionEvents, NonblockingSaysEagain) {
  fcntl(channel_->fd, F_SETFL, O_NONBLOCK);
  ibv_cq* cq = nullptr;
  void* cq_context = nullptr;
  EXPECT_EQ(ibv_get_cq_event(channel_, &cq, &cq_context), -1);
  EXPECT_EQ(errno, EAGAIN);
}

TEST_F(AbiCompletionEvents, DestroyDropsWhatNobodyFetched) {
  ASSERT_EQ(ibv_req_notify_cq(event_cq_, 0), 0);
  post();
  ASSERT_TRUE(readable(channel_->fd));
  ASSERT_EQ(ibv_destroy_qp(qp_), 0);
  ASSERT_EQ(ibv_destroy_cq(event_cq_), 0);
  EXPECT_FALSE(readable(channel_->fd));
  EXPECT_EQ(ibv_destroy_comp_channel(channel_), 0);
}

TEST_F(AbiCompletionEvents, DestroyWaitsForAcknowledgement) {
  ASSERT_EQ(ibv_req_notify_cq(event_cq_, 0), 0);
  post();
  ibv_cq* cq = nullptr;
  void* cq_context = nullptr;
  ASSERT_EQ(ibv_get_cq_event(channel_, &cq, &cq_context), 0);
  ASSERT_EQ(ibv_destroy_qp(qp_), 0);
  std::atomic<bool> destroyed{false};
  std::thread destroyer([&] {
    EXPECT_EQ(ibv_destroy_cq(event_cq_), 0);
    destroyed = true;
  });
  std::this_thread::sleep_for(30ms);
  EXPECT_FALSE(destroyed);
  ibv_ack_cq_events(cq, 1);
  destroyer.join();
  EXPECT_TRUE(destroyed);
}

class AbiAsyncEvents : public AbiTest {
 protected:
  driver::Driver& driver() { return abi::object_of(context_)->driver->driver(); }
  void raise_on(ibv_qp* qp, driver::AsyncEvent event) {
    fake::raise(driver(), event, abi::object_of(qp)->qp, nullptr);
  }
};

TEST_F(AbiAsyncEvents, AboutQueuePairCompletionQueueAndDevice) {
  ibv_qp* qp = create_qp();
  raise_on(qp, driver::AsyncEvent::kQpAccessErr);
  fake::raise(driver(), driver::AsyncEvent::kCqErr, nullptr, abi::object_of(cq_)->cq.get());
  fake::raise(driver(), driver::AsyncEvent::kDeviceFatal, nullptr, nullptr);
  ASSERT_TRUE(readable(context_->async_fd));
  ibv_async_event event;
  ASSERT_EQ(ibv_get_async_event(context_, &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_QP_ACCESS_ERR);
  EXPECT_EQ(event.element.qp, qp);
  ibv_ack_async_event(&event);
  ASSERT_EQ(ibv_get_async_event(context_, &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_CQ_ERR);
  EXPECT_EQ(event.element.cq, cq_);
  ibv_ack_async_event(&event);
  ASSERT_EQ(ibv_get_async_event(context_, &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_DEVICE_FATAL);
  ibv_ack_async_event(&event);
  EXPECT_FALSE(readable(context_->async_fd));
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
  EXPECT_EQ(ibv_destroy_cq(cq_), 0);
}

TEST_F(AbiAsyncEvents, AboutThePort) {
  ibv_port_attr port{};
  ASSERT_EQ(ibv_query_port(context_, 1, &port), 0);
  EXPECT_EQ(port.state, IBV_PORT_ACTIVE);
  for (const bool up : {false, true}) {
    fake::behaviour().port_down = !up;
    fake::raise(driver(), up ? driver::AsyncEvent::kPortActive : driver::AsyncEvent::kPortErr,
                nullptr, nullptr);
    ibv_async_event event;
    ASSERT_EQ(ibv_get_async_event(context_, &event), 0);
    EXPECT_EQ(event.event_type, up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR);
    EXPECT_EQ(event.element.port_num, 1);
    ibv_ack_async_event(&event);
    ASSERT_EQ(ibv_query_port(context_, 1, &port), 0);
    EXPECT_EQ(port.state, up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN);
  }
}

TEST_F(AbiAsyncEvents, AboutTheGid) {
  fake::raise(driver(), driver::AsyncEvent::kGidChange, nullptr, nullptr);
  ibv_async_event event;
  ASSERT_EQ(ibv_get_async_event(context_, &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_GID_CHANGE);
  EXPECT_EQ(event.element.port_num, 1);
  ibv_ack_async_event(&event);
}

TEST_F(AbiAsyncEvents, TheActiveMtuIsWhatFitsThePortNow) {
  ibv_port_attr port{};
  ASSERT_EQ(ibv_query_port(context_, 1, &port), 0);
  const ibv_mtu whole = port.active_mtu;
  fake::behaviour().port_mtu_bytes = 512;
  ASSERT_EQ(ibv_query_port(context_, 1, &port), 0);
  EXPECT_EQ(port.active_mtu, IBV_MTU_512);
  EXPECT_NE(port.active_mtu, whole);
  EXPECT_EQ(port.max_mtu, IBV_MTU_4096);
}

TEST_F(AbiAsyncEvents, AnOverflowIsAboutTheQueueAndNotTheQueuePairThatMetIt) {
  ibv_qp* qp = create_qp();
  fake::raise(driver(), driver::AsyncEvent::kCqErr, abi::object_of(qp)->qp,
              abi::object_of(cq_)->cq.get());
  ASSERT_TRUE(readable(context_->async_fd));
  ibv_async_event event;
  ASSERT_EQ(ibv_get_async_event(context_, &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_CQ_ERR);
  EXPECT_EQ(event.element.cq, cq_);
  ibv_ack_async_event(&event);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
}

TEST_F(AbiAsyncEvents, DestroyDropsWhatNobodyFetched) {
  ibv_qp* qp = create_qp();
  raise_on(qp, driver::AsyncEvent::kCommEst);
  ASSERT_EQ(ibv_destroy_qp(qp), 0);
  EXPECT_FALSE(readable(context_->async_fd));
}

TEST_F(AbiAsyncEvents, DestroyWaitsForAcknowledgement) {
  ibv_qp* qp = create_qp();
  raise_on(qp, driver::AsyncEvent::kQpFatal);
  ibv_async_event event;
  ASSERT_EQ(ibv_get_async_event(context_, &event), 0);
  std::atomic<bool> destroyed{false};
  std::thread destroyer([&] {
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
    destroyed = true;
  });
  std::this_thread::sleep_for(30ms);
  EXPECT_FALSE(destroyed);
  EXPECT_EQ(ibv_destroy_qp(qp), ENOENT) << "it is being destroyed already";
  ibv_ack_async_event(&event);
  destroyer.join();
}

// A thread that is woken, here as the device fails, has yet to run when another one cleans up: from
// a kernel's channel it gets its error all the same.
TEST_F(AbiAsyncEvents, TheChannelMayGoAsItsReaderWakes) {
  for (int i = 0; i < 200; ++i) {
    ibv_comp_channel* channel = ibv_create_comp_channel(context_);
    ASSERT_NE(channel, nullptr);
    std::thread reader = asleep_in([channel] {
      ibv_cq* cq = nullptr;
      void* cq_context = nullptr;
      EXPECT_EQ(ibv_get_cq_event(channel, &cq, &cq_context), -1);
      EXPECT_TRUE(errno == EIO || errno == EBADF) << errno;
    });
    abi::close_channels(*abi::object_of(context_));
    EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
    reader.join();
  }
}

TEST_F(AbiAsyncEvents, TheDeviceMayBeClosedAsItsReaderWakes) {
  for (int i = 0; i < 200; ++i) {
    ibv_context* context = ibv_open_device(context_->device);
    ASSERT_NE(context, nullptr);
    std::thread reader = asleep_in([context] {
      ibv_async_event event;
      if (ibv_get_async_event(context, &event) == 0) {
        EXPECT_EQ(event.event_type, IBV_EVENT_PORT_ERR);
      } else {
        EXPECT_EQ(errno, EBADF);
      }
    });
    fake::raise(abi::object_of(context)->driver->driver(), driver::AsyncEvent::kPortErr, nullptr,
                nullptr);
    EXPECT_EQ(ibv_close_device(context), 0);
    reader.join();
  }
}

}  // namespace
}  // namespace hostnic
