// SPDX-License-Identifier: BSD-3-Clause
// Limits of hostnicd as a whole: what a user's programs may have together, and what is left to
// hostnicd's own user and root.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "dataplane/daemon/daemon.h"
#include "dataplane/daemon/start/options.h"
#include "tests/unit/daemon/eal.h"

namespace hostnic {
namespace {

constexpr uint32_t kUser = 1000, kOther = 1001, kThird = 1002, kRoot = 0;

class Limits : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(eal_runs());
    auto plan = plan_from_arguments({"--nics", "2"});
    ASSERT_TRUE(plan) << plan.error().text;
    plan->max_mrs = plan->all_mrs = 64;
    plan->user_mrs = 32;
    // DPDK's rings keep their names: each hostnicd of this process has others.
    static int number = 0;
    for (NicPlan& nic : plan->nics) nic.settings.name = "limits" + std::to_string(number++);
    auto daemon = Daemon::create(*plan);
    ASSERT_TRUE(daemon) << daemon.error();
    daemon_ = std::move(*daemon);
  }
  // A device that a user's program has open.
  uint32_t open(uint32_t uid) {
    ClientInfo info;
    info.client_id = daemon_->clients().next_id();
    info.uid = uid;
    daemon_->clients().add(info);
    return info.client_id;
  }
  unsigned regions(uint32_t client) {
    unsigned count = 0;
    while (daemon_->clients().admit_registration(client)) ++count;
    return count;
  }
  uint64_t pieces(uint32_t client) {
    constexpr uint64_t kAtOnce = 2048, kEnough = 4096;
    uint64_t count = 0;
    while (count < kEnough && daemon_->clients().admit_pieces(client, kAtOnce)) ++count;
    return count * kAtOnce;
  }

  std::unique_ptr<Daemon> daemon_;
};

TEST_F(Limits, RegionsAreUsersNotDevices) {
  const uint32_t first = open(kUser), second = open(kUser);
  EXPECT_EQ(regions(first), 32u);
  EXPECT_EQ(regions(second), 0u) << "another device of the user's";
  EXPECT_EQ(regions(open(kOther)), 24u) << "an eighth is left";
  EXPECT_EQ(regions(open(kThird)), 0u);
  EXPECT_GE(regions(open(kRoot)), 8u);
  daemon_->clients().note_registration(first, -1, 0, 0);
  EXPECT_EQ(regions(second), 1u);
}

TEST_F(Limits, PiecesAreUsersNotDevices) {
  constexpr uint64_t kOfUser = 1 << 19;
  const uint32_t first = open(kUser), second = open(kUser);
  EXPECT_EQ(pieces(first), kOfUser);
  EXPECT_EQ(pieces(second), 0u);
  EXPECT_EQ(pieces(open(kOther)), kOfUser);
  EXPECT_EQ(pieces(open(kThird)), kOfUser);
  EXPECT_EQ(pieces(open(kThird + 1)), 0u) << "all users together";
  EXPECT_GT(pieces(open(kRoot)), 4 * kOfUser);
  daemon_->clients().drop_pieces(first, 4096);
  EXPECT_EQ(pieces(second), 4096u);
}

TEST_F(Limits, MappingsLeaveARestToTheOwner) {
  UserShares& mappings = daemon_->regions().mappings();
  EXPECT_EQ(mappings.limits().all, kClientMappings);
  EXPECT_EQ(mappings.limits().user, kClientMappings / 2);
  EXPECT_EQ(mappings.limits().strangers, kClientMappings / 8 * 7);
}

TEST_F(Limits, PageTablesAreUsersNotDevices) {
  PageTableBudgets& tables = daemon_->regions().page_tables();
  EXPECT_EQ(tables.of(kUser)->most(), 96u << 8) << "96 MiB of 4 KiB each";
  EXPECT_EQ(tables.all().most(), 2u * 96 << 8);
}

TEST(PageTableLimit, GrowsWithTheMachine) {
  constexpr uint64_t kGiB = uint64_t{1} << 30;
  EXPECT_EQ(usual_page_tables(2 * kGiB), 96u << 8);
  EXPECT_EQ(usual_page_tables(24 * kGiB), 96u << 8);
  EXPECT_EQ(usual_page_tables(1024 * kGiB), 4096u << 8) << "all of a terabyte, twice";
}

}  // namespace
}  // namespace hostnic
