// SPDX-License-Identifier: BSD-3-Clause
// `hostnic fault`: runs a command whose calls of verbs and librdmacm fail, or are late, as rules
// say; on any device of verbs. `hostnic lab --fault` and `hostnic run --fault` run it around
// theirs.
#pragma once

#include <string>
#include <vector>

namespace hostnic::cli {

// The exit code of a run whose command ended well, but in which a rule never fired.
inline constexpr int kNeverFired = 98;
// The variable that has further rules.
inline constexpr const char* kFaultVariable = "HOSTNIC_FAULT";

struct FaultOptions {
  std::vector<std::string> rules;  // each may be several, by ';'
  std::string file;                // with a line for each, and comments behind '#'; empty: none
  std::string device;              // for rules that name none; empty: any
  std::string seed = "1";          // of percentages
  bool by_program = false;         // the program may arm rules itself: none need be given

  bool has_rules() const { return !rules.empty() || !file.empty(); }
};

// Adds the variable's rules, which then are nobody else's.
void take_fault_variable(FaultOptions& options);
// The command that runs `command` with these rules.
std::vector<std::string> with_faults(const FaultOptions& options,
                                     const std::vector<std::string>& command);

// Runs a command and says at its end which rules have fired. Returns its exit code, kNeverFired, or
// 2 for rules that make no sense.
int run_fault(const FaultOptions& options, const std::vector<std::string>& command);

}  // namespace hostnic::cli
