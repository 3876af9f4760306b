// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "dataplane/nic/packet/qp_packets.h"

namespace hostnic {
namespace {

template <class Work>
void elsewhere(Work work) {
  std::thread(work).join();
}

TEST(PacketCount, TakenHereAndGivenBackElsewhere) {
  QpPackets packets;
  EXPECT_FALSE(packets.any_out());
  packets.count()->add(3);
  elsewhere([&] { packets.count()->remove(2); });
  EXPECT_TRUE(packets.any_out());
  elsewhere([&] { packets.count()->add(1); });
  packets.count()->remove(1);
  EXPECT_TRUE(packets.any_out());
  elsewhere([&] { packets.count()->remove(1); });
  EXPECT_FALSE(packets.any_out());
}

TEST(PacketCount, IsOwnWhereItWasMade) {
  QpPackets packets;
  EXPECT_TRUE(packets.count()->is_own());
  elsewhere([&] { EXPECT_FALSE(packets.count()->is_own()); });
}

// Packets may outlive their QP: their count is nobody else's until the last is gone.
TEST(PacketCount, IsNotUsedAgainWhilePacketsAreOut) {
  PacketCount* count = nullptr;
  {
    QpPackets packets;
    // Of which the count knows. NOLINTNEXTLINE(performance-unnecessary-copy-initialization)
    const QpPackets copy = packets;
    count = packets.count();
    EXPECT_EQ(copy.count(), count);
    count->add(2);
  }
  const auto used_again = [&] {
    std::vector<QpPackets> others(64);
    for (const QpPackets& other : others) {
      EXPECT_FALSE(other.any_out());
      if (other.count() == count) return true;
    }
    return false;
  };
  for (int i = 0; i < 100; ++i) ASSERT_FALSE(used_again());
  EXPECT_TRUE(count->any());
  count->remove(1);
  elsewhere([&] { count->remove(1); });
  bool again = false;
  for (int i = 0; i < 100 && !again; ++i) again = used_again();
  EXPECT_TRUE(again);
}

// The owner and another thread at once: nothing is lost.
TEST(PacketCount, TwoThreadsAtOnce) {
  QpPackets packets;
  constexpr uint32_t kPackets = 200'000;
  packets.count()->add(kPackets);
  std::thread other([&] {
    for (uint32_t i = 0; i < kPackets; ++i) packets.count()->remove(1);
  });
  for (uint32_t i = 0; i < kPackets; ++i) {
    packets.count()->add(1);
    packets.count()->remove(1);
  }
  packets.count()->add(1);
  other.join();
  EXPECT_TRUE(packets.any_out());
  packets.count()->remove(1);
  EXPECT_FALSE(packets.any_out());
}

}  // namespace
}  // namespace hostnic
