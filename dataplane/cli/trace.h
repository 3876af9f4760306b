// SPDX-License-Identifier: BSD-3-Clause
// `hostnic trace`: the calls of verbs and librdmacm that a command and its children make, as strace
// shows system calls; on any device of verbs.
#pragma once

#include <string>
#include <vector>

namespace hostnic::cli {

struct TraceOptions {
  std::string output;    // a file instead of stderr; empty: none
  bool summary = false;  // counts at the end instead of lines
};

// Runs a command and reads what it does, until it has ended. Returns its exit status, or 1.
int run_trace(const TraceOptions& options, const std::vector<std::string>& command);

}  // namespace hostnic::cli
