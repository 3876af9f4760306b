// SPDX-License-Identifier: BSD-3-Clause
#include <errno.h>
#include <fmt/format.h>

#include "dataplane/daemon/control/commands/commands.h"
#include "dataplane/daemon/control/commands/nic_argument.h"

namespace hostnic {
namespace {

CommandResult show_impair(Daemon& daemon, const Asker&, std::span<const std::string_view> args) {
  auto instances = nics_named(daemon, args, kShowImpair);
  if (!instances) return {EINVAL, instances.error()};
  std::string text;
  for (NicInstance* instance : *instances) {
    for (const bool receive_side : {true, false}) {
      const std::string side = instance->plan.settings.name + (receive_side ? " rx " : " tx ");
      text += side + impair::to_string(receive_side ? instance->plan.rx : instance->plan.tx) + "\n";
      std::optional<impair::Counters> counters;
      instance->lcore->run_on([&] { counters = instance->nic->impairment_counters(receive_side); });
      if (!counters) continue;
      text += side + "packets:";
      counters->for_each([&](const char* name, uint64_t value) {
        if (value != 0) text += fmt::format(" {} {}", name, value);
      });
      text += "\n";
    }
  }
  return {0, text};
}

}  // namespace

const PromptCommand kShowImpair = {
    "show impair", "[hnicK]", "what is done to packets on purpose, and was, since the last change",
    show_impair};

}  // namespace hostnic
