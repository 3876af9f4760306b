// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/cli/trace_lines.h"

#include <fmt/format.h>
#include <string.h>
#include <time.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "protocol/duration_text.h"

namespace hostnic::cli {
namespace {

std::string printable(std::string_view text) {
  std::string result(text);
  for (char& each : result)
    if (static_cast<unsigned char>(each) < ' ' || each == 0x7f) each = '?';
  return result;
}

}  // namespace

TracedCall copy_of(const TraceRecord& record) {
  TracedCall call;
  call.start_ns = record.start_ns;
  call.duration_ns = record.duration_ns;
  call.count = record.count;
  call.pid = record.pid;
  call.tid = record.tid;
  call.depth = std::min<uint16_t>(record.depth, 8);
  call.outcome = record.outcome;
  call.name = printable({record.name, strnlen(record.name, sizeof(record.name))});
  call.text = printable({record.text, std::min<size_t>(record.text_bytes, sizeof(record.text))});
  return call;
}

TracedCall copy_of(const TracePolls& polls, int32_t pid, int32_t tid, uint64_t real_minus_steady) {
  TracedCall call;
  call.start_ns = polls.start_ns + real_minus_steady;
  call.duration_ns = polls.duration_ns;
  call.count = polls.count.load();
  call.pid = pid;
  call.tid = tid;
  call.name = polls.extended != 0 ? "ibv_start_poll" : "ibv_poll_cq";
  call.text = polls.extended != 0 ? fmt::format("(cq 0x{:x}) = ENOENT", polls.queue)
                                  : fmt::format("(cq 0x{:x}, {}) = 0", polls.queue, polls.entries);
  return call;
}

std::string trace_line(const TracedCall& call) {
  const auto seconds = static_cast<time_t>(call.start_ns / 1'000'000'000);
  tm local{};
  localtime_r(&seconds, &local);
  std::string line = fmt::format("{:02}:{:02}:{:02}.{:06} [{}", local.tm_hour, local.tm_min,
                                 local.tm_sec, call.start_ns % 1'000'000'000 / 1000, call.pid);
  if (call.tid != call.pid) line += fmt::format("/{}", call.tid);
  line += fmt::format("] {:{}}{}{}", "", 2 * call.depth, call.name, call.text);
  if (call.outcome == TraceOutcome::kUnfinished)
    return line + fmt::format(" <unfinished, {}>\n", duration_text(call.duration_ns));
  if (call.count > 1) line += fmt::format(" x {}", call.count);
  return line + fmt::format(" <{}>\n", duration_text(call.duration_ns));
}

void TraceSummary::add(const TracedCall& call) {
  Row& row = rows_[call.name];
  row.calls += std::max<uint64_t>(call.count, 1);
  row.duration_ns += call.duration_ns;
  if (call.outcome == TraceOutcome::kFailure) row.errors += 1;
}

std::string TraceSummary::text() const {
  std::vector<std::pair<std::string, Row>> rows(rows_.begin(), rows_.end());
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) {
    return a.second.duration_ns > b.second.duration_ns;
  });
  std::string text = fmt::format("{:>12} {:>12} {:>10} {:>8}  {}\n", "time", "per call", "calls",
                                 "errors", "call");
  Row all;
  for (const auto& [name, row] : rows) {
    text += fmt::format("{:>12} {:>12} {:>10} {:>8}  {}\n", duration_text(row.duration_ns),
                        duration_text(row.duration_ns / row.calls), row.calls,
                        row.errors == 0 ? std::string() : fmt::format("{}", row.errors), name);
    all.calls += row.calls;
    all.errors += row.errors;
    all.duration_ns += row.duration_ns;
  }
  return text + fmt::format("{:>12} {:>12} {:>10} {:>8}  all\n", duration_text(all.duration_ns),
                            all.calls == 0 ? "" : duration_text(all.duration_ns / all.calls),
                            all.calls, all.errors == 0 ? "" : fmt::format("{}", all.errors));
}

}  // namespace hostnic::cli
