// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/control/commands/nic_argument.h"

#include <fmt/format.h>

namespace hostnic {

Expected<NicInstance*, std::string> nic_named(Daemon& daemon, std::string_view name) {
  if (NicInstance* instance = daemon.find_nic(name)) return instance;
  std::string names;
  for (const NicInstance& instance : daemon.nics())
    names += (names.empty() ? "" : ", ") + instance.plan.settings.name;
  return Unexpected(fmt::format("no NIC \"{}\" (there are: {})", name, names));
}

Expected<std::vector<NicInstance*>, std::string> nics_named(Daemon& daemon,
                                                            std::span<const std::string_view> args,
                                                            const PromptCommand& command) {
  std::vector<NicInstance*> instances;
  if (args.size() > 1) return Unexpected(usage_error(command).text);
  if (args.empty()) {
    for (NicInstance& instance : daemon.nics()) instances.push_back(&instance);
    return instances;
  }
  auto instance = nic_named(daemon, args[0]);
  if (!instance) return Unexpected(instance.error());
  instances.push_back(*instance);
  return instances;
}

}  // namespace hostnic
