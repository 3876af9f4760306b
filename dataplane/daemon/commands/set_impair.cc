#include <errno.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dataplane/daemon/commands/commands.h"
#include "dataplane/daemon/commands/nic_argument.h"

namespace hostnic {
namespace {

CommandResult set_impair(Daemon& daemon, std::span<const std::string_view> args) {
  if (args.size() < 3 || (args[1] != "rx" && args[1] != "tx")) return usage_error(kSetImpair);
  std::vector<NicUnit*> units;
  if (args[0] == "all") {
    for (NicUnit& unit : daemon.nics()) units.push_back(&unit);
  } else {
    auto unit = nic_named(daemon, args[0]);
    if (!unit) return {EINVAL, unit.error()};
    units.push_back(*unit);
  }
  auto spec = impair::parse_spec(fmt::format("{}", fmt::join(args.subspan(1), " ")));
  if (!spec) return {EINVAL, fmt::format("set impair: {}", spec.error().message())};
  const bool receive_side = spec->direction != impair::Direction::kTx;
  spec->direction.reset();
  for (NicUnit* unit : units) daemon.set_impairment(*unit, receive_side, *spec);
  return {};
}

}  // namespace

const PromptCommand kSetImpair = {
    "set impair", "hnicK|all rx|tx SPEC",
    "drop, duplicate, reorder, delay, corrupt or limit packets; none ends it", set_impair};

}  // namespace hostnic
