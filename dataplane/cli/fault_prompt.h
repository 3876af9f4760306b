// SPDX-License-Identifier: BSD-3-Clause
// Fault rules of a run that goes on: `fault add RULE`, `fault list` and `fault remove N` of
// `hostnic ctl`, in a lab or run with rules (`--fault none` for none at its start).
#pragma once

#include <string>
#include <string_view>

#include "dataplane/cli/fault_report.h"
#include "protocol/expected.h"
#include "protocol/hostif/fault_board.h"

namespace hostnic::cli {

// Answers what stands behind `fault`, on the board that the environment names. An error is one
// line.
Expected<std::string, std::string> answer_fault(std::string_view words);

// The rules of a board and what became of them. Programs may have written to it: rules that make no
// sense are left out.
FaultReport report_of(const FaultBoard& board);

// The same on a given board. For one thread, and one process at a time.
Expected<std::string, std::string> add_fault(FaultBoard& board, std::string_view rule);
Expected<std::string, std::string> remove_fault(FaultBoard& board, std::string_view number);
std::string list_faults(const FaultBoard& board);

}  // namespace hostnic::cli
