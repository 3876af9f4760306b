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
#include "dataplane/daemon/ports/udp/udp_port.h"
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
  auto port = EthernetPort::open(settings.name, plan.port, settings.ip, mac);
  if (!port) return Unexpected(port.error());
  return std::unique_ptr<NetworkPort>(std::move(*port));
}

// The interface that devargs such as "net_af_packet0,iface=eth0" name, or the loopback one, since a
// port without any is none that programs could ask for.
std::string netdev_of(const std::string& devargs) {
  return devargs_value(devargs, "iface").value_or("lo");
}

}  // namespace

Daemon::Daemon(const DaemonPlan& plan) : plan_(plan), mrs_(plan.all_mrs, /*seed=*/0) {}

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
    settings.line_rate_mbps = instance.network->speed_mbps();
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
  return {};
}

Expected<void, std::string> Daemon::make_nics() {
  for (NicInstance& instance : nics_) {
    instance.nic = std::make_unique<Nic>(instance.plan.settings, mrs_,
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
  retired_.clear();
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
  info.speed_mbps = instance.network == nullptr ? kWireSpeedMbps : instance.network->speed_mbps();
  info.window = settings.window;
  info.policy = static_cast<uint32_t>(settings.policy);
  info.congestion_allowance_us = settings.congestion_allowance_us;
  info.relaxed_ordering = settings.ordering == Ordering::kRelaxed ? 1 : 0;
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
  std::ranges::copy(gids, info.gids);
  copy_text(info.port, instance.plan.port.empty() ? "virtual wire" : instance.plan.port);
  return info;
}

bool Daemon::port_up(const NicInstance& instance) const {
  return instance.lcore->handling() && (instance.network == nullptr || instance.network->link_up());
}

void Daemon::set_handling(bool on) {
  for (auto& lcore : lcores_) lcore->set_handling(on);
}

void Daemon::set_impairment(NicInstance& instance, bool receive_side, const impair::Spec& spec) {
  (receive_side ? instance.plan.rx : instance.plan.tx) = spec;
  const uint64_t seed =
      impair::derive_seed(plan_.seed, instance.plan.settings.index,
                          receive_side ? impair::Direction::kRx : impair::Direction::kTx);
  instance.lcore->run_on([&] { instance.nic->set_impairment(receive_side, spec, seed); });
}

// ---- MR table

uint32_t Daemon::add_region(MrTable::Init init) {
  std::lock_guard lock(mrs_mutex_);
  return mrs_.add(std::move(init));
}

void Daemon::restore_region(uint32_t key) {
  std::lock_guard lock(mrs_mutex_);
  mrs_.restore(key);
}

std::vector<MappedPiece> Daemon::replace_region(uint32_t key, MrTable::Init init) {
  std::lock_guard lock(mrs_mutex_);
  return mrs_.replace(key, std::move(init));
}

void Daemon::quiesce() {
  for (auto& lcore : lcores_) lcore->run_on([] {});
}

bool Daemon::region_has_windows(uint32_t key, uint32_t client_id) {
  std::lock_guard lock(mrs_mutex_);
  return mrs_.has_windows(key, client_id);
}

bool Daemon::invalidate_regions(const std::vector<uint32_t>& keys, uint32_t client_id) {
  bool all = true;
  {
    std::lock_guard lock(mrs_mutex_);
    for (const uint32_t key : keys) all = mrs_.invalidate(key, client_id) && all;
  }
  quiesce();
  return all;
}

bool Daemon::wait_unreferenced(const std::vector<uint32_t>& keys, std::chrono::milliseconds limit) {
  using std::chrono::steady_clock;
  const auto end = steady_clock::now() + limit;
  for (const uint32_t key : keys) {
    // Packets that refer to the memory may lie in a ring, a few loop turns from being consumed.
    for (unsigned tries = 0;; ++tries) {
      {
        std::lock_guard lock(mrs_mutex_);
        if (!mrs_.referenced(key)) break;
      }
      if (steady_clock::now() >= end) return false;
      if (tries < 64)
        std::this_thread::yield();
      else
        std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }
  return true;
}

std::vector<MappedPiece> Daemon::reclaim_region(uint32_t key) {
  std::lock_guard lock(mrs_mutex_);
  return mrs_.reclaim(key);
}

std::vector<uint32_t> Daemon::regions_of(uint32_t client_id) {
  std::lock_guard lock(mrs_mutex_);
  return mrs_.keys_of(client_id);
}

uint64_t Daemon::follow_memory(NicInstance& instance, uint32_t client_id,
                               const MemoryChange& change, MemFdHelper* helper) {
  // Nobody adds or removes this client's regions meanwhile, although the lock is given up: only its
  // session does, and it is what calls this.
  MrTable::PieceChange follows;
  {
    std::lock_guard lock(mrs_mutex_);
    follows = mrs_.follow(client_id, change);
  }
  follows.set_helper(helper);
  if (!follows.empty()) instance.lcore->run_on([&] { follows.take_effect(); });
  return follows.bytes_left();
}

std::optional<std::vector<MappedPiece>> Daemon::late_pieces(uint32_t key, uint32_t client_id) {
  std::lock_guard lock(mrs_mutex_);
  return mrs_.late_pieces(key, client_id);
}

void Daemon::end_lateness(NicInstance& instance, uint32_t key, uint32_t client_id) {
  MrTable::PieceChange change;  // as with follow_memory()
  {
    std::lock_guard lock(mrs_mutex_);
    change = mrs_.end_lateness(key, client_id);
  }
  if (!change.empty()) instance.lcore->run_on([&] { change.take_effect(); });
}

void Daemon::retire(RetiredMemory memory) {
  std::lock_guard lock(retired_mutex_);
  retired_.push_back(std::move(memory));
}

size_t Daemon::reap_retired() {
  std::list<RetiredMemory> unreferenced;
  size_t left = 0;
  {
    std::lock_guard lock(retired_mutex_);
    for (auto it = retired_.begin(); it != retired_.end();) {
      const auto each = it++;
      if (wait_unreferenced(each->keys, std::chrono::milliseconds(0)))
        unreferenced.splice(unreferenced.end(), retired_, each);
    }
    left = retired_.size();
  }
  for (RetiredMemory& each : unreferenced)
    for (const uint32_t key : each.keys) each.memory->unmap(reclaim_region(key));
  return left;
}

// ---- clients

SegmentPages Daemon::segment_pages() const {
  if (rte_eal_has_hugepages() == 0 || plan_.huge == config::HugePages::kNever)
    return SegmentPages::kOrdinary;
  return plan_.huge == config::HugePages::kRequire ? SegmentPages::kHuge
                                                   : SegmentPages::kHugeIfFree;
}

void Daemon::add_client(const ClientInfo& info) {
  std::lock_guard lock(clients_mutex_);
  clients_.push_back(info);
  if (!info.huge_pages && segment_pages() == SegmentPages::kHugeIfFree &&
      !std::exchange(warned_of_pages_, true)) {
    log_problem(
        "too few huge pages are free for the rings of {} (pid {}), perhaps of others: ordinary "
        "pages instead, as `show client` says",
        info.program, info.pid);
  }
  // The warning is due when two programs and the lcores, or more, will share processors.
  if (warned_of_sessions_ ||
      sysconf(_SC_NPROCESSORS_ONLN) >= static_cast<long>(lcores_.size()) + 2 ||
      !scheduled_apart_from(info.pid))
    return;
  warned_of_sessions_ = true;
  log_problem(
      "{} (pid {}) is of another session: with so few processors messages may wait for time slices "
      "of milliseconds. Start hostnicd from the same shell, or: sysctl "
      "kernel.sched_autogroup_enabled=0",
      info.program, info.pid);
}

void Daemon::remove_client(uint32_t client_id) {
  std::lock_guard lock(clients_mutex_);
  std::erase_if(clients_, [&](const ClientInfo& info) { return info.client_id == client_id; });
}

Expected<void, std::string> Daemon::admit_registration(uint32_t client_id) {
  std::lock_guard lock(clients_mutex_);
  const auto client = std::ranges::find(clients_, client_id, &ClientInfo::client_id);
  if (client == clients_.end()) return {};
  std::string met;
  if (client->regions >= plan_.max_mrs)
    met = fmt::format("the {} memory regions that a program may have (limits.max_mrs)",
                      plan_.max_mrs);
  if (met.empty() && !is_owner(client->uid)) {
    uint64_t regions = 0, bytes = 0, of_strangers = 0;
    for (const ClientInfo& each : clients_) {
      if (!is_owner(each.uid)) of_strangers += each.regions;
      if (each.uid != client->uid) continue;
      regions += each.regions;
      bytes += each.bytes_mapped;
    }
    if (regions >= plan_.user_mrs)
      met = fmt::format("the {} memory regions that a user may have (limits.user_mrs)",
                        plan_.user_mrs);
    else if (of_strangers >= UserShares::shares_of(plan_.all_mrs).strangers)
      met =
          "the memory regions that are not kept for hostnicd's own user and root (limits.all_mrs)";
    else if (bytes >= plan_.user_registered_bytes)
      met = fmt::format("the {} MB that a user may register (limits.user_registered_mb)",
                        plan_.user_registered_bytes >> 20);
  }
  if (met.empty()) {
    ++client->regions;
    return {};
  }
  note_limit(*client, met);
  return Unexpected("all in use: " + met);
}

Expected<void, std::string> Daemon::admit_pieces(uint32_t client_id, size_t count) {
  // Some 40 MB and 130 MB of memory.
  constexpr uint64_t kOfUser = uint64_t{1} << 19, kOfStrangers = 3 * kOfUser;
  std::lock_guard lock(clients_mutex_);
  const auto client = std::ranges::find(clients_, client_id, &ClientInfo::client_id);
  if (client == clients_.end()) return {};
  if (!is_owner(client->uid)) {
    uint64_t of_user = count, of_strangers = count;
    for (const ClientInfo& each : clients_) {
      if (each.uid == client->uid) of_user += each.pieces;
      if (!is_owner(each.uid)) of_strangers += each.pieces;
    }
    if (of_user > kOfUser || of_strangers > kOfStrangers) {
      const std::string met = fmt::format(
          "the {} pieces that the memory regions of a user may have, or the {} of all users'",
          kOfUser, kOfStrangers);
      note_limit(*client, met);
      return Unexpected("all in use: " + met);
    }
  }
  client->pieces += count;
  return {};
}

void Daemon::drop_pieces(uint32_t client_id, size_t count) {
  std::lock_guard lock(clients_mutex_);
  const auto client = std::ranges::find(clients_, client_id, &ClientInfo::client_id);
  if (client != clients_.end()) client->pieces -= std::min<uint64_t>(client->pieces, count);
}

void Daemon::note_limit(uint32_t client_id, const std::string& met) {
  std::lock_guard lock(clients_mutex_);
  const auto client = std::ranges::find(clients_, client_id, &ClientInfo::client_id);
  if (client != clients_.end()) note_limit(*client, met);
}

void Daemon::note_limit(ClientInfo& client, const std::string& met) {
  if (std::exchange(client.limit_noted, true)) return;
  log_problem("client {} ({}, pid {}, uid {}) has met a limit: {}", client.client_id,
              client.program, client.pid, client.uid, met);
}

void Daemon::note_registration(uint32_t client_id, int regions, int64_t mapped, int64_t mem_fd) {
  std::lock_guard lock(clients_mutex_);
  for (ClientInfo& info : clients_) {
    if (info.client_id != client_id) continue;
    info.regions += static_cast<uint32_t>(regions);
    info.bytes_mapped += static_cast<uint64_t>(mapped);
    info.bytes_mem_fd += static_cast<uint64_t>(mem_fd);
  }
}

void Daemon::note_named_host(uint32_t client_id) {
  std::lock_guard lock(clients_mutex_);
  const auto client = std::ranges::find(clients_, client_id, &ClientInfo::client_id);
  if (client != clients_.end()) ++client->named_hosts;
}

std::vector<ClientInfo> Daemon::clients() {
  std::lock_guard lock(clients_mutex_);
  return clients_;
}

}  // namespace hostnic
