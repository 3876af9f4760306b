#include "dataplane/daemon/commands/nic_argument.h"

#include <fmt/format.h>

namespace hostnic {

Expected<NicUnit*, std::string> nic_named(Daemon& daemon, std::string_view name) {
  if (NicUnit* unit = daemon.find_nic(name)) return unit;
  std::string names;
  for (const NicUnit& unit : daemon.nics())
    names += (names.empty() ? "" : ", ") + unit.plan.settings.name;
  return Unexpected(fmt::format("no NIC \"{}\" (there are: {})", name, names));
}

Expected<std::vector<NicUnit*>, std::string> nics_named(Daemon& daemon,
                                                        std::span<const std::string_view> args,
                                                        const PromptCommand& command) {
  std::vector<NicUnit*> units;
  if (args.size() > 1) return Unexpected(usage_error(command).text);
  if (args.empty()) {
    for (NicUnit& unit : daemon.nics()) units.push_back(&unit);
    return units;
  }
  auto unit = nic_named(daemon, args[0]);
  if (!unit) return Unexpected(unit.error());
  units.push_back(*unit);
  return units;
}

}  // namespace hostnic
