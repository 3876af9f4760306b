// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/memory/user_shares.h"

#include <gtest/gtest.h>

namespace hostnic {
namespace {

constexpr uint32_t kUser = 1000, kOther = 1001, kThird = 1002;

unsigned take_all(UserShares& shares, std::optional<uint32_t> stranger) {
  unsigned count = 0;
  while (shares.take(stranger)) ++count;
  return count;
}

TEST(UserShares, AUserHasHalfAndAllUsersLeaveARest) {
  UserShares shares(UserShares::shares_of(80));
  EXPECT_EQ(take_all(shares, kUser), 40u);
  EXPECT_EQ(take_all(shares, kOther), 30u);
  EXPECT_EQ(take_all(shares, kThird), 0u);
  EXPECT_EQ(take_all(shares, std::nullopt), 10u) << "the rest is the owner's";
  EXPECT_EQ(shares.taken(), 80u);
}

TEST(UserShares, TheOwnerMayHaveAll) {
  UserShares shares(UserShares::shares_of(80));
  EXPECT_EQ(take_all(shares, std::nullopt), 80u);
  EXPECT_FALSE(shares.take(kUser));
}

TEST(UserShares, WhatIsGivenBackIsThereAgain) {
  UserShares shares({.all = 3, .strangers = 2, .user = 1});
  ASSERT_TRUE(shares.take(kUser) && shares.take(kOther));
  EXPECT_FALSE(shares.take(kUser));
  EXPECT_FALSE(shares.take(kThird));
  shares.give_back(kOther);
  EXPECT_EQ(shares.of(kOther), 0u);
  EXPECT_TRUE(shares.take(kThird));
  EXPECT_EQ(shares.of(kThird), 1u);
  shares.give_back(kUser);
  EXPECT_TRUE(shares.take(std::nullopt) && shares.take(std::nullopt));
  EXPECT_FALSE(shares.take(kUser)) << "nothing is left";
}

TEST(UserShares, AFewHaveARestToo) {
  EXPECT_EQ(UserShares::shares_of(1).user, 1u);
  EXPECT_EQ(UserShares::shares_of(8).strangers, 7u);
  EXPECT_EQ(UserShares::shares_of(16, 3).user, 3u);
}

}  // namespace
}  // namespace hostnic
