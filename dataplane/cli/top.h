// SPDX-License-Identifier: BSD-3-Clause
// `hostnic top`: NICs and their busiest queue pairs, live on a terminal by ncurses; where stdout is
// none, once, as plain text.
#pragma once

#include <string>

namespace hostnic::cli {

struct TopOptions {
  std::string socket_path;
  bool once = false;   // plain text, even on a terminal
  uint32_t count = 0;  // end after so many looks; 0: when told to
};

// Returns the exit code.
int run_top(const TopOptions& options);

}  // namespace hostnic::cli
