// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/cli/fault.h"

#include <errno.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <fstream>

#include "dataplane/cli/fault_prompt.h"
#include "dataplane/cli/fault_report.h"
#include "dataplane/cli/locate.h"
#include "dataplane/cli/preload_obstacle.h"
#include "dataplane/cli/process.h"
#include "dataplane/cli/shared_board.h"
#include "protocol/expected.h"
#include "protocol/hostif/fault_board.h"

namespace hostnic::cli {
namespace {

using faults::FaultRule;

Expected<void, std::string> add_rules(std::string_view text, std::vector<FaultRule>& rules) {
  auto parsed = faults::parse_faults(text);
  if (!parsed) return Unexpected(fmt::format("\"{}\": {}", text, parsed.error().message()));
  rules.insert(rules.end(), parsed->begin(), parsed->end());
  return {};
}

Expected<void, std::string> add_file(const std::string& path, std::vector<FaultRule>& rules) {
  std::ifstream file(path);
  if (!file) return Unexpected(fmt::format("{}: {}", path, strerror(errno)));
  size_t number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    line.erase(std::min(line.find(" #"), line.size()));
    if (line.starts_with('#')) continue;
    if (auto added = add_rules(line, rules); !added)
      return Unexpected(fmt::format("{}:{}: {}", path, number, added.error()));
  }
  return {};
}

// All rules, one after the other: what an earlier one takes counts for those of other options, too.
Expected<std::vector<FaultRule>, std::string> read_rules(const FaultOptions& options) {
  std::vector<FaultRule> rules;
  if (!options.file.empty())
    if (auto added = add_file(options.file, rules); !added) return Unexpected(added.error());
  for (const std::string& text : options.rules)
    if (auto added = add_rules(text, rules); !added) return Unexpected(added.error());
  const bool for_later = std::ranges::find(options.rules, "none") != options.rules.end();
  if (rules.empty() && !options.by_program && !for_later)
    return Unexpected(std::string("no rule (--rule 'fault create_cq nth 3 errno ENOMEM')"));
  std::string all;
  for (FaultRule& rule : rules) {
    const bool has_device =
        rule.subject != faults::Subject::kCall || (rule.call->properties & faults::kHasDevice) != 0;
    if (rule.device.empty() && has_device && rule.subject != faults::Subject::kCmEvent)
      rule.device = options.device;
    all += to_string(rule) + ";";
  }
  auto parsed = faults::parse_faults(all);
  if (!parsed) return Unexpected(parsed.error().message());
  return *parsed;
}

void write_rules(FaultBoard& board, const std::vector<FaultRule>& rules, uint64_t seed) {
  board.seed = seed;
  board.rules = static_cast<uint32_t>(rules.size());
  for (size_t i = 0; i < rules.size(); ++i) {
    const std::string text = to_string(rules[i]);
    memcpy(board.rule[i].text, text.data(), std::min(text.size(), faults::kMaxFaultBytes));
  }
}

void no_other_child(pid_t, int) {}

}  // namespace

void take_fault_variable(FaultOptions& options) {
  const char* rules = getenv(kFaultVariable);
  if (rules == nullptr || *rules == '\0') return;
  options.rules.emplace_back(rules);
  unsetenv(kFaultVariable);
}

std::vector<std::string> with_faults(const FaultOptions& options,
                                     const std::vector<std::string>& command) {
  std::vector<std::string> words = {own_directory() + "/hostnic", "fault", "--seed", options.seed};
  for (const std::string& rule : options.rules) words.insert(words.end(), {"--rule", rule});
  if (!options.file.empty()) words.insert(words.end(), {"--rules", options.file});
  words.emplace_back("--");
  words.insert(words.end(), command.begin(), command.end());
  return words;
}

int run_fault(const FaultOptions& options, const std::vector<std::string>& command) {
  const auto bad = [](const std::string& line) {
    fail("fault", line);
    return 2;
  };
  auto rules = read_rules(options);
  if (!rules) return bad(rules.error());
  char* end = nullptr;
  const uint64_t seed = strtoull(options.seed.c_str(), &end, 0);
  if (options.seed.empty() || *end != '\0')
    return bad(fmt::format("--seed {}: a number", options.seed));
  auto library = find_calls_library();
  if (!library) return fail("fault", library.error());
  SharedBoard<FaultBoard> board;
  if (auto made = board.make("fault", false); !made) return fail("fault", made.error());
  write_rules(*board, *rules, seed);
  block_signals();
  warn_if_not_preloaded("fault", command);
  ChildOptions child;
  child.environment = {{"LD_PRELOAD", preload_in_front(getenv("LD_PRELOAD"), *library)},
                       {"ASAN_OPTIONS", asan_options_value(getenv("ASAN_OPTIONS"))},
                       {kFaultBoardVariable, board.path()}};
  const pid_t pid = start_child(command, child);
  if (pid < 0) return fail("fault", fmt::format("fork: {}", strerror(errno)));
  const int code = exit_code_of(wait_and_forward(pid, no_other_child));
  const FaultReport report = report_of(*board);
  fputs(text_of(report).c_str(), stderr);
  return code == 0 && !report.all_fired() ? kNeverFired : code;
}

}  // namespace hostnic::cli
