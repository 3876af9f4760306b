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

const PromptCommand kStart = {"start", "", "let the NICs handle packets again", start,
                              /*is_owners=*/true};
const PromptCommand kStop = {"stop", "", "stop the NICs: packets and work wait until `start`", stop,
                             /*is_owners=*/true};

}  // namespace hostnic
