// SPDX-License-Identifier: BSD-3-Clause
#include <errno.h>

#include "dataplane/daemon/control/commands/commands.h"
#include "dataplane/daemon/control/commands/nic_argument.h"

namespace hostnic {
namespace {

CommandResult show_peers(Daemon& daemon, const Asker&, std::span<const std::string_view> args) {
  auto instances = nics_named(daemon, args, kShowPeers);
  if (!instances) return {EINVAL, instances.error()};
  std::string text;
  for (NicInstance* instance : *instances) {
    std::vector<std::string> lines;
    instance->lcore->run_on([&] { lines = instance->nic->describe_peers(); });
    for (const std::string& line : lines) text += line + '\n';
  }
  return {0, text.empty() ? "no hosts have been asked what they speak\n" : text};
}

}  // namespace

// It changes nothing, but says whom other users' programs are connected to.
const PromptCommand kShowPeers = {"show peers", "[hnicK]", "what is known of what hosts speak",
                                  show_peers, /*is_owners=*/true};

}  // namespace hostnic
