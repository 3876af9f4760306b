// SPDX-License-Identifier: BSD-3-Clause
// ibv_fork_init's wish: forked children will not use registered memory.
#pragma once

namespace hostnic::memory {

// From now on a forked child gets no copy of the registered pages; they are unmapped there, as with
// an adapter. Without it the fork waits until the child has copied them. May be called by any
// thread at any time.
void set_fork_init();

// Installs the fork handlers, if they are not yet. For any thread.
void watch_forks();

}  // namespace hostnic::memory
