// SPDX-License-Identifier: BSD-3-Clause
// `hostnic lab --hosts`: several hosts on one machine for the time of one command, which runs
// outside of them, and `hostnic on`, which runs commands in them.
#pragma once

#include <string>
#include <vector>

#include "dataplane/cli/lab.h"

namespace hostnic::cli {

// Returns the exit code: the command's, or 128 + signal, or hostnicd's when that doesn't start.
int run_hosts_lab(const LabOptions& options, const std::vector<std::string>& command);

// Becomes a command in a host of the lab in `directory`; `host` is "host2" or "2". Returns an exit
// code if it can't.
int run_on_host(const std::string& directory, const std::string& host,
                const std::vector<std::string>& command);

}  // namespace hostnic::cli
