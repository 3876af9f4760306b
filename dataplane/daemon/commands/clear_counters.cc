#include <errno.h>

#include "dataplane/daemon/commands/commands.h"
#include "dataplane/daemon/commands/nic_argument.h"

namespace hostnic {
namespace {

CommandResult clear_counters(Daemon& daemon, std::span<const std::string_view> args) {
  auto units = nics_named(daemon, args, kClearCounters);
  if (!units) return {EINVAL, units.error()};
  // On the lcore, which alone writes them.
  for (NicUnit* unit : *units) unit->lcore->run_on([&] { unit->nic->clear_counters(); });
  return {};
}

}  // namespace

const PromptCommand kClearCounters = {"clear counters", "[hnicK]", "set counters to 0",
                                      clear_counters};

}  // namespace hostnic
