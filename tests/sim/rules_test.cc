// SPDX-License-Identifier: BSD-3-Clause
// The rules of docs/transport.md, one by one, each on the time line that would break the design
// without it.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <tuple>

#include "tests/sim/pair.h"

namespace hostnic::sim {
namespace {

constexpr uint32_t kMtu = 4096;

TEST(Rules, Rule5_DuplicatesAreNotExecutedAgain) {
  Pair pair;
  pair.world.impair(1, "rx duplicate all");
  ASSERT_EQ(pair.post_receive(1, 0, kMtu), 0);
  pair.post(SendOp::kSend, 1, pair.at(0, 100));
  pair.post(SendOp::kFetchAdd, 2, pair.at(kMtu, 8), 8192);
  EXPECT_EQ(pair.sent(2).size(), 2u);
  pair.world.run_for(kMillisecond);
  EXPECT_EQ(pair.received(2, kMillisecond).size(), 1u);
  uint64_t value;
  std::memcpy(&value, pair.remote.data() + 8192, 8);
  EXPECT_EQ(value, 1u);
  EXPECT_GE(pair.far_counter(Counter::duplicate_request), 2u);
  EXPECT_EQ(pair.far_counter(Counter::bytes_copied_mapped), 100u) << "duplicates are not copied";
}

TEST(Rules, Rule7_LostAckOfAWholeWindowIsAskedForAgain) {
  // More than an advance budget behind the hole: all is SACKed while the base still moves, and the
  // ACK that says so is lost.
  QpSettings qp;
  qp.psn = 100;
  Pair pair(qp);
  pair.world.impair(1, "rx drop nth 1 kind write");
  pair.world.impair(0, "rx drop every 2 kind ack");
  pair.post(SendOp::kWrite, 1, pair.at(0, 120 * kMtu));
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  EXPECT_TRUE(equal(pair.local, 0, pair.remote, 0, 120 * kMtu));
}

TEST(Rules, Rule9_LatePacketsNeverOverwriteNewerData) {
  Pair pair;
  // Three WRITEs of two packets to the same place (the first packet of each is no tail, and is not
  // held). The first one's comes last of all, the second one's after the third one's: both late.
  pair.world.impair(1, "rx reorder nth 1 distance 5 flush 1ms; reorder nth 3 distance 2 flush 1ms");
  for (uint32_t i = 0; i < 3; ++i) pair.post(SendOp::kWrite, i, pair.at(i * 32768, kMtu + 512), 0);
  EXPECT_EQ(pair.sent(3).size(), 3u);
  EXPECT_TRUE(equal(pair.local, 2 * 32768, pair.remote, 0, kMtu + 512));
  EXPECT_GE(pair.far_counter(Counter::late_bytes_skipped), 2u * kMtu);
}

TEST(Rules, Rule10_TailBufferedUntilHoleFilled) {
  Pair pair;
  pair.world.impair(1, "rx drop nth 2 kind write");
  pair.world.impair(0, "rx delay 200us kind ack");  // recovery comes later than our look
  pair.post(SendOp::kWrite, 1, pair.at(0, 4 * kMtu));
  // The tail has arrived, the second packet has not: everything but those two is there.
  pair.world.run_for(20 * kMicrosecond);
  EXPECT_TRUE(equal(pair.local, 0, pair.remote, 0, kMtu));
  EXPECT_TRUE(equal(pair.local, 2 * kMtu, pair.remote, 2 * kMtu, kMtu));
  EXPECT_FALSE(equal(pair.local, 3 * kMtu, pair.remote, 3 * kMtu, kMtu));
  EXPECT_EQ(pair.far_counter(Counter::reorder_buffered), 1u);
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  EXPECT_TRUE(equal(pair.local, 0, pair.remote, 0, 4 * kMtu));
}

TEST(Rules, Rule10_RelaxedOrderingPlacesTailsAtOnce) {
  Pair pair({}, {}, kAllAccess | kAccessRelaxedOrdering);
  pair.world.impair(1, "rx drop nth 2 kind write");
  pair.world.impair(0, "rx delay 200us kind ack");
  pair.post(SendOp::kWrite, 1, pair.at(0, 4 * kMtu));
  pair.world.run_for(20 * kMicrosecond);
  EXPECT_FALSE(equal(pair.local, kMtu, pair.remote, kMtu, kMtu));
  EXPECT_TRUE(equal(pair.local, 3 * kMtu, pair.remote, 3 * kMtu, kMtu));
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
}

TEST(Rules, Rule14_SendWaitsForItsReceive) {
  Pair pair;
  ASSERT_EQ(pair.post_receive(0, 0, kMtu), 0);
  pair.post(SendOp::kSend, 0, pair.at(0, 100));
  ASSERT_EQ(pair.sent(1).size(), 1u);
  ASSERT_EQ(pair.received(1).size(), 1u);
  // The sender knows now that there is no credit: one message goes as the probe, the others wait.
  for (uint64_t i = 1; i <= 8; ++i) pair.post(SendOp::kSend, i, pair.at(0, 100));
  pair.world.run_for(50 * kMillisecond);
  EXPECT_TRUE(pair.sent(1, kMillisecond).empty());
  const uint64_t naks = pair.near_counter(Counter::rnr_nak_received);
  EXPECT_GE(naks, 1u);
  for (uint64_t i = 1; i <= 8; ++i) ASSERT_EQ(pair.post_receive(i, 0, kMtu), 0);
  // The new limit is told unasked: long before an RNR timer or an RTO.
  EXPECT_EQ(pair.sent(8, 200 * kMicrosecond).size(), 8u);
  EXPECT_EQ(pair.received(8).size(), 8u);
}

TEST(Rules, Rule15_RnrTimerThenOnlyTheRefusedRequestGoes) {
  QpSettings qp;
  qp.min_rnr_timer = 14;  // 1 ms
  Pair pair(qp);
  for (uint64_t i = 0; i < 4; ++i) pair.post(SendOp::kSend, i, pair.at(0, 100));
  pair.world.run_for(100 * kMicrosecond);
  EXPECT_EQ(pair.far_counter(Counter::rnr_nak_sent), 1u);
  const uint64_t before = pair.near_counter(Counter::tx_packets);
  pair.world.run_for(800 * kMicrosecond);
  EXPECT_EQ(pair.near_counter(Counter::tx_packets), before) << "sent while the RNR timer ran";
  pair.world.run_for(400 * kMicrosecond);
  EXPECT_EQ(pair.near_counter(Counter::tx_packets), before + 1);
  for (uint64_t i = 0; i < 4; ++i) pair.post_receive(i, 0, kMtu);
  EXPECT_EQ(pair.sent(4).size(), 4u);
}

// The answer of a READ behind it is all that tells the sender that the copy found a receive.
TEST(Rules, Rule15_ACopyOfTheRefusedRequestArrivesWhileTheTimerRuns) {
  QpSettings qp;
  qp.min_rnr_timer = 14;  // 1 ms
  Pair pair(qp);
  pair.world.impair(1,
                    "rx duplicate all kind send; reorder nth 2 kind send delay 500us; "
                    "reorder nth 1 kind read-request delay 600us");
  // The new limit is lost, and what acknowledges.
  pair.world.impair(0, "rx drop kind ack from 100us to 5ms");
  pair.post(SendOp::kSend, 1, pair.at(0, 100));
  pair.post(SendOp::kRead, 2, pair.at(0, 100));
  pair.world.run_for(200 * kMicrosecond);
  ASSERT_EQ(pair.near_counter(Counter::rnr_nak_received), 1u);
  ASSERT_EQ(pair.post_receive(1, 0, kMtu), 0);
  EXPECT_EQ(pair.sent(2, 600 * kMicrosecond).size(), 2u) << "before the timer is over";
  pair.post(SendOp::kWrite, 3, pair.at(0, 100));
  EXPECT_EQ(pair.sent(1).size(), 1u);
}

TEST(Rules, Rule15_RnrRetriesAreCounted) {
  QpSettings qp;
  qp.rnr_retry = 3;
  qp.min_rnr_timer = 14;
  Pair pair(qp);
  pair.post(SendOp::kSend, 1, pair.at(0, 100));
  pair.post(SendOp::kWrite, 2, pair.at(0, 100));
  const auto done = pair.sent(2);
  ASSERT_EQ(done.size(), 2u);
  EXPECT_EQ(done[0].status, WcStatus::kRnrRetryExcErr);
  EXPECT_EQ(done[1].status, WcStatus::kWrFlushErr);
  EXPECT_EQ(pair.far_counter(Counter::rnr_nak_sent), 4u);
  EXPECT_EQ(pair.near->state(), QpState::kErr);
  EXPECT_EQ(pair.far->state(), QpState::kRts);
}

TEST(Rules, Rule17_LostReadAnswersArePulledAgain) {
  Pair pair;
  std::memset(pair.remote.data(), 0x5a, Pair::kBytes);
  pair.world.impair(0, "rx drop every 7 kind read-response to 5ms");
  pair.post(SendOp::kRead, 1, pair.at(0, 256 * 1024));
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  EXPECT_TRUE(equal(pair.local, 0, pair.remote, 0, 256 * 1024));
  EXPECT_GE(pair.near->host->driver().counters().read_repulls, 1u);
}

TEST(Rules, Rule18_RepulledReadRepullsLaterOnes) {
  Pair pair;
  std::memset(pair.remote.data(), 1, Pair::kBytes);
  // A flag (READ 1), then data (READ 2). The flag's answer is lost; data read before the flag must
  // not survive.
  pair.world.impair(0, "rx drop nth 1 kind read-response");
  pair.world.impair(0, "tx delay 100us kind read-request from 1us");  // what is pulled again
  pair.post(SendOp::kRead, 1, pair.at(0, 64), 0);
  pair.post(SendOp::kRead, 2, pair.at(kMtu, 64), kMtu);
  pair.world.run_for(20 * kMicrosecond);
  std::memset(pair.remote.data(), 2, Pair::kBytes);
  EXPECT_EQ(pair.sent(2).size(), 2u);
  EXPECT_EQ(pair.local.data()[0], 2);
  EXPECT_EQ(pair.local.data()[kMtu], 2) << "the flag is newer than the data";
}

TEST(Rules, Rule18_LostReadRequestAfterATimeoutAlsoRepullsLaterOnes) {
  Pair pair;
  std::memset(pair.remote.data(), 1, Pair::kBytes);
  // Both are executed and all ACKs are lost; of the answers only the second READ's arrives.
  pair.world.impair(0, "rx drop kind ack to 3ms; drop nth 1 kind read-response");
  pair.post(SendOp::kRead, 1, pair.at(0, 64), 0);
  pair.post(SendOp::kRead, 2, pair.at(kMtu, 64), kMtu);
  pair.world.run_for(20 * kMicrosecond);
  std::memset(pair.remote.data(), 2, Pair::kBytes);
  EXPECT_EQ(pair.sent(2).size(), 2u);
  EXPECT_EQ(pair.local.data()[0], 2);
  EXPECT_EQ(pair.local.data()[kMtu], 2);
}

// What is posted behind a READ of the same bytes, without a fence: the READ has what was there
// before, though its first answers are lost, and the rest says what the memory is then.
class ReadsBefore : public testing::TestWithParam<std::tuple<SendOp, bool, bool>> {};

TEST_P(ReadsBefore, Rule18_WhatFollowsWaitsForTheAnswer) {
  const auto [op, is_roce, loses] = GetParam();
  WorldSettings settings;
  if (is_roce) settings.transport = Transport::kRoce;
  Pair pair({}, settings);
  // Other keys for the same memory, and other addresses by one: order is a matter of memory.
  constexpr uint64_t kElsewhere = 0x5000;
  const auto add = [&pair](uint64_t iova) {
    return pair.far->host->add_mr(pair.remote, kAllAccess, Reach::kMapped, 1, iova);
  };
  pair.rkey = add(pair.remote.address());
  const uint32_t other_key = add(pair.remote.address()), elsewhere = add(kElsewhere);
  if (loses) pair.world.impair(0, "rx drop first 3 kind read-response");
  constexpr uint32_t kBytes = 20 * kMtu;
  for (uint64_t i = 0; i < 20; ++i) {
    std::memset(pair.remote.data(), 1, kBytes);
    std::memset(pair.local.data(), 2, 4 * kMtu);
    ASSERT_EQ(pair.post_receive(i, 0, 4 * kMtu), 0);
    pair.post(SendOp::kRead, 1, pair.at(8 * kMtu, kBytes));
    const uint32_t bytes = op == SendOp::kFetchAdd ? 8 : 4 * kMtu;
    const std::array<uint32_t, 3> keys = {pair.rkey, other_key, elsewhere};
    const uint64_t to = i % 3 == 2 ? kElsewhere : pair.remote.address(0);
    pair.post_to(op, 2, pair.at(0, bytes), to, keys[i % 3]);
    const auto done = pair.sent(2);
    ASSERT_EQ(done.size(), 2u);
    for (const auto& c : done) EXPECT_EQ(c.status, WcStatus::kSuccess);
    const auto* const read = pair.local.data() + 8 * kMtu;
    EXPECT_EQ(std::count(read, read + kBytes, 1), kBytes) << "of a READ, in round " << i;
    EXPECT_EQ(pair.remote.data()[0], 2);
  }
}
INSTANTIATE_TEST_SUITE_P(Operations, ReadsBefore,
                         testing::Combine(testing::Values(SendOp::kWrite, SendOp::kWriteImm,
                                                          SendOp::kSend, SendOp::kSendImm,
                                                          SendOp::kFetchAdd),
                                          testing::Bool(), testing::Bool()));

// The receiver of a message may write where the sender has read.
TEST(Rules, Rule18_AMessageArrivesWhenTheReadsBeforeItAreAnswered) {
  for (const SendOp op : {SendOp::kSend, SendOp::kWriteImm}) {
    Pair pair;
    pair.world.impair(0, "rx drop first 2 kind read-response");
    std::memset(pair.remote.data(), 1, 8 * kMtu);
    ASSERT_EQ(pair.post_receive(1, 64 * kMtu, kMtu), 0);
    pair.post(SendOp::kRead, 1, pair.at(0, 8 * kMtu));
    pair.post(op, 2, pair.at(32 * kMtu, 8), 32 * kMtu);
    ASSERT_EQ(pair.received(1).size(), 1u);
    std::memset(pair.remote.data(), 2, 8 * kMtu);
    ASSERT_EQ(pair.sent(2).size(), 2u);
    EXPECT_EQ(std::count(pair.local.data(), pair.local.data() + 8 * kMtu, 1), 8 * kMtu);
  }
}

// A READ of nothing is acknowledged while one before it still waits for its answers.
TEST(Rules, Rule18_AReadOfNothingSaysNothingOfThoseBeforeIt) {
  Pair pair;
  pair.world.impair(0, "rx drop first 2 kind read-response");
  std::memset(pair.remote.data(), 1, 8 * kMtu);
  std::memset(pair.local.data() + 32 * kMtu, 2, kMtu);
  pair.post(SendOp::kRead, 1, pair.at(0, 8 * kMtu));
  pair.post(SendOp::kRead, 2, pair.at(0, 0));
  pair.world.run_for(100 * kMicrosecond);
  pair.post(SendOp::kWrite, 3, pair.at(32 * kMtu, kMtu));
  ASSERT_EQ(pair.sent(3).size(), 3u);
  EXPECT_EQ(std::count(pair.local.data(), pair.local.data() + 8 * kMtu, 1), 8 * kMtu);
}

// WRITEs of other bytes do not wait, with the same key, or with another one under which memory has
// the program's addresses, too.
TEST(Rules, Rule18_WritesOfOtherBytesDoNotWait) {
  for (const int round : {0, 1, 2, 3}) {
    WorldSettings settings;
    if (round % 2 != 0) settings.transport = Transport::kRoce;
    Pair pair({}, settings);
    const auto add = [&pair] {
      return pair.far->host->add_mr(pair.remote, kAllAccess, Reach::kMapped, 1,
                                    pair.remote.address());
    };
    pair.rkey = add();
    const uint32_t read_key = round < 2 ? pair.rkey : add();
    pair.world.impair(0, "rx drop kind read-response to 2ms");
    std::memset(pair.local.data() + 64 * kMtu, 3, 2 * kMtu);
    pair.post_to(SendOp::kRead, 1, pair.at(0, kMtu), pair.remote.address(8 * kMtu), read_key);
    pair.post(SendOp::kWrite, 2, pair.at(64 * kMtu, kMtu), 7 * kMtu);  // up to its first byte
    pair.post(SendOp::kWrite, 3, pair.at(64 * kMtu, kMtu), 9 * kMtu);  // from behind its last
    pair.post(SendOp::kFetchAdd, 4, pair.at(16 * kMtu, 8), 12 * kMtu);
    pair.world.run_for(kMillisecond);
    EXPECT_EQ(pair.remote.data()[7 * kMtu], 3);
    EXPECT_EQ(pair.remote.data()[9 * kMtu], 3);
    pair.post(SendOp::kWrite, 5, pair.at(64 * kMtu, 2), 9 * kMtu - 1);  // its last byte
    pair.world.run_for(kMillisecond / 2);
    const auto read = pair.remote.data()[9 * kMtu - 1];
    EXPECT_NE(read, 3) << "overtook the READ";
    ASSERT_EQ(pair.sent(5).size(), 5u);
    EXPECT_EQ(pair.local.data()[kMtu - 1], read);
    EXPECT_EQ(pair.remote.data()[9 * kMtu - 1], 3);
  }
}

TEST(Rules, Rule19_AtomicsExecuteOnceAndReplay) {
  Pair pair;
  pair.world.impair(0, "rx drop first 3 kind atomic-response; drop first 3 kind ack");
  for (uint64_t i = 0; i < 10; ++i) pair.post(SendOp::kFetchAdd, i, pair.at(i * 8, 8), 64);
  EXPECT_EQ(pair.sent(10).size(), 10u);
  for (uint64_t i = 0; i < 10; ++i) {
    uint64_t result;
    std::memcpy(&result, pair.local.data() + i * 8, 8);
    EXPECT_EQ(result, i);
  }
  uint64_t value;
  std::memcpy(&value, pair.remote.data() + 64, 8);
  EXPECT_EQ(value, 10u);
  EXPECT_EQ(pair.far_counter(Counter::atomics_executed), 10u);
  EXPECT_GE(pair.far_counter(Counter::atomics_replayed), 1u);
}

TEST(Rules, Rule24_OneLossInALargeRequestRepeatsOnePacket) {
  Pair pair;
  pair.world.impair(1, "rx drop nth 20 kind write");
  pair.post(SendOp::kWrite, 1, pair.at(0, 64 * kMtu));
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  EXPECT_TRUE(equal(pair.local, 0, pair.remote, 0, 64 * kMtu));
  const auto counters = pair.near->host->driver().counters();
  EXPECT_EQ(counters.retransmitted_packets, 1u);
  EXPECT_EQ(counters.timeouts, 0u);
}

// Packets that come late by more than the initial threshold are sent again at first; the peer says
// that it had them. What is on its way by then is sent again, too, and after a quiet time one tries
// again: half of them, not all.
TEST(Rules, Rule24_NeedlessResendsWidenTheReorderingWindow) {
  Pair pair;
  pair.world.impair(1, "rx reorder every 50 distance 24 kind write");
  for (uint64_t i = 0; i < 16; ++i) pair.post(SendOp::kWrite, i, pair.at(0, 256 * kMtu));
  EXPECT_EQ(pair.sent(16).size(), 16u);
  const uint64_t late = 16 * 256 / 50;
  EXPECT_LE(pair.near->host->driver().counters().retransmitted_packets, late * 3 / 4);
}

TEST(Rules, Rule24_LostTailIsProbed) {
  Pair pair;
  pair.world.impair(1, "rx drop nth 4 kind write");
  pair.post(SendOp::kWrite, 1, pair.at(0, 4 * kMtu));
  const TimeNs start = pair.world.now();
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  EXPECT_LT(pair.world.now() - start, 6 * kMillisecond);
  EXPECT_EQ(pair.near->host->driver().counters().timeouts, 0u);
}

TEST(Rules, Rule25_AStoppedProgramIsNotATimeout) {
  Pair pair;
  pair.post(SendOp::kWrite, 1, pair.at(0, 4 * kMtu));
  pair.near->host->stopped_until_ns = pair.world.now() + 60 * kSecond;
  EXPECT_EQ(pair.status_of_one(61 * kSecond), WcStatus::kSuccess);
  EXPECT_EQ(pair.near->host->driver().counters().timeouts, 0u);
}

TEST(Rules, Rule25_ASlowLinkIsNotATimeout) {
  WorldSettings settings;
  settings.link.gigabits = 0.05;  // 64 packets: 42 ms
  settings.link.queue_packets = 8;
  Pair pair({}, settings);
  pair.post(SendOp::kWrite, 1, pair.at(0, 64 * kMtu));
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  EXPECT_TRUE(equal(pair.local, 0, pair.remote, 0, 64 * kMtu));
}

// A request that waits in the NIC behind another QP's data has not been left unanswered.
TEST(Rules, Rule25_WaitingBehindAnotherQpIsNotSilence) {
  WorldSettings settings;
  // 64 packets of each of three queue pairs are handed over first: 126 ms. What the NIC and the
  // link hold beyond that takes 47 ms. The limit is between.
  settings.link.gigabits = 0.05;
  settings.link.queue_packets = 8;
  QpSettings qp;
  qp.timeout = 10;  // 4 ms; but never sooner than 64 ms
  qp.retry_cnt = 0;
  Pair pair({}, settings);
  std::vector<std::unique_ptr<Endpoint>> ends;
  const auto connected = [&](const QpSettings& attributes) -> Endpoint& {
    for (uint32_t host : {0u, 1u}) ends.push_back(pair.world.make_endpoint(host, attributes));
    pair.world.connect(*ends[ends.size() - 2], *ends.back());
    return *ends[ends.size() - 2];
  };
  const auto write = [&](Endpoint& from, uint32_t bytes, uint64_t remote_offset) {
    const Sge sge = pair.at(0, bytes);
    driver::SendRequest request;
    request.op = SendOp::kWrite;
    request.signalled = true;
    request.sges = {&sge, 1};
    request.remote_va = pair.remote.address(remote_offset);
    request.rkey = pair.rkey;
    ASSERT_EQ(from.post_send(request), 0);
  };
  Endpoint& last = connected(qp);
  for (int i = 0; i < 3; ++i) write(connected({}), 64 * kMtu, 0);
  write(last, 64, 512 * 1024);
  const TimeNs start = pair.world.now();
  const auto done = pair.take(last, *last.send_cq, 1);
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].status, WcStatus::kSuccess);
  EXPECT_GE(pair.world.now() - start, 110 * kMillisecond) << "repeated past what is before it";
}

TEST(Rules, Rule26_BlackHoleEndsAfterWhatTheAttributesPromise) {
  QpSettings qp;
  qp.timeout = 15;  // 134 ms
  qp.retry_cnt = 3;
  Pair pair(qp);
  pair.world.cut(1, true);
  for (uint64_t i = 0; i < 5; ++i) pair.post(SendOp::kWrite, i, pair.at(0, 100), 0, i == 4);
  const TimeNs start = pair.world.now();
  const auto done = pair.sent(5, 5 * kSecond);
  const uint64_t took_ns = pair.world.now() - start;
  // Each of four timeouts may take four times as long as it says.
  const uint64_t promised_ns = 4 * 4 * 4096 * (uint64_t{1} << 15);
  ASSERT_EQ(done.size(), 5u);
  EXPECT_EQ(done[0].status, WcStatus::kRetryExcErr);
  for (uint64_t i = 0; i < 5; ++i) {
    EXPECT_EQ(done[i].wr_id, i);
    if (i != 0) {
      EXPECT_EQ(done[i].status, WcStatus::kWrFlushErr);
    }
  }
  EXPECT_GE(took_ns, promised_ns);
  EXPECT_LT(took_ns, 2 * promised_ns);
}

// What most programs choose: timeout 14, 67 ms, and retry_cnt 7.
TEST(Rules, Rule26_ALinkThatIsDownForASecondCostsNoConnection) {
  Pair pair;
  for (const SendOp op : {SendOp::kWrite, SendOp::kRead}) {
    pair.world.cut(1, true);
    pair.post(op, 1, pair.at(0, 100 * kMtu));
    EXPECT_TRUE(pair.sent(1, kSecond).empty());
    pair.world.cut(1, false);
    const TimeNs back_ns = pair.world.now();
    EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
    EXPECT_LE(pair.world.now() - back_ns, 150 * kMillisecond) << "one timeout until it goes on";
    EXPECT_TRUE(equal(pair.local, 0, pair.remote, 0, 100 * kMtu));
  }
}

// Adapters detect long timeouts nearly when they say.
TEST(Rules, Rule26_LongTimeoutsTakeAQuarterMoreThanTheySay) {
  for (const bool is_roce : {false, true}) {
    QpSettings qp;
    qp.timeout = 18;
    qp.retry_cnt = 5;
    WorldSettings settings;
    if (is_roce) settings.transport = Transport::kRoce;
    Pair pair(qp, settings);
    pair.world.cut(1, true);
    pair.post(SendOp::kWrite, 1, pair.at(0, 100));
    const TimeNs start = pair.world.now();
    EXPECT_EQ(pair.status_of_one(60 * kSecond), WcStatus::kRetryExcErr);
    const uint64_t took_ns = pair.world.now() - start, said_ns = 6 * 4096 * (uint64_t{1} << 18);
    EXPECT_GE(took_ns, said_ns);
    EXPECT_LE(took_ns, said_ns * 3 / 2);
  }
}

TEST(Rules, Rule26_TimeoutZeroWaitsForEver) {
  QpSettings qp;
  qp.timeout = 0;
  Pair pair(qp);
  pair.world.cut(1, true);
  pair.post(SendOp::kWrite, 1, pair.at(0, 100));
  EXPECT_TRUE(pair.sent(1, 100 * kSecond).empty());
  pair.world.cut(1, false);
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
}

TEST(Rules, Rule17_ALostRangeComesBackInOneGo) {
  Pair pair;
  pair.world.impair(0, "rx drop first 60 kind read-response");
  pair.post(SendOp::kRead, 1, pair.at(0, 64 * kMtu));
  const TimeNs start = pair.world.now();
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  // After the first answer that arrives, or the one to a probe; not one probe for each packet.
  EXPECT_LT(pair.world.now() - start, 10 * kMillisecond);
  EXPECT_TRUE(equal(pair.local, 0, pair.remote, 0, 64 * kMtu));
}

TEST(Rules, Rule17_ALostEndComesBackInOneGo) {
  Pair pair;
  pair.post(SendOp::kRead, 1, pair.at(0, kMtu));
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);  // the round trip is known
  pair.world.impair(0, "rx drop first 64 kind read-response");
  pair.post(SendOp::kRead, 2, pair.at(0, 64 * kMtu));
  const TimeNs start = pair.world.now();
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  EXPECT_LT(pair.world.now() - start, 10 * kMillisecond);
}

TEST(Rules, Rule27_SmallPeerWindow) {
  WorldSettings settings;
  settings.windows = {1024, 32};
  Pair pair({}, settings);
  pair.post(SendOp::kWrite, 1, pair.at(0, 256 * kMtu));
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  EXPECT_TRUE(equal(pair.local, 0, pair.remote, 0, 256 * kMtu));
  // Until the first ACK 128 are assumed; later nothing beyond the window is sent.
  EXPECT_LE(pair.far_counter(Counter::out_of_window), 3u * 128);
}

TEST(Rules, Rule1_PsnWrapsInAllSpaces) {
  QpSettings qp;
  qp.psn = 0xfffffe;
  Pair pair(qp);
  pair.world.impair(1, "rx drop 5%; reorder 5% distance 5", 3);
  pair.post(SendOp::kWrite, 1, pair.at(0, 64 * kMtu));
  pair.post(SendOp::kRead, 2, pair.at(512 * 1024, 64 * kMtu));
  EXPECT_EQ(pair.sent(2).size(), 2u);
  EXPECT_TRUE(equal(pair.local, 0, pair.remote, 0, 64 * kMtu));
  EXPECT_TRUE(equal(pair.local, 512 * 1024, pair.remote, 0, 64 * kMtu));
}

// For queue pairs that no Pair has connected.
int post_one(Endpoint& end, SendOp op, const Sge& sge, uint64_t remote_va, uint32_t rkey) {
  driver::SendRequest request;
  request.op = op;
  request.signalled = true;
  request.sges = {&sge, 1};
  request.remote_va = remote_va;
  request.rkey = rkey;
  return end.post_send(request);
}

TEST(Rules, Rule1_AQpInRtrAnswers) {
  WorldSettings settings;
  World world(settings);
  auto near = world.make_endpoint(0), far = world.make_endpoint(1);
  Memory local(kMtu), remote(kMtu, 7);
  const uint32_t lkey = near->host->add_mr(local), rkey = far->host->add_mr(remote);
  world.connect(*near, *far, /*b_to_rts=*/false);
  ASSERT_EQ(post_one(*near, SendOp::kRead, {local.address(), 64, lkey}, remote.address(), rkey), 0);
  EXPECT_TRUE(world.run_until([&] { return !near->send_cq->empty(); }, kSecond));
  EXPECT_EQ(local.data()[63], 7);
  ASSERT_FALSE(far->host->events.empty());
  EXPECT_EQ(far->host->events[0].event, driver::AsyncEvent::kCommEst);
}

TEST(Rules, Rule29_ALateModifyCostsOneTimeout) {
  World world({});
  auto near = world.make_endpoint(0), far = world.make_endpoint(1);
  Memory local(kMtu, 9), remote(kMtu);
  const uint32_t lkey = near->host->add_mr(local), rkey = far->host->add_mr(remote);
  world.to_rtr(*near, *far);
  world.to_rts(*near);
  ASSERT_EQ(post_one(*near, SendOp::kWrite, {local.address(), 64, lkey}, remote.address(), rkey),
            0);
  world.run_for(10 * kMillisecond);
  world.to_rtr(*far, *near);
  EXPECT_TRUE(world.run_until([&] { return !near->send_cq->empty(); }, 100 * kMillisecond));
  EXPECT_EQ(remote.data()[63], 9);
}

TEST(Rules, Rule3_ResetAndReconnectStartAnew) {
  Pair pair;
  for (int round = 0; round < 3; ++round) {
    for (uint64_t i = 0; i < 20; ++i) ASSERT_EQ(pair.post_receive(i, 0, kMtu), 0);
    for (uint64_t i = 0; i < 10; ++i) pair.post(SendOp::kSend, i, pair.at(0, 100));
    EXPECT_EQ(pair.sent(10).size(), 10u);
    const auto received = pair.received(11, kMillisecond);
    EXPECT_EQ(received.size(), 10u) << "round " << round;
    for (Endpoint* end : {pair.near.get(), pair.far.get()}) pair.world.reset_to_init(*end);
    pair.world.run_for(kMillisecond);
    pair.world.connect(*pair.near, *pair.far);
  }
}

}  // namespace
}  // namespace hostnic::sim
