// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/trust/owner.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "dataplane/daemon/control/command.h"

namespace hostnic {
namespace {

constexpr uint32_t kNobody = 65534;
constexpr const char* kAll = "         0          0 4294967295\n";

TEST(Owner, NobodyIsAUserWhereAllUsersHaveANumber) {
  EXPECT_TRUE(names_one_user(kNobody, kNobody, kAll));
  EXPECT_TRUE(names_one_user(kNobody, kNobody, "0 0 65536\n65536 65536 4294901759\n"));
}

// Whoever has no number in a user namespace has the overflow uid there.
TEST(Owner, NobodyIsEverybodyInAUserNamespace) {
  EXPECT_FALSE(names_one_user(kNobody, kNobody, "0 1000 1\n"));
  EXPECT_FALSE(names_one_user(kNobody, kNobody, "65534 65534 1\n")) << "as who runs hostnicd";
  EXPECT_FALSE(names_one_user(kNobody, kNobody, "0 100000 65536\n")) << "as containers do";
  EXPECT_FALSE(names_one_user(kNobody, kNobody, ""));
  EXPECT_FALSE(names_one_user(0, 0, "0 1000 1\n")) << "the overflow uid can be chosen";
  EXPECT_TRUE(names_one_user(0, kNobody, "0 1000 1\n"));
  EXPECT_TRUE(names_one_user(1000, kNobody, "1000 1000 1\n"));
}

TEST(Owner, IsWhoRunsHostnicdAndRoot) {
  EXPECT_TRUE(is_owner(0));
  EXPECT_EQ(is_owner(geteuid()), geteuid() == 0 || names_one_user(geteuid()));
  EXPECT_FALSE(is_owner(geteuid() + 1));
}

TEST(Owner, WhoIsNobodySeesNothingOfNobody) {
  const Asker nameless{.uid = kNobody, .is_owner = false, .is_one_user = false};
  EXPECT_FALSE(nameless.sees(kNobody));
  const Asker user{.uid = 1000, .is_owner = false};
  EXPECT_TRUE(user.sees(1000));
  EXPECT_FALSE(user.sees(1001));
}

}  // namespace
}  // namespace hostnic
