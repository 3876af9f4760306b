// SPDX-License-Identifier: BSD-3-Clause
#include <errno.h>

#include "dataplane/daemon/control/commands/commands.h"
#include "dataplane/daemon/control/commands/nic_argument.h"

namespace hostnic {
namespace {

CommandResult show_qp(Daemon& daemon, const Asker& asker, std::span<const std::string_view> args) {
  auto instances = nics_named(daemon, args, kShowQp);
  if (!instances) return {EINVAL, instances.error()};
  std::string text;
  for (NicInstance* instance : *instances) {
    // A few at a time: the lcore serves everybody else in between.
    for (uint32_t from = 0; from != Nic::kNoMoreQps;) {
      std::vector<std::string> lines;
      instance->lcore->run_on([&] {
        lines = instance->nic->describe_qps(
            from, asker.is_owner ? std::nullopt
                                 : std::optional(asker.is_one_user ? asker.uid : UINT32_MAX));
      });
      for (const std::string& line : lines) text += line + '\n';
    }
  }
  return {0, text.empty() ? "no queue pairs\n" : text};
}

}  // namespace

const PromptCommand kShowQp = {"show qp", "[hnicK]", "queue pairs, one a line", show_qp};

}  // namespace hostnic
