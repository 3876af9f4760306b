// SPDX-License-Identifier: BSD-3-Clause
// Shares and the line of clients, without a NIC.
#include "dataplane/nic/client/deficit_round_robin.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace hostnic {
namespace {

constexpr auto kQuantum = static_cast<uint32_t>(SendShare::kQuantumBytes);
constexpr auto kHeader = static_cast<uint32_t>(SendShare::kHeaderBytes);

struct Client {
  SendShare share;
  uint32_t payload_bytes = 1000;  // of a packet
  uint64_t waiting = UINT64_MAX;  // packets
  uint32_t port = 0;
  uint64_t bytes() const { return share.sent_bytes(); }
};

// Ports with so much room in each turn.
class DeficitRoundRobinTest : public testing::Test {
 protected:
  uint32_t turn(std::array<uint32_t, 2> room) {
    return round_robin_.turn(line_, [&](Client& client) {
      ClientTurn turn;
      while (client.waiting != 0 && room[client.port] != 0 && turn.done < kTxBudget &&
             !client.share.spent()) {
        client.share.charge(1, client.payload_bytes);
        --client.waiting;
        --room[client.port];
        ++turn.done;
      }
      turn.waits = client.waiting != 0;
      return turn;
    });
  }
  void turns(uint32_t count, std::array<uint32_t, 2> room) {
    for (uint32_t i = 0; i < count; ++i) turn(room);
  }
  std::vector<Client*> line_of(uint32_t count) {
    std::vector<Client*> line;
    for (uint32_t i = 0; i < count; ++i) line.push_back(&clients_[i]);
    return line;
  }

  std::array<Client, 8> clients_;
  std::vector<Client*> line_;
  DeficitRoundRobin round_robin_;
};

TEST_F(DeficitRoundRobinTest, FullPortIsSharedByBytes) {
  line_ = line_of(3);
  clients_[0].payload_bytes = 64;
  clients_[2].payload_bytes = 4096;
  // Whatever a turn has room for: as many packets as there are clients, fewer, more.
  for (const uint32_t room : {1u, 2u, 3u, 7u}) {
    std::array<uint64_t, 3> before;
    for (int i = 0; i < 3; ++i) before[i] = clients_[i].bytes();
    turns(60'000 / room, {room, 0});
    for (int i = 0; i < 3; ++i) {
      const uint64_t got = clients_[i].bytes() - before[i];
      const uint64_t sum = clients_[0].bytes() - before[0] + clients_[1].bytes() - before[1] +
                           clients_[2].bytes() - before[2];
      EXPECT_NEAR(static_cast<double>(got), static_cast<double>(sum) / 3, 2.0 * kQuantum)
          << "client " << i << " where a turn has room for " << room;
    }
  }
}

// With room for all, a turn is a client's packets or its quantum, whichever is used up first.
TEST_F(DeficitRoundRobinTest, TurnsAreSharedByPacketsAndBytes) {
  line_ = line_of(2);
  clients_[0].payload_bytes = 64;
  clients_[1].payload_bytes = 4096;
  turns(1000, {1000, 1000});
  const double most = 1000.0 * kTxBudget * (64 + kHeader);
  EXPECT_GT(static_cast<double>(clients_[0].bytes()), 0.9 * most);
  EXPECT_NEAR(static_cast<double>(clients_[1].bytes()), 1000.0 * kQuantum, 3.0 * kQuantum);
}

// Clients that wait for a port that takes nothing are in nobody's way, and others take turns still.
TEST_F(DeficitRoundRobinTest, StuckPortKeepsNobodyFromAnother) {
  line_ = line_of(4);
  clients_[1].port = clients_[2].port = clients_[3].port = 1;
  turns(30'000, {0, 1});
  EXPECT_EQ(clients_[0].bytes(), 0u);
  for (const int i : {1, 2, 3})
    EXPECT_NEAR(static_cast<double>(clients_[i].bytes()), 10'000.0 * (1000 + kHeader),
                2.0 * kQuantum)
        << "client " << i;
}

TEST_F(DeficitRoundRobinTest, WhoWaitsForNothingSavesNothing) {
  line_ = line_of(2);
  clients_[1].waiting = 0;
  turns(1000, {4, 0});
  const uint64_t before = clients_[0].bytes();
  clients_[1].waiting = UINT64_MAX;
  turns(1000, {4, 0});
  EXPECT_NEAR(static_cast<double>(clients_[1].bytes()),
              static_cast<double>(clients_[0].bytes() - before), 2.0 * kQuantum);
}

TEST_F(DeficitRoundRobinTest, SoleClientIsNotHeldBack) {
  line_ = line_of(4);
  for (const int i : {0, 1, 3}) clients_[i].waiting = 0;
  clients_[2].payload_bytes = 2 * kQuantum;
  for (int i = 0; i < 100; ++i) EXPECT_EQ(turn({1000, 0}), kTxBudget);
}

// A packet more than is left is too much for this turn, not for the next.
TEST_F(DeficitRoundRobinTest, WhatWasTakenTooMuchIsOwed) {
  line_ = line_of(2);
  clients_[0].payload_bytes = kQuantum * 3 / 4;
  turn({1, 0});  // in the first turn nobody has been seen to want anything
  turns(4000, {1000, 0});
  EXPECT_NEAR(static_cast<double>(clients_[0].bytes()), 4000.0 * kQuantum, 4.0 * kQuantum);
}

TEST(SendShare, RefusedWorkIsChargedButNotSent) {
  SendShare share;
  share.begin_turn(/*sole=*/false);
  uint32_t refused = 0;
  for (; !share.spent(); ++refused) share.charge_refused();
  EXPECT_EQ(refused, kTxBudget);
  EXPECT_EQ(share.sent_bytes(), 0u);
}

}  // namespace
}  // namespace hostnic
