// SPDX-License-Identifier: BSD-3-Clause
// Whether touching a client's memory through its mem fd may block: what is not memory itself (a
// file of a disk, of the network, of FUSE) is brought by somebody who may take as long as he likes.
#pragma once

#include <sys/types.h>

#include <span>

#include "dataplane/memory/client_memory.h"

namespace hostnic {

// Looks at what is mapped now at the pieces that are reached through the mem fd. True as well where
// the process can't be looked at. A process that wants to deceive us can: this is for those that we
// trust. May read files; for session threads.
bool may_block(pid_t process, std::span<const MappedPiece> pieces);

}  // namespace hostnic
