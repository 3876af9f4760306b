// SPDX-License-Identifier: BSD-3-Clause
// Threads that do operations, each on an arena of its own and with a model of its own, while the
// main thread registers parts of their arenas. In each arena is a zone whose pages stay mapped and
// writable, whatever else is done to them: every fourth of them is the main thread's, where the
// peer writes and reads, and the others are the thread's.
#pragma once

#include "tests/apps/twin/executor.h"

namespace hostnic::twin {

// Returns when all threads have done their operations; ends the process on a difference. `ends` and
// `peer` may be null.
void run_crowd(const Settings& settings, unsigned threads, size_t operations, Ends* ends,
               Peer* peer, Longest& longest);

}  // namespace hostnic::twin
