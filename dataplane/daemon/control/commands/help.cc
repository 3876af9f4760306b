// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include "dataplane/daemon/control/commands/commands.h"
#include "protocol/impair/spec.h"

namespace hostnic {
namespace {

CommandResult help(Daemon&, const Asker&, std::span<const std::string_view>) {
  std::string text;
  for (const PromptCommand* command : all_commands())
    text += fmt::format("{:<40} {}{}\n", fmt::format("{} {}", command->words, command->usage),
                        command->help, command->is_owners ? " (owner)" : "");
  text += "SPEC:\n";
  text += impair::spec_help();
  if (!text.ends_with('\n')) text += '\n';
  return {0, text};
}

}  // namespace

const PromptCommand kHelp = {"help", "", "this list", help};

}  // namespace hostnic
