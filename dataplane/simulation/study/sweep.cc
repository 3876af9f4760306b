// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/simulation/study/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "dataplane/simulation/study/recovery_cells.h"

namespace hostnic::study {
namespace {

using Values = std::vector<uint64_t>;

constexpr uint32_t kMiB = 1024 * 1024;
constexpr uint64_t kMostMemoryBytes = uint64_t{1024} * kMiB;
constexpr uint64_t kMostPackets = 10'000'000;
constexpr uint32_t kMostDepth = 1024;
// What a cell has outstanding, moves, and completes, unless it is told otherwise.
constexpr uint64_t kOutstandingBytes = 2 * kMiB;
constexpr uint64_t kUsualPackets = 32'768;
constexpr uint64_t kLeastMessages = 200;

constexpr Quantity kLoss{"--loss", Unit::kPercent, 0, 1'000'000,
                         "a percentage: 1%, 0,1%,5% or 0..5%"};
constexpr Quantity kReorder{"--reorder", Unit::kPercent, 0, 1'000'000,
                            "a percentage: 1%, 0,1%,5% or 0..5%"};
constexpr Quantity kDistance{"--distance",
                             Unit::kNumber,
                             1,
                             impair::kMaxDistance,
                             "a number of packets: 16, 8,64 or 8..256",
                             /*doubles=*/true};
constexpr Quantity kMessage{
    "--message",     Unit::kBytes, 1, 8 * kMiB, "a size: 64K, 4K,1M or 4K..1M",
    /*doubles=*/true};
constexpr Quantity kMtu{
    "--mtu",          Unit::kNumber,        256, 4096, "256, 512, 1024, 2048 or 4096",
    /*doubles=*/true, /*power_of_two=*/true};
constexpr Quantity kRate{"--rate", Unit::kRate, 1'000'000, 1'000'000'000'000,
                         "a rate: 100Gbit, 10Gbit,25Gbit or 10..100Gbit"};
constexpr Quantity kDelay{"--delay", Unit::kTime, 0, 1'000'000'000,
                          "a time: 10us, 1us,100us or 1..10us"};
constexpr Quantity kWindow{
    "--window",       Unit::kNumber,        32, 4096, "a power of two: 1024, 64,1024 or 32..4096",
    /*doubles=*/true, /*power_of_two=*/true};
constexpr Quantity kQps{"--qps",         Unit::kNumber, 1, 64, "a number: 1, 1,16 or 1..64",
                        /*doubles=*/true};
constexpr Quantity kDepth{
    "--depth",       Unit::kNumber, 1, kMostDepth, "a number: 8, 1,8 or 1..64",
    /*doubles=*/true};
constexpr Quantity kMessages{"--messages", Unit::kNumber, 1, 1'000'000, "a number: 1000"};

// The options as values.
struct Sweep {
  std::vector<Recovery> recoveries;
  Values losses, reorders, distances, messages_bytes, mtus, rates, delays, windows, qps;
  Values depths, messages;  // empty: as the cell needs
  Cell common;
};

Expected<std::vector<Recovery>, std::string> recoveries_of(const std::string& text) {
  std::vector<Recovery> chosen;
  std::string names;
  for (const Recovery& each : all_recoveries()) names += std::string(each.name) + ", ";
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string name = text.substr(at, end - at);
    const size_t before = chosen.size();
    for (const Recovery& each : all_recoveries())
      if (name == "all" || name == each.name) chosen.push_back(each);
    if (chosen.size() == before)
      return Unexpected(
          fmt::format("--policy {:.40}: no such policy (there are {}and all)", name, names));
    at = end + 1;
  }
  return chosen;
}

Expected<SendOp, std::string> op_of(const std::string& text) {
  if (text == "write") return SendOp::kWrite;
  if (text == "send") return SendOp::kSend;
  if (text == "read") return SendOp::kRead;
  return Unexpected(fmt::format("--op {:.40}: use write, send or read", text));
}

Expected<void, std::string> add_impairments(const std::vector<std::string>& texts, Cell& cell) {
  for (const std::string& text : texts) {
    auto spec = impair::parse_spec(text);
    if (!spec) return Unexpected(fmt::format("--impair: {}", spec.error().message()));
    const bool sent = spec->direction == impair::Direction::kTx;
    auto& rules = (sent ? cell.impair_tx : cell.impair_rx).rules;
    rules.insert(rules.end(), spec->rules.begin(), spec->rules.end());
  }
  // Loss, reordering and the switch's port have a rule each.
  constexpr size_t kMost = impair::kMaxRules - 3;
  if (std::max(cell.impair_rx.rules.size(), cell.impair_tx.rules.size()) > kMost)
    return Unexpected(fmt::format("--impair: more than {} rules in one direction", kMost));
  return {};
}

Expected<Sweep, std::string> sweep_of(const SweepOptions& options) {
  Sweep sweep;
  if (options.points < 2 || options.points > 1000)
    return Unexpected(std::string("--points: use 2 to 1000"));
  auto recoveries = recoveries_of(options.policies);
  if (!recoveries) return Unexpected(recoveries.error());
  sweep.recoveries = std::move(*recoveries);
  auto op = op_of(options.op);
  if (!op) return Unexpected(op.error());
  sweep.common.op = *op;
  sweep.common.seed = options.seed;
  if (options.incast) sweep.common.topology = Topology::kIncast;
  if (auto added = add_impairments(options.impairments, sweep.common); !added)
    return Unexpected(added.error());
  struct Part {
    const Quantity& quantity;
    const std::string& text;
    Values& values;
  };
  const Part parts[] = {{kLoss, options.losses, sweep.losses},
                        {kReorder, options.reorders, sweep.reorders},
                        {kDistance, options.distances, sweep.distances},
                        {kMessage, options.messages_bytes, sweep.messages_bytes},
                        {kMtu, options.mtu_bytes, sweep.mtus},
                        {kRate, options.rates, sweep.rates},
                        {kDelay, options.delays, sweep.delays},
                        {kWindow, options.windows, sweep.windows},
                        {kQps, options.qps, sweep.qps},
                        {kDepth, options.depths, sweep.depths},
                        {kMessages, options.messages, sweep.messages}};
  for (const Part& part : parts) {
    const bool may_be_absent = &part.quantity == &kDepth || &part.quantity == &kMessages;
    if (part.text.empty() && may_be_absent) continue;
    auto values = parse_values(part.quantity, part.text, options.points);
    if (!values) return Unexpected(values.error());
    part.values = std::move(*values);
  }
  if (sweep.messages.size() > 1) return Unexpected(std::string("--messages: one number"));
  return sweep;
}

// Four times what the path holds, 2 MiB at least: enough to keep the link busy while a message
// waits for what it has lost.
uint32_t usual_depth(const Cell& cell) {
  const double path_bytes =
      static_cast<double>(cell.rate_bits_per_second) / 8e9 * 2 * static_cast<double>(cell.delay_ns);
  const uint64_t bytes = std::max(kOutstandingBytes, static_cast<uint64_t>(4 * path_bytes));
  const uint64_t depth = bytes / cell.message_bytes / cell.qps;
  return static_cast<uint32_t>(std::clamp<uint64_t>(depth, 1, kMostDepth));
}

uint32_t usual_messages(const Cell& cell) {
  const uint64_t all = std::max(kUsualPackets / cell.packets_of_a_message(), kLeastMessages);
  return static_cast<uint32_t>((all + cell.qps - 1) / cell.qps);
}

Expected<void, std::string> check(const Cell& cell) {
  const uint64_t packets = uint64_t{cell.messages} * cell.qps * cell.packets_of_a_message();
  if (packets > kMostPackets)
    return Unexpected(fmt::format(
        "{} messages of {} on {} QPs are {} packets ({} at most in a cell: --messages)",
        cell.messages, text_of(Unit::kBytes, cell.message_bytes), cell.qps, packets, kMostPackets));
  const uint64_t memory = uint64_t{cell.qps} * (cell.depth + 1) * cell.message_bytes;
  if (memory > kMostMemoryBytes)
    return Unexpected(
        fmt::format("{} messages of {} outstanding on {} QPs need {} MiB ({} at most)", cell.depth,
                    text_of(Unit::kBytes, cell.message_bytes), cell.qps, memory / kMiB,
                    kMostMemoryBytes / kMiB));
  return {};
}

// Completes a cell, whose last values follow from the others.
Expected<void, std::string> add_cell(const Sweep& sweep, Cell cell, std::vector<Cell>& cells) {
  if (sweep.depths.empty()) cell.depth = usual_depth(cell);
  cell.messages =
      sweep.messages.empty() ? usual_messages(cell) : static_cast<uint32_t>(sweep.messages.front());
  // Without reordering its distance means nothing.
  if (cell.reorder_ppm == 0) {
    if (cell.reorder_distance != sweep.distances.front()) return {};
    cell.reorder_distance = 0;
  }
  if (auto good = check(cell); !good) return good;
  cells.push_back(std::move(cell));
  return {};
}

// A number of values, each of which cells have in turn.
struct Loop {
  const Values& values;
  void (*set)(Cell& cell, uint64_t value);
};

Expected<void, std::string> add_all(const Sweep& sweep, std::span<const Loop> loops,
                                    const Cell& cell, std::vector<Cell>& cells) {
  if (loops.empty()) return add_cell(sweep, cell, cells);
  for (const uint64_t value : loops.front().values) {
    Cell each = cell;
    loops.front().set(each, value);
    if (auto added = add_all(sweep, loops.subspan(1), each, cells); !added) return added;
  }
  return {};
}

constexpr std::array<Dimension, 9> kDimensions = {
    {{"loss", Unit::kPercent, [](const Cell& c) { return uint64_t{c.loss_ppm}; }},
     {"packets that come late", Unit::kPercent,
      [](const Cell& c) { return uint64_t{c.reorder_ppm}; }},
     {"late by packets", Unit::kNumber, [](const Cell& c) { return uint64_t{c.reorder_distance}; }},
     {"message, bytes", Unit::kBytes, [](const Cell& c) { return uint64_t{c.message_bytes}; }},
     {"delay, one way", Unit::kTime, [](const Cell& c) { return c.delay_ns; }},
     {"rate", Unit::kRate, [](const Cell& c) { return c.rate_bits_per_second; }},
     {"window, packets", Unit::kNumber, [](const Cell& c) { return uint64_t{c.window}; }},
     {"QPs", Unit::kNumber, [](const Cell& c) { return uint64_t{c.qps}; }},
     {"MTU, bytes", Unit::kNumber, [](const Cell& c) { return uint64_t{c.mtu_bytes}; }}}};
constexpr Dimension kDepthDimension{"messages outstanding", Unit::kNumber,
                                    [](const Cell& c) { return uint64_t{c.depth}; }};

bool differ(const std::vector<Cell>& cells, const Dimension& dimension) {
  return std::ranges::any_of(cells, [&](const Cell& cell) {
    return dimension.value(cell) != dimension.value(cells.front());
  });
}

}  // namespace

Expected<std::vector<Cell>, std::string> cells_of(const SweepOptions& options) {
  auto sweep = sweep_of(options);
  if (!sweep) return Unexpected(sweep.error());
  const Values as_needed = {0};
  const Loop loops[] = {
      {sweep->messages_bytes,
       [](Cell& c, uint64_t v) { c.message_bytes = static_cast<uint32_t>(v); }},
      {sweep->mtus, [](Cell& c, uint64_t v) { c.mtu_bytes = static_cast<uint32_t>(v); }},
      {sweep->rates, [](Cell& c, uint64_t v) { c.rate_bits_per_second = v; }},
      {sweep->delays, [](Cell& c, uint64_t v) { c.delay_ns = v; }},
      {sweep->windows, [](Cell& c, uint64_t v) { c.window = static_cast<uint32_t>(v); }},
      {sweep->qps, [](Cell& c, uint64_t v) { c.qps = static_cast<uint32_t>(v); }},
      {sweep->depths.empty() ? as_needed : sweep->depths,
       [](Cell& c, uint64_t v) { c.depth = static_cast<uint32_t>(v); }},
      {sweep->reorders, [](Cell& c, uint64_t v) { c.reorder_ppm = static_cast<uint32_t>(v); }},
      {sweep->distances,
       [](Cell& c, uint64_t v) { c.reorder_distance = static_cast<uint32_t>(v); }},
      {sweep->losses, [](Cell& c, uint64_t v) { c.loss_ppm = static_cast<uint32_t>(v); }}};
  size_t count = sweep->recoveries.size();
  for (const Loop& loop : loops) {
    count *= loop.values.size();
    if (count > kMostCells)
      return Unexpected(fmt::format("that is more than {} cells", kMostCells));
  }
  std::vector<Cell> cells;
  for (const Recovery& recovery : sweep->recoveries) {
    Cell cell = sweep->common;
    cell.policy = recovery.policy;
    cell.roce = recovery.roce;
    if (auto added = add_all(*sweep, loops, cell, cells); !added) return Unexpected(added.error());
  }
  return cells;
}

std::vector<const Dimension*> dimensions_of(const std::vector<Cell>& cells) {
  std::vector<const Dimension*> found;
  for (const Dimension& dimension : kDimensions)
    if (differ(cells, dimension)) found.push_back(&dimension);
  // Where the depth follows from the message, it is none of its own.
  const bool follows =
      std::ranges::all_of(cells, [](const Cell& cell) { return cell.depth == usual_depth(cell); });
  if (!follows && differ(cells, kDepthDimension)) found.push_back(&kDepthDimension);
  return found;
}

}  // namespace hostnic::study
