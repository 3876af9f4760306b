// SPDX-License-Identifier: BSD-3-Clause
// The end of a lab: its hostnicds are asked what has been, which is told and written down.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dataplane/cli/lab.h"

namespace hostnic::cli {

struct LabSocket {
  std::string host;  // empty in a lab without hosts
  std::string path;
};

// Prints the summary and writes --summary's file, as the options say.
void conclude_lab(const LabOptions& options, const std::vector<LabSocket>& sockets,
                  const std::vector<std::string>& command, int exit_code, uint64_t duration_ns);

// Nanoseconds of the monotonic clock, for durations.
uint64_t monotonic_ns();

}  // namespace hostnic::cli
