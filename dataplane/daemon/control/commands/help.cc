// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/control/commands/commands.h"
#include "protocol/hostif/command_list.h"

namespace hostnic {
namespace {

CommandResult help(Daemon&, const Asker&, std::span<const std::string_view>) {
  return {0, commands_help()};
}

}  // namespace

const PromptCommand kHelp = {command_info("help"), help};

}  // namespace hostnic
