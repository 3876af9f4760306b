// SPDX-License-Identifier: BSD-3-Clause
// MRC's requester: how much may be on its way, what goes again, what completes, and when a silent
// peer is given up; on a NIC that only takes descriptors apart.
#include <vector>

#include "protocol/wire/aeth.h"
#include "tests/unit/driver/connected_qp.h"

namespace hostnic::driver {
namespace {

class MrcQp : public ConnectedQp {
 protected:
  MrcQp() : ConnectedQp({.spoken = Transport::kMrc}) {}

  void post(uint64_t wr_id, uint32_t packets) {
    EXPECT_EQ(post_request(SendOp::kWrite, wr_id, packets), 0);
  }
  // How many PSNs have been handed over for the first time, which leave at once.
  uint32_t first_sends() {
    uint32_t psns = 0;
    for (const Chunk& chunk : nic_.sends()) {
      EXPECT_EQ(chunk.d.flags & kSendRetransmit, 0);
      EXPECT_EQ(Psn(chunk.d.psn), left_) << "PSNs leave in their order";
      const uint32_t count = (chunk.d.length_bytes + kMtu - 1) / kMtu;
      left_ = left_ + count;
      psns += count;
    }
    nic_.transmitted(left_);
    return psns;
  }
  // What goes again: the PSN of each packet.
  std::vector<Psn> again() {
    std::vector<Psn> psns;
    for (const Chunk& chunk : nic_.urgent()) {
      EXPECT_NE(chunk.d.flags & kSendRetransmit, 0);
      for (uint32_t i = 0; i < (chunk.d.length_bytes + kMtu - 1) / kMtu; ++i)
        psns.push_back(Psn(chunk.d.psn) + i);
    }
    return psns;
  }
  void progress(uint64_t later_ns = 1000) {
    nic_.channel().header().nic_turn_ns.store(now_ns_ + later_ns);
    ConnectedQp::progress(later_ns);
  }
  void acknowledge(Psn una, uint32_t peer_window = 1024, const PsnBits& ahead = {},
                   uint32_t span = 0) {
    nic_.acknowledge(una, peer_window, Psn(0), ahead, span);
    progress();
  }
  // The NIC has found that the last transmission is lost.
  void tell_lost(Psn psn) {
    QpStatus& status = nic_.qp_status();
    status.losses_told[psn.value() / 64 % kBitmapWords] ^= uint64_t{1} << psn.value() % 64;
    ++status.losses_reported;
  }
  uint64_t until_deadline_ns() { return driver_->next_deadline_ns() - now_ns_; }

  Psn left_ = Psn(kFirstPsn);
};

TEST_F(MrcQp, NoMoreIsOnItsWayThanTheCongestionWindowSays) {
  nic_.qp_status().window_psns = 4;
  acknowledge(at(0));
  post(1, 20);
  EXPECT_EQ(first_sends(), 4u);
  acknowledge(at(0));
  EXPECT_EQ(first_sends(), 0u) << "an ACK of nothing makes no room";
  acknowledge(at(3));
  EXPECT_EQ(first_sends(), 3u);
  nic_.qp_status().window_psns = 2;
  acknowledge(at(4));
  EXPECT_EQ(first_sends(), 0u) << "three are on their way, two may be";
  acknowledge(at(7));
  EXPECT_EQ(first_sends(), 2u);
  nic_.qp_status().window_psns = 64;
  acknowledge(at(9));
  EXPECT_EQ(first_sends(), 11u);
  acknowledge(at(20));
  EXPECT_EQ(completions().size(), 1u);
}

TEST_F(MrcQp, WhatASackHasMakesRoomAndCompletesNothing) {
  nic_.qp_status().window_psns = 4;
  acknowledge(at(0));
  post(1, 8);
  EXPECT_EQ(first_sends(), 4u);
  PsnBits ahead;
  ahead.set(at(1));
  ahead.set(at(2));
  acknowledge(at(0), 1024, ahead, 3);
  EXPECT_EQ(first_sends(), 2u);
  EXPECT_TRUE(completions().empty());
}

TEST_F(MrcQp, NoMoreLeavesThanThePeerCanTake) {
  nic_.qp_status().window_psns = 1024;
  acknowledge(at(0), 6);
  post(1, 3 * kInitialWindow);
  uint32_t sent = 0;
  for (uint32_t more = 1; more != 0; progress()) sent += more = first_sends();
  EXPECT_EQ(sent, kInitialWindow) << "which a peer has before it says anything";
  acknowledge(at(kInitialWindow), 5);
  EXPECT_EQ(first_sends(), 5u);
  acknowledge(at(kInitialWindow + 2), 1);
  EXPECT_EQ(first_sends(), 0u) << "a window that was given is not taken back, and not made larger";
}

TEST_F(MrcQp, OnlyWhatIsMissingGoesAgain) {
  post(1, 20);
  EXPECT_EQ(first_sends(), 20u);
  PsnBits ahead;
  for (uint32_t i = 0; i < 20; ++i)
    if (i != 3 && i != 5) ahead.set(at(i));
  acknowledge(at(3), 1024, ahead, 17);
  EXPECT_TRUE(again().empty()) << "what came by other paths says nothing of these packets";
  tell_lost(at(3));
  tell_lost(at(5));
  acknowledge(at(3), 1024, ahead, 17);
  EXPECT_EQ(again(), (std::vector<Psn>{at(3), at(5)}));
  acknowledge(at(3), 1024, ahead, 17);
  EXPECT_TRUE(again().empty()) << "told once";
  tell_lost(at(5));
  acknowledge(at(3), 1024, ahead, 17);
  EXPECT_EQ(again(), std::vector<Psn>{at(5)}) << "its repetition is lost as well";
  EXPECT_TRUE(completions().empty());
  acknowledge(at(20));
  EXPECT_EQ(completions().size(), 1u);
  EXPECT_TRUE(again().empty());
}

TEST_F(MrcQp, ARefusalFailsTheMessageThatItNames) {
  post(1, 1);
  post(2, 2);
  EXPECT_EQ(first_sends(), 3u);
  QpStatus& status = nic_.qp_status();
  status.nak = make_nak(static_cast<uint32_t>(wire::AckKind::kNak),
                        static_cast<uint32_t>(wire::NakCode::kRemoteAccess));
  status.nak_psn = at(1).value();
  ++status.nak_count;
  acknowledge(at(1));
  std::vector<Completion> done = completions();
  progress();
  for (const Completion& completion : completions()) done.push_back(completion);
  ASSERT_EQ(done.size(), 2u);
  EXPECT_EQ(done[0].status, WcStatus::kSuccess);
  EXPECT_EQ(done[1].status, WcStatus::kRemAccessErr);
}

TEST_F(MrcQp, ASilentPeerIsAskedLessAndLessOftenAndThenGivenUp) {
  post(1, 40);
  EXPECT_EQ(first_sends(), 40u);
  uint64_t waited_ns = 0, last_ns = 0;
  uint32_t timeouts = 0;
  std::vector<Completion> done;
  while (done.empty() && timeouts < 100) {
    const uint64_t step_ns = until_deadline_ns() + 1000;
    waited_ns += step_ns;
    progress(step_ns);
    done = completions();
    const std::vector<Psn> repeated = again();
    if (repeated.empty()) continue;
    ++timeouts;
    EXPECT_EQ(repeated.front(), at(0));
    EXPECT_LE(repeated.size(), 16u) << "a peer that may be away is not flooded";
    if (timeouts > 1 && timeouts < 4) {
      EXPECT_GT(step_ns, last_ns) << timeouts;
    }
    last_ns = step_ns;
  }
  ASSERT_FALSE(done.empty());
  EXPECT_EQ(done[0].status, WcStatus::kRetryExcErr);
  EXPECT_GE(timeouts, 3u);
  EXPECT_GE(waited_ns, 64'000'000u);
}

}  // namespace
}  // namespace hostnic::driver
