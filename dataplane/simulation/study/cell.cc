// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/simulation/study/cell.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <stdexcept>

#include "dataplane/simulation/stream.h"

namespace hostnic::study {
namespace {

using sim::Endpoint;
using sim::Stream;
using sim::World;

// Each with several QPs: a NIC knows 64 peers on its wire (kMaxPeers), itself among them, and every
// host costs a look in every turn.
constexpr uint32_t kIncastSenders = 16;
// Stop cells that do not get anywhere; much more than any that does needs.
constexpr uint64_t kLeastLimitNs = 60 * sim::kSecond;
constexpr uint64_t kLeastPacketLimit = 1'000'000;
constexpr uint32_t kHeaderBytes = 70;

uint32_t senders_of(const Cell& cell) {
  return cell.topology == Topology::kPair ? 1 : std::min(cell.qps, kIncastSenders);
}

double gigabits_of(const Cell& cell) {
  return static_cast<double>(cell.rate_bits_per_second) / 1e9;
}

uint64_t packet_ns(const Cell& cell) {
  return static_cast<uint64_t>((cell.mtu_bytes + kHeaderBytes) * 8 / gigabits_of(cell));
}

uint64_t needed_packets(const Cell& cell) {
  return uint64_t{cell.messages} * cell.qps * cell.packets_of_a_message();
}

uint64_t packet_limit(const Cell& cell) {
  return std::max(kLeastPacketLimit, 8 * needed_packets(cell));
}

// Ten times what the packets need on the link, or one transfer after the other on the path.
uint64_t limit_ns(const Cell& cell) {
  const uint64_t path_ns = 2 * cell.delay_ns * cell.messages / cell.depth;
  return std::max(kLeastLimitNs, 10 * (needed_packets(cell) * packet_ns(cell) + path_ns));
}

uint32_t link_queue(const Cell& cell) {
  const uint64_t under_way = cell.delay_ns / std::max<uint64_t>(packet_ns(cell), 1);
  return static_cast<uint32_t>(std::max<uint64_t>(kLinkQueuePackets, 2 * under_way));
}

sim::WorldSettings world_settings(const Cell& cell) {
  sim::WorldSettings settings;
  settings.hosts = senders_of(cell) + 1;
  settings.mtu_bytes = cell.mtu_bytes;
  settings.windows = {cell.window};
  settings.policies = {cell.policy};
  if (cell.roce) settings.transport = Transport::kRoce;
  settings.link.delay_ns = cell.delay_ns;
  settings.link.gigabits = gigabits_of(cell);
  settings.link.queue_packets = link_queue(cell);
  settings.pool_scale = cell.qps == 1 && !cell.roce ? 0.25 : 1;
  // Programs here are never without a core: one limit for all, so that cells compare.
  settings.sole_queued_bytes_limit = driver::DriverSettings{}.queued_bytes_limit;
  settings.trace = false;
  return settings;
}

std::string percent(uint32_t ppm) { return fmt::format("{}.{:04}%", ppm / 10000, ppm % 10000); }

// What arrives at a host: data at the receiver (host 0), ACKs at senders.
std::string receive_rules(const Cell& cell, bool at_receiver) {
  std::string text;
  const auto add = [&](const std::string& rule) { text += (text.empty() ? "rx " : "; ") + rule; };
  if (cell.loss_ppm != 0) add("drop " + percent(cell.loss_ppm));
  if (at_receiver && cell.topology == Topology::kIncast)
    add(fmt::format("rate {}bit queue {}", cell.rate_bits_per_second, kSwitchQueuePackets));
  if (at_receiver && cell.reorder_ppm != 0) {
    // Overtaken by so many packets, or later by the time they would take: a slower path.
    add(fmt::format("reorder {} distance {} flush {}ns", percent(cell.reorder_ppm),
                    cell.reorder_distance, cell.reorder_distance * packet_ns(cell)));
  }
  for (const impair::Rule& rule : cell.impair_rx.rules) add(impair::to_string(rule));
  return text;
}

void impair(World& world, const Cell& cell) {
  impair::Spec sent = cell.impair_tx;
  sent.direction = impair::Direction::kTx;
  for (uint32_t host = 0; host < world.host_count(); ++host) {
    if (const std::string text = receive_rules(cell, host == 0); !text.empty())
      world.impair(host, text, cell.seed + host);
    if (!sent.rules.empty()) world.impair(host, impair::to_string(sent), ~(cell.seed + host));
  }
}

uint64_t nearest_rank(const std::vector<uint64_t>& sorted, uint32_t percent) {
  return sorted.empty() ? 0 : sorted[(sorted.size() * percent + 99) / 100 - 1];
}

void take_times(const Cell& cell, TimeNs start_ns,
                const std::vector<std::unique_ptr<Stream>>& streams, Result& result) {
  std::vector<uint64_t> taken_ns, completed_ns;
  for (const auto& stream : streams) {
    for (const Stream::Timing& timing : stream->timings()) {
      taken_ns.push_back(timing.completed_ns - timing.posted_ns);
      completed_ns.push_back(timing.completed_ns - start_ns);
    }
  }
  std::sort(taken_ns.begin(), taken_ns.end());
  std::sort(completed_ns.begin(), completed_ns.end());
  result.completed = taken_ns.size();
  result.p50_ns = nearest_rank(taken_ns, 50);
  result.p99_ns = nearest_rank(taken_ns, 99);
  result.duration_ns = nearest_rank(completed_ns, 90);
  result.payload_bytes = (result.completed * 90 + 99) / 100 * cell.message_bytes;
}

uint64_t sent_packets(World& world) {
  uint64_t sum = 0;
  for (uint32_t host = 1; host < world.host_count(); ++host) {
    sim::Host& sender = world.host(host);
    sum += sender.counter(Counter::tx_packets) - sender.counter(Counter::acks_sent);
  }
  return sum;
}

uint64_t dropped(sim::Host& host, bool receive_side) {
  const auto impaired = host.nic().impairment_counters(receive_side);
  return impaired ? impaired->dropped + impaired->rate_dropped + impaired->queue_dropped : 0;
}

void count(World& world, const Cell& cell, Result& result) {
  result.sent_packets = sent_packets(world);
  for (uint32_t host = 0; host < world.host_count(); ++host) {
    const driver::DriverCounters counters = world.host(host).driver().counters();
    result.timeouts += counters.timeouts;
    result.probes += counters.probes;
    if (host == 0) continue;
    result.resent_packets += world.host(host).counter(Counter::retransmitted_packets);
    result.lost_packets += dropped(world.host(host), /*receive_side=*/false);
  }
  sim::Host& receiver = world.host(0);
  result.acks = receiver.counter(Counter::acks_sent);
  if (cell.op == SendOp::kRead) {
    // Nobody counts which answers were given before.
    const uint64_t needed = result.completed * cell.packets_of_a_message();
    result.resent_packets = std::max(result.sent_packets, needed) - needed;
    result.acks = receiver.counter(Counter::tx_packets);
  }
  result.duplicate_packets = receiver.counter(Counter::duplicate_request);
  result.lost_packets += dropped(receiver, /*receive_side=*/true);
}

}  // namespace

const char* name_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::kBudget:
      return "budget";
    case Outcome::kFailed:
      return "failed";
    default:
      return "done";
  }
}

Result run(const Cell& cell) {
  World world(world_settings(cell));
  sim::QpSettings qp;
  qp.caps.max_send_wr = std::max(qp.caps.max_send_wr, cell.depth);
  qp.caps.max_recv_wr = std::max(qp.caps.max_recv_wr, cell.depth);
  qp.cq_entries = std::max(qp.cq_entries, cell.depth);
  std::vector<std::unique_ptr<Endpoint>> ends;
  std::vector<std::unique_ptr<Stream>> streams;
  const sim::StreamSettings load{.op = cell.op,
                                 .message_bytes = cell.message_bytes,
                                 .depth = cell.depth,
                                 .messages = cell.messages};
  for (uint32_t i = 0; i < cell.qps; ++i) {
    ends.push_back(world.make_endpoint(1 + i % senders_of(cell), qp));
    Endpoint& sender = *ends.back();
    ends.push_back(world.make_endpoint(0, qp));
    Endpoint& receiver = *ends.back();
    world.connect(sender, receiver);
    const bool reads = cell.op == SendOp::kRead;
    streams.push_back(
        std::make_unique<Stream>(reads ? receiver : sender, reads ? sender : receiver, load));
    world.add(*streams.back());
  }
  impair(world, cell);
  const TimeNs start_ns = world.now();
  const auto finished = [](const auto& stream) { return stream->finished(); };
  const auto failed = [](const auto& stream) { return stream->failed(); };
  world.run_until(
      [&] {
        return sent_packets(world) > packet_limit(cell) ||
               std::all_of(streams.begin(), streams.end(), finished) ||
               std::any_of(streams.begin(), streams.end(), failed);
      },
      limit_ns(cell));
  if (world.failed()) throw std::runtime_error(world.report());
  Result result;
  if (!std::all_of(streams.begin(), streams.end(), finished)) result.outcome = Outcome::kBudget;
  if (std::any_of(streams.begin(), streams.end(), failed)) result.outcome = Outcome::kFailed;
  take_times(cell, start_ns, streams, result);
  if (result.outcome != Outcome::kDone) {
    result.payload_bytes = result.completed * cell.message_bytes;
    result.duration_ns = world.now() - start_ns;
  }
  world.run_for(sim::kMillisecond);  // what is still on its way counts, too
  count(world, cell, result);
  return result;
}

}  // namespace hostnic::study
