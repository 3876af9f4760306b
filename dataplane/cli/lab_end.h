// SPDX-License-Identifier: BSD-3-Clause
// The end of a lab: its hostnicds are asked what has been, which is told and written down.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dataplane/cli/lab.h"
#include "protocol/hostif/use_board.h"

namespace hostnic::cli {

struct LabSocket {
  std::string host;  // empty in a lab without hosts
  std::string path;
};

// Waits until these hostnicds have noticed that programs have ended, half a second at most, since
// some may live on: what queue pairs ended like is known then.
void await_programs_end(const std::vector<LabSocket>& sockets);

// Has each of these hostnicds trace messages; and write what it has traced into the directory that
// was asked for, several each into one of its own there. Says on stderr what goes wrong.
void begin_lab_trace(const LabOptions& options, const std::vector<LabSocket>& sockets);
void end_lab_trace(const LabOptions& options, const std::vector<LabSocket>& sockets);

// Prints the summary and writes --summary's file, as the options say. Returns the lab's exit code,
// which is the command's unless it has moved too little.
int conclude_lab(const LabOptions& options, const std::vector<LabSocket>& sockets,
                 const std::vector<std::string>& command, int exit_code, uint64_t duration_ns,
                 const UseBoard& board);

// Nanoseconds of the monotonic clock, for durations.
uint64_t monotonic_ns();

}  // namespace hostnic::cli
