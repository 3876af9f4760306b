// SPDX-License-Identifier: BSD-3-Clause
// Finding and ending what a lab with hosts has started: nothing of it may stay.
#pragma once

#include <sys/types.h>

#include <functional>
#include <set>

namespace hostnic::cli {

// The processes in these network namespaces, without `except`.
std::set<pid_t> processes_in(const std::set<ino_t>& network_ids, const std::set<pid_t>& except);
// Returns those of these processes that live, and all that descend from them.
std::set<pid_t> with_descendants(const std::set<pid_t>& pids);

// Asks all that `find` finds to end, again and again, for new ones may have come; who does not
// within `patience_ms` is killed.
void end_processes(const std::function<std::set<pid_t>()>& find, int patience_ms);

}  // namespace hostnic::cli
