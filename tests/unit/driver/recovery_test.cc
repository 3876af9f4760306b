// SPDX-License-Identifier: BSD-3-Clause
// One queue pair's answers to what its NIC reports: resends, limits, failures, completions, on a
// NIC that only takes descriptors apart.
#include <numeric>
#include <optional>

#include "tests/unit/driver/connected_qp.h"
#include "verbs-shim/driver/requester/hostnic.h"

namespace hostnic::driver {
namespace {

class Recovery : public ConnectedQp {
 protected:
  Recovery()
      : ConnectedQp({.on_event = [](void* self) {
          static_cast<Recovery*>(static_cast<ConnectedQp*>(self))->on_event();
        }}) {}

  int post(SendOp op, uint64_t wr_id, uint32_t packets = 1) {
    return post_request(op, wr_id, packets);
  }
  // What the driver hands over is transmitted at once.
  std::vector<Chunk> handed_over() {
    std::vector<Chunk> chunks = nic_.sends();
    for (const Chunk& chunk : chunks) {
      next_ = Psn(chunk.d.psn) +
              (chunk.d.op >= SendOp::kRead ? 1 : (chunk.d.length_bytes + kMtu - 1) / kMtu);
      nic_.transmitted(next_);
    }
    return chunks;
  }
  // An ACK that changes the status as `change` says.
  template <class Change>
  void report(Psn base, Change&& change) {
    change(nic_.qp_status());
    nic_.acknowledge(base, 1024);
    progress();
  }
  void on_event() {
    if (acknowledged_by_event_) nic_.acknowledge(*acknowledged_by_event_, 1024);
  }

  Psn next_{kFirstPsn};
  std::optional<Psn> acknowledged_by_event_;
};

// Rule 20: the attempt tells the receiver's echo which transmission it answers. It is on the wire
// in two bits; 0 is the first transmission and never comes again.
TEST_F(Recovery, EachResendHasTheNextAttemptNumber) {
  PsnBits received;
  uint32_t sent = 1;
  ASSERT_EQ(post(SendOp::kWrite, 0), 0);
  for (const uint32_t attempt : {1, 2, 3, 1, 2}) {
    // More than enough that was transmitted later arrives, the front does not.
    ASSERT_EQ(post(SendOp::kWrite, attempt, 20), 0);
    for (const Chunk& chunk : handed_over()) EXPECT_EQ(chunk.d.attempt, 0);
    for (const uint32_t end = sent + 20; sent < end; ++sent) received.set(at(sent));
    nic_.acknowledge(at(0), 1024, Psn(0), received, sent);
    progress();
    const auto resent = nic_.urgent();
    ASSERT_EQ(resent.size(), 1u);
    EXPECT_EQ(resent[0].d.psn, at(0).value());
    EXPECT_EQ(resent[0].d.length_bytes, kMtu);
    EXPECT_NE(resent[0].d.flags & kSendRetransmit, 0);
    EXPECT_EQ(resent[0].d.attempt, attempt_with(static_cast<uint8_t>(attempt), RepeatCause::gap));
  }
}

// Rule 14: the credit is a serial maximum.
TEST_F(Recovery, CreditIsNeverLowered) {
  report(at(0), [](QpStatus& status) {
    status.has_credit = 1;
    status.recv_sn_limit = 5;
  });
  report(at(0), [](QpStatus& status) { status.recv_sn_limit = 3; });
  for (uint64_t i = 0; i < 8; ++i) ASSERT_EQ(post(SendOp::kSend, i), 0);
  EXPECT_EQ(handed_over().size(), 5u);
}

// Rule 14: what has no credit waits, but for the front one, which asks.
TEST_F(Recovery, WithoutCreditTheFrontMessageGoesAlone) {
  report(at(0), [](QpStatus& status) {
    status.has_credit = 1;
    status.recv_sn_limit = 0;
  });
  for (uint64_t i = 0; i < 4; ++i) ASSERT_EQ(post(SendOp::kSend, i), 0);
  EXPECT_EQ(handed_over().size(), 1u);
  report(at(0), [](QpStatus& status) { status.recv_sn_limit = 2; });
  EXPECT_EQ(handed_over().size(), 1u);
}

// Rule 2: reads_outstanding is bounded by what the peer can keep.
TEST_F(Recovery, NoMoreReadsThanMaxRdAtomic) {
  for (uint64_t i = 0; i < 5; ++i)
    ASSERT_EQ(post(i % 2 == 0 ? SendOp::kRead : SendOp::kFetchAdd, i), 0);
  EXPECT_EQ(handed_over().size(), 2u);
  nic_.acknowledge(next_, 1024, Psn(1));
  progress();
  EXPECT_EQ(handed_over().size(), 1u) << "one was answered";
  nic_.acknowledge(next_, 1024, Psn(1));
  progress();
  EXPECT_TRUE(handed_over().empty()) << "executed is not answered";
}

TEST_F(Recovery, AFencedRequestWaitsForReads) {
  ASSERT_EQ(post(SendOp::kRead, 1), 0);
  const Sge sge{0x10000, kMtu, 1};
  SendRequest request;
  request.op = SendOp::kWrite;
  request.fence = true;
  request.sges = {&sge, 1};
  ASSERT_EQ(driver_->post_send(qp_, request, now_ns_), 0);
  EXPECT_EQ(handed_over().size(), 1u);
  nic_.acknowledge(next_, 1024, Psn(0));
  progress();
  EXPECT_TRUE(handed_over().empty()) << "executed is not answered";
  nic_.acknowledge(next_, 1024, Psn(1));
  progress();
  EXPECT_EQ(handed_over().size(), 1u);
}

// Rule 18: what may change the answer of a READ, or its meaning, waits for it; the rest does not.
TEST_F(Recovery, WhatMayChangeAnAnswerWaitsForIt) {
  constexpr uint64_t kVa = 0x7000'0000'0000;
  constexpr uint32_t kKey = 0xabc123;
  struct Case {
    SendOp first, second;
    uint64_t va;
    uint32_t bytes, rkey;
    bool waits;
  };
  constexpr Case kCases[] = {
      {SendOp::kRead, SendOp::kWrite, kVa - 8, 8, kKey, false},
      {SendOp::kRead, SendOp::kWrite, kVa + 8, 8, kKey, false},
      {SendOp::kRead, SendOp::kWrite, kVa - 7, 8, kKey, true},
      {SendOp::kRead, SendOp::kWrite, kVa + 7, 8, kKey, true},
      {SendOp::kRead, SendOp::kWrite, kVa - 100, 300, kKey, true},
      {SendOp::kRead, SendOp::kWrite, kVa + 64, 8, kKey + 1, true},
      {SendOp::kRead, SendOp::kWrite, kVa, 0, kKey, false},
      {SendOp::kRead, SendOp::kWriteImm, kVa + 64, 8, kKey, true},
      {SendOp::kRead, SendOp::kSend, 0, 8, 0, true},
      {SendOp::kRead, SendOp::kSendInv, 0, 8, 0, true},
      {SendOp::kRead, SendOp::kFetchAdd, kVa, 8, kKey, true},
      {SendOp::kRead, SendOp::kFetchAdd, kVa + 8, 8, kKey, false},
      {SendOp::kRead, SendOp::kRead, kVa, 8, kKey, false},
      {SendOp::kFetchAdd, SendOp::kWrite, kVa, 8, kKey, true},
      {SendOp::kFetchAdd, SendOp::kWrite, kVa + 8, 8, kKey, false},
      {SendOp::kFetchAdd, SendOp::kCompareSwap, kVa, 8, kKey, false},
      {SendOp::kFetchAdd, SendOp::kRead, kVa, 8, kKey, false},
  };
  uint32_t psns = 0, answers = 0;
  for (const Case& c : kCases) {
    SCOPED_TRACE(testing::Message() << "case " << &c - kCases);
    const auto post_at = [&](SendOp op, uint64_t va, uint32_t bytes, uint32_t rkey) {
      const Sge sge{0x10000, bytes, 1};
      SendRequest request;
      request.op = op;
      request.sges = {&sge, 1};
      request.remote_va = va;
      request.rkey = rkey;
      ASSERT_EQ(driver_->post_send(qp_, request, now_ns_), 0);
    };
    post_at(c.first, kVa, 8, kKey);
    post_at(c.second, c.va, c.bytes, c.rkey);
    EXPECT_EQ(handed_over().size(), c.waits ? 1u : 2u);
    psns += 2;
    // The first is answered, then all.
    nic_.acknowledge(at(psns - 1), 1024, Psn(answers));
    progress();
    EXPECT_EQ(handed_over().size(), 0u) << "executed is not answered";
    nic_.acknowledge(at(psns - 1), 1024, Psn(++answers));
    progress();
    EXPECT_EQ(handed_over().size(), c.waits ? 1u : 0u);
    if (c.second >= SendOp::kRead && c.second <= SendOp::kFetchAdd) ++answers;
    nic_.acknowledge(at(psns), 1024, Psn(answers));
    progress();
    ASSERT_EQ(completions().size(), 2u);
  }
}

// Rule 28: the failed request and what follows it are not issued, also while earlier ones are still
// on their way.
TEST_F(Recovery, NothingIsIssuedBehindAFailure) {
  ASSERT_EQ(post(SendOp::kWrite, 1), 0);
  ASSERT_EQ(post(SendOp::kWrite, 2), 0);
  EXPECT_EQ(handed_over().size(), 2u);
  report(at(0), [](QpStatus& status) {
    status.local_error = static_cast<uint32_t>(LocalError::kProtection);
    status.local_error_psn = at(1).value();
  });
  ASSERT_EQ(post(SendOp::kWrite, 3), 0);
  progress();
  EXPECT_TRUE(handed_over().empty());
  EXPECT_TRUE(completions().empty()) << "the first one may still succeed";
  nic_.acknowledge(at(1), 1024);
  progress();
  progress();
  const auto done = completions();
  ASSERT_EQ(done.size(), 3u);
  constexpr WcStatus kExpected[] = {WcStatus::kSuccess, WcStatus::kLocProtErr,
                                    WcStatus::kWrFlushErr};
  for (uint64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(done[i].wr_id, i + 1);
    EXPECT_EQ(done[i].status, kExpected[i]);
  }
}

// Rule 28: the peer refuses the first packet of a request of which only the start is issued, and
// acknowledges all before it with the same words.
TEST_F(Recovery, ANakOfAPartlyIssuedRequestIsNotOfAnEarlierOne) {
  ASSERT_EQ(post(SendOp::kWrite, 1), 0);
  ASSERT_EQ(post(SendOp::kSend, 2, 4 * kInitialWindow), 0);
  EXPECT_FALSE(handed_over().empty());
  ASSERT_EQ(next_, at(kInitialWindow)) << "the rest waits";
  report(at(1), [](QpStatus& status) {
    constexpr uint32_t kFatal = 3, kInvalidRequest = 1;
    status.nak = make_nak(kFatal, kInvalidRequest);
    status.nak_psn = at(1).value();
    ++status.nak_count;
  });
  const auto done = completions();
  ASSERT_EQ(done.size(), 2u);
  EXPECT_EQ(done[0].wr_id, 1u);
  EXPECT_EQ(done[0].status, WcStatus::kSuccess);
  EXPECT_EQ(done[1].wr_id, 2u);
  EXPECT_EQ(done[1].status, WcStatus::kRemInvReqErr);
}

// Rule 21: the NIC reports while the driver is reading the status. Cleared before it reads, the
// dirty flag lets the NIC make a new report; cleared after, what it wrote meanwhile would stay
// unseen.
TEST_F(Recovery, AChangeWhileTheStatusIsReadMakesANewReport) {
  ASSERT_EQ(post(SendOp::kWrite, 1), 0);
  ASSERT_EQ(post(SendOp::kWrite, 2), 0);
  EXPECT_EQ(handed_over().size(), 2u);
  // The event of the first completion comes in the middle of that.
  cq_->arm(Arm::kAny);
  acknowledged_by_event_ = at(2);
  nic_.acknowledge(at(1), 1024);
  progress();
  EXPECT_EQ(completions().size(), 1u);
  EXPECT_TRUE(driver_->reports_waiting());
  progress();
  EXPECT_EQ(completions().size(), 1u);
}

// Rules 24, 25, 26: nothing is asked for, repeated or failed while the front has not left the NIC.
TEST_F(Recovery, NoTimerRunsForWhatTheNicHasNotTransmitted) {
  ASSERT_EQ(post(SendOp::kWrite, 1), 0);
  EXPECT_EQ(nic_.sends().size(), 1u);  // taken, not transmitted
  for (int i = 0; i < 200; ++i) {
    nic_.channel().header().nic_turn_ns.store(now_ns_ + 10'000'000);
    progress(10'000'000);
    ASSERT_TRUE(nic_.urgent().empty()) << i;
  }
  EXPECT_TRUE(completions().empty());
  EXPECT_EQ(driver_->counters().timeouts, 0u);
}

// Rule 15. The network had another copy of what the peer refused, and this one found a receive.
TEST_F(Recovery, AnAcknowledgementOfWhatWasRefusedEndsTheWait) {
  for (const bool last : {true, false}) {
    const Psn front = next_;
    ASSERT_EQ(post(SendOp::kSend, 1), 0);
    ASSERT_EQ(post(SendOp::kWrite, 2), 0);
    ASSERT_EQ(handed_over().size(), 2u);
    report(front, [&](QpStatus& status) {
      constexpr uint32_t kRnr = 1, kOneMs = 14;
      status.nak = make_nak(kRnr, kOneMs);
      status.nak_psn = front.value();
      status.nak_sn = 0;
      ++status.nak_count;
    });
    ASSERT_EQ(post(SendOp::kWrite, 3), 0);
    ASSERT_TRUE(handed_over().empty()) << "nothing goes while the timer runs";
    report(front + (last ? 2 : 1), [](QpStatus&) {});
    EXPECT_EQ(completions().size(), last ? 2u : 1u);
    EXPECT_EQ(handed_over().size(), 1u) << "what has waited goes";
    progress(2'000'000);  // the timer would be over
    ASSERT_EQ(post(SendOp::kWrite, 4), 0);
    EXPECT_EQ(handed_over().size(), 1u);
    nic_.acknowledge(next_, 1024);
    progress();
    EXPECT_EQ(completions().size(), last ? 2u : 3u);
    nic_.urgent();
  }
}

// Two READs of 16 answers each, of which the second's request is lost. All answers to the first but
// its fourth arrive, and that is pulled again.
class LostAnswers : public Recovery {
 protected:
  static constexpr uint64_t kRttNs = 10'000;

  LostAnswers() {
    for (uint64_t i = 0; i < 2; ++i) EXPECT_EQ(post(SendOp::kRead, i, 16), 0);
    EXPECT_EQ(handed_over().size(), 2u);
    QpStatus& status = nic_.qp_status();
    status.rtt_ns = kRttNs;
    status.rtt_count = 1;
    for (uint32_t psn = 4; psn < 16; ++psn) status.response_bitmap[0] |= uint64_t{1} << psn;
    status.responses_ahead = 12;
    nic_.acknowledge(at(1), 1024, Psn(3));
    progress(kRttNs);
    EXPECT_EQ(pulled(), std::vector<uint32_t>{3});
  }
  // The PSNs of the answers that are pulled again.
  std::vector<uint32_t> pulled() {
    std::vector<uint32_t> psns;
    for (const Chunk& chunk : nic_.urgent()) {
      EXPECT_EQ(chunk.d.op, SendOp::kRead);
      for (uint32_t i = 0; i < chunk.d.length_bytes / kMtu; ++i)
        psns.push_back(chunk.d.first_response_psn + i);
    }
    return psns;
  }
};

// READs execute in order, and pulls of those that have executed overtake a lost request: that
// answers to it are not there says nothing (rule 24).
TEST_F(LostAnswers, ThoseThatWaitForALostRequestAreNotLost) {
  progress(2 * kRttNs);
  QpStatus& status = nic_.qp_status();
  status.response_bitmap[0] = 0;
  status.responses_ahead = 0;
  nic_.acknowledge(at(1), 1024, Psn(16));
  progress(2 * kRttNs);
  EXPECT_TRUE(pulled().empty());
  // One of them has come: the others should have, too.
  status.response_bitmap[0] = uint64_t{1} << 31;
  status.responses_ahead = 1;
  nic_.acknowledge(at(1), 1024, Psn(16));
  progress(2 * kRttNs);
  std::vector<uint32_t> missing(15);
  std::iota(missing.begin(), missing.end(), 16);
  EXPECT_EQ(pulled(), missing);
}

// An answer that is pulled again and lost again may be the last that is on its way: nothing behind
// it tells, so it is probed soon, and more than once.
TEST_F(LostAnswers, ThoseThatWerePulledAgainAreProbedSoon) {
  uint64_t waited_ns = 0;
  const auto wait_for_probe = [&] {
    const uint64_t before = driver_->counters().probes;
    for (waited_ns = 0; driver_->counters().probes == before && waited_ns < 10'000'000;
         waited_ns += 1000) {
      nic_.channel().header().nic_turn_ns.store(now_ns_ + 1000);
      progress();
    }
  };
  uint64_t last_ns = 0;
  for (uint32_t probe = 0; probe < kMostRepullProbes; ++probe) {
    wait_for_probe();
    EXPECT_GT(waited_ns, std::max(last_ns, 2 * kRttNs));
    EXPECT_LT(waited_ns, (DriverSettings{}.min_probe_ns / 4) << probe);
    EXPECT_EQ(std::ranges::count(pulled(), 3u), 1);
    last_ns = waited_ns;
  }
  EXPECT_EQ(driver_->counters().timeouts, 0u);
  wait_for_probe();
  EXPECT_EQ(driver_->counters().probes, kMostRepullProbes) << "then a timeout's turn comes";
  EXPECT_GT(driver_->counters().timeouts, 0u);
}

}  // namespace
}  // namespace hostnic::driver
