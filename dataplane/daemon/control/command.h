// SPDX-License-Identifier: BSD-3-Clause
// A command of hostnicd: as typed at the prompt, read from a --commands file, or sent by
// `hostnic ctl`. Each is one file in this folder that defines one PromptCommand, and one line in
// registry.cc.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "protocol/hostif/command_list.h"

namespace hostnic {

class Daemon;

// An asker is who gives a command.
struct Asker {
  uint32_t uid = 0;
  bool is_owner = true;     // the user who runs hostnicd, or root
  bool is_one_user = true;  // its uid is no other user's (names_one_user)
  // Whether it may see what belongs to this user.
  bool sees(uint32_t other_uid) const { return is_owner || (is_one_user && uid == other_uid); }
};

struct CommandResult {
  int error = 0;      // errno value
  std::string text;   // what to show, lines ending in '\n'; on error one line without it
  bool more = false;  // hosts are being asked: a little later the same command knows more
};

struct PromptCommand : CommandInfo {
  // Runs the command; `args` are the words behind the name. Called by the control thread.
  CommandResult (*run)(Daemon& daemon, const Asker& asker, std::span<const std::string_view> args);
  // Does the same with the answer as JSON, for `--json`; null: it has none.
  CommandResult (*run_json)(Daemon& daemon, const Asker& asker,
                            std::span<const std::string_view> args) = nullptr;
};

std::span<const PromptCommand* const> all_commands();

// A line that has been taken apart. `command` is null for an empty line or a comment (#).
struct ParsedLine {
  const PromptCommand* command = nullptr;
  std::vector<std::string_view> args;  // point into the line
  bool wants_json = false;             // it says --json, which is none of `args`
  std::string error;                   // no such command: one line with the remedy
};
// Parses a line; the command whose words are the longest match is taken. This has no side effects.
ParsedLine parse_command_line(std::string_view line);

// Parses a line and runs the command, if the asker may give it.
CommandResult run_command(Daemon& daemon, const Asker& asker, std::string_view line);

// The error that says how to use a command: "error: usage: show nic [hnicK]"
CommandResult usage_error(const PromptCommand& command);

}  // namespace hostnic
