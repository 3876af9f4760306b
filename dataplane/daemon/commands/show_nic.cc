#include <errno.h>
#include <fmt/format.h>

#include "dataplane/daemon/commands/commands.h"
#include "dataplane/daemon/commands/nic_argument.h"

namespace hostnic {
namespace {

CommandResult show_nic(Daemon& daemon, std::span<const std::string_view> args) {
  auto units = nics_named(daemon, args, kShowNic);
  if (!units) return {EINVAL, units.error()};
  std::string text;
  for (NicUnit* unit : *units) {
    std::string line;
    unit->lcore->run_on([&] { line = unit->nic->describe(); });
    text += fmt::format("{} lcore {}{}\n", line, unit->lcore_number,
                        unit->lcore->handling() ? "" : " stopped");
  }
  return {0, text};
}

}  // namespace

const PromptCommand kShowNic = {"show nic", "[hnicK]", "address, MTU, port and lcore of the NICs",
                                show_nic};

}  // namespace hostnic
