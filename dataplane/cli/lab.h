// SPDX-License-Identifier: BSD-3-Clause
// `hostnic lab`: a private hostnicd for the time of one command.
#pragma once

#include <string>
#include <vector>

namespace hostnic::cli {

struct LabOptions {
  std::vector<std::string> daemon_arguments;  // passed to hostnicd as they are: it checks them
  bool keep_log = false;
  bool verbose = false;  // hostnicd's log goes to our stderr
};

// Returns the exit code: the command's, or 128 + signal, or hostnicd's when that doesn't start.
int run_lab(const LabOptions& options, const std::vector<std::string>& command);

}  // namespace hostnic::cli
