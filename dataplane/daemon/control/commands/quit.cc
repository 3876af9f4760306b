// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/control/commands/commands.h"
#include "dataplane/daemon/daemon.h"

namespace hostnic {
namespace {

CommandResult quit(Daemon& daemon, const Asker&, std::span<const std::string_view> args) {
  if (!args.empty()) return usage_error(kQuit);
  daemon.quit();
  return {};
}

}  // namespace

const PromptCommand kQuit = {command_info("quit"), quit};

}  // namespace hostnic
