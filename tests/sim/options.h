// SPDX-License-Identifier: BSD-3-Clause
// The command line: which seeds, which profile.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "protocol/wire/bth.h"

namespace hostnic::sim {

struct Options {
  uint64_t first_seed = 1;
  uint32_t seeds = 200;                // of each profile
  std::string profile;                 // empty: all
  int64_t pattern = -1;                // of the exhaustive tests; -1: all
  uint32_t sample = 1;                 // of the exhaustive tests: one pattern in so many
  std::optional<wire::Policy> policy;  // of all random worlds; nothing: as the seed says
  std::string policy_text() const {
    static constexpr const char* kNames[] = {"selective", "go-back-n", "whole-message"};
    return policy ? std::string(" --policy ") + kNames[static_cast<size_t>(*policy)] : "";
  }
  std::string program;  // as it was called
};
Options& options();

}  // namespace hostnic::sim
