// SPDX-License-Identifier: BSD-3-Clause
// The usual argument of a command: one NIC by its name, or all.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "dataplane/daemon/control/command.h"
#include "dataplane/daemon/daemon.h"
#include "protocol/expected.h"

namespace hostnic {

// Finds the NIC of that name. An error is one line.
Expected<NicInstance*, std::string> nic_named(Daemon& daemon, std::string_view name);
// Finds all NICs if `args` is empty, or the NIC of the one name in it. An error is one line.
Expected<std::vector<NicInstance*>, std::string> nics_named(Daemon& daemon,
                                                            std::span<const std::string_view> args,
                                                            const PromptCommand& command);

}  // namespace hostnic
