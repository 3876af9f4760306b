// SPDX-License-Identifier: BSD-3-Clause
// The prompt of `hostnic ctl`: hostnicd's commands with line editing, history and completion (by
// libedit), and some of its own: watch, rates.
#pragma once

#include <string>

namespace hostnic::cli {

// Reads lines until there are no more. Where standard input is no terminal they are run as a
// script, and a line that fails makes the exit code 1. Returns the exit code.
int run_prompt(const std::string& socket_path);

// Runs one line of the prompt's own commands, or of hostnicd's, as if it had been typed. Returns
// the exit code.
int run_prompt_line(const std::string& socket_path, const std::string& line);

}  // namespace hostnic::cli
