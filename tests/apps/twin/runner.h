// SPDX-License-Identifier: BSD-3-Clause
// Seeds, each in a process of its own that is ended when it takes too long; and lists that are made
// shorter as long as they still fail.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace hostnic::twin {

struct RunOptions {
  uint64_t first = 1, last = 100;
  size_t operations = 150;
  unsigned threads = 0;
  unsigned limit_s = 30;
  unsigned most_failures = 20;  // then it stops
  bool shrink = false;
  std::vector<std::string> passed_on;  // to each seed's process
};

// The exit status.
int run_seeds(const char* program, const RunOptions& options);

}  // namespace hostnic::twin
