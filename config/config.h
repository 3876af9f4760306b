// SPDX-License-Identifier: BSD-3-Clause
// What hostnicd is told at its start: a TOML file, --nic options, or nothing at all. Everything
// here is checked; what comes back can be used as it is.
//
// Any thread; nothing throws on bad input. The file's keys are those of the structs below, see
// config/examples/.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "protocol/expected.h"
#include "protocol/gid.h"
#include "protocol/hostif/device_offer.h"
#include "protocol/impair/spec.h"
#include "protocol/impair/switch_spec.h"
#include "protocol/transport_kind.h"
#include "protocol/types.h"
#include "protocol/wire/packet.h"

namespace hostnic::config {

// adaptive: poll while there is work, then sleep. poll: never sleep, for cores of our own.
enum class Idle : uint8_t { kAdaptive, kPoll };
enum class HugePages : uint8_t { kAuto, kNever, kRequire };
// What may become visible before what is before it (docs/transport.md rule 10, tails wait).
enum class Ordering : uint8_t { kTail, kRelaxed, kStrict, kAdversarial };
// auto: on real ports only; the in-process wire does not corrupt.
enum class Icrc : uint8_t { kAuto, kAlways };
enum class Segmentation : uint8_t { kAuto, kOff };
// The LID of the ports, of which RoCE ports have none. from-address: the low half of the IPv4
// address, for programs that know nothing else; paths without a GRH then lead to the NIC of that
// LID in the own /16.
enum class Lid : uint8_t { kNone, kFromAddress };

// The GID table. auto: every address of the NIC, which on port udp are those of its interface, as
// RoCEv2 GIDs. one: "ip" alone. mlx5: as that driver fills it, for scripts that say index 3: the
// link-local address first, each as RoCEv1 and as RoCEv2. rxe: the link-local address first, all as
// RoCEv2. link-local: that one alone, as RoCEv1 and as RoCEv2.
enum class Gids : uint8_t { kAuto, kOne, kMlx5, kRxe, kLinkLocal };

// What programs see of a device (config/personality.h).
struct Personality {
  std::string about;        // one line for people
  std::string device_name;  // what its devices' names begin with, before a number; empty: hnic
  std::optional<Gids> gids;
  bool gid_moves = false;  // the NIC's own GID has another index whenever the port has come back
  uint32_t max_qps = 0;    // queue pairs of a program's device; 0: as configured
  DeviceOffer offer;
  std::vector<std::string> capped;  // limits of which hostnic has less: "max_sge = 30 (16 here)"
  bool operator==(const Personality&) const = default;
};
inline constexpr size_t kMaxDeviceNameBytes = 12;  // of Personality::device_name

// Hosts whose addresses begin with the `bits` first bits of `address`.
struct Prefix {
  Gid address{};
  uint32_t bits = 0;
  bool operator==(const Prefix&) const = default;
};

inline constexpr size_t kMaxNics = 250;             // what the wire's default network can number
inline constexpr size_t kMaxNameBytes = 15;         // name of a NIC, as long as the kernel's
                                                    // interfaces'
inline constexpr size_t kMaxSocketPathBytes = 107;  // sockaddr_un
inline constexpr std::string_view kWirePort = "wire";
inline constexpr std::string_view kUdpPort = "udp";

struct Limits {
  // These two are limits of one client, and so what a device promises.
  uint32_t max_qps = 16384;  // queue pairs; 16 to 65520
  uint32_t max_mrs = 65536;  // memory regions; 16 to 524286
  // These are limits of all clients together.
  uint32_t max_clients = 1024;  // open devices; 1 to 4096
  uint32_t nic_qps = 0;         // queue pairs per NIC; 0: twice max_qps, or as many as there can be
  uint32_t all_mrs = 0;         // memory regions; 0: twice max_mrs, or as many as there can be
  // These are limits of all clients of one user, unless that is the one who runs hostnicd, or root.
  uint32_t user_clients = 0;        // open devices; 0: half of max_clients
  uint32_t user_qps = 0;            // queue pairs per NIC; 0: half of nic_qps
  uint32_t user_mrs = 0;            // memory regions; 0: half of all_mrs
  uint64_t user_registered_mb = 0;  // megabytes registered that hostnicd maps; 0: no limit
  // Megabytes of page tables for what hostnicd maps: enough for 512 times as much in one piece.
  uint64_t user_page_tables_mb = 0;  // 0: by the machine's memory
  bool operator==(const Limits&) const = default;
};

// Parses a mode such as "0660": octal digits, nothing but rights to read and write.
std::optional<uint32_t> parse_socket_mode(const std::string& text);

struct HostnicdConfig {
  std::string socket_path;      // "socket"; empty: hostnicd's default
  uint32_t socket_mode = 0600;  // who may open the socket: "socket_mode", octal digits
  std::string socket_group;     // group of the socket, name or number; empty: hostnicd's own
  Idle idle = Idle::kAdaptive;
  uint32_t lcore_count = 1;  // "lcores = 2"; 0 if a list is given
  std::string lcore_list;    // "lcores = '2,4-5'": CPUs, in EAL's notation
  HugePages huge = HugePages::kAuto;
  bool lend_userfaultfd = false;      // give clients a /dev/userfaultfd descriptor
  impair::SwitchSpec network_switch;  // "switch": that all NICs hang on
  uint64_t seed = 1;                  // seed of all impairments
  uint32_t metrics_port = 0;          // TCP port of 127.0.0.1 where HTTP gets metrics; 0: none
  std::string errors_directory;       // keeps the book of errors over restarts; empty: nowhere
  Limits limits;                      // [hostnicd.limits]
  bool operator==(const HostnicdConfig&) const = default;
};

struct NicConfig {
  std::string name;              // default hnicK, K its place among the NICs
  std::string port{kWirePort};   // kWirePort, kUdpPort, or a DPDK devargs string
  bool port_by_address = false;  // if ip is an address of the machine, the port is kUdpPort
  Gid ip{};                      // "ip", with the prefix: 127.77.0.(K+1)/24 on the wire
  std::string zone;              // interface of a link-local address, "fe80::1%eth0"; may be empty
  uint32_t prefix_length = 24;   // bits of the prefix
  bool prefix_given = true;      // if false, the prefix is the interface's; kUdpPort alone has one
  std::optional<Ipv4Address> gateway;  // next hop for peers outside the prefix
  wire::MacAddress mac{};              // default 02:00 and the address
  bool mac_given = false;              // if false, an Ethernet port keeps its own
  uint32_t mtu_bytes = 0;              // IB MTU "mtu"; 0: the largest that fits the port (auto)
  uint32_t window = 1024;              // window in PSNs; a power of two from 32 to 4096
  wire::Policy policy = wire::Policy::kSelective;
  uint32_t paths = 1;                      // of each native queue pair: 1 to 16
  uint32_t congestion_allowance_us = 250;  // growth of the round trip before senders slow down
  Ordering ordering = Ordering::kTail;
  Transport transport = Transport::kHostnic;  // of RC connections; never kUnreliable
  uint32_t mrc_entropy_values = 16;           // of each queue pair, by MRC: 1 to 256
  uint32_t mrc_planes = 1;                    // that they are spread over: 1, 2, 4, 8 or 16
  // Peers to which connections speak the one or the other, whatever `transport` says; of several
  // that an address has the longest counts.
  std::vector<Prefix> hostnic_peers, roce_peers, auto_peers;
  std::optional<Idle> idle;  // none: hostnicd's
  Icrc icrc = Icrc::kAuto;
  Segmentation segmentation = Segmentation::kAuto;
  Lid lid = Lid::kNone;
  Gids gids = Gids::kAuto;
  std::optional<Personality> like;
  // These override the personality's; 0: they don't.
  uint32_t vendor_id = 0, vendor_part_id = 0;
  impair::Spec impair_rx, impair_tx;

  bool on_wire() const { return port == kWirePort; }
  bool operator==(const NicConfig&) const = default;
};

struct Config {
  HostnicdConfig hostnicd;
  std::vector<NicConfig> nics;  // empty if the file names none: the caller takes default_nics()
  bool operator==(const Config&) const = default;
};

struct ConfigError {
  std::string source;             // file or option name
  uint32_t line = 0, column = 0;  // counted from 1; 0: not about a place
  std::string message;            // with the remedy in parentheses
  // The error for people: "lab.toml:3:7: mtu is 1000 (use 256, 512, 1024, 2048, 4096 or "auto")"
  std::string text() const;
};

// Where `like` is not null, it is the personality of all NICs that say nothing else; so of the
// functions below.
Expected<Config, ConfigError> load_config_file(const std::string& path,
                                               const Personality* like = nullptr);
// Parses a configuration; `source_name` stands in errors for the file's name.
Expected<Config, ConfigError> parse_config(std::string_view text, const std::string& source_name,
                                           const Personality* like = nullptr);

// Parses a NIC from the command line: "port=net_af_packet0,iface=veth0,ip=10.0.0.1/24,mtu=1024".
// Keys that are not ours belong to the port and go, in order, into its devargs. `index` is the
// NIC's place, for defaults. Errors have a column in `text` and no line.
Expected<NicConfig, ConfigError> parse_nic_option(std::string_view text, size_t index,
                                                  const Personality* like = nullptr);

// Makes N NICs on the in-process wire, all settings at their defaults. `count` is 1 to kMaxNics.
std::vector<NicConfig> default_nics(size_t count, const Personality* like = nullptr);
Config default_config(size_t nic_count, const Personality* like = nullptr);

// Checks what NICs may not have in common: name, address, MAC. Returns one line about the first
// clash, or nothing. Files are checked already; this is for lists put together from options.
std::optional<std::string> check_nics(const std::vector<NicConfig>& nics);

// What a NIC's transport "mrc" has to agree with.
struct MrcKeys {
  uint32_t window = 0;
  wire::Policy policy{};
  uint32_t entropy_values = 0, planes = 0;
};
// Says why a NIC can't speak this transport with those, with the remedy; nothing if it can.
std::optional<std::string> check_mrc(std::string_view nic, Transport transport,
                                     const MrcKeys& keys);

// Says why a NIC can't have so many paths with its policy: sprayed packets come in no order, which
// a receiver that goes back, or counts, does not take. Nothing: it can.
std::optional<std::string> check_paths(std::string_view nic, uint32_t paths, wire::Policy policy);

std::string to_string(const wire::MacAddress& mac);

}  // namespace hostnic::config
