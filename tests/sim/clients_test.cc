// SPDX-License-Identifier: BSD-3-Clause
// One NIC and many clients, most of which do nothing: they cost little in each turn, and are heard
// when they do something.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "tests/sim/pair.h"
#include "verbs-shim/driver/segment_map.h"

namespace hostnic::sim {
namespace {

constexpr uint32_t kClients = 300;
// The NIC looks at so many idle ones in a turn, and always at so many clients.
constexpr uint32_t kLookedAt = 8, kAlwaysServed = 16;

class ManyClients : public testing::Test {
 protected:
  struct Client {
    std::unique_ptr<ClientChannel> channel;
    driver::SegmentMap map;  // the other ends
  };

  ManyClients() : pair_(QpSettings{}) {
    for (uint32_t i = 0; i < kClients; ++i) {
      auto made = ClientChannel::create({.client_id = 1000 + i,
                                         .max_qps = 2,
                                         .arena_bytes = 1 << 16,
                                         .program = "idle",
                                         .pid = 0});
      EXPECT_TRUE(made);
      auto& client = *clients_.emplace_back(std::make_unique<Client>());
      client.channel = std::move(*made);
      EXPECT_EQ(client.map.use(client.channel->memory()), 0);
      EXPECT_EQ(nic().attach(client.channel.get()), 0);
    }
    for (int i = 0; i < 4000; ++i) turn();  // all are idle for long
  }
  ~ManyClients() override {
    for (const auto& client : clients_) nic().detach(client->channel.get());
  }

  Nic& nic() { return pair_.world.host(0).nic(); }
  void turn() {
    pair_.world.poll_nics();
    pair_.world.advance(1000);
  }
  // An answer is all that matters.
  static void ask(Client& client) {
    Command command{};
    command.kind = CommandKind::kDestroyQp;
    command.destroy_qp.qpn = 0x10020;
    ASSERT_TRUE(client.map.commands.enqueue_bulk(&command, 1));
  }
  static bool answered(Client& client) {
    CommandResponse response;
    return client.map.responses.dequeue_burst(&response, 1) == 1;
  }
  uint64_t last_turn_ns(uint32_t client) {
    return clients_[client]->channel->header().nic_turn_ns.load();
  }
  void write_something() {
    ASSERT_EQ(pair_.post(SendOp::kWrite, 7, pair_.at(0, 5000)), 0);
    const auto done = pair_.sent(1);
    ASSERT_EQ(done.size(), 1u);
    EXPECT_EQ(done[0].status, driver::WcStatus::kSuccess);
  }

  Pair pair_;
  std::vector<std::unique_ptr<Client>> clients_;
};

TEST_F(ManyClients, IdleOnesAreNotLookedAtInEachTurn) {
  std::vector<uint64_t> before(kClients);
  for (uint32_t i = 0; i < kClients; ++i) before[i] = last_turn_ns(i);
  turn();
  uint32_t looked_at = 0;
  for (uint32_t i = 0; i < kClients; ++i) looked_at += last_turn_ns(i) != before[i] ? 1 : 0;
  EXPECT_LE(looked_at, kLookedAt + kAlwaysServed);
  for (uint32_t i = 0; i < kClients / kLookedAt; ++i) turn();
  for (uint32_t i = 0; i < kClients; ++i)
    EXPECT_NE(last_turn_ns(i), before[i]) << "client " << i << " is forgotten";
}

// By a NIC that never sleeps.
TEST_F(ManyClients, IdleOnesAreHeard) {
  for (uint32_t i = 0; i < kClients; i += 7) {
    ask(*clients_[i]);
    uint32_t turns = 0;
    bool done = false;
    while (!done && turns < 2 * kClients) {
      turn();
      ++turns;
      done = answered(*clients_[i]);
    }
    EXPECT_LE(turns, kClients / kLookedAt + 3) << "client " << i;
  }
}

TEST_F(ManyClients, AllAtOnceAreHeard) {
  for (int round = 0; round < 3; ++round) {
    for (auto& client : clients_) ask(*client);
    std::vector<bool> done(kClients, false);
    for (uint32_t turns = 0; turns < kClients; ++turns) {
      turn();
      for (uint32_t i = 0; i < kClients; ++i) done[i] = done[i] || answered(*clients_[i]);
    }
    EXPECT_EQ(std::count(done.begin(), done.end(), true), int{kClients});
    write_something();
  }
}

// Before it sleeps, it looks at all.
TEST_F(ManyClients, NoneIsLeftBehindBySleep) {
  EXPECT_FALSE(nic().work_waiting());
  ask(*clients_[211]);
  EXPECT_TRUE(nic().work_waiting());
  turn();
  EXPECT_TRUE(answered(*clients_[211]));
  EXPECT_FALSE(nic().work_waiting());
}

TEST_F(ManyClients, ThoseThatGoAndComeAreNotConfused) {
  for (uint32_t i = 0; i < kClients; i += 2) {
    nic().detach(clients_[i]->channel.get());
    if (i % 10 == 0) turn();
  }
  write_something();
  for (uint32_t i = 1; i < kClients; i += 2) ask(*clients_[i]);
  for (uint32_t i = 0; i < kClients; ++i) turn();
  for (uint32_t i = 1; i < kClients; i += 2) EXPECT_TRUE(answered(*clients_[i]));
  for (uint32_t i = 0; i < kClients; i += 2) ASSERT_EQ(nic().attach(clients_[i]->channel.get()), 0);
  write_something();
}

}  // namespace
}  // namespace hostnic::sim
