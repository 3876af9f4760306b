// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/gid_table.h"

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

// "v2 10.0.0.1 0", the last being the address that packets leave from, or - for none.
std::vector<std::string> lines(config::Gids layout, const std::vector<Gid>& addresses) {
  std::vector<std::string> all;
  for (const GidEntry& entry : make_gid_table(layout, addresses, kMac))
    all.push_back((entry.type == GidType::kRoceV2 ? "v2 " : "v1 ") + to_string(gid_in(entry.gid)) +
                  " " + (entry.usable != 0 ? std::to_string(entry.source_index) : "-"));
  return all;
}
using Lines = std::vector<std::string>;

TEST(GidTable, HasTheAddressesInTheirOrder) {
  EXPECT_EQ(lines(config::Gids::kAuto, gids({"10.0.0.1", "fd00::1", "fe80::1"})),
            (Lines{"v2 10.0.0.1 0", "v2 fd00::1 1", "v2 fe80::1 2"}));
}

TEST(GidTable, AsMlx5BeginsWithTheLinkLocalAddress) {
  EXPECT_EQ(lines(config::Gids::kMlx5, gids({"10.0.0.1", "fd00::1", "fe80::1"})),
            (Lines{"v1 fe80::1 2", "v2 fe80::1 2", "v1 10.0.0.1 0", "v2 10.0.0.1 0", "v1 fd00::1 1",
                   "v2 fd00::1 1"}));
}

TEST(GidTable, AsMlx5HasIndex3WhereThereIsNoLinkLocalAddress) {
  EXPECT_EQ(
      lines(config::Gids::kMlx5, gids({"10.0.0.1"})),
      (Lines{"v1 fe80::aff:fe00:1 -", "v2 fe80::aff:fe00:1 -", "v1 10.0.0.1 0", "v2 10.0.0.1 0"}));
}

TEST(GidTable, IsBounded) {
  const std::vector<Gid> many(40, parse_gid("fd00::1").value());
  EXPECT_EQ(make_gid_table(config::Gids::kAuto, many, kMac).size(), kMaxGids);
  EXPECT_EQ(make_gid_table(config::Gids::kMlx5, many, kMac).size(), kMaxGids);
}

}  // namespace
}  // namespace hostnic
