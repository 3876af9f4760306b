// SPDX-License-Identifier: BSD-3-Clause
// A UC queue pair's requests: how many wait in the NIC, when they are finished, and that nothing
// goes again.
#include "tests/unit/driver/connected_qp.h"

namespace hostnic::driver {
namespace {

class UnreliableQp : public ConnectedQp {
 protected:
  UnreliableQp() : ConnectedQp({.type = QpType::kUc}) {}

  void post(uint64_t wr_id, uint32_t packets = 1) {
    EXPECT_EQ(post_request(SendOp::kSend, wr_id, packets), 0);
  }
  // How many packets were handed over.
  uint32_t handed_over() {
    uint32_t packets = 0;
    for (const Chunk& chunk : nic_.sends()) packets += chunk.d.length_bytes / kMtu;
    return packets;
  }
  // The NIC says that everything before `next` has left.
  void left(Psn next) {
    nic_.transmitted(next);
    nic_.acknowledge(next, kWindowLimit);
    progress();
  }
};

TEST_F(UnreliableQp, Rule36_ARequestIsFinishedWhenItHasLeft) {
  post(1);
  post(2, 3);
  EXPECT_EQ(handed_over(), 4u);
  progress();
  EXPECT_TRUE(completions().empty());
  left(at(1));
  ASSERT_EQ(completions().size(), 1u);
  left(at(3));
  EXPECT_TRUE(completions().empty());
  left(at(4));
  const std::vector<Completion> done = completions();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].wr_id, 2u);
  EXPECT_EQ(done[0].status, WcStatus::kSuccess);
}

TEST_F(UnreliableQp, Rule36_ABoundedNumberWaitsInTheNic) {
  const uint32_t window = driver_->settings().window;
  post(1, 3 * window);
  // Until the NIC has said anything the window is small; then it is the driver's.
  EXPECT_EQ(handed_over(), kInitialWindow);
  EXPECT_EQ(packets_in_flight(*qp_), kInitialWindow);
  left(at(kInitialWindow));
  EXPECT_EQ(handed_over(), window);
  EXPECT_EQ(packets_in_flight(*qp_), window);
  EXPECT_EQ(congestion_window(*qp_), window);
}

TEST_F(UnreliableQp, Rule36_NothingGoesAgainAndNoTimerRuns) {
  post(1);
  EXPECT_EQ(handed_over(), 1u);
  EXPECT_EQ(driver_->next_deadline_ns(), UINT64_MAX);
  progress(10'000'000'000);
  EXPECT_EQ(handed_over(), 0u);
  EXPECT_TRUE(nic_.urgent().empty());
  EXPECT_TRUE(completions().empty());
}

TEST_F(UnreliableQp, Rule22_ImpossibleReportsChangeNothing) {
  post(1);
  post(2);
  left(at(3));
  EXPECT_TRUE(completions().empty());
  left(at(1));
  left(at(0));
  EXPECT_EQ(completions().size(), 1u);
  EXPECT_EQ(packets_in_flight(*qp_), 1u);
}

TEST_F(UnreliableQp, Rule36_AfterAFailedSendNumbersGoOn) {
  post(1);
  post(2);
  post(3);
  QpStatus& status = nic_.qp_status();
  status.local_error = static_cast<uint32_t>(LocalError::kProtection);
  status.local_error_psn = at(1).value();
  left(at(1));
  const std::vector<Completion> done = completions();
  ASSERT_EQ(done.size(), 3u);
  EXPECT_EQ(done[0].status, WcStatus::kSuccess);
  EXPECT_EQ(done[1].status, WcStatus::kLocProtErr);
  EXPECT_EQ(done[2].status, WcStatus::kWrFlushErr);
  EXPECT_EQ(qp_->state, QpState::kSqe);
  status.local_error = 0;
  handed_over();
  QpAttr attr;
  move(attr, QpState::kRts, 0);
  post(4);
  const std::vector<Chunk> chunks = nic_.sends();
  ASSERT_EQ(chunks.size(), 1u);
  EXPECT_EQ(Psn(chunks[0].d.psn), at(3));
  left(at(4));
  EXPECT_EQ(completions().size(), 1u);
}

}  // namespace
}  // namespace hostnic::driver
