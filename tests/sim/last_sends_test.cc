// SPDX-License-Identifier: BSD-3-Clause
// What a program posts just before it ends a queue pair: who has rung an adapter has practically
// sent, so it arrives (docs/transport.md rule 28).
#include <gtest/gtest.h>
#include <rte_mbuf.h>

#include <tuple>

#include "tests/sim/pair.h"

namespace hostnic::sim {
namespace {

constexpr uint32_t kMtu = 4096;

enum class End { kErr, kReset, kDestroy };
enum class Wire { kBundles, kEthernet };
struct Service {
  const char* name;
  QpType type;
  Transport transport;
};
constexpr Service kServices[] = {{"RC", QpType::kRc, Transport::kHostnic},
                                 {"Roce", QpType::kRc, Transport::kRoce},
                                 {"UC", QpType::kUc, Transport::kHostnic},
                                 {"UD", QpType::kUd, Transport::kHostnic}};

class LastSends : public testing::TestWithParam<std::tuple<Service, End, Wire>> {
 protected:
  static WorldSettings settings() {
    const auto& [service, end, wire] = GetParam();
    WorldSettings settings;
    settings.transport = service.transport;
    settings.segmentation = wire == Wire::kBundles;
    settings.link.is_wire = wire == Wire::kBundles;
    return settings;
  }
  static QpSettings qp() {
    QpSettings settings;
    settings.type = std::get<Service>(GetParam()).type;
    return settings;
  }
  static bool is_datagram() { return qp().type == QpType::kUd; }

  // What creating an address handle waits for.
  static void find_peer(Pair& pair) {
    if (!is_datagram()) return;
    ASSERT_EQ(pair.near->host->driver().find_host(address_of(1)), 0);
  }
  static void send(Pair& pair, uint64_t wr_id, uint32_t bytes) {
    const Sge sge = pair.at(0, bytes);
    auto request = Pair::request(SendOp::kSend, wr_id, sge, 0, 0);
    request.ud = {.ip = address_of(pair.far->host->index()),
                  .qpn = pair.far->qpn(),
                  .qkey = pair.far->settings.qkey};
    ASSERT_EQ(pair.near->post_send(request), 0);
  }
  static void end(Pair& pair) {
    switch (std::get<End>(GetParam())) {
      case End::kErr:
        ASSERT_EQ(pair.world.modify_state(*pair.near, QpState::kErr), 0);
        break;
      case End::kReset:
        ASSERT_EQ(pair.world.modify_state(*pair.near, QpState::kReset), 0);
        break;
      case End::kDestroy:
        ASSERT_EQ(pair.near->host->driver().destroy_qp(pair.near->qp), 0);
        break;
    }
  }
};

TEST_P(LastSends, ArriveWhenTheQueuePairEndsAtOnce) {
  for (const uint32_t bytes : {8u, kMtu}) {
    Pair pair(qp(), settings());
    ASSERT_EQ(pair.post_receive(1, 0, 2 * kMtu), 0);
    find_peer(pair);
    send(pair, 1, bytes);
    end(pair);
    const auto received = pair.received(1, 50 * kMillisecond);
    ASSERT_EQ(received.size(), 1u) << bytes << " bytes";
    EXPECT_EQ(received[0].status, WcStatus::kSuccess);
  }
}

// More than the NIC is handed at a time, behind another queue pair's work: nothing of it is lost.
TEST_P(LastSends, ArriveThoughTheyWaitInLine) {
  Pair pair(qp(), settings());
  QpSettings other_qp;
  other_qp.caps.max_send_wr = 200;
  auto other = pair.world.make_endpoint(0, other_qp), peer = pair.world.make_endpoint(1, other_qp);
  pair.world.connect(*other, *peer);
  const uint32_t bytes = is_datagram() ? kMtu : 10 * kMtu;
  for (uint64_t i = 0; i < 20; ++i) ASSERT_EQ(pair.post_receive(i, i * 40'000, 11 * kMtu), 0);
  find_peer(pair);
  const Sge large = pair.at(0, 500'000);
  for (uint64_t i = 0; i < 4; ++i)
    ASSERT_EQ(other->post_send(
                  Pair::request(SendOp::kWrite, i, large, pair.remote.address(), pair.rkey, false)),
              0);
  for (uint64_t i = 0; i < 20; ++i) send(pair, i, bytes);
  end(pair);
  EXPECT_EQ(pair.received(20, 50 * kMillisecond).size(), 20u);
}

// The peer's memory may not be touched when they arrive, and the queue pair that sent them is gone
// when it may: nothing is sent again.
TEST_P(LastSends, ArriveThoughThePeerPutsThemOff) {
  for (const uint32_t bytes : {8u, 3 * kMtu}) {
    if (is_datagram() && bytes > kMtu) continue;
    Pair pair(qp(), settings());
    std::fill_n(pair.remote.data(), Pair::kBytes, uint8_t{0});
    const uint32_t key = pair.far->host->add_mr(pair.remote, kAllAccess, Reach::kMemFd);
    ASSERT_EQ(pair.post_receive_with(1, {pair.remote.address(), 4 * kMtu, key}), 0);
    find_peer(pair);
    auto& gate = pair.far->host->channel().header().memory_gate;
    gate.closed.store(1);
    send(pair, 1, bytes);
    end(pair);
    pair.world.run_for(200 * kMillisecond);
    gate.closed.store(0);
    const auto received = pair.received(1, kMillisecond);
    ASSERT_EQ(received.size(), 1u) << bytes << " bytes";
    EXPECT_EQ(received[0].status, WcStatus::kSuccess);
    EXPECT_TRUE(equal(pair.local, 0, pair.remote, is_datagram() ? 40 : 0, bytes));
  }
}

// What they are read from comes late, by threads that want a processor as well.
TEST_P(LastSends, ArriveThoughTheirMemoryComesLate) {
  Pair pair(qp(), settings());
  const uint32_t key = pair.near->host->add_mr(pair.local, kAllAccess, Reach::kLate);
  ASSERT_EQ(pair.post_receive(1, 0, 2 * kMtu), 0);
  find_peer(pair);
  const TimeNs filled_ns = pair.world.now() + 300 * kMillisecond;
  pair.world.before_nics = [&] {
    if (pair.world.now() >= filled_ns) pair.near->host->fill_all_slices();
  };
  const Sge sge{pair.local.address(), 8, key};
  auto request = Pair::request(SendOp::kSend, 1, sge, 0, 0);
  request.ud = {.ip = address_of(1), .qpn = pair.far->qpn(), .qkey = pair.far->settings.qkey};
  ASSERT_EQ(pair.near->post_send(request), 0);
  end(pair);
  EXPECT_EQ(pair.received(1, 50 * kMillisecond).size(), 1u);
}

std::string name_of(const testing::TestParamInfo<LastSends::ParamType>& info) {
  const auto& [service, end, wire] = info.param;
  const char* const way = end == End::kErr ? "Err" : end == End::kReset ? "Reset" : "Destroy";
  return fmt::format("{}{}{}", service.name, way,
                     wire == Wire::kBundles ? "OnTheWire" : "OnEthernet");
}

INSTANTIATE_TEST_SUITE_P(Ways, LastSends,
                         testing::Combine(testing::ValuesIn(kServices),
                                          testing::Values(End::kErr, End::kReset, End::kDestroy),
                                          testing::Values(Wire::kBundles, Wire::kEthernet)),
                         name_of);

// The NIC gets a turn now and then, and needs several for what it was handed.
TEST(LastSendsOfUc, ArriveThoughTheirNicGetsNoProcessor) {
  // All is handed over at once, or in two parts.
  for (const uint32_t bytes : {32u * 1024, 64u * 1024}) {
    const End how = bytes == 32 * 1024 ? End::kErr : End::kDestroy;
    WorldSettings settings;
    settings.link.is_wire = false;
    Pair pair({.type = QpType::kUc, .path_mtu_bytes = 256}, settings);
    ASSERT_EQ(pair.post_receive(1, 0, bytes), 0);
    pair.post(SendOp::kSend, 1, pair.at(0, bytes));
    bool had_turn = false;
    pair.world.before_nics = [&] {
      TimeNs& starved_until_ns = pair.near->host->nic_starved_until_ns;
      if (pair.world.now() < starved_until_ns) return;
      if (had_turn) starved_until_ns = pair.world.now() + 150 * kMillisecond;
      had_turn = !had_turn;
    };
    if (how == End::kErr)
      ASSERT_EQ(pair.world.modify_state(*pair.near, QpState::kErr), 0);
    else
      ASSERT_EQ(pair.near->host->driver().destroy_qp(pair.near->qp), 0);
    EXPECT_EQ(pair.received(1, 50 * kMillisecond).size(), 1u);
    EXPECT_TRUE(equal(pair.local, 0, pair.remote, 0, bytes));
  }
}

// What is acknowledged when the queue pair ends has succeeded; the rest is flushed, in order.
TEST(LastSendsOfRc, CompleteAsFarAsTheyAreAcknowledged) {
  Pair pair;
  ASSERT_EQ(pair.post_receive(1, 0, kMtu), 0);
  pair.post(SendOp::kSend, 1, pair.at(0, 8));
  pair.post(SendOp::kSend, 2, pair.at(0, 8));  // without a receive
  pair.world.run_nics_for(100 * kMicrosecond);
  ASSERT_EQ(pair.world.modify_state(*pair.near, QpState::kErr), 0);
  const auto sent = pair.sent(2);
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[0].status, WcStatus::kSuccess);
  EXPECT_EQ(sent[1].status, WcStatus::kWrFlushErr);
}

// A port that takes nothing holds nobody up for long, and a peer that says nothing even less: other
// queue pairs of a host that has died end sooner.
TEST(LastSendsOfRc, AreWaitedForATenthOfASecondAtMost) {
  for (const bool silent : {false, true}) {
    WorldSettings settings;
    settings.link.queue_packets = 8;
    Pair pair({}, settings);
    const auto next = pair.world.make_endpoint(0), its_peer = pair.world.make_endpoint(1);
    pair.world.connect(*next, *its_peer);
    if (silent) pair.world.cut(1, true);
    for (int i = 0; i < 8 && !silent; ++i) {
      rte_mbuf* packet = rte_pktmbuf_alloc(pair.world.pools().data);
      ASSERT_NE(packet, nullptr);
      ASSERT_NE(rte_pktmbuf_append(packet, 100), nullptr);
      pair.world.wire().inject(1, packet, 60 * kSecond);
    }
    for (uint64_t i = 0; i < 60; ++i) pair.post(SendOp::kWrite, i, pair.at(0, 128 * 1024));
    const TimeNs begin = pair.world.now();
    ASSERT_EQ(pair.world.modify_state(*pair.near, QpState::kErr), 0);
    const uint64_t took_ns = pair.world.now() - begin;
    // Nothing was taken: then packets that refer to memory are waited for as well (rule 32).
    EXPECT_LT(took_ns, (silent ? 150 : 750) * kMillisecond);
    EXPECT_EQ(pair.sent(60).size(), 60u);
    if (!silent) continue;
    const Sge sge = pair.at(0, 4096);
    ASSERT_EQ(
        next->post_send(Pair::request(SendOp::kWrite, 1, sge, pair.remote.address(0), pair.rkey)),
        0);
    const TimeNs next_begin = pair.world.now();
    ASSERT_EQ(pair.world.modify_state(*next, QpState::kErr), 0);
    EXPECT_LT(pair.world.now() - next_begin, 50 * kMillisecond);
  }
}

}  // namespace
}  // namespace hostnic::sim
