// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/simulation/study/output.h"

#include <fmt/format.h>

#include <algorithm>

#include "dataplane/simulation/study/recovery_cells.h"
#include "dataplane/simulation/study/sweep.h"

namespace hostnic::study {
namespace {

constexpr const char* kHeader =
    "study,policy,op,topology,rate_bps,delay_ns,mtu_bytes,qps,window_packets,message_bytes,"
    "depth_messages,loss_ppm,reorder_ppm,reorder_distance_packets,impair,seed,messages,"
    "completed_messages,result,p50_ns,p99_ns,payload_bytes,duration_ns,goodput_bps,sent_packets,"
    "resent_packets,lost_packets,duplicate_packets,acks,timeouts,probes\n";

const char* op_name(const Cell& cell) {
  switch (cell.op) {
    case SendOp::kRead:
      return "read";
    case SendOp::kSend:
      return "send";
    default:
      return "write";
  }
}

std::string impairments_of(const Cell& cell) {
  std::string text;
  for (const bool sent : {false, true}) {
    for (const impair::Rule& rule : (sent ? cell.impair_tx : cell.impair_rx).rules)
      text += fmt::format("{}{} {}", text.empty() ? "" : "; ", sent ? "tx" : "rx",
                          impair::to_string(rule));
  }
  return text;
}

std::string quoted(const std::string& text) {
  return text.find(',') == std::string::npos ? text : "\"" + text + "\"";
}

std::string csv_line(const Cell& c, const Result& r) {
  return fmt::format(
      "{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{:.0f},{},{},{},{},{},{"
      "},"
      "{}\n",
      c.study, recovery_name(c), op_name(c), c.topology == Topology::kPair ? "pair" : "incast",
      c.rate_bits_per_second, c.delay_ns, c.mtu_bytes, c.qps, c.window, c.message_bytes, c.depth,
      c.loss_ppm, c.reorder_ppm, c.reorder_distance, quoted(impairments_of(c)), c.seed,
      uint64_t{c.messages} * c.qps, r.completed, name_of(r.outcome), r.p50_ns, r.p99_ns,
      r.payload_bytes, r.duration_ns, goodput_bits_per_second(r), r.sent_packets, r.resent_packets,
      r.lost_packets, r.duplicate_packets, r.acks, r.timeouts, r.probes);
}

std::string percent_of(uint64_t part, uint64_t whole) {
  return whole == 0 ? "-"
                    : fmt::format("{:.2f}%",
                                  100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

std::string microseconds(const Result& result, uint64_t time_ns, uint64_t least) {
  return result.completed < least ? "-" : fmt::format("{:.1f}", static_cast<double>(time_ns) / 1e3);
}

const char* remark_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::kBudget:
      return "stopped: too many packets";
    case Outcome::kFailed:
      return "a request failed: retries exceeded";
    default:
      return "";
  }
}

std::vector<std::string> row_of(const Cell& cell, const Result& r,
                                const std::vector<const Dimension*>& dimensions) {
  std::vector<std::string> row = {recovery_name(cell)};
  if (!cell.study.empty()) row.insert(row.begin(), cell.study);
  for (const Dimension* each : dimensions) row.push_back(text_of(each->unit, each->value(cell)));
  row.insert(row.end(),
             {fmt::format("{:.2f}", goodput_bits_per_second(r) / 1e9), microseconds(r, r.p50_ns, 1),
              microseconds(r, r.p99_ns, kLeastForP99), percent_of(r.lost_packets, r.sent_packets),
              percent_of(r.resent_packets, r.sent_packets), fmt::format("{}", r.timeouts),
              remark_of(r.outcome)});
  return row;
}

// Numbers stand at the right of their columns, words at the left.
std::string aligned(const std::vector<std::vector<std::string>>& rows, size_t words) {
  std::vector<size_t> widths(rows.front().size());
  for (const auto& row : rows)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const bool left = i < words || i + 1 == row.size();
      line += left ? fmt::format("{:<{}}  ", row[i], widths[i])
                   : fmt::format("{:>{}}  ", row[i], widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace

double goodput_bits_per_second(const Result& result) {
  if (result.duration_ns == 0) return 0;
  return static_cast<double>(result.payload_bytes) * 8e9 / static_cast<double>(result.duration_ns);
}

std::string csv_of(const std::vector<Cell>& cells, const std::vector<Result>& results) {
  std::string text = kHeader;
  for (size_t i = 0; i < cells.size(); ++i) text += csv_line(cells[i], results[i]);
  return text;
}

std::string common_of(const std::vector<Cell>& cells) {
  const auto dimensions = dimensions_of(cells);
  const auto same = [&](auto member) {
    return std::ranges::all_of(
        cells, [&](const Cell& cell) { return cell.*member == cells.front().*member; });
  };
  const Cell& cell = cells.front();
  std::string text = same(&Cell::op) ? fmt::format("{}s", op_name(cell)) : "writes and reads";
  const auto add = [&](const std::string& part) { text += ", " + part; };
  if (same(&Cell::message_bytes)) text += " of " + text_of(Unit::kBytes, cell.message_bytes);
  if (same(&Cell::depth)) add(fmt::format("{} outstanding", cell.depth));
  if (same(&Cell::qps)) add(fmt::format("{} QP{}", cell.qps, cell.qps == 1 ? "" : "s"));
  if (same(&Cell::topology) && cell.topology == Topology::kIncast) add("from many hosts to one");
  if (same(&Cell::rate_bits_per_second)) add(text_of(Unit::kRate, cell.rate_bits_per_second));
  if (same(&Cell::delay_ns)) add(text_of(Unit::kTime, cell.delay_ns) + " one way");
  if (same(&Cell::mtu_bytes)) add(fmt::format("MTU {}", cell.mtu_bytes));
  if (same(&Cell::window)) add(fmt::format("window {}", cell.window));
  if (same(&Cell::loss_ppm) && cell.loss_ppm != 0)
    add("loss " + text_of(Unit::kPercent, cell.loss_ppm));
  if (const std::string impaired = impairments_of(cell); !impaired.empty()) add(impaired);
  return text;
}

std::string table_of(const std::vector<Cell>& cells, const std::vector<Result>& results) {
  const auto dimensions = dimensions_of(cells);
  std::vector<std::string> titles = {"policy"};
  if (!cells.front().study.empty()) titles.insert(titles.begin(), "study");
  const size_t words = titles.size();
  for (const Dimension* each : dimensions) titles.emplace_back(each->title);
  titles.insert(titles.end(),
                {"goodput Gb/s", "p50 us", "p99 us", "lost", "sent again", "timeouts", ""});
  std::vector<std::vector<std::string>> rows = {titles};
  for (size_t i = 0; i < cells.size(); ++i)
    rows.push_back(row_of(cells[i], results[i], dimensions));
  return common_of(cells) + "\n" + aligned(rows, words);
}

}  // namespace hostnic::study
