// SPDX-License-Identifier: BSD-3-Clause
// Rules of the verbs that do not depend on the transport, each with all that have it
// (docs/architecture.md, "Rules of the verbs"). Shares: fairness_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <string>
#include <vector>

#include "tests/sim/pair.h"

namespace hostnic::sim {
namespace {

using driver::AsyncEvent;

constexpr uint32_t kMtu = 4096, kBadKey = 0x7777777;

struct Speech {
  const char* name;
  Transport transport;
  QpType type;
};
void PrintTo(const Speech& speech, std::ostream* out) { *out << speech.name; }
constexpr Speech kNative{"Hostnic", Transport::kHostnic, QpType::kRc};
constexpr Speech kRoce{"Roce", Transport::kRoce, QpType::kRc};
constexpr Speech kUc{"Uc", Transport::kHostnic, QpType::kUc};

class VerbRules : public testing::TestWithParam<Speech> {
 protected:
  static QpSettings qp() {
    QpSettings settings;
    settings.type = GetParam().type;
    return settings;
  }
  static WorldSettings world() {
    WorldSettings settings;
    settings.transport = GetParam().transport;
    return settings;
  }
  static bool reliable() { return GetParam().type == QpType::kRc; }
  static bool raised(const Endpoint& end, AsyncEvent event) {
    return std::ranges::any_of(end.host->events, [&](const Event& e) { return e.event == event; });
  }
  // The connection has ended with this status at its requester.
  static void expect_ended(Pair& pair, WcStatus status) {
    EXPECT_EQ(pair.status_of_one(), status);
    pair.world.run_for(kMillisecond);
    EXPECT_EQ(pair.near->state(), QpState::kErr);
    EXPECT_EQ(pair.far->state(), QpState::kErr);
  }
  // It has, and the other end's program has been told by an event.
  static void expect_ended(Pair& pair, WcStatus status, AsyncEvent event) {
    expect_ended(pair, status);
    EXPECT_TRUE(raised(*pair.far, event));
  }
  // The request was dropped, which only the counter says.
  static void expect_dropped(Pair& pair, Counter counter) {
    EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
    pair.world.run_for(kMillisecond);
    EXPECT_EQ(pair.far_counter(counter), 1u);
    EXPECT_EQ(pair.far->state(), QpState::kRts);
    EXPECT_TRUE(pair.far->host->events.empty());
  }
  static WcStatus status_of_receive(Pair& pair) {
    const auto received = pair.received(1, kMillisecond);
    EXPECT_EQ(received.size(), 1u);
    return received.empty() ? WcStatus::kGeneralErr : received[0].status;
  }

  Pair pair_{qp(), world()};
};
class ReliableVerbRules : public VerbRules {};

TEST_P(VerbRules, AMessageNeedsAReceive) {
  for (const SendOp op : {SendOp::kSend, SendOp::kWriteImm}) {
    const uint64_t refused =
        pair_.far_counter(reliable() ? Counter::rnr_nak_sent : Counter::rx_no_receive);
    pair_.post(op, 1, pair_.at(0, 100), 8 * kMtu);
    if (reliable()) {
      pair_.world.run_for(100 * kMicrosecond);
      EXPECT_EQ(pair_.far_counter(Counter::rnr_nak_sent), refused + 1);
      pair_.post_receive(1, 0, kMtu);
      EXPECT_EQ(pair_.status_of_one(), WcStatus::kSuccess);
      EXPECT_EQ(status_of_receive(pair_), WcStatus::kSuccess);
    } else {
      EXPECT_EQ(pair_.status_of_one(), WcStatus::kSuccess);
      pair_.world.run_for(kMillisecond);
      EXPECT_EQ(pair_.far_counter(Counter::rx_no_receive), refused + 1);
    }
  }
}

TEST_P(VerbRules, AMessageFitsItsReceive) {
  for (const uint32_t bytes : {101u, 3 * kMtu}) {
    Pair pair(qp(), world());
    pair.post_receive(5, 0, 100);
    pair.post(SendOp::kSend, 1, pair.at(0, bytes));
    if (reliable()) {
      expect_ended(pair, WcStatus::kRemInvReqErr);
      EXPECT_EQ(status_of_receive(pair), WcStatus::kLocLenErr);
    } else {
      expect_dropped(pair, Counter::rx_too_long);
      pair.post(SendOp::kSend, 2, pair.at(0, 100));
      EXPECT_EQ(status_of_receive(pair), WcStatus::kSuccess) << "it is still posted";
    }
    EXPECT_TRUE(equal(pair.remote, 100, Memory(Pair::kBytes), 100, Pair::kBytes - 100));
  }
}

TEST_P(VerbRules, AReceivesMemoryIsItsProgramsFault) {
  pair_.post_receive_with(5, {pair_.remote.address(), 100, kBadKey});
  pair_.post(SendOp::kSend, 1, pair_.at(0, 100));
  EXPECT_EQ(status_of_receive(pair_), WcStatus::kLocProtErr);
  EXPECT_EQ(pair_.status_of_one(), reliable() ? WcStatus::kRemOpErr : WcStatus::kSuccess);
  EXPECT_EQ(pair_.far->state(), QpState::kErr);
}

TEST_P(VerbRules, AKeyReachesWhatItIsFor) {
  struct Target {
    uint64_t va;
    uint32_t key;
  };
  const auto targets = [](const Pair& pair) {
    return std::array{Target{pair.remote.address(), kBadKey},
                      Target{pair.remote.address(Pair::kBytes - 7), pair.rkey},
                      Target{~uint64_t{7}, pair.rkey}};
  };
  for (const SendOp op : {SendOp::kWrite, SendOp::kRead, SendOp::kFetchAdd}) {
    if (op != SendOp::kWrite && !reliable()) continue;  // the driver does not take it
    for (size_t i = 0; i < targets(pair_).size(); ++i) {
      Pair pair(qp(), world());
      const Target target = targets(pair)[i];
      if (op == SendOp::kFetchAdd && target.va % 8 != 0) continue;
      ASSERT_EQ(pair.post_to(op, 1, pair.at(0, 8), target.va, target.key), 0);
      if (reliable())
        expect_ended(pair, WcStatus::kRemAccessErr, AsyncEvent::kQpAccessErr);
      else
        expect_dropped(pair, Counter::uc_access_refused);
    }
  }
}

TEST_P(VerbRules, AWriteWithImmediateDataAndAWrongKeyEndsItsReceive) {
  pair_.post_receive(5, 0, 100);
  pair_.post_to(SendOp::kWriteImm, 1, pair_.at(0, 8), pair_.remote.address(), kBadKey);
  if (reliable()) {
    expect_ended(pair_, WcStatus::kRemAccessErr, AsyncEvent::kQpAccessErr);
    EXPECT_EQ(status_of_receive(pair_), WcStatus::kLocAccessErr);
  } else {
    expect_dropped(pair_, Counter::uc_access_refused);
    EXPECT_TRUE(pair_.received(1, kMillisecond).empty());
  }
}

TEST_P(VerbRules, AQueuePairTakesWhatItHasTheRightFor) {
  QpSettings settings = qp();
  settings.access = kAccessLocalWrite;
  for (const SendOp op : {SendOp::kWrite, SendOp::kRead, SendOp::kFetchAdd}) {
    if (op != SendOp::kWrite && !reliable()) continue;
    Pair pair(settings, world());
    ASSERT_EQ(pair.post(op, 1, pair.at(0, 8)), 0);
    if (reliable())
      expect_ended(pair, WcStatus::kRemInvReqErr, AsyncEvent::kQpReqErr);
    else
      expect_dropped(pair, Counter::uc_access_refused);
  }
}

TEST_P(VerbRules, AMessageHasAGibibyteAtMost) {
  Sge sge = pair_.at(0, kMaxMessageBytes + 1);
  for (const SendOp op : {SendOp::kSend, SendOp::kWrite, SendOp::kRead}) {
    if (op == SendOp::kRead && !reliable()) continue;
    EXPECT_EQ(pair_.post(op, 1, sge), EINVAL);
  }
  EXPECT_EQ(pair_.near_counter(Counter::tx_packets), 0u);
}

TEST_P(VerbRules, APacketFitsThePathMtu) {
  // The ends disagree: the peer's path MTU is half of the requester's.
  World world(VerbRules::world());
  QpSettings small = qp();
  small.path_mtu_bytes = kMtu / 2;
  auto near = world.make_endpoint(0, qp()), far = world.make_endpoint(1, small);
  Memory local(2 * kMtu, 5), remote(2 * kMtu);
  const uint32_t lkey = near->host->add_mr(local), rkey = far->host->add_mr(remote);
  world.connect(*near, *far);
  const Sge sge{local.address(), 2 * kMtu, lkey};
  ASSERT_EQ(near->post_send(Pair::request(SendOp::kWrite, 1, sge, remote.address(), rkey)), 0);
  const auto done = take_completions(world, *near, *near->send_cq, 1, Pair::kLimitNs);
  ASSERT_EQ(done.size(), 1u);
  world.run_for(kMillisecond);
  EXPECT_EQ(done[0].status, reliable() ? WcStatus::kRemInvReqErr : WcStatus::kSuccess);
  EXPECT_EQ(raised(*far, AsyncEvent::kQpReqErr), reliable());
  EXPECT_TRUE(equal(remote, 0, Memory(2 * kMtu), 0, 2 * kMtu)) << "nothing is placed";
}

TEST_P(VerbRules, AReceiveSaysHowItsMessageCame) {
  struct Row {
    SendOp op;
    uint32_t bytes, flags;
    driver::WcOpcode opcode;
  };
  const Row rows[] = {
      {SendOp::kSend, 2 * kMtu, 0, driver::WcOpcode::kRecv},
      {SendOp::kSendImm, 100, driver::kWcWithImm, driver::WcOpcode::kRecv},
      {SendOp::kWriteImm, 3 * kMtu, driver::kWcWithImm, driver::WcOpcode::kRecvRdmaWithImm}};
  for (const Row& row : rows) {
    pair_.post_receive(5, 0, 4 * kMtu);
    ASSERT_EQ(pair_.post(row.op, 1, pair_.at(0, row.bytes), 8 * kMtu), 0);
    const auto received = pair_.received(1);
    ASSERT_EQ(received.size(), 1u);
    EXPECT_EQ(received[0].status, WcStatus::kSuccess);
    EXPECT_EQ(received[0].opcode, row.opcode);
    EXPECT_EQ(received[0].flags, row.flags);
    EXPECT_EQ(received[0].byte_len, row.bytes);
    EXPECT_EQ(received[0].imm_data, row.flags == 0 ? 0 : 0x1234u);
    EXPECT_EQ(pair_.status_of_one(), WcStatus::kSuccess);
  }
}

TEST_P(VerbRules, AConnectionIsEstablishedByItsFirstPacket) {
  World world(VerbRules::world());
  auto near = world.make_endpoint(0, qp()), far = world.make_endpoint(1, qp());
  Memory local(kMtu, 5), remote(kMtu);
  const uint32_t lkey = near->host->add_mr(local), rkey = far->host->add_mr(remote);
  world.connect(*near, *far, /*b_to_rts=*/false);
  const Sge sge{local.address(), 64, lkey};
  for (uint64_t i = 0; i < 3; ++i)
    ASSERT_EQ(near->post_send(Pair::request(SendOp::kWrite, i, sge, remote.address(), rkey)), 0);
  world.run_for(kMillisecond);
  EXPECT_EQ(remote.data()[63], 5);
  ASSERT_EQ(far->host->events.size(), 1u) << "once";
  EXPECT_EQ(far->host->events[0].event, AsyncEvent::kCommEst);
  EXPECT_TRUE(near->host->events.empty());
}

TEST_P(ReliableVerbRules, AtomicsAreAligned) {
  for (const SendOp op : {SendOp::kFetchAdd, SendOp::kCompareSwap}) {
    Pair pair(qp(), world());
    pair.post(op, 1, pair.at(0, 8), 4);
    expect_ended(pair, WcStatus::kRemInvReqErr, AsyncEvent::kQpReqErr);
    EXPECT_EQ(pair.far_counter(Counter::atomics_executed), 0u);
    EXPECT_TRUE(equal(pair.remote, 0, Memory(64), 0, 64));
  }
}

TEST_P(ReliableVerbRules, AReadsMemoryIsLookedAtBeforeItIsPromised) {
  // All of the READ but its last byte could be read.
  pair_.post(SendOp::kRead, 1, pair_.at(0, 16 * kMtu), Pair::kBytes - 16 * kMtu + 1);
  const std::vector before(pair_.local.data(), pair_.local.data() + Pair::kBytes);
  expect_ended(pair_, WcStatus::kRemAccessErr, AsyncEvent::kQpAccessErr);
  EXPECT_TRUE(std::ranges::equal(before, std::span(pair_.local.data(), Pair::kBytes)))
      << "no answer has left";
}

TEST_P(ReliableVerbRules, ASendInvalidatesAWindowAndNothingElse) {
  for (const bool is_window : {true, false}) {
    Pair pair(qp(), world(), kAllAccess | kAccessMwBind);
    const auto window = pair.far->host->driver().create_window(1, WindowType::k2);
    ASSERT_TRUE(window);
    driver::SendRequest bind =
        Pair::request(SendOp::kBindWindow, 1, {}, pair.remote.address(), *window);
    bind.binding = {kMtu, pair.rkey, kAccessRemoteWrite};
    ASSERT_EQ(pair.far->post_send(bind), 0);
    ASSERT_EQ(pair.take(*pair.far, *pair.far->send_cq, 1).size(), 1u);
    pair.post_receive(5, 8 * kMtu, 100);
    const Sge sge = pair.at(0, 100);
    driver::SendRequest send = Pair::request(SendOp::kSendInv, 2, sge, 0, 0);
    send.imm_data = is_window ? *window : pair.rkey;
    ASSERT_EQ(pair.near->post_send(send), 0);
    if (is_window) {
      EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
      EXPECT_EQ(status_of_receive(pair), WcStatus::kSuccess);
    } else {
      expect_ended(pair, WcStatus::kRemAccessErr, AsyncEvent::kQpAccessErr);
      EXPECT_EQ(status_of_receive(pair), WcStatus::kLocAccessErr);
    }
    EXPECT_EQ(pair.world.mrs().has_windows(pair.rkey, 2), !is_window);
  }
}

TEST_P(ReliableVerbRules, APeerHasAsManyReadsOutstandingAsWereAgreedUpon) {
  QpSettings settings = qp();
  settings.max_rd_atomic = 16;
  settings.max_dest_rd_atomic = 2;
  WorldSettings slow = world();
  slow.link.gigabits = 1;
  slow.link.queue_packets = 16;
  slow.link.queue_is_receivers = false;  // answers wait at their NIC
  Pair pair(settings, slow);
  for (uint64_t i = 0; i < 16; ++i)
    ASSERT_EQ(pair.post(SendOp::kRead, i, pair.at(0, 64 * 1024), 0), 0);
  const auto done = pair.sent(16);
  ASSERT_EQ(done.size(), 16u);
  EXPECT_EQ(std::ranges::count(done, WcStatus::kRemInvReqErr, &driver::Completion::status), 1);
  EXPECT_TRUE(raised(*pair.far, AsyncEvent::kQpReqErr));
}

const auto name_of = [](const testing::TestParamInfo<Speech>& info) {
  return std::string(info.param.name);
};
INSTANTIATE_TEST_SUITE_P(All, VerbRules, testing::Values(kNative, kRoce, kUc), name_of);
INSTANTIATE_TEST_SUITE_P(All, ReliableVerbRules, testing::Values(kNative, kRoce), name_of);

}  // namespace
}  // namespace hostnic::sim
