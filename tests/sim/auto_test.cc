// SPDX-License-Identifier: BSD-3-Clause
// Hosts that find out what others speak (docs/roce.md, "auto"): what is chosen, by lost questions
// and answers, too, and that both ends choose alike. Random networks are random_test.cc's.
#include <gtest/gtest.h>

#include <cstring>
#include <optional>

#include "dataplane/nic/management/peers.h"
#include "dataplane/nic/packet/packet.h"
#include "tests/sim/pair.h"

namespace hostnic::sim {
namespace {

constexpr uint32_t kMtu = 4096;

// A world of hosts that find out.
WorldSettings finding_out(uint32_t hosts = 2) {
  WorldSettings settings;
  settings.hosts = hosts;
  settings.transport = Transport::kAuto;
  return settings;
}

bool speaks_standard(const Endpoint& end) {
  const std::optional<QpView> qp = end.host->nic().views().qp(end.qpn());
  if (!qp) ADD_FAILURE() << fmt::format("no QP {:#x}", end.qpn());
  return qp && qp->transport == Transport::kRoce;
}

void expect_data_flows(Pair& pair) {
  pair.post(SendOp::kWrite, 1, pair.at(0, 10 * kMtu));
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  EXPECT_TRUE(equal(pair.local, 0, pair.remote, 0, 10 * kMtu));
}

TEST(Auto, TwoThatFindOutSpeakTheNativeTransport) {
  Pair pair({}, finding_out());
  EXPECT_LT(pair.world.now(), kSecond + kMillisecond) << "a round trip or two";
  EXPECT_FALSE(speaks_standard(*pair.near));
  EXPECT_FALSE(speaks_standard(*pair.far));
  expect_data_flows(pair);
  EXPECT_EQ(pair.world.sum(Counter::peer_questions_sent), 1u) << "who was asked knows";
}

TEST(Auto, OneThatFindsOutFollowsTheOther) {
  for (const bool roce : {false, true}) {
    for (const uint32_t finds_out : {0u, 1u}) {
      WorldSettings settings;
      settings.auto_hosts = {finds_out};
      // The other is told nothing of the first: what it speaks, it speaks to all.
      settings.transport = roce ? Transport::kRoce : Transport::kHostnic;
      Pair pair({}, settings);
      EXPECT_EQ(speaks_standard(*pair.near), roce);
      EXPECT_EQ(speaks_standard(*pair.far), roce);
      expect_data_flows(pair);
    }
  }
}

TEST(Auto, AllKindsInOneWorld) {
  WorldSettings settings = finding_out(4);
  settings.transport = Transport::kHostnic;
  settings.roce_hosts = {1};
  settings.auto_hosts = {2, 3};
  World world(settings);
  for (uint32_t a = 0; a < 4; ++a) {
    for (uint32_t b = 0; b < 4; ++b) {
      if (a == b) continue;
      auto near = world.make_endpoint(a), far = world.make_endpoint(b);
      world.connect(*near, *far);
      Memory memory(3 * kMtu), remote(3 * kMtu);
      std::memset(memory.data(), static_cast<int>(0x10 + 4 * a + b), memory.size());
      const uint32_t lkey = near->host->add_mr(memory), rkey = far->host->add_mr(remote);
      const Sge sge{memory.address(0), 3 * kMtu, lkey};
      near->post_send(Pair::request(SendOp::kWrite, 1, sge, remote.address(0), rkey));
      EXPECT_EQ(take_completions(world, *near, *near->send_cq, 1, kSecond).size(), 1u);
      EXPECT_TRUE(equal(memory, 0, remote, 0, 3 * kMtu)) << a << " to " << b;
      EXPECT_EQ(speaks_standard(*near), a == 1 || b == 1) << a << " to " << b;
      EXPECT_EQ(speaks_standard(*far), a == 1 || b == 1) << a << " to " << b;
      world.run_for(20 * kMillisecond);
    }
  }
  EXPECT_FALSE(world.failed()) << world.report();
}

// The last of the questions is as good as the first, and so is the last of the answers.
TEST(Auto, LostQuestionsAndAnswersAreRepeated) {
  for (const uint32_t loses : {0u, 1u}) {
    WorldSettings settings = finding_out();
    World world(settings);
    auto near = world.make_endpoint(0), far = world.make_endpoint(1);
    world.impair(loses, "rx drop first " + std::to_string(Peers::kAttempts - 1) + " kind send");
    world.connect(*near, *far);
    EXPECT_FALSE(speaks_standard(*near)) << loses;
    EXPECT_FALSE(speaks_standard(*far)) << loses;
    EXPECT_GE(world.now() - kSecond, 252 * kMillisecond);
    EXPECT_LT(world.now() - kSecond, Peers::kSilentAfterNs);
  }
}

TEST(Auto, WhoHearsNoQuestionSpeaksTheStandardAndSoDoWe) {
  WorldSettings settings = finding_out();
  settings.transport = Transport::kRoce;
  settings.auto_hosts = {0};
  World world(settings);
  world.impair(1, "rx drop 100% kind send");
  auto near = world.make_endpoint(0), far = world.make_endpoint(1);
  world.connect(*near, *far);
  EXPECT_GE(world.now() - kSecond, Peers::kSilentAfterNs);
  EXPECT_LT(world.now() - kSecond, Peers::kSilentAfterNs + 10 * kMillisecond);
  EXPECT_TRUE(speaks_standard(*near));
  // What is known by now takes no time.
  const TimeNs before = world.now();
  auto more = world.make_endpoint(0), there = world.make_endpoint(1);
  world.connect(*more, *there);
  EXPECT_LT(world.now() - before, kMillisecond);
}

// A host that was silent asks in its turn later, and is told what has been decided.
TEST(Auto, BothEndsFallBackTogether) {
  World world(finding_out());
  world.impair(1, "rx drop first 7 kind send");
  auto near = world.make_endpoint(0), far = world.make_endpoint(1);
  static_assert(Peers::kAttempts == 7);
  world.connect(*near, *far);
  EXPECT_TRUE(speaks_standard(*near));
  EXPECT_TRUE(speaks_standard(*far));
  Memory memory(kMtu), remote(kMtu);
  std::memset(memory.data(), 0x77, memory.size());
  const uint32_t lkey = near->host->add_mr(memory), rkey = far->host->add_mr(remote);
  const Sge sge{memory.address(0), kMtu, lkey};
  near->post_send(Pair::request(SendOp::kWrite, 1, sge, remote.address(0), rkey));
  EXPECT_EQ(take_completions(world, *near, *near->send_cq, 1, kSecond).size(), 1u);
  EXPECT_TRUE(equal(memory, 0, remote, 0, kMtu));
}

// A host that is another one now, or speaks something else: a connection fails, and the next one
// asks.
TEST(Auto, AConnectionThatFailsIsTheLastOfWhatWasKnown) {
  Pair pair({.timeout = 10, .retry_cnt = 1}, finding_out());
  EXPECT_EQ(pair.near_counter(Counter::peer_questions_sent), 1u);
  pair.world.cut(1, true);
  pair.post(SendOp::kWrite, 1, pair.at(0, 100));
  EXPECT_EQ(pair.status_of_one(), WcStatus::kRetryExcErr);
  pair.world.cut(1, false);
  pair.world.run_for(kMillisecond);
  pair.world.reset_to_init(*pair.near);
  pair.world.to_rtr(*pair.near, *pair.far);
  EXPECT_EQ(pair.near_counter(Counter::peer_questions_sent), 2u);
  // Another end is no reason.
  ASSERT_EQ(pair.world.modify_state(*pair.near, QpState::kErr), 0);
  pair.world.reset_to_init(*pair.near);
  pair.world.to_rtr(*pair.near, *pair.far);
  EXPECT_EQ(pair.near_counter(Counter::peer_questions_sent), 2u);
}

TEST(Auto, ANicIsNotAskedByItself) {
  WorldSettings settings = finding_out(1);
  Pair pair({}, settings);
  EXPECT_EQ(pair.world.sum(Counter::peer_questions_sent), 0u);
  EXPECT_FALSE(speaks_standard(*pair.near));
  expect_data_flows(pair);
}

TEST(Auto, UnreliableConnectionsAskDatagramsDoNot) {
  Pair datagrams({.type = QpType::kUd}, finding_out());
  EXPECT_EQ(datagrams.world.sum(Counter::peer_questions_sent), 0u);
  Pair pair({.type = QpType::kUc}, finding_out());
  EXPECT_EQ(pair.world.sum(Counter::peer_questions_sent), 1u);
  pair.post(SendOp::kWrite, 1, pair.at(0, 10 * kMtu));
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  pair.world.run_for(kMillisecond);
  EXPECT_TRUE(equal(pair.local, 0, pair.remote, 0, 10 * kMtu));
}

TEST(Auto, AnotherPolicyIsNoNativePeer) {
  WorldSettings settings = finding_out();
  settings.policies = {wire::Policy::kSelective, wire::Policy::kGoBackN};
  Pair pair({}, settings);
  EXPECT_TRUE(speaks_standard(*pair.near));
  EXPECT_TRUE(speaks_standard(*pair.far));
  expect_data_flows(pair);
}

// A stranger's answers, even with the right numbers, and answers nobody has asked for.
TEST(Auto, OthersAreNotBelieved) {
  WorldSettings settings = finding_out(3);
  settings.auto_hosts = {0};
  settings.transport = Transport::kRoce;
  World world(settings);
  std::optional<cm::PeerQuestion> asked;
  world.wire().set_tap([&](uint32_t, uint32_t, rte_mbuf* packet) {
    wire::Packet p;
    const std::span<const std::byte> frame(rte_pktmbuf_mtod(packet, const std::byte*),
                                           packet->pkt_len);
    if (frame.size() < cm::kMadBytes + 4 || asked) return;
    const auto mad = cm::parse(
        std::span<const std::byte, cm::kMadBytes>(frame.last(cm::kMadBytes).data(), cm::kMadBytes));
    if (!mad) return;
    asked = cm::question_in(*mad);
    if (!asked) return;
    // Host 2 answers in the place of host 1, which is asked.
    world.host(2).nic().send_management(
        address_of(2), address_of(0), 0,
        cm::build(cm::mad_of(
            cm::PeerAnswer{asked->transaction_id, asked->request_id,
                           cm::PeerFacts{wire::kNativeVersion, 0, Transport::kHostnic}})));
  });
  world.impair(1, "rx drop first 2 kind send");
  auto near = world.make_endpoint(0), far = world.make_endpoint(1);
  world.connect(*near, *far);
  EXPECT_TRUE(asked.has_value());
  EXPECT_TRUE(speaks_standard(*near));
  world.wire().set_tap(nullptr);
}

}  // namespace
}  // namespace hostnic::sim
