// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/cli/fault_report.h"

#include <fmt/format.h>

#include <algorithm>

namespace hostnic::cli {

bool FaultReport::all_fired() const {
  return std::ranges::all_of(rules,
                             [](const Rule& rule) { return rule.fired != 0 || rule.removed; });
}

std::string text_of(const FaultReport& report) {
  const auto fired =
      std::ranges::count_if(report.rules, [](const auto& rule) { return rule.fired != 0; });
  if (report.rules.empty()) return {};
  std::string text =
      fmt::format("hostnic fault: faults fired: {} of {}", fired, report.rules.size());
  uint64_t times = 0;
  for (const FaultReport::Rule& rule : report.rules) times += rule.fired;
  text += fmt::format(" ({} times in {} processes)\n", times, report.processes);
  if (report.processes == 0)
    return text + "hostnic fault: no program made a call of verbs that the rules could see\n";
  for (const FaultReport::Rule& rule : report.rules)
    if (rule.fired == 0 && !rule.removed)
      text += fmt::format("hostnic fault: never fired: {} ({})\n", rule.text,
                          rule.met == 0 ? std::string("nothing that matches has happened")
                                        : fmt::format("{} times something matched", rule.met));
  return text;
}

}  // namespace hostnic::cli
