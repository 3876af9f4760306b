// SPDX-License-Identifier: BSD-3-Clause
// `hostnic check`: runs a command and tells mistakes in its use of verbs, on any device. `hostnic
// lab --check` runs it around its command.
#pragma once

#include <string>
#include <vector>

namespace hostnic::cli {

struct CheckOptions {
  std::string json;          // file for the findings; empty: none
  std::string suppressions;  // file; empty: none
  int exit_code = 96;        // where there were findings and the command ended well
  bool is_strict = false;    // also what is a mistake in most programs only
  bool is_full = false;      // compare each request with all its bytes
};

// The command that runs `command` with these options.
std::vector<std::string> with_check(const CheckOptions& options,
                                    const std::vector<std::string>& command);

// Runs a command, tells findings as they come, and sums up. Returns the command's exit code, or
// `exit_code`, or 2 for options that make no sense.
int run_check(const CheckOptions& options, const std::vector<std::string>& command);

}  // namespace hostnic::cli
