// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/control/commands/commands.h"
#include "dataplane/daemon/daemon.h"

namespace hostnic {
namespace {

CommandResult start(Daemon& daemon, const Asker&, std::span<const std::string_view> args) {
  if (!args.empty()) return usage_error(kStart);
  daemon.set_handling(true);
  return {};
}

CommandResult stop(Daemon& daemon, const Asker&, std::span<const std::string_view> args) {
  if (!args.empty()) return usage_error(kStop);
  daemon.set_handling(false);
  return {};
}

}  // namespace

const PromptCommand kStart = {command_info("start"), start};
const PromptCommand kStop = {command_info("stop"), stop};

}  // namespace hostnic
