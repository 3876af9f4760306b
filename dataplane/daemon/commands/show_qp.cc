// SPDX-License-Identifier: BSD-3-Clause
#include <errno.h>

#include "dataplane/daemon/commands/commands.h"
#include "dataplane/daemon/commands/nic_argument.h"

namespace hostnic {
namespace {

CommandResult show_qp(Daemon& daemon, std::span<const std::string_view> args) {
  auto instances = nics_named(daemon, args, kShowQp);
  if (!instances) return {EINVAL, instances.error()};
  std::string text;
  for (NicInstance* instance : *instances) {
    std::vector<std::string> lines;
    instance->lcore->run_on([&] { lines = instance->nic->describe_qps(); });
    for (const std::string& line : lines) text += line + '\n';
  }
  return {0, text.empty() ? "no queue pairs\n" : text};
}

}  // namespace

const PromptCommand kShowQp = {"show qp", "[hnicK]", "queue pairs, one a line", show_qp};

}  // namespace hostnic
