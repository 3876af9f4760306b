// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/start/options.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <random>

#include "config/config.h"
#include "config/network.h"
#include "config/personality.h"
#include "dataplane/daemon/ports/ethernet_port.h"
#include "dataplane/daemon/ports/udp/udp_port.h"
#include "dataplane/daemon/ports/wire_port.h"
#include "dataplane/daemon/start/network_options.h"
#include "protocol/hostif/control_message.h"
#include "protocol/hostif/control_socket.h"
#include "protocol/hostif/version.h"
#include "protocol/impair/adversary.h"

namespace hostnic {
namespace {

// The options as given, before anything is looked up.
struct RawOptions {
  std::string config_file;
  size_t nic_count = 0;
  std::vector<std::string> nics;
  std::string socket_path, socket_mode, socket_group;
  uint32_t mtu_bytes = 0;
  std::vector<std::string> impairments;
  std::string loss;
  NetworkOptions network;
  std::string seed;
  uint32_t timescale = 1;
  std::string ordering;
  std::string idle;
  std::string segmentation;
  std::string lid;
  std::string like;
  uint64_t idle_us = 0;
  std::string lcores;
  std::string commands_file;
  std::string addresses, sysfs_directory;
  std::vector<std::string> views;
  int ready_fd = -1;
  bool no_prompt = false;
};

void declare_options(CLI::App& app, RawOptions& raw) {
  auto* config = app.add_option("--config", raw.config_file, "TOML file: NICs, ports, limits");
  auto* count =
      app.add_option("--nics", raw.nic_count, "so many NICs, joined by a virtual wire (default 2)")
          ->check(CLI::Range(size_t{1}, size_t{kMaxWireNics}));
  auto* nic = app.add_option("--nic", raw.nics,
                             "one NIC: port=net_af_packet0,iface=eth0,ip=10.0.0.1/24; repeatable");
  // The option may be given as often as wanted, each time with one value: commas and spaces inside
  // belong to it.
  nic->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)->allow_extra_args(false);
  auto* addresses = app.add_option("--addresses", raw.addresses,
                                   "network of the NICs' addresses (default 127.77.0.0/24)");
  config->excludes(count)->excludes(addresses);
  nic->excludes(count)->excludes(addresses);
  app.add_option("--socket", raw.socket_path, "where clients find us");
  app.add_option("--socket-mode", raw.socket_mode,
                 "who may use the NICs: 0660, ... (default 0600)");
  app.add_option("--socket-group", raw.socket_group, "group of the socket, by name or number");
  app.add_option("--mtu", raw.mtu_bytes, "IB MTU of all NICs (default: the largest that fits)")
      ->check(CLI::IsMember({256, 512, 1024, 2048, 4096}));
  app.add_option("--impair", raw.impairments,
                 "impairments of every NIC: [rx|tx] SPEC, e.g. \"rx drop 1%\"; repeatable")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
  declare_network(app, raw.network);
  app.add_option("--loss", raw.loss, "drop so many of the packets that a NIC receives, e.g. 1%");
  app.add_option("--seed", raw.seed, "seed of all impairments (default 1), or `random`");
  app.add_option("--ordering", raw.ordering,
                 "tail (default), relaxed, strict, or adversarial: the seed chooses among all "
                 "outcomes that InfiniBand permits")
      ->check(CLI::IsMember({"tail", "relaxed", "strict", "adversarial"}));
  app.add_option("--timescale", raw.timescale,
                 "timeouts and timers of queue pairs and rdma_cm pass N times as fast (default 1)")
      ->check(CLI::Range(uint32_t{1}, kMostTimescale));
  app.add_option("--idle", raw.idle, "adaptive: sleep when there is nothing to do; poll: never")
      ->check(CLI::IsMember({"adaptive", "poll"}));
  app.add_option("--segmentation", raw.segmentation,
                 "auto: the virtual wire may carry several packets as one buffer; off: never")
      ->check(CLI::IsMember({"auto", "off"}));
  app.add_option("--lid", raw.lid, "LID of every port: none, as RoCE has it, or from-address")
      ->check(CLI::IsMember({"none", "from-address"}));
  app.add_option("--like", raw.like,
                 "personality of every NIC, by name or TOML file: what programs see of a device; "
                 "`hostnic like` lists them");
  app.add_option("--idle-us", raw.idle_us, "microseconds without work before an lcore sleeps")
      ->check(CLI::Range(1, 1'000'000));
  app.add_option("--lcores", raw.lcores,
                 "how many lcores serve NICs (default 1), or CPUs to pin them to: 2,4-5");
  app.add_option("--sysfs", raw.sysfs_directory,
                 "keep files of the NICs there, in infiniband/, as in /sys/class/infiniband");
  app.add_option("--view", raw.views,
                 "a further socket that shows one NIC alone, as hnic0: nic=NAME,socket=PATH"
                 "[,netdev=INTERFACE][,name=NAME]; repeatable")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
  app.add_option("--commands", raw.commands_file, "run these commands at start, one a line");
  app.add_option("--ready-fd", raw.ready_fd, "write one byte to this descriptor when ready");
  app.add_flag("--no-prompt", raw.no_prompt, "no prompt, even on a terminal");
}

using Error = Unexpected<std::string>;

Expected<uint32_t, std::string> parse_number(const std::string& text, const std::string& what,
                                             uint32_t most) {
  uint32_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc{} || end != text.data() + text.size() || value > most)
    return Error(fmt::format("{}: \"{}\" is no number up to {}", what, text, most));
  return value;
}

// Parses a list of CPUs: "2,4-5" -> 2 4 5
Expected<std::vector<uint32_t>, std::string> parse_cpus(const std::string& list) {
  std::vector<uint32_t> cpus;
  for (const std::string& part : CLI::detail::split(list, ',')) {
    const size_t dash = part.find('-');
    auto first = parse_number(part.substr(0, dash), "--lcores", 4095);
    if (!first) return Error(first.error());
    auto last =
        dash == std::string::npos ? first : parse_number(part.substr(dash + 1), "--lcores", 4095);
    if (!last) return Error(last.error());
    if (*last < *first || *last - *first > 256)
      return Error(fmt::format("--lcores: \"{}\" is no range of CPUs", part));
    for (uint32_t cpu = *first; cpu <= *last; ++cpu) cpus.push_back(cpu);
  }
  return cpus;
}

// A single number is a count, as in the configuration file; anything else is a list of CPUs.
Expected<void, std::string> apply_lcores(const std::string& count_text, const std::string& list,
                                         DaemonPlan& plan) {
  if (list.empty()) {
    auto count = parse_number(count_text, "--lcores", 64);
    if (!count || *count == 0)
      return Error(
          fmt::format("--lcores {}: use 1 to 64, or a list of CPUs such as 2,4-5", count_text));
    plan.lcores = *count;
    return {};
  }
  auto cpus = parse_cpus(list);
  if (!cpus) return Error(cpus.error());
  plan.lcores = static_cast<uint32_t>(cpus->size());
  plan.pinned_cpus = std::move(*cpus);
  return {};
}

// The --nic options of NICs on the wire with addresses of a network.
Expected<std::vector<std::string>, std::string> nics_in_network(const std::string& text,
                                                                size_t count) {
  auto network = config::parse_network(text, count);
  if (!network) return Error(network.error());
  std::vector<std::string> nics;
  for (uint32_t i = 1; i <= count; ++i)
    nics.push_back(fmt::format("port=wire,ip={}/{}", wire::to_string(network->address(i)),
                               network->prefix_length));
  return nics;
}

Expected<config::Config, std::string> read_config(const RawOptions& raw) {
  config::Config config;
  std::optional<config::Personality> personality;
  if (!raw.like.empty()) {
    auto found = config::find_personality(raw.like);
    if (!found) return Error("--like: " + found.error().text());
    personality = std::move(*found);
  }
  const config::Personality* const like = personality ? &*personality : nullptr;
  if (!raw.config_file.empty()) {
    auto loaded = config::load_config_file(raw.config_file, like);
    if (!loaded) return Error(loaded.error().text());
    if (!loaded->nics.empty() && !raw.nics.empty())
      return Error(
          fmt::format("{} has NICs, and --nic gives others: use one of both", raw.config_file));
    config = std::move(*loaded);
    if (config.nics.empty() && raw.nics.empty()) config.nics = config::default_nics(2, like);
  }
  if (!config.nics.empty()) return config;
  const size_t count = raw.nic_count == 0 ? 2 : raw.nic_count;
  std::vector<std::string> nics = raw.nics;
  if (!raw.addresses.empty()) {
    auto made = nics_in_network(raw.addresses, count);
    if (!made) return Error(made.error());
    nics = std::move(*made);
  }
  if (nics.empty()) return config::default_config(count, like);
  for (size_t i = 0; i < nics.size(); ++i) {
    auto nic = config::parse_nic_option(nics[i], i, like);
    if (!nic) return Error(nic.error().text());
    config.nics.push_back(std::move(*nic));
  }
  if (const auto clash = config::check_nics(config.nics)) return Error(*clash);
  return config;
}

constexpr uint32_t kMostQps = 65520, kMostMrs = 524286;

// How many of something there are in all: as given, or room for two clients that have all they may.
uint32_t total(uint32_t given, uint32_t of_one_client, uint32_t most) {
  return given != 0 ? given : std::min(2 * of_one_client, most);
}

// Half, if nothing is given: whatever a user takes, as much is left for others.
uint32_t part_of(uint32_t given, uint32_t all) { return given != 0 ? given : (all + 1) / 2; }

uint64_t memory_bytes() {
  return static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

void set_limits(const config::Limits& limits, DaemonPlan& plan) {
  plan.max_mrs = limits.max_mrs;
  plan.max_clients = limits.max_clients;
  plan.all_mrs = total(limits.all_mrs, limits.max_mrs, kMostMrs);
  plan.user_clients = part_of(limits.user_clients, limits.max_clients);
  plan.user_qps = part_of(limits.user_qps, total(limits.nic_qps, limits.max_qps, kMostQps));
  plan.user_mrs = part_of(limits.user_mrs, plan.all_mrs);
  if (limits.user_registered_mb != 0) plan.user_registered_bytes = limits.user_registered_mb << 20;
  constexpr uint64_t kTablesOfMegabyte = 256;
  plan.user_page_tables = limits.user_page_tables_mb != 0
                              ? limits.user_page_tables_mb * kTablesOfMegabyte
                              : usual_page_tables(memory_bytes());
}

void set_transports(const config::NicConfig& nic, NicSettings& settings) {
  settings.transport = nic.transport;
  const auto add = [&settings](const std::vector<config::Prefix>& all, Transport transport) {
    for (const config::Prefix& peers : all)
      settings.transports.push_back({peers.address, peers.bits, transport});
  };
  add(nic.hostnic_peers, Transport::kHostnic);
  add(nic.roce_peers, Transport::kRoce);
  add(nic.auto_peers, Transport::kAuto);
}

void set_offer(const config::NicConfig& nic, NicPlan& plan) {
  if (nic.like) {
    plan.offer = nic.like->offer;
    plan.gid_moves = nic.like->gid_moves;
    if (!nic.like->device_name.empty()) plan.shown_name = nic.like->device_name + "0";
  }
  if (nic.vendor_id != 0) plan.offer.vendor_id = nic.vendor_id;
  if (nic.vendor_part_id != 0) plan.offer.vendor_part_id = nic.vendor_part_id;
}

NicPlan nic_plan(const config::NicConfig& nic, size_t index, const config::HostnicdConfig& common) {
  NicPlan plan;
  NicSettings& settings = plan.settings;
  settings.name = nic.name;
  settings.index = static_cast<uint32_t>(index);
  plan.address = nic.ip;
  plan.zone = nic.zone;
  plan.gids = nic.gids;
  set_offer(nic, plan);
  settings.prefix_length = nic.prefix_length;
  settings.gateway = nic.gateway.value_or(Ipv4Address{});
  settings.mac = nic.mac;
  settings.mtu_bytes = nic.mtu_bytes;
  settings.window = nic.window;
  settings.policy = nic.policy;
  settings.congestion_allowance_us = nic.congestion_allowance_us;
  settings.mrc_entropy_values = nic.mrc_entropy_values;
  settings.mrc_planes = nic.mrc_planes;
  settings.paths = nic.paths;
  set_transports(nic, settings);
  settings.ordering = static_cast<Ordering>(nic.ordering);
  settings.max_qps = common.limits.max_qps;
  settings.nic_qps = total(common.limits.nic_qps, settings.max_qps, kMostQps);
  if (nic.like && nic.like->max_qps != 0)
    settings.max_qps = std::min(settings.max_qps, nic.like->max_qps);
  settings.random_seed = 0;
  settings.always_icrc = nic.icrc == config::Icrc::kAlways;
  settings.segmentation = nic.segmentation == config::Segmentation::kAuto;
  plan.port = nic.on_wire() ? std::string() : nic.port;
  // A NIC with an address of this machine, of which nothing else is said, is on its network.
  if (nic.port_by_address && is_local_address(nic.ip)) plan.port = kUdpPort;
  plan.prefix_given = nic.prefix_given;
  plan.mac_given = nic.mac_given;
  plan.has_lid = nic.lid == config::Lid::kFromAddress;
  plan.rx = nic.impair_rx;
  plan.tx = nic.impair_tx;
  return plan;
}

// Adds rules for every NIC, behind those that it has of its own.
void add_rules(const impair::Spec& spec, DaemonPlan& plan) {
  const bool tx = spec.direction == impair::Direction::kTx;
  for (NicPlan& nic : plan.nics) {
    auto& rules = tx ? nic.tx.rules : nic.rx.rules;
    rules.insert(rules.end(), spec.rules.begin(), spec.rules.end());
  }
}

Expected<void, std::string> apply_seed(const std::string& text, DaemonPlan& plan) {
  if (text == "random") {
    plan.seed = std::random_device{}();
  } else if (!text.empty()) {
    const char* end = text.data() + text.size();
    const auto [at, code] = std::from_chars(text.data(), end, plan.seed);
    if (code != std::errc{} || at != end)
      return Error(fmt::format("--seed: \"{}\" is no number and not `random`", text));
  }
  return {};
}

// What `--ordering` says is said of every NIC. A parsed name is one of these.
void apply_ordering(const std::string& name, DaemonPlan& plan) {
  for (NicPlan& nic : plan.nics) {
    if (name == "tail") nic.settings.ordering = Ordering::kTail;
    if (name == "relaxed") nic.settings.ordering = Ordering::kRelaxed;
    if (name == "strict") nic.settings.ordering = Ordering::kStrict;
    if (name == "adversarial") nic.settings.ordering = Ordering::kAdversarial;
  }
}

// Says how packets arrive at a NIC whose ordering is adversarial, and gives it a seed of its own.
void prepare_adversary(NicPlan& nic, uint64_t seed) {
  if (nic.settings.ordering != Ordering::kAdversarial) return;
  const impair::Spec rules = impair::adversary_rules();
  nic.rx.rules.insert(nic.rx.rules.end(), rules.rules.begin(), rules.rules.end());
  nic.settings.adversary_seed = impair::adversary_seed(seed, nic.settings.index);
}

Expected<void, std::string> apply_impairments(const RawOptions& raw, DaemonPlan& plan) {
  if (!raw.loss.empty()) {
    auto spec = loss_spec(raw.loss);
    if (!spec) return Error(spec.error());
    add_rules(*spec, plan);
  }
  for (const std::string& text : raw.impairments) {
    auto spec = impair::parse_spec(text);
    if (!spec) return Error(fmt::format("--impair: {}", spec.error().message()));
    add_rules(*spec, plan);
  }
  if (auto done = apply_seed(raw.seed, plan); !done) return done;
  for (NicPlan& nic : plan.nics) prepare_adversary(nic, plan.seed);
  for (const NicPlan& nic : plan.nics)
    if (std::max(nic.rx.rules.size(), nic.tx.rules.size()) > impair::kMaxRules)
      return Error(fmt::format("{}: more than {} impairment rules in one direction",
                               nic.settings.name, impair::kMaxRules));
  return {};
}

// Checks the port of a NIC that is not on the virtual wire. Returns the MTU of its network; 0: it
// is known only after EAL has started.
Expected<uint32_t, std::string> check_network_port(NicPlan& nic) {
  if (nic.port == kUdpPort) {
    if (nic.settings.paths > 1)
      return Error(fmt::format(
          "{} on port udp has {} paths: all its packets leave by one socket, and so from one "
          "source port (leave paths out, or use an Ethernet port)",
          nic.settings.name, nic.settings.paths));
    if (nic.settings.mrc_planes > 1)
      return Error(fmt::format(
          "{} on port udp has {} planes, which UDP source ports choose: all its packets leave by "
          "one socket (leave planes out, or use an Ethernet port or the virtual wire)",
          nic.settings.name, nic.settings.mrc_planes));
    auto address = check_udp_port(nic.address, nic.zone);
    if (!address) return Error(address.error());
    if (!nic.prefix_given) nic.settings.prefix_length = address->prefix_length;
    return address->mtu_bytes;
  }
  auto facts = check_ethernet_port(nic.port);
  if (!facts) return Error(facts.error());
  return facts->ethernet_mtu_bytes;
}

Expected<void, std::string> check_ports(const RawOptions& raw, DaemonPlan& plan) {
  size_t on_wire = 0;
  for (NicPlan& nic : plan.nics) {
    if (raw.mtu_bytes != 0) nic.settings.mtu_bytes = raw.mtu_bytes;
    if (nic.port.empty()) {
      if (!nic.prefix_given)
        return Error(fmt::format(
            "{}: ip {} has no prefix length, and is no address of this machine, for which port "
            "udp would need none (add one, such as {}/24)",
            nic.settings.name, to_string(nic.address), to_string(nic.address)));
      ++on_wire;
      if (nic.settings.mtu_bytes == 0) nic.settings.mtu_bytes = 4096;
      continue;
    }
    auto ip_mtu_bytes = check_network_port(nic);
    if (!ip_mtu_bytes) return Error(fmt::format("{}: {}", nic.settings.name, ip_mtu_bytes.error()));
    if (*ip_mtu_bytes == 0) continue;
    auto mtu = choose_ib_mtu(nic.settings.name, nic.port, nic.settings.mtu_bytes, *ip_mtu_bytes);
    if (!mtu) return Error(mtu.error());
    nic.settings.mtu_bytes = *mtu;
  }
  if (on_wire > kMaxWireNics)
    return Error(fmt::format("{} NICs on the virtual wire: DPDK's net_ring joins at most {}",
                             on_wire, kMaxWireNics));
  if (plan.nics.size() > kMaxDevices)
    return Error(fmt::format("{} NICs: at most {} in one hostnicd", plan.nics.size(), kMaxDevices));
  return {};
}

// Parses --view: nic=NAME,socket=PATH,netdev=INTERFACE,name=NAME.
Expected<View, std::string> parse_view(const std::string& text, const DaemonPlan& plan) {
  View view;
  view.shown_name.clear();
  for (const std::string& item : CLI::detail::split(text, ',')) {
    const size_t equals = item.find('=');
    const std::string key = item.substr(0, equals);
    std::string* const value = key == "nic"      ? &view.nic_name
                               : key == "socket" ? &view.socket_path
                               : key == "netdev" ? &view.netdev
                               : key == "name"   ? &view.shown_name
                                                 : nullptr;
    if (value == nullptr || equals == std::string::npos)
      return Error(
          fmt::format("--view {}: \"{}\" is none of nic=, socket=, netdev=, name=", text, item));
    *value = item.substr(equals + 1);
  }
  const auto nic = std::find_if(plan.nics.begin(), plan.nics.end(), [&](const NicPlan& each) {
    return each.settings.name == view.nic_name;
  });
  if (nic == plan.nics.end())
    return Error(fmt::format("--view {}: no NIC is named \"{}\"", text, view.nic_name));
  if (view.socket_path.empty() || view.socket_path.size() > config::kMaxSocketPathBytes)
    return Error(fmt::format("--view {}: socket=PATH with 1 to {} bytes is needed", text,
                             config::kMaxSocketPathBytes));
  view.nic = static_cast<size_t>(nic - plan.nics.begin());
  if (view.shown_name.empty()) view.shown_name = nic->shown_name;
  return view;
}

Expected<void, std::string> fill_plan(const RawOptions& raw, DaemonPlan& plan) {
  auto config = read_config(raw);
  if (!config) return Error(config.error());
  const config::HostnicdConfig& common = config->hostnicd;
  bool poll = common.idle == config::Idle::kPoll;
  for (size_t i = 0; i < config->nics.size(); ++i) {
    const config::NicConfig& nic = config->nics[i];
    plan.nics.push_back(nic_plan(nic, i, common));
    poll = poll || nic.idle == config::Idle::kPoll;
  }
  if (!raw.idle.empty()) poll = raw.idle == "poll";
  plan.idle.policy = poll ? IdlePolicy::kPoll : IdlePolicy::kAdaptive;
  if (!raw.segmentation.empty()) {
    for (NicPlan& nic : plan.nics) nic.settings.segmentation = raw.segmentation == "auto";
  }
  if (!raw.lid.empty()) {
    for (NicPlan& nic : plan.nics) nic.has_lid = raw.lid == "from-address";
  }
  if (raw.idle_us != 0) plan.idle.linger_ns = raw.idle_us * 1000;
  apply_ordering(raw.ordering, plan);
  plan.network_switch = common.network_switch;
  plan.seed = common.seed;
  plan.timescale = raw.timescale;
  set_limits(common.limits, plan);
  plan.lend_userfaultfd = common.lend_userfaultfd;
  plan.huge = common.huge;
  plan.metrics_port = static_cast<uint16_t>(common.metrics_port);
  plan.errors_directory = common.errors_directory;
  plan.prompt = !raw.no_prompt;
  plan.sysfs_directory = raw.sysfs_directory;
  for (const std::string& text : raw.views) {
    auto view = parse_view(text, plan);
    if (!view) return Error(view.error());
    plan.views.push_back(std::move(*view));
  }
  plan.commands_file = raw.commands_file;
  plan.ready_fd = raw.ready_fd;
  plan.socket_path = !raw.socket_path.empty()      ? raw.socket_path
                     : !common.socket_path.empty() ? common.socket_path
                                                   : default_socket_path();
  plan.socket_mode = common.socket_mode;
  plan.socket_group = raw.socket_group.empty() ? common.socket_group : raw.socket_group;
  if (!raw.socket_mode.empty()) {
    const auto mode = config::parse_socket_mode(raw.socket_mode);
    if (!mode)
      return Error(
          fmt::format("--socket-mode {}: use octal digits such as 0660, for reading and "
                      "writing only",
                      raw.socket_mode));
    plan.socket_mode = *mode;
  }
  if (plan.socket_path.size() > config::kMaxSocketPathBytes)
    return Error(fmt::format("socket path {} is too long: at most {} bytes", plan.socket_path,
                             config::kMaxSocketPathBytes));
  const bool list = raw.lcores.find_first_of(",-") != std::string::npos;
  const std::string count =
      raw.lcores.empty() ? fmt::format("{}", std::max(common.lcore_count, 1u)) : raw.lcores;
  const std::string cpus = list ? raw.lcores : raw.lcores.empty() ? common.lcore_list : "";
  if (auto done = apply_lcores(count, cpus, plan); !done) return Error(done.error());
  if (auto done = apply_impairments(raw, plan); !done) return Error(done.error());
  if (auto done = apply_network(raw.network, plan); !done) return Error(done.error());
  return check_ports(raw, plan);
}

}  // namespace

Expected<impair::Spec, std::string> loss_spec(const std::string& text) {
  if (text == "0") return impair::Spec{};
  auto spec = impair::parse_spec("drop " + text);
  // The rule must be nothing but the percentage: "1% kind ack" is --impair's business.
  const bool simple = spec && spec->rules.size() == 1 &&
                      spec->rules[0].trigger.kind == impair::TriggerKind::kUniform &&
                      spec->rules[0].selectors == impair::Selectors{};
  if (!simple)
    return Unexpected(fmt::format("--loss {}: not a percentage such as 1% or 0.5%", text));
  return std::move(*spec);
}

Expected<DaemonPlan, OptionsExit> plan_from_arguments(const std::vector<std::string>& arguments) {
  DaemonPlan plan;
  const auto divider = std::find(arguments.begin(), arguments.end(), "--");
  if (divider != arguments.end()) plan.eal.assign(arguments.begin(), divider);
  std::vector<std::string> ours(divider == arguments.end() ? arguments.begin() : divider + 1,
                                arguments.end());

  CLI::App app("hostnicd: software RDMA NICs on DPDK\nhostnicd [EAL arguments] -- [options]",
               "hostnicd");
  app.set_version_flag("--version", std::string("hostnicd ") + HOSTNIC_VERSION);
  app.footer(std::string("Impairments:\n") + std::string(impair::spec_help()));
  RawOptions raw;
  declare_options(app, raw);
  std::reverse(ours.begin(), ours.end());  // CLI11 pops from the back
  try {
    app.parse(ours);
  } catch (const CLI::CallForHelp&) {
    return Unexpected(OptionsExit{0, app.help()});
  } catch (const CLI::CallForVersion&) {
    return Unexpected(OptionsExit{0, app.version() + "\n"});
  } catch (const CLI::ParseError& error) {
    return Unexpected(
        OptionsExit{2, fmt::format("{} (`hostnicd --help` lists the options)", error.what())});
  }
  if (auto filled = fill_plan(raw, plan); !filled)
    return Unexpected(OptionsExit{2, filled.error()});
  return plan;
}

}  // namespace hostnic
