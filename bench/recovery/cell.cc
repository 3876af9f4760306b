// SPDX-License-Identifier: BSD-3-Clause
#include "bench/recovery/cell.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <stdexcept>

#include "tests/sim/stream.h"

namespace hostnic::recovery {
namespace {

using sim::Endpoint;
using sim::Stream;
using sim::World;

// Each with several QPs: a NIC knows 64 peers on its wire (kMaxPeers), itself among them, and every
// host costs a look in every turn.
constexpr uint32_t kIncastSenders = 16;
// Stops cells that do not get anywhere; much more than any that does needs.
constexpr uint64_t kLimitNs = 60 * sim::kSecond;
constexpr uint64_t kPacketLimit = 1'000'000;
// Changing it changes every number.
constexpr uint64_t kSeed = 7;

uint32_t senders_of(const Cell& cell) {
  return cell.topology == Topology::kPair ? 1 : std::min(cell.qps, kIncastSenders);
}

sim::WorldSettings world_settings(const Cell& cell) {
  sim::WorldSettings settings;
  settings.hosts = senders_of(cell) + 1;
  settings.mtu_bytes = kMtuBytes;
  settings.windows = {cell.window};
  settings.policies = {cell.policy};
  if (cell.roce) settings.transport = Transport::kRoce;
  settings.link.delay_ns = kRttNs / 2;
  settings.link.gigabits = kLinkGigabits;
  settings.link.queue_packets = kLinkQueuePackets;
  settings.pool_scale = cell.qps == 1 && !cell.roce ? 0.25 : 1;
  // Programs here are never without a core: one limit for all, so that cells compare.
  settings.sole_queued_bytes_limit = driver::DriverSettings{}.queued_bytes_limit;
  settings.trace = false;
  return settings;
}

std::string percent(uint32_t ppm) { return fmt::format("{}.{:04}%", ppm / 10000, ppm % 10000); }

// What arrives at a host: data at the receiver (host 0), ACKs at senders.
std::string impairments(const Cell& cell, bool at_receiver) {
  std::string text;
  const auto add = [&](const std::string& rule) { text += (text.empty() ? "rx " : "; ") + rule; };
  if (cell.loss_ppm != 0) add("drop " + percent(cell.loss_ppm));
  if (at_receiver && cell.topology == Topology::kIncast)
    add(fmt::format("rate {}Gbit queue {}", kLinkGigabits, kSwitchQueuePackets));
  if (at_receiver && cell.reorder_ppm != 0) {
    // Overtaken by so many packets, or later by the time they would take: a slower path.
    const auto packet_ns = static_cast<uint64_t>((kMtuBytes + 70) * 8 / kLinkGigabits);
    add(fmt::format("reorder {} distance {} flush {}ns", percent(cell.reorder_ppm),
                    cell.reorder_distance, cell.reorder_distance * packet_ns));
  }
  return text;
}

void impair(World& world, const Cell& cell) {
  for (uint32_t host = 0; host < world.host_count(); ++host) {
    if (const std::string text = impairments(cell, host == 0); !text.empty())
      world.impair(host, text, kSeed + host);
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

void count(World& world, const Cell& cell, Result& result) {
  result.sent_packets = sent_packets(world);
  for (uint32_t host = 0; host < world.host_count(); ++host) {
    const driver::DriverCounters counters = world.host(host).driver().counters();
    result.timeouts += counters.timeouts;
    result.probes += counters.probes;
    if (host != 0)
      result.resent_packets += world.host(host).counter(Counter::retransmitted_packets);
  }
  sim::Host& receiver = world.host(0);
  result.acks = receiver.counter(Counter::acks_sent);
  if (cell.op == SendOp::kRead) {
    // Nobody counts which answers were given before.
    const uint64_t needed = result.completed * (cell.message_bytes / kMtuBytes);
    result.resent_packets = std::max(result.sent_packets, needed) - needed;
    result.acks = receiver.counter(Counter::tx_packets);
  }
  result.duplicate_packets = receiver.counter(Counter::duplicate_request);
  if (const auto impaired = receiver.nic().impairment_counters(/*receive_side=*/true))
    result.lost_packets = impaired->dropped + impaired->rate_dropped + impaired->queue_dropped;
}

}  // namespace

Result run(const Cell& cell) {
  World world(world_settings(cell));
  sim::QpSettings qp;
  qp.caps.max_send_wr = std::max(qp.caps.max_send_wr, cell.depth);
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
        return sent_packets(world) > kPacketLimit ||
               std::all_of(streams.begin(), streams.end(), finished) ||
               std::any_of(streams.begin(), streams.end(), failed);
      },
      kLimitNs);
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

}  // namespace hostnic::recovery
