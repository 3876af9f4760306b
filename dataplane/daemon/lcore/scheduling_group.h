// SPDX-License-Identifier: BSD-3-Clause
// Whether the kernel schedules two processes as members of one group.
//
// Where it groups sessions (sched_autogroup_enabled), sched_yield() lets in threads of the caller's
// own session only: an lcore and a program of different sessions share a processor by time slices,
// not by who has something to do (docs/core-sharing.md, "Sessions").
#pragma once

#include <cstdint>
#include <string>

namespace hostnic {

// Whether the kernel schedules the process in another group than ours; for any thread but an lcore,
// because this reads three files. Returns false also where /proc does not say.
bool scheduled_apart_from(uint32_t pid, const std::string& proc = "/proc");

}  // namespace hostnic
