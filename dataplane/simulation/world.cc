// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/simulation/world.h"

#include <fcntl.h>
#include <rte_errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "dataplane/nic/limits.h"
#include "dataplane/nic/packet/bundle.h"
#include "dataplane/nic/packet/packet.h"
#include "dataplane/nic/packet/packet_release.h"
#include "protocol/impair/adversary.h"
#include "protocol/impair/stage.h"

namespace hostnic::sim {
namespace {

constexpr uint64_t kTurnNs = 300;  // what a turn with work costs in virtual time
constexpr uint32_t kTurnsPerCheck = 8;

std::string text_of(const NicGauges& g) {
  return fmt::format(
      "{} QPs, {} of {} packets in reorder buffers, {} slots in {} blocks, {} received ahead, {} "
      "placed ranges, "
      "{} of {} READ jobs, {} of {} looped back, {} in the fullest output queue, {} in the longest "
      "list, {} impaired",
      g.qps, g.reorder_packets, g.reorder_limit, g.reorder_slots, g.reorder_blocks,
      g.received_ahead, g.early_writes, g.read_jobs, g.read_jobs_limit, g.loopback,
      g.loopback_limit, g.output_packets, g.longest_list, g.impaired_packets);
}

impair::SwitchSpec switch_of(const WorldSettings& settings) {
  auto spec = impair::parse_switch(settings.network_switch);
  require(spec.has_value(), "switch: " + settings.network_switch);
  return *spec;
}

// The rate of the slowest that all of a NIC's packets go by.
uint32_t line_rate_mbps(const WorldSettings& settings) {
  const auto of_link = static_cast<uint32_t>(settings.link.gigabits * 1000);
  const impair::SwitchSpec spec = switch_of(settings);
  return spec.is_there() ? std::min(of_link, spec.rate_mbps()) : of_link;
}

}  // namespace

// ---- host

Host::Host(World& world, uint32_t index, uint32_t nic_index)
    : world_(world), index_(index), nic_index_(nic_index) {
  const WorldSettings& s = world.settings();
  const uint32_t window = s.windows[nic_index % s.windows.size()];
  NicSettings nic;
  nic.name = fmt::format("hnic{}", nic_index);
  nic.index = nic_index;
  nic.ip = address_of(nic_index);
  nic.mac = {0x02, 0, 0, 0, 0, static_cast<uint8_t>(nic_index)};
  nic.mtu_bytes = s.mtu_bytes;
  nic.window = window;
  nic.policy = s.policies[nic_index % s.policies.size()];
  nic.mrc_entropy_values = s.mrc_entropy_values;
  nic.mrc_planes = s.mrc_planes;
  nic.paths = s.paths[nic_index % s.paths.size()];
  nic.network_switch = switch_of(s);
  nic.line_rate_mbps = line_rate_mbps(s);
  nic.ordering = s.ordering;
  if (s.ordering == Ordering::kAdversarial)
    nic.adversary_seed = impair::adversary_seed(s.adversary_seed, nic_index);
  nic.transport = s.transport;
  if (std::ranges::find(s.roce_hosts, nic_index) != s.roce_hosts.end())
    nic.transport = Transport::kRoce;
  if (std::ranges::find(s.auto_hosts, nic_index) != s.auto_hosts.end())
    nic.transport = Transport::kAuto;
  for (const uint32_t host : s.roce_hosts) {
    if (nic.transport == Transport::kAuto || !s.told_of_roce) break;
    nic.transports.push_back({gid_of(address_of(host)), 128, Transport::kRoce});
  }
  nic.max_qps = s.max_qps;
  nic.always_icrc = s.always_icrc;
  nic.segmentation = s.segmentation;
  if (nic_index == index)
    own_nic_ = std::make_unique<Nic>(nic, world.mrs(), world.pools(), world.wire().port(index));
  nic_ = own_nic_ ? own_nic_.get() : &world.host(nic_index).nic();
  auto channel = ClientChannel::create({.client_id = index + 1,
                                        .max_qps = s.max_qps,
                                        .arena_bytes = uint64_t{s.max_qps} << 18,
                                        .program = "sim",
                                        .pid = 0,
                                        .user_windows = world.settings().user_windows});
  require(channel.has_value(), "client segment");
  channel_ = std::move(*channel);
  const SegmentMemory& theirs = channel_->memory();
  require(segment_.map(channel_->segment_fd(), theirs.segment_bytes(), channel_->arena_fd(),
                       theirs.arena_bytes()) == 0,
          "the driver's mapping of the segment");
  require(nic_->attach(channel_.get()) == 0, "attach");
  driver::DriverSettings settings;
  settings.max_qps = s.max_qps;
  settings.mtu_bytes = s.mtu_bytes;
  settings.window = window;
  settings.line_rate_mbps = nic.line_rate_mbps;
  settings.policy = nic.policy;
  settings.paths = nic.paths;
  settings.relaxed_ordering = nic.ordering == Ordering::kRelaxed;
  settings.adversary_seed = impair::program_seed(nic.adversary_seed);
  settings.sole_queued_bytes_limit = s.sole_queued_bytes_limit;
  driver_ = std::make_unique<driver::Driver>(*this, segment_, settings);
  require(driver_->error() == 0, "driver");
  driver_->set_async_handler(
      [](void* self, driver::AsyncEvent event, void* user, driver::Cq*) {
        static_cast<Host*>(self)->events.push_back({event, user});
      },
      this);
}

Host::~Host() {
  driver_.reset();
  nic_->detach(channel_.get());
  own_nic_.reset();
}

void Host::wait_for_response() {
  world_.poll_nics();
  world_.advance(kMicrosecond);
}
void Host::pause(uint32_t pause_ns) { world_.run_nics_for(pause_ns); }

// ---- endpoint

QpState Endpoint::state() const {
  driver::QpAttr attr;
  driver::QpCaps caps;
  host->driver().query_qp(qp, attr, caps);
  return attr.state;
}

int Endpoint::post_send(const driver::SendRequest& request) {
  return host->driver().post_send(qp, request, world->now());
}
int Endpoint::post_recv(const driver::RecvRequest& request) {
  return host->driver().post_recv(qp, request);
}

std::vector<driver::Completion> Endpoint::poll(driver::Cq& cq) const {
  std::vector<driver::Completion> all;
  driver::Completion some[16];
  for (int n; (n = cq.poll(some, 16)) > 0;) all.insert(all.end(), some, some + n);
  return all;
}

// ---- world

World::World(const WorldSettings& settings)
    : settings_(settings),
      trace_(settings.trace),
      pools_(take_pools(settings.mtu_bytes, settings.pool_scale)),
      mem_fd_(open("/proc/self/mem", O_RDWR | O_CLOEXEC)),
      wire_(std::make_unique<SimWire>(settings.hosts, settings.link, trace_)) {
  require(pools_.header != nullptr, fmt::format("packet pools: {}", rte_strerror(rte_errno)));
  require(mem_fd_ >= 0, "/proc/self/mem");
  wire_->set_time(now_);
  for (uint32_t i = 0; i < settings.hosts; ++i)
    hosts_.push_back(std::make_unique<Host>(*this, i, i));
  for (const uint32_t nic : settings.more_clients_of)
    hosts_.push_back(std::make_unique<Host>(*this, host_count(), nic));
  impaired_.resize(settings.hosts);
  if (settings.ordering != Ordering::kAdversarial) return;
  for (uint32_t i = 0; i < settings.hosts; ++i)
    set_impairment(i, /*receive_side=*/true, impair::adversary_rules(),
                   impair::derive_seed(settings.adversary_seed, i, impair::Direction::kRx));
}

World::~World() {
  while (!hosts_.empty()) hosts_.pop_back();  // NICs after their further clients
  wire_.reset();
  give_pools(settings_.mtu_bytes, settings_.pool_scale, pools_);
  close(mem_fd_);
}

std::unique_ptr<Endpoint> World::make_endpoint(uint32_t index, const QpSettings& settings) {
  auto end = std::make_unique<Endpoint>();
  end->world = this;
  end->host = hosts_[index].get();
  end->settings = settings;
  driver::Driver& driver = end->host->driver();
  end->send_cq = driver.create_cq(settings.cq_entries, nullptr, nullptr);
  end->recv_cq = driver.create_cq(settings.cq_entries, nullptr, nullptr);
  driver::QpInit init;
  init.type = settings.type;
  init.pd = settings.pd;
  init.send_cq = end->send_cq.get();
  init.recv_cq = end->recv_cq.get();
  init.srq = settings.srq;
  init.caps = settings.caps;
  init.signal_all = settings.signal_all;
  init.user = end.get();
  auto made = driver.create_qp(init);
  require(made.has_value(), "create_qp");
  end->qp = *made;
  to_init(*end);
  return end;
}

void World::to_init(Endpoint& a) {
  driver::QpAttr attr;
  attr.state = QpState::kInit;
  attr.access = a.settings.access;
  attr.qkey = a.settings.qkey;
  const uint32_t right =
      a.settings.type == QpType::kUd ? driver::kQpQkey : uint32_t{driver::kQpAccessFlags};
  const int error = a.host->driver().modify_qp(
      a.qp, attr, driver::kQpState | driver::kQpPkeyIndex | driver::kQpPort | right);
  require(error == 0, "modify_qp to INIT");
}

void World::reset_to_init(Endpoint& a) {
  require(modify_state(a, QpState::kReset) == 0, "modify_qp to RESET");
  to_init(a);
}

void World::to_rtr(Endpoint& a, const Endpoint& b) {
  driver::QpAttr attr;
  attr.state = QpState::kRtr;
  attr.dest_qpn = b.qpn();
  attr.dest_ip = address_of(b.host->nic_index());
  attr.is_global = true;
  attr.rq_psn = b.settings.psn;
  attr.path_mtu_bytes =
      a.settings.path_mtu_bytes != 0 ? a.settings.path_mtu_bytes : settings_.mtu_bytes;
  attr.max_dest_rd_atomic = a.settings.max_dest_rd_atomic.value_or(b.settings.max_rd_atomic);
  attr.min_rnr_timer = a.settings.min_rnr_timer;
  uint32_t mask = driver::kQpState;
  if (a.settings.type != QpType::kUd)
    mask |= driver::kQpAv | driver::kQpPathMtu | driver::kQpDestQpn | driver::kQpRqPsn;
  if (a.settings.type == QpType::kRc) mask |= driver::kQpMaxDestRdAtomic | driver::kQpMinRnrTimer;
  const int error = a.host->driver().modify_qp(a.qp, attr, mask);
  require(error == 0, "modify_qp to RTR");
}

void World::to_rts(Endpoint& a) {
  driver::QpAttr attr;
  attr.state = QpState::kRts;
  attr.sq_psn = a.settings.psn;
  attr.timeout = a.settings.timeout;
  attr.retry_cnt = a.settings.retry_cnt;
  attr.rnr_retry = a.settings.rnr_retry;
  attr.max_rd_atomic = a.settings.max_rd_atomic;
  uint32_t mask = driver::kQpState | driver::kQpSqPsn;
  if (a.settings.type == QpType::kRc) {
    mask |=
        driver::kQpTimeout | driver::kQpRetryCnt | driver::kQpRnrRetry | driver::kQpMaxQpRdAtomic;
  }
  a.host->driver().set_mrc_limits(a.qp, a.settings.mrc);
  const int error = a.host->driver().modify_qp(a.qp, attr, mask);
  require(error == 0, "modify_qp to RTS");
}

int World::modify_state(Endpoint& a, QpState state) {
  driver::QpAttr attr;
  attr.state = state;
  return a.host->driver().modify_qp(a.qp, attr, driver::kQpState);
}

void World::connect(Endpoint& a, Endpoint& b, bool b_to_rts) {
  to_rtr(a, b);
  to_rtr(b, a);
  to_rts(a);
  if (b_to_rts) to_rts(b);
}

void World::impair(uint32_t index, const std::string& text, uint64_t seed) {
  auto spec = impair::parse_spec(text);
  require(spec.has_value(), "impairment: " + text);
  const bool receive_side =
      spec->direction.value_or(impair::Direction::kRx) == impair::Direction::kRx;
  trace_.note(now_, fmt::format("hnic{}: {}", index, impair::to_string(*spec)));
  set_impairment(index, receive_side, *spec, seed);
}

void World::set_impairment(uint32_t index, bool receive_side, const impair::Spec& spec,
                           uint64_t seed) {
  hosts_[index]->nic().set_impairment(receive_side, spec, seed);
  impaired_[index][receive_side ? 1 : 0] = {};
}

void World::advance(uint64_t duration_ns) {
  now_ += duration_ns;
  wire_->set_time(now_);
}

void World::poll_nics() {
  if (before_nics) before_nics();
  for (auto& host : hosts_) poll_nic(*host);
}

uint32_t World::poll_nic(Host& host) {
  return host.has_own_nic() && now_ >= host.nic_starved_until_ns ? host.nic().poll(now_) : 0;
}

void World::run_nics_for(uint64_t duration_ns) {
  const TimeNs end = now_ + duration_ns;
  while (now_ < end) {
    poll_nics();
    TimeNs next = wire_->next_arrival_ns([](uint32_t) { return true; });
    for (const auto& host : hosts_)
      if (host->has_own_nic()) next = std::min(next, host->nic().next_deadline_ns());
    advance(std::min(std::max(next, now_ + kMicrosecond), end) - now_);
  }
  poll_nics();
}

// One turn of everything. False: nothing was done and nothing waits.
bool World::turn() {
  uint32_t work = 0;
  bool busy = false;
  if (before_nics) before_nics();
  for (auto& host : hosts_) work += poll_nic(*host);
  for (auto& host : hosts_) {
    driver::Driver& driver = host->driver();
    if (now_ < host->stopped_until_ns) continue;
    if (!settings_.driver_waits_for_wake_up || driver.turn_due(now_)) driver.try_progress(now_);
    busy = busy || driver.turn_wanted();
  }
  for (Program* program : programs_) busy = program->turn(now_) || busy;
  for (auto& host : hosts_)
    if (now_ >= hosts_[host->nic_index()]->nic_starved_until_ns)
      busy = busy || host->nic().work_waiting();
  for (auto& host : hosts_) busy = host->fill_slices() || busy;
  if (!retired_keys_.empty()) reclaim_retired();
  if (work != 0) trace_impairments();
  if (++turns_ % kTurnsPerCheck == 0) check_bounds();
  return work != 0 || busy;
}

void World::reclaim_retired() {
  std::erase_if(retired_keys_, [this](uint32_t key) {
    if (mrs_.referenced(key)) return false;
    mrs_.reclaim(key);
    return true;
  });
}

// What the wire does to packets is in the trace, what the impairments do to them is added here.
void World::trace_impairments() {
  for (uint32_t i = 0; i < settings_.hosts; ++i) {
    for (const bool receive_side : {false, true}) {
      const auto c = hosts_[i]->nic().impairment_counters(receive_side);
      if (!c) continue;
      impair::Counters& before = impaired_[i][receive_side ? 1 : 0];
      const uint64_t dropped = c->dropped + c->rate_dropped + c->queue_dropped -
                               (before.dropped + before.rate_dropped + before.queue_dropped);
      const uint64_t changed = dropped + (c->duplicated - before.duplicated) +
                               (c->reordered - before.reordered) +
                               (c->corrupted - before.corrupted);
      if (changed != 0) {
        trace_.note(
            now_,
            fmt::format("hnic{} {}: dropped {} duplicated {} reordered {} corrupted "
                        "{} of those that came until now",
                        i, receive_side ? "rx" : "tx", dropped, c->duplicated - before.duplicated,
                        c->reordered - before.reordered, c->corrupted - before.corrupted));
      }
      before = *c;
    }
  }
}

// Nothing grows beyond what it was given.
void World::check_bounds() {
  for (const auto& host : hosts_) {
    const NicGauges g = host->nic().gauges();
    const uint32_t window = host->nic().settings().window;
    const bool good =
        g.reorder_packets <= g.reorder_limit && g.reorder_packets <= g.reorder_slots &&
        g.reorder_slots <= uint64_t{g.reorder_blocks} * window && g.reorder_blocks <= 2 * g.qps &&
        // As many as the window has: an atomic at the front may wait there.
        g.received_ahead <= window && g.read_jobs <= g.read_jobs_limit &&
        g.loopback <= g.loopback_limit && g.output_packets <= 2 * kBurst &&
        g.longest_list <= g.qps &&
        g.impaired_packets <= 2 * impair::ImpairmentStage::kDefaultCapacity;
    if (!good) fail(fmt::format("hnic{} keeps more than it may: {}", host->index(), text_of(g)));
  }
}

uint64_t World::sum(Counter counter) {
  uint64_t total = 0;
  for (const auto& host : hosts_)
    if (host->has_own_nic()) total += host->counter(counter);
  return total;
}

TimeNs World::next_event_ns() const {
  TimeNs next = wire_->next_arrival_ns(
      [this](uint32_t to) { return now_ >= hosts_[to]->nic_starved_until_ns; });
  for (const auto& host : hosts_) {
    const TimeNs starved_until_ns = hosts_[host->nic_index()]->nic_starved_until_ns;
    next = std::min(next, std::max(host->nic().next_deadline_ns(), starved_until_ns));
    if (now_ < starved_until_ns) next = std::min(next, starved_until_ns);
    const bool stopped = now_ < host->stopped_until_ns;
    next = std::min(next, stopped ? host->stopped_until_ns : host->driver().next_deadline_ns());
  }
  for (const Program* program : programs_) next = std::min(next, program->next_ns());
  return next;
}

bool World::run_until(const std::function<bool()>& done, uint64_t limit_ns, bool idle_is_a_bug) {
  const TimeNs end = now_ + limit_ns;
  while (!failed()) {
    if (done()) return true;
    if (now_ >= end) return false;
    if (turn()) {
      advance(kTurnNs);
      continue;
    }
    if (done()) return true;
    const TimeNs next = next_event_ns();
    if (next == UINT64_MAX) {
      if (idle_is_a_bug) fail("nothing will ever happen again: a timer or a report is missing");
      return false;
    }
    advance(next > now_ + kTurnNs ? std::min(next, end) - now_ : kTurnNs);
  }
  return false;
}

void World::run_for(uint64_t duration_ns) {
  const TimeNs end = now_ + duration_ns;
  while (now_ < end) {
    if (turn()) {
      advance(kTurnNs);
    } else {
      const TimeNs next = std::max(next_event_ns(), now_ + kTurnNs);
      advance(std::min(next, end) - now_);
    }
  }
}

void World::fail(std::string message) {
  trace_.note(now_, "FAILED: " + message);
  if (failure_.empty()) failure_ = std::move(message);
}

void World::check_at_rest() {
  for (uint32_t i = 0; i < settings_.hosts; ++i)
    for (const bool receive_side : {true, false}) set_impairment(i, receive_side, {}, 0);
  run_for(20 * kMillisecond);
  for (const auto& host : hosts_) {
    const NicGauges g = host->nic().gauges();
    if (g.reorder_packets + g.reorder_slots + g.reorder_blocks + g.received_ahead + g.early_writes +
            g.read_jobs + g.loopback + g.output_packets + g.longest_list !=
        0) {
      fail(fmt::format("at rest hnic{} still keeps: {}", host->index(), text_of(g)));
    }
  }
  const auto all = all_of(pools_);
  static constexpr std::array kNames = {"header", "data", "control", "resend", "hold"};
  static_assert(kNames.size() == std::tuple_size_v<decltype(all)>);
  for (size_t i = 0; i < all.size(); ++i) {
    if (const unsigned out = rte_mempool_in_use_count(all[i]); out != 0)
      fail(fmt::format("{} packet buffers of the {} pool did not come back", out, kNames[i]));
  }
  for (auto& host : hosts_) {
    for (const uint32_t key : mrs_.keys_of(host->index() + 1)) {
      if (mrs_.referenced(key)) fail(fmt::format("packets still refer to region {:#x}", key));
    }
  }
  if (!retired_keys_.empty())
    fail(fmt::format("packets still refer to {} deregistered regions", retired_keys_.size()));
}

std::string World::report() const {
  std::string text =
      fmt::format("{} (at {:.3f} ms)\n", failure_, static_cast<double>(now_ - kSecond) / 1e6);
  for (const auto& host : hosts_) {
    for (uint32_t from = 0; from != NicViews::kNoMoreQps;) {
      for (const QpView& qp : host->nic().views().qps(from))
        text += fmt::format(
            "hnic{} qp {:#x} peer {:#x} rx-base {} ahead {} tx-next {} acked {} recv-sn {} "
            "outstanding {} receives {} repeated {} naks {}{}\n",
            host->index(), qp.qpn, qp.dest_qpn, qp.expected, qp.received_ahead, qp.transmitted,
            qp.una, qp.recv_next_sn, qp.outstanding(), qp.receives_waiting,
            qp.retransmitted_packets, qp.naks, qp.refused_its_peer ? " refused its peer" : "");
    }
    text += fmt::format("hnic{}:", host->index());
    for (size_t i = 0; i < kCounterCount; ++i) {
      const auto counter = static_cast<Counter>(i);
      if (const uint64_t value = host->counter(counter); value != 0)
        text += fmt::format(" {} {}", counter_name(counter), value);
    }
    const driver::DriverCounters c = host->driver().counters();
    text += fmt::format(
        "\n  driver: retransmitted {} timeouts {} probes {} rnr waits {} repulls {} rate cuts {} "
        "recoveries {}\n",
        c.retransmitted_packets, c.timeouts, c.probes, c.rnr_waits, c.read_repulls, c.rate_cuts,
        c.rate_recoveries);
  }
  return text + trace_.text();
}

}  // namespace hostnic::sim
