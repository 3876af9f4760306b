// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/cli/top_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace hostnic::cli {
namespace {

constexpr double kNsPerSecond = 1e9;

// Takes `name="value"` and what is behind it; false: there is none.
bool take_label(std::string_view& text, std::map<std::string, std::string>& labels) {
  const size_t equals = text.find("=\"");
  if (equals == std::string_view::npos) return false;
  const std::string name(text.substr(0, equals));
  std::string value;
  size_t at = equals + 2;
  for (; at < text.size() && text[at] != '"'; ++at) {
    if (text[at] == '\\' && at + 1 < text.size()) {
      ++at;
      value += text[at] == 'n' ? ' ' : text[at];
    } else {
      value += text[at];
    }
  }
  if (at >= text.size()) return false;
  labels[name] = value;
  text.remove_prefix(at + 1);
  if (text.starts_with(',')) text.remove_prefix(1);
  return true;
}

// Numbers that people compare: three digits and a unit.
std::string scaled(double value, const char* unit) {
  static constexpr const char* kPrefixes[] = {"", "k", "M", "G", "T"};
  size_t prefix = 0;
  while (value >= 999.5 && prefix + 1 < std::size(kPrefixes)) {
    value /= 1000;
    ++prefix;
  }
  const int digits = prefix == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f} {}{}", value, digits, kPrefixes[prefix], unit);
}

std::string time_text(double seconds) {
  if (seconds <= 0) return "-";
  if (seconds < 1e-3) return fmt::format("{:.0f} us", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.1f} ms", seconds * 1e3);
  return fmt::format("{:.1f} s", seconds);
}

size_t columns_of(std::string_view text) {
  return static_cast<size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<uint8_t>(c) & 0xc0) != 0x80; }));
}

// Cuts a text after so many columns.
std::string cut(std::string text, size_t columns) {
  if (columns_of(text) <= columns) return text;
  size_t at = 0;
  for (size_t seen = 0; at < text.size(); ++at) {
    const bool begins = (static_cast<uint8_t>(text[at]) & 0xc0) != 0x80;
    if (begins && seen++ == columns) break;
  }
  text.resize(at);
  return text;
}

}  // namespace

std::vector<MetricSample> parse_metrics(std::string_view text) {
  std::vector<MetricSample> samples;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty() || line[0] == '#') continue;
    MetricSample sample;
    const size_t name_end = line.find_first_of("{ ");
    if (name_end == std::string_view::npos) continue;
    sample.name = line.substr(0, name_end);
    line.remove_prefix(name_end);
    if (line[0] == '{') {
      line.remove_prefix(1);
      while (!line.starts_with('}') && take_label(line, sample.labels)) {
      }
      if (!line.starts_with('}')) continue;
      line.remove_prefix(1);
    }
    if (!line.starts_with(' ')) continue;
    line.remove_prefix(1);
    const auto [rest, error] =
        std::from_chars(line.data(), line.data() + line.size(), sample.value);
    if (error != std::errc() || rest == line.data()) continue;
    samples.push_back(std::move(sample));
  }
  return samples;
}

const char* name_of(TopSort sort) {
  static constexpr const char* kNames[kTopSorts] = {"bytes", "repeated", "round trip",
                                                    "outstanding", "program"};
  return kNames[static_cast<size_t>(sort)];
}

TopModel::Snapshot TopModel::read(std::string_view metrics, TimeNs now_ns) {
  Snapshot snapshot;
  snapshot.at_ns = now_ns;
  for (MetricSample& sample : parse_metrics(metrics)) {
    const std::string& name = sample.name;
    auto& labels = sample.labels;
    if (name == "hostnic_qps_left_out") snapshot.left_out = sample.value;
    if (!labels.contains("device")) continue;
    const std::string& device = labels["device"];
    if (name.starts_with("hostnic_qp_") && labels.contains("qp")) {
      Qp& qp = snapshot.qps[device + " " + labels["qp"]];
      qp.device = device;
      qp.number = labels["qp"];
      if (name == "hostnic_qp_info") {
        qp.program = labels["program"];
        qp.pid = labels["pid"];
        qp.type = labels["type"];
        qp.state = labels["state"];
        qp.peer = labels["peer"];
      }
      if (name == "hostnic_qp_request_bytes_total") qp.bytes = sample.value;
      if (name == "hostnic_qp_retransmitted_packets_total") qp.repeated = sample.value;
      if (name == "hostnic_qp_outstanding_packets") qp.outstanding = sample.value;
      if (name == "hostnic_qp_round_trip_seconds") qp.round_trip_s = sample.value;
      if (name == "hostnic_qp_silent_seconds") qp.silent_s = sample.value;
      continue;
    }
    Nic& nic = snapshot.nics[device];
    if (name == "node_infiniband_port_data_transmitted_bytes_total") nic.sent_bytes = sample.value;
    if (name == "node_infiniband_port_data_received_bytes_total") nic.received_bytes = sample.value;
    if (name == "node_infiniband_port_packets_transmitted_total") nic.sent_packets = sample.value;
    if (name == "node_infiniband_port_packets_received_total") nic.received_packets = sample.value;
    if (name == "node_infiniband_state_id") nic.up = sample.value == 4;
    if (name == "hostnic_retransmitted_packets_total") nic.repeated = sample.value;
    if (name == "hostnic_dropped_total") nic.lost += sample.value;
    if (name == "hostnic_impaired_total" && labels["action"].ends_with("dropped"))
      nic.lost += sample.value;
  }
  return snapshot;
}

void TopModel::update(std::string_view metrics, TimeNs now_ns) {
  Snapshot next = read(metrics, now_ns);
  has_rates_ = now_.at_ns != 0 && now_ns > now_.at_ns;
  before_ = std::move(now_);
  now_ = std::move(next);
  if (!has_rates_) return;
  for (const auto& [device, nic] : now_.nics) {
    const auto was = before_.nics.find(device);
    if (was == before_.nics.end()) continue;
    const double bytes = std::max(0.0, nic.sent_bytes - was->second.sent_bytes) +
                         std::max(0.0, nic.received_bytes - was->second.received_bytes);
    auto& history = history_[device];
    history.push_back(bytes / seconds());
    if (history.size() > kHistory) history.pop_front();
  }
}

double TopModel::seconds() const {
  return static_cast<double>(now_.at_ns - before_.at_ns) / kNsPerSecond;
}

// The last minute, the newest second at the right, against its highest.
std::string TopModel::history_text(const std::string& device, bool ascii) const {
  static constexpr const char* kBlocks[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  static constexpr const char* kLetters[] = {" ", ".", ".", ":", "-", "=", "+", "*", "#"};
  const auto found = history_.find(device);
  if (found == history_.end()) return {};
  const double most = *std::ranges::max_element(found->second);
  std::string text;
  for (const double value : found->second) {
    // Whatever was sent shows.
    const auto level =
        value <= 0 || most <= 0 ? 0 : std::clamp<long>(std::lround(value / most * 8), 1, 8);
    text += ascii ? kLetters[level] : kBlocks[level];
  }
  return text;
}

struct TopModel::Row {
  const Qp* qp = nullptr;
  double bytes_s = 0, repeated_s = 0;
  std::string text;
};

std::vector<TopModel::Row> TopModel::rows(const TopView& view) const {
  std::vector<Row> rows;
  for (const auto& [key, qp] : now_.qps) {
    Row row{.qp = &qp};
    const auto was = before_.qps.find(key);
    if (has_rates_ && was != before_.qps.end()) {
      row.bytes_s = std::max(0.0, qp.bytes - was->second.bytes) / seconds();
      row.repeated_s = std::max(0.0, qp.repeated - was->second.repeated) / seconds();
    }
    row.text = fmt::format("{:<7} {:<9} {:<7} {:<5} {:>11} {:>9} {:>6} {:>8} {:>8}  {} ({}) to {}",
                           qp.device, qp.number, qp.type, qp.state, scaled(row.bytes_s * 8, "b/s"),
                           scaled(row.repeated_s, "/s"), fmt::format("{:.0f}", qp.outstanding),
                           time_text(qp.round_trip_s),
                           qp.silent_s < 0 ? "never" : time_text(std::max(qp.silent_s, 1e-6)),
                           qp.program, qp.pid, qp.peer);
    if (view.filter.empty() || row.text.find(view.filter) != std::string::npos)
      rows.push_back(std::move(row));
  }
  std::ranges::stable_sort(rows, [&](const Row& a, const Row& b) {
    switch (view.sort) {
      case TopSort::kBytes:
        return a.bytes_s > b.bytes_s;
      case TopSort::kRepeated:
        return a.repeated_s > b.repeated_s;
      case TopSort::kRoundTrip:
        return a.qp->round_trip_s > b.qp->round_trip_s;
      case TopSort::kOutstanding:
        return a.qp->outstanding > b.qp->outstanding;
      case TopSort::kProgram:
        return a.qp->program < b.qp->program;
    }
    return false;
  });
  return rows;
}

std::vector<TopLine> TopModel::lines(const TopView& view) const {
  using Style = TopLine::Style;
  std::vector<TopLine> lines;
  const auto add = [&](std::string text, Style style = Style::kPlain) {
    lines.push_back({cut(std::move(text), view.width), style});
  };
  add(fmt::format("{:<7} {:<5} {:>11} {:>11} {:>10} {:>10} {:>9} {:>9}  last minute", "NIC", "link",
                  "sent", "received", "packets", "received", "lost", "repeated"),
      Style::kHead);
  for (const auto& [device, nic] : now_.nics) {
    const auto was = before_.nics.find(device);
    const auto rate = [&, &nic = nic](double Nic::*what) {
      if (!has_rates_ || was == before_.nics.end()) return 0.0;
      return std::max(0.0, nic.*what - was->second.*what) / seconds();
    };
    const double lost = rate(&Nic::lost);
    add(fmt::format("{:<7} {:<5} {:>11} {:>11} {:>10} {:>10} {:>9} {:>9}  {}", device,
                    nic.up ? "up" : "down", scaled(rate(&Nic::sent_bytes) * 8, "b/s"),
                    scaled(rate(&Nic::received_bytes) * 8, "b/s"),
                    scaled(rate(&Nic::sent_packets), "/s"),
                    scaled(rate(&Nic::received_packets), "/s"), scaled(lost, "/s"),
                    scaled(rate(&Nic::repeated), "/s"), history_text(device, view.ascii)),
        lost > 0 || !nic.up ? Style::kBad : Style::kPlain);
  }
  add("");
  const std::vector<Row> rows = this->rows(view);
  add(fmt::format("{:<7} {:<9} {:<7} {:<5} {:>11} {:>9} {:>6} {:>8} {:>8}  program", "NIC", "QP",
                  "type", "state", "requests", "repeated", "out", "rtt", "heard"),
      Style::kHead);
  // The last line is for the keys.
  const size_t room = view.height == 0                 ? rows.size()
                      : view.height > lines.size() + 2 ? view.height - lines.size() - 2
                                                       : 0;
  for (size_t i = 0; i < std::min(room, rows.size()); ++i)
    add(rows[i].text, rows[i].repeated_s > 0 ? Style::kBad : Style::kPlain);
  const double hidden =
      static_cast<double>(rows.size() - std::min(room, rows.size())) + now_.left_out;
  std::string last = rows.empty() ? view.filter.empty() ? "no queue pairs" : "no such queue pair"
                     : hidden > 0 ? fmt::format("{:.0f} more", hidden)
                                  : fmt::format("{} queue pairs", rows.size());
  last += fmt::format(", by {}", name_of(view.sort));
  if (view.filtering || !view.filter.empty())
    last += fmt::format(", with \"{}{}\"", view.filter, view.filtering ? "_" : "");
  if (view.paused) last += ", paused";
  add(last, Style::kFaint);
  return lines;
}

}  // namespace hostnic::cli
