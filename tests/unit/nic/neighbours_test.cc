// SPDX-License-Identifier: BSD-3-Clause
// The ARP table: who is asked when, who is forgotten, and that nobody can fill it for others.
#include "dataplane/nic/egress/neighbours.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>

namespace hostnic {
namespace {

constexpr wire::MacAddress kMac{2, 0, 0, 0, 0, 1}, kOtherMac{2, 0, 0, 0, 0, 2};
constexpr uint32_t kClient = 1, kOther = 2;
constexpr uint64_t kMillisecond = 1'000'000, kSecond = 1'000'000'000;
constexpr Ipv4Address ip(uint32_t last) { return Ipv4Address{0x0a000000 + last}; }
// Addresses at which nobody is.
constexpr Ipv4Address dead(uint32_t last) { return Ipv4Address{0x0b000000 + last}; }

// Asks all who are due until `until_ns`, and learns the answers of those who exist: addresses
// 10.x.x.x. Counts requests to all.
struct Network {
  Neighbours& table;
  uint64_t now_ns = 0;
  uint32_t to_all = 0, alone = 0;
  std::map<Ipv4Address, uint32_t> asked{};

  void run_until(uint64_t until_ns) {
    for (; now_ns < until_ns; now_ns += kMillisecond) ask();
  }
  void ask() {
    for (auto due = table.due(now_ns); due.index != Neighbours::kNobody; due = table.due(now_ns)) {
      ++(due.to_all ? to_all : alone);
      const Ipv4Address address = table.entry(due.index).ip;
      ++asked[address];
      if (raw(address) >> 24 == 10) table.learn(address, kMac, now_ns);
    }
  }
};

int index_of(Neighbours& table, Ipv4Address address, uint64_t now_ns = 0) {
  return table.find_or_add(address, kClient, now_ns);
}

TEST(Neighbours, OneEntryPerAddress) {
  Neighbours table;
  const int first = index_of(table, ip(1)), second = index_of(table, ip(2));
  EXPECT_GT(first, Neighbours::kNobody);
  EXPECT_NE(first, second);
  EXPECT_EQ(index_of(table, ip(1)), first);
  EXPECT_EQ(table.entry(first).ip, ip(1));
  EXPECT_EQ(table.entry(first).generation, 0u) << "unresolved";
  EXPECT_EQ(table.size(), 2u);
}

TEST(Neighbours, AsksWithBackOffUntilAnswered) {
  Neighbours table;
  EXPECT_EQ(table.due(0).index, Neighbours::kNobody);
  EXPECT_EQ(table.next_deadline_ns(), UINT64_MAX);
  uint64_t now = kMillisecond;
  const int index = index_of(table, ip(1), now);
  uint64_t wait = Neighbours::kFirstRetryNs;
  for (int i = 0; i < 14; ++i) {
    const Neighbours::Request request = table.due(now);
    ASSERT_EQ(request.index, index) << "request " << i;
    EXPECT_TRUE(request.to_all);
    EXPECT_EQ(table.due(now).index, Neighbours::kNobody) << "one request at a time";
    EXPECT_EQ(table.next_deadline_ns(), now + wait);
    EXPECT_EQ(table.due(now + wait - 1).index, Neighbours::kNobody);
    now += wait;
    table.use(index, now);
    wait = std::min(2 * wait, Neighbours::kMaxRetryNs);
  }
  EXPECT_EQ(wait, Neighbours::kMaxRetryNs);
  table.learn(ip(1), kMac, now);
  EXPECT_EQ(table.due(now).index, Neighbours::kNobody);
  EXPECT_EQ(table.due(now + Neighbours::kRefreshNs - 1).index, Neighbours::kNobody);
  EXPECT_EQ(table.next_deadline_ns(), now + Neighbours::kRefreshNs);
  now += Neighbours::kRefreshNs;
  table.use(index, now);
  EXPECT_EQ(table.due(now).index, index) << "answers go stale";
  EXPECT_EQ(table.next_deadline_ns(), now + Neighbours::kFirstRetryNs) << "asking starts quickly";
}

// Somebody has answered in its place, or it has another MAC address now: until the next refresh
// would be long. It alone is asked at first, and then all.
TEST(Neighbours, WhoStopsAnsweringIsAskedForAgainSoon) {
  Neighbours table;
  const int index = index_of(table, ip(1)), other = index_of(table, ip(2));
  table.learn(ip(1), kMac, 0);
  table.learn(ip(2), kMac, 0);
  table.doubt(index, 1000);
  EXPECT_EQ(table.due(Neighbours::kDoubtNs - 1).index, Neighbours::kNobody)
      << "it has just been heard of";
  uint64_t now = Neighbours::kDoubtNs;
  for (uint32_t i = 0; i < 4; ++i) {
    const Neighbours::Request request = table.due(now);
    EXPECT_EQ(request.index, index);
    EXPECT_EQ(request.to_all, i >= Neighbours::kAskedAlone);
    EXPECT_EQ(table.due(now).index, Neighbours::kNobody) << "only the one that is in doubt";
    const uint64_t asked = table.next_deadline_ns();
    table.doubt(index, now + 1);
    EXPECT_EQ(table.next_deadline_ns(), asked) << "as often as packets are repeated";
    now = asked;
  }
  EXPECT_LT(now, Neighbours::kDoubtNs + 200 * kMillisecond);
  table.learn(ip(1), kOtherMac, 2 * Neighbours::kDoubtNs);
  EXPECT_EQ(table.entry(index).mac, kOtherMac);
  table.doubt(other, 2 * Neighbours::kDoubtNs);
  EXPECT_EQ(table.due(2 * Neighbours::kDoubtNs).index, other);
}

TEST(Neighbours, WhoHasAnotherMacAsksAll) {
  Neighbours table;
  const int index = index_of(table, ip(1)), unknown = index_of(table, ip(2));
  table.learn(ip(1), kMac, 0);
  const uint32_t before = table.entry(index).generation;
  const uint64_t later = 10 * Neighbours::kIdleNs;
  table.own_mac_changed(later);
  EXPECT_NE(table.entry(index).generation, before) << "flows are made anew";
  EXPECT_EQ(table.entry(index).mac, kMac);
  EXPECT_EQ(table.entry(unknown).generation, 0u);
  EXPECT_EQ(table.due(later).index, index) << "even if nobody used it for long";
}

TEST(Neighbours, AnAddressThatNeverAnsweredIsInNoDoubt) {
  Neighbours table;
  const int index = index_of(table, ip(1));
  ASSERT_EQ(table.due(0).index, index);
  const uint64_t asked = table.next_deadline_ns();
  table.doubt(index, 1);
  EXPECT_EQ(table.next_deadline_ns(), asked);
}

TEST(Neighbours, GenerationTellsThatTheMacChanged) {
  Neighbours table;
  const int index = index_of(table, ip(1));
  table.learn(ip(2), kMac, 0);
  EXPECT_EQ(table.entry(index).generation, 0u) << "somebody else's";
  table.learn(ip(1), kMac, 0);
  const uint32_t first = table.entry(index).generation;
  EXPECT_NE(first, 0u);
  EXPECT_EQ(table.use(index, 0), first);
  EXPECT_EQ(table.entry(index).mac, kMac);
  table.learn(ip(1), kMac, 10);
  EXPECT_EQ(table.entry(index).generation, first) << "the same again";
  table.learn(ip(1), kOtherMac, 20);
  EXPECT_NE(table.entry(index).generation, first);
  EXPECT_EQ(table.entry(index).mac, kOtherMac);
  const int other = index_of(table, ip(3));
  table.learn(ip(3), kMac, 20);
  EXPECT_NE(table.entry(other).generation, first) << "no two entries ever have the same";
}

TEST(Neighbours, UnaskedAnswersAreNotKept) {
  Neighbours table;
  for (uint32_t i = 0; i < 2 * Neighbours::kCapacity; ++i) table.learn(ip(i), kMac, 0);
  EXPECT_EQ(table.size(), 0u);
}

// An all-zero MAC is a MAC like any other to the table.
TEST(Neighbours, ZeroMacResolves) {
  Neighbours table;
  const int index = index_of(table, ip(1));
  table.learn(ip(1), wire::MacAddress{}, 0);
  EXPECT_NE(table.entry(index).generation, 0u);
}

// ---- nobody can fill it

TEST(Neighbours, WhoSendsToAThousandDeadAddressesKeepsNobodyOut) {
  Neighbours table;
  Network network{table};
  for (uint32_t i = 0; i < 20'000; ++i) {
    table.find_or_add(dead(i % 1100), kClient, network.now_ns);
    network.run_until((i + 1) * 200'000 / kMillisecond * kMillisecond);
    ASSERT_LE(table.size(), Neighbours::kUnresolvedEach);
  }
  const int index = table.find_or_add(ip(1), kOther, network.now_ns, true);
  ASSERT_GT(index, Neighbours::kNobody);
  network.run_until(network.now_ns + 20 * kMillisecond);
  EXPECT_NE(table.entry(index).generation, 0u) << "asked for before those that do not answer";
  // New connections of the same client find a place as well.
  const int own = table.find_or_add(ip(2), kClient, network.now_ns, true);
  ASSERT_GT(own, Neighbours::kNobody);
  network.run_until(network.now_ns + 20 * kMillisecond);
  EXPECT_NE(table.entry(own).generation, 0u);
}

TEST(Neighbours, ManyClientsWithDeadAddressesKeepNobodyOut) {
  Neighbours table;
  Network network{table};
  constexpr uint32_t kClients = 32;
  uint32_t last = 0;
  for (; network.now_ns < 3 * kSecond; network.run_until(network.now_ns + kMillisecond))
    for (uint32_t client = 0; client < kClients; ++client)
      table.find_or_add(dead(last++), 10 + client, network.now_ns);
  EXPECT_EQ(table.size(), Neighbours::kCapacity) << "full: no test";
  const int index = table.find_or_add(ip(1), kOther, network.now_ns, true);
  ASSERT_GT(index, Neighbours::kNobody);
  // In its turn among the others' first requests.
  network.run_until(network.now_ns + 5 * kSecond);
  EXPECT_NE(table.entry(index).generation, 0u);
}

TEST(Neighbours, RequestsToAllAreBounded) {
  Neighbours table;
  Network network{table};
  uint32_t last = 0;
  for (uint64_t second = 1; second <= 5; ++second) {
    const uint32_t before = network.to_all;
    for (; network.now_ns < second * kSecond; network.run_until(network.now_ns + kMillisecond))
      for (uint32_t client = 0; client < 8; ++client)
        table.find_or_add(dead(last++), client, network.now_ns);
    EXPECT_LE(network.to_all - before,
              Neighbours::kBroadcastsPerSecond + (second == 1 ? Neighbours::kBroadcastBurst : 1));
    EXPECT_GE(network.to_all - before, Neighbours::kBroadcastsPerSecond / 2) << "no test";
  }
}

// 1,100 addresses once had 900 requests a second, for ever.
TEST(Neighbours, WhoDoesNotAnswerIsAskedEverLess) {
  Neighbours table;
  Network network{table};
  const int index = index_of(table, dead(1));
  uint32_t in_ten_seconds = 0;
  for (int i = 1; i <= 6; ++i) {
    const uint32_t before = network.to_all;
    for (; network.now_ns < i * 10 * kSecond; network.run_until(network.now_ns + kMillisecond))
      table.use(index, network.now_ns);
    in_ten_seconds = network.to_all - before;
  }
  EXPECT_GE(in_ten_seconds, 1u);
  EXPECT_LE(in_ten_seconds, 2u);
}

TEST(Neighbours, WhatNobodyUsesIsForgottenIfItNeverAnswered) {
  Neighbours table;
  Network network{table};
  for (uint32_t i = 0; i < 100; ++i) index_of(table, dead(i));
  const int known = index_of(table, ip(1));
  network.run_until(2 * Neighbours::kIdleNs + Neighbours::kMaxRetryNs);
  EXPECT_EQ(table.size(), 1u);
  EXPECT_EQ(table.entry(known).ip, ip(1));
  const uint32_t requests = network.to_all + network.alone;
  network.run_until(network.now_ns + 10 * Neighbours::kRefreshNs);
  EXPECT_EQ(network.to_all + network.alone, requests) << "nor is an idle neighbour asked";
}

TEST(Neighbours, IdleEntriesMakeRoomAndThoseInUseStay) {
  Neighbours table;
  Network network{table};
  for (uint32_t i = 0; i < Neighbours::kCapacity; ++i) {
    ASSERT_GT(table.find_or_add(ip(i), i / 100, network.now_ns), Neighbours::kNobody) << i;
    network.run_until(network.now_ns + 2 * kMillisecond);
  }
  EXPECT_EQ(table.find_or_add(ip(5000), kOther, network.now_ns, true), Neighbours::kFull);
  const uint64_t end = 2 * Neighbours::kIdleNs;
  for (; network.now_ns < end; network.run_until(network.now_ns + 100 * kMillisecond))
    for (int index = 101; index <= 200; ++index) table.use(index, network.now_ns);
  std::map<int, uint32_t> generations;
  for (int index = 101; index <= 200; ++index) generations[index] = table.entry(index).generation;
  for (uint32_t i = 0; i < Neighbours::kCapacity - 100; ++i) {
    ASSERT_GT(table.find_or_add(ip(5000 + i), i / 100, network.now_ns, true), Neighbours::kNobody);
    network.run_until(network.now_ns + 2 * kMillisecond);
  }
  EXPECT_EQ(table.find_or_add(ip(9000), kOther, network.now_ns, true), Neighbours::kFull);
  for (const auto& [index, generation] : generations)
    EXPECT_EQ(table.entry(index).generation, generation) << "in use";
}

TEST(Neighbours, OneClientDoesNotGetAllPlaces) {
  Neighbours table;
  Network network{table};
  for (uint32_t i = 0; i < Neighbours::kCapacity; ++i) {
    table.find_or_add(ip(i), kClient, network.now_ns, true);
    network.run_until(network.now_ns + 2 * kMillisecond);
  }
  EXPECT_EQ(table.size(), Neighbours::kEntriesEach);
  EXPECT_GT(table.find_or_add(ip(5000), kOther, network.now_ns), Neighbours::kNobody);
}

// Nor does one user, however many devices his programs have, and all such users leave a part.
TEST(Neighbours, OneUserDoesNotGetAllPlacesByManyDevices) {
  Neighbours table;
  Network network{table};
  constexpr uint32_t kUser = 1000, kLastUser = 1003;
  const auto use_all = [&](uint32_t user) {
    for (uint32_t i = 0; i < Neighbours::kCapacity; ++i) {
      const uint32_t name = Neighbours::name_of(100 + i, user);
      table.find_or_add(ip(user << 12 | i), name, network.now_ns, true);
      network.run_until(network.now_ns + 2 * kMillisecond);
    }
  };
  use_all(kUser);
  EXPECT_EQ(table.size(), Neighbours::kEntriesEach);
  const uint32_t of_another = Neighbours::name_of(1, kUser + 1);
  EXPECT_GT(table.find_or_add(ip(5), of_another, network.now_ns), Neighbours::kNobody);
  const uint64_t began_ns = network.now_ns;
  for (uint32_t user = kUser + 1; user <= kLastUser; ++user) use_all(user);
  ASSERT_LT(network.now_ns - began_ns, 2 * Neighbours::kIdleNs) << "they make room: no test";
  EXPECT_LE(table.size(), Neighbours::kEntriesOfUsers);
  EXPECT_GT(table.find_or_add(ip(6), kClient, network.now_ns, true), Neighbours::kNobody)
      << "for hostnicd's own user and root";
}

// A place that was another address's has another generation, before and after it is answered.
TEST(Neighbours, WhoeverRefersToAPlaceNoticesThatItIsAnothers) {
  Neighbours table;
  Network network{table};
  for (uint32_t i = 0; i < Neighbours::kCapacity; ++i) {
    table.find_or_add(ip(i), i / 100, network.now_ns);
    network.run_until(network.now_ns + 2 * kMillisecond);
  }
  network.run_until(network.now_ns + Neighbours::kIdleNs);
  const uint64_t now = network.now_ns;
  const int place = table.find_or_add(ip(5000), kOther, now, true);
  ASSERT_GT(place, Neighbours::kNobody);
  EXPECT_EQ(table.entry(place).ip, ip(5000));
  EXPECT_EQ(table.use(place, now), 0u);
  network.ask();
  EXPECT_GT(table.use(place, now), Neighbours::kCapacity);
}

TEST(Neighbours, AConnectionHastensTheNextRequest) {
  Neighbours table;
  Network network{table};
  const int index = index_of(table, dead(1));
  for (; network.now_ns < 32 * kSecond; network.run_until(network.now_ns + kSecond))
    table.use(index, network.now_ns);
  const uint64_t asked = table.entry(index).asked_ns;
  ASSERT_GT(table.entry(index).next_request_ns, network.now_ns + 3 * kSecond) << "no test";
  EXPECT_EQ(table.find_or_add(dead(1), kOther, network.now_ns, true), index);
  EXPECT_LE(table.next_deadline_ns(), std::max(network.now_ns, asked + kSecond));
}

}  // namespace
}  // namespace hostnic
