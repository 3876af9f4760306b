// SPDX-License-Identifier: BSD-3-Clause
#include "protocol/hostif/command_list.h"

#include "protocol/impair/spec.h"

namespace hostnic {
namespace {

constexpr size_t kWidth = 40;

}  // namespace

std::string commands_help(std::span<const CommandInfo> commands) {
  std::string text;
  for (const CommandInfo& command : commands) {
    std::string line = std::string(command.words) + " " + command.usage;
    if (line.size() < kWidth) line.resize(kWidth, ' ');
    text += line + " " + command.help + (command.is_owners ? " (owner)" : "") + "\n";
  }
  return text;
}

std::string commands_help() {
  std::string text = commands_help(kCommandInfos) + "SPEC:\n";
  text += impair::spec_help();
  if (!text.ends_with('\n')) text += '\n';
  return text;
}

}  // namespace hostnic
