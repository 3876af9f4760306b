// The command line: which seeds, which profile.
#pragma once

#include <cstdint>
#include <string>

namespace hostnic::sim {

struct Options {
  uint64_t first_seed = 1;
  uint32_t seeds = 200;  // of each profile
  std::string profile;   // empty: all
  int64_t pattern = -1;  // of the exhaustive tests; -1: all
  uint32_t sample = 1;   // of the exhaustive tests: one pattern in so many
  std::string program;   // as it was called
};
Options& options();

}  // namespace hostnic::sim
