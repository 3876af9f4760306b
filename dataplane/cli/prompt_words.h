// SPDX-License-Identifier: BSD-3-Clause
// What the prompt of `hostnic ctl` knows without a terminal: its own commands, how words are
// completed, what a line asks for, and counters as rates. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "protocol/expected.h"
#include "protocol/hostif/command_list.h"

namespace hostnic::cli {

// Commands that the prompt has beside hostnicd's.
std::span<const CommandInfo> prompt_commands();
// All that can be typed at the prompt.
std::string prompt_help();

// The words that may stand where `line` ends: those that begin with what is typed of the last word,
// sorted. `nics` are the names of NICs.
std::vector<std::string> completions(std::string_view line, const std::vector<std::string>& nics);

// A line as the prompt has it.
struct PromptLine {
  enum class Kind : uint8_t {
    kNothing,  // empty, or a comment
    kCommand,  // of hostnicd
    kHelp,
    kRates,  // of NICs `text`, or all
    kFault,  // rules of faults: `text` is what stands behind the word
    kExit,
  };
  Kind kind = Kind::kNothing;
  std::string text;  // the command, for hostnicd
  // Again and again, so far apart; 0: once.
  uint32_t watch_ms = 0;
};
// An error is one line.
Expected<PromptLine, std::string> parse_prompt_line(std::string_view line);

// Whether a command of `hostnic ctl` needs the prompt, which answers it: help, watch, rates.
bool is_answered_here(std::string_view line);

// Counters by NIC and name, of what `show counters` shows.
using CounterValues = std::map<std::string, uint64_t>;
CounterValues counters_in(std::string_view text);
// What has been counted between the two, a second: lines, the name at the left. Counters that stood
// still are left out.
std::string rates_text(const CounterValues& before, const CounterValues& now, uint64_t elapsed_ns);

}  // namespace hostnic::cli
