// SPDX-License-Identifier: BSD-3-Clause
// What `hostnic lab --hosts` makes of its options, and what it refuses.
#include "dataplane/cli/hosts_plan.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "dataplane/cli/lab_record.h"

namespace hostnic::cli {
namespace {

using Words = std::vector<std::string>;

LabOptions options(const std::string& hosts, const std::string& port, const Words& arguments) {
  LabOptions made;
  made.hosts = hosts;
  made.port = port;
  made.daemon_arguments = arguments;
  return made;
}

HostsPlan plan_of(const std::string& hosts, const std::string& port = {},
                  const Words& arguments = {}) {
  auto plan = plan_hosts(options(hosts, port, arguments));
  EXPECT_TRUE(plan) << plan.error();
  return plan ? *plan : HostsPlan{};
}

TEST(HostsPlan, EachHostHasAnAddressAndANicOnUdp) {
  const HostsPlan plan = plan_of("3");
  ASSERT_EQ(plan.hosts.size(), 3u);
  EXPECT_EQ(plan.hosts[2].name, "host3");
  EXPECT_EQ(plan.hosts[2].address, Ipv4Address{0x0a4d0003});
  EXPECT_EQ(plan.hosts[2].daemon_arguments, (Words{"--nic=port=udp,ip=10.77.0.3/24", "--seed=3"}));
  EXPECT_EQ(plan.mtu_bytes, 1500u);
  EXPECT_EQ(plan.prefix_length, 24u);
  EXPECT_TRUE(plan.common_arguments.empty());
}

TEST(HostsPlan, OptionsGoToEveryHostnicd) {
  const Words given = {"--loss=1%",
                       "--mtu=9000",
                       "--addresses=192.168.4.0/22",
                       "--seed=7",
                       "--nic=policy=go-back-n",
                       "--impair=rx drop nth 3 kind ack,data"};
  const HostsPlan plan = plan_of("2", "af_packet", given);
  EXPECT_EQ(plan.mtu_bytes, 9000u);
  EXPECT_EQ(plan.common_arguments, (Words{"--loss=1%", "--impair=rx drop nth 3 kind ack,data"}));
  EXPECT_EQ(plan.hosts[1].daemon_arguments,
            (Words{"--nic=port=net_af_packet0,iface=eth0,ip=192.168.4.2/22,policy=go-back-n",
                   "--seed=8"}));
}

TEST(HostsPlan, OneHostnicdOnTheWireHasAllNicsAndOneSeed) {
  const HostsPlan plan = plan_of("2", "wire", {"--seed=7"});
  EXPECT_EQ(plan.hosts[1].daemon_arguments, (Words{"--nic=port=wire,name=host2,ip=10.77.0.2/24"}));
  EXPECT_EQ(plan.common_arguments, (Words{"--seed=7"}));
  EXPECT_EQ(plan_of("2", "udp", {"--seed=random"}).common_arguments, (Words{"--seed=random"}));
}

TEST(HostsPlan, TheDeviceHasThePersonalitysNameOrTheKeys) {
  EXPECT_EQ(plan_of("2").device_name, "hnic0");
  EXPECT_EQ(plan_of("2", "udp", {"--like=mlx5"}).device_name, "mlx5_0");
  EXPECT_EQ(plan_of("2", "wire", {"--nic=like=rxe"}).device_name, "rxe0");
  EXPECT_EQ(plan_of("2", "udp", {"--like=no-srq"}).device_name, "hnic0");
  HostsPlan plan = plan_of("2", "udp", {"--like=mlx5", "--nic=mtu=1024,name=roce0,gids=one"});
  EXPECT_EQ(plan.device_name, "roce0");
  EXPECT_EQ(plan.hosts[0].daemon_arguments[0],
            "--nic=port=udp,ip=10.77.0.1/24,mtu=1024,gids=one,name=roce0");
  EXPECT_EQ(plan.common_arguments, (Words{"--like=mlx5"}));
  plan = plan_of("2", "wire", {"--nic=name=roce0"});
  EXPECT_EQ(plan.device_name, "roce0");
  EXPECT_EQ(plan.hosts[1].daemon_arguments[0], "--nic=port=wire,name=host2,ip=10.77.0.2/24");
}

TEST(HostsPlan, BadOnesGetOneLineThatNamesThem) {
  struct {
    LabOptions given;
    const char* part;
  } const cases[] = {
      {options("0", "", {}), "--hosts 0: use 1 to 64"},
      {options("x", "", {}), "--hosts x"},
      {options("65", "", {}), "--hosts 65"},
      {options("17", "wire", {}), "use 1 to 16 with --port wire"},
      {options("2", "tcp", {}), "--port tcp: use udp, af_packet or wire"},
      {options("2", "", {"--mtu=100"}), "--mtu 100: with --hosts, the MTU of their interfaces"},
      {options("2", "", {"--mtu=big"}), "--mtu big"},
      {options("2", "", {"--nics=2"}), "each host has one NIC"},
      {options("2", "", {"--nic=mtu=1024,ip=1.2.3.4"}), "the lab gives ip"},
      {options("2", "", {"--nic=port=wire"}), "the lab gives port"},
      {options("2", "", {"--addresses=10.1.0.0"}), "not a network"},
      {options("2", "", {"--addresses=127.1.0.0/24"}), "loopback addresses of its own"},
      {options("3", "", {"--addresses=10.1.0.0/30"}), "there is room for 2, not for 3"},
  };
  for (const auto& each : cases) {
    auto plan = plan_hosts(each.given);
    ASSERT_FALSE(plan) << each.part;
    EXPECT_NE(plan.error().find(each.part), std::string::npos) << plan.error();
    EXPECT_EQ(plan.error().find('\n'), std::string::npos) << plan.error();
  }
}

TEST(HostNumber, IsANameOrANumber) {
  EXPECT_EQ(host_number("host2", 3), 2);
  EXPECT_EQ(host_number("3", 3), 3);
  for (const char* none : {"0", "4", "host", "", "host-1", "2x", "hosthost2", "localhost"})
    EXPECT_EQ(host_number(none, 3), -1) << none;
}

TEST(LabRecord, IsReadAsItWasWritten) {
  char directory[] = "/tmp/hostnic-record-test.XXXXXX";
  ASSERT_NE(mkdtemp(directory), nullptr);
  auto none = read_record(directory);
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().find("it has ended"), std::string::npos) << none.error();
  LabRecord record{.guardian = 77, .user_fd = -1, .hosts = {}};
  record.hosts.push_back({"host1", "10.77.0.1", 4, 5, 6, 10, 4026532248});
  record.hosts.push_back({"host2", "10.77.0.2", 7, 8, 9, 11, 4026532249});
  ASSERT_TRUE(write_record(directory, record));
  auto read = read_record(directory);
  ASSERT_TRUE(read) << read.error();
  EXPECT_EQ(read->guardian, 77);
  EXPECT_EQ(read->user_fd, -1);
  ASSERT_EQ(read->hosts.size(), 2u);
  EXPECT_EQ(read->hosts[1].name, "host2");
  EXPECT_EQ(read->hosts[1].address, "10.77.0.2");
  EXPECT_EQ(read->hosts[1].mounts_fd, 8);
  EXPECT_EQ(read->hosts[1].root_fd, 11);
  EXPECT_EQ(read->hosts[1].network_id, 4026532249u);
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace hostnic::cli
