// SPDX-License-Identifier: BSD-3-Clause
#include <errno.h>

#include "dataplane/daemon/control/commands/commands.h"
#include "dataplane/daemon/control/commands/nic_argument.h"

namespace hostnic {
namespace {

CommandResult clear_counters(Daemon& daemon, const Asker&, std::span<const std::string_view> args) {
  auto instances = nics_named(daemon, args, kClearCounters);
  if (!instances) return {EINVAL, instances.error()};
  // This runs on the lcore, which alone writes the counters.
  for (NicInstance* instance : *instances)
    instance->lcore->run_on([&] {
      instance->nic->clear_counters();
      instance->lcore->clear_longest_turn();
    });
  return {};
}

}  // namespace

const PromptCommand kClearCounters = {command_info("clear counters"), clear_counters};

}  // namespace hostnic
