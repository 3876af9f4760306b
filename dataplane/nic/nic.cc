// SPDX-License-Identifier: BSD-3-Clause
// The NIC's turn and its outside.
#include "dataplane/nic/nic.h"

#include <fmt/format.h>
#include <rte_branch_prediction.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "dataplane/memory/sigbus.h"
#include "dataplane/nic/nic_core.h"
#include "protocol/hostif/core_sharing.h"

namespace hostnic {
namespace {

impair::Direction direction(bool receive_side) {
  return receive_side ? impair::Direction::kRx : impair::Direction::kTx;
}

}  // namespace

Ipv4Address NicSettings::own_for(Ipv4Address destination) const {
  const bool link_local = is_link_local(address_of(destination));
  Ipv4Address found = ip;
  int best = -1;
  for (uint32_t i = 0; i <= more_addresses.size(); ++i) {
    const Ipv4Address own = own_address(i);
    if (raw(own) == 0) continue;
    if (is_stand_in(own) != is_stand_in(destination)) continue;
    const int fits = is_link_local(address_of(own)) == link_local ? 1 : 0;
    if (fits > best) found = own, best = fits;
  }
  return found;
}

Transport NicSettings::wanted_to(Ipv4Address number) const {
  const Gid address = address_of(number);
  Transport chosen = transport;
  uint32_t best = 0;
  for (const TransportPrefix& prefix : transports) {
    if (prefix.bits < best || !same_network(address, prefix.address, prefix.bits)) continue;
    best = prefix.bits;
    chosen = prefix.transport;
  }
  return chosen;
}

bool NicSettings::asks_peers() const {
  return transport == Transport::kAuto ||
         std::ranges::any_of(transports, [](const TransportPrefix& prefix) {
           return prefix.transport == Transport::kAuto;
         });
}

NicShard::NicShard(NicShared& nic, Port& nic_port)
    : shared(nic),
      own_ip(nic.settings.ip),
      switched(nic.settings.network_switch.is_there()
                   ? std::make_unique<SwitchPort>(nic_port, nic.settings.network_switch, now)
                   : nullptr),
      loopback(switched != nullptr ? *switched : nic_port, nic.settings, counters),
      port(loopback, nic.pools, references, counters, nic.settings.network_switch.plan),
      qps(nic.settings.nic_qps, nic.settings.random_seed),
      windows(nic.mrs, nic.settings.random_seed),
      qps_of_user(nic.settings.nic_qps),
      clients(counters, now),
      answer_lines(qps, clients, nic.settings.nic_qps),
      reports(clients, port, counters, now, nic.settings.nic_qps, messages),
      receives(reports),
      reorder(nic.settings.window, nic.pools.copies, counters),
      placement(nic.mrs, windows, counters),
      egress(nic.settings, nic.pools, port, references, counters, now),
      packetizer(egress, placement, counters),
      transports({.settings = nic.settings,
                  .qps = qps,
                  .groups = groups,
                  .answer_lines = answer_lines,
                  .egress = egress,
                  .placement = placement,
                  .windows = windows,
                  .packetizer = packetizer,
                  .receives = receives,
                  .reorder = reorder,
                  .reports = reports,
                  .counters = counters,
                  .split_atomic = split_atomic,
                  .now = now,
                  .messages = messages}),
      management(nic.settings, egress, counters, now) {}

NicShard::~NicShard() {
  qps.for_each([this](QpContext& qp) { quiesce_qp(qp); });
}

uint32_t NicShard::turn(TimeNs now_ns) {
  now = now_ns;
  port.set_time(now_ns);
  egress.look_at_port();
  if (unlikely(is_watched)) begin_watched_turn();
  look_at_replacements();
  clients.look_at_unserved();
  clients.ask_for_descriptors();
  uint32_t work = transports.sum([](auto& transport) { return transport.begin_turn(); });
  work += receive_turn();
  transports.for_each([](auto& transport) { transport.end_receiving(); });
  work += command_turn();
  work += management.ask_peers(now_ns);
  work += transmit_turn();
  work += transports.sum([](auto& transport) { return transport.end_turn(); });
  work += egress.ask_neighbours();
  egress.flush_all();
  if (unlikely(has_faulted())) end_faulty_turn();
  port.advance();
  if (switched != nullptr) switched->advance();
  // Impairments of what leaves take and release references, too.
  references.flush();
  if (reports.waiting() != 0) ++work;
  reports.send();
  reports.wake_drivers(work == 0);
  clients.forget_idle();
  return work;
}

// What has been copied out of memory that is cut off has not counted (sigbus.h): the turn that did
// it is over.
void NicShard::end_faulty_turn() {
  egress.drop_all();
  forget_fault();
}

// Puts the keys to memory that its client has cut off out of use, before anything is taken that
// was sent after somebody met it.
void NicShard::look_at_replacements() {
  const uint64_t seen = replacements.load(std::memory_order_acquire);
  if (likely(seen == replacements_seen)) return;
  replacements_seen = seen;
  for (const auto& client : clients.all()) {
    ClientChannel& channel = *client->channel;
    const bool cut_off = channel.memory_cut_off.exchange(false, std::memory_order_acquire);
    if (!cut_off && !channel.has_lost_memory()) continue;
    const uint32_t keys = shared.mrs.cut_off(channel.settings().client_id);
    channel.keys_cut_off.fetch_add(keys, std::memory_order_relaxed);
  }
}

struct NicCore {
  NicCore(const NicSettings& settings, MrTable& mrs, const MbufPools& pools, Port& port)
      : shared{settings, mrs, pools}, shard(shared, port) {}
  NicShared shared;
  NicShard shard;
};

Nic::Nic(const NicSettings& settings, MrTable& mrs, const MbufPools& pools, Port& port)
    : core_(std::make_unique<NicCore>(settings, mrs, pools, port)) {}
Nic::~Nic() = default;

uint32_t Nic::poll(TimeNs now_ns) { return core_->shard.turn(now_ns); }

TimeNs Nic::next_deadline_ns() const {
  const NicShard& nic = core_->shard;
  TimeNs earliest =
      std::min({nic.port.next_deadline_ns(), nic.egress.paths().next_deadline_ns(),
                nic.transports.next_deadline_ns(), nic.management.peers().next_deadline_ns()});
  if (nic.switched != nullptr) earliest = std::min(earliest, nic.switched->next_deadline_ns());
  for (const ClientState* client : nic.clients.served()) {
    earliest = std::min(earliest, client->wake_due_ns);
    if (client->held_seen_ns != 0) earliest = std::min(earliest, client->next_look_at_held_ns());
  }
  return earliest;
}

bool Nic::work_waiting() {
  NicShard& nic = core_->shard;
  if (nic.loopback.waiting() != 0 || nic.port.has_ready() || nic.reports.waiting() != 0 ||
      nic.transports.any([](const auto& transport) { return transport.any_left(); }))
    return true;
  // What else there is ends at the port.
  if (waits_for_port()) return false;
  return nic.transports.any([](const auto& transport) { return transport.any_to_send(); }) ||
         nic.egress.anything_queued() || nic.clients.any_has_work();
}

bool Nic::waits_for_port() const { return core_->shard.port.announces_room(); }

bool Nic::delivered_to(uint32_t cpu) {
  bool delivered = false;
  for (ClientState* client : core_->shard.clients.served()) {
    if (!std::exchange(client->data_arrived, false)) continue;
    delivered |= handed_over_on(client->channel->header(), cpu);
  }
  return delivered;
}

int Nic::attach(ClientChannel* client) {
  NicShard& nic = core_->shard;
  if (nic.messages != nullptr)
    client->header().message_events.store(nic.messages->session(), std::memory_order_relaxed);
  return nic.clients.attach(client);
}

bool Nic::has_sends(const ClientChannel* channel) const {
  const ClientState* const client = core_->shard.clients.find(channel);
  return client != nullptr && ClientList::has_sends(*client);
}

void Nic::detach(ClientChannel* channel) {
  NicShard& nic = core_->shard;
  ClientState* client = nic.clients.find(channel);
  if (client == nullptr) return;
  nic.take_message_events(*client);
  core_->shard.windows.drop_all_of(channel->settings().client_id);
  nic.windows_of_user.give_back(channel->settings(),
                                channel->use->windows.exchange(0, std::memory_order_relaxed));
  nic.management.peers().forget_client(channel->settings().client_id);
  const std::vector<uint32_t> qpns = std::exchange(client->qpns, {});
  for (const uint32_t qpn : qpns) nic.destroy_qp(*client, *nic.qps.find(qpn), true);
  nic.clients.detach(*client);
}

void Nic::set_impairment(bool receive_side, const impair::Spec& spec, uint64_t seed) {
  core_->shard.port.set(direction(receive_side), spec, seed);
}

std::optional<impair::Counters> Nic::impairment_counters(bool receive_side) const {
  return core_->shard.port.impairment_counters(direction(receive_side));
}

std::optional<SwitchCounters> Nic::switch_counters() const {
  const auto& switched = core_->shard.switched;
  if (switched == nullptr) return std::nullopt;
  return switched->counters();
}

MrcEndpoint& Nic::mrc_endpoint() { return core_->shard.transports.mrc().endpoint(); }

void Nic::set_tap(PacketTap* tap) {
  NicShard& nic = core_->shard;
  if (nic.tap != nullptr) nic.tap->end(core_->shard.counters);
  if (tap != nullptr) tap->begin(core_->shard.counters);
  nic.tap = tap;
  nic.is_watched = nic.tap != nullptr || nic.messages != nullptr;
  nic.loopback.set_tap(tap);
  nic.port.set_tap(tap);
}

void Nic::set_message_tap(MessageTap* tap) { core_->shard.set_message_tap(tap); }

void Nic::take_message_events() {
  NicShard& nic = core_->shard;
  for (const auto& client : nic.clients.all()) nic.take_message_events(*client);
}

bool Nic::captures_queue_pairs_of(const ClientChannel* channel) const {
  const ClientState* const client = core_->shard.clients.find(channel);
  return core_->shard.tap != nullptr && client != nullptr && !client->qpns.empty();
}

void Nic::note_death(uint32_t pid) {
  if (core_->shard.tap != nullptr) core_->shard.tap->note_death(pid);
}

void Nic::set_management(ManagementQueue* queue) { core_->shard.management.set_queue(queue); }

void Nic::send_management(Ipv4Address from, Ipv4Address to, uint8_t traffic_class,
                          std::span<const std::byte, cm::kMadBytes> bytes) {
  core_->shard.management.send(from, to, traffic_class, bytes);
}

void Nic::send_inquiry(Ipv4Address from, Ipv4Address to, const cm::Inquiry& inquiry) {
  core_->shard.management.send(from, to, inquiry);
}

bool Nic::knows_host(Ipv4Address host) {
  Egress& egress = core_->shard.egress;
  Path path;
  if (egress.find_path(host, Neighbours::kOwn, false, path) != 0) return true;
  return path.neighbour <= Neighbours::kNobody || egress.paths().use_neighbour(path.neighbour) != 0;
}

void Nic::clear_counters() {
  core_->shard.counters.clear();
  core_->shard.port.clear_counters();
  if (core_->shard.switched != nullptr) core_->shard.switched->clear_counters();
}

bool Nic::holds_arrivals() const {
  const NicShard& nic = core_->shard;
  if (nic.switched != nullptr && nic.switched->waiting() != 0) return true;
  return nic.port.held() != 0 || nic.port.has_ready();
}

void Nic::set_mac(const wire::MacAddress& mac) {
  core_->shared.settings.mac = mac;
  core_->shard.egress.paths().own_mac_changed();
}

void Nic::swap_more_addresses(std::vector<Ipv4Address>& numbers) {
  core_->shared.settings.more_addresses.swap(numbers);
  // Datagram queue pairs keep the flow of the last address that they sent from.
  core_->shard.qps.for_each([](QpContext& qp) {
    if (qp.type == QpType::kUd) qp.flows_made_for = 0;
  });
}

wire::MacAddress Nic::conflicting_mac() const {
  return core_->shard.egress.paths().conflicting_mac();
}

void Nic::count(Counter counter) { core_->shard.counters.add(counter); }

NicViews Nic::views() const { return NicViews(core_->shard); }

TimeNs Nic::now_ns() const { return core_->shard.now; }
const TimeNs* Nic::turn_ns() const { return &core_->shard.now; }

NicGauges Nic::gauges() const {
  const NicShard& nic = core_->shard;
  NicGauges g;
  g.reorder_packets = nic.reorder.packets();
  g.reorder_limit = nic.reorder.packet_limit();
  g.reorder_blocks = nic.reorder.blocks_used();
  g.early_writes = kEarlyWriteCapacity - nic.placement.early_writes().available();
  g.read_jobs = nic.answer_lines.jobs();
  g.read_jobs_limit = kReadJobs;
  g.loopback = nic.loopback.waiting();
  g.loopback_limit = LoopbackPort::kCapacity;
  nic.qps.for_each([&](const QpContext& qp) {
    ++g.qps;
    for (const ReceiveSpace* space : {&qp.requests, &qp.responses}) {
      g.reorder_slots += space->reorder_slots_used;
      g.received_ahead = std::max(g.received_ahead, space->window.received_ahead());
    }
  });
  g.output_packets = nic.egress.longest_queue();
  g.longest_list =
      static_cast<uint32_t>(std::max<size_t>(nic.transports.longest_list(), nic.reports.waiting()));
  g.impaired_packets = nic.port.held();
  g.switched_packets = nic.switched == nullptr ? 0 : nic.switched->waiting();
  return g;
}

const Counters& Nic::counters() const { return core_->shard.counters; }
const NicSettings& Nic::settings() const { return core_->shared.settings; }

}  // namespace hostnic
