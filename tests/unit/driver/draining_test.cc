// SPDX-License-Identifier: BSD-3-Clause
// The state SQD: requests that were begun are finished, the others wait, and the program is told
// when the first are done.
#include "tests/unit/driver/bench.h"

namespace hostnic::driver {
namespace {

class Draining : public DriverBench {
 protected:
  void SetUp() override {
    connect();
    driver_->set_async_handler(
        [](void* argument, AsyncEvent event, void*, Cq*) {
          if (event == AsyncEvent::kSqDrained) ++*static_cast<int*>(argument);
        },
        &drained_events_);
  }
  void drain(bool notify) {
    QpAttr attr;
    attr.state = QpState::kSqd;
    attr.en_sqd_async_notify = notify;
    ASSERT_EQ(driver_->modify_qp(qp_, attr, kQpState | kQpEnSqdAsyncNotify), 0);
  }
  bool draining() {
    QpAttr attr;
    QpCaps caps;
    driver_->query_qp(qp_, attr, caps);
    EXPECT_EQ(attr.state, QpState::kSqd);
    EXPECT_EQ(attr.cur_state, QpState::kSqd);
    return attr.sq_draining;
  }
  int post_write(uint32_t length_bytes) {
    const Sge sge{0, length_bytes, 1};
    SendRequest request = request_of(SendOp::kWrite, {&sge, 1});
    request.signalled = true;
    return post(request);
  }
  void take_sends() {
    for (const Chunk& chunk : nic_.sends()) next_psn_ += (chunk.d.length_bytes + mtu_ - 1) / mtu_;
  }

  int drained_events_ = 0;
};

TEST_P(Draining, LastsUntilWhatWasBegunIsComplete) {
  for (int i = 0; i < 3; ++i) ASSERT_EQ(post_write(100), 0);
  take_sends();
  drain(true);
  EXPECT_TRUE(draining());
  nic_.transmitted(next_psn_);
  nic_.acknowledge(Psn(next_psn_.value() - 1), kPeerWindow);
  progress();
  EXPECT_TRUE(draining()) << "one of three is outstanding";
  EXPECT_EQ(drained_events_, 0);
  acknowledge_all();
  EXPECT_FALSE(draining());
  EXPECT_EQ(drained_events_, 1);
}

TEST_P(Draining, AMessageThatWasBegunIsHandedOverToItsEnd) {
  ASSERT_EQ(post_write(3 * kInitialWindow * mtu_), 0);
  ASSERT_EQ(post_write(100), 0) << "this one is not begun";
  const Psn end = next_psn_ + 3 * kInitialWindow;
  drain(true);
  for (int turn = 0; turn < 50 && next_psn_ != end; ++turn) {
    EXPECT_TRUE(draining());
    EXPECT_EQ(drained_events_, 0) << "all that was handed over is acknowledged, not all there is";
    take_sends();
    acknowledge_all();
  }
  ASSERT_EQ(next_psn_, end);
  progress();
  EXPECT_FALSE(draining());
  EXPECT_EQ(drained_events_, 1);
  EXPECT_TRUE(nic_.sends().empty()) << "the second waits for RTS";
}

TEST_P(Draining, NothingToDrainIsSaidAtOnce) {
  drain(false);
  EXPECT_FALSE(draining());
  EXPECT_EQ(drained_events_, 0) << "nobody asked";
  QpAttr attr;
  attr.state = QpState::kRts;
  ASSERT_EQ(driver_->modify_qp(qp_, attr, kQpState), 0);
  drain(true);
  EXPECT_FALSE(draining());
  EXPECT_EQ(drained_events_, 1);
}

TEST_P(Draining, WhatIsPostedMeanwhileWaitsAndDrainsNothing) {
  drain(false);
  ASSERT_EQ(post_write(100), 0);
  progress();
  EXPECT_FALSE(draining());
  EXPECT_TRUE(nic_.sends().empty());
}

INSTANTIATE_TEST_SUITE_P(Mtu, Draining, testing::ValuesIn(kMtus));

}  // namespace
}  // namespace hostnic::driver
