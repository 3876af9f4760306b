// SPDX-License-Identifier: BSD-3-Clause
// hostnicd's command line, EAL's arguments made of it, and the command registry.
#include "dataplane/daemon/start/options.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>

#include "dataplane/daemon/control/command.h"
#include "dataplane/daemon/ports/ethernet_port.h"
#include "dataplane/daemon/start/eal.h"

namespace hostnic {
namespace {

using Words = std::vector<std::string>;

DaemonPlan plan_of(const Words& words) {
  auto plan = plan_from_arguments(words);
  EXPECT_TRUE(plan) << plan.error().text;
  return plan ? *plan : DaemonPlan{};
}

std::string refusal(const Words& words) {
  auto plan = plan_from_arguments(words);
  if (plan) return "accepted";
  EXPECT_EQ(plan.error().exit_code, 2);
  EXPECT_EQ(plan.error().text.find('\n'), std::string::npos) << plan.error().text;
  return plan.error().text;
}

void expect_refusal(const Words& words, const std::string& part) {
  EXPECT_NE(refusal(words).find(part), std::string::npos) << refusal(words);
}

TEST(Options, TwoNicsOnTheWireByDefault) {
  const DaemonPlan plan = plan_of({});
  ASSERT_EQ(plan.nics.size(), 2u);
  EXPECT_EQ(plan.nics[1].settings.name, "hnic1");
  EXPECT_EQ(plan.nics[1].settings.index, 1u);
  EXPECT_EQ(plan.nics[0].settings.mtu_bytes, 4096u);
  EXPECT_TRUE(plan.nics[0].port.empty());
  EXPECT_EQ(plan.lcores, 1u);
  EXPECT_EQ(plan.seed, 1u);
}

TEST(Options, EalArgumentsAreWhatStandsBeforeTheDivider) {
  const DaemonPlan plan = plan_of({"-l", "0-1", "--", "--nics", "3"});
  EXPECT_EQ(plan.eal, (Words{"-l", "0-1"}));
  EXPECT_EQ(plan.nics.size(), 3u);
  EXPECT_TRUE(plan_of({"--", "--nics", "3"}).eal.empty());
}

TEST(Options, LossAndImpairmentsGoToEveryNic) {
  const DaemonPlan plan = plan_of({"--loss", "1%", "--impair", "tx delay 5us",
                                   "--impair=drop nth 3 kind ack,data", "--seed", "99"});
  for (const NicPlan& nic : plan.nics) {
    EXPECT_EQ(impair::to_string(nic.rx),
              impair::to_string(*impair::parse_spec("drop 1%; drop nth 3 kind ack,data")));
    EXPECT_EQ(impair::to_string(nic.tx), "delay 5us");
  }
  EXPECT_EQ(plan.seed, 99u);
}

TEST(Options, ATimescaleIsAFactor) {
  EXPECT_EQ(plan_of({}).timescale, 1u);
  EXPECT_EQ(plan_of({"--timescale", "100"}).timescale, 100u);
  for (const char* text : {"0", "1001", "x", "-1", "0.5"})
    expect_refusal({"--timescale", text}, "--timescale");
}

TEST(Options, LossIsAPercentage) {
  EXPECT_TRUE(loss_spec("0")->rules.empty());
  EXPECT_EQ(loss_spec("0.5%")->rules[0].trigger.probability_ppb, 5'000'000u);
  for (const char* text : {"1", "", "x", "101%", "1% kind ack", "1%; corrupt 1%", "all", "nth 3"})
    EXPECT_FALSE(loss_spec(text)) << text;
}

TEST(Options, BadOnesGetOneLineThatNamesThem) {
  expect_refusal({"--bogus"}, "--bogus");
  expect_refusal({"--mtu", "1000"}, "--mtu: 1000");
  expect_refusal({"--nics", "0"}, "--nics");
  expect_refusal({"--nics", "17"}, "17");
  expect_refusal({"--nics", "2", "--config", "x"}, "--config");
  expect_refusal({"--config", "/nonexistent.toml"}, "/nonexistent.toml");
  expect_refusal({"--impair", "drop 5"}, "column 6");
  expect_refusal({"--seed", "1x"}, "1x");
  expect_refusal({"--lcores", "0"}, "--lcores 0");
  expect_refusal({"--lcores", "3-1"}, "3-1");
  expect_refusal({"--socket", std::string(200, 'x')}, "too long");
  expect_refusal({"--nic", "port=net_af_packet0,ip=10.0.0.1/24"}, "iface=NAME");
  expect_refusal({"--nic", "port=net_af_packet0,iface=nope9,ip=10.0.0.1/24"}, "nope9");
}

TEST(Options, AddressesAreANetworksFirst) {
  const DaemonPlan plan = plan_of({"--nics", "3", "--addresses", "10.9.8.0/22"});
  ASSERT_EQ(plan.nics.size(), 3u);
  EXPECT_EQ(plan.nics[2].address, gid_of(Ipv4Address{0x0a090803}));
  EXPECT_EQ(plan.nics[2].settings.prefix_length, 22u);
  EXPECT_TRUE(plan.nics[2].port.empty());
  expect_refusal({"--addresses", "10.9.8.0"}, "--addresses 10.9.8.0: not a network such as");
  expect_refusal({"--addresses", "10.9.8.7/24"}, "the network is 10.9.8.0/24");
  expect_refusal({"--addresses", "239.0.0.0/24"}, "no addresses of hosts");
  expect_refusal({"--nics", "3", "--addresses", "10.9.8.0/30"}, "there is room for 2, not for 3");
  expect_refusal({"--addresses", "10.9.8.0/24", "--nic", "ip=10.9.8.1/24"}, "excludes");
}

// A file may say what concerns all of hostnicd, and options which NICs there are.
TEST(Options, AFileWithoutNicsTakesThoseOfOptions) {
  char path[] = "/tmp/hostnic-options-test.XXXXXX";
  const int fd = mkstemp(path);
  ASSERT_GE(fd, 0);
  const std::string text = "[hostnicd.limits]\nmax_qps = 77\n";
  ASSERT_EQ(write(fd, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  const DaemonPlan plan = plan_of({"--config", path, "--nic", "ip=10.1.1.1/24"});
  ASSERT_EQ(plan.nics.size(), 1u);
  EXPECT_EQ(plan.nics[0].address, gid_of(Ipv4Address{0x0a010101}));
  EXPECT_EQ(plan.nics[0].settings.max_qps, 77u);
  const std::string more = "[[nic]]\nip = \"10.1.1.2/24\"\n";
  ASSERT_EQ(write(fd, more.data(), more.size()), static_cast<ssize_t>(more.size()));
  expect_refusal({"--config", path, "--nic", "ip=10.1.1.1/24"}, "has NICs, and --nic gives others");
  close(fd);
  unlink(path);
}

TEST(Options, AViewShowsANicByAnotherName) {
  const DaemonPlan plan =
      plan_of({"--nic", "name=host1,ip=10.1.1.1/24", "--nic", "name=host2,ip=10.1.1.2/24", "--view",
               "nic=host2,socket=/tmp/s,netdev=eth0"});
  ASSERT_EQ(plan.views.size(), 1u);
  const View& view = plan.views[0];
  EXPECT_EQ(view.nic, 1u);
  EXPECT_EQ(view.socket_path, "/tmp/s");
  DeviceInfo info{};
  snprintf(info.name, sizeof info.name, "host2");
  info.index = 1;
  info = view.shown(info);
  EXPECT_STREQ(info.name, "hnic0");
  EXPECT_EQ(info.index, 0u);
  EXPECT_STREQ(info.netdev, "eth0");
  EXPECT_EQ(view.command("show counters hnic0 all"), "show counters host2 all");
  EXPECT_EQ(view.answer("host1 a 1\nhost2 a 2\nhost20 a 3\nhost2"),
            "host1 a 1\nhnic0 a 2\nhost20 a 3\nhnic0");
  const DaemonPlan named =
      plan_of({"--nics", "1", "--like", "mlx5", "--view", "nic=mlx5_0,socket=/tmp/s"});
  EXPECT_EQ(named.views[0].shown_name, "mlx5_0");
  EXPECT_EQ(plan_of({"--view", "nic=hnic1,socket=/tmp/s,name=roce0"}).views[0].shown_name, "roce0");
  expect_refusal({"--view", "nic=hnic5,socket=/tmp/s"}, "no NIC is named \"hnic5\"");
  expect_refusal({"--view", "nic=hnic0"}, "socket=PATH");
  expect_refusal({"--view", "hnic0"}, "is none of nic=, socket=, netdev=");
}

TEST(Options, LcoresAreACountOrCpus) {
  EXPECT_EQ(plan_of({"--lcores", "2"}).lcores, 2u);
  EXPECT_TRUE(plan_of({"--lcores", "2"}).pinned_cpus.empty());
  const DaemonPlan plan = plan_of({"--lcores", "2,4-5"});
  EXPECT_EQ(plan.lcores, 3u);
  EXPECT_EQ(plan.pinned_cpus, (std::vector<uint32_t>{2, 4, 5}));
}

TEST(Options, TheSocketIsFoundAsClientsFindIt) {
  unsetenv("HOSTNIC_SOCKET");
  setenv("XDG_RUNTIME_DIR", "/run/user/1", 1);
  EXPECT_EQ(plan_of({}).socket_path, "/run/user/1/hostnic/hostnicd.sock");
  setenv("HOSTNIC_SOCKET", "/tmp/a.sock", 1);
  EXPECT_EQ(plan_of({}).socket_path, "/tmp/a.sock");
  EXPECT_EQ(plan_of({"--socket", "/tmp/b.sock"}).socket_path, "/tmp/b.sock");
  unsetenv("HOSTNIC_SOCKET");
}

TEST(EalArguments, SuitAnOrdinaryUser) {
  auto arguments = eal_arguments(plan_of({"--lcores", "2"}), {0, 3});
  ASSERT_TRUE(arguments);
  const auto has = [&](const std::string& word) {
    return std::find(arguments->begin(), arguments->end(), word) != arguments->end();
  };
  EXPECT_TRUE(has("0@(0,3),1@(0,3),2@(0,3)"));
  EXPECT_TRUE(has("--force-max-simd-bitwidth=512"));
  EXPECT_TRUE(has("--no-pci"));
  EXPECT_NE(has("--no-huge"), has("--in-memory"));
}

TEST(EalArguments, TheUsersOwnWin) {
  auto arguments = eal_arguments(
      plan_of({"-l", "0-1", "-m", "99", "--file-prefix=x", "--no-huge", "--", "--nics", "2"}), {0});
  ASSERT_TRUE(arguments);
  for (const char* word : {"-l", "-m", "--file-prefix=x", "--no-huge"})
    EXPECT_EQ(std::count(arguments->begin(), arguments->end(), word), 1) << word;
  EXPECT_EQ(std::count(arguments->begin(), arguments->end(), "--lcores"), 0);
}

// EAL would take hold of all others that it can drive.
TEST(EalArguments, NameTheNicsAdaptersOnly) {
  const Words words = {"--nic", "port=0000:3b:00.0,ip=10.0.0.1/24", "--nic",
                       "port=net_null0,ip=10.0.0.2/24"};
  auto arguments = eal_arguments(plan_of(words), {0});
  ASSERT_TRUE(arguments) << arguments.error();
  EXPECT_EQ(std::count(arguments->begin(), arguments->end(), "--no-pci"), 0);
  const auto allowed = std::find(arguments->begin(), arguments->end(), "-a");
  ASSERT_NE(allowed, arguments->end());
  EXPECT_EQ(*std::next(allowed), "0000:3b:00.0");
  EXPECT_EQ(std::count(arguments->begin(), arguments->end(), "-a"), 1);
}

TEST(EalArguments, PinnedCpusMustBeOurs) {
  EXPECT_TRUE(eal_arguments(plan_of({"--lcores", "0-1"}), {0, 1}));
  auto refused = eal_arguments(plan_of({"--lcores", "0,7"}), {0, 1});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().find("CPU 7"), std::string::npos);
}

TEST(IbMtu, IsTheLargestThatFitsThePort) {
  EXPECT_EQ(largest_ib_mtu(1500), 1024u);
  EXPECT_EQ(largest_ib_mtu(9000), 4096u);
  EXPECT_EQ(largest_ib_mtu(4096 + kPacketOverheadBytes), 4096u);
  EXPECT_EQ(largest_ib_mtu(4096 + kPacketOverheadBytes - 1), 2048u);
  EXPECT_EQ(largest_ib_mtu(300), 0u);
}

TEST(EthernetPort, SaysWhatAfPacketLacks) {
  constexpr uint64_t kRaw = 1u << 13, kAdmin = 1u << 12, kOther = 1u << 14;
  EXPECT_EQ(missing_for_af_packet(0), "cap_net_raw,cap_net_admin");
  EXPECT_EQ(missing_for_af_packet(kRaw), "cap_net_admin");
  EXPECT_EQ(missing_for_af_packet(kAdmin | kOther), "cap_net_raw");
  EXPECT_EQ(missing_for_af_packet(kRaw | kAdmin), "");
  EXPECT_EQ(missing_for_af_packet(kRaw | kAdmin | kOther), "");
}

TEST(IbMtu, AnErrorNamesBothNumbers) {
  EXPECT_EQ(*choose_ib_mtu("hnic0", "net_af_packet0,iface=veth0", 0, 1500), 1024u);
  EXPECT_EQ(*choose_ib_mtu("hnic0", "net_af_packet0,iface=veth0", 512, 1500), 512u);
  auto refused = choose_ib_mtu("hnic0", "net_af_packet0,iface=veth0", 4096, 1500);
  ASSERT_FALSE(refused);
  for (const char* part : {"hnic0", "4096", "1500", "1024", "veth0"})
    EXPECT_NE(refused.error().find(part), std::string::npos) << refused.error();
}

TEST(Devargs, ValuesAreFoundByKey) {
  EXPECT_EQ(devargs_value("net_af_packet0,iface=veth0,qpairs=1", "iface"), "veth0");
  EXPECT_EQ(devargs_value("net_af_packet0,iface=veth0,qpairs=1", "qpairs"), "1");
  EXPECT_EQ(devargs_value("net_af_packet0,xiface=veth0", "iface"), std::nullopt);
  EXPECT_EQ(devargs_value("iface=veth0", "iface"), std::nullopt);
}

TEST(CommandLine, TheLongestNameWins) {
  const ParsedLine parsed = parse_command_line("  set  impair hnic0 rx drop 1%\r\n");
  ASSERT_NE(parsed.command, nullptr);
  EXPECT_STREQ(parsed.command->words, "set impair");
  EXPECT_EQ(parsed.args, (std::vector<std::string_view>{"hnic0", "rx", "drop", "1%"}));
}

TEST(CommandLine, EmptyLinesAndCommentsAreNothing) {
  for (const char* line : {"", "   ", "\n", "# set impair", "\t#x"}) {
    const ParsedLine parsed = parse_command_line(line);
    EXPECT_EQ(parsed.command, nullptr);
    EXPECT_EQ(parsed.error, "");
  }
}

TEST(CommandLine, UnknownOnesNameWhatThereIs) {
  EXPECT_EQ(parse_command_line("frobnicate").error,
            "no command \"frobnicate\" (`help` lists them)");
  EXPECT_NE(parse_command_line("show").error.find("show nic, show qp, show peers"),
            std::string::npos);
  EXPECT_NE(parse_command_line("clear everything").error.find("clear counters"), std::string::npos);
  EXPECT_EQ(parse_command_line("showqp").command, nullptr);
}

TEST(CommandLine, EveryCommandIsFoundByItsNameAndExplained) {
  ASSERT_GE(all_commands().size(), 11u);
  for (const PromptCommand* command : all_commands()) {
    EXPECT_EQ(parse_command_line(command->words).command, command) << command->words;
    EXPECT_NE(std::string(command->help), "");
  }
}

}  // namespace
}  // namespace hostnic
