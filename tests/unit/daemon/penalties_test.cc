// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/trust/penalties.h"

#include <gtest/gtest.h>

namespace hostnic {
namespace {

using namespace std::chrono_literals;
constexpr uint32_t kFirstUser = 1000, kOtherUser = 1001;

TEST(Penalties, GrowWhileItGoesOn) {
  Penalties penalties;
  Penalties::TimePoint now{1h};
  EXPECT_EQ(penalties.left(kFirstUser, now), 0s);
  for (const auto length : {1s, 2s, 4s, 8s, 16s, 32s, 60s, 60s}) {
    penalties.note(kFirstUser, now);
    EXPECT_EQ(penalties.left(kFirstUser, now), length);
    EXPECT_EQ(penalties.left(kOtherUser, now), 0s);
    now += length;
    EXPECT_EQ(penalties.left(kFirstUser, now), 0s);
  }
}

TEST(Penalties, DevicesThatGoTogetherAreOne) {
  Penalties penalties;
  const Penalties::TimePoint now{1h};
  for (int i = 0; i < 10; ++i) penalties.note(kFirstUser, now + i * 10ms);
  EXPECT_EQ(penalties.left(kFirstUser, now), 1s);
}

TEST(Penalties, AreForgotten) {
  Penalties penalties;
  const Penalties::TimePoint now{1h};
  for (int i = 0; i < 4; ++i) penalties.note(kFirstUser, now + i * 10s);
  penalties.note(kFirstUser, now + 1h);
  EXPECT_EQ(penalties.left(kFirstUser, now + 1h), 1s);
}

}  // namespace
}  // namespace hostnic
