// SPDX-License-Identifier: BSD-3-Clause
// Patience and RNR waits of requesters, on the send queue of a queue pair whose NIC does nothing.
#include "verbs-shim/driver/requester/patience.h"

#include "tests/unit/driver/bench.h"
#include "verbs-shim/driver/requester/rnr_wait.h"

namespace hostnic::driver {
namespace {

constexpr uint64_t kMs = 1'000'000;

class Waiting : public DriverBench {
 protected:
  void SetUp() override {
    connect();
    patience_.start(now_ns_);
    nic_runs();
  }
  SendQueue& queue() { return *qp_; }
  void nic_runs() { nic_.channel().header().nic_turn_ns.store(now_ns_); }
  // Time goes by in steps, and the NIC runs all the time; or not. What is waited for has left.
  void pass(uint64_t time_ns, uint64_t step_ns, bool nic = true) {
    for (uint64_t passed = 0; passed < time_ns; passed += step_ns) {
      now_ns_ += step_ns;
      if (nic) nic_runs();
      charge();
    }
  }
  void charge() { patience_.charge(queue(), now_ns_, oldest_, rto()); }
  uint64_t rto(uint64_t stretch = 1) { return patience_.rto_ns(queue(), rtt_, stretch); }

  Patience patience_;
  RttEstimator rtt_;
  std::optional<Psn> oldest_ = Psn(0xfffff0 - 1);  // it has left
};

TEST_P(Waiting, TheTimeoutDoublesUpToTheQueuePairs) {
  const uint64_t least = driver_->settings().min_rto_ns;
  EXPECT_EQ(rto(), least);
  patience_.note_timeout();
  EXPECT_EQ(rto(), 2 * least);
  for (int i = 0; i < 20; ++i) patience_.note_timeout();
  const uint64_t timeout = ack_timeout_ns(queue().attr.timeout);
  EXPECT_EQ(rto(), std::min(64 * least, timeout));
  EXPECT_EQ(rto(kTimeoutStretch), std::min(64 * least, kTimeoutStretch * timeout));
  patience_.end_backoff();
  EXPECT_EQ(rto(), least);
  for (int i = 0; i < 9; ++i) rtt_.sample(50 * kMs);
  EXPECT_GE(rto(), 50 * kMs);
  for (int i = 0; i < 9; ++i) rtt_.sample(500 * kMs);
  EXPECT_EQ(rto(), timeout) << "however long it was measured";
}

TEST_P(Waiting, SilenceEndsAConnectionThatHasRetried) {
  pass(3000 * kMs, 10 * kMs);
  EXPECT_FALSE(patience_.is_over(queue())) << "nothing has gone again";
  for (uint32_t i = 0; i < least_retries(queue().attr); ++i) {
    EXPECT_FALSE(patience_.is_over(queue()));
    patience_.note_timeout();
  }
  EXPECT_TRUE(patience_.is_over(queue()));
  EXPECT_LE(patience_.over_ns(queue()), now_ns_);
  patience_.note_progress(now_ns_);
  EXPECT_FALSE(patience_.is_over(queue()));
  EXPECT_EQ(patience_.silence_ns(), 0u);
  EXPECT_EQ(patience_.over_ns(queue()), now_ns_ + silence_limit_ns(queue().attr, 1));
}

TEST_P(Waiting, AProgramThatWasStoppedFindsItsConnections) {
  pass(3600'000 * kMs, 3600'000 * kMs);
  EXPECT_LE(patience_.silence_ns(), ack_timeout_ns(queue().attr.timeout))
      << "one timeout at a time";
}

TEST_P(Waiting, ANicThatDoesNotRunIsNoSilence) {
  nic_.channel().header().nic_turn_ns.store(now_ns_ - 1);
  pass(1000 * kMs, 10 * kMs, /*nic=*/false);
  EXPECT_EQ(patience_.silence_ns(), 0u);
  pass(2000 * kMs, 10 * kMs, /*nic=*/false);
  EXPECT_GT(patience_.silence_ns(), 0u) << "but not for ever";
}

TEST_P(Waiting, WhatHasNotLeftIsNotWaitedFor) {
  oldest_ = next_psn_ + 5;
  pass(3000 * kMs, 10 * kMs);
  EXPECT_EQ(patience_.silence_ns(), 0u);
  EXPECT_EQ(patience_.quiet_since_ns(), now_ns_);
  oldest_ = std::nullopt;
  pass(30 * kMs, 10 * kMs);
  EXPECT_EQ(patience_.silence_ns(), 30 * kMs) << "answers are";
}

TEST_P(Waiting, AClosedMemoryGateIsNoSilence) {
  nic_.channel().header().memory_gate.closed.store(1);
  pass(3000 * kMs, 10 * kMs);
  EXPECT_EQ(patience_.silence_ns(), 0u);
  nic_.channel().header().memory_gate.closed.store(0);
}

TEST_P(Waiting, APacketThatIsPutOffKeepsItsBackoff) {
  patience_.note_timeout();
  pass(50 * kMs, 10 * kMs);
  patience_.note_put_off();
  EXPECT_EQ(patience_.silence_ns(), 0u);
  EXPECT_EQ(patience_.retries(), 0u);
  EXPECT_EQ(patience_.backoff(), 1u);
}

TEST_P(Waiting, AReceiverThatIsNotReadyIsAskedAsOftenAsRnrRetrySays) {
  queue().attr.rnr_retry = 2;
  RnrWait rnr;
  EXPECT_FALSE(rnr.any());
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(rnr.begin(queue(), 1, now_ns_));
    EXPECT_TRUE(rnr.waiting());
    EXPECT_EQ(rnr.until_ns(), now_ns_ + rnr_timer_ns(1));
    rnr.end(/*probe=*/true);
    EXPECT_TRUE(rnr.probing());
    EXPECT_TRUE(rnr.any());
  }
  EXPECT_FALSE(rnr.begin(queue(), 1, now_ns_));
  rnr.forget();
  EXPECT_FALSE(rnr.any());
  EXPECT_TRUE(rnr.begin(queue(), 1, now_ns_)) << "the next request begins anew";
  queue().attr.rnr_retry = kInfiniteRnrRetry;
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(rnr.begin(queue(), 1, now_ns_));
}

// A clock that passes a hundred times as fast.
class WaitingFast : public Waiting {
 protected:
  static constexpr uint32_t kTimescale = 100;
  void SetUp() override {
    connect(with_timescale({}, kTimescale));
    patience_.start(now_ns_);
    nic_runs();
  }
};

TEST_P(WaitingFast, TheTimeoutsAreShorter) {
  const uint64_t timeout = ack_timeout_ns(queue().attr.timeout) / kTimescale;
  EXPECT_EQ(rto(), 200'000u) << "not as short as a wait for a processor";
  for (int i = 0; i < 20; ++i) patience_.note_timeout();
  EXPECT_EQ(rto(), timeout);
  queue().attr.timeout = 20;
  for (int i = 0; i < 9; ++i) rtt_.sample(500 * kMs);
  EXPECT_EQ(rto(), 1000 * kMs / kTimescale);
}

TEST_P(WaitingFast, SilenceEndsAConnectionSooner) {
  queue().attr.timeout = 20;
  constexpr uint64_t kPromisedNs = 8 * (uint64_t{4096} << 20);
  const uint64_t limit = (kPromisedNs + kPromisedNs / 4) / kTimescale;
  EXPECT_LT(limit, 500 * kMs);
  EXPECT_EQ(patience_.over_ns(queue()), now_ns_ + limit);
  for (uint32_t i = 0; i < least_retries(queue().attr); ++i) patience_.note_timeout();
  pass(limit - 20 * kMs, 10 * kMs);
  EXPECT_FALSE(patience_.is_over(queue()));
  pass(30 * kMs, 10 * kMs);
  EXPECT_TRUE(patience_.is_over(queue()));
  queue().attr.timeout = 14;
  EXPECT_EQ(silence_limit_ns(queue().attr, kTimescale), 64 * kMs) << "the least there is";
  queue().attr.timeout = 0;
  EXPECT_EQ(silence_limit_ns(queue().attr, kTimescale), UINT64_MAX) << "never";
}

TEST_P(WaitingFast, AReceiverThatIsNotReadyIsAskedSooner) {
  RnrWait rnr;
  queue().attr.rnr_retry = 1;
  ASSERT_TRUE(rnr.begin(queue(), 0, now_ns_));
  EXPECT_EQ(rnr.until_ns(), now_ns_ + rnr_timer_ns(0) / kTimescale);
}

INSTANTIATE_TEST_SUITE_P(Patience, WaitingFast, testing::Values(1024u));
INSTANTIATE_TEST_SUITE_P(Patience, Waiting, testing::Values(1024u));

}  // namespace
}  // namespace hostnic::driver
