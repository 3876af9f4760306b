// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/cli/lab_summary.h"

#include <fmt/format.h>

#include <cstdint>
#include <iterator>
#include <map>
#include <sstream>
#include <utility>
#include <vector>

namespace hostnic::cli {
namespace {

constexpr size_t kMostQps = 8;

// The sums over all NICs, by counter.
std::map<std::string, uint64_t> sums_of(std::string_view counters) {
  std::map<std::string, uint64_t> sums;
  std::istringstream lines{std::string(counters)};
  std::string nic, name;
  uint64_t value = 0;
  while (lines >> nic >> name >> value) {
    for (const std::string_view side : {"impair_rx_", "impair_tx_"})
      if (name.starts_with(side)) name = "impair_" + name.substr(side.size());
    sums[name] += value;
  }
  return sums;
}

}  // namespace

std::string lab_summary(std::string_view counters, std::string_view dead, bool impaired) {
  const std::map<std::string, uint64_t> sums = sums_of(counters);
  const auto sum = [&](const char* name) {
    const auto found = sums.find(name);
    return found == sums.end() ? uint64_t{0} : found->second;
  };
  // A lab in which nothing was sent has no summary.
  if (sum("tx_packets") == 0 && sum("nak_sent") == 0 && !impaired) return {};
  std::string line = fmt::format("hostnic lab: {} packets", sum("tx_packets"));
  const std::pair<const char*, const char*> kDone[] = {
      {"impair_dropped", "dropped"},
      {"impair_rate_dropped", "dropped by the rate"},
      {"impair_queue_dropped", "dropped by the queue"},
      {"impair_duplicated", "duplicated"},
      {"impair_reordered", "reordered"},
      {"impair_delayed", "delayed"},
      {"impair_corrupted", "corrupted"},
      {"impair_marked", "marked"}};
  uint64_t done = 0;
  std::string what;
  for (const auto& [counter, name] : kDone) {
    if (sum(counter) == 0) continue;
    done += sum(counter);
    what += fmt::format("{}{} {}", what.empty() ? "" : ", ", sum(counter), name);
  }
  if (done != 0) line += "; on purpose: " + what;
  if (impaired && done == 0) line += "; the impairment hit nothing";
  line += fmt::format("; {} sent again", sum("retransmitted_packets"));
  if (sum("rnr_nak_sent") != 0)
    line += fmt::format("; {} times no receive was posted", sum("rnr_nak_sent"));
  if (sum("nak_sent") != 0) line += fmt::format("; {} requests refused", sum("nak_sent"));
  line += '\n';
  // The queue pairs that ended badly: those in ERR that had refused a request of their peer.
  std::istringstream lines{std::string(dead)};
  size_t told = 0;
  for (std::string one; std::getline(lines, one);) {
    if (one.find("had refused") == std::string::npos || told++ >= kMostQps) continue;
    line += "hostnic lab: " + one + '\n';
  }
  if (told > kMostQps) line += fmt::format("hostnic lab: and {} more\n", told - kMostQps);
  return line;
}

}  // namespace hostnic::cli
