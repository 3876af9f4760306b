// SPDX-License-Identifier: BSD-3-Clause
// What a run with fault rules says at its end. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace hostnic::cli {

struct FaultReport {
  struct Rule {
    std::string text;
    uint64_t met = 0;      // how often what it is about has happened
    uint64_t fired = 0;    // and how often it has fired
    bool removed = false;  // while programs ran: it need not have fired
  };
  std::vector<Rule> rules;
  uint32_t processes = 0;  // that made calls with the rules in force

  bool all_fired() const;
};

// Lines for people, each with its newline.
std::string text_of(const FaultReport& report);

}  // namespace hostnic::cli
