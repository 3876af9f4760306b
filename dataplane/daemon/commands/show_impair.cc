#include <errno.h>
#include <fmt/format.h>

#include "dataplane/daemon/commands/commands.h"
#include "dataplane/daemon/commands/nic_argument.h"

namespace hostnic {
namespace {

CommandResult show_impair(Daemon& daemon, std::span<const std::string_view> args) {
  auto units = nics_named(daemon, args, kShowImpair);
  if (!units) return {EINVAL, units.error()};
  std::string text;
  for (const NicUnit* unit : *units)
    text += fmt::format("{0} rx {1}\n{0} tx {2}\n", unit->plan.settings.name,
                        impair::to_string(unit->plan.rx), impair::to_string(unit->plan.tx));
  return {0, text};
}

}  // namespace

const PromptCommand kShowImpair = {"show impair", "[hnicK]", "what is done to packets on purpose",
                                   show_impair};

}  // namespace hostnic
