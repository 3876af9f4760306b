// SPDX-License-Identifier: BSD-3-Clause
// The process that has a lab's hosts: it makes their namespaces, whose descriptors it keeps, starts
// hostnicd in them, and takes all of it away in the end, also when `hostnic lab` is killed.
#pragma once

#include <string>

#include "dataplane/cli/hosts_plan.h"
#include "dataplane/cli/lab_directory.h"
#include "protocol/hostif/unique_fd.h"

namespace hostnic::cli {

struct GuardianPlan {
  HostsPlan hosts;
  std::string hostnicd;  // the program
  bool keep_log = false, verbose = false, open_to_others = false;
  // `hostnic lab` writes here the PID of COMMAND, and closes the pipe when that has ended, after
  // one more byte. Without that byte it was killed.
  UniqueFd orders;
  UniqueFd ready;  // one byte is written here when the hosts are
};

inline constexpr char kEndOrder = 'E';

// Runs the guardian, in a process of its own that was forked for it. Returns its exit code.
int guard_hosts(GuardianPlan plan, LabDirectory& directory);

// Ends all programs in the hosts of a lab.
class HeldNetworks;
void end_programs(const HeldNetworks& networks);

}  // namespace hostnic::cli
