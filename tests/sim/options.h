// The command line: which seeds, which profile.
#pragma once

#include <cstdint>
#include <string>

namespace hostnic::sim {

struct Options {
  uint64_t first_seed = 1;
  uint32_t seeds = 50;
  std::string profile;  // empty: all
};
Options& options();

}  // namespace hostnic::sim
