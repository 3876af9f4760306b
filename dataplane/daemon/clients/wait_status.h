// SPDX-License-Identifier: BSD-3-Clause
// How a process ended that is not our child.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>

namespace hostnic {

// Says how the process ended, as wait() does: 0 is well. It has ended already; how, the kernel says
// when its parent has asked (Linux 6.15), or, of a process of our own user's, until then. Waits for
// that for a while; nothing: it can't be known. `pid` is 0 where it is not in our PID namespace.
std::optional<int> wait_status_of(int pid_fd, pid_t pid, std::chrono::milliseconds patience);

}  // namespace hostnic
