// SPDX-License-Identifier: BSD-3-Clause
// The mirror: one file per client process whose offset is the client's virtual address. Pages of
// registered private memory are moved into it by the client, and hostnicd maps them from it.
#pragma once

#include <string>

#include "protocol/expected.h"

namespace hostnic {

// Makes a mirror for a new client process: a memfd of kMirrorBytes, sealed against shrinking,
// growing and further seals, so that no page of it can be cut off under hostnicd. It is made here
// because a client's own ftruncate may run into its RLIMIT_FSIZE. Called by the control thread; the
// caller owns the descriptor. An error is one line.
Expected<int, std::string> create_mirror();

// Whether a descriptor that a client sent as "the mirror of my process" can serve as one: a sealed
// memfd on ordinary pages, of the right size, opened for reading and writing. An error is one line.
Expected<void, std::string> check_mirror(int fd);

}  // namespace hostnic
