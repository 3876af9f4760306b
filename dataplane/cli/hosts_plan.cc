// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/cli/hosts_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "config/network.h"
#include "config/personality.h"
#include "protocol/impair/spec_values.h"

namespace hostnic::cli {
namespace {

using Error = Unexpected<std::string>;

constexpr uint32_t kMaxHosts = 64;
constexpr uint32_t kMaxWireHosts = 16;  // as DPDK's net_ring has it
constexpr uint32_t kMinMtu = 336;       // an IB MTU of 256 and its headers
constexpr uint32_t kMaxMtu = 65535;
constexpr const char* kDefaultNetwork = "10.77.0.0/24";

std::optional<uint32_t> number(const std::string& text) {
  uint32_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || code != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

Expected<config::Network, std::string> network_of(const std::string& text, size_t hosts) {
  auto network = config::parse_network(text.empty() ? kDefaultNetwork : text, hosts);
  if (network && is_loopback(network->base))
    return Error(
        fmt::format("--addresses {}: each host has loopback addresses of its own; use a "
                    "network such as {}",
                    text, kDefaultNetwork));
  return network;
}

Expected<HostsPort, std::string> parse_port(const std::string& text) {
  if (text.empty() || text == "udp") return HostsPort::kUdp;
  if (text == "af_packet") return HostsPort::kAfPacket;
  if (text == "wire") return HostsPort::kWire;
  return Error(fmt::format("--port {}: use udp, af_packet or wire", text));
}

// Options for hostnicd that mean something else to a lab with hosts.
struct Sorted {
  std::string mtu, seed, addresses, nic_keys;
  std::string device_name;  // key `name`
  std::string like;         // also among the others
  std::vector<std::string> others;
};

// Takes the key `name` from a list ",KEY=VALUE,..."; its value goes to `name`.
std::string without_name(std::string keys, std::string& name) {
  constexpr std::string_view kKey = ",name=";
  const size_t at = keys.find(kKey);
  if (at == std::string::npos) return keys;
  const size_t end = std::min(keys.find(',', at + 1), keys.size());
  name = keys.substr(at + kKey.size(), end - at - kKey.size());
  return keys.erase(at, end - at);
}

// What programs in a host call its NIC. What is wrong with keys and personality hostnicd will say.
std::string device_name_of(const Sorted& sorted) {
  if (!sorted.device_name.empty()) return sorted.device_name;
  std::optional<config::Personality> like;
  if (!sorted.like.empty())
    if (auto found = config::find_personality(sorted.like)) like = std::move(*found);
  const auto nic =
      config::parse_nic_option("port=wire" + sorted.nic_keys, 0, like ? &*like : nullptr);
  return nic ? nic->name : "hnic0";
}

Expected<Sorted, std::string> sort_arguments(const std::vector<std::string>& arguments) {
  Sorted sorted;
  for (const std::string& argument : arguments) {
    const size_t equals = argument.find('=');
    const std::string name = argument.substr(0, equals), value = argument.substr(equals + 1);
    if (name == "--nics") return Error("--nics: with --hosts, each host has one NIC");
    if (name == "--nic") {
      for (const char* given : {"ip", "port"})
        if (("," + value).find(fmt::format(",{}=", given)) != std::string::npos)
          return Error(
              fmt::format("--nic {}: with --hosts, --nic gives keys of every host's NIC, "
                          "and the lab gives {} (see --addresses, --port)",
                          value, given));
      sorted.nic_keys += without_name("," + value, sorted.device_name);
    } else if (name == "--mtu") {
      sorted.mtu = value;
    } else if (name == "--seed") {
      sorted.seed = value;
    } else if (name == "--addresses") {
      sorted.addresses = value;
    } else {
      if (name == "--like") sorted.like = value;
      sorted.others.push_back(argument);
    }
  }
  return sorted;
}

std::string port_keys(HostsPort port, const std::string& name) {
  switch (port) {
    case HostsPort::kUdp:
      return "port=udp";
    case HostsPort::kAfPacket:
      return fmt::format("port=net_af_packet0,iface={}", kHostInterface);
    case HostsPort::kWire:
      break;
  }
  return "port=wire,name=" + name;
}

}  // namespace

Expected<HostsPlan, std::string> plan_hosts(const LabOptions& options) {
  auto sorted = sort_arguments(options.daemon_arguments);
  if (!sorted) return Error(sorted.error());
  auto port = parse_port(options.port);
  if (!port) return Error(port.error());
  HostsPlan plan{.port = *port, .hosts = {}, .common_arguments = sorted->others};
  const auto count = number(options.hosts);
  const uint32_t most = plan.port == HostsPort::kWire ? kMaxWireHosts : kMaxHosts;
  if (!count || *count == 0 || *count > most)
    return Error(fmt::format("--hosts {}: use 1 to {}{}", options.hosts, most,
                             plan.port == HostsPort::kWire ? " with --port wire" : ""));
  if (!sorted->mtu.empty()) {
    const auto mtu = number(sorted->mtu);
    if (!mtu || *mtu < kMinMtu || *mtu > kMaxMtu)
      return Error(
          fmt::format("--mtu {}: with --hosts, the MTU of their interfaces, {} to {} (the "
                      "IB MTU follows from it; --nic mtu=N sets that)",
                      sorted->mtu, kMinMtu, kMaxMtu));
    plan.mtu_bytes = *mtu;
  }
  auto network = network_of(sorted->addresses, *count);
  if (!network) return Error(network.error());
  plan.prefix_length = network->prefix_length;
  const bool one_hostnicd = plan.port == HostsPort::kWire;
  plan.device_name = device_name_of(*sorted);
  const std::string name_key =
      one_hostnicd || sorted->device_name.empty() ? "" : ",name=" + sorted->device_name;
  const auto seed = number(sorted->seed.empty() ? "1" : sorted->seed);
  for (uint32_t k = 1; k <= *count; ++k) {
    HostPlan host{fmt::format("host{}", k), network->address(k), {}};
    host.daemon_arguments = {fmt::format("--nic={},ip={}/{}{}{}", port_keys(plan.port, host.name),
                                         impair::format_ipv4(host.address), plan.prefix_length,
                                         sorted->nic_keys, name_key)};
    // Each hostnicd counts its NICs from 0, and they must not lose the same packets.
    if (!one_hostnicd && seed)
      host.daemon_arguments.push_back(fmt::format("--seed={}", *seed + k - 1));
    plan.hosts.push_back(std::move(host));
  }
  if (!sorted->seed.empty() && (one_hostnicd || !seed))
    plan.common_arguments.push_back("--seed=" + sorted->seed);
  return plan;
}

int host_number(const std::string& word, size_t hosts) {
  const std::string digits = word.starts_with("host") ? word.substr(4) : word;
  const auto value = number(digits);
  return value && *value >= 1 && *value <= hosts ? static_cast<int>(*value) : -1;
}

}  // namespace hostnic::cli
