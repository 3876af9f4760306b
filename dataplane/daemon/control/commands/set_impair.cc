// SPDX-License-Identifier: BSD-3-Clause
#include <errno.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dataplane/daemon/control/commands/commands.h"
#include "dataplane/daemon/control/commands/nic_argument.h"

namespace hostnic {
namespace {

CommandResult set_impair(Daemon& daemon, const Asker&, std::span<const std::string_view> args) {
  if (args.size() < 3 || (args[1] != "rx" && args[1] != "tx")) return usage_error(kSetImpair);
  std::vector<NicInstance*> instances;
  if (args[0] == "all") {
    for (NicInstance& instance : daemon.nics()) instances.push_back(&instance);
  } else {
    auto instance = nic_named(daemon, args[0]);
    if (!instance) return {EINVAL, instance.error()};
    instances.push_back(*instance);
  }
  auto spec = impair::parse_spec(fmt::format("{}", fmt::join(args.subspan(1), " ")));
  if (!spec) return {EINVAL, fmt::format("set impair: {}", spec.error().message())};
  if (const std::string why = impair::why_no_path(*spec, daemon.plan().network_switch);
      !why.empty())
    return {EINVAL, fmt::format("set impair: {}", why)};
  const bool receive_side = spec->direction != impair::Direction::kTx;
  spec->direction.reset();
  for (NicInstance* instance : instances) daemon.set_impairment(*instance, receive_side, *spec);
  return {};
}

}  // namespace

const PromptCommand kSetImpair = {command_info("set impair"), set_impair};

}  // namespace hostnic
