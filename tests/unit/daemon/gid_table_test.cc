// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/network/gid_table.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace hostnic {
namespace {

const wire::MacAddress kMac = {0x02, 0x00, 0x0a, 0x00, 0x00, 0x01};

std::vector<Gid> gids(std::initializer_list<const char*> texts) {
  std::vector<Gid> all;
  for (const char* text : texts) all.push_back(parse_gid(text).value());
  return all;
}

Gid gid(const char* text) { return parse_gid(text).value(); }

// "v2 10.0.0.1 0", the last being the address that packets leave from, or - for none.
std::vector<std::string> lines(GidTable& table) {
  table.publish();
  std::vector<std::string> all;
  for (const GidEntry& entry : table.entries(kMac))
    all.push_back((entry.type == GidType::kRoceV2 ? "v2 " : "v1 ") + to_string(gid_in(entry.gid)) +
                  " " + (entry.usable != 0 ? std::to_string(entry.source_index) : "-"));
  return all;
}
using Lines = std::vector<std::string>;

// A table of these addresses, whose numbers are 1, 2, ...
struct TableOf : GidTable {
  TableOf(config::Gids layout, const std::vector<Gid>& addresses)
      : GidTable(layout, addresses[0], Ipv4Address{1}) {
    for (uint32_t i = 1; i < addresses.size(); ++i) add(addresses[i], Ipv4Address{i + 1});
  }
};
std::vector<std::string> lines(config::Gids layout, const std::vector<Gid>& addresses) {
  TableOf table(layout, addresses);
  return lines(table);
}

TEST(GidTable, HasTheAddressesInTheirOrder) {
  EXPECT_EQ(lines(config::Gids::kAuto, gids({"10.0.0.1", "fd00::1", "fe80::1"})),
            (Lines{"v2 10.0.0.1 0", "v2 fd00::1 1", "v2 fe80::1 2"}));
}

TEST(GidTable, AsMlx5BeginsWithTheLinkLocalAddress) {
  EXPECT_EQ(lines(config::Gids::kMlx5, gids({"10.0.0.1", "fd00::1", "fe80::1"})),
            (Lines{"v1 fe80::1 1", "v2 fe80::1 1", "v1 10.0.0.1 0", "v2 10.0.0.1 0", "v1 fd00::1 2",
                   "v2 fd00::1 2"}));
  EXPECT_EQ(lines(config::Gids::kMlx5, gids({"fe80::1", "fd00::1"})),
            (Lines{"v1 fe80::1 0", "v2 fe80::1 0", "v1 fd00::1 1", "v2 fd00::1 1"}));
}

TEST(GidTable, AsRxeBeginsWithTheLinkLocalAddressAndHasNoOtherType) {
  EXPECT_EQ(lines(config::Gids::kRxe, gids({"10.0.0.1", "fe80::1", "fd00::1"})),
            (Lines{"v2 fe80::1 1", "v2 10.0.0.1 0", "v2 fd00::1 2"}));
  EXPECT_EQ(lines(config::Gids::kRxe, gids({"10.0.0.1"})),
            (Lines{"v2 fe80::aff:fe00:1 -", "v2 10.0.0.1 0"}));
}

TEST(GidTable, OfLinkLocalAddressesAloneHidesTheOthers) {
  EXPECT_EQ(lines(config::Gids::kLinkLocal, gids({"10.0.0.1", "fe80::1", "fd00::1"})),
            (Lines{"v1 fe80::1 1", "v2 fe80::1 1"}));
}

// As https://github.com/NVIDIA/nccl/issues/1333 has it: 3, then 5.
TEST(GidTable, TheOwnAddressMovesToTheNextFreeEntries) {
  TableOf table(config::Gids::kMlx5, gids({"10.0.0.1", "fe80::1"}));
  table.move();
  EXPECT_EQ(table.moves(), 1u);
  EXPECT_EQ(lines(table), (Lines{"v1 fe80::1 1", "v2 fe80::1 1", "v1 :: -", "v2 :: -",
                                 "v1 10.0.0.1 0", "v2 10.0.0.1 0"}));
  table.move();
  EXPECT_EQ(lines(table)[7], "v2 10.0.0.1 0");
  for (int i = 0; i < 5; ++i) table.move();
  EXPECT_EQ(lines(table)[3], "v2 10.0.0.1 0") << "round and round";
}

TEST(GidTable, AnotherAddressIsThereWhereTheOwnOneWas) {
  TableOf table(config::Gids::kAuto, gids({"10.0.0.1", "fd00::1"}));
  table.move();
  EXPECT_EQ(lines(table), (Lines{"v2 fd00::1 1", "v2 10.0.0.1 0"}));
  TableOf one(config::Gids::kOne, gids({"10.0.0.1"}));
  one.move();
  EXPECT_EQ(lines(one), (Lines{"v2 10.0.0.1 0"}));
}

TEST(GidTable, AsMlx5HasIndex3WhereThereIsNoLinkLocalAddress) {
  EXPECT_EQ(
      lines(config::Gids::kMlx5, gids({"10.0.0.1"})),
      (Lines{"v1 fe80::aff:fe00:1 -", "v2 fe80::aff:fe00:1 -", "v1 10.0.0.1 0", "v2 10.0.0.1 0"}));
}

TEST(GidTable, AnAddressThatGoesLeavesZerosAndComesBackToItsPlace) {
  TableOf table(config::Gids::kAuto, gids({"10.0.0.1", "10.0.0.2", "10.0.0.3"}));
  table.remove(gid("10.0.0.2"));
  EXPECT_EQ(lines(table), (Lines{"v2 10.0.0.1 0", "v2 :: -", "v2 10.0.0.3 2"}));
  EXPECT_EQ(table.more_numbers(), (std::vector{Ipv4Address{}, Ipv4Address{3}}));
  EXPECT_EQ(table.add(gid("10.0.0.4"), Ipv4Address{4}), Ipv4Address{}) << "an unused place";
  EXPECT_EQ(lines(table), (Lines{"v2 10.0.0.1 0", "v2 :: -", "v2 10.0.0.3 2", "v2 10.0.0.4 3"}));
  EXPECT_EQ(table.add(gid("10.0.0.2"), Ipv4Address{2}), Ipv4Address{2});
  EXPECT_EQ(lines(table),
            (Lines{"v2 10.0.0.1 0", "v2 10.0.0.2 1", "v2 10.0.0.3 2", "v2 10.0.0.4 3"}));
}

TEST(GidTable, NothingIsShownBeforeItIsPublished) {
  TableOf table(config::Gids::kAuto, gids({"10.0.0.1"}));
  table.add(gid("10.0.0.2"), Ipv4Address{2});
  EXPECT_EQ(table.entries(kMac).size(), 1u);
  table.publish();
  EXPECT_EQ(table.entries(kMac).size(), 2u);
}

TEST(GidTable, WhatWentFirstIsUsedAgainFirstAndLast) {
  const Gid own = gid("10.0.0.1");
  const auto other = [](uint32_t i) { return gid_of(Ipv4Address{0x0a000100 + i}); };
  GidTable table(config::Gids::kAuto, own, Ipv4Address{1});
  for (uint32_t i = 1; i < kMaxGids; ++i)
    EXPECT_EQ(table.add(other(i), Ipv4Address{i}), Ipv4Address{});
  EXPECT_EQ(table.add(gid("fd00::1"), Ipv4Address{77}), std::nullopt) << "it is full";
  table.remove(other(5));
  table.remove(other(3));
  EXPECT_EQ(table.add(gid("fd00::1"), Ipv4Address{77}), Ipv4Address{5}) << "the first to go";
  EXPECT_EQ(table.add(gid("fd00::2"), Ipv4Address{78}), Ipv4Address{3});
  EXPECT_EQ(table.number_of(gid("fd00::2")), Ipv4Address{78});
  EXPECT_EQ(lines(table).size(), kMaxGids);
}

TEST(GidTable, AsMlx5KeepsTheFirstPlaceForALinkLocalAddress) {
  TableOf table(config::Gids::kMlx5, gids({"10.0.0.1", "10.0.0.2"}));
  EXPECT_EQ(lines(table)[0], "v1 fe80::aff:fe00:1 -");
  EXPECT_EQ(lines(table)[5], "v2 10.0.0.2 2");
  table.add(gid("fe80::1"), Ipv4Address{9});
  EXPECT_EQ(lines(table)[1], "v2 fe80::1 1");
  table.remove(gid("fe80::1"));
  EXPECT_EQ(lines(table)[1], "v2 :: -");
  table.add(gid("fe80::2"), Ipv4Address{10});
  EXPECT_EQ(lines(table)[1], "v2 fe80::2 1");
  EXPECT_EQ(lines(table).size(), 6u);
}

TEST(GidTable, OneIsOne) {
  GidTable table(config::Gids::kOne, gid("10.0.0.1"), Ipv4Address{1});
  EXPECT_EQ(table.add(gid("10.0.0.2"), Ipv4Address{2}), std::nullopt);
  EXPECT_EQ(lines(table), (Lines{"v2 10.0.0.1 0"}));
}

}  // namespace
}  // namespace hostnic
