// SPDX-License-Identifier: BSD-3-Clause
// The usual argument of a command: one NIC by its name, or all.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "dataplane/daemon/commands/command.h"
#include "dataplane/daemon/daemon.h"
#include "protocol/expected.h"

namespace hostnic {

// The NIC of that name. Error: one line.
Expected<NicInstance*, std::string> nic_named(Daemon& daemon, std::string_view name);
// `args` empty: all NICs; one name: that NIC. Error: one line.
Expected<std::vector<NicInstance*>, std::string> nics_named(Daemon& daemon,
                                                            std::span<const std::string_view> args,
                                                            const PromptCommand& command);

}  // namespace hostnic
