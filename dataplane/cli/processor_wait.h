// SPDX-License-Identifier: BSD-3-Clause
// How long a process is kept from a processor. Any thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>

namespace hostnic::cli {

// The time for which each thread has waited for a processor since it began, in nanoseconds, by its
// number. `tasks` is the process's /proc/PID/task; empty if that can't be read, or the kernel does
// not count it.
using ProcessorWaits = std::map<pid_t, uint64_t>;
ProcessorWaits processor_waits(const std::string& tasks);

// The most that one thread has waited between the two looks.
uint64_t longest_wait_ns(const ProcessorWaits& before, const ProcessorWaits& after);

}  // namespace hostnic::cli
