// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/control/commands/commands.h"
#include "dataplane/daemon/daemon.h"
#include "dataplane/daemon/rdma_cm/cm_agent.h"

namespace hostnic {
namespace {

CommandResult show_cm(Daemon& daemon, const Asker& asker, std::span<const std::string_view> args) {
  if (!args.empty()) return usage_error(kShowCm);
  std::string text;
  if (daemon.cm() != nullptr)
    for (const std::string& line : daemon.cm()->describe(asker)) text += line + '\n';
  return {0, text.empty() ? "no rdma_cm ids\n" : text};
}

}  // namespace

const PromptCommand kShowCm = {"show cm", "", "rdma_cm ids of programs: addresses, ports, state",
                               show_cm};

}  // namespace hostnic
