// SPDX-License-Identifier: BSD-3-Clause
#include "config/config.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#ifndef HOSTNIC_SOURCE_DIR
#define HOSTNIC_SOURCE_DIR "."
#endif

namespace hostnic::config {
namespace {

Config must_parse(std::string_view text) {
  auto config = parse_config(text, "test.toml");
  if (config) return *config;
  ADD_FAILURE() << config.error().text();
  return {};
}

NicConfig must_parse_option(std::string_view text, size_t index = 0) {
  auto nic = parse_nic_option(text, index);
  if (nic) return *nic;
  ADD_FAILURE() << nic.error().text();
  return {};
}

std::string error_of(std::string_view text) {
  const auto config = parse_config(text, "test.toml");
  return config ? "no error" : config.error().text();
}

std::string option_error_of(std::string_view text) {
  const auto nic = parse_nic_option(text, 0);
  return nic ? "no error" : nic.error().text();
}

TEST(Config, SocketAccess) {
  const Config config = must_parse("[hostnicd]\nsocket_mode = \"0660\"\nsocket_group = \"rdma\"\n");
  EXPECT_EQ(config.hostnicd.socket_mode, 0660u);
  EXPECT_EQ(config.hostnicd.socket_group, "rdma");
  EXPECT_EQ(default_config(1).hostnicd.socket_mode, 0600u);
  for (const char* text : {"", "rw", "0680", "777", "0660 ", "1666"})
    EXPECT_FALSE(parse_socket_mode(text)) << text;
}

TEST(Config, DefaultsAreWhatTheDocumentsSay) {
  const Config config = default_config(2);
  EXPECT_EQ(config.hostnicd.idle, Idle::kAdaptive);
  EXPECT_EQ(config.hostnicd.lcore_count, 1u);
  EXPECT_EQ(config.hostnicd.huge, HugePages::kAuto);
  EXPECT_FALSE(config.hostnicd.lend_userfaultfd);
  EXPECT_EQ(config.hostnicd.metrics_port, 0u) << "nothing listens unless it is asked for";
  EXPECT_EQ(config.hostnicd.limits.max_qps, 16384u);
  EXPECT_EQ(config.hostnicd.limits.max_mrs, 65536u);
  EXPECT_EQ(config.hostnicd.limits.max_clients, 1024u);
  ASSERT_EQ(config.nics.size(), 2u);
  const NicConfig& nic = config.nics[1];
  EXPECT_EQ(nic.name, "hnic1");
  EXPECT_TRUE(nic.on_wire());
  EXPECT_EQ(nic.ip, gid_of(Ipv4Address{0x7f4d0002}));
  EXPECT_EQ(nic.prefix_length, 24u);
  EXPECT_EQ(to_string(nic.mac), "02:00:7f:4d:00:02");
  EXPECT_EQ(nic.mtu_bytes, 4096u);
  EXPECT_EQ(nic.window, 1024u);
  EXPECT_EQ(nic.policy, wire::Policy::kSelective);
  EXPECT_EQ(nic.ordering, Ordering::kTail);
  EXPECT_EQ(nic.icrc, Icrc::kAuto);
  EXPECT_EQ(nic.segmentation, Segmentation::kAuto);
  EXPECT_EQ(nic.lid, Lid::kNone);
  EXPECT_FALSE(nic.mac_given);
  EXPECT_EQ(nic.idle, std::nullopt);
  EXPECT_TRUE(nic.impair_rx.rules.empty());
}

TEST(Config, TheLargestDefaultNetworkIsConsistent) {
  const auto nics = default_nics(kMaxNics);
  ASSERT_EQ(nics.size(), kMaxNics);
  EXPECT_EQ(check_nics(nics), std::nullopt);
  EXPECT_EQ(nics.back().ip, gid_of(Ipv4Address{0x7f4d0000 + 250}));
}

TEST(Config, EmptyFileIsAllDefaultsWithoutNics) {
  EXPECT_EQ(must_parse(""), Config{});
  EXPECT_EQ(must_parse("[hostnicd]\n"), Config{});
}

TEST(Config, EmptyNicsAreTheDefaultOnes) {
  EXPECT_EQ(must_parse("[[nic]]\n[[nic]]\n").nics, default_nics(2));
}

TEST(Config, EveryHostnicdKey) {
  const Config config = must_parse(R"(
[hostnicd]
socket = "/tmp/h.sock"
idle = "poll"
lcores = "2,4-5"
huge = "require"
lend_userfaultfd = true
metrics_port = 65535
errors_directory = "/var/lib/hostnic"
seed = 9223372036854775807
limits = { max_qps = 16, max_mrs = 524286, max_clients = 4096, nic_qps = 17, all_mrs = 18, user_clients = 3, user_qps = 4, user_mrs = 5, user_registered_mb = 6, user_page_tables_mb = 7 }
)");
  EXPECT_EQ(config.hostnicd.socket_path, "/tmp/h.sock");
  EXPECT_EQ(config.hostnicd.idle, Idle::kPoll);
  EXPECT_EQ(config.hostnicd.lcore_count, 0u);
  EXPECT_EQ(config.hostnicd.lcore_list, "2,4-5");
  EXPECT_EQ(config.hostnicd.huge, HugePages::kRequire);
  EXPECT_TRUE(config.hostnicd.lend_userfaultfd);
  EXPECT_EQ(config.hostnicd.metrics_port, 65535u);
  EXPECT_EQ(config.hostnicd.errors_directory, "/var/lib/hostnic");
  EXPECT_EQ(config.hostnicd.seed, 9223372036854775807u);
  EXPECT_EQ(config.hostnicd.limits, (Limits{16, 524286, 4096, 17, 18, 3, 4, 5, 6, 7}));
  EXPECT_EQ(must_parse("hostnicd.lcores = 4").hostnicd.lcore_count, 4u);
  EXPECT_EQ(must_parse("hostnicd.huge = 'never'").hostnicd.huge, HugePages::kNever);
}

TEST(Config, Orderings) {
  EXPECT_EQ(must_parse_option("ip=10.0.0.1").ordering, Ordering::kTail);
  EXPECT_EQ(must_parse_option("ip=10.0.0.1,ordering=adversarial").ordering, Ordering::kAdversarial);
  EXPECT_NE(option_error_of("ip=10.0.0.1,ordering=hostile").find("adversarial"), std::string::npos);
}

TEST(Config, EveryNicKey) {
  const Config config = must_parse(R"(
[[nic]]
name = "left"
port = "net_af_packet0,iface=veth0"
ip = "192.168.7.9/16"
gateway = "192.168.1.1"
mac = "02:AB:00:00:00:01"
mtu = 1024
window = 4096
transport = "roce"
hostnic_peers = "192.168.7.0/24"
roce_peers = "  fd00::/8 10.0.0.9"
auto_peers = "10.0.0.0/8"
congestion_allowance_us = 40
mrc_entropy_values = 64
mrc_planes = 4
policy = "go-back-n"
ordering = "strict"
idle = "poll"
icrc = "always"
segmentation = "off"
lid = "from-address"
impair_rx = "rx drop 1%"
impair_tx = "delay 1ms"
)");
  ASSERT_EQ(config.nics.size(), 1u);
  const NicConfig& nic = config.nics[0];
  EXPECT_EQ(nic.name, "left");
  EXPECT_EQ(nic.port, "net_af_packet0,iface=veth0");
  EXPECT_FALSE(nic.on_wire());
  EXPECT_EQ(nic.ip, gid_of(Ipv4Address{0xc0a80709}));
  EXPECT_EQ(nic.prefix_length, 16u);
  EXPECT_EQ(nic.gateway, Ipv4Address{0xc0a80101});
  EXPECT_EQ(to_string(nic.mac), "02:ab:00:00:00:01");
  EXPECT_EQ(nic.mtu_bytes, 1024u);
  EXPECT_EQ(nic.window, 4096u);
  EXPECT_EQ(nic.transport, Transport::kRoce);
  EXPECT_EQ(nic.hostnic_peers, (std::vector<Prefix>{{gid_of(Ipv4Address{0xc0a80700}), 96 + 24}}));
  EXPECT_EQ(nic.roce_peers, (std::vector<Prefix>{{*parse_gid("fd00::"), 8},
                                                 {gid_of(Ipv4Address{0x0a000009}), 128}}));
  EXPECT_EQ(nic.auto_peers, (std::vector<Prefix>{{gid_of(Ipv4Address{0x0a000000}), 96 + 8}}));
  EXPECT_EQ(nic.congestion_allowance_us, 40u);
  EXPECT_EQ(nic.mrc_entropy_values, 64u);
  EXPECT_EQ(nic.mrc_planes, 4u);
  EXPECT_EQ(nic.paths, 1u);
  EXPECT_EQ(must_parse("[[nic]]\npaths = 8").nics[0].paths, 8u);
  EXPECT_EQ(nic.policy, wire::Policy::kGoBackN);
  EXPECT_EQ(nic.ordering, Ordering::kStrict);
  EXPECT_EQ(nic.idle, Idle::kPoll);
  EXPECT_EQ(nic.icrc, Icrc::kAlways);
  EXPECT_EQ(nic.segmentation, Segmentation::kOff);
  EXPECT_EQ(nic.lid, Lid::kFromAddress);
  EXPECT_TRUE(nic.mac_given);
  EXPECT_EQ(impair::to_string(nic.impair_rx), "drop 1%");
  EXPECT_EQ(impair::to_string(nic.impair_tx), "delay 1ms");
}

TEST(Config, MtuDefaultsByPort) {
  EXPECT_EQ(must_parse("[[nic]]\nmtu = 'auto'").nics[0].mtu_bytes, 4096u);
  EXPECT_EQ(must_parse("[[nic]]\nport = 'x'\nip = '10.0.0.1/8'").nics[0].mtu_bytes, 0u);
  EXPECT_EQ(must_parse("[[nic]]\nport = 'x'\nip = '10.0.0.1/8'\nmtu = 256").nics[0].mtu_bytes,
            256u);
}

TEST(Config, Ipv6Addresses) {
  const NicConfig nic = must_parse("[[nic]]\nip = 'fd00::1/64'").nics[0];
  EXPECT_EQ(nic.ip, parse_gid("fd00::1"));
  EXPECT_EQ(nic.prefix_length, 64u);
  EXPECT_EQ(nic.mac, (wire::MacAddress{2, 0, 0, 0, 0, 1}));
  const NicConfig zoned = must_parse_option("port=udp,ip=fe80::1%eth0");
  EXPECT_EQ(zoned.ip, parse_gid("fe80::1"));
  EXPECT_EQ(zoned.zone, "eth0");
  EXPECT_FALSE(zoned.prefix_given);
}

TEST(Config, GidTables) {
  EXPECT_EQ(must_parse("[[nic]]").nics[0].gids, Gids::kAuto);
  EXPECT_EQ(must_parse_option("gids=one").gids, Gids::kOne);
  EXPECT_EQ(must_parse_option("gids=mlx5").gids, Gids::kMlx5);
}

TEST(Config, PointToPointPrefixesHaveNoBroadcast) {
  EXPECT_EQ(must_parse("[[nic]]\nip = '10.0.0.0/31'").nics[0].ip, gid_of(Ipv4Address{0x0a000000}));
  EXPECT_EQ(must_parse("[[nic]]\nip = '10.0.0.255/32'").nics[0].prefix_length, 32u);
}

struct Malformed {
  const char* text;
  const char* error;  // how it begins
};

class ConfigMalformed : public testing::TestWithParam<Malformed> {};

TEST_P(ConfigMalformed, OneLineSaysWhereWhatAndTheRemedy) {
  const std::string error = error_of(GetParam().text);
  EXPECT_TRUE(error.starts_with(GetParam().error)) << GetParam().text << "\n" << error;
  EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  EXPECT_EQ(error.back(), ')') << error;
}

INSTANTIATE_TEST_SUITE_P(
    All, ConfigMalformed,
    testing::Values(
        Malformed{"[[nic]]\nip = 'fd00::1/129'", "test.toml:2:6: ip is \"fd00::1/129\" (use"},
        Malformed{"[[nic]]\nip = 'ff02::1/64'", "test.toml:2:6: ip is \"ff02::1/64\" (use"},
        Malformed{"[[nic]]\nip = 'fd00::1%eth0/64'", "test.toml:2:6: ip is \"fd00::1%eth0/64\""},
        Malformed{"[[nic]]\nip = 'fe80::1%/64'", "test.toml:2:6: ip is \"fe80::1%/64\" (use"},
        Malformed{"[[nic]]\ngids = 'all'", "test.toml:2:8: gids is \"all\" (use"},
        Malformed{"[[nic]]\nport = 'net_af_packet0,iface=eth0'\nip = 'fd00::1/64'",
                  "test.toml:1:1: hnic0 on port net_af_packet0,iface=eth0 has the IPv6 address"},
        Malformed{"[[nic]]\nlid = 'from-address'\nip = 'fd00::1/64'",
                  "test.toml:1:1: hnic0 has lid \"from-address\" and the IPv6 address fd00::1"},
        Malformed{"[[nic]]\ngateway = '10.0.0.2'\nip = 'fd00::1/64'",
                  "test.toml:1:1: gateway 10.0.0.2 of hnic0 is outside fd00::1/64"},
        Malformed{"[hostnicd\n", "test.toml:1:"}, Malformed{"a = \n", "test.toml:1:5: "},
        Malformed{"[hostnicd]\nidle = 'poll'\nidle = 'poll'\n", "test.toml:3:"},
        Malformed{"[nics]", "test.toml:1:2: unknown key \"nics\" (a file has [hostnicd]"},
        Malformed{"hostnicd = 3", "test.toml:1:12: hostnicd is of type integer (begin a table"},
        Malformed{"[hostnicd]\nlimits = 3", "test.toml:2:10: limits is of type integer"},
        Malformed{
            "[hostnicd]\n  sock = 'x'",
            "test.toml:2:3: unknown key \"sock\" in [hostnicd] (it knows socket, socket_mode"},
        Malformed{"[hostnicd.limits]\nmax_qp = 1",
                  "test.toml:2:1: unknown key \"max_qp\" in [hostnicd.limits] (it knows max_qps"},
        Malformed{"[hostnicd.limits]\nmax_qps = 65521",
                  "test.toml:2:11: max_qps is 65521 (use 16 to 65520)"},
        Malformed{"[hostnicd.limits]\nmax_mrs = 0", "test.toml:2:11: max_mrs is 0 (use 16 to"},
        Malformed{"[hostnicd.limits]\nmax_clients = 4097", "test.toml:2:15: max_clients is 4097"},
        Malformed{"[hostnicd]\nsocket = ''", "test.toml:2:10: socket is \"\" (use a path"},
        Malformed{"[hostnicd]\nsocket = 1", "test.toml:2:10: socket is of type integer (use a st"},
        Malformed{"[hostnicd]\nidle = 'lazy'",
                  "test.toml:2:8: idle is \"lazy\" (use one of: adaptive, poll)"},
        Malformed{"[hostnicd]\nlcores = 0", "test.toml:2:10: lcores is 0 (use 1 to 128)"},
        Malformed{"[hostnicd]\nlcores = '1-'", "test.toml:2:10: lcores is \"1-\" (use a number"},
        Malformed{"[hostnicd]\nlcores = '3-1'", "test.toml:2:10: lcores is \"3-1\""},
        Malformed{"[hostnicd]\nlcores = '1,'", "test.toml:2:10: lcores is \"1,\""},
        Malformed{"[hostnicd]\nlcores = 1.5",
                  "test.toml:2:10: lcores is of type floating-point (use an integer or a string)"},
        Malformed{"[hostnicd]\nlend_userfaultfd = 1",
                  "test.toml:2:20: lend_userfaultfd is of type integer (use true or false)"},
        Malformed{"[hostnicd]\nmetrics_port = 65536",
                  "test.toml:2:16: metrics_port is 65536 (use 0 to 65535)"},
        Malformed{"[hostnicd]\nseed = -1", "test.toml:2:8: seed is -1 (use 0 to"},
        Malformed{"[nic]\nname = 'a'", "test.toml:1:1: nic is of type table (begin each NIC with"},
        Malformed{"nic = [1]", "test.toml:1:8: nic is of type integer (begin each"},
        Malformed{"[[nic]]\nmtuu = 1", "test.toml:2:1: unknown key \"mtuu\" in [[nic]] (it knows"},
        Malformed{"[[nic]]\nmtu = 1500", "test.toml:2:7: mtu is 1500 (use 256, 512, 1024"},
        Malformed{"[[nic]]\nmtu = 128", "test.toml:2:7: mtu is 128 (use 256"},
        Malformed{"[[nic]]\nmtu = 'big'", "test.toml:2:7: mtu is \"big\" (use 256"},
        Malformed{"[[nic]]\nwindow = 1000", "test.toml:2:10: window is 1000 (use a power of two"},
        Malformed{"[[nic]]\nwindow = 8192", "test.toml:2:10: window is 8192"},
        Malformed{"[[nic]]\nwindow = 16", "test.toml:2:10: window is 16"},
        Malformed{"[[nic]]\nname = 'a b'", "test.toml:2:8: name is \"a b\" (use 1 to 15"},
        Malformed{"[[nic]]\nname = 'abcdefghijklmnop'", "test.toml:2:8: name is"},
        Malformed{"[[nic]]\nport = 'a b'", "test.toml:2:8: port is \"a b\" (use \"wire\""},
        Malformed{"[[nic]]\nip = '10.0.0.1'\nport = 'wire'",
                  "test.toml:1:1: ip is \"10.0.0.1\" (use an address"},
        Malformed{"[[nic]]\nip = '10.0.0.1'\nport = 'udp,iface=eth0'",
                  "test.toml:1:1: port udp,iface=eth0 of hnic0 has arguments"},
        Malformed{"[[nic]]\nip = '10.0.0.1/8'\ngateway = '10.0.0.2'\nport = 'udp'",
                  "test.toml:1:1: hnic0 on port udp has a gateway (leave it out"},
        Malformed{"[[nic]]\nip = '10.0.0.1'\nmac = '02:00:00:00:00:01'\nport = 'udp'",
                  "test.toml:1:1: hnic0 on port udp has a mac (leave it out"},
        Malformed{"[[nic]]\nip = '10.0.0.1/33'", "test.toml:2:6: ip is"},
        Malformed{"[[nic]]\nip = '10.0.0.0/24'", "test.toml:2:6: ip is"},
        Malformed{"[[nic]]\nip = '10.0.0.255/24'", "test.toml:2:6: ip is"},
        Malformed{"[[nic]]\nip = '224.0.0.1/24'", "test.toml:2:6: ip is"},
        Malformed{"[[nic]]\nport = 'net_tap0'\nip = '127.77.0.1/24'",
                  "test.toml:1:1: hnic0 on port net_tap0 has the loopback address 127.77.0.1"},
        Malformed{"[[nic]]\ngateway = '127.77.0'", "test.toml:2:11: gateway is"},
        Malformed{"[[nic]]\ngateway = '10.78.0.1'",
                  "test.toml:1:1: gateway 10.78.0.1 of hnic0 is outside 127.77.0.1/24"},
        Malformed{"[[nic]]\nmac = '01:00:00:00:00:01'", "test.toml:2:7: mac is"},
        Malformed{"[[nic]]\nmac = '02:00:00:00:00'", "test.toml:2:7: mac is"},
        Malformed{"[[nic]]\nmac = '02-00-00-00-00-01'", "test.toml:2:7: mac is"},
        Malformed{"[[nic]]\nmac = '00:00:00:00:00:00'", "test.toml:2:7: mac is"},
        Malformed{"[[nic]]\ncongestion_allowance_us = 0",
                  "test.toml:2:27: congestion_allowance_us is 0 (use 1 to 1000000)"},
        Malformed{"[[nic]]\ntransport = 'rocev2'",
                  "test.toml:2:13: transport is \"rocev2\" (use one of: hostnic, roce, mrc, auto)"},
        Malformed{
            "[[nic]]\ntransport = 'mrc'\nwindow = 64",
            "test.toml:1:1: hnic0 has transport \"mrc\" and a window of 64 (use 128 or more)"},
        Malformed{"[[nic]]\ntransport = 'mrc'\npolicy = 'go-back-n'",
                  "test.toml:1:1: hnic0 has transport \"mrc\" and policy \"go-back-n\" (leave "
                  "policy out)"},
        Malformed{"[[nic]]\npaths = 17", "test.toml:2:9: paths is 17 (use 1 to 16)"},
        Malformed{"[[nic]]\npaths = 0", "test.toml:2:9: paths is 0 (use 1 to 16)"},
        Malformed{"[[nic]]\npaths = 4\npolicy = 'go-back-n'",
                  "test.toml:1:1: hnic0 has 4 paths and policy \"go-back-n\" (leave one of them "
                  "out)"},
        Malformed{"[[nic]]\nmrc_planes = 3",
                  "test.toml:2:14: mrc_planes is 3 (use 1, 2, 4, 8 or 16)"},
        Malformed{"[[nic]]\ntransport = \"mrc\"\nmrc_entropy_values = 6\nmrc_planes = 4",
                  "test.toml:1:1: hnic0 has 6 entropy values over 4 planes (use a multiple of 4)"},
        Malformed{"[[nic]]\nmrc_entropy_values = 257",
                  "test.toml:2:22: mrc_entropy_values is 257 (use 1 to 256)"},
        Malformed{"[[nic]]\nroce_peers = '10.0.0.0/33'",
                  "test.toml:2:14: roce_peers is \"10.0.0.0/33\" (use addresses and the lengths"},
        Malformed{"[[nic]]\nhostnic_peers = 'ten'", "test.toml:2:17: hostnic_peers is \"ten\""},
        Malformed{"[[nic]]\nauto_peers = '::/129'", "test.toml:2:14: auto_peers is \"::/129\""},
        Malformed{"[[nic]]\nauto_peers = '10.0.0.9/24'\nroce_peers = '10.1.0.0/24 10.0.0.0/24'",
                  "test.toml:1:1: hnic0 has 10.0.0.9 in both roce_peers and auto_peers (leave it "
                  "out of one)"},
        Malformed{"[[nic]]\npolicy = 'gbn'",
                  "test.toml:2:10: policy is \"gbn\" (use one of: selective, go-back-n, whole-m"},
        Malformed{"[[nic]]\nordering = 'weak'", "test.toml:2:12: ordering is \"weak\""},
        Malformed{"[[nic]]\nidle = 'no'", "test.toml:2:8: idle is \"no\""},
        Malformed{"[[nic]]\nsegmentation = 'on'", "test.toml:2:16: segmentation is \"on\""},
        Malformed{"[[nic]]\nlid = 'yes'",
                  "test.toml:2:7: lid is \"yes\" (use one of: none, from-address)"},
        Malformed{"[[nic]]\nicrc = 'never'", "test.toml:2:8: icrc is \"never\""},
        Malformed{"[[nic]]\nport = 'net_tap0'", "test.toml:1:1: hnic0 on port net_tap0 has no ip"},
        Malformed{"[[nic]]\n\n[[nic]]\nname = 'hnic0'", "test.toml:3:1: two NICs are named hnic0"},
        Malformed{"[[nic]]\n[[nic]]\nip = '127.77.0.1/24'",
                  "test.toml:2:1: hnic0 and hnic1 both have ip 127.77.0.1"},
        Malformed{"[[nic]]\n[[nic]]\nmac = '02:00:7f:4d:00:01'",
                  "test.toml:2:1: hnic0 and hnic1 both have mac 02:00:7f:4d:00:01"},
        Malformed{"[[nic]]\nport='x'\nip='10.0.0.1/8'\n[[nic]]\nport='x'\nip='10.0.0.2/8'",
                  "test.toml:4:1: hnic0 and hnic1 both use port x"}));

TEST(Config, ImpairmentErrorsPointIntoTheString) {
  EXPECT_TRUE(
      error_of("[[nic]]\nimpair_rx = 'drop 1%; delay 5'")
          .starts_with("test.toml:2:29: impair_rx, column 16: found \"5\", expected a time"));
  // With escapes or several lines the place within the string is not the file's.
  EXPECT_TRUE(error_of("[[nic]]\nimpair_tx = '''\ndrop'''")
                  .starts_with("test.toml:2:13: impair_tx, column 5: found the end"));
  EXPECT_TRUE(error_of("[[nic]]\nimpair_rx = 'tx drop 1%'")
                  .starts_with("test.toml:2:14: impair_rx begins with the other direction (leave"));
}

TEST(Config, AtMostThatManyNics) {
  std::string text;
  for (size_t i = 0; i < kMaxNics; ++i) text += "[[nic]]\n";
  EXPECT_EQ(must_parse(text).nics.size(), kMaxNics);
  EXPECT_TRUE(error_of(text + "[[nic]]\n").starts_with("test.toml:251:1: 251 NICs (use at most"));
}

TEST(ConfigNicOption, OurKeysAndThePorts) {
  const NicConfig nic = must_parse_option(
      "port=net_af_packet0,iface=veth0,ip=10.0.0.1/24,mtu=1024,qdisc_bypass=0,icrc=always");
  EXPECT_EQ(nic.port, "net_af_packet0,iface=veth0,qdisc_bypass=0");
  EXPECT_EQ(nic.ip, gid_of(Ipv4Address{0x0a000001}));
  EXPECT_EQ(nic.mtu_bytes, 1024u);
  EXPECT_EQ(nic.icrc, Icrc::kAlways);
  EXPECT_EQ(nic.name, "hnic0");
}

TEST(ConfigNicOption, PortMayComeLaterAndHaveFlagsAndLists) {
  const NicConfig nic =
      must_parse_option("ip=10.0.0.1/24,representor=[0,2-3],flag,port=0000:3b:00.0", 3);
  EXPECT_EQ(nic.port, "0000:3b:00.0,representor=[0,2-3],flag");
  EXPECT_EQ(nic.name, "hnic3");
}

TEST(ConfigNicOption, WireByDefault) {
  EXPECT_EQ(must_parse_option("port=wire", 4), default_nics(5)[4]);
  EXPECT_EQ(must_parse_option("mtu=auto").mtu_bytes, 4096u);
}

TEST(ConfigNicOption, UdpTakesAnAddressOfTheMachine) {
  const NicConfig bare = must_parse_option("port=udp,ip=10.0.0.1");
  EXPECT_EQ(bare.port, kUdpPort);
  EXPECT_FALSE(bare.prefix_given);
  EXPECT_FALSE(bare.port_by_address);
  const NicConfig loopback = must_parse_option("port=udp,ip=127.0.0.1/8");
  EXPECT_TRUE(loopback.prefix_given);
  EXPECT_EQ(loopback.prefix_length, 8u);
  const NicConfig any = must_parse_option("ip=10.0.0.1");
  EXPECT_TRUE(any.port_by_address);
  EXPECT_EQ(any.mtu_bytes, 0u) << "the port is not known yet";
}

TEST(ConfigNicOption, ImpairmentsKeepTheirCommas) {
  const NicConfig nic =
      must_parse_option("impair_rx=drop 1% kind ack,write,send; delay 1us,window=64");
  EXPECT_EQ(impair::to_string(nic.impair_rx), "drop 1% kind write,send,ack; delay 1us");
  EXPECT_EQ(nic.window, 64u);
}

TEST(ConfigNicOption, Errors) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "--nic: column 1: expected key=value"},
      {"ip=10.0.0.1/24,", "--nic: column 16: expected key=value"},
      {"=3", "--nic: column 1: expected key=value"},
      {"mtu", "--nic: column 1: mtu has no value"},
      {"window=64,mtu=1000", "--nic: column 15: mtu is 1000 (use 256"},
      {"window=big", "--nic: column 8: window is \"big\" (use an integer)"},
      {"window=99999999999999999999", "--nic: column 8: window is"},
      {"mtu=1024,mtu=1024", "--nic: column 10: mtu is given twice"},
      {"window=64,mtuu=1024", "--nic: column 11: \"mtuu=1024\" is no key of a NIC on the wire"},
      {"port=net_tap0", "--nic: column 1: hnic0 on port net_tap0 has no ip"},
      {"impair_rx=drop 1x", "--nic: column 16: impair_rx, column 6: found \"1x\""},
  };
  for (const auto& [text, error] : cases) {
    EXPECT_TRUE(option_error_of(text).starts_with(error)) << text << ": " << option_error_of(text);
  }
}

TEST(ConfigCheckNics, ListsPutTogetherFromOptions) {
  std::vector<NicConfig> nics = default_nics(3);
  EXPECT_EQ(check_nics(nics), std::nullopt);
  nics[2].name = "hnic0";
  EXPECT_EQ(check_nics(nics), "two NICs are named hnic0 (name them apart)");
}

TEST(ConfigFile, MissingAndUnreadable) {
  const auto missing = load_config_file("/nonexistent/h.toml");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().text(),
            "/nonexistent/h.toml: can't be read: No such file or directory (give --config a "
            "readable file)");
  const auto directory = load_config_file("/tmp");
  ASSERT_FALSE(directory);
  EXPECT_TRUE(directory.error().text().starts_with("/tmp: can't be read: Is a directory"))
      << directory.error().text();
}

TEST(ConfigFile, EmptyFileIsNoError) {
  const std::string path = testing::TempDir() + "hostnic_empty_" + std::to_string(getpid());
  std::ofstream(path).close();
  const auto config = load_config_file(path);
  std::filesystem::remove(path);
  ASSERT_TRUE(config) << config.error().text();
  EXPECT_EQ(*config, Config{});
}

Config example(const std::string& name) {
  auto config = load_config_file(std::string(HOSTNIC_SOURCE_DIR) + "/config/examples/" + name);
  if (config) return *config;
  ADD_FAILURE() << config.error().text();
  return {};
}

TEST(ConfigExamples, TwoNicsAreTheDefaults) {
  EXPECT_EQ(example("two-nics.toml"), default_config(2));
}

TEST(ConfigExamples, LossyLab) {
  const Config config = example("lossy-lab.toml");
  ASSERT_EQ(config.nics.size(), 2u);
  EXPECT_EQ(config.hostnicd.seed, 42u);
  EXPECT_EQ(config.nics[0].impair_rx.rules.size(), 5u);
  EXPECT_EQ(config.nics[1].impair_tx.rules.size(), 2u);
}

TEST(ConfigExamples, AfPacket) {
  const Config config = example("af-packet.toml");
  ASSERT_EQ(config.nics.size(), 1u);
  EXPECT_FALSE(config.nics[0].on_wire());
  EXPECT_EQ(config.nics[0].mtu_bytes, 0u);
}

TEST(ConfigExamples, Udp) {
  const Config config = example("udp.toml");
  ASSERT_EQ(config.nics.size(), 1u);
  EXPECT_EQ(config.nics[0].port, kUdpPort);
  EXPECT_EQ(config.nics[0].ip, gid_of(Ipv4Address{0x7f000001}));
  EXPECT_FALSE(config.nics[0].prefix_given);
}

TEST(ConfigExamples, PhysicalNic) {
  const Config config = example("physical-nic.toml");
  EXPECT_EQ(config.hostnicd.lcore_list, "2-3");
  ASSERT_EQ(config.nics.size(), 1u);
  EXPECT_EQ(config.nics[0].port, "0000:3b:00.0");
}

TEST(ConfigExamples, ManyNics) {
  const Config config = example("many-nics.toml");
  ASSERT_EQ(config.nics.size(), 8u);
  EXPECT_EQ(config.nics[7].ip, gid_of(Ipv4Address{0x7f4d0008}));
  EXPECT_EQ(config.nics[7].window, 128u);
}

TEST(ConfigExamples, NoneIsUntested) {
  size_t count = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(HOSTNIC_SOURCE_DIR) + "/config/examples")) {
    count += entry.path().extension() == ".toml";
  }
  EXPECT_EQ(count, 6u) << "an example was added: parse it in a test of its own";
}

}  // namespace
}  // namespace hostnic::config
