// SPDX-License-Identifier: BSD-3-Clause
// Keys of [[nic]] and --nic, and the defaults that depend on them.
#include <algorithm>
#include <array>
#include <bit>
#include <span>

#include "config/personality.h"
#include "config/values.h"
#include "protocol/impair/spec_values.h"

namespace hostnic::config {

namespace {

// The default network 127.77.0.0/24: every Linux has these addresses, so that programs can also use
// TCP with them.
constexpr uint32_t kWireNetwork = 0x7f4d0000;
constexpr uint32_t kWireMtuBytes = 4096;
constexpr const char* kIpRemedy =
    "use an address of one host and its prefix length, such as 10.0.0.1/24 or fd00::1/64";

// Whether a host can have the address: not 0.x, multicast or reserved.
bool is_unicast(Ipv4Address address) {
  const uint32_t first_byte = raw(address) >> 24;
  return first_byte != 0 && first_byte < 224;
}

// Whether an address is neither the network's own nor its broadcast; /31 and /32 have neither.
bool is_host_in(Ipv4Address address, uint32_t prefix_length) {
  if (prefix_length >= 31) return true;
  const uint32_t host_mask = ~raw(network_mask(prefix_length));
  const uint32_t host = raw(address) & host_mask;
  return host != 0 && host != host_mask;
}

ValueResult set_name(NicDraft& draft, const Value& value) {
  const std::string& name = std::get<std::string>(value);
  if (name.empty() || name.size() > kMaxNameBytes || !is_plain_name(name)) {
    return bad_value("name", fmt::format("\"{}\"", name),
                     "use 1 to 15 letters, digits, '-' and '_', such as hnic0");
  }
  draft.nic.name = name;
  return std::nullopt;
}

ValueResult set_port(NicDraft& draft, const Value& value) {
  const std::string& port = std::get<std::string>(value);
  const bool plain =
      std::all_of(port.begin(), port.end(), [](char c) { return c > ' ' && c <= '~'; });
  if (port.empty() || port.front() == ',' || !plain) {
    return bad_value("port", fmt::format("\"{}\"", port),
                     "use \"wire\", \"udp\" or DPDK devargs such as \"net_af_packet0,iface=eth0\"");
  }
  draft.nic.port = port;
  draft.has_port = true;
  return std::nullopt;
}

// Whether a host can have the address, in a network of this prefix length.
bool is_host_address(const Gid& address, uint64_t prefix_length) {
  const auto ip = ipv4_of(address);
  if (!ip) return is_ipv6_host(address) && prefix_length >= 1 && prefix_length <= 128;
  return prefix_length >= 1 && prefix_length <= 32 && is_unicast(*ip) &&
         is_host_in(*ip, static_cast<uint32_t>(prefix_length));
}

ValueResult set_ip(NicDraft& draft, const Value& value) {
  const std::string& text = std::get<std::string>(value);
  const size_t slash = text.find('/');
  const std::string_view before = std::string_view(text).substr(0, slash);
  const size_t percent = before.find('%');
  const auto address = parse_gid(before.substr(0, percent));
  const bool zoned = percent != std::string_view::npos;
  draft.nic.zone = zoned ? before.substr(percent + 1) : "";
  draft.nic.prefix_given = slash != std::string::npos;
  const auto prefix = draft.nic.prefix_given
                          ? impair::parse_integer(std::string_view(text).substr(slash + 1))
                          : std::optional<uint64_t>(32);
  const bool good = address && prefix && is_host_address(*address, *prefix) &&
                    (!zoned || (is_link_local(*address) && !draft.nic.zone.empty()));
  if (!good) return bad_value("ip", fmt::format("\"{}\"", text), kIpRemedy);
  draft.nic.ip = *address;
  draft.nic.prefix_length = static_cast<uint32_t>(*prefix);
  draft.has_ip = true;
  return std::nullopt;
}

ValueResult set_gateway(NicDraft& draft, const Value& value) {
  const std::string& text = std::get<std::string>(value);
  const auto address = impair::parse_ipv4(text);
  if (!address || !is_unicast(*address)) {
    return bad_value("gateway", fmt::format("\"{}\"", text), "use an address such as 10.0.0.254");
  }
  draft.nic.gateway = *address;
  return std::nullopt;
}

ValueResult set_mac(NicDraft& draft, const Value& value) {
  const std::string& text = std::get<std::string>(value);
  const auto mac = parse_mac(text);
  const bool group = mac && ((*mac)[0] & 1) != 0;
  if (!mac || group || *mac == wire::MacAddress{}) {
    return bad_value("mac", fmt::format("\"{}\"", text),
                     "use a unicast address such as 02:00:0a:00:00:01, or leave it out");
  }
  draft.nic.mac = *mac;
  draft.nic.mac_given = true;
  return std::nullopt;
}

ValueResult set_mtu(NicDraft& draft, const Value& value) {
  constexpr const char* kRemedy = "use 256, 512, 1024, 2048, 4096 or \"auto\"";
  draft.has_mtu = true;
  if (const auto* text = std::get_if<std::string>(&value)) {
    draft.nic.mtu_bytes = 0;
    if (*text != "auto") return bad_value("mtu", fmt::format("\"{}\"", *text), kRemedy);
    return std::nullopt;
  }
  const int64_t bytes = std::get<int64_t>(value);
  if (bytes < 256 || bytes > 4096 || !std::has_single_bit(static_cast<uint64_t>(bytes))) {
    return bad_value("mtu", fmt::format("{}", bytes), kRemedy);
  }
  draft.nic.mtu_bytes = static_cast<uint32_t>(bytes);
  return std::nullopt;
}

ValueResult set_window(NicDraft& draft, const Value& value) {
  const int64_t window = std::get<int64_t>(value);
  if (window < 32 || window > 4096 || !std::has_single_bit(static_cast<uint64_t>(window))) {
    return bad_value("window", fmt::format("{}", window), "use a power of two from 32 to 4096");
  }
  draft.nic.window = static_cast<uint32_t>(window);
  return std::nullopt;
}

ValueResult set_congestion_allowance(NicDraft& draft, const Value& value) {
  constexpr int64_t kLongestUs = 1'000'000;
  const int64_t microseconds = std::get<int64_t>(value);
  if (microseconds < 1 || microseconds > kLongestUs) {
    return bad_value("congestion_allowance_us", fmt::format("{}", microseconds),
                     fmt::format("use 1 to {}", kLongestUs));
  }
  draft.nic.congestion_allowance_us = static_cast<uint32_t>(microseconds);
  return std::nullopt;
}

ValueResult set_paths(NicDraft& draft, const Value& value) {
  const int64_t count = std::get<int64_t>(value);
  if (count < 1 || count > kMostPaths)
    return bad_value("paths", fmt::format("{}", count), fmt::format("use 1 to {}", kMostPaths));
  draft.nic.paths = static_cast<uint32_t>(count);
  return std::nullopt;
}

ValueResult set_entropy_values(NicDraft& draft, const Value& value) {
  constexpr int64_t kMost = 256;
  const int64_t count = std::get<int64_t>(value);
  if (count < 1 || count > kMost) {
    return bad_value("mrc_entropy_values", fmt::format("{}", count),
                     fmt::format("use 1 to {}", kMost));
  }
  draft.nic.mrc_entropy_values = static_cast<uint32_t>(count);
  return std::nullopt;
}

ValueResult set_planes(NicDraft& draft, const Value& value) {
  constexpr int64_t kMost = 16;
  const int64_t count = std::get<int64_t>(value);
  if (count < 1 || count > kMost || !std::has_single_bit(static_cast<uint64_t>(count)))
    return bad_value("mrc_planes", fmt::format("{}", count), "use 1, 2, 4, 8 or 16");
  draft.nic.mrc_planes = static_cast<uint32_t>(count);
  return std::nullopt;
}

// Sets a list of prefixes with spaces between: "10.1.0.0/16 fd00::/8".
ValueResult set_prefixes(std::vector<Prefix>& out, const char* key, const Value& value) {
  const std::string& text = std::get<std::string>(value);
  out.clear();
  for (size_t at = 0; (at = text.find_first_not_of(' ', at)) != std::string::npos;) {
    const size_t end = std::min(text.find(' ', at), text.size());
    const std::string_view one = std::string_view(text).substr(at, end - at);
    const size_t slash = one.find('/');
    const auto address = parse_gid(one.substr(0, slash));
    const bool is_ipv4 = address && ipv4_of(*address);
    const auto bits = slash == std::string_view::npos
                          ? std::optional<uint64_t>(is_ipv4 ? 32 : 128)
                          : impair::parse_integer(one.substr(slash + 1));
    if (!address || !bits || *bits > (is_ipv4 ? 32u : 128u)) {
      return bad_value(key, fmt::format("\"{}\"", one),
                       "use addresses and the lengths of their prefixes, with spaces between, such "
                       "as \"10.1.0.0/16 fd00::/8\"");
    }
    // A GID has an IPv4 address in its last 32 bits.
    constexpr uint32_t kMappedBits = 96;
    out.push_back({*address, static_cast<uint32_t>(*bits) + (is_ipv4 ? kMappedBits : 0)});
    at = end;
  }
  return std::nullopt;
}

ValueResult set_impairment(impair::Spec& out, impair::Direction direction, const char* key,
                           const Value& value) {
  const std::string& text = std::get<std::string>(value);
  auto spec = impair::parse_spec(text);
  if (!spec) {
    return ValueError{fmt::format("{}, {}", key, spec.error().message()), spec.error().column - 1};
  }
  if (spec->direction && *spec->direction != direction) {
    return ValueError{fmt::format("{} begins with the other direction (leave rx and tx out)", key),
                      size_t{0}};
  }
  spec->direction.reset();
  out = std::move(*spec);
  return std::nullopt;
}

// The value is a personality that is shipped, or a file of the machine.
ValueResult set_like(NicDraft& draft, const Value& value) {
  auto found = find_personality(std::get<std::string>(value));
  if (!found) return ValueError{fmt::format("like: {}", found.error().text()), std::nullopt};
  draft.nic.like = std::move(*found);
  return std::nullopt;
}

const std::array<Key<NicDraft>, 27> kNicKeys{{
    {"name", kString, set_name},
    {"port", kString, set_port},
    {"ip", kString, set_ip},
    {"gateway", kString, set_gateway},
    {"mac", kString, set_mac},
    {"mtu", kInteger | kString, set_mtu},
    {"window", kInteger, set_window},
    {"policy", kString,
     [](NicDraft& draft, const Value& value) {
       return set_choice(draft.nic.policy, "policy", value,
                         {{"selective", wire::Policy::kSelective},
                          {"go-back-n", wire::Policy::kGoBackN},
                          {"whole-message", wire::Policy::kWholeMessage}});
     }},
    {"transport", kString,
     [](NicDraft& draft, const Value& value) {
       return set_choice(draft.nic.transport, "transport", value,
                         {{"hostnic", Transport::kHostnic},
                          {"roce", Transport::kRoce},
                          {"mrc", Transport::kMrc},
                          {"auto", Transport::kAuto}});
     }},
    {"hostnic_peers", kString,
     [](NicDraft& draft, const Value& value) {
       return set_prefixes(draft.nic.hostnic_peers, "hostnic_peers", value);
     }},
    {"roce_peers", kString,
     [](NicDraft& draft, const Value& value) {
       return set_prefixes(draft.nic.roce_peers, "roce_peers", value);
     }},
    {"auto_peers", kString,
     [](NicDraft& draft, const Value& value) {
       return set_prefixes(draft.nic.auto_peers, "auto_peers", value);
     }},
    {"congestion_allowance_us", kInteger, set_congestion_allowance},
    {"paths", kInteger, set_paths},
    {"mrc_entropy_values", kInteger, set_entropy_values},
    {"mrc_planes", kInteger, set_planes},
    {"ordering", kString,
     [](NicDraft& draft, const Value& value) {
       return set_choice(draft.nic.ordering, "ordering", value,
                         {{"tail", Ordering::kTail},
                          {"relaxed", Ordering::kRelaxed},
                          {"strict", Ordering::kStrict},
                          {"adversarial", Ordering::kAdversarial}});
     }},
    {"idle", kString,
     [](NicDraft& draft, const Value& value) {
       return set_choice(draft.nic.idle, "idle", value,
                         {{"adaptive", std::optional(Idle::kAdaptive)}, {"poll", Idle::kPoll}});
     }},
    {"icrc", kString,
     [](NicDraft& draft, const Value& value) {
       return set_choice(draft.nic.icrc, "icrc", value,
                         {{"auto", Icrc::kAuto}, {"always", Icrc::kAlways}});
     }},
    {"segmentation", kString,
     [](NicDraft& draft, const Value& value) {
       return set_choice(draft.nic.segmentation, "segmentation", value,
                         {{"auto", Segmentation::kAuto}, {"off", Segmentation::kOff}});
     }},
    {"lid", kString,
     [](NicDraft& draft, const Value& value) {
       return set_choice(draft.nic.lid, "lid", value,
                         {{"none", Lid::kNone}, {"from-address", Lid::kFromAddress}});
     }},
    {"gids", kString,
     [](NicDraft& draft, const Value& value) {
       draft.has_gids = true;
       return set_gids(draft.nic.gids, value);
     }},
    {"like", kString, set_like},
    {"vendor_id", kInteger | kString,
     [](NicDraft& draft, const Value& value) {
       return set_vendor_number(draft.nic.vendor_id, "vendor_id", value);
     }},
    {"vendor_part_id", kInteger | kString,
     [](NicDraft& draft, const Value& value) {
       return set_vendor_number(draft.nic.vendor_part_id, "vendor_part_id", value);
     }},
    {"impair_rx", kString,
     [](NicDraft& draft, const Value& value) {
       return set_impairment(draft.nic.impair_rx, impair::Direction::kRx, "impair_rx", value);
     }},
    {"impair_tx", kString,
     [](NicDraft& draft, const Value& value) {
       return set_impairment(draft.nic.impair_tx, impair::Direction::kTx, "impair_tx", value);
     }},
}};

// Makes a MAC address that is locally administered, and as unique as the IP address: of an IPv6
// address its last four bytes are taken.
wire::MacAddress derived_mac(const Gid& ip) {
  const auto byte = [&](size_t i) { return std::to_integer<uint8_t>(ip[12 + i]); };
  return {0x02, 0x00, byte(0), byte(1), byte(2), byte(3)};
}

}  // namespace

std::span<const Key<NicDraft>> nic_keys() { return kNicKeys; }

// What is wrong with a NIC on the udp port, for which the kernel does what other ports are told.
std::optional<std::string> check_udp_nic(const NicConfig& nic) {
  if (nic.port.starts_with(std::string(kUdpPort) + ",")) {
    return fmt::format("port {} of {} has arguments (port udp takes none: ip says which interface)",
                       shown(nic.port), nic.name);
  }
  if (nic.port != kUdpPort) return std::nullopt;
  if (nic.gateway) {
    return fmt::format("{} on port udp has a gateway (leave it out: routes are the kernel's)",
                       nic.name);
  }
  if (nic.mac_given) {
    return fmt::format("{} on port udp has a mac (leave it out: it is the interface's)", nic.name);
  }
  return std::nullopt;
}

// What is wrong with a NIC that speaks MRC, which says windows in units, and has one way to repeat.
// What is wrong with a NIC's address on the port that it is for.
std::optional<std::string> check_address(const NicConfig& nic) {
  const auto ip = ipv4_of(nic.ip);
  const bool raw_port = !nic.on_wire() && nic.port != kUdpPort;
  if (!ip && raw_port) {
    return fmt::format("{} on port {} has the IPv6 address {} (use port udp, which carries IPv6)",
                       nic.name, shown(nic.port), hostnic::to_string(nic.ip));
  }
  if (!ip && nic.lid == Lid::kFromAddress) {
    return fmt::format(
        "{} has lid \"from-address\" and the IPv6 address {} (leave lid out: it is "
        "made of IPv4 addresses)",
        nic.name, hostnic::to_string(nic.ip));
  }
  if (ip && is_loopback(*ip) && raw_port) {
    return fmt::format("{} on port {} has the loopback address {} ({})", nic.name, shown(nic.port),
                       hostnic::to_string(nic.ip),
                       "use one of the port's network, such as 10.0.0.1/24");
  }
  if (nic.gateway && (!ip || !same_network(*nic.gateway, *ip, nic.prefix_length))) {
    return fmt::format("gateway {} of {} is outside {}/{} (a gateway is a neighbour)",
                       impair::format_ipv4(*nic.gateway), nic.name, hostnic::to_string(nic.ip),
                       nic.prefix_length);
  }
  return std::nullopt;
}

// What is wrong with the prefixes of peers: one in two lists says two things.
std::optional<std::string> check_peers(const NicConfig& nic) {
  struct List {
    const char* key;
    const std::vector<Prefix>& prefixes;
  };
  const List lists[] = {{"hostnic_peers", nic.hostnic_peers},
                        {"roce_peers", nic.roce_peers},
                        {"auto_peers", nic.auto_peers}};
  for (const List& list : lists) {
    for (const List& other : std::span(lists).first(static_cast<size_t>(&list - lists))) {
      for (const Prefix& prefix : list.prefixes) {
        const auto twin = std::ranges::find_if(other.prefixes, [&](const Prefix& each) {
          return each.bits == prefix.bits &&
                 same_network(each.address, prefix.address, prefix.bits);
        });
        if (twin == other.prefixes.end()) continue;
        return fmt::format("{} has {} in both {} and {} (leave it out of one)", nic.name,
                           hostnic::to_string(prefix.address), other.key, list.key);
      }
    }
  }
  return std::nullopt;
}

// Gives a NIC what its personality says and its own keys don't.
void take_personality(NicDraft& draft, size_t index) {
  NicConfig& nic = draft.nic;
  const Personality& like = *nic.like;
  if (nic.name.empty() && !like.device_name.empty())
    nic.name = fmt::format("{}{}", like.device_name, index);
  if (!draft.has_gids && like.gids) nic.gids = *like.gids;
}

MrcKeys mrc_keys(const NicConfig& nic) {
  return {nic.window, nic.policy, nic.mrc_entropy_values, nic.mrc_planes};
}

Expected<NicConfig, std::string> finish_nic(NicDraft draft, size_t index, const Personality* like) {
  NicConfig& nic = draft.nic;
  nic.port_by_address = draft.has_ip && !draft.has_port;
  if (!nic.like && like != nullptr) nic.like = *like;
  if (nic.like) take_personality(draft, index);
  if (nic.name.empty()) nic.name = fmt::format("hnic{}", index);
  if (!draft.has_ip && !nic.on_wire()) {
    return Unexpected(fmt::format("{} on port {} has no ip ({})", nic.name, shown(nic.port),
                                  "add one, such as ip = \"10.0.0.1/24\""));
  }
  if (auto error = check_udp_nic(nic)) return Unexpected(*error);
  if (auto error = check_mrc(nic.name, nic.transport, mrc_keys(nic))) return Unexpected(*error);
  if (auto error = check_paths(nic.name, nic.paths, nic.policy)) return Unexpected(*error);
  if (!nic.prefix_given && nic.port != kUdpPort && !nic.port_by_address) {
    const std::string ip = fmt::format("\"{}\"", hostnic::to_string(nic.ip));
    return Unexpected(bad_value("ip", ip, kIpRemedy).message);
  }
  if (!draft.has_ip) {
    nic.ip = gid_of(Ipv4Address{kWireNetwork + static_cast<uint32_t>(index) + 1});
    nic.prefix_length = 24;
  }
  if (auto error = check_address(nic)) return Unexpected(*error);
  if (auto error = check_peers(nic)) return Unexpected(*error);
  if (!nic.mac_given) nic.mac = derived_mac(nic.ip);
  if (nic.on_wire() && !nic.port_by_address && nic.mtu_bytes == 0) nic.mtu_bytes = kWireMtuBytes;
  return std::move(nic);
}

std::vector<NicConfig> default_nics(size_t count, const Personality* like) {
  std::vector<NicConfig> nics;
  for (size_t i = 0; i < std::min(count, kMaxNics); ++i) {
    nics.push_back(*finish_nic({}, i, like));  // without settings there is nothing to contradict
  }
  return nics;
}

Config default_config(size_t nic_count, const Personality* like) {
  return {.hostnicd = {}, .nics = default_nics(nic_count, like)};
}

std::optional<std::string> check_nics(const std::vector<NicConfig>& nics) {
  if (nics.size() > kMaxNics) {
    return fmt::format("{} NICs (use at most {})", nics.size(), kMaxNics);
  }
  for (size_t i = 0; i < nics.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const NicConfig &a = nics[j], &b = nics[i];
      if (a.name == b.name) {
        return fmt::format("two NICs are named {} (name them apart)", a.name);
      }
      if (a.ip == b.ip && a.zone == b.zone) {
        return fmt::format("{} and {} both have ip {} (give each its own)", a.name, b.name,
                           hostnic::to_string(a.ip));
      }
      if (a.mac == b.mac) {
        return fmt::format("{} and {} both have mac {} (give each its own, or leave it out)",
                           a.name, b.name, to_string(a.mac));
      }
      if (!a.on_wire() && a.port != kUdpPort && a.port == b.port) {
        return fmt::format("{} and {} both use port {} (a port serves one NIC)", a.name, b.name,
                           shown(a.port));
      }
    }
  }
  return std::nullopt;
}

std::optional<std::string> check_mrc(std::string_view nic, Transport transport,
                                     const MrcKeys& keys) {
  constexpr uint32_t kUnitPsns = 128;
  if (transport != Transport::kMrc) return std::nullopt;
  if (keys.window < kUnitPsns) {
    return fmt::format("{} has transport \"mrc\" and a window of {} (use {} or more)", nic,
                       keys.window, kUnitPsns);
  }
  if (keys.policy != wire::Policy::kSelective) {
    return fmt::format("{} has transport \"mrc\" and policy \"{}\" (leave policy out)", nic,
                       wire::to_string(keys.policy));
  }
  if (keys.entropy_values % keys.planes != 0) {
    return fmt::format("{} has {} entropy values over {} planes (use a multiple of {})", nic,
                       keys.entropy_values, keys.planes, keys.planes);
  }
  return std::nullopt;
}

std::optional<std::string> check_paths(std::string_view nic, uint32_t paths, wire::Policy policy) {
  if (paths <= 1 || policy == wire::Policy::kSelective) return std::nullopt;
  return fmt::format("{} has {} paths and policy \"{}\" (leave one of them out)", nic, paths,
                     wire::to_string(policy));
}

}  // namespace hostnic::config
