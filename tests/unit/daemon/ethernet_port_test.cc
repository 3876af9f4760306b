// SPDX-License-Identifier: BSD-3-Clause
// Ports that a driver of DPDK's has to itself, with drivers that need no adapter: net_null, which
// takes everything, and net_memif, which has no jumbo frames.
#include "dataplane/daemon/ports/ethernet_port.h"

#include <gtest/gtest.h>

#include "tests/unit/daemon/eal.h"

namespace hostnic {
namespace {

Expected<std::unique_ptr<EthernetPort>, std::string> open_port(const std::string& devargs,
                                                               uint32_t ib_mtu_bytes) {
  return EthernetPort::open("hnic0", devargs, Ipv4Address{0x0a000001}, std::nullopt, ib_mtu_bytes);
}

class DriverPort : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!eal_runs()) GTEST_SKIP() << "EAL does not start here";
  }
};

// Switches on the way need not take more than what Ethernet always has.
TEST_F(DriverPort, HasEthernetsUsualMtuUnlessMoreIsAskedFor) {
  for (const uint32_t ib_mtu_bytes : {0u, 256u, 1024u}) {
    const auto port = open_port("net_null0", ib_mtu_bytes);
    ASSERT_TRUE(port) << port.error();
    EXPECT_EQ((*port)->ip_mtu_bytes(), 1500u) << ib_mtu_bytes;
  }
  const auto jumbo = open_port("net_null0", 4096);
  ASSERT_TRUE(jumbo) << jumbo.error();
  EXPECT_EQ((*jumbo)->ip_mtu_bytes(), 4096u + kPacketOverheadBytes);
}

TEST_F(DriverPort, SaysWhatMtuTheDriverHasAtMost) {
  const auto refused = open_port("net_memif7,socket=/nowhere/memif", 4096);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().find("mtu 4096 needs a port MTU of 4176 bytes, and the driver of "
                                 "net_memif7,socket=/nowhere/memif has at most 1500: use mtu 1024"),
            std::string::npos)
      << refused.error();
}

TEST_F(DriverPort, IsAskedForItsLink) {
  const auto port = open_port("net_null0", 0);
  ASSERT_TRUE(port) << port.error();
  const auto driver = (*port)->ask_driver();
  ASSERT_TRUE(driver);
  EXPECT_FALSE(driver->is_adapter);
  EXPECT_TRUE(driver->is_there);
  EXPECT_TRUE(driver->link_up);
  EXPECT_EQ((*port)->speed_mbps(), 10'000u);
}

TEST_F(DriverPort, SaysThatThereIsNoSuchAdapter) {
  const auto refused = open_port("00ff:ff:1f.7", 0);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().find("there is no PCI device 00ff:ff:1f.7"), std::string::npos)
      << refused.error();
}

TEST_F(DriverPort, SaysWhatAPortMayBe) {
  const std::pair<const char*, const char*> names[] = {{"udp0", "iface=NAME"}, {"lo", "iface=lo"}};
  for (const auto& [name, remedy] : names) {
    const auto refused = open_port(name, 0);
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.error().find(remedy), std::string::npos) << refused.error();
  }
}

}  // namespace
}  // namespace hostnic
