// SPDX-License-Identifier: BSD-3-Clause
// `hostnic run`: a command on a running hostnicd.
#pragma once

#include <string>
#include <vector>

namespace hostnic::cli {

// Runs a command on the devices in `devices`: comma-separated names; empty: all. This replaces the
// process; it returns an exit code if it can't.
int run_on_hostnicd(const std::string& socket_path, const std::string& devices,
                    const std::vector<std::string>& command);

}  // namespace hostnic::cli
