// SPDX-License-Identifier: BSD-3-Clause
// The requester of the standard's RC: numbers of READs, what goes again after a NAK, an RNR NAK or
// silence, and when requests fail; on a NIC that only takes descriptors apart.
#include "protocol/wire/aeth.h"
#include "tests/unit/driver/connected_qp.h"

namespace hostnic::driver {
namespace {

constexpr uint32_t kRnrNak = make_nak(static_cast<uint32_t>(wire::AckKind::kRnrNak), 1);

constexpr uint32_t nak_of(wire::NakCode code) {
  return make_nak(static_cast<uint32_t>(wire::AckKind::kNak), static_cast<uint32_t>(code));
}

class RoceQp : public ConnectedQp {
 protected:
  RoceQp() : ConnectedQp({.spoken = Transport::kRoce, .rnr_retry = 2}) {}

  void post(SendOp op, uint64_t wr_id, uint32_t packets = 1) {
    EXPECT_EQ(post_request(op, wr_id, packets), 0);
  }
  // What has been handed over, which leaves at once: first PSN and number of PSNs of each piece.
  struct Piece {
    Psn psn;
    uint32_t psns;
    bool again;
    bool operator==(const Piece&) const = default;
  };
  std::vector<Piece> handed_over() {
    std::vector<Piece> pieces;
    for (RingEnd* const ring : {&nic_.channel().urgent, &nic_.channel().sends}) {
      for (const Chunk& chunk : nic_.take(*ring)) {
        const uint32_t psns = is_atomic(chunk.d.op) ? 1 : (chunk.d.length_bytes + kMtu - 1) / kMtu;
        pieces.push_back({Psn(chunk.d.psn), psns, (chunk.d.flags & kSendRetransmit) != 0});
        if (before(left_, pieces.back().psn + psns)) left_ = pieces.back().psn + psns;
      }
    }
    nic_.transmitted(left_);
    return pieces;
  }
  // Time goes by while the NIC runs.
  void progress(uint64_t later_ns = 1000) {
    nic_.channel().header().nic_turn_ns.store(now_ns_ + later_ns);
    ConnectedQp::progress(later_ns);
  }
  void acknowledge(Psn una) {
    nic_.acknowledge(una, 1024);
    progress();
  }
  void refuse(Psn psn, uint32_t nak) {
    QpStatus& status = nic_.qp_status();
    status.nak = nak;
    status.nak_psn = status.nak_sn = psn.value();
    ++status.nak_count;
    acknowledge(psn);
  }
  // The test takes the completions of a connection that has ended, flushed ones included.
  std::vector<Completion> last_completions() {
    std::vector<Completion> all = completions();
    for (int turn = 0; turn < 4; ++turn) {
      progress();
      for (const Completion& completion : completions()) all.push_back(completion);
    }
    return all;
  }
  uint64_t until_deadline_ns() { return driver_->next_deadline_ns() - now_ns_; }

  Psn left_ = Psn(kFirstPsn);
};

TEST_F(RoceQp, AReadTakesAsManyNumbersAsItHasAnswers) {
  post(SendOp::kRead, 1, 5);
  post(SendOp::kWrite, 2, 2);
  EXPECT_EQ(handed_over(), (std::vector<Piece>{{at(0), 5, false}, {at(5), 2, false}}));
  acknowledge(at(4));
  EXPECT_TRUE(completions().empty()) << "an answer is missing";
  acknowledge(at(7));
  const auto done = completions();
  ASSERT_EQ(done.size(), 2u);
  EXPECT_EQ(done[1].wr_id, 2u);
}

TEST_F(RoceQp, NoMoreReadsAreOutstandingThanTheConnectionSays) {
  for (uint64_t i = 0; i < 3; ++i) post(SendOp::kFetchAdd, i);
  EXPECT_EQ(handed_over().size(), 2u);
  acknowledge(at(1));
  EXPECT_EQ(handed_over(), (std::vector<Piece>{{at(2), 1, false}}));
}

TEST_F(RoceQp, AReadIsAskedForAgainFromTheAnswerThatIsMissing) {
  post(SendOp::kRead, 1, 8);
  handed_over();
  refuse(at(3), nak_of(wire::NakCode::kPsnSequence));
  EXPECT_EQ(handed_over(), (std::vector<Piece>{{at(3), 5, true}}));
  acknowledge(at(8));
  EXPECT_EQ(completions().size(), 1u);
}

TEST_F(RoceQp, AMissingPacketGoesAloneWhileThePeerMayHoldTheRest) {
  post(SendOp::kWrite, 1, 8);
  handed_over();
  refuse(at(2), nak_of(wire::NakCode::kPsnSequence));
  EXPECT_EQ(handed_over(), (std::vector<Piece>{{at(2), 1, true}}));
  acknowledge(at(8));
  EXPECT_EQ(completions().size(), 1u);
  EXPECT_TRUE(handed_over().empty());
}

TEST_F(RoceQp, APeerThatIsNotReadyIsLeftAloneAndThenSentEverything) {
  post(SendOp::kSend, 1, 2);
  post(SendOp::kSend, 2);
  handed_over();
  for (uint32_t retry = 0; retry < 2; ++retry) {
    refuse(at(0), kRnrNak);
    EXPECT_TRUE(handed_over().empty());
    const uint64_t wait_ns = rnr_timer_ns(1);
    progress(wait_ns / 2);
    EXPECT_TRUE(handed_over().empty());
    progress(wait_ns);
    EXPECT_EQ(handed_over(), (std::vector<Piece>{{at(0), 2, true}, {at(2), 1, true}})) << retry;
  }
  refuse(at(0), kRnrNak);
  const auto done = last_completions();
  ASSERT_EQ(done.size(), 2u);
  EXPECT_EQ(done[0].status, WcStatus::kRnrRetryExcErr);
  EXPECT_EQ(done[1].status, WcStatus::kWrFlushErr);
}

TEST_F(RoceQp, AnAcknowledgementEndsAnRnrWaitAndItsCount) {
  post(SendOp::kSend, 1);
  post(SendOp::kSend, 2);
  handed_over();
  for (uint32_t i = 0; i < 2; ++i) {
    refuse(at(0), kRnrNak);
    progress(2 * rnr_timer_ns(1));
    handed_over();
  }
  acknowledge(at(1));
  EXPECT_EQ(completions().size(), 1u);
  refuse(at(1), kRnrNak);
  EXPECT_TRUE(completions().empty()) << "it is the next request's first";
}

TEST_F(RoceQp, SilenceRepeatsEverythingAndInTheEndFails) {
  post(SendOp::kWrite, 1, 3);
  handed_over();
  uint64_t timeouts = 0, waited_ns = 0, last_ns = 0;
  while (completions().empty() && waited_ns < 100'000'000'000) {
    const uint64_t step_ns = until_deadline_ns() + 1000;
    waited_ns += step_ns;
    progress(step_ns);
    if (handed_over() != std::vector<Piece>{{at(0), 3, true}}) continue;
    ++timeouts;
    if (timeouts > 1 && timeouts < 4) {
      EXPECT_GT(step_ns, last_ns) << "each takes longer";
    }
    last_ns = step_ns;
  }
  EXPECT_EQ(qp_->state, QpState::kErr);
  EXPECT_GE(timeouts, 4u);
  QpAttr attr;
  attr.timeout = 14;
  attr.retry_cnt = 7;
  const uint64_t promised = 8 * ack_timeout_ns(attr.timeout);
  EXPECT_GE(waited_ns, promised);
  EXPECT_LE(waited_ns, 5 * promised);
}

TEST_F(RoceQp, ARefusalFailsTheRequestThatItNames) {
  post(SendOp::kWrite, 1);
  post(SendOp::kRead, 2, 2);
  post(SendOp::kWrite, 3);
  handed_over();
  refuse(at(1), nak_of(wire::NakCode::kRemoteAccess));
  const auto done = last_completions();
  ASSERT_EQ(done.size(), 3u);
  EXPECT_EQ(done[0].status, WcStatus::kSuccess);
  EXPECT_EQ(done[1].status, WcStatus::kRemAccessErr);
  EXPECT_EQ(done[2].status, WcStatus::kWrFlushErr);
}

TEST_F(RoceQp, ImpossibleReportsChangeNothing) {
  post(SendOp::kWrite, 1, 2);
  handed_over();
  acknowledge(at(3));
  acknowledge(at(0) + Psn::kMask);
  EXPECT_TRUE(completions().empty());
  refuse(at(1), nak_of(wire::NakCode::kRemoteAccess));
  acknowledge(at(1));
  EXPECT_EQ(completions().size(), 1u) << "the NAK was about what is oldest now";
}

}  // namespace
}  // namespace hostnic::driver
