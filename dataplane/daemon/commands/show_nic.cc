// SPDX-License-Identifier: BSD-3-Clause
#include <errno.h>
#include <fmt/format.h>

#include "dataplane/daemon/commands/commands.h"
#include "dataplane/daemon/commands/nic_argument.h"

namespace hostnic {
namespace {

CommandResult show_nic(Daemon& daemon, const Asker&, std::span<const std::string_view> args) {
  auto instances = nics_named(daemon, args, kShowNic);
  if (!instances) return {EINVAL, instances.error()};
  std::string text;
  for (NicInstance* instance : *instances) {
    std::string line;
    instance->lcore->run_on([&] { line = instance->nic->describe(); });
    text += fmt::format("{} lcore {}{}\n", line, instance->lcore_number,
                        instance->lcore->handling() ? "" : " stopped");
  }
  return {0, text};
}

}  // namespace

const PromptCommand kShowNic = {"show nic", "[hnicK]", "address, MTU, port and lcore of the NICs",
                                show_nic};

}  // namespace hostnic
