// SPDX-License-Identifier: BSD-3-Clause
// A command of hostnicd: as typed at the prompt, read from a --commands file, or sent by
// `hostnic ctl`. Each is one file in this folder that defines one PromptCommand, and one line in
// registry.cc.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hostnic {

class Daemon;

struct CommandResult {
  int error = 0;     // errno value
  std::string text;  // what to show, lines ending in '\n'; on error one line without it
};

struct PromptCommand {
  const char* words;  // that name it: "show nic"
  const char* usage;  // what may follow: "[hnicK]"
  const char* help;   // one line
  // `args`: the words behind the name. Control thread.
  CommandResult (*run)(Daemon& daemon, std::span<const std::string_view> args);
};

std::span<const PromptCommand* const> all_commands();

// A line, taken apart. `command` is null for an empty line or a comment (#).
struct ParsedLine {
  const PromptCommand* command = nullptr;
  std::vector<std::string_view> args;  // point into the line
  std::string error;                   // no such command: one line with the remedy
};
// The command whose words are the longest match. Pure.
ParsedLine parse_command_line(std::string_view line);

// Parses and runs.
CommandResult run_command(Daemon& daemon, std::string_view line);

// "error: usage: show nic [hnicK]"
CommandResult usage_error(const PromptCommand& command);

}  // namespace hostnic
