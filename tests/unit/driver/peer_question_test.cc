// SPDX-License-Identifier: BSD-3-Clause
// RTR while the NIC does not know yet what the peer speaks.
#include <cerrno>

#include "tests/unit/driver/bench.h"

namespace hostnic::driver {
namespace {

class PeerQuestion : public DriverBench {
 protected:
  static constexpr uint32_t kRtrMask =
      kQpState | kQpAv | kQpPathMtu | kQpDestQpn | kQpRqPsn | kQpMaxDestRdAtomic | kQpMinRnrTimer;
  void to_init() {
    connect();
    ASSERT_EQ(driver_->modify_qp(qp_, {.state = QpState::kReset}, kQpState), 0);
    ASSERT_EQ(driver_->modify_qp(qp_, {.state = QpState::kInit},
                                 kQpState | kQpPkeyIndex | kQpPort | kQpAccessFlags),
              0);
  }
  int to_rtr() {
    QpAttr attr;
    attr.state = QpState::kRtr;
    attr.path_mtu_bytes = mtu_;
    attr.dest_qpn = 0x10007;
    attr.dest_ip = Ipv4Address{0x0a000002};
    return driver_->modify_qp(qp_, attr, kRtrMask);
  }
  QpAttr queried() {
    QpAttr attr;
    QpCaps caps;
    driver_->query_qp(qp_, attr, caps);
    return attr;
  }
};

TEST_P(PeerQuestion, RtrWaitsAndAsksAgain) {
  to_init();
  nic_.unknown_peers = 12;
  EXPECT_EQ(to_rtr(), 0);
  EXPECT_EQ(nic_.unknown_peers, 0u);
  EXPECT_EQ(queried().state, QpState::kRtr);
  EXPECT_EQ(queried().dest_qpn, 0x10007u);
  // 20 us, 40 us, ... 1,280 us, and 2 ms from then on.
  EXPECT_EQ(nic_.paused_ns, 20'000u * 127 + 5 * 2'000'000u);
}

TEST_P(PeerQuestion, RtrDoesNotWaitForEver) {
  to_init();
  const uint32_t before = queried().dest_qpn;
  nic_.unknown_peers = 1'000'000;
  EXPECT_EQ(to_rtr(), ETIMEDOUT);
  EXPECT_EQ(queried().state, QpState::kInit);
  EXPECT_EQ(queried().dest_qpn, before);
  EXPECT_GE(nic_.paused_ns, 10'000'000'000u);
  nic_.unknown_peers = 0;
  EXPECT_EQ(to_rtr(), 0);
}

INSTANTIATE_TEST_SUITE_P(Mtus, PeerQuestion, testing::Values(1024u));

}  // namespace
}  // namespace hostnic::driver
