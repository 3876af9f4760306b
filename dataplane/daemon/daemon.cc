// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/daemon.h"

#include <fmt/format.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_launch.h>
#include <rte_lcore.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "dataplane/daemon/lcore/scheduling_group.h"
#include "dataplane/daemon/log.h"
#include "dataplane/daemon/observe/message_trace.h"
#include "dataplane/daemon/ports/udp/udp_port.h"
#include "protocol/impair/adversary.h"
#include "protocol/impair/stage.h"

namespace hostnic {
namespace {

constexpr uint32_t kWireSpeedMbps = 100'000;

int run_loop(void* loop) {
  static_cast<LcoreLoop*>(loop)->run();
  return 0;
}

// The EUI-64 of a MAC address, in the byte order in which verbs carries GUIDs.
uint64_t guid_of(const wire::MacAddress& mac) {
  const uint8_t bytes[8] = {
      static_cast<uint8_t>(mac[0] ^ 2), mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]};
  uint64_t guid = 0;
  memcpy(&guid, bytes, sizeof(guid));
  return guid;
}

template <size_t N>
void copy_text(char (&to)[N], std::string_view from) {
  const size_t bytes = std::min(from.size(), N - 1);
  memcpy(to, from.data(), bytes);
  to[bytes] = 0;
}

Expected<std::unique_ptr<NetworkPort>, std::string> open_ethernet_port(const NicPlan& plan) {
  const NicSettings& settings = plan.settings;
  std::optional<wire::MacAddress> mac;
  if (plan.mac_given) mac = settings.mac;
  auto port = EthernetPort::open(settings.name, plan.port, settings.ip, mac, settings.mtu_bytes);
  if (!port) return Unexpected(port.error());
  return std::unique_ptr<NetworkPort>(std::move(*port));
}

// The interface that devargs such as "net_af_packet0,iface=eth0" name, or the loopback one, since a
// port without any is none that programs could ask for.
std::string netdev_of(const std::string& devargs) {
  return devargs_value(devargs, "iface").value_or("lo");
}

}  // namespace

Daemon::Daemon(const DaemonPlan& plan)
    : plan_(plan),
      regions_(plan.all_mrs, plan.user_page_tables, lcores_),
      clients_(plan_, lcores_),
      message_trace_(std::make_unique<MessageTrace>(*this)) {}

Expected<std::unique_ptr<Daemon>, std::string> Daemon::create(const DaemonPlan& plan) {
  std::unique_ptr<Daemon> daemon(new Daemon(plan));
  for (auto step : {&Daemon::make_lcores, &Daemon::name_addresses, &Daemon::open_network_ports,
                    &Daemon::make_pools, &Daemon::make_wire, &Daemon::make_nics})
    if (auto done = (daemon.get()->*step)(); !done) return Unexpected(done.error());
  return daemon;
}

Expected<void, std::string> Daemon::make_lcores() {
  for (uint32_t i = 0; i < plan_.lcores; ++i) {
    auto loop = LcoreLoop::create(plan_.idle);
    if (!loop) return Unexpected(loop.error());
    lcores_.push_back(std::move(*loop));
  }
  for (size_t i = 0; i < plan_.nics.size(); ++i) {
    NicInstance instance;
    instance.plan = plan_.nics[i];
    instance.lcore_number = static_cast<uint32_t>(i % lcores_.size());
    instance.lcore = lcores_[instance.lcore_number].get();
    nics_.push_back(std::move(instance));
  }
  return {};
}

Expected<void, std::string> Daemon::make_pools() {
  for (uint32_t i = 0; i < lcores_.size(); ++i) {
    uint32_t mtu_bytes = 256, served = 0;
    for (const NicInstance& instance : nics_)
      if (instance.lcore_number == i) {
        mtu_bytes = std::max(mtu_bytes, instance.plan.settings.mtu_bytes);
        ++served;
      }
    pools_.push_back(
        create_mbuf_pools(fmt::format("lcore{}", i), mtu_bytes, mbuf_scale(served), SOCKET_ID_ANY));
    if (pools_.back().data == nullptr)
      return Unexpected(fmt::format(
          "no memory for packet buffers: {}; give EAL more by `-m MEGABYTES` before `--`",
          rte_strerror(rte_errno)));
  }
  return {};
}

Expected<void, std::string> Daemon::open_network_ports() {
  for (NicInstance& instance : nics_) {
    NicSettings& settings = instance.plan.settings;
    if (instance.plan.port.empty()) continue;
    if (instance.plan.port == kUdpPort) {
      if (auto opened = open_udp_port(instance); !opened) return opened;
    } else {
      auto port = open_ethernet_port(instance.plan);
      if (!port) return Unexpected(port.error());
      instance.network = std::move(*port);
      instance.netdev = netdev_of(instance.plan.port);
    }
    instance.port = instance.network.get();
    for (const UniqueFd& socket : instance.network->sockets())
      if (const int error = instance.lcore->watch_arrivals(socket.get()))
        return Unexpected(fmt::format("{}: epoll_ctl: {}", settings.name, strerror(error)));
    settings.mac = instance.network->mac();
    settings.line_rate_mbps = port_speed_mbps(instance);
    auto mtu = choose_ib_mtu(settings.name, instance.plan.port, settings.mtu_bytes,
                             instance.network->ip_mtu_bytes());
    if (!mtu) return Unexpected(mtu.error());
    settings.mtu_bytes = *mtu;
    instance.network->set_ib_mtu_bytes(*mtu);
  }
  return {};
}

Expected<void, std::string> Daemon::make_wire() {
  std::vector<WireMember> members;
  for (NicInstance& instance : nics_)
    if (instance.network == nullptr)
      members.push_back({instance.plan.settings.name, instance.plan.settings.ip, instance.lcore,
                         instance.plan.settings.more_addresses});
  if (members.empty()) return {};
  auto wire = VirtualWire::create(std::move(members), pools_[0].data);
  if (!wire) return Unexpected(wire.error());
  wire_ = std::move(*wire);
  uint32_t member = 0;
  for (NicInstance& instance : nics_)
    if (instance.network == nullptr) instance.port = &wire_->port(member++);
  if (plan_.network_switch.is_there())
    for (NicInstance& instance : nics_)
      if (instance.network == nullptr)
        instance.plan.settings.line_rate_mbps = port_speed_mbps(instance);
  return {};
}

Expected<void, std::string> Daemon::make_nics() {
  for (NicInstance& instance : nics_) {
    instance.nic = std::make_unique<Nic>(instance.plan.settings, regions_.table(),
                                         pools_[instance.lcore_number], *instance.port);
    const bool rings = instance.network == nullptr || instance.network->announces_packets();
    instance.pollable = std::make_unique<NicPollable>(*instance.nic, rings);
    instance.lcore->add(instance.pollable.get());
    const NicSettings& settings = instance.plan.settings;
    for (const bool receive_side : {true, false}) {
      const impair::Spec& spec = receive_side ? instance.plan.rx : instance.plan.tx;
      if (!spec.rules.empty())
        instance.nic->set_impairment(
            receive_side, spec,
            impair::derive_seed(plan_.seed, settings.index,
                                receive_side ? impair::Direction::kRx : impair::Direction::kTx));
    }
  }
  return {};
}

Expected<void, std::string> Daemon::launch() {
  size_t next = 0;
  unsigned lcore_id = 0;
  RTE_LCORE_FOREACH_WORKER(lcore_id) {
    if (next == lcores_.size()) break;
    if (const int error = rte_eal_remote_launch(run_loop, lcores_[next].get(), lcore_id))
      return Unexpected(fmt::format("lcore {}: {}", lcore_id, rte_strerror(-error)));
    launched_ = true;
    ++next;
  }
  if (next < lcores_.size())
    return Unexpected(fmt::format(
        "{} lcores are to serve NICs, but EAL has {} beside the main one: give it more by -l or "
        "--lcores before `--`",
        lcores_.size(), next));
  return {};
}

Daemon::~Daemon() {
  if (launched_) {
    message_trace_->stop();
    for (auto& lcore : lcores_) lcore->request_stop();
    rte_eal_mp_wait_lcore();
  }
  // NICs go first, because they have packets of the ports and pools; then the ports. Retired memory
  // goes when nothing refers to it any more.
  for (NicInstance& instance : nics_) {
    instance.nic.reset();
    instance.network.reset();
  }
  wire_.reset();
  regions_.forget_retired();
  for (MbufPools& pools : pools_) free_mbuf_pools(pools);
}

NicInstance* Daemon::find_nic(std::string_view name) {
  for (NicInstance& instance : nics_)
    if (instance.plan.settings.name == name) return &instance;
  return nullptr;
}

DeviceInfo Daemon::device_info(const NicInstance& instance) const {
  const NicSettings& settings = instance.plan.settings;
  DeviceInfo info{};
  copy_text(info.name, settings.name);
  info.index = settings.index;
  info.ip = raw(settings.ip);
  memcpy(info.address, instance.plan.address.data(), sizeof(info.address));
  info.prefix_length = settings.prefix_length;
  info.mtu_bytes = settings.mtu_bytes;
  memcpy(info.mac, settings.mac.data(), sizeof(info.mac));
  info.link_up = port_up(instance);
  info.on_wire = instance.network == nullptr;
  info.speed_mbps = port_speed_mbps(instance);
  info.window = settings.window;
  info.policy = static_cast<uint32_t>(settings.policy);
  info.congestion_allowance_us = settings.congestion_allowance_us;
  info.relaxed_ordering = settings.ordering == Ordering::kRelaxed ? 1 : 0;
  info.adversary_seed = impair::program_seed(settings.adversary_seed);
  constexpr uint32_t kLidMask = 0xffff;
  info.lid = instance.plan.has_lid ? raw(settings.ip) & kLidMask : 0;
  info.max_qps = settings.max_qps;
  info.max_mrs = plan_.max_mrs;
  info.atomic_on_host = 0;
  info.asks_for_hosts =
      instance.network != nullptr && instance.network->capabilities().needs_arp ? 1 : 0;
  info.node_guid = guid_of(settings.mac);
  copy_text(info.netdev, instance.netdev);
  const std::vector<GidEntry> gids = instance.gids->entries(settings.mac);
  info.gid_count = static_cast<uint32_t>(gids.size());
  info.gid_table_length = instance.plan.gids == config::Gids::kOne ? 1 : kMaxGids;
  info.timescale = plan_.timescale;
  info.transport = static_cast<uint32_t>(settings.transport);
  info.entropy_values = settings.mrc_entropy_values;
  info.paths = settings.paths;
  info.offer = instance.plan.offer;
  std::ranges::copy(gids, info.gids);
  copy_text(info.port, instance.plan.port.empty() ? "virtual wire" : instance.plan.port);
  return info;
}

// The port's own; behind a switch not more than that of the switch's port. 0: nobody knows.
uint32_t Daemon::port_speed_mbps(const NicInstance& instance) const {
  const uint32_t own =
      instance.network == nullptr ? kWireSpeedMbps : instance.network->speed_mbps();
  if (!plan_.network_switch.is_there()) return own;
  const uint32_t of_switch = std::max(plan_.network_switch.rate_mbps(), 1u);
  return own == 0 ? of_switch : std::min(own, of_switch);
}

bool Daemon::port_up(const NicInstance& instance) const {
  return instance.lcore->handling() && (instance.network == nullptr || instance.network->link_up());
}

void Daemon::set_handling(bool on) {
  const bool comes_back = on && !lcores_.empty() && !lcores_.front()->handling();
  for (auto& lcore : lcores_) lcore->set_handling(on);
  if (!comes_back) return;
  for (NicInstance& instance : nics_) port_came_back(instance);
}

void Daemon::port_came_back(NicInstance& instance) {
  if (instance.plan.gid_moves) instance.gids->move();
}

void Daemon::set_impairment(NicInstance& instance, bool receive_side, const impair::Spec& spec) {
  (receive_side ? instance.plan.rx : instance.plan.tx) = spec;
  const uint64_t seed =
      impair::derive_seed(plan_.seed, instance.plan.settings.index,
                          receive_side ? impair::Direction::kRx : impair::Direction::kTx);
  instance.lcore->run_on([&] { instance.nic->set_impairment(receive_side, spec, seed); });
}

}  // namespace hostnic
