// SPDX-License-Identifier: BSD-3-Clause
// What fails how, on both sides: the table of error semantics that programs rely on, and rule 28.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/sim/pair.h"

namespace hostnic::sim {
namespace {

using driver::AsyncEvent;
constexpr uint32_t kMtu = 4096;
constexpr uint32_t kBadKey = 0x7777777;

bool raised(const Endpoint& end, AsyncEvent event) {
  const auto& events = end.host->events;
  return std::any_of(events.begin(), events.end(),
                     [&](const Event& e) { return e.event == event; });
}

Sge bad_local(const Pair& pair) { return {pair.local.address(), 64, kBadKey}; }

TEST(Errors, WriteWithBadLkey) {
  Pair pair;
  pair.post(SendOp::kWrite, 1, bad_local(pair));
  pair.post(SendOp::kWrite, 2, pair.at(0, 64));
  const auto done = pair.sent(2);
  ASSERT_EQ(done.size(), 2u);
  EXPECT_EQ(done[0].status, WcStatus::kLocProtErr);
  EXPECT_EQ(done[1].status, WcStatus::kWrFlushErr);
  EXPECT_EQ(pair.near->state(), QpState::kErr);
  EXPECT_EQ(pair.far->state(), QpState::kRts);
}

TEST(Errors, SendWithBadLkey) {
  Pair pair;
  pair.post_receive(1, 0, kMtu);
  pair.post(SendOp::kSend, 1, bad_local(pair));
  EXPECT_EQ(pair.status_of_one(), WcStatus::kLocProtErr);
  EXPECT_EQ(pair.far->state(), QpState::kRts);
}

TEST(Errors, WriteWithBothKeysBadIsALocalError) {
  Pair pair;
  pair.post_to(SendOp::kWrite, 1, bad_local(pair), pair.remote.address(), kBadKey);
  EXPECT_EQ(pair.status_of_one(), WcStatus::kLocProtErr);
}

TEST(Errors, ReadWithBothKeysBadIsARemoteError) {
  Pair pair;
  pair.post_to(SendOp::kRead, 1, bad_local(pair), pair.remote.address(), kBadKey);
  EXPECT_EQ(pair.status_of_one(), WcStatus::kRemAccessErr);
}

TEST(Errors, ReadWithBadLkeyAlone) {
  Pair pair;
  pair.post(SendOp::kRead, 1, bad_local(pair));
  EXPECT_EQ(pair.status_of_one(), WcStatus::kLocProtErr);
}

TEST(Errors, AtomicWithBadLkeyAlone) {
  Pair pair;
  pair.post(SendOp::kFetchAdd, 1, {pair.local.address(), 8, kBadKey});
  EXPECT_EQ(pair.status_of_one(), WcStatus::kLocProtErr);
}

TEST(Errors, AtomicWithBothKeysBadIsARemoteError) {
  Pair pair;
  pair.post_to(SendOp::kFetchAdd, 1, {pair.local.address(), 8, kBadKey}, pair.remote.address(),
               kBadKey);
  EXPECT_EQ(pair.status_of_one(), WcStatus::kRemAccessErr);
}

class RemoteAccess : public testing::TestWithParam<SendOp> {};

TEST_P(RemoteAccess, BadKey) {
  Pair pair;
  pair.post_to(GetParam(), 1, pair.at(0, 8), pair.remote.address(), kBadKey);
  EXPECT_EQ(pair.status_of_one(), WcStatus::kRemAccessErr);
  pair.world.run_for(kMillisecond);
  EXPECT_TRUE(raised(*pair.far, AsyncEvent::kQpAccessErr));
  EXPECT_EQ(pair.far->state(), QpState::kErr);
}
TEST_P(RemoteAccess, OutOfBounds) {
  Pair pair;
  pair.post(GetParam(), 1, pair.at(0, 8), Pair::kBytes);
  EXPECT_EQ(pair.status_of_one(), WcStatus::kRemAccessErr);
}
TEST_P(RemoteAccess, AddressAndLengthThatWrapAround) {
  Pair pair;
  pair.post_to(GetParam(), 1, pair.at(0, 8), ~uint64_t{7}, pair.rkey);
  EXPECT_EQ(pair.status_of_one(), WcStatus::kRemAccessErr);
}
TEST_P(RemoteAccess, MissingRightOfTheRegion) {
  Pair pair({}, {}, kAccessLocalWrite);
  pair.post(GetParam(), 1, pair.at(0, 8));
  EXPECT_EQ(pair.status_of_one(), WcStatus::kRemAccessErr);
}
TEST_P(RemoteAccess, MissingRightOfTheQueuePair) {
  QpSettings qp;
  qp.access = kAccessLocalWrite;
  Pair pair(qp);
  pair.post(GetParam(), 1, pair.at(0, 8));
  EXPECT_EQ(pair.status_of_one(), WcStatus::kRemInvReqErr);
  pair.world.run_for(kMillisecond);
  EXPECT_TRUE(raised(*pair.far, AsyncEvent::kQpReqErr));
  EXPECT_FALSE(raised(*pair.far, AsyncEvent::kQpAccessErr));
  EXPECT_EQ(pair.far->state(), QpState::kErr);
}
TEST_P(RemoteAccess, MissingRightOfTheQueuePairBehindALoss) {
  QpSettings qp;
  qp.access = kAccessLocalWrite;
  Pair pair(qp);
  pair.post_receive(1, 0, kMtu);
  pair.world.impair(1, "rx drop nth 1 kind send");
  pair.post(SendOp::kSend, 1, pair.at(0, 8));
  pair.post(GetParam(), 2, pair.at(0, 8));
  const auto done = pair.sent(2);
  ASSERT_EQ(done.size(), 2u);
  EXPECT_EQ(done[0].status, WcStatus::kSuccess);
  EXPECT_EQ(done[1].status, WcStatus::kRemInvReqErr);
}
TEST_P(RemoteAccess, OtherProtectionDomain) {
  Pair pair;
  const uint32_t key = pair.far->host->add_mr(pair.remote, kAllAccess, Reach::kMapped, 2);
  pair.post_to(GetParam(), 1, pair.at(0, 8), pair.remote.address(), key);
  EXPECT_EQ(pair.status_of_one(), WcStatus::kRemAccessErr);
}
INSTANTIATE_TEST_SUITE_P(Errors, RemoteAccess,
                         testing::Values(SendOp::kWrite, SendOp::kRead, SendOp::kFetchAdd,
                                         SendOp::kCompareSwap));

// A request without bytes names no memory, but is an operation all the same.
TEST(Errors, AnEmptyRequestNeedsTheRightOfTheQueuePair) {
  for (const SendOp op : {SendOp::kWrite, SendOp::kWriteImm, SendOp::kRead}) {
    QpSettings qp;
    qp.access = kAccessLocalWrite;
    Pair pair(qp);
    pair.post_receive(5, 0, kMtu);
    pair.post(op, 1, pair.at(0, 0));
    EXPECT_EQ(pair.status_of_one(), WcStatus::kRemInvReqErr);
    const auto received = pair.received(1);
    ASSERT_EQ(received.size(), 1u);
    EXPECT_EQ(received[0].status, WcStatus::kWrFlushErr) << "not taken by what was refused";
  }
}

TEST(Errors, WriteImmWithBadRkeyFailsItsReceive) {
  Pair pair;
  pair.post_receive(5, 0, kMtu);
  pair.post_to(SendOp::kWriteImm, 1, pair.at(0, 64), pair.remote.address(), kBadKey);
  EXPECT_EQ(pair.status_of_one(), WcStatus::kRemAccessErr);
  const auto received = pair.received(1);
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].wr_id, 5u);
  EXPECT_EQ(received[0].status, WcStatus::kLocAccessErr);
}

TEST(Errors, MisalignedAtomic) {
  Pair pair;
  pair.post(SendOp::kFetchAdd, 1, pair.at(0, 8), 4);
  EXPECT_EQ(pair.status_of_one(), WcStatus::kRemInvReqErr);
  pair.world.run_for(kMillisecond);
  EXPECT_EQ(pair.near->state(), QpState::kErr);
  EXPECT_EQ(pair.far->state(), QpState::kErr);
}

TEST(Errors, ZeroBytesSucceedWhateverTheKey) {
  Pair pair;
  pair.post_to(SendOp::kWrite, 1, {}, 0, kBadKey);
  pair.post_to(SendOp::kRead, 2, {}, 0, kBadKey);
  const auto done = pair.sent(2);
  ASSERT_EQ(done.size(), 2u);
  for (const auto& c : done) EXPECT_EQ(c.status, WcStatus::kSuccess);
}

TEST(Errors, ReceiveTooSmall) {
  Pair pair;
  pair.post_receive(5, 0, 32);
  pair.post_receive(6, 0, 32);
  pair.post(SendOp::kSend, 1, pair.at(0, 64));
  EXPECT_EQ(pair.status_of_one(), WcStatus::kRemInvReqErr);
  const auto received = pair.received(2);
  ASSERT_EQ(received.size(), 2u);
  EXPECT_EQ(received[0].status, WcStatus::kLocLenErr);
  EXPECT_EQ(received[1].status, WcStatus::kWrFlushErr);
  EXPECT_EQ(pair.near->state(), QpState::kErr);
  EXPECT_EQ(pair.far->state(), QpState::kErr);
}

TEST(Errors, ReceiveWithBadLkey) {
  Pair pair;
  pair.post_receive_with(5, {pair.remote.address(), kMtu, kBadKey});
  pair.post(SendOp::kSend, 1, pair.at(0, 64));
  EXPECT_EQ(pair.status_of_one(), WcStatus::kRemOpErr);
  const auto received = pair.received(1);
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].status, WcStatus::kLocProtErr);
}

// Also when the end, which is beyond the region, overtakes the rest.
TEST(Errors, AReceiveIsCheckedWhereAMessageReaches) {
  for (const char* network : {"", "rx reorder 30% distance 4"}) {
    Pair pair;
    if (*network != '\0') pair.world.impair(1, network);
    // The elements go on for a megabyte behind the region.
    const uint64_t last = pair.remote.address(Pair::kBytes - 4 * kMtu);
    pair.post_receive_with(5, {last, 1 << 20, pair.rkey});
    pair.post(SendOp::kSend, 1, pair.at(0, 4 * kMtu));
    EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess) << network;
    const auto fits = pair.received(1);
    ASSERT_EQ(fits.size(), 1u);
    EXPECT_EQ(fits[0].status, WcStatus::kSuccess);
    EXPECT_EQ(fits[0].byte_len, 4 * kMtu);
    pair.post_receive_with(6, {last, 1 << 20, pair.rkey});
    pair.post(SendOp::kSend, 2, pair.at(0, 4 * kMtu + 1));
    EXPECT_EQ(pair.status_of_one(), WcStatus::kRemOpErr) << network;
    const auto beyond = pair.received(1);
    ASSERT_EQ(beyond.size(), 1u);
    EXPECT_EQ(beyond[0].status, WcStatus::kLocProtErr);
  }
}

TEST(Errors, PeerInErrorStateDoesNotAnswer) {
  Pair pair;
  ASSERT_EQ(pair.world.modify_state(*pair.far, QpState::kErr), 0);
  pair.post(SendOp::kWrite, 1, pair.at(0, 64));
  EXPECT_EQ(pair.status_of_one(5 * kSecond), WcStatus::kRetryExcErr);
}

// The port's MTU was lowered under the connection: what fails because its packets are too long says
// so, and what fits fails as ever.
TEST(Errors, ASilenceOfPacketsThatNoLongerFitSaysWhy) {
  for (const auto& [bytes, transport] :
       {std::pair{kMtu / 4, Transport::kHostnic}, std::pair{kMtu / 4 + 1, Transport::kHostnic},
        std::pair{kMtu / 4, Transport::kRoce}, std::pair{kMtu / 4 + 1, Transport::kRoce}}) {
    Pair pair({.timeout = 10}, {.transport = transport});
    pair.near->host->channel().header().mtu_bytes.store(kMtu / 4);
    pair.world.cut(1, true);
    pair.post(SendOp::kWrite, 1, pair.at(0, bytes));
    const auto done = pair.sent(1);
    ASSERT_EQ(done.size(), 1u);
    EXPECT_EQ(done[0].status, WcStatus::kRetryExcErr);
    EXPECT_EQ(done[0].vendor,
              bytes > kMtu / 4 ? driver::VendorError::kPathMtu : driver::VendorError::kNoAnswer);
  }
}

TEST(Errors, Rule16_TheKeyIsCheckedWithEachPull) {
  Pair pair;
  pair.world.impair(0, "rx drop from 0s to 3ms kind read-response");
  pair.post(SendOp::kRead, 1, pair.at(0, 512 * 1024));
  pair.post(SendOp::kWrite, 2, pair.at(0, 64));
  pair.world.run_for(kMillisecond);
  pair.far->host->remove_mr(pair.rkey);
  const auto done = pair.sent(2);
  ASSERT_EQ(done.size(), 2u);
  EXPECT_EQ(done[0].wr_id, 1u);
  EXPECT_EQ(done[0].status, WcStatus::kRemAccessErr);
}

TEST(Errors, Rule28_EarlierRequestsCompleteFirst) {
  Pair pair;
  // The WRITE's packets are lost at first; the bad request behind them is refused only at the
  // front.
  pair.world.impair(1, "rx drop first 3 kind write");
  pair.post(SendOp::kWrite, 1, pair.at(0, 8 * kMtu));
  pair.post(SendOp::kRead, 2, pair.at(kMtu * 16, 8 * kMtu), 8 * kMtu);
  pair.post_to(SendOp::kWrite, 3, pair.at(0, 64), pair.remote.address(), kBadKey);
  pair.post(SendOp::kWrite, 4, pair.at(0, 64), 0, /*signalled=*/false);
  const auto done = pair.sent(4);
  ASSERT_EQ(done.size(), 4u);
  const WcStatus expected[] = {WcStatus::kSuccess, WcStatus::kSuccess, WcStatus::kRemAccessErr,
                               WcStatus::kWrFlushErr};
  for (uint64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(done[i].wr_id, i + 1);
    EXPECT_EQ(done[i].status, expected[i]);
  }
  EXPECT_TRUE(equal(pair.local, 0, pair.remote, 0, 8 * kMtu));
}

// A READ's data is pulled after it has executed, also when what came behind it was refused.
TEST(Errors, Rule28_AnEarlierReadIsAnsweredToItsEnd) {
  Pair pair;
  pair.world.impair(0, "rx drop first 5 kind read-response");
  pair.post(SendOp::kRead, 1, pair.at(0, 16 * kMtu), 32 * kMtu);
  pair.post(SendOp::kFetchAdd, 2, pair.at(17 * kMtu, 8), 64 * kMtu + 4);
  const auto done = pair.sent(2);
  ASSERT_EQ(done.size(), 2u);
  EXPECT_EQ(done[0].wr_id, 1u);
  EXPECT_EQ(done[0].status, WcStatus::kSuccess);
  EXPECT_EQ(done[1].wr_id, 2u);
  EXPECT_EQ(done[1].status, WcStatus::kRemInvReqErr);
  EXPECT_TRUE(equal(pair.local, 0, pair.remote, 32 * kMtu, 16 * kMtu));
}

TEST(Errors, Rule28_LocalErrorWaitsForEarlierRequests) {
  Pair pair;
  pair.world.impair(1, "rx drop to 20ms");
  pair.post(SendOp::kWrite, 1, pair.at(0, 4 * kMtu));
  pair.post(SendOp::kWrite, 2, bad_local(pair));
  const auto done = pair.sent(2);
  ASSERT_EQ(done.size(), 2u);
  EXPECT_EQ(done[0].status, WcStatus::kSuccess);
  EXPECT_EQ(done[1].status, WcStatus::kLocProtErr);
}

// What the own NIC refused is never transmitted: that must not look like a NIC that is behind.
TEST(Errors, Rule28_LocalErrorWaitsForAnAnswerThatIsLost) {
  for (const SendOp op : {SendOp::kRead, SendOp::kFetchAdd}) {
    Pair pair;
    pair.world.impair(0, "rx drop first 1 kind read-response");
    pair.post(op, 1, pair.at(0, 8), 64 * kMtu);
    pair.post(SendOp::kWrite, 2, bad_local(pair));
    const auto done = pair.sent(2);
    ASSERT_EQ(done.size(), 2u);
    EXPECT_EQ(done[0].status, WcStatus::kSuccess);
    EXPECT_EQ(done[1].status, WcStatus::kLocProtErr);
    EXPECT_TRUE(equal(pair.local, 0, pair.remote, 64 * kMtu, op == SendOp::kRead ? 8 : 0));
  }
}

TEST(Errors, Rule28_LocalErrorAfterAReadThatNobodyAnswers) {
  QpSettings qp;
  qp.timeout = 10;
  qp.retry_cnt = 1;
  Pair pair(qp);
  pair.world.impair(0, "rx drop kind read-response");
  pair.post(SendOp::kRead, 1, pair.at(0, 8));
  pair.post(SendOp::kWrite, 2, bad_local(pair));
  const auto done = pair.sent(2);
  ASSERT_EQ(done.size(), 2u);
  EXPECT_EQ(done[0].status, WcStatus::kRetryExcErr);
  EXPECT_EQ(done[1].status, WcStatus::kWrFlushErr);
}

// The READ is acknowledged and the WRITE behind it in flight when the READ's next range is refused.
TEST(Errors, Rule28_ARevokedReadFailsAndNotWhatIsInFlight) {
  Pair pair;
  pair.world.impair(0, "rx drop from 0s to 3ms kind read-response");
  pair.world.impair(1, "rx drop kind write");
  pair.post(SendOp::kRead, 1, pair.at(0, 512 * 1024));
  pair.post(SendOp::kWrite, 2, pair.at(0, 64));
  pair.world.run_for(kMillisecond);
  pair.far->host->remove_mr(pair.rkey);
  const auto done = pair.sent(2);
  ASSERT_EQ(done.size(), 2u);
  EXPECT_EQ(done[0].wr_id, 1u);
  EXPECT_EQ(done[0].status, WcStatus::kRemAccessErr);
  EXPECT_EQ(done[1].status, WcStatus::kWrFlushErr);
}

TEST(Errors, Rule28_LostNakIsRepeated) {
  Pair pair;
  pair.world.impair(0, "rx drop first 3 kind ack");
  pair.post_to(SendOp::kWrite, 1, pair.at(0, 64), pair.remote.address(), kBadKey);
  EXPECT_EQ(pair.status_of_one(), WcStatus::kRemAccessErr);
}

TEST(Errors, Rule28_PostsInTheErrorStateFlushInOrder) {
  Pair pair;
  ASSERT_EQ(pair.world.modify_state(*pair.near, QpState::kErr), 0);
  for (uint64_t i = 0; i < 3; ++i)
    EXPECT_EQ(pair.post(SendOp::kWrite, i, pair.at(0, 64), 0, false), 0);
  const auto done = pair.sent(3);
  ASSERT_EQ(done.size(), 3u);
  for (uint64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(done[i].wr_id, i);
    EXPECT_EQ(done[i].status, WcStatus::kWrFlushErr);
  }
}

TEST(Errors, Rule35_SlotsAreFreeWhenPolled) {
  QpSettings qp;
  qp.caps.max_send_wr = 16;
  Pair pair(qp);
  for (uint64_t i = 0; i < 16; ++i)
    EXPECT_EQ(pair.post(SendOp::kWrite, i, pair.at(0, 64), 0, i == 15), 0);
  EXPECT_EQ(pair.post(SendOp::kWrite, 99, pair.at(0, 64)), ENOMEM);
  pair.world.run_for(kMillisecond);
  EXPECT_EQ(pair.post(SendOp::kWrite, 99, pair.at(0, 64)), ENOMEM) << "completed but not polled";
  EXPECT_EQ(pair.sent(1).size(), 1u);
  for (uint64_t i = 0; i < 16; ++i) EXPECT_EQ(pair.post(SendOp::kWrite, i, pair.at(0, 64)), 0);
  EXPECT_EQ(pair.sent(16).size(), 16u);
}

TEST(Errors, Rule35_CqOverflow) {
  QpSettings qp;
  qp.cq_entries = 16;
  qp.caps.max_send_wr = 512;
  Pair pair(qp);
  for (uint64_t i = 0; i < 400; ++i) pair.post(SendOp::kWrite, i, pair.at(0, 64));
  pair.world.run_for(10 * kMillisecond);
  EXPECT_TRUE(raised(*pair.near, AsyncEvent::kCqErr));
  EXPECT_TRUE(raised(*pair.near, AsyncEvent::kQpFatal));
  EXPECT_EQ(pair.near->state(), QpState::kErr);
}

TEST(Errors, DestroyWithTrafficGivesAllBuffersBack) {
  Pair pair;
  pair.world.impair(1, "rx drop 20%; delay 100us");
  for (uint64_t i = 0; i < 20; ++i) {
    pair.post(SendOp::kWrite, i, pair.at(0, 32 * kMtu));
    pair.post(SendOp::kRead, i, pair.at(512 * 1024, 16 * kMtu));
  }
  pair.world.run_for(300 * kMicrosecond);
  EXPECT_EQ(pair.near->host->driver().destroy_qp(pair.near->qp), 0);
  EXPECT_EQ(pair.far->host->driver().destroy_qp(pair.far->qp), 0);
  pair.world.check_at_rest();
}

// A READ that executed is answered to its end, whatever is refused behind it: the pulls of its
// later ranges, and of an answer that was lost, come after the NAK has been sent.
TEST(Errors, AReadBeforeARefusedRequestIsAnsweredToItsEnd) {
  for (const bool lost : {false, true}) {
    Pair pair;
    constexpr uint32_t kBytes = 400 * 1024;
    for (uint32_t i = 0; i < kBytes; ++i) pair.remote.data()[i] = static_cast<uint8_t>(i * 5);
    if (lost) pair.world.impair(0, "rx drop nth 3 kind read-response");
    pair.post(SendOp::kRead, 1, pair.at(0, kBytes));
    pair.post_to(SendOp::kWrite, 2, pair.at(0, 8), pair.remote.address(0), pair.rkey + 1);
    const auto done = pair.sent(2);
    ASSERT_EQ(done.size(), 2u);
    EXPECT_EQ(done[0].status, WcStatus::kSuccess);
    EXPECT_EQ(done[1].status, WcStatus::kRemAccessErr);
    EXPECT_TRUE(equal(pair.local, 0, pair.remote, 0, kBytes));
    EXPECT_GE(pair.far_counter(Counter::read_requests_served), 2u);
  }
}

}  // namespace
}  // namespace hostnic::sim
